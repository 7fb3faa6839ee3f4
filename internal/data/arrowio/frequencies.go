package arrowio

import (
	"io"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"

	"shaver/internal/base/fault"
)

// WriteFrequencies writes how many rows of each split contain each feature. counts is
// [splits][features]. The file has one int64 column per split, with the split's name, and
// row g holds the counts of global id g. It panics if the lengths do not match.
func WriteFrequencies(w io.Writer, splits []string, counts [][]int64) error {
	if len(splits) == 0 || len(splits) != len(counts) {
		panic("arrowio: WriteFrequencies: expected one column of counts per split")
	}
	columns := make([]arrow.Field, len(splits))
	for k, name := range splits {
		columns[k] = arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64}
		if len(counts[k]) != len(counts[0]) {
			panic("arrowio: WriteFrequencies: columns of counts differ in length")
		}
	}
	metadata := arrow.NewMetadata([]string{keyVersion}, []string{FrequenciesVersion})
	out, err := newFileWriter(w, arrow.NewSchema(columns, &metadata))
	if err != nil {
		return err
	}
	for from := 0; from < len(counts[0]); from += batchEntries {
		to := min(from+batchEntries, len(counts[0]))
		arrays := make([]arrow.Array, len(splits))
		for k := range splits {
			arrays[k] = int64s(counts[k][from:to])
		}
		if err := out.write(to-from, arrays...); err != nil {
			return err
		}
	}
	return out.close()
}

// ReadFrequencies reads the counts, [splits][features]. The file must have exactly the
// given splits and number of features, and counts of at least 0.
func ReadFrequencies(r io.Reader, splits []string, features int) ([][]int64, error) {
	in, err := newReader(r, false, FrequenciesVersion)
	if err != nil {
		return nil, err
	}
	defer in.close()
	columns := make([]arrow.Field, len(splits))
	for k, name := range splits {
		columns[k] = arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64}
	}
	if err := in.expect(columns...); err != nil {
		return nil, err
	}
	counts := make([][]int64, len(splits))
	for err == nil {
		err = in.next(func(record arrow.Record) error {
			for k, c := range record.Columns() {
				for _, count := range c.(*array.Int64).Int64Values() {
					if count < 0 {
						return fault.Inputf("split %s: feature %d occurs in %d rows, expected at least 0", splits[k], len(counts[k]), count)
					}
					counts[k] = append(counts[k], count)
				}
			}
			return nil
		})
	}
	if err != io.EOF {
		return nil, err
	}
	for k, c := range counts {
		if len(c) != features {
			return nil, fault.Inputf("split %s: found counts of %d features, expected %d", splits[k], len(c), features)
		}
	}
	return counts, nil
}

package arrowio

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"shaver/internal/tally"
)

// parquetGroup is the number of features in a Parquet row group.
const parquetGroup = 1 << 16

// WriteScoresParquet writes the content of WriteScores as Parquet, for tools that prefer
// it. The columns are flat: field, id, count, t and t_population, phi_0, ..., phi_{d-1},
// abs_0, ..., and so on. The metadata become key-value metadata. A standard error times
// its factor is half the width of a 95% interval; the factor of se is t, and that of
// se_population is t_population. interval returns both factors for a feature's count, or
// NaN if there is no interval. None of our programs reads the file. The same arguments
// give the same bytes.
//
// WriteScoresParquet uses the low-level writer, because the writer for Arrow records
// (pqarrow) would link all of gRPC into every binary.
func WriteScoresParquet(w io.Writer, fields []string, sizes []int, s *tally.Scores, interval func(count int64) (dataset, population float64), meta map[string]string) error {
	if err := checkScores(fields, sizes, s); err != nil {
		return err
	}
	root, err := parquetSchema(s.Dim)
	if err != nil {
		return err
	}
	properties := parquet.NewWriterProperties(
		parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCreatedBy("shaver"), parquet.WithDictionaryDefault(false),
		parquet.WithDictionaryFor("field", true))
	// The struct hides the Close method of w, so that the file writer does not close w.
	out := file.NewParquetWriter(struct{ io.Writer }{w}, root, file.WithWriterProps(properties))
	metadata := scoresMetadata(fields, sizes, s.Dim, meta)
	pairs := metadata.ToMap()
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		if err := out.AppendKeyValueMetadata(key, pairs[key]); err != nil {
			return err
		}
	}
	at := place{}
	for from := 0; from < len(s.Count); from += parquetGroup {
		if err := writeGroup(out.AppendRowGroup(), fields, sizes, s, interval, from, min(from+parquetGroup, len(s.Count)), &at); err != nil {
			return errors.Join(err, out.Close())
		}
	}
	return out.Close()
}

func parquetSchema(dim int) (*schema.GroupNode, error) {
	name, err := schema.NewPrimitiveNodeLogical("field", parquet.Repetitions.Required, schema.StringLogicalType{}, parquet.Types.ByteArray, 0, -1)
	if err != nil {
		return nil, err
	}
	once := parquet.Repetitions.Required
	columns := schema.FieldList{name, schema.NewInt32Node("id", once, -1), schema.NewInt64Node("count", once, -1),
		schema.NewFloat64Node("t", once, -1), schema.NewFloat64Node("t_population", once, -1)}
	for c := range dim {
		columns = append(columns, schema.NewFloat64Node(fmt.Sprintf("phi_%d", c), once, -1))
	}
	for _, prefix := range narrowNames {
		for c := range dim {
			columns = append(columns, schema.NewFloat32Node(fmt.Sprintf("%s_%d", prefix, c), once, -1))
		}
	}
	return schema.NewGroupNode("schema", parquet.Repetitions.Required, columns, -1)
}

// writeGroup writes features [from, to). at is the position of the first of them.
func writeGroup(group file.SerialRowGroupWriter, fields []string, sizes []int, s *tally.Scores, interval func(int64) (float64, float64), from, to int, at *place) error {
	names, ids := make([]parquet.ByteArray, 0, to-from), make([]int32, 0, to-from)
	for len(ids) < to-from {
		field, first, end := at.run(sizes, to-from-len(ids))
		for id := first; id < end; id++ {
			names, ids = append(names, parquet.ByteArray(fields[field])), append(ids, int32(id))
		}
	}
	if err := writeColumn(group, names); err != nil {
		return err
	}
	if err := writeColumn(group, ids); err != nil {
		return err
	}
	if err := writeColumn(group, s.Count[from:to]); err != nil {
		return err
	}
	t, population := make([]float64, to-from), make([]float64, to-from)
	for i, count := range s.Count[from:to] {
		t[i], population[i] = interval(count)
	}
	if err := writeColumn(group, t); err != nil {
		return err
	}
	if err := writeColumn(group, population); err != nil {
		return err
	}
	if err := writeEntries(group, s.Phi, s.Dim, from, to); err != nil {
		return err
	}
	for _, values := range narrow(&s.Values) {
		if err := writeEntries(group, *values, s.Dim, from, to); err != nil {
			return err
		}
	}
	return group.Close()
}

// writeEntries writes features [from, to) of [n, d] values as d columns.
func writeEntries[T any](group file.SerialRowGroupWriter, entries []T, dim, from, to int) error {
	values := make([]T, to-from)
	for c := range dim {
		for i := range values {
			values[i] = entries[(from+i)*dim+c]
		}
		if err := writeColumn(group, values); err != nil {
			return err
		}
	}
	return nil
}

func writeColumn[T any](group file.SerialRowGroupWriter, values []T) error {
	next, err := group.NextColumn()
	if err != nil {
		return err
	}
	chunk, ok := next.(interface {
		WriteBatch(values []T, defined, repeated []int16) (int64, error)
	})
	if !ok {
		panic(fmt.Sprintf("arrowio: writeColumn: a %T does not accept a %T", next, values))
	}
	if _, err := chunk.WriteBatch(values, nil, nil); err != nil {
		return err
	}
	return next.Close()
}

package columnfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"shaver/internal/click/model"
	"shaver/internal/data/arrowio"
	"shaver/internal/num/layout"
	"shaver/internal/value/tally"
)

// parquetGroup is the number of features, or of predictions, in a Parquet row group.
const parquetGroup = 1 << 16

// WriteScoresParquet writes the content of WriteScores as Parquet, for tools that prefer
// it. The columns are flat: field, id, count, t and t_population, phi_0, ..., phi_{d-1},
// abs_0, ..., and so on. If rows of the tables have different numbers of entries, d is the
// largest, and a row has nulls in the columns that it lacks. Unless the layout is plain, the
// last column is table. The metadata become key-value metadata. A standard error times
// its factor is half the width of a 95% interval; the factor of se is t, and that of
// se_population is t_population. interval returns both factors for a feature, or
// NaN if there is no interval. Scores of a path have rank_0, ..., rank_{d-1} in place of t
// and all columns after it. None of our programs reads the file. The same arguments give the
// same bytes.
//
// WriteScoresParquet uses the low-level writer, because the writer for Arrow records
// (pqarrow) would link all of gRPC into every binary.
func WriteScoresParquet(w io.Writer, fields []string, a *model.Architecture, s *tally.Scores, interval func(feature int) (dataset, population float64), meta map[string]string) error {
	if err := arrowio.CheckScores(fields, a, s); err != nil {
		return err
	}
	version := arrowio.VersionOf(&s.Values)
	root, err := parquetSchema(a, version)
	if err != nil {
		return err
	}
	out := parquetWriter(w, root, "field")
	metadata := arrowio.ScoresMetadata(fields, a, version, meta)
	pairs := metadata.ToMap()
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		if err := out.AppendKeyValueMetadata(key, pairs[key]); err != nil {
			return err
		}
	}
	spans := a.Spans()
	for from := 0; from < len(s.Count); from += parquetGroup {
		if err := writeGroup(out.AppendRowGroup(), fields, a, spans, s, interval, from, min(from+parquetGroup, len(s.Count))); err != nil {
			return errors.Join(err, out.Close())
		}
	}
	return out.Close()
}

// parquetWriter returns a writer of Parquet with the given columns. The columns repeated
// have dictionaries. It does not close w.
func parquetWriter(w io.Writer, root *schema.GroupNode, repeated ...string) *file.Writer {
	options := []parquet.WriterProperty{parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCreatedBy("shaver"), parquet.WithDictionaryDefault(false)}
	for _, column := range repeated {
		options = append(options, parquet.WithDictionaryFor(column, true))
	}
	properties := parquet.NewWriterProperties(options...)
	// The struct hides the Close method of w, so that the file writer does not close w.
	return file.NewParquetWriter(struct{ io.Writer }{w}, root, file.WithWriterProps(properties))
}

// predictionsMark is the key in the metadata of a Parquet file with predictions.
const predictionsMark = "shaver.predictions"

// WritePredictionsParquet writes one line for each row as Parquet, with the columns row,
// label, logit and probability. row counts from 0, and probability is a function of the
// logit. If probability is nil, labels are numbers, and there is no column probability. None
// of our programs reads the file. The same arguments give the same bytes.
func WritePredictionsParquet(w io.Writer, labels []float32, logits []float64, probability func(logit float64) float64) error {
	once := parquet.Repetitions.Required
	columns := schema.FieldList{schema.NewInt64Node("row", once, -1), schema.NewInt32Node("label", once, -1),
		schema.NewFloat64Node("logit", once, -1), schema.NewFloat64Node("probability", once, -1)}
	if probability == nil {
		columns = schema.FieldList{columns[0], schema.NewFloat32Node("label", once, -1), columns[2]}
	}
	root, err := schema.NewGroupNode("schema", once, columns, -1)
	if err != nil {
		return err
	}
	out := parquetWriter(w, root)
	if err := out.AppendKeyValueMetadata(predictionsMark, "1"); err != nil {
		return err
	}
	for from := 0; from < len(labels); from += parquetGroup {
		to := min(from+parquetGroup, len(labels))
		if err := writePredictions(out.AppendRowGroup(), from, labels[from:to], logits[from:to], probability); err != nil {
			return errors.Join(err, out.Close())
		}
	}
	return out.Close()
}

// writePredictions writes a row group. first is the number of its first row.
func writePredictions(group file.SerialRowGroupWriter, first int, labels []float32, logits []float64, probability func(float64) float64) error {
	rows := make([]int64, len(labels))
	for i := range rows {
		rows[i] = int64(first + i)
	}
	if err := writeColumn(group, rows); err != nil {
		return err
	}
	if probability == nil {
		if err := writeColumn(group, labels); err != nil {
			return err
		}
		if err := writeColumn(group, logits); err != nil {
			return err
		}
		return group.Close()
	}
	wide, probabilities := make([]int32, len(labels)), make([]float64, len(labels))
	for i, label := range labels {
		wide[i], probabilities[i] = int32(label), probability(logits[i])
	}
	if err := writeColumn(group, wide); err != nil {
		return err
	}
	if err := writeColumn(group, logits); err != nil {
		return err
	}
	if err := writeColumn(group, probabilities); err != nil {
		return err
	}
	return group.Close()
}

// IsScoresParquet reports whether r, of size bytes, was written by WriteScoresParquet. It
// reads only the footer.
func IsScoresParquet(r io.ReaderAt, size int64) bool { return footerHas(r, size, "shaver.scores/") }

// IsPredictionsParquet reports whether r, of size bytes, was written by
// WritePredictionsParquet. It reads only the footer.
func IsPredictionsParquet(r io.ReaderAt, size int64) bool { return footerHas(r, size, predictionsMark) }

// footerHas reports whether r, of size bytes, is a Parquet file whose footer contains the text.
func footerHas(r io.ReaderAt, size int64, text string) bool {
	const most = 16 << 20
	tail := make([]byte, 8) // the footer's length and the magic number
	if _, err := r.ReadAt(tail, size-8); size < 8 || err != nil && err != io.EOF || string(tail[4:]) != "PAR1" {
		return false
	}
	length := int64(binary.LittleEndian.Uint32(tail))
	if length > min(size-8, most) {
		return false
	}
	footer := make([]byte, length)
	_, err := r.ReadAt(footer, size-8-length)
	return err == nil && bytes.Contains(footer, []byte(text))
}

func parquetSchema(a *model.Architecture, version string) (*schema.GroupNode, error) {
	name, err := textNode("field")
	if err != nil {
		return nil, err
	}
	once := parquet.Repetitions.Required
	shape, entry := a.Shape(), once
	if shape.Dim() == 0 {
		entry = parquet.Repetitions.Optional
	}
	columns := schema.FieldList{name, schema.NewInt32Node("id", once, -1), schema.NewInt64Node("count", once, -1)}
	if version != arrowio.PathScoresVersion {
		columns = append(columns, schema.NewFloat64Node("t", once, -1), schema.NewFloat64Node("t_population", once, -1))
	}
	for c := range shape.Widest() {
		if version == arrowio.PathScoresVersion {
			columns = append(columns, schema.NewInt32Node(fmt.Sprintf("rank_%d", c), entry, -1))
		} else {
			columns = append(columns, schema.NewFloat64Node(fmt.Sprintf("phi_%d", c), entry, -1))
		}
	}
	for _, prefix := range arrowio.NarrowNames(version) {
		for c := range shape.Widest() {
			columns = append(columns, schema.NewFloat32Node(fmt.Sprintf("%s_%d", prefix, c), entry, -1))
		}
	}
	if !a.Plain() {
		table, err := textNode("table")
		if err != nil {
			return nil, err
		}
		columns = append(columns, table)
	}
	return schema.NewGroupNode("schema", parquet.Repetitions.Required, columns, -1)
}

func textNode(name string) (*schema.PrimitiveNode, error) {
	return schema.NewPrimitiveNodeLogical(name, parquet.Repetitions.Required, schema.StringLogicalType{}, parquet.Types.ByteArray, 0, -1)
}

// writeGroup writes features [from, to).
func writeGroup(group file.SerialRowGroupWriter, fields []string, a *model.Architecture, spans []model.Span, s *tally.Scores, interval func(int) (float64, float64), from, to int) error {
	names, ids := make([]parquet.ByteArray, 0, to-from), make([]int32, 0, to-from)
	var tables []parquet.ByteArray
	for _, span := range spans {
		for row := max(from, span.Row); row < min(to, span.Row+span.Rows); row++ {
			names, ids = append(names, parquet.ByteArray(fields[span.Field])), append(ids, int32(row-span.Row))
			if !a.Plain() {
				tables = append(tables, parquet.ByteArray(a.Tables[span.Table].Name))
			}
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
	var err error
	if s.Rank != nil {
		err = writeEntries(group, s.Rank, &s.Shape, from, to)
	} else {
		err = writeValues(group, s, interval, from, to)
	}
	if err != nil {
		return err
	}
	if !a.Plain() {
		if err := writeColumn(group, tables); err != nil {
			return err
		}
	}
	return group.Close()
}

// writeValues writes the factors of the intervals and the values of features [from, to).
func writeValues(group file.SerialRowGroupWriter, s *tally.Scores, interval func(int) (float64, float64), from, to int) error {
	t, population := make([]float64, to-from), make([]float64, to-from)
	for i := range t {
		t[i], population[i] = interval(from + i)
	}
	if err := writeColumn(group, t); err != nil {
		return err
	}
	if err := writeColumn(group, population); err != nil {
		return err
	}
	if err := writeEntries(group, s.Phi, &s.Shape, from, to); err != nil {
		return err
	}
	for _, values := range arrowio.Narrow(&s.Values, arrowio.VersionOf(&s.Values)) {
		if err := writeEntries(group, *values, &s.Shape, from, to); err != nil {
			return err
		}
	}
	return nil
}

// writeEntries writes the entries of features [from, to) as columns, with nulls where a
// feature has fewer entries than others.
func writeEntries[T any](group file.SerialRowGroupWriter, entries []T, shape *layout.Shape, from, to int) error {
	values := make([]T, 0, to-from)
	var defined []int16 // nil if no value is null
	for c := range shape.Widest() {
		values, defined = values[:0], defined[:0]
		for row := from; row < to; row++ {
			first, end := shape.Row(row)
			has := int16(0)
			if first+c < end {
				values, has = append(values, entries[first+c]), 1
			}
			if shape.Dim() == 0 {
				defined = append(defined, has)
			}
		}
		if err := writeOptional(group, values, defined); err != nil {
			return err
		}
	}
	return nil
}

func writeColumn[T any](group file.SerialRowGroupWriter, values []T) error {
	return writeOptional(group, values, nil)
}

// writeOptional writes a column whose defined elements are values. defined is 1 for them
// and 0 for nulls, or nil if there are no nulls.
func writeOptional[T any](group file.SerialRowGroupWriter, values []T, defined []int16) error {
	return writeLevels(group, values, defined, nil)
}

// writeLevels is writeOptional for a column that may consist of lists. repeated is 0 for the
// first element of each list and 1 for the others, or nil if there are no lists.
func writeLevels[T any](group file.SerialRowGroupWriter, values []T, defined, repeated []int16) error {
	next, err := group.NextColumn()
	if err != nil {
		return err
	}
	chunk, ok := next.(interface {
		WriteBatch(values []T, defined, repeated []int16) (int64, error)
	})
	if !ok {
		panic(fmt.Sprintf("columnfile: writeColumn: a %T does not accept a %T", next, values))
	}
	if _, err := chunk.WriteBatch(values, defined, repeated); err != nil {
		return err
	}
	return next.Close()
}

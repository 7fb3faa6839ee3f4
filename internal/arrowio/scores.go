package arrowio

import (
	"encoding/json"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"shaver/internal/fault"
	"shaver/internal/tally"
)

const keyFields = "fields" // JSON array of names

// scoresReserved are the keys of a scores file's metadata that callers may not use.
var scoresReserved = []string{keyVersion, keyFields, keySizes, keyDim}

func scoresColumns(dim int) []arrow.Field {
	columns := []arrow.Field{
		{Name: "field", Type: arrow.BinaryTypes.String},
		{Name: "id", Type: arrow.PrimitiveTypes.Int32},
		{Name: "count", Type: arrow.PrimitiveTypes.Int64},
		{Name: "phi", Type: listOf(arrow.PrimitiveTypes.Float64, dim)},
	}
	for _, name := range narrowNames {
		columns = append(columns, arrow.Field{Name: name, Type: listOf(arrow.PrimitiveTypes.Float32, dim)})
	}
	return columns
}

// narrowNames are the float32 columns. They describe the size and the uncertainty of phi.
var narrowNames = [...]string{"abs", "rms", "se", "se_population"}

// narrow returns v's columns in the order of narrowNames.
func narrow(v *tally.Values) [4]*[]float32 {
	return [...]*[]float32{&v.Abs, &v.RMS, &v.SE, &v.PopulationSE}
}

// checkScores reports values that no scores of the given fields can have. It panics if
// the lengths of the slices do not match.
func checkScores(fields []string, sizes []int, s *tally.Scores) error {
	if err := checkSizes(fields, sizes); err != nil {
		return fault.Inputf("%w", err)
	}
	n := 0
	for _, size := range sizes {
		n += size
	}
	fits := s.Dim >= 1 && len(s.Count) == n && len(s.Phi) == n*s.Dim
	for _, values := range narrow(&s.Values) {
		fits = fits && len(*values) == n*s.Dim
	}
	if !fits {
		panic("arrowio: scores do not fit the fields")
	}
	feature := 0
	for j, size := range sizes {
		for id := range size {
			if err := checkScore(j, fields[j], id, s.Count[feature], s.Part(feature*s.Dim, (feature+1)*s.Dim)); err != nil {
				return err
			}
			feature++
		}
	}
	return nil
}

// checkScore reports values that the scores of a feature cannot have.
func checkScore(field int, name string, id int, count int64, v tally.Values) error {
	if count < 0 {
		return fault.Inputf("field %d (%s), id %d: count is %d", field, name, id, count)
	}
	for c, phi := range v.Phi {
		if !(math.Abs(phi) <= math.MaxFloat64) {
			return fault.Inputf("field %d (%s), id %d, column %d: phi is %v, expected a finite value", field, name, id, c, phi)
		}
	}
	for i, values := range narrow(&v) {
		for c, x := range *values {
			if !(x >= 0 && x <= math.MaxFloat32) {
				return fault.Inputf("field %d (%s), id %d, column %d: %s is %v, expected a finite value of at least 0", field, name, id, c, narrowNames[i], x)
			}
		}
	}
	return nil
}

// place is a position in the global order of features.
type place struct{ field, id int }

// run returns the field and the ids [from, to) of the next features, and moves the
// position past them. They are at most n features of a single field.
func (p *place) run(sizes []int, n int) (field, from, to int) {
	field, from = p.field, p.id
	to = min(from+n, sizes[field])
	if p.id = to; to == sizes[field] {
		p.field, p.id = field+1, 0
	}
	return field, from, to
}

// WriteScores writes the scores of all features in global order, in Arrow's file format,
// uncompressed. The sizes must sum to the length of count. For each feature, in order,
// WriteScores calls values with d entries to fill, so the caller need not hold all
// values. meta is added to the schema's metadata. Its keys must not be version, fields,
// sizes or dim. The same arguments give the same bytes. After an error, part of the file
// may have been written.
func WriteScores(w io.Writer, fields []string, sizes []int, dim int, count []int64, values func(feature int, into tally.Values), meta map[string]string) error {
	if err := checkSizes(fields, sizes); err != nil {
		return fault.Inputf("%w", err)
	}
	metadata := scoresMetadata(fields, sizes, dim, meta)
	out, err := newFileWriter(w, arrow.NewSchema(scoresColumns(dim), &metadata))
	if err != nil {
		return err
	}
	at := place{}
	step := min(max(1, batchEntries/dim), len(count))
	entries := tally.NewValues(step * dim)
	var ids []int32
	for from := 0; from < len(count); from += step {
		to := min(from+step, len(count))
		ids = ids[:0]
		names := array.NewStringBuilder(memory.DefaultAllocator) // no Release is needed, because the memory is Go's
		for len(ids) < to-from {
			field, first, end := at.run(sizes, to-from-len(ids))
			for id := first; id < end; id++ {
				i := len(ids)
				part := entries.Part(i*dim, (i+1)*dim)
				values(from+i, part)
				if err := checkScore(field, fields[field], id, count[from+i], part); err != nil {
					return err
				}
				names.Append(fields[field])
				ids = append(ids, int32(id))
			}
		}
		columns := []arrow.Array{names.NewArray(), int32s(ids), int64s(count[from:to]), lists(float64s(entries.Phi[:(to-from)*dim]), dim)}
		for _, values := range narrow(&entries) {
			columns = append(columns, lists(float32s((*values)[:(to-from)*dim]), dim))
		}
		if err := out.write(to-from, columns...); err != nil {
			return err
		}
	}
	return out.close()
}

func scoresMetadata(fields []string, sizes []int, dim int, meta map[string]string) arrow.Metadata {
	keys := slices.Clone(scoresReserved)
	values := []string{ScoresVersion, toJSON(fields), toJSON(sizes), decimal(int64(dim))}
	for _, key := range slices.Sorted(maps.Keys(meta)) {
		if slices.Contains(scoresReserved, key) {
			panic("arrowio: the metadata key " + key + " is reserved")
		}
		keys, values = append(keys, key), append(values, meta[key])
	}
	return arrow.NewMetadata(keys, values)
}

// ReadScores reads a file of WriteScores and checks everything that WriteScores checks. The
// metadata are those given to WriteScores and, under "version", the version of the form.
func ReadScores(r io.Reader) (fields []string, sizes []int, s *tally.Scores, meta map[string]string, err error) {
	fail := func(err error) ([]string, []int, *tally.Scores, map[string]string, error) {
		return nil, nil, nil, nil, err
	}
	in, err := newReader(r, false, ScoresVersion, UnsealedScoresVersion)
	if err != nil {
		return fail(err)
	}
	defer in.close()
	fields, sizes, dim, err := scoresHead(in)
	if err != nil {
		return fail(err)
	}
	s = &tally.Scores{Dim: dim}
	at := place{}
	for err == nil {
		err = in.next(func(record arrow.Record) error { return appendScores(s, &at, fields, sizes, record) })
	}
	if err != io.EOF {
		return fail(err)
	}
	if at.field < len(sizes) {
		return fail(fault.Inputf("the scores end before field %d (%s), id %d", at.field, fields[at.field], at.id))
	}
	if err := checkScores(fields, sizes, s); err != nil {
		return fail(err)
	}
	return fields, sizes, s, otherMeta(in), nil
}

// ReadScoresHead reads only what precedes the scores: the fields, the sizes, the number
// of columns, and the metadata that ReadScores returns.
func ReadScoresHead(r io.Reader) (fields []string, sizes []int, dim int, meta map[string]string, err error) {
	in, err := newReader(r, false, ScoresVersion, UnsealedScoresVersion)
	if err != nil {
		return nil, nil, 0, nil, err
	}
	defer in.close()
	fields, sizes, dim, err = scoresHead(in)
	return fields, sizes, dim, otherMeta(in), err
}

func otherMeta(in *reader) map[string]string {
	meta := maps.Clone(in.meta)
	for _, key := range scoresReserved {
		if key != keyVersion {
			delete(meta, key)
		}
	}
	return meta
}

func scoresHead(in *reader) (fields []string, sizes []int, dim int, err error) {
	for key, into := range map[string]any{keyFields: &fields, keySizes: &sizes} {
		if err := json.Unmarshal([]byte(in.meta[key]), into); err != nil {
			return nil, nil, 0, fault.Inputf("the metadata %q is not a valid array: %w", key, err)
		}
	}
	if err := checkSizes(fields, sizes); err != nil {
		return nil, nil, 0, fault.Inputf("%w", err)
	}
	d, err := in.integer(keyDim)
	if err != nil {
		return nil, nil, 0, err
	}
	if d < 1 || d > 1<<16 {
		return nil, nil, 0, fault.Inputf("the metadata %q is %d, expected 1 to 65536", keyDim, d)
	}
	return fields, sizes, int(d), in.expect(scoresColumns(int(d))...)
}

// appendScores adds one batch and checks that it continues at the position at.
func appendScores(s *tally.Scores, at *place, fields []string, sizes []int, record arrow.Record) error {
	names, ids := record.Column(0).(*array.String), record.Column(1).(*array.Int32).Int32Values()
	for i := 0; i < len(ids); {
		if at.field == len(sizes) {
			return fault.Inputf("expected no scores after those of the last feature")
		}
		field, from, to := at.run(sizes, len(ids)-i)
		for id := from; id < to; id++ {
			if names.Value(i) != fields[field] || int(ids[i]) != id {
				return fault.Inputf("found field %q, id %d, expected field %d (%s), id %d", names.Value(i), ids[i], field, fields[field], id)
			}
			i++
		}
	}
	s.Count = append(s.Count, record.Column(2).(*array.Int64).Int64Values()...)
	s.Phi = append(s.Phi, listValues[*array.Float64](record.Column(3)).Float64Values()...)
	for i, values := range narrow(&s.Values) {
		*values = append(*values, listValues[*array.Float32](record.Column(4+i)).Float32Values()...)
	}
	return nil
}

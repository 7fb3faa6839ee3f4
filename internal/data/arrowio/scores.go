package arrowio

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/value/tally"
)

// The metadata keys of the layout, besides keySizes and keyDim. keyTables and keyLookUps
// are only in the scores of a model with look-ups.
const (
	keyFields  = "fields"   // JSON array of names
	keyTables  = "tables"   // JSON array, as in a model's architecture
	keyLookUps = "look_ups" // JSON array, as in a model's architecture
	keyLists   = "lists"    // JSON array, as in a model's architecture; missing if no field is a list
)

// scoresReserved are the keys of a scores file's metadata that callers may not use.
var scoresReserved = []string{keyVersion, keyFields, keySizes, keyDim, keyTables, keyLookUps, keyLists}

// scoresColumns returns the columns of scores of the given version. Their lists have dim
// values, or any number of values if dim is 0. The column table exists unless the layout is
// plain.
func scoresColumns(plain bool, version string, dim int) []arrow.Field {
	columns := []arrow.Field{
		{Name: "field", Type: arrow.BinaryTypes.String},
		{Name: "id", Type: arrow.PrimitiveTypes.Int32},
		{Name: "count", Type: arrow.PrimitiveTypes.Int64},
	}
	if version == PathScoresVersion {
		columns = append(columns, arrow.Field{Name: "rank", Type: listOf(arrow.PrimitiveTypes.Int32, dim)})
	} else {
		columns = append(columns, arrow.Field{Name: "phi", Type: listOf(arrow.PrimitiveTypes.Float64, dim)})
	}
	for _, name := range NarrowNames(version) {
		columns = append(columns, arrow.Field{Name: name, Type: listOf(arrow.PrimitiveTypes.Float32, dim)})
	}
	if !plain {
		columns = append(columns, arrow.Field{Name: "table", Type: arrow.BinaryTypes.String})
	}
	return columns
}

// VersionOf returns the version of the scores that have these values.
func VersionOf(v *tally.Values) string {
	switch {
	case v.Rank != nil:
		return PathScoresVersion
	case v.PairedSE != nil:
		return PairedScoresVersion
	}
	return ScoresVersion
}

// newValues returns Values for n entries with the slices that scores of a version have.
func newValues(version string, n int) tally.Values {
	switch version {
	case PathScoresVersion:
		return tally.NewRanks(n)
	case PairedScoresVersion:
		return tally.NewPairedValues(n)
	}
	return tally.NewValues(n)
}

// NarrowNames returns the names of the float32 columns of a version. They describe the size
// and the uncertainty of phi.
func NarrowNames(version string) []string {
	switch version {
	case PathScoresVersion:
		return nil
	case PairedScoresVersion:
		return pairedNames
	}
	return pairedNames[:4]
}

var pairedNames = []string{"abs", "rms", "se", "se_population", "se_paired", "abs_se_paired", "rms_se_paired"}

// Narrow returns v's columns in the order of NarrowNames.
func Narrow(v *tally.Values, version string) []*[]float32 {
	all := []*[]float32{&v.Abs, &v.RMS, &v.SE, &v.PopulationSE, &v.PairedSE, &v.AbsPairedSE, &v.RMSPairedSE}
	return all[:len(NarrowNames(version))]
}

// ranks is a set of ranks, which finds out whether they are a permutation of the entries.
type ranks struct {
	entries int
	found   []uint64 // a bit for each entry; empty if scores of the version have no ranks
}

func newRanks(version string, entries int) *ranks {
	r := &ranks{entries: entries}
	if version == PathScoresVersion {
		r.found = make([]uint64, (entries+63)/64)
	}
	return r
}

// add adds a rank. It returns an error if the rank is out of range or already in the set.
func (r *ranks) add(rank int32) error {
	if rank < 0 || int(rank) >= r.entries {
		return fmt.Errorf("rank is %d, expected 0 to %d", rank, r.entries-1)
	}
	word, bit := &r.found[rank/64], uint64(1)<<(rank%64)
	if *word&bit != 0 {
		return fmt.Errorf("rank is %d, which an entry before it has", rank)
	}
	*word |= bit
	return nil
}

// checkLayout reports an invalid name of a field, or an invalid layout.
func checkLayout(fields []string, a *model.Architecture) error {
	if err := checkSizes(fields, a.FieldDims); err != nil {
		return fault.Inputf("%w", err)
	}
	if err := a.ValidateLayout(); err != nil {
		return fault.Inputf("%w", err)
	}
	for i, t := range a.Tables {
		if !utf8.ValidString(t.Name) {
			return fault.Inputf("table %d has the name %q, which is not UTF-8", i, t.Name)
		}
	}
	return nil
}

// CheckScores reports values that no scores of the given layout can have. It panics if the
// lengths of the slices do not match.
func CheckScores(fields []string, a *model.Architecture, s *tally.Scores) error {
	if err := checkLayout(fields, a); err != nil {
		return err
	}
	shape, version := a.Shape(), VersionOf(&s.Values)
	fits := s.Shape.Equal(&shape) && len(s.Count) == shape.Rows() && len(s.Phi)+len(s.Rank) == shape.Entries()
	for _, values := range Narrow(&s.Values, version) {
		fits = fits && len(*values) == shape.Entries()
	}
	if !fits {
		panic("arrowio: scores do not fit the layout")
	}
	found := newRanks(version, shape.Entries())
	for _, span := range a.Spans() {
		for id := range span.Rows {
			row := span.Row + id
			if err := checkScore(fields, a, &span, id, s.Count[row], s.Part(shape.Row(row)), found); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkScore reports values that the scores of a feature cannot have. It adds the ranks of
// the feature to found, which has those of the features before it.
func checkScore(fields []string, a *model.Architecture, span *model.Span, id int, count int64, v tally.Values, found *ranks) error {
	if count < 0 {
		return fault.Inputf("%s: count is %d", feature(fields, a, span, id), count)
	}
	for c, phi := range v.Phi {
		if !(math.Abs(phi) <= math.MaxFloat64) {
			return fault.Inputf("%s, column %d: phi is %v, expected a finite value", feature(fields, a, span, id), c, phi)
		}
	}
	version := VersionOf(&v)
	for i, values := range Narrow(&v, version) {
		for c, x := range *values {
			if !(x >= 0 && x <= math.MaxFloat32) {
				return fault.Inputf("%s, column %d: %s is %v, expected a finite value of at least 0", feature(fields, a, span, id), c, NarrowNames(version)[i], x)
			}
		}
	}
	for c, rank := range v.Rank {
		if err := found.add(rank); err != nil {
			return fault.Inputf("%s, column %d: %w", feature(fields, a, span, id), c, err)
		}
	}
	return nil
}

// feature describes a feature for errors.
func feature(fields []string, a *model.Architecture, span *model.Span, id int) string {
	table := ""
	if !a.Plain() {
		table = fmt.Sprintf(", table %s", a.Tables[span.Table].Name)
	}
	return fmt.Sprintf("field %d (%s)%s, id %d", span.Field, fields[span.Field], table, id)
}

// place is a position in the order of the rows of the tables.
type place struct{ span, id int }

// run returns the span and the ids [from, to) of the next features, and moves the position
// past them. They are at most n features of a single span.
func (p *place) run(spans []model.Span, n int) (span *model.Span, from, to int) {
	span, from = &spans[p.span], p.id
	to = min(from+n, span.Rows)
	if p.id = to; to == span.Rows {
		p.span, p.id = p.span+1, 0
	}
	return span, from, to
}

// WriteScores writes the scores of all features in the order of the rows of the tables, in
// Arrow's file format, uncompressed. Only the layout of a is used. For each feature, in
// order, WriteScores calls values with the feature's entries to fill, so the caller need
// not hold all values. version is ScoresVersion, PairedScoresVersion or PathScoresVersion.
// The slices that scores of this version lack are nil. Those of a path have only Rank, which
// must be a permutation of all entries. meta is added to the schema's metadata. Its keys
// must not be those of the layout, or version. The same arguments give the same bytes. After
// an error, part of the file may have been written.
func WriteScores(w io.Writer, fields []string, a *model.Architecture, version string, count []int64, values func(feature int, into tally.Values), meta map[string]string) error {
	if err := checkLayout(fields, a); err != nil {
		return err
	}
	shape, spans := a.Shape(), a.Spans()
	metadata := ScoresMetadata(fields, a, version, meta)
	out, err := newFileWriter(w, arrow.NewSchema(scoresColumns(a.Plain(), version, shape.Dim()), &metadata))
	if err != nil {
		return err
	}
	at, found := place{}, newRanks(version, shape.Entries())
	step := min(max(1, batchEntries/shape.Widest()), len(count))
	entries := newValues(version, step*shape.Widest())
	var ids, offsets []int32
	for from := 0; from < len(count); from += step {
		to := min(from+step, len(count))
		ids, offsets = ids[:0], append(offsets[:0], 0)
		names, tables := array.NewStringBuilder(memory.DefaultAllocator), array.NewStringBuilder(memory.DefaultAllocator) // needs no Release, because the memory is Go's
		begin, _ := shape.Row(from)
		for len(ids) < to-from {
			span, first, end := at.run(spans, to-from-len(ids))
			for id := first; id < end; id++ {
				row := from + len(ids)
				left, right := shape.Row(row)
				part := entries.Part(left-begin, right-begin)
				values(row, part)
				if err := checkScore(fields, a, span, id, count[row], part, found); err != nil {
					return err
				}
				names.Append(fields[span.Field])
				ids, offsets = append(ids, int32(id)), append(offsets, int32(right-begin))
				if !a.Plain() {
					tables.Append(a.Tables[span.Table].Name)
				}
			}
		}
		n := offsets[len(ids)]
		columns := []arrow.Array{names.NewArray(), int32s(ids), int64s(count[from:to])}
		if version == PathScoresVersion {
			columns = append(columns, lists(int32s(entries.Rank[:n]), shape.Dim(), offsets))
		} else {
			columns = append(columns, lists(float64s(entries.Phi[:n]), shape.Dim(), offsets))
		}
		for _, values := range Narrow(&entries, version) {
			columns = append(columns, lists(float32s((*values)[:n]), shape.Dim(), offsets))
		}
		if !a.Plain() {
			columns = append(columns, tables.NewArray())
		}
		if err := out.write(to-from, columns...); err != nil {
			return err
		}
	}
	return out.close()
}

// ScoresMetadata returns the metadata of a file of scores of a version. meta is that of WriteScores.
func ScoresMetadata(fields []string, a *model.Architecture, version string, meta map[string]string) arrow.Metadata {
	shape := a.Shape()
	keys, values := []string{keyVersion, keyFields, keySizes, keyDim}, []string{version, toJSON(fields), toJSON(a.FieldDims), decimal(int64(shape.Dim()))}
	if !a.Plain() {
		keys, values = append(keys, keyTables, keyLookUps), append(values, toJSON(a.Tables), toJSON(a.LookUps))
	}
	if len(a.Lists) > 0 {
		keys, values = append(keys, keyLists), append(values, toJSON(a.Lists))
	}
	for _, key := range slices.Sorted(maps.Keys(meta)) {
		if slices.Contains(scoresReserved, key) {
			panic("arrowio: the metadata key " + key + " is reserved")
		}
		keys, values = append(keys, key), append(values, meta[key])
	}
	return arrow.NewMetadata(keys, values)
}

// ReadScores reads a file of WriteScores and checks everything that WriteScores checks. a
// has only a layout. The metadata are those given to WriteScores and, under "version", the
// version of the form.
func ReadScores(r io.Reader) (fields []string, a *model.Architecture, s *tally.Scores, meta map[string]string, err error) {
	fail := func(err error) ([]string, *model.Architecture, *tally.Scores, map[string]string, error) {
		return nil, nil, nil, nil, err
	}
	in, err := newReader(r, false, ScoresVersion, UnsealedScoresVersion, PairedScoresVersion, PathScoresVersion)
	if err != nil {
		return fail(err)
	}
	defer in.close()
	fields, a, err = scoresHead(in)
	if err != nil {
		return fail(err)
	}
	version := in.meta[keyVersion]
	s = &tally.Scores{Shape: a.Shape()}
	at, spans := place{}, a.Spans()
	for err == nil {
		err = in.next(func(record arrow.Record) error { return appendScores(s, &at, fields, a, version, spans, record) })
	}
	if err != io.EOF {
		return fail(err)
	}
	if at.span < len(spans) {
		return fail(fault.Inputf("the scores end before %s", feature(fields, a, &spans[at.span], at.id)))
	}
	if err := CheckScores(fields, a, s); err != nil {
		return fail(err)
	}
	return fields, a, s, otherMeta(in), nil
}

// ReadScoresHead reads only what precedes the scores: the fields, the layout, and the
// metadata that ReadScores returns.
func ReadScoresHead(r io.Reader) (fields []string, a *model.Architecture, meta map[string]string, err error) {
	in, err := newReader(r, false, ScoresVersion, UnsealedScoresVersion, PairedScoresVersion, PathScoresVersion)
	if err != nil {
		return nil, nil, nil, err
	}
	defer in.close()
	fields, a, err = scoresHead(in)
	return fields, a, otherMeta(in), err
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

// scoresHead returns what precedes the scores.
func scoresHead(in *reader) (fields []string, a *model.Architecture, err error) {
	a = &model.Architecture{}
	for key, into := range map[string]any{keyFields: &fields, keySizes: &a.FieldDims, keyTables: &a.Tables, keyLookUps: &a.LookUps, keyLists: &a.Lists} {
		text, ok := in.meta[key]
		if !ok && slices.Contains([]string{keyTables, keyLookUps, keyLists}, key) {
			continue
		}
		if err := json.Unmarshal([]byte(text), into); err != nil {
			return nil, nil, fault.Inputf("the metadata %q is not a valid array: %w", key, err)
		}
	}
	d, err := in.integer(keyDim)
	if err != nil {
		return nil, nil, err
	}
	if a.Plain() {
		if d < 1 || d > 1<<16 {
			return nil, nil, fault.Inputf("the metadata %q is %d, expected 1 to 65536", keyDim, d)
		}
		a.Dim = int(d)
	}
	if err := checkLayout(fields, a); err != nil {
		return nil, nil, err
	}
	shape := a.Shape()
	if int64(shape.Dim()) != d {
		return nil, nil, fault.Inputf("the metadata %q is %d, expected %d as in the tables", keyDim, d, shape.Dim())
	}
	return fields, a, in.expect(scoresColumns(a.Plain(), in.meta[keyVersion], shape.Dim())...)
}

// appendScores adds one batch and checks that it continues at the position at.
func appendScores(s *tally.Scores, at *place, fields []string, a *model.Architecture, version string, spans []model.Span, record arrow.Record) error {
	columns := Narrow(&s.Values, version)
	table := 4 + len(columns)
	names, ids := record.Column(0).(*array.String), record.Column(1).(*array.Int32).Int32Values()
	for i := 0; i < len(ids); {
		if at.span == len(spans) {
			return fault.Inputf("expected no scores after those of the last feature")
		}
		span, from, to := at.run(spans, len(ids)-i)
		for id := from; id < to; id++ {
			if names.Value(i) != fields[span.Field] || int(ids[i]) != id {
				return fault.Inputf("found field %q, id %d, expected %s", names.Value(i), ids[i], feature(fields, a, span, id))
			}
			if !a.Plain() && record.Column(table).(*array.String).Value(i) != a.Tables[span.Table].Name {
				return fault.Inputf("found table %q, expected %s", record.Column(table).(*array.String).Value(i), feature(fields, a, span, id))
			}
			for c := 3; c < table && s.Shape.Dim() == 0; c++ {
				if begin, end := record.Column(c).(*array.List).ValueOffsets(i); int(end-begin) != span.Dim {
					return fault.Inputf("%s has %d values in column %d, expected %d", feature(fields, a, span, id), end-begin, c, span.Dim)
				}
			}
			i++
		}
	}
	s.Count = append(s.Count, record.Column(2).(*array.Int64).Int64Values()...)
	if version == PathScoresVersion {
		s.Rank = append(s.Rank, listValues[*array.Int32](record.Column(3)).Int32Values()...)
	} else {
		s.Phi = append(s.Phi, listValues[*array.Float64](record.Column(3)).Float64Values()...)
	}
	for i, values := range columns {
		*values = append(*values, listValues[*array.Float32](record.Column(4+i)).Float32Values()...)
	}
	return nil
}

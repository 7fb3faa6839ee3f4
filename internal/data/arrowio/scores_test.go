package arrowio

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/layout"
	"shaver/internal/value/tally"
)

var testMeta = map[string]string{"seed": "1", "kernel": "portable", "job": `{"a":1}`}

func randomScores(sizes []int, dim int) *tally.Scores {
	n := 0
	for _, size := range sizes {
		n += size
	}
	return randomScoresOf(layout.Of(n, dim))
}

// randomPairedScoresOf returns the scores of a paired job.
func randomPairedScoresOf(shape layout.Shape) *tally.Scores {
	s := randomScoresOf(shape)
	values := tally.NewPairedValues(shape.Entries())
	copy(values.Phi, s.Phi)
	for i, column := range Narrow(&values, PairedScoresVersion) {
		for c := range *column {
			(*column)[c] = float32(i) + s.Abs[c]
		}
	}
	s.Values = values
	return s
}

// randomRanksOf returns the scores of a path.
func randomRanksOf(shape layout.Shape) *tally.Scores {
	s := &tally.Scores{Shape: shape, Count: randomScoresOf(shape).Count, Values: tally.NewRanks(shape.Entries())}
	for i, rank := range rand.New(rand.NewPCG(4, 4)).Perm(shape.Entries()) {
		s.Rank[i] = int32(rank)
	}
	return s
}

func randomScoresOf(shape layout.Shape) *tally.Scores {
	random := rand.New(rand.NewPCG(3, uint64(shape.Rows())))
	s := &tally.Scores{Shape: shape, Count: make([]int64, shape.Rows()), Values: tally.NewValues(shape.Entries())}
	for i := range s.Count {
		s.Count[i] = random.Int64N(100)
	}
	for i := range s.Phi {
		s.Phi[i], s.Abs[i], s.RMS[i], s.SE[i], s.PopulationSE[i] = random.NormFloat64(), random.Float32(), random.Float32(), random.Float32(), random.Float32()
	}
	return s
}

func encodeScores(t testing.TB, fields []string, sizes []int, s *tally.Scores) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := writeScores(&out, fields, sizes, s, testMeta); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestScoresRoundTrip(t *testing.T) {
	for _, dim := range []int{1, 16} {
		s := randomScores(testSizes, dim)
		data := encodeScores(t, testFields, testSizes, s)
		if !bytes.Equal(data, encodeScores(t, testFields, testSizes, s)) {
			t.Errorf("dim %d: two encodings of the same scores differ", dim)
		}
		fields, a, got, meta, err := ReadScores(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		version := meta[keyVersion]
		delete(meta, keyVersion)
		if !slices.Equal(fields, testFields) || !reflect.DeepEqual(a, plain(testSizes, dim)) || version != ScoresVersion || !reflect.DeepEqual(meta, testMeta) {
			t.Errorf("version %s, fields %v, layout %v, metadata %v", version, fields, a, meta)
		}
		if !reflect.DeepEqual(got, s) {
			t.Errorf("dim %d: the scores changed", dim)
		}
	}
}

// The scores of a paired job have a version of their own, and stay the same in plain tables
// and in others.
func TestPairedScoresRoundTrip(t *testing.T) {
	tables := modeltest.LookUps()
	for _, a := range []*model.Architecture{plain(testSizes, 2), &tables} {
		s := randomPairedScoresOf(a.Shape())
		var out bytes.Buffer
		if err := WriteScores(&out, testFields, a, PairedScoresVersion, s.Count, s.Feature, testMeta); err != nil {
			t.Fatal(err)
		}
		_, back, got, meta, err := ReadScores(bytes.NewReader(out.Bytes()))
		if err != nil || meta[keyVersion] != "shaver.scores/4" || !reflect.DeepEqual(back, a) || !reflect.DeepEqual(got, s) {
			t.Errorf("version %s, layout %v, scores %+v, want %+v; error %v", meta[keyVersion], back, got, s, err)
		}
		if _, _, _, err := ReadScoresHead(bytes.NewReader(out.Bytes())); err != nil {
			t.Error(err)
		}
		other := bytes.ReplaceAll(out.Bytes(), []byte("shaver.scores/4"), []byte("shaver.scores/3"))
		_, _, _, _, err = ReadScores(bytes.NewReader(other))
		wantInput(t, err, "columns, expected")
		s.RMSPairedSE[3] = -1
		wantInput(t, WriteScores(&bytes.Buffer{}, testFields, a, PairedScoresVersion, s.Count, s.Feature, nil), "rms_se_paired is -1")
		wantInput(t, CheckScores(testFields, a, s), "rms_se_paired is -1")
	}
}

// The scores of a path have a version of their own, ranks and no values, and stay the same in
// plain tables and in others. Ranks that are not a permutation of all entries are refused.
func TestPathScoresRoundTrip(t *testing.T) {
	tables := modeltest.LookUps()
	for _, a := range []*model.Architecture{plain(testSizes, 2), &tables} {
		s := randomRanksOf(a.Shape())
		var out bytes.Buffer
		if err := WriteScores(&out, testFields, a, PathScoresVersion, s.Count, s.Feature, testMeta); err != nil {
			t.Fatal(err)
		}
		_, back, got, meta, err := ReadScores(bytes.NewReader(out.Bytes()))
		if err != nil || meta[keyVersion] != "shaver.scores/5" || !reflect.DeepEqual(back, a) || !reflect.DeepEqual(got, s) {
			t.Errorf("version %s, layout %v, scores %+v, want %+v; error %v", meta[keyVersion], back, got, s, err)
		}
		if _, _, _, err := ReadScoresHead(bytes.NewReader(out.Bytes())); err != nil {
			t.Error(err)
		}
		other := bytes.ReplaceAll(out.Bytes(), []byte("shaver.scores/5"), []byte("shaver.scores/3"))
		_, _, _, _, err = ReadScores(bytes.NewReader(other))
		wantInput(t, err, "columns, expected")
		last := len(s.Rank) - 1
		for _, c := range []struct {
			rank int32
			want string
		}{{-1, "rank is -1, expected 0 to"}, {int32(last + 1), "expected 0 to"}, {s.Rank[0], "which an entry before it has"}} {
			bad := *s
			bad.Rank = slices.Clone(s.Rank)
			bad.Rank[last] = c.rank
			wantInput(t, WriteScores(&bytes.Buffer{}, testFields, a, PathScoresVersion, bad.Count, bad.Feature, nil), c.want)
			wantInput(t, CheckScores(testFields, a, &bad), c.want)
			was, now := binary.LittleEndian.AppendUint32(nil, uint32(s.Rank[last])), binary.LittleEndian.AppendUint32(nil, uint32(c.rank))
			next := binary.LittleEndian.AppendUint32(nil, uint32(s.Rank[last-1]))
			changed := bytes.Replace(out.Bytes(), append(slices.Clone(next), was...), append(slices.Clone(next), now...), 1)
			_, _, _, _, err = ReadScores(bytes.NewReader(changed))
			wantInput(t, err, c.want)
		}
	}
	data := encodeScores(t, []string{"a", "b"}, []int{2, 3}, randomRanksOf(layout.Of(5, 2)))
	for n := range data {
		if _, _, _, _, err := ReadScores(bytes.NewReader(data[:n])); !fault.IsInput(err) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(data), err)
		}
	}
}

func TestScoresRefuse(t *testing.T) {
	fields, sizes := []string{"a", "b"}, []int{2, 3}
	for _, c := range []struct {
		name   string
		change func(*tally.Scores)
		want   string
	}{
		{"NaN", func(s *tally.Scores) { s.Phi[2*2+1] = math.NaN() }, "field 1 (b), id 0, column 1: phi is NaN"},
		{"infinity", func(s *tally.Scores) { s.Phi[0] = math.Inf(-1) }, "field 0 (a), id 0, column 0: phi is -Inf"},
		{"error", func(s *tally.Scores) { s.SE[9] = -1 }, "field 1 (b), id 2, column 1: se is -1"},
		{"population", func(s *tally.Scores) { s.PopulationSE[9] = float32(math.Inf(1)) }, "field 1 (b), id 2, column 1: se_population is +Inf"},
		{"rms", func(s *tally.Scores) { s.RMS[0] = float32(math.NaN()) }, "field 0 (a), id 0, column 0: rms is NaN"},
		{"count", func(s *tally.Scores) { s.Count[1] = -1 }, "field 0 (a), id 1: count is -1"},
	} {
		s := randomScores(sizes, 2)
		c.change(s)
		wantInput(t, writeScores(&bytes.Buffer{}, fields, sizes, s, nil), c.want)
		wantInput(t, CheckScores(fields, plain(sizes, 2), s), c.want)
	}
	data := encodeScores(t, fields, sizes, randomScores(sizes, 2))
	for n := range data {
		if _, _, _, _, err := ReadScores(bytes.NewReader(data[:n])); !fault.IsInput(err) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(data), err)
		}
	}
	// These sizes have the same total, but the ids do not match them. A file in Arrow's
	// file format holds the schema's metadata twice.
	_, _, _, _, err := ReadScores(bytes.NewReader(bytes.ReplaceAll(data, []byte("[2,3]"), []byte("[3,2]"))))
	wantInput(t, err, `found field "b", id 0, expected field 0 (a), id 2`)
	_, _, _, _, err = ReadScores(bytes.NewReader(bytes.ReplaceAll(data, []byte("[2,3]"), []byte("[2,2]"))))
	wantInput(t, err, "after those of the last feature")
	_, _, _, _, err = ReadScores(bytes.NewReader(bytes.ReplaceAll(data, []byte("[2,3]"), []byte("[2,4]"))))
	wantInput(t, err, "the scores end before field 1 (b), id 3")
}

// writeTables writes random scores of a model with look-ups.
func writeTables(t testing.TB, a *model.Architecture) ([]byte, *tally.Scores) {
	t.Helper()
	s := randomScoresOf(a.Shape())
	var out bytes.Buffer
	if err := WriteScores(&out, testFields, a, ScoresVersion, s.Count, s.Feature, testMeta); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), s
}

// The scores of a model with look-ups stay the same, whether the tables have different
// numbers of columns or the same.
func TestScoresOfTables(t *testing.T) {
	different, same := modeltest.LookUps(), modeltest.LookUps()
	for i := range same.Tables {
		same.Tables[i].Dim = 3
	}
	for _, a := range []*model.Architecture{&different, &same} {
		data, s := writeTables(t, a)
		fields, back, got, meta, err := ReadScores(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		delete(meta, keyVersion)
		if !slices.Equal(fields, testFields) || !reflect.DeepEqual(back, a) || !reflect.DeepEqual(meta, testMeta) || !reflect.DeepEqual(got, s) {
			t.Errorf("fields %v, layout %+v, metadata %v, scores %+v", fields, back, meta, got)
		}
		if _, head, _, err := ReadScoresHead(bytes.NewReader(data)); err != nil || !reflect.DeepEqual(head, a) {
			t.Errorf("the head has the layout %+v, error %v", head, err)
		}
	}
}

// The scores of a model with lists stay the same.
func TestScoresOfLists(t *testing.T) {
	a := modeltest.Lists()
	a.Kind = ""
	fields := []string{"item", "user", "history", "tags"}
	s := randomScoresOf(a.Shape())
	var out bytes.Buffer
	if err := WriteScores(&out, fields, &a, ScoresVersion, s.Count, s.Feature, testMeta); err != nil {
		t.Fatal(err)
	}
	_, back, got, meta, err := ReadScores(bytes.NewReader(out.Bytes()))
	delete(meta, keyVersion)
	if err != nil || !reflect.DeepEqual(back, &a) || !reflect.DeepEqual(meta, testMeta) || !reflect.DeepEqual(got, s) {
		t.Errorf("layout %+v, metadata %v, scores %+v, error %v", back, meta, got, err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`"length":3`, `"length":0`, "list 0 (field 2) has 0 positions"},
		{`"pad":0`, `"pad":5`, "list 0 (field 2) has the pad id 5"},
	} {
		changed := bytes.ReplaceAll(out.Bytes(), []byte(c.old), []byte(c.new))
		_, _, _, _, err := ReadScores(bytes.NewReader(changed))
		wantInput(t, err, c.want)
	}
}

func TestScoresOfTablesRefuse(t *testing.T) {
	a := modeltest.LookUps()
	data, s := writeTables(t, &a)
	for n := range data {
		if _, _, _, _, err := ReadScores(bytes.NewReader(data[:n])); !fault.IsInput(err) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(data), err)
		}
	}
	for _, c := range []struct{ old, new, want string }{
		{`"name":"wide"`, `"name":"slim"`, "found table \"wide\", expected field 1"},
		{`"dim":4`, `"dim":5`, "has 4 values in column 3, expected 5"},
		{`"dim":4`, `"dim":0`, "table 2 (wide) has 0 columns"},
		{`"offset":4`, `"offset":3`, "both read row 3 of table joint"},
		{`"field":2`, `"field":7`, "look-up 0 reads field 7"},
		{`{"field":2,"table":1},{"field":1,"table":2}`, `{"field":2,"table":1},{"field":1,"table":9}`, "look-up 1 reads table 9"},
		{`"look_ups"`, `"look-ups"`, ""},
		{`"rows":6`, `"rows":7`, "no look-up reads row 6 of table joint"},
	} {
		changed := bytes.ReplaceAll(data, []byte(c.old), []byte(c.new))
		if c.old == `"look_ups"` {
			changed = bytes.ReplaceAll(data, []byte("look_ups"), []byte("look-ups"))
			c.want = "both tables and look_ups"
		}
		_, _, _, _, err := ReadScores(bytes.NewReader(changed))
		wantInput(t, err, c.want)
	}
	s.Phi[2] = math.NaN()
	wantInput(t, WriteScores(&bytes.Buffer{}, testFields, &a, ScoresVersion, s.Count, s.Feature, nil), "field 1 (date), table narrow, id 2, column 0: phi is NaN")
}

func TestFrequencies(t *testing.T) {
	splits := []string{"train", "val"}
	counts := [][]int64{make([]int64, batchEntries+3), make([]int64, batchEntries+3)}
	counts[1][batchEntries+1] = 7
	var out bytes.Buffer
	if err := WriteFrequencies(&out, splits, counts); err != nil {
		t.Fatal(err)
	}
	got, err := ReadFrequencies(bytes.NewReader(out.Bytes()), splits, batchEntries+3)
	if err != nil || !reflect.DeepEqual(got, counts) {
		t.Errorf("the counts changed: %v", err)
	}
	_, err = ReadFrequencies(bytes.NewReader(out.Bytes()), []string{"train", "test"}, batchEntries+3)
	wantInput(t, err, `column 1 is "val"`)
	_, err = ReadFrequencies(bytes.NewReader(out.Bytes()), splits, 5)
	wantInput(t, err, "counts of 262147 features, expected 5")
	counts[0][2] = -1
	out.Reset()
	if err := WriteFrequencies(&out, splits, counts); err != nil {
		t.Fatal(err)
	}
	_, err = ReadFrequencies(bytes.NewReader(out.Bytes()), splits, batchEntries+3)
	wantInput(t, err, "split train: feature 2 occurs in -1 rows")
}

func FuzzScores(f *testing.F) {
	f.Add(encodeScores(f, []string{"a"}, []int{1}, randomScores([]int{1}, 1)))
	f.Add(encodeScores(f, []string{"a", "b"}, []int{2, 3}, randomScores([]int{2, 3}, 2)))
	a := modeltest.LookUps()
	tables, _ := writeTables(f, &a)
	f.Add(tables)
	lists := modeltest.Lists()
	scores := randomScoresOf(lists.Shape())
	var out bytes.Buffer
	if err := WriteScores(&out, []string{"a", "b", "c", "d"}, &lists, ScoresVersion, scores.Count, scores.Feature, nil); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	f.Add(encodeScores(f, []string{"a", "b"}, []int{2, 3}, randomPairedScoresOf(layout.Of(5, 2))))
	f.Add(encodeScores(f, []string{"a", "b"}, []int{2, 3}, randomRanksOf(layout.Of(5, 2))))
	var ranked bytes.Buffer
	path := randomRanksOf(a.Shape())
	if err := WriteScores(&ranked, testFields, &a, PathScoresVersion, path.Count, path.Feature, nil); err != nil {
		f.Fatal(err)
	}
	f.Add(ranked.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		fields, a, s, meta, err := ReadScores(bytes.NewReader(data))
		if err != nil {
			if !fault.IsInput(err) {
				t.Fatalf("not bad input: %v", err)
			}
			return
		}
		delete(meta, keyVersion)
		var out bytes.Buffer
		if err := WriteScores(&out, fields, a, VersionOf(&s.Values), s.Count, s.Feature, meta); err != nil {
			t.Fatal(err)
		}
		_, _, again, _, err := ReadScores(&out)
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("the scores changed when they were written and read again: %v", err)
		}
	})
}

// writeScores writes scores that are in memory.
func writeScores(w io.Writer, fields []string, sizes []int, s *tally.Scores, meta map[string]string) error {
	return WriteScores(w, fields, plain(sizes, s.Shape.Dim()), VersionOf(&s.Values), s.Count, s.Feature, meta)
}

func plain(sizes []int, dim int) *model.Architecture {
	return &model.Architecture{FieldDims: sizes, Dim: dim}
}

package cut

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/jobs/scores"
)

// goldenModel reads a model of testdata/golden.
func goldenModel(t *testing.T, name string) *checkpoint.Checkpoint {
	t.Helper()
	ck, err := checkpoint.Read(filepath.Join("..", "..", "..", "testdata", "golden", name+".pth"))
	if err != nil {
		t.Fatal(err)
	}
	return ck
}

// Two models read the same rows if their fields have the same sizes, lists and names, and they have the same dense inputs.
func TestCheckFields(t *testing.T) {
	example := func() *checkpoint.Checkpoint {
		return &checkpoint.Checkpoint{Fields: []string{"a", "b"}, Architecture: model.Architecture{
			FieldDims: []int{3, 4}, Lists: []model.List{{Length: 1, Pad: -1}, {Length: 5, Pad: 0}}, Dense: []string{"x"},
		}}
	}
	for want, change := range map[string]func(ck *checkpoint.Checkpoint){
		"":                                 func(*checkpoint.Checkpoint) {},
		"has fields of the sizes [3 5]":    func(ck *checkpoint.Checkpoint) { ck.Architecture.FieldDims[1] = 5 },
		"differ in the fields that are li": func(ck *checkpoint.Checkpoint) { ck.Architecture.Lists[1].Length = 6 },
		"has the dense inputs [y]":         func(ck *checkpoint.Checkpoint) { ck.Architecture.Dense[0] = "y" },
		"has the fields [b a]":             func(ck *checkpoint.Checkpoint) { ck.Fields = []string{"b", "a"} },
	} {
		other := example()
		change(other)
		s := &Source{Checkpoint: example(), File: "one"}
		if err := s.CheckFields(other, "other"); (want == "") != (err == nil) || err != nil && (!fault.IsInput(err) || !strings.Contains(err.Error(), "other") || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
	unnamed := example()
	unnamed.Fields = nil
	if err := (&Source{Checkpoint: example()}).CheckFields(unnamed, "other"); err != nil {
		t.Errorf("a model that does not know the names of its fields: %v", err)
	}
}

// If all fields and columns of a source with scores stay, it is what stays. Without scores it becomes a part of itself.
func TestSlicedToAll(t *testing.T) {
	ck := goldenModel(t, "deepfm")
	all := &checkpoint.Slice{}
	for j := range ck.Architecture.Fields() {
		all.Fields = append(all.Fields, j)
	}
	for c := range ck.Architecture.TableColumns() {
		all.Columns = append(all.Columns, c)
	}
	scored, plain := &Source{Checkpoint: ck, Scores: []*scores.File{{}}}, &Source{Checkpoint: ck}
	if got, err := scored.sliced(all); err != nil || got != scored {
		t.Errorf("with scores: %+v, %v", got, err)
	}
	if got, err := plain.sliced(all); err != nil || got == plain || got.part == nil || got.part.whole != plain {
		t.Errorf("without scores: %+v, %v", got, err)
	}
}

// A rounder reads all training rows if they are few, in their order.
func TestRowsOfARounder(t *testing.T) {
	ck := goldenModel(t, "deepfm")
	rows, out := filepath.Join("..", "..", "..", "testdata", "golden", "deepfm.rows.csv"), filepath.Join(t.TempDir(), "rows")
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{rows}, Val: []string{rows}, Global: true, OnBadRow: ingest.Fail, Sizes: ck.Architecture.FieldDims, Out: out}); err != nil {
		t.Fatal(err)
	}
	b, err := openBench([]string{out}, "", ck)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRounder(t.Context(), b, &Source{Checkpoint: ck}, false)
	if err != nil {
		t.Fatal(err)
	}
	var want []int32
	err = b.Dataset.Scan(t.Context(), []string{dataset.Train}, 3, func(part *model.Rows) error {
		want = append(want, part.Features...)
		return nil
	})
	if err != nil || len(want) < 100 || !slices.Equal(r.train.Features, want) {
		t.Errorf("%d ids of rows, expected %d; %v", len(r.train.Features), len(want), err)
	}
}

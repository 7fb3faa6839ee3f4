package cut_test

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/prune/cut"
)

// A bound stops the path over fields, and then the one over columns, before the first step whose interval ends above it.
// A larger bound goes on along the same path.
func TestBoundOfFields(t *testing.T) {
	file, data := useless(t)
	folder := t.TempDir()
	o := cut.Options{Model: file, Dataset: []string{data}, Out: filepath.Join(folder, "out.safetensors"), Slicing: cut.Slicing{MostRise: .01, Rows: 3000, Path: filepath.Join(folder, "path.json")}}
	r, err := slicedBy(t.Context(), &o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Path) != 4 || r.Path[0].Field != "idle" || len(r.Beyond) != 2 || r.Beyond[0].Field == "" || r.Beyond[1].Gone == nil {
		t.Fatalf("path %+v, beyond %+v", r.Path, r.Beyond)
	}
	for i := range r.Path {
		if *r.Path[i].Rise.High > .01 {
			t.Errorf("step %d rises by %v", i, r.Path[i].Rise)
		}
	}
	for i := range r.Beyond {
		if *r.Beyond[i].Rise.High <= .01 {
			t.Errorf("step %d rises by %v only", i, r.Beyond[i].Rise)
		}
	}
	want := r.Path[3].Cost
	if want.Bytes = r.After.Bytes; r.After != want {
		t.Errorf("what is left costs %+v, expected %+v", r.After, want)
	}
	small, err := checkpoint.Read(o.Out)
	if err != nil || small.Architecture.Fields() != 3 || small.Architecture.Dim != 3 {
		t.Errorf("architecture %+v, %v", small.Architecture, err)
	}

	// Numbers to keep hold next to the bound.
	o.KeepFields, o.KeepColumns = 4, 5
	if r, err := slicedBy(t.Context(), &o); err != nil || len(r.Path) != 1 || r.Path[0].Gone == nil || r.Beyond != nil {
		t.Errorf("path %+v, %v", r.Path, err)
	}
	o.KeepFields, o.KeepColumns, o.MostRise = 0, 6, .08
	if r, err := slicedBy(t.Context(), &o); err != nil || len(r.Path) != 2 || len(r.Removed) != 2 || len(r.Beyond) != 1 {
		t.Errorf("path %+v, beyond %+v, %v", r.Path, r.Beyond, err)
	}
}

// The figures of a step are those of the rows that did not choose it.
func TestFiguresOfOtherRows(t *testing.T) {
	file, data := useless(t)
	o := cut.Options{Model: file, Dataset: []string{data}, Out: filepath.Join(t.TempDir(), "out.safetensors"), Slicing: cut.Slicing{KeepFields: 2, Rows: 1000}}
	r, err := slicedBy(t.Context(), &o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Compared) != 1000 || r.Rows != 4000 {
		t.Errorf("%d rows are compared and %d measured, expected 1000 and 4000", len(r.Compared), r.Rows)
	}
	ck, m, err := checkpoint.ReadModel(o.Out, "")
	if err != nil {
		t.Fatal(err)
	}
	d, err := dataset.OpenAll(o.Dataset)
	if err == nil {
		d, err = d.For(&ck.Architecture, ck.Known())
	}
	if err != nil {
		t.Fatal(err)
	}
	sum, n, logits := 0., 0, make([]float64, 1)
	scorer := m.NewScorer()
	err = d.Scan(t.Context(), []string{dataset.Val}, 100, func(rows *model.Rows) error {
		for i, number := range rows.Number {
			if slices.Contains(r.Compared, number) {
				continue
			}
			row := rows.Slice(i, i+1)
			scorer.Logits(logits, &row)
			sum += d.Loss().Of(logits[0], rows.Label[i])
			n++
		}
		return nil
	})
	if last := r.Path[1].Loss; err != nil || n != 4000 || math.Abs(sum/4000-last) > 1e-9 {
		t.Errorf("the loss of %d rows is %v, but the path says %v: %v", n, sum/float64(n), last, err)
	}
}

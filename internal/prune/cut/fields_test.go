package cut_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/prune/cut"
)

// Fields are removed by their names, and the result says from which model it came.
func TestSlicedByName(t *testing.T) {
	folder := t.TempDir()
	ck, err := checkpoint.Read(filepath.Join("..", "..", "..", "testdata", "golden", "dcnv2-parallel.pth"))
	if err != nil {
		t.Fatal(err)
	}
	named := filepath.Join(folder, "named.safetensors")
	unknown := filepath.Join(folder, "unknown.safetensors")
	if _, err := checkpoint.WriteDense(unknown, ck); err != nil {
		t.Fatal(err)
	}
	var names []string
	for j := range ck.Architecture.Fields() {
		names = append(names, string(rune('a'+j)))
		ck.Identities = append(ck.Identities, model.Identity{Name: names[j], Vocabulary: model.OwnIDs})
	}
	if _, err := checkpoint.WriteDense(named, ck); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(folder, "out.safetensors")
	r, err := slicedBy(t.Context(), &cut.Options{Model: named, Out: out, Slicing: cut.Slicing{Fields: []string{"b"}}})
	if err != nil {
		t.Fatal(err)
	}
	m := len(names)
	a := ck.Architecture
	if r.Before.Fields != m || r.After.Fields != m-1 || r.After.LookUps != m-1 || r.After.Bytes >= r.Before.Bytes ||
		r.Before.Multiplications != m*a.Dim*(a.Hidden[0]+a.CrossLayers*m*a.Dim) || r.After.Entries != a.Parameters()-a.FieldDims[1]*a.Dim {
		t.Errorf("result %+v", r)
	}
	small, err := checkpoint.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(small.Origins, []string{ck.Digest()}) || small.Identities[1].Name != "c" {
		t.Errorf("origins %v, fields %v", small.Origins, small.Identities)
	}
	for _, c := range []struct {
		model  string
		fields []string
		want   string
	}{
		{unknown, []string{"b"}, "does not name its fields: give --dataset"},
		{named, []string{"x"}, `there is no field "x" to remove: expected one of a, b`},
		{named, []string{"b", "b"}, `"b" is to be removed twice`},
		{named, names, "a model needs at least one"},
	} {
		_, err := slicedBy(t.Context(), &cut.Options{Model: c.model, Out: out, Slicing: cut.Slicing{Fields: c.fields}})
		if !fault.IsInput(err) && !fault.IsUsage(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v of %s: %v", c.fields, c.model, err)
		}
	}
}

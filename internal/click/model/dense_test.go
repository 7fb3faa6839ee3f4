package model

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Only kinds with a head of their own read dense inputs, and these have different names.
func TestValidateDense(t *testing.T) {
	for _, c := range []struct {
		kind  Kind
		dense []string
		want  string
	}{
		{FM, nil, ""},
		{FM, []string{"price"}, `kind is fm, which reads no dense inputs, but dense is ["price"]`},
		{WideDeep, []string{"price"}, `kind is widedeep, which reads no dense inputs, but dense is ["price"]`},
		{"graph", []string{"price", "age"}, ""},
		{"graph", []string{"price", ""}, "dense has an empty name"},
		{"graph", []string{"price", "age", "price"}, `dense has the name "price" twice`},
	} {
		a := Architecture{Kind: c.kind, FieldDims: []int{2}, Dim: 1, Dense: c.dense}
		if err := a.validateDense(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
		if a.Columns() != 1+len(c.dense) {
			t.Errorf("%d columns", a.Columns())
		}
	}
	a := Architecture{Kind: FM, FieldDims: []int{2}, Dim: 1, Dense: []string{"price"}}
	if err := a.Validate(); err == nil || !strings.Contains(err.Error(), "no dense inputs") {
		t.Errorf("Validate: %v", err)
	}
}

// Copies and slices of rows keep the dense inputs of each row.
func TestDenseRows(t *testing.T) {
	rows := Rows{Width: 1, Inputs: 2, Number: []int64{4, 5, 6}, Label: []float32{0, 1, 1}, Features: []int32{7, 8, 9}, Dense: []float32{1, 2, 3, 4, 5, 6}}
	part := rows.Slice(1, 3)
	if !slices.Equal(part.DenseRow(0), []float32{3, 4}) || !slices.Equal(part.DenseRow(1), []float32{5, 6}) {
		t.Errorf("the slice has %v", part.Dense)
	}
	var one, all Rows
	for i := range rows.Len() {
		one.Append(&rows, i)
	}
	first := rows.Slice(0, 1)
	all.AppendAll(&first)
	all.AppendAll(&part)
	if !reflect.DeepEqual(one, rows) || !reflect.DeepEqual(all, rows) {
		t.Errorf("the copies are %+v and %+v, want %+v", one, all, rows)
	}
	all.Reset()
	if all.Len() != 0 || len(all.Dense) != 0 {
		t.Error("rows are left after Reset")
	}
}

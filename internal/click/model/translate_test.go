package model_test

import (
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
)

// Each value keeps its local id, so the row of the previous model has the same values.
func TestTranslate(t *testing.T) {
	earlier := model.Architecture{Kind: model.FM, FieldDims: []int{3, 1, 4}, Dim: 2}
	grown := model.Architecture{Kind: model.FM, FieldDims: []int{5, 1, 6}, Dim: 2}
	tr, err := model.NewTranslator(&grown, &earlier)
	if err != nil {
		t.Fatal(err)
	}
	into := make([]int32, 3)
	for _, local := range [][]int32{{0, 0, 0}, {2, 0, 3}, {1, 0, 2}} {
		var row, want []int32
		for j, id := range local {
			row, want = append(row, grown.Offsets()[j]+id), append(want, earlier.Offsets()[j]+id)
		}
		if err := tr.Translate(into, row); err != nil || !slices.Equal(into, want) {
			t.Errorf("row %v became %v, expected %v, error %v", row, into, want, err)
		}
	}
	for want, row := range map[string][]int32{
		"field 0 has global id 3, the value 3 of the field: the previous model knows only 3 values":  {3, 5, 6},
		"field 2 has global id 10, the value 4 of the field: the previous model knows only 4 values": {2, 5, 10},
	} {
		if err := tr.Translate(into, row); err == nil || err.Error() != want {
			t.Errorf("%v, expected %q", err, want)
		}
	}
	same, err := model.NewTranslator(&grown, &grown)
	if err != nil {
		t.Fatal(err)
	}
	row := []int32{4, 5, 11}
	if err := same.Translate(into, row); err != nil || !slices.Equal(into, row) {
		t.Errorf("row %v became %v, error %v", row, into, err)
	}
}

// Tables with several look-ups may grow too, but nothing else may differ.
func TestTranslatorRefuses(t *testing.T) {
	grown := modeltest.LookUps()
	for want, change := range map[string]func(a *model.Architecture){
		"":                         func(*model.Architecture) {},
		"has 2 fields, expected 3": func(a *model.Architecture) { a.FieldDims = a.FieldDims[:2] },
		"field 1 has 100 features in the previous model":          func(a *model.Architecture) { a.FieldDims[1] = 100 },
		"table 0 of the previous model has 2 columns, expected 1": func(a *model.Architecture) { a.Tables[0].Dim++ },
		`has the name "other", expected "narrow"`:                 func(a *model.Architecture) { a.Tables[0].Name = "other" },
		"tables, expected":                      func(a *model.Architecture) { a.Tables = a.Tables[:1] },
		"look-ups, expected":                    func(a *model.Architecture) { a.LookUps = a.LookUps[1:] },
		"look-up 0 of the previous model reads": func(a *model.Architecture) { a.LookUps[0].Field = 0 },
		"has 1 dense inputs, expected 0":        func(a *model.Architecture) { a.Dense = []string{"price"} },
	} {
		earlier := grown
		earlier.FieldDims, earlier.Tables, earlier.LookUps = slices.Clone(grown.FieldDims), slices.Clone(grown.Tables), slices.Clone(grown.LookUps)
		change(&earlier)
		_, err := model.NewTranslator(&grown, &earlier)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
	dense, other := grown, grown
	dense.Dense, other.Dense = []string{"price"}, []string{"age"}
	if _, err := model.NewTranslator(&dense, &other); err == nil || !strings.Contains(err.Error(), `"age", expected "price"`) {
		t.Errorf("error for other dense inputs: %v", err)
	}
}

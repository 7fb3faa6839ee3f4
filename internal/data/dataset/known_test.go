package dataset_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
	"shaver/internal/data/ingest"
)

// rawDataset imports rows of two fields. Each row is written as label,a,b.
func rawDataset(t *testing.T, header, from string, rows ...string) *dataset.Dataset {
	t.Helper()
	config := ingest.RawConfig{Files: []string{write(t, header+"\n"+strings.Join(rows, "\n")+"\n")}, Split: "1:0:0", MinCount: 1, Out: filepath.Join(t.TempDir(), "day")}
	if from != "" {
		var err error
		if config.Vocabulary, err = ingest.ReadVocabulary(from, ingest.DefaultMemory, ""); err != nil {
			t.Fatal(err)
		}
		config.Grow = filepath.Ext(from) == ""
	}
	if _, err := ingest.ImportRaw(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	return open(t, config.Out)
}

// writeMapper writes a vocabulary as JSON.
func writeMapper(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "map.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// knownOf returns what the file of a model says that was trained on the dataset.
func knownOf(d *dataset.Dataset) *model.Known {
	return &model.Known{File: "m.safetensors", Fields: d.Identities(), Sizes: d.FieldDims(), Standards: d.Standards()}
}

// A dataset with swapped fields, with a reordered vocabulary, with other values, or with ids in
// place of values does not fit a model. The error names the field and both sides.
func TestCheckKnownRefuses(t *testing.T) {
	d := rawDataset(t, "label,a,b", "", "0,u,x", "1,v,y")
	same := rawDataset(t, "label,a,b", "", "1,v,x", "0,u,y", "0,u,x")
	if err := same.CheckKnown(knownOf(d)); err != nil {
		t.Error(err)
	}
	encoded := filepath.Join(t.TempDir(), "encoded")
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{write(t, "label,a,b\n0,1,2\n")}, Sizes: d.FieldDims(), Out: encoded}); err != nil {
		t.Fatal(err)
	}
	ids := open(t, encoded)
	if err := ids.CheckKnown(knownOf(ids)); err != nil {
		t.Error(err)
	}
	mapper := writeMapper(t, `{"a": ["u", "v"], "b": ["y", "x"]}`)
	for name, c := range map[string]struct {
		d, of *dataset.Dataset
		want  string
	}{
		"swapped":   {rawDataset(t, "label,b,a", "", "0,x,u", "1,y,v"), d, "field 0 is b in the dataset"},
		"reordered": {rawDataset(t, "label,a,b", mapper, "0,u,x", "1,v,y"), d, "field 1 (b): the dataset"},
		"others":    {rawDataset(t, "label,a,b", "", "0,w,x", "1,z,y"), d, "field 0 (a): the dataset"},
		"ids":       {ids, d, "has ids that stand for themselves, the model a vocabulary"},
		"values":    {d, ids, "the model ids that stand for themselves"},
		"fewer":     {rawDataset(t, "label,a", "", "0,u", "1,v"), d, "has 1 field and the model m.safetensors 2: the dataset lacks b: import the rows"},
	} {
		err := c.d.CheckKnown(knownOf(c.of))
		wantInput(t, err, c.want)
		if err != nil && !strings.Contains(err.Error(), "m.safetensors") {
			t.Errorf("%s: the error does not name the model: %v", name, err)
		}
	}
}

// A vocabulary that grew at its end fits a model that knows its beginning, and one that changed
// there does not. A day of a window has the fields of the window.
func TestCheckKnownGrown(t *testing.T) {
	rows := []string{"0,u,x", "1,v,y"}
	first := filepath.Join(t.TempDir(), "first")
	if _, err := ingest.ImportRaw(t.Context(), ingest.RawConfig{Files: []string{write(t, "label,a,b\n"+strings.Join(rows, "\n")+"\n")}, Split: "1:0:0", MinCount: 1, Out: first}); err != nil {
		t.Fatal(err)
	}
	d, grown := open(t, first), rawDataset(t, "label,a,b", first, "0,w,x", "1,z,y")
	if fmt.Sprint(grown.FieldDims()) != "[5 3]" {
		t.Fatalf("the sizes are %v", grown.FieldDims())
	}
	if err := grown.CheckKnown(knownOf(d)); err != nil {
		t.Error(err)
	}
	other := knownOf(rawDataset(t, "label,a,b", "", "0,u,x", "1,q,y"))
	wantInput(t, grown.CheckKnown(other), "field 0 (a): the dataset")
	wantInput(t, d.CheckKnown(knownOf(grown)), "field 0 (a): the dataset")
	window, err := dataset.Join([]*dataset.Dataset{d, grown})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range append(window.Days(), window) {
		if err := part.CheckKnown(knownOf(grown)); err != nil {
			t.Error(err)
		}
	}
}

// A field of the same size whose last id is a value does not fit a model for which it stands for
// unseen values, although one vocabulary is the beginning of the other.
func TestCheckKnownLastID(t *testing.T) {
	d := rawDataset(t, "label,a,b", "", "0,u,x", "1,v,y")
	k := knownOf(d)
	mapper := writeMapper(t, `{"a": ["u", "v", "w"], "b": ["x", "y", "z"]}`)
	config := ingest.RawConfig{Files: []string{write(t, "label,a,b\n0,u,x\n1,v,y\n")}, Split: "1:0:0", Out: filepath.Join(t.TempDir(), "none")}
	var err error
	if config.Vocabulary, err = ingest.ReadVocabulary(mapper, ingest.DefaultMemory, "none"); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.ImportRaw(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	wantInput(t, open(t, config.Out).CheckKnown(k), "field 0 (a): the dataset")
}

// Fields that a model reads from one table must have one vocabulary, as far as both have values.
func TestSharedTableNeedsSharedValues(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "day")
	config := ingest.RawConfig{Files: []string{write(t, "label,item,seen\n0,u,u\n1,v,v\n")}, Split: "1:0:0", MinCount: 1, Out: dir}
	if _, err := ingest.ImportRaw(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rows []string
		want string
	}{
		{[]string{"0,u,v"}, ""},
		{[]string{"0,new,v"}, ""}, // an id that only one field has
		{[]string{"0,new,other"}, `the id 3 stands for "new" in one and "other" in the other: import the rows with --share seen=item`},
	} {
		d := rawDataset(t, "label,item,seen", dir, c.rows...)
		a := &model.Architecture{
			Kind: model.Graph, FieldDims: d.FieldDims(), Tables: []model.Table{{Rows: d.FieldDims()[0], Dim: 2}},
			LookUps: []model.LookUp{{Field: 0}, {Field: 1}},
		}
		err := fit(d, a)
		if c.want == "" && err != nil || c.want != "" && (!fault.IsInput(err) || !strings.HasSuffix(err.Error(), c.want)) {
			t.Errorf("%q: %v, expected %q", c.rows, err, c.want)
		}
		a.LookUps[1].Table = 1
		if err := fit(d, a); err != nil {
			t.Errorf("%q with two tables: %v", c.rows, err)
		}
	}
}

// A model that names some of the fields reads these fields of a dataset, with their ids, their
// counts and their vocabularies. Without names, or in another order, the dataset stays whole.
func TestChooseFields(t *testing.T) {
	d := rawDataset(t, "label,a,b,c", "", "0,u,x,p", "1,v,y,q", "1,v,y,r", "0,v,x,r")
	all := d.Identities()
	k := &model.Known{File: "m", Fields: []model.Identity{all[0], all[2]}, Sizes: []int{d.FieldDims()[0], d.FieldDims()[2]}}
	part := must(d.For(&model.Architecture{FieldDims: k.Sizes}, k))(t)
	whole, chosen := rowsOf(t, d, 10), rowsOf(t, part, 10)
	counts, fewer := must(d.Frequencies())(t), must(part.Frequencies())(t)
	shift := int32(d.FieldDims()[1])
	for i := range whole.Number {
		own, want := chosen.Features[2*i:2*i+2], whole.Features[3*i:3*i+3]
		if own[0] != want[0] || own[1] != want[2]-shift {
			t.Errorf("row %d has the ids %v, expected those of the first and the last of %v", i, own, want)
		}
		if fewer[own[1]] != counts[want[2]] {
			t.Errorf("id %d occurs %d times, expected %d", own[1], fewer[own[1]], counts[want[2]])
		}
	}
	if values, other := must(part.Vocabulary(1))(t), must(d.Vocabulary(2))(t); !slices.Equal(values, other) {
		t.Errorf("vocabulary %v, expected %v", values, other)
	}
	for _, k := range []*model.Known{nil, {File: "m"}} {
		_, err := d.For(&model.Architecture{FieldDims: []int{d.FieldDims()[0]}}, k)
		wantInput(t, err, "the dataset has 3 fields (a, b, c) and the model 1: import the rows with the columns that the model was trained with")
	}
}

// If the names of a dataset and a model differ, the error says which fields are missing or superfluous, also if
// sizes differ. The names of a graph that has none of the dataset's are no difference.
func TestOtherFields(t *testing.T) {
	d := rawDataset(t, "label,a,b,c", "", "0,u,x,p", "1,v,y,q")
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{"c", "a"}, "has 3 fields and the model m 2: the model does not read b, and the other fields have another order in the model: import"},
		{[]string{"a", "z"}, "has 3 fields and the model m 2: the dataset lacks z, and the model does not read b, c: import"},
		{strings.Split("a y b z c 1 2 3 4 5 6 7 8 9 10", " "), "has 3 fields and the model m 15: the dataset lacks y, z, 1, 2, 3, 4, 5, 6, 7, 8 and 2 others: import the rows with the fields in the order of the model, which shaver model inspect prints"},
		{[]string{"a", "c", "b"}, " and c in the model m: import the dataset with the fields in the order of the model"},
	} {
		sizes := slices.Repeat([]int{9}, len(c.names))
		var known []model.Identity
		for _, name := range c.names {
			known = append(known, model.Identity{Name: name, Vocabulary: model.OwnIDs})
		}
		for _, k := range []*model.Known{{File: "m", Names: c.names, Sizes: sizes}, {File: "m", Fields: known, Sizes: sizes}} {
			_, err := d.For(&model.Architecture{FieldDims: sizes}, k)
			wantInput(t, err, c.want)
		}
	}
	for _, names := range [][]string{{"x[0]", "x[1]", "x[2]"}, {"a", "b", "x"}} {
		if _, err := d.For(&model.Architecture{FieldDims: d.FieldDims()}, &model.Known{File: "m", Names: names, Sizes: d.FieldDims()}); err != nil {
			t.Errorf("the graph's names %q: %v", names, err)
		}
	}
}

func must[V any](v V, err error) func(*testing.T) V {
	return func(t *testing.T) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// If the file of the model ignores inputs, an error about its fields says so.
func TestIgnoredInputs(t *testing.T) {
	d := rawDataset(t, "label,a,b", "", "1,x,y", "0,y,z")
	k := &model.Known{File: "m.onnx", Names: []string{"c"}, Sizes: []int{3}, Ignored: "the output does not depend on the input a"}
	if _, err := d.For(&model.Architecture{FieldDims: k.Sizes}, k); !fault.IsInput(err) || !strings.HasSuffix(err.Error(), "; in m.onnx the output does not depend on the input a") {
		t.Errorf("%v, expected a note on the input", err)
	}
}

// A dataset whose dense inputs were standardised in another way does not fit a model. What replaces missing numbers matters
// only if numbers are missing. The error names both sides.
func TestCheckKnownDense(t *testing.T) {
	number := func(x float64) *float64 { return &x }
	of := func(cell string, in dense.Input) *dataset.Dataset {
		config := ingest.EncodedConfig{Train: []string{write(t, "label,a,x\n0,1,3\n1,0,"+cell+"\n")}, Out: filepath.Join(t.TempDir(), "dataset")}
		config.Dense.Columns = []ingest.DenseColumn{{Name: "x", Input: in}}
		if _, err := ingest.ImportEncoded(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		d, err := open(t, config.Out).Choose([]string{"x"})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	z := dense.Input{Rule: dense.ZScore, Mean: number(36.5), Deviation: number(11.25), Missing: number(20)}
	rounded, other, none := z, z, z
	rounded.Mean, other.Missing, none.Missing = number(36), number(0), nil
	k := knownOf(of("5", z))
	for _, d := range []*dataset.Dataset{of("7", z), of("", z), of("5", other), of("5", none)} {
		if err := d.CheckKnown(k); err != nil {
			t.Error(err)
		}
		if err := d.CheckKnown(&model.Known{File: "m.safetensors"}); err != nil {
			t.Errorf("a model that knows nothing: %v", err)
		}
	}
	wantInput(t, of("5", rounded).CheckKnown(k), "the dataset has the rule zscore=36/11.25, the model zscore=36.5/11.25: import the rows")
	wantInput(t, of("5", dense.Input{Rule: dense.None}).CheckKnown(k), "the dataset has the rule none, the model zscore=36.5/11.25")
	wantInput(t, of("", other).CheckKnown(k), "zscore=36.5/11.25 with 0 for missing numbers, the model zscore=36.5/11.25 with 20 for missing numbers")
	if _, err := of("5", rounded).For(&model.Architecture{FieldDims: []int{2}, Dense: []string{"x"}}, k); err == nil {
		t.Error("For accepts a dataset that CheckKnown refuses")
	}
}

// The squared loss of a logit is refused if the output of the model is a probability, and not the logit.
func TestLogitsForNumbers(t *testing.T) {
	for _, numbers := range []bool{false, true} {
		config := ingest.EncodedConfig{Train: []string{write(t, "label,a\n0,1\n1,0\n")}, Numbers: numbers, Out: filepath.Join(t.TempDir(), "dataset")}
		if _, err := ingest.ImportEncoded(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		d, k := open(t, config.Out), &model.Known{File: "m.onnx"}
		for _, name := range []string{"", "squared"} {
			if _, err := d.ChooseLoss(name, k); err != nil {
				t.Errorf("numbers %v, loss %q: %v", numbers, name, err)
			}
		}
		k.Logit = "the input of Sigmoid node"
		const refusal = "what shaver computes of m.onnx is the input of Sigmoid node: if the output of the model predicts the labels, shaver model convert --logit"
		_, err := d.ChooseLoss("squared", k)
		wantInput(t, err, refusal)
		if _, err := d.ChooseLoss("", k); !numbers && err != nil {
			t.Errorf("labels 0 and 1: %v", err)
		} else if numbers {
			wantInput(t, err, refusal)
		}
	}
}

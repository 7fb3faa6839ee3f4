package cut_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/planted"
	"shaver/internal/data/ingest"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/slice"
)

// useless writes a planted model in which the field "idle" and the columns 3, 4 and 5 have no
// effect, and a dataset of validation rows that the model generates. It returns their paths.
func useless(t *testing.T) (file, data string) {
	t.Helper()
	folder := t.TempDir()
	p, err := planted.New(planted.Config{Fields: []string{"user", "idle", "item", "hour"}, FieldDims: []int{40, 30, 20, 8}, Informative: 3, Silent: 3, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	table, err := p.Checkpoint.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	for row := 40; row < 70; row++ {
		clear(table[row*6 : row*6+3])
	}
	p.Checkpoint = p.Checkpoint.WithEmbedding(table)
	if p.Model, err = p.Checkpoint.Model(); err != nil {
		t.Fatal(err)
	}
	file, data = filepath.Join(folder, "m.safetensors"), filepath.Join(folder, "rows")
	if _, err := checkpoint.WriteDense(file, p.Checkpoint); err != nil {
		t.Fatal(err)
	}
	csv, err := os.Create(filepath.Join(folder, "rows.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer csv.Close()
	if err := p.WriteCSV(csv, 5000); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{csv.Name()}, Val: []string{csv.Name()}, Sizes: p.FieldDims, Out: data}); err != nil {
		t.Fatal(err)
	}
	return file, data
}

// slicedBy removes what the options say, and writes what is left.
func slicedBy(ctx context.Context, o *cut.Options) (*cut.Choice, error) {
	c, err := o.Choose(ctx)
	if err != nil {
		return nil, err
	}
	_, err = c.Write(o.Out, nil)
	return c, err
}

// A path drops a field and columns without effect first, with a rise of 0, and the model that it
// writes has the loss of its last step. The same command gives the same path.
func TestPath(t *testing.T) {
	file, data := useless(t)
	out := filepath.Join(t.TempDir(), "out.safetensors")
	o := cut.Options{Model: file, Dataset: []string{data}, Out: out, Slicing: cut.Slicing{KeepFields: 2, KeepColumns: 2, Rows: 3000}}
	r, err := slicedBy(t.Context(), &o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Rows != 2500 || len(r.Path) != 6 || r.Path[0].Field != "idle" || len(r.Removed) != 2 {
		t.Fatalf("result %+v", r)
	}
	if rise := r.Path[0].Rise; rise.Value > 1e-6 || rise.Value < -1e-6 {
		t.Errorf("the useless field costs %+v", rise)
	}
	var columns []int
	for _, s := range r.Path[2:5] {
		columns = append(columns, s.Gone...)
	}
	slices.Sort(columns)
	if !slices.Equal(columns, []int{3, 4, 5}) {
		t.Errorf("the columns %v went first, expected 3, 4 and 5", columns)
	}
	second, last := r.Path[1], r.Path[5]
	if !second.Rise.Differs() || !last.Rise.Differs() || last.Loss <= *r.Loss || *second.AUC <= *last.AUC {
		t.Errorf("steps %+v and %+v from %v", second, last, *r.Loss)
	}
	if last.Fields != 2 || last.Multiplications != r.After.Multiplications || r.After.Multiplications >= r.Before.Multiplications {
		t.Errorf("costs %+v, %+v and %+v", r.Before, last.Cost, r.After)
	}
	small, err := checkpoint.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	if small.Architecture.Fields() != 2 || small.Architecture.Dim != 2 {
		t.Errorf("architecture %+v", small.Architecture)
	}
	digest := small.Digest()
	if _, err := slicedBy(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
	if again, err := checkpoint.Read(out); err != nil || again.Digest() != digest {
		t.Errorf("the same command gave another model: %v", err)
	}

	// A smaller budget takes a beginning of the path.
	o.KeepFields, o.KeepColumns = 3, 0
	if r, err = slicedBy(t.Context(), &o); err != nil || len(r.Path) != 1 || r.Path[0].Field != "idle" {
		t.Errorf("one step: %+v, %v", r, err)
	}
	o.KeepFields = 9
	if _, err := slicedBy(t.Context(), &o); !fault.IsUsage(err) || !strings.Contains(err.Error(), "9 fields are to stay: expected 1 to 4") {
		t.Error(err)
	}
}

// Numbers of fields and columns of which none go give a path without steps, with the loss of the whole model.
func TestPathWithoutSteps(t *testing.T) {
	file, data := useless(t)
	o := cut.Options{Model: file, Dataset: []string{data}, Out: filepath.Join(t.TempDir(), "out.safetensors"), Slicing: cut.Slicing{KeepFields: 4, KeepColumns: 6, Rows: 3000}}
	if r, err := slicedBy(t.Context(), &o); err != nil || r.Path != nil || r.Before.Fields != 4 || *r.Loss < .1 {
		t.Errorf("result %+v, %v", r, err)
	}
}

// A NeuMF loses a column of each half in a step.
func TestPathOfTowers(t *testing.T) {
	folder := t.TempDir()
	ck, err := checkpoint.Read(filepath.Join("..", "..", "..", "testdata", "golden", "neumf.pth"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"user", "item"} {
		ck.Identities = append(ck.Identities, model.Identity{Name: name, Vocabulary: model.OwnIDs})
	}
	file, rows, data := filepath.Join(folder, "m.safetensors"), filepath.Join(folder, "rows.csv"), filepath.Join(folder, "rows")
	if _, err := checkpoint.WriteDense(file, ck); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(rows, []byte("label,user,item\n0,1,2\n1,3,4\n1,0,0\n0,2,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{rows}, Val: []string{rows}, Sizes: ck.Architecture.FieldDims, Out: data}); err != nil {
		t.Fatal(err)
	}
	o := cut.Options{Model: file, Dataset: []string{data}, Out: filepath.Join(folder, "out.safetensors"), Slicing: cut.Slicing{KeepColumns: 2, Rows: 100}}
	r, err := slicedBy(t.Context(), &o)
	if err != nil || len(r.Path) != 1 || len(r.Path[0].Gone) != 2 || r.Path[0].Gone[0] >= 2 || r.Path[0].Gone[1] < 2 {
		t.Errorf("result %+v, %v", r, err)
	}
	o.KeepColumns, o.MostRise = 0, 1e6 // a NeuMF keeps both fields
	if r, err := slicedBy(t.Context(), &o); err != nil || len(r.Path) != 1 || r.After.Fields != 2 || r.After.Columns != 2 {
		t.Errorf("result %+v, %v", r, err)
	}
	o.KeepColumns, o.MostRise = 1, 0
	if _, err := slicedBy(t.Context(), &o); !fault.IsUsage(err) || !strings.Contains(err.Error(), "an even number up to 4") {
		t.Error(err)
	}
}

// Rows of a smaller model have all positions of its lists, the dense inputs and the weights.
func TestRowsOf(t *testing.T) {
	before := model.Architecture{FieldDims: []int{10, 20, 30}, Lists: []model.List{{Field: 1, Length: 3}}, Dense: []string{"age"}}
	after := model.Architecture{FieldDims: []int{20, 30}, Lists: []model.List{{Field: 0, Length: 3}}, Dense: []string{"age"}}
	rows := &model.Rows{Width: 5, Inputs: 1, Number: []int64{7}, Label: []float32{1}, Features: []int32{4, 10, 11, 29, 59}, Dense: []float32{2}, Weight: []int32{3}}
	got := cut.RowsOf(rows, []int{1, 2}, &before, &after)
	if got.Width != 4 || !slices.Equal(got.Features, []int32{0, 1, 19, 49}) || !slices.Equal(got.DenseRow(0), rows.Dense) || got.Times(0) != 3 {
		t.Errorf("rows %+v", got)
	}
}

func contents(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// interrupted is a context that is cancelled once a file has a text.
type interrupted struct {
	context.Context
	file, text string
}

func (c interrupted) Err() error {
	if data, err := os.ReadFile(c.file); err == nil && bytes.Contains(data, []byte(c.text)) {
		return context.Canceled
	}
	return nil
}

// A path that is interrupted after a step goes on from there, and has the bytes of one that was not interrupted. A
// budget whose steps are known is not measured, and another budget goes on from another number of fields.
func TestStoredPath(t *testing.T) {
	file, data := useless(t)
	folder := t.TempDir()
	whole, part := filepath.Join(folder, "whole.json"), filepath.Join(folder, "part.json")
	options := func(path string, fields, columns int) *cut.Options {
		return &cut.Options{Model: file, Dataset: []string{data}, Out: filepath.Join(folder, "out.safetensors"), Slicing: cut.Slicing{KeepFields: fields, KeepColumns: columns, Rows: 3000, Path: path}}
	}
	write := func(path string, fields, columns int) *cut.Choice {
		t.Helper()
		r, err := slicedBy(t.Context(), options(path, fields, columns))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := write(whole, 2, 4)
	model := contents(t, first.Out)
	if !slice.Written(whole) {
		t.Errorf("not a path: %s", contents(t, whole))
	}
	for _, text := range []string{`"field": "idle"`, `"gone": [`} {
		ctx := interrupted{t.Context(), part, text}
		if _, err := slicedBy(ctx, options(part, 2, 4)); !errors.Is(err, context.Canceled) {
			t.Fatalf("not interrupted: %v", err)
		}
		if p, err := slice.ReadPath(part); err != nil || len(p.Fields) == 0 {
			t.Fatalf("path %+v, %v", p, err)
		}
	}
	again := write(part, 2, 4)
	if !bytes.Equal(contents(t, part), contents(t, whole)) || !bytes.Equal(contents(t, again.Out), model) {
		t.Errorf("the path that was interrupted is\n%s\nexpected\n%s", contents(t, part), contents(t, whole))
	}

	// A rise that no measurement gives comes from the file.
	p, err := slice.ReadPath(whole)
	if err != nil {
		t.Fatal(err)
	}
	p.Fields[0].Rise.Value, p.Fields[0].Rise.Low, p.Fields[0].Rise.High = 7, nil, nil
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(whole, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := write(whole, 3, 0); len(r.Path) != 1 || r.Path[0].Rise.Value != 7 || !bytes.Equal(contents(t, whole), text) || *r.Loss != *first.Loss {
		t.Errorf("the path %+v was measured again", r.Path)
	}

	// From three fields the columns are another branch, and the first one stays.
	write(part, 3, 5)
	if p, err = slice.ReadPath(part); err != nil || len(p.Columns) != 2 || p.Columns[1].Fields != 3 || len(p.Columns[1].Steps) != 1 || len(p.Columns[0].Steps) != 2 {
		t.Errorf("branches %+v, %v", p.Columns, err)
	}

	// The path of something else is replaced.
	other := options(part, 3, 0)
	other.Fields = []string{"hour"}
	if r, err := slicedBy(t.Context(), other); err != nil || len(r.Removed) != 1 || r.Path != nil {
		t.Errorf("result %+v, %v", r, err)
	}
	other.KeepFields = 2
	if _, err := slicedBy(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if p, err = slice.ReadPath(part); err != nil || len(p.Fields) != 1 || p.Columns != nil || !slices.Equal(p.Removed, other.Fields) {
		t.Errorf("path %+v, %v", p, err)
	}
	if write(part, 3, 5).Path[0].Field != "idle" {
		t.Error("the path of another model was followed")
	}
}

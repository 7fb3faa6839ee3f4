// Package slice removes whole fields and columns from a model. What is left is an ordinary smaller
// model: it reads fewer ids, and its table and its layers have no weights for what went. A path
// chooses what to remove by measuring, one field or one column at a time.
package slice

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/onnx/dissect"
)

// Options say what to remove from a model.
type Options struct {
	Model, ModelOutput string
	Dataset            []string // folders of the dataset of the training, or none
	Fields             []string // names of the fields to remove
	KeepFields         int      // least number of fields that a path leaves; 0 = no path over fields, or with MostRise 1
	KeepColumns        int      // least number of columns that a path leaves; 0 = no path over columns, or with MostRise 1
	MostRise           float64  // a path stops before a step whose rise of the loss has a 95% interval that ends above it; 0 = unbounded
	Rows               int      // largest number of validation rows on which a path compares candidates, at least 1; it is at most half of them
	Path               string   // file that keeps the path, or "": it is followed, and has each new step once it is measured
	Restart            bool     // whether a file at Path that is not of this model and this dataset is replaced
	Out                string   // file to write: .onnx, if Model is one, or safetensors
	// Warn gets a sentence without a full stop if the whole model does not predict the validation rows well enough to
	// choose by them, or to take the fields of the dataset for those of the model; nil = it is discarded.
	Warn func(text string)
}

// Cost is what a row costs in a model.
type Cost struct {
	Fields          int   `json:"fields"`
	Columns         int   `json:"columns"`         // of the table, or of each table; 0 if tables have different numbers
	LookUps         int   `json:"look_ups"`        // rows of tables that a row of data reads, one for each position of a list
	Entries         int   `json:"entries"`         // of all tables
	Multiplications int   `json:"multiplications"` // in the layers that read the embedding, and in the cross layers; of a graph, in all products of matrices
	Bytes           int64 `json:"bytes"`           // of the dense file
}

// ColumnsText returns the number of columns, or "-" if tables have different numbers.
func (c *Cost) ColumnsText() string {
	if c.Columns == 0 {
		return "-"
	}
	return strconv.Itoa(c.Columns)
}

// Result says what is removed.
type Result struct {
	Out     string   `json:"out"`
	Removed []string `json:"removed"` // names of fields
	Before  Cost     `json:"before"`
	After   Cost     `json:"after"`
	Loss    *float64 `json:"loss,omitempty"`   // mean loss of the whole model on the rows that are measured, if there is a path
	Rows    int64    `json:"rows,omitempty"`   // number of these rows: the validation rows on which candidates were not compared
	Path    []Step   `json:"path,omitempty"`   // steps that were taken, in their order
	Beyond  []Step   `json:"beyond,omitempty"` // steps that were not taken because of MostRise: the first of fields, and the first of columns
	Stages  []Stage  `json:"stages,omitempty"` // of a path: what the removal of fields and of columns saves

	Unknown  string           `json:"-"` // model.Known.Unknown of the model, if there is a dataset; otherwise ""
	Kept     checkpoint.Slice `json:"-"` // what stays of the model
	Compared []int64          `json:"-"` // numbers of the validation rows on which candidates are compared, ascending
	source   *checkpoint.Checkpoint
}

// Write removes the fields, and then what the path chooses, and writes the model. What is removed
// reads zeros, and first-order weights of a removed field are 0, so the logits are those of the
// whole model with such fields and columns.
func (o *Options) Write(ctx context.Context) (*Result, error) {
	r, err := o.Choose(ctx)
	if err != nil {
		return nil, err
	}
	small, err := r.source.Sliced(r.Kept)
	if err != nil {
		return nil, err
	}
	if _, err := small.Model(); err != nil { // which checks that every tensor is finite
		return nil, err
	}
	digest, err := o.digest(r.source)
	if err != nil {
		return nil, err
	}
	small.Origins = append(slices.Clone(r.source.Origins), digest)
	if checkpoint.NamedONNX(o.Out) {
		r.After.Bytes, err = checkpoint.WriteNewONNX(o.Out, small)
	} else {
		r.After.Bytes, err = checkpoint.WriteDense(o.Out, small)
	}
	return r, err
}

// digest returns the digest of the model as other commands read it. source is what Choose read.
func (o *Options) digest(source *checkpoint.Checkpoint) (string, error) {
	if !checkpoint.NamedONNX(o.Out) {
		return source.Digest(), nil
	}
	ck, err := checkpoint.ReadOutput(o.Model, o.ModelOutput) // which may be of another kind than the graph
	if err != nil {
		return "", err
	}
	return ck.Digest(), nil
}

// Choose chooses what Write removes. If the model does not say what its ids stand for, they are taken for those of the
// dataset, and the file that Write writes says so. The whole model is then measured on the validation rows, if there are
// any, and with a path it always is; see Warn.
func (o *Options) Choose(ctx context.Context) (*Result, error) {
	ck, err := checkpoint.ReadPart(o.Model, checkpoint.Options{ONNX: dissect.Options{Output: o.ModelOutput}, Generic: checkpoint.NamedONNX(o.Out)})
	if err != nil {
		return nil, err
	}
	d, unknown, err := o.open(ck)
	if err != nil {
		return nil, err
	}
	names := ck.Known().FieldNames()
	if names == nil {
		return nil, fault.Inputf("%s does not name its fields: give --dataset with the dataset of its training", o.Model)
	}
	kept, err := o.slice(names, ck.Architecture.TableColumns())
	if err != nil {
		return nil, err
	}
	r := &Result{Out: o.Out, Removed: o.Fields, Before: costOf(ck), Unknown: unknown, Kept: *kept, source: ck}
	if o.KeepFields == 0 && o.KeepColumns == 0 && o.MostRise == 0 {
		if unknown != "" && d.Rows(dataset.Val) > 0 {
			whole, err := predict(ctx, ck, d, nil)
			if err != nil {
				return nil, err
			}
			o.doubt(whole)
		}
		small, err := ck.Sliced(r.Kept)
		if err != nil {
			return nil, err
		}
		r.After = costOf(small)
		return r, nil
	}
	if err := ck.Chosen(d.Digest(), checkpoint.Choose); err != nil {
		return nil, err
	}
	w, err := o.newWalker(ck, kept, names, d)
	if err != nil {
		return nil, err
	}
	if err := w.walk(ctx, o.KeepFields, o.KeepColumns, o.MostRise); err != nil {
		return nil, err
	}
	o.doubt(w.before)
	r.Kept, r.Compared = w.left, w.sample.Number
	r.Path, r.Beyond, r.Loss, r.Rows = w.steps, w.beyond, &w.path.Whole.Loss, w.path.Rows-w.path.Compared
	for _, step := range w.steps {
		if step.Field != "" {
			r.Removed = append(r.Removed, step.Field)
		}
	}
	if r.Stages, err = w.stages(ctx); err != nil {
		return nil, err
	}
	r.After = r.Stages[len(r.Stages)-1].Cost
	return r, nil
}

// doubt warns if the predictions of the whole model are worse than a constant.
func (o *Options) doubt(whole *evaluate.Predictions) {
	if text := whole.Doubt(); text != "" && o.Warn != nil {
		o.Warn(o.Model + " " + text)
	}
}

// open opens the dataset, if there is one, and gives ck its identities. It returns what ck did not know before.
func (o *Options) open(ck *checkpoint.Checkpoint) (d *dataset.Dataset, unknown string, err error) {
	if len(o.Dataset) == 0 {
		return nil, "", nil
	}
	if d, err = dataset.OpenAll(o.Dataset); err != nil {
		return nil, "", err
	}
	if d, err = d.For(&ck.Architecture, ck.Known()); err != nil {
		return nil, "", err
	}
	unknown = ck.Known().Unknown()
	ck.Identities, ck.Standards = d.Identities(), d.Standards()
	return d, unknown, nil
}

// slice returns what stays of a model whose fields have the given names.
func (o *Options) slice(names []string, columns int) (*checkpoint.Slice, error) {
	s := &checkpoint.Slice{}
	for i, name := range o.Fields {
		switch {
		case !slices.Contains(names, name):
			return nil, fault.Usagef("there is no field %q to remove: expected one of %s", name, strings.Join(names, ", "))
		case slices.Contains(o.Fields[:i], name):
			return nil, fault.Usagef("the field %q is to be removed twice", name)
		}
	}
	for j, name := range names {
		if !slices.Contains(o.Fields, name) {
			s.Fields = append(s.Fields, j)
		}
	}
	if s.Fields == nil {
		return nil, fault.Usagef("all %d fields are to be removed, but a model needs at least one", len(names))
	}
	s.Columns = Without(columns)
	return s, nil
}

func costOf(ck *checkpoint.Checkpoint) Cost {
	a := &ck.Architecture
	lookUps, lengths := 0, a.Lengths()
	if a.Plain() {
		lookUps = len(lengths)
	}
	for _, l := range a.LookUps {
		lookUps += lengths[l.Field]
	}
	products := multiplications(a)
	if a.Kind == model.Graph {
		products = ck.HeadProducts()
	}
	return Cost{a.Fields(), a.TableColumns(), lookUps, a.Parameters(), products, ck.Size()}
}

// multiplications returns the number of multiplications that a row takes in the layers that read
// the embedding, and in the cross layers.
func multiplications(a *model.Architecture) int {
	elements := a.Players()
	read := 0 // outputs that read each element
	if len(a.Hidden) > 0 {
		read = a.Hidden[0]
	}
	switch a.Kind {
	case model.NeuMF:
		read /= 2 // the MLP reads half of the columns
	case model.DCNv2:
		read += a.CrossLayers * elements
	case model.DCNMix:
		read += a.CrossLayers * a.Experts * (2*a.Rank + 1)
	}
	return elements * read
}

// Text returns what the step removes.
func (s *Step) Text() string {
	if s.Field != "" {
		return s.Field
	}
	return "column " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(s.Gone)), " and "), "[]")
}

package cut

import (
	"cmp"
	"context"
	"fmt"
	"sort"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/onnx/dissect"
	"shaver/internal/prune/keep"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
)

// Options say how to prune a model. Fields and columns go first, then entries, and then bits. Without Scores, only fields and
// columns go, or the choices of Previous are kept as they are.
type Options struct {
	Model, Scores string // files
	ModelOutput   string // output of the model, if it is an .onnx file with several
	Dataset       []string
	Out           string // file to write
	Recipe        string // of the file, or ""

	Aggregate string // aggregate of the scores to rank by; "" = the default of the scores
	Rank      string
	SSEDS     bool         // rank columns by the method SSEDS, and not entries by an aggregate; the budget is not in bytes
	Budget    *mask.Budget // nil only with Slicing.MostRise and without Scores
	Slicing
	Keep      keep.Rules
	Form      Form
	Calibrate bool
	Tune      bool // whether the pruned model will be trained
	// Rounding is by how much the loss may rise because values are rounded, in nat, if Form.Values is
	// compact.Mixed. It bounds the rise by the network, and unless the budget is in bytes also that by the tables. 0 stands for
	// DefaultRounding. It is at most a tenth of Slicing.MostRise.
	Rounding float64

	Previous   string  // compact file whose choices stay unless the evidence exceeds Hysteresis, or ""
	Hysteresis float64 // standard errors, or rounds of a path

	// Name returns how the user writes a setting in messages, for example --sparsity. Nil stands for
	// the names themselves: dataset, field-minimum, previous, protect, table-budget, and the unit of a budget.
	Name func(setting string) string
	// Warn takes a warning. It may be nil.
	Warn func(text string)

	data        *dataset.Dataset // with the fields of the model, or nil
	method      string           // name of the method in a sweep
	least, most int              // numbers of entries that limited lets be dropped
}

// name returns how the user writes a setting.
func (o *Options) name(setting string) string {
	if o.Name == nil {
		return setting
	}
	return o.Name(setting)
}

// Choice says which entries of a model are dropped.
type Choice struct {
	Out           string     `json:"out"`
	Method        string     `json:"method,omitempty"` // name of the method in a sweep
	Baseline      string     `json:"baseline,omitempty"`
	Words         string     `json:"words,omitempty"`     // see scores.File.WordsText
	Aggregate     string     `json:"aggregate,omitempty"` // empty if the method does not rank by scores
	Rank          string     `json:"rank,omitempty"`      // how the method ranks by the scores
	Sparsity      float64    `json:"sparsity"`            // dropped / entries
	Entries       int        `json:"entries"`
	Dropped       int        `json:"dropped"`
	Kept          int        `json:"kept"`
	Parameters    int        `json:"parameters"` // kept entries, and those of the codebook if there is one
	Features      int        `json:"features"`
	EmptyFeatures int        `json:"empty_features"`     // features that keep no entry
	Previous      *Stability `json:"previous,omitempty"` // if there is a previous file

	Rounding *Rounding `json:"rounding,omitempty"` // if Form.Values is compact.Mixed
	*Sliced            // nil if no fields and columns may go

	ByPath  bool   `json:"-"` // whether Hysteresis of Previous is in rounds of a path
	Unknown string `json:"-"` // sentence that the model does not know its fields, if there is a dataset, or ""
	// Uncalibrated is scores.Path.Uncalibrated if the order of a path drops entries, and the pruned model is not calibrated. It is ""
	// with Slicing.MostRise, within which the loss stays.
	Uncalibrated string `json:"-"`
	source       *Source
	dropped      []bool // [n, d]
	options      *Options
	measured     bool     // whether the whole model was, so that a warning said whether it predicts worse than a constant
	rounded      *rounded // nil unless Form.Values is compact.Mixed
}

// bounded reports whether the loss bounds how many entries go.
func (o *Options) bounded() bool { return o.MostRise > 0 && o.Scores != "" }

// rounding returns by how much rounding the network, or the tables, may raise the loss.
func (o *Options) rounding() float64 {
	most := cmp.Or(o.Rounding, DefaultRounding)
	if o.bounded() {
		most = min(most, o.MostRise/10)
	}
	return most
}

// Choose opens the model and its scores, and chooses what goes.
func (o *Options) Choose(ctx context.Context) (*Choice, error) {
	s, err := o.open()
	if err != nil {
		return nil, err
	}
	c := &Choice{Out: o.Out, options: o}
	if err := o.openDataset(s); err != nil {
		return nil, err
	}
	if o.Scores == "" && o.Previous != "" {
		if err := o.keep(s); err != nil {
			return nil, err
		}
	}
	if err := o.record(s.Checkpoint); err != nil {
		return nil, err
	}
	if o.data != nil {
		c.Unknown = s.Checkpoint.Known().Unknown()
	}
	if o.Calibrate && checkpoint.NamedONNX(o.Out) {
		if err := s.Checkpoint.CheckCalibration(); err != nil {
			return nil, err
		}
	}
	if o.Form.CompactONNX && o.Budget != nil && o.Budget.Unit == mask.Bytes && s.Checkpoint.External() {
		return nil, fault.Usagef("%s has external data: a budget in bytes is for a single file; give --sparsity or --parameters", o.Model)
	}
	if o.Tune {
		if err := s.Checkpoint.CheckTrainable(); err != nil {
			return nil, err
		}
	}
	s.Checkpoint.Recipe = o.Recipe
	if err := o.settle(s); err != nil {
		return nil, err
	}
	var b *bench
	if o.Slices() {
		if s, b, err = o.slice(ctx, c, s); err != nil {
			return nil, err
		}
	}
	c.source, c.measured = s, b != nil || o.Form.Values == compact.Mixed
	a := &s.Checkpoint.Architecture
	c.Entries, c.Kept, c.Features = a.Prunable(), a.Prunable(), mask.Features(a)
	if s.Scores == nil {
		c.Parameters = c.Entries
		return c, nil
	}
	var within *bounded
	if o.bounded() {
		within = o.newBounded(b, s)
	}
	if o.Form.Values == compact.Mixed {
		if c.rounded, err = o.round(ctx, s, b != nil, within); err != nil {
			return nil, err
		}
		c.dropped, c.Rounding = c.rounded.Dropped, c.rounded.rounding(a, o.Form.CompactONNX)
	} else if c.dropped, c.Previous, err = o.choose(ctx, s, within); err != nil {
		return nil, err
	}
	f, read := s.Scores[0], c.baseline()
	if o.Aggregate != "" {
		o.warn(o.Scores+": ", f.Warning())
	}
	c.Method, c.Baseline, c.Aggregate, c.Rank, c.ByPath = o.method, f.Spec.Baseline, o.Aggregate, o.Rank, f.Ranks()
	c.Dropped, c.EmptyFeatures = count(c.dropped), mask.EmptyFeatures(a, c.dropped)
	if o.Aggregate == scores.ByPath {
		o.warn("", Deep(f, c.dropped, o.Scores))
		if within == nil && !o.Calibrate && !o.Tune {
			c.Uncalibrated = f.Path.Uncalibrated()
		}
	}
	if within != nil {
		c.Path = append(c.Path, within.taken...)
		o.warn("", within.few(c.Dropped))
	}
	c.Kept -= c.Dropped
	c.Sparsity, c.Parameters = float64(c.Dropped)/float64(c.Entries), mask.Parameters(a, c.Dropped, &read)
	c.Words = f.WordsText(&read)
	return c, nil
}

// warn gives Warn a text after a lead, unless the text is "".
func (o *Options) warn(lead, text string) {
	if text != "" && o.Warn != nil {
		o.Warn(lead + text)
	}
}

// openDataset opens the dataset, if there is one, with the fields that the model knows.
func (o *Options) openDataset(s *Source) error {
	if o.data = nil; len(o.Dataset) == 0 {
		return nil
	}
	d, err := dataset.OpenAll(o.Dataset)
	if err != nil {
		return err
	}
	o.data, err = d.For(&s.Checkpoint.Architecture, s.Checkpoint.Known())
	return err
}

// record records in ck that the validation rows choose or calibrate, for which they must not be scored.
func (o *Options) record(ck *checkpoint.Checkpoint) error {
	switch {
	case o.data == nil:
	case o.Tune: // which records it
		return ck.Apart(o.data.Digest(), dataset.Val, checkpoint.Choose)
	case o.measures() || o.Form.Values == compact.Mixed:
		return ck.Chosen(o.data.Digest(), checkpoint.Choose)
	case o.Calibrate:
		return ck.Chosen(o.data.Digest(), checkpoint.Calibrate)
	}
	return nil
}

// open opens the model and its scores.
func (o *Options) open() (*Source, error) {
	if o.Scores != "" {
		return Open(o.Model, o.ModelOutput, o.Scores)
	}
	s, err := Open(o.Model, o.ModelOutput)
	if err != nil || o.Previous != "" || !checkpoint.NamedONNX(o.Out) {
		return s, err
	}
	origins := s.Checkpoint.Origins
	if s.Checkpoint, err = checkpoint.ReadPart(o.Model, checkpoint.Options{ONNX: dissect.Options{Output: o.ModelOutput}, Generic: true}); err == nil {
		s.Checkpoint.Origins = origins
	}
	return s, err
}

// settle sets what the scores decide.
func (o *Options) settle(s *Source) error {
	if o.Scores == "" {
		return nil
	}
	if o.SSEDS {
		o.method, o.Aggregate, o.Rank = sweep.SSEDS, "", ""
		return sweep.CheckSSEDS(&s.Scores[0].Spec.Options, s.Scores[0].Spec.Baseline)
	}
	if o.Aggregate == "" {
		o.Aggregate = s.Scores[0].DefaultAggregate()
	}
	o.method = sweep.Name(&s.Scores[0].Spec.Options, o.Aggregate)
	return nil
}

// choose returns which entries to drop, [n, d], and with Previous how that differs from
// the previous mask.
func (o *Options) choose(ctx context.Context, s *Source, within *bounded) (dropped []bool, stable *Stability, err error) {
	choices, err := o.choices(s)
	if err != nil {
		return nil, nil, err
	}
	if o.Scores == "" {
		dropped, err := o.kept(s, choices)
		if err != nil {
			return nil, nil, err
		}
		return dropped, o.stability(s, choices, dropped, dropped), nil
	}
	order, err := o.order(s)
	if err != nil {
		return nil, nil, err
	}
	plain, err := o.mask(ctx, s, within, order)
	if err != nil || choices == nil {
		return plain, nil, err
	}
	if order, err = sweep.StableOrder(s.Scores[0], o.Aggregate, o.Rank, s.Table, choices, o.Hysteresis); err != nil {
		return nil, nil, err
	}
	if dropped, err = o.mask(ctx, s, within, order); err != nil {
		return nil, nil, err
	}
	return dropped, o.stability(s, choices, dropped, plain), nil
}

// order returns the entries in the order in which the method drops them.
func (o *Options) order(s *Source) ([]int32, error) {
	if s.part != nil {
		return s.part.order(o)
	}
	if o.SSEDS {
		return sweep.SSEDSOrder(s.Scores[0])
	}
	return sweep.Order(s.Scores[0], o.Aggregate, o.Rank, s.Table)
}

// mask returns the mask, [n, d], that meets the budget or the bound by dropping entries in the given
// order.
func (o *Options) mask(ctx context.Context, s *Source, within *bounded, order []int32) ([]bool, error) {
	order, err := o.limited(s, order)
	if err != nil {
		return nil, err
	}
	if within != nil {
		drop, err := within.most(ctx, order, o.MostRise)
		return mask.Of(order, drop), err
	}
	drop, err := o.drop(s, order)
	return mask.Of(order, drop), err
}

// limited moves the entries that are always dropped to the front of the order, and those that are never dropped to the end, and sets least and most.
func (o *Options) limited(s *Source, order []int32) (_ []int32, err error) {
	if order, o.least, o.most, err = o.Keep.Apply(&s.Checkpoint.Architecture, s.Scores[0].Fields, o.Form.Values, order); err != nil {
		return nil, fault.Usagef("%s: %w", strings.Join(o.limits(), ", "), err)
	}
	return order, nil
}

// limits names the settings of Keep.
func (o *Options) limits() []string {
	names := []string{o.name("protect"), o.name("field-minimum")}
	if o.Keep.Tables != nil {
		names = append(names, o.name("table-budget"))
	}
	return names
}

// written returns a model of the size of the one that is written. Calibrated weights are float32, which may make the file larger.
func (o *Options) written(s *Source) (ck *checkpoint.Checkpoint, err error) {
	if ck = s.Checkpoint; o.Calibrate {
		ck, _, err = ck.Calibrated(1, 0)
	}
	return ck, err
}

// drop returns the number of entries to drop in an order of limited.
func (o *Options) drop(s *Source, order []int32) (int, error) {
	a, f := &s.Checkpoint.Architecture, s.Scores[0]
	written, err := o.written(s)
	if err != nil {
		return 0, err
	}
	fit := func(bytes int64) (int, error) {
		if o.Form.CompactONNX {
			return o.onnxDrop(written, order, f.Baseline, bytes)
		}
		return written.CompactDrop(order, o.least, f.Baseline, o.Form.Values, bytes)
	}
	drop, err := o.Budget.Drop(a, &f.Baseline, fit)
	if err != nil {
		return 0, fault.Usagef("budget: %w", err)
	}
	if drop = max(drop, o.least); drop > o.most {
		limits, separator := o.limits(), " and "
		if len(a.FixedRows()) > 0 {
			limits = append(limits, "the rows of pad ids and frozen fields")
		}
		if len(limits) > 2 {
			separator = ", "
		}
		return 0, fault.Usagef("%s %v drops %d entries, but %s allow at most %d of %d", o.name(o.Budget.Unit), o.Budget.Amount, drop, strings.Join(limits, separator), o.most, len(order))
	}
	if o.method == sweep.SSEDS {
		return mask.WholeColumns(a, order[:o.most], drop), nil
	}
	return drop, nil
}

// onnxDrop returns how many entries, from the front of order, must go so that the .onnx file has at most the given number of bytes. If even the file
// without any entry is larger, the error gives its size.
func (o *Options) onnxDrop(ck *checkpoint.Checkpoint, order []int32, baseline model.Baseline, bytes int64) (int, error) {
	size, err := ck.ONNXBytes(o.Calibrate)
	if err != nil {
		return 0, err
	}
	file := func(drop int) (n int64) {
		if err == nil {
			n, _, err = size(&checkpoint.Kept{Dropped: mask.Of(order, drop), Baseline: baseline, Values: o.Form.Values})
		}
		return n
	}
	drop := o.least + sort.Search(len(order)-o.least, func(more int) bool { return file(o.least+more) <= bytes })
	if n := file(drop); err == nil && n > bytes {
		err = fmt.Errorf("the model without any embedding entry takes %d", n)
	}
	return drop, err
}

package train

import (
	"fmt"
	"math"

	"shaver/internal/click/composed"
	"shaver/internal/click/model"
	"shaver/internal/num/kernel"
)

// Method names a way to find the entries of an embedding table that a training keeps.
type Method string

// The methods. Each one trains a model to find the entries. Another training from the initial
// values then has only these.
const (
	// PEP has a threshold for each entry (Liu et al., "Learnable embedding sizes for
	// recommender systems", ICLR 2021).
	PEP Method = "pep"
	// CERP has a threshold for each entry of the two tables of a composed table.
	CERP Method = "cerp"
	// OptEmbed has a threshold for each field, and a search of the number of columns of each
	// field (Lyu et al., "OptEmbed: learning optimal embedding table for click-through rate
	// prediction", CIKM 2022).
	OptEmbed Method = "optembed"
)

// Find are the settings of a training that finds the entries to keep.
type Find struct {
	Method Method
	Keep   int // number of entries to keep, at least 1; not used by OptEmbed
	// WarmUp is the number of steps after which the thresholds of PEP and CERP reach the largest
	// initial value, if only weight decay moves them.
	WarmUp int
	// Rate is the learning rate of the raw thresholds of PEP and CERP, above 0.
	Rate float64
}

// validate returns an error if the settings do not fit a and o.
func (f *Find) validate(a *model.Architecture, o *Options) error {
	switch {
	case o.Optimizer == SparseAdam || o.WeightDecay == 0:
		return fmt.Errorf("%s needs the optimizer %s and a weight decay above 0, because only the decay moves its thresholds", f.Method, Adam)
	case (f.Method == CERP) != (o.Composed != nil && o.Composed.Shape.Scheme == composed.CERP):
		return fmt.Errorf("%s finds the entries of another table: a table of scheme %s needs %s", f.Method, composed.CERP, CERP)
	case f.Method == OptEmbed:
		return nil
	case f.WarmUp < 0 || !(f.Rate > 0) || math.IsInf(f.Rate, 0):
		return fmt.Errorf("%s has a warm-up of %d steps with the rate %v: expected at least 0 steps and a rate above 0", f.Method, f.WarmUp, f.Rate)
	}
	if n := f.entries(a, o); f.Keep < 1 || f.Keep >= n {
		return fmt.Errorf("%s keeps %d entries: expected at least 1 and fewer than the %d that it starts with", f.Method, f.Keep, n)
	}
	return nil
}

// entries returns the number of entries with which the method starts.
func (f *Find) entries(a *model.Architecture, o *Options) int {
	if f.Method == CERP {
		return o.Composed.Shape.Entries()
	}
	return a.Parameters()
}

// thresholded is a Table with a threshold for each entry.
type thresholded interface {
	Table
	// remaining returns the number of entries that the thresholds do not set to 0.
	remaining() int
	// mask returns which entries to keep, exactly Keep.
	mask() []bool
}

// Remaining returns the number of entries that the thresholds of PEP and CERP leave, which falls until
// it is at most Keep. It is 0 for all other trainings.
func (t *Trainer) Remaining() int {
	if table, ok := t.table.(thresholded); ok {
		return table.remaining()
	}
	return 0
}

// Kept returns the entries to keep, of the table, [Features, Dim], or for CERP of both of its tables,
// [2, Buckets, Dim]. For PEP and CERP these are the Keep entries with the greatest margins |v| -
// threshold, and of equal margins the first entries. For OptEmbed they are all entries of the
// features that the thresholds keep. Kept is nil for all other trainings.
func (t *Trainer) Kept() []bool {
	switch table := t.table.(type) {
	case thresholded:
		return table.mask()
	case *optTable:
		return table.mask()
	}
	return nil
}

// softTensor is an array of weights that are read with soft thresholds.
type softTensor struct {
	values, raw *tensor // raw has the thresholds before the sigmoid
	faster      float64 // learning rate of raw, divided by that of values
}

// newSoftTensor returns a tensor that keeps values. All raw thresholds start at start.
func newSoftTensor(name string, values []float32, start float32, faster float64) *softTensor {
	raw := make([]float32, len(values))
	for i := range raw {
		raw[i] = start
	}
	s := &softTensor{newVector(name, values), newVector(name+".threshold", raw), faster}
	s.values.gradient, s.raw.gradient = nil, nil
	return s
}

func (s *softTensor) tensors() []*tensor { return []*tensor{s.values, s.raw} }

// thresholdStep returns the step of the raw thresholds.
func (s *softTensor) thresholdStep(dense *kernel.AdamStep) *kernel.AdamStep {
	step := *dense
	step.Rate = float32(float64(step.Rate) * s.faster)
	return &step
}

// move moves entries [from, to). dv and ds are their gradients, or nil for gradients of 0.
func (s *softTensor) move(from, to int, dv, ds []float32, values, thresholds *kernel.AdamStep) {
	v, r := s.values, s.raw
	kernel.Adam(v.values[from:to], dv, v.m[from:to], v.v[from:to], values)
	kernel.Adam(r.values[from:to], ds, r.m[from:to], r.v[from:to], thresholds)
}

// alive returns the number of entries [from, to) that are not 0.
func (s *softTensor) alive(from, to int) int {
	counts := make([]int, (to-from+adamValues-1)/adamValues)
	parts(to-from, adamValues, func(a, b int) {
		counts[a/adamValues] = alive(s.values.values[from+a:from+b], s.raw.values[from+a:from+b])
	})
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}

// mostThreshold is the largest threshold of a warm-up. Weight decay alone moves thresholds to at most
// .5, which is below the initial values of a table of less than 24 rows and columns.
const mostThreshold = .45

// start returns the raw threshold at which a warm-up begins. Initial values are at most limit.
func (f *Find) start(limit float64, o *Options) float32 {
	return warmUp(logit(min(limit, mostThreshold)), f.WarmUp, f.Rate, o.WeightDecay)
}

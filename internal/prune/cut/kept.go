package cut

import (
	"fmt"
	"reflect"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/baseline"
	"shaver/internal/value/mask"
)

// ByPrevious is the method of a mask that is that of an earlier model.
const ByPrevious = "previous"

// keep gives s what it needs in place of scores. What dropped entries read is computed from the model, because
// the codebook of Previous is that of an earlier one. Rows read the words that they read in Previous, unless its tables are in another order.
func (o *Options) keep(s *Source) error {
	before, err := checkpoint.Read(o.Previous)
	if err != nil {
		return err
	}
	if before.Compact == nil {
		return errDense(o.Previous)
	}
	s.Checkpoint.AddScored(slices.DeleteFunc(before.Scored, func(s checkpoint.Scored) bool { return s.Did == checkpoint.Calibrate })...)
	a := &s.Checkpoint.Architecture
	f := &scores.File{Fields: slices.Clone(s.Checkpoint.Known().FieldNames()), Layout: scores.LayoutOf(a), Spec: job.Spec{Baseline: baseline.Zero}}
	for j := len(f.Fields); j < a.Fields(); j++ { // the model does not know their names
		f.Fields = append(f.Fields, fmt.Sprintf("field%d", j))
	}
	dropped, b, err := before.Pruned()
	if err != nil {
		return err
	}
	var counts []int64
	if !b.IsZero() {
		if o.data == nil {
			return fault.Usagef("%s has a codebook, and that of %s is computed from the rows: give %s", o.Previous, o.Model, o.name("dataset"))
		}
		if counts, err = o.data.Occurrences(); err != nil {
			return err
		}
		f.Spec.Baseline = baseline.Codebook
	}
	if b.Words != nil && counts != nil && reflect.DeepEqual(a.Spans(), before.Architecture.Spans()) { // choose refuses a file that does not fit
		f.Spec.Baseline, f.Baseline = baseline.Words, baseline.NewFinder(a, s.Table, counts).Renew(b, dropped)
	} else {
		f.Baseline, _, err = baseline.Of(f.Spec.Baseline, a, s.Table, counts)
	}
	s.Scores, o.method = []*scores.File{f}, ByPrevious
	return err
}

// kept returns the mask, [n, d], of the choices. Entries without one are bad input.
func (o *Options) kept(s *Source, choices []mask.Choice) ([]bool, error) {
	dropped, absent := make([]bool, len(choices)), 0
	for i, c := range choices {
		dropped[i] = c == mask.WasDropped
		if c == mask.WasAbsent {
			absent++
		}
	}
	if absent > 0 {
		return nil, fault.Inputf("%s has %d entries of features that %s lacks, so it does not say whether they are dropped: give %s and a budget", s.File, absent, o.Previous, o.name("scores"))
	}
	return dropped, nil
}

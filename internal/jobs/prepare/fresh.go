package prepare

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/gap"
	"shaver/internal/jobs/shard"
	"shaver/internal/value/estimator"
)

// fresh returns which rows of the splits the model was not trained on, and their weight. They are those of the split fresh, and
// those of train on the fresh days of a window. If no rows are fresh, or all are, all count once, and fresh returns nil.
func (r *Request) fresh(splits []string) (*estimator.Fresh, error) {
	f := &estimator.Fresh{Weight: r.FreshWeight}
	if slices.Contains(splits, dataset.Fresh) {
		f.Rows = r.Dataset.Numbers(dataset.Fresh)
	}
	if days := r.Dataset.Days(); r.FreshDays != 0 && slices.Contains(splits, dataset.Train) {
		if r.FreshDays < 0 || r.FreshDays >= len(days) {
			return nil, fault.Usagef("%d fresh days: the window has %d days, and the model must have seen at least one", r.FreshDays, len(days))
		}
		for _, day := range days[len(days)-r.FreshDays:] {
			f.Rows = append(f.Rows, day.Numbers(dataset.Train)...)
		}
	}
	switch {
	case len(f.Rows) == 0 && (r.FreshDays != 0 || r.FreshWeight != 0):
		return nil, fault.Usagef("a weight of fresh rows or fresh days: the job scores no fresh rows: import the rows with a split %s, and score it", dataset.Fresh)
	case len(f.Rows) == 0 || countFresh(r.Dataset, f) == r.Rows(splits):
		return nil, nil
	case r.Previous != nil:
		return nil, fault.Usagef("fresh rows: previous scores need rows that all count once")
	case f.Weight == 0:
		f.Weight = min(freshWeight(r.Rows(splits), countFresh(r.Dataset, f)), max(1, estimator.MostWeight/max(1, r.Dataset.LargestWeight())))
	}
	if err := f.Validate(); err != nil {
		return nil, fault.Usagef("%w", err)
	}
	return f, nil
}

// Rows returns the number of rows of the splits.
func (r *Request) Rows(splits []string) (rows int64) {
	for _, split := range splits {
		rows += r.Dataset.Rows(split)
	}
	return rows
}

// weigh sets the weight of fresh rows to 1 if the request does not give it and the model does not memorise. Rows of the training then say
// what fresh rows say, and a larger weight only adds noise.
func (j *Job) weigh(r *Request, m *model.Model) error {
	f := j.Spec.Fresh
	if f == nil || f.Weight == 1 || r.FreshWeight != 0 {
		return nil
	}
	g, err := j.Gap(context.Background(), m)
	if err != nil {
		return fault.Inputf("%w", err)
	}
	if g != nil && !g.Memorises() {
		f.Weight = 1
	}
	return nil
}

// last keeps the gap that was measured last, because a program prepares the same job several times.
var last struct {
	mu  sync.Mutex
	of  string
	gap *gap.Gap
}

// Gap returns what gap.Measure does for the job, whose model is m.
func (j *Job) Gap(ctx context.Context, m *model.Model) (*gap.Gap, error) {
	last.mu.Lock()
	defer last.mu.Unlock()
	s, fresh := &j.Spec, [][2]int64(nil)
	if s.Fresh != nil {
		fresh = s.Fresh.Rows
	}
	of := fmt.Sprint(s.Model, s.Dataset, s.Sample, s.Seed, s.Kernel, s.Loss, s.Baseline, s.BaselineValues, s.Freeze, s.Tasks, fresh)
	if last.of == of {
		return last.gap, nil
	}
	g, err := gap.Measure(ctx, m, j.Dataset, s, j.Baseline)
	if err == nil {
		last.of, last.gap = of, g
	}
	return g, err
}

// countFresh returns the number of rows of d that are fresh. With tasks, rows have not all numbers.
func countFresh(d *dataset.Dataset, f *estimator.Fresh) (rows int64) {
	days := d.Days()
	if days == nil {
		days = []*dataset.Dataset{d}
	}
	for _, day := range days {
		for _, split := range day.SplitNames() {
			if numbers := day.Numbers(split); len(numbers) > 0 && f.Has(numbers[0][0]) {
				rows += day.Rows(split)
			}
		}
	}
	return rows
}

// freshWeight returns the weight of n fresh rows among rows, 1 to estimator.MaxWeight, if the model memorises: the square root of the number of other rows for each of
// them. One of many counts more, because the others outvote it with what the model remembers. It counts less than all of
// these together, because few rows are noisy.
func freshWeight(rows, n int64) int64 {
	return min(max(1, int64(math.Round(math.Sqrt(float64(rows-n)/float64(n))))), estimator.MaxWeight)
}

// Calibration returns at most n random rows by which a path is calibrated. If the job scores fresh rows, they have the share that
// their weight gives them. Rows that check refuses are left out.
func (j *Job) Calibration(ctx context.Context, n int64, check func(features []int32) error) (*model.Rows, error) {
	f := j.Spec.Fresh
	if f == nil {
		return j.Sample.Draw(ctx, j.Scan, n, check)
	}
	fresh := countFresh(j.Dataset, f)
	others := j.Sample.Rows - fresh
	share := float64(f.Weight*fresh) / float64(others+f.Weight*fresh)
	n = min(n, int64(float64(fresh)/share))
	all := &model.Rows{}
	for _, part := range []struct {
		fresh bool
		rows  int64
		keep  float64
	}{{false, others, float64(n) * (1 - share)}, {true, fresh, float64(n) * share}} {
		source := func(ctx context.Context, visit func(*model.Rows) error) error {
			return j.Scan(ctx, func(rows *model.Rows) error {
				some := &model.Rows{Width: rows.Width, Inputs: rows.Inputs}
				for i, number := range rows.Number {
					if f.Has(number) == part.fresh {
						some.Append(rows, i)
					}
				}
				return visit(some)
			})
		}
		rows, err := shard.NewSample(part.rows, 1, j.Spec.Seed).Draw(ctx, source, int64(math.Round(part.keep)), check)
		if err != nil {
			return nil, err
		}
		all.AppendAll(rows)
	}
	return all, nil
}

package training

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/click/train"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
)

// Finding is the training of a trial that finds the entries to keep, which a second training
// then has.
type Finding struct {
	Epochs []FindEpoch    `json:"epochs"`
	Best   int            `json:"best"`             // epoch whose model is searched; only with OptEmbed
	Steps  int64          `json:"steps"`            // of the optimizer
	Widths []train.Widths `json:"widths,omitempty"` // candidates of OptEmbed's search so far
	Kept   int            `json:"kept"`             // number of entries to keep; 0 = they are not found yet
}

// FindEpoch is an epoch of finding.
type FindEpoch struct {
	train.Epoch
	Remaining int `json:"remaining"` // number of entries that the thresholds of PEP or CERP leave
}

// history returns the epochs for a run that continues.
func (f *Finding) history() (all []train.Epoch) {
	for _, e := range f.Epochs {
		all = append(all, e.Epoch)
	}
	return all
}

// pruneEpochs is the number of epochs in which the thresholds would grow by a factor of e^4, if
// weight decay moved them at full speed.
const pruneEpochs = 4

// finder returns the settings of the training that finds the entries to keep, with a new table.
func (o *Course) finder(settings train.Options) (train.Options, error) {
	keep, err := o.keep()
	if err != nil {
		return settings, err
	}
	settings = o.withTable(settings)
	steps := int((o.data.Rows(dataset.Train) + int64(o.Batch) - 1) / int64(o.Batch))
	settings.Find = &train.Find{Method: o.Method(), Keep: keep, WarmUp: o.WarmUp * steps, Rate: pruneEpochs / float64(steps)}
	return settings, nil
}

// find finds the entries to keep, and sets kept. If numbers is not nil, it continues from them.
func (o *Course) find(ctx context.Context, settings train.Options, numbers []checkpoint.Vector) error {
	settings, err := o.finder(settings)
	if err != nil {
		return err
	}
	p, err := o.from.Parameters()
	if err != nil {
		return err
	}
	trainer, err := train.New(o.from.Architecture, p, settings)
	if err != nil {
		return fault.Usagef("%w", err)
	}
	keep, opt := settings.Find.Keep, settings.Find.Method == train.OptEmbed
	r := &train.Run{
		Trainer: trainer, Rows: o.all, Epochs: o.Epochs, Shuffle: o.Order == OrderShuffle, Measure: o.measure(),
		Stepped: func(rows int) { o.progress.Add(int64(rows)) },
	}
	if opt {
		r.Patience = o.Patience
	} else {
		r.Until = func() bool { return trainer.Remaining() <= keep }
	}
	if o.Finding == nil {
		o.Finding = &Finding{Best: -1}
	}
	f := o.Finding
	if numbers != nil {
		state := trainer.State()
		for i, v := range state {
			copy(v.Values, numbers[i].Values)
		}
		o.best = numbers[len(state):]
		trainer.Resume(f.Steps)
		r.History, r.Best = f.history(), f.Best
	}
	r.Done = func(e train.Epoch, best bool) error {
		f.Epochs = append(f.Epochs, FindEpoch{e, trainer.Remaining()})
		f.Steps = trainer.Steps()
		if opt {
			f.Best = r.Best
			if best {
				o.best = o.copyOf(trainer)
			}
			o.progress.Note("find, " + epochNote(e, r))
			return o.save(trainer)
		}
		o.progress.Note(fmt.Sprintf("find, epoch %d of %d, %d entries left", e.Number, r.Epochs, trainer.Remaining()))
		if trainer.Remaining() <= keep { // the state of an epoch that ended early cannot be continued
			return nil
		}
		f.Best = r.Best
		return o.save(trainer)
	}
	if err := r.Run(ctx); err != nil {
		return err
	}
	switch {
	case opt:
		for i, v := range trainer.State() {
			copy(v.Values, o.best[i].Values)
		}
		o.kept, err = o.evolve(ctx, trainer, keep)
		o.best = nil
	case trainer.Remaining() > keep:
		err = o.giveUp("%d entries remain after %d epochs, expected at most %d: give more --epochs or a shorter --warm-up", trainer.Remaining(), o.Epochs, keep)
	default:
		o.kept = trainer.Kept()
	}
	if err != nil {
		return err
	}
	for _, kept := range o.kept {
		if kept {
			f.Kept++
		}
	}
	return nil
}

// unreachable is the error of a training that cannot reach the sparsity.
type unreachable struct{ reason string }

func (u *unreachable) Error() string { return u.reason }

// giveUp returns the error of a training that cannot reach the sparsity.
func (o *Course) giveUp(format string, args ...any) error {
	return &unreachable{fmt.Sprintf(format, args...)}
}

// copyOf returns a copy of the state of a trainer.
func (o *Course) copyOf(t *train.Trainer) (all []checkpoint.Vector) {
	for _, v := range t.State() {
		all = append(all, checkpoint.Vector{Name: "best." + v.Name, Values: slices.Clone(v.Values)})
	}
	return all
}

// apply sets p and the settings to those of the training of the entries that were found.
func (o *Course) apply(p *model.Parameters, settings *train.Options) {
	a := &o.from.Architecture
	if o.shape != nil {
		*settings = o.withTable(*settings)
		settings.Composed.Keep(o.kept)
		return
	}
	o.dropped, o.baseline, o.compact = make([]bool, len(o.kept)), a.Zero(), true
	for i, kept := range o.kept {
		if !kept {
			o.dropped[i] = true
			p.Embedding[i] = 0
		}
	}
	settings.Dropped = o.dropped
}

// readKept reads the n entries to keep from the state.
func (o *Course) readKept(n int) error {
	entries := o.from.Architecture.Parameters()
	if o.shape != nil {
		entries = 2 * o.shape.Buckets * o.shape.Dim
	}
	kept := keptVector(make([]bool, entries))
	if err := checkpoint.ReadVectors(o.state(), func(string) ([]checkpoint.Vector, error) { return kept, nil }); err != nil {
		return err
	}
	o.kept = make([]bool, entries)
	for i, v := range kept[0].Values {
		if o.kept[i] = v != 0; o.kept[i] {
			n--
		}
	}
	if n != 0 {
		return fault.Inputf("%s has another number of entries to keep than it says: delete it to start over", o.state())
	}
	return nil
}

// evolveRows bounds the validation rows that OptEmbed's search reads for each candidate.
const evolveRows = 1 << 15

// evolve searches the number of columns of each field for the model of trainer, and returns the
// entries to keep.
func (o *Course) evolve(ctx context.Context, trainer *train.Trainer, keep int) ([]bool, error) {
	a := &o.from.Architecture
	p, kept := trainer.Parameters().Clone(), trainer.Kept()
	whole := slices.Clone(p.Embedding)
	e := &train.Evolution{Seed: o.Seed, Dim: a.Dim, Alive: make([]int, a.Fields()), Budget: keep, Seen: o.Finding.Widths}
	smallest := 0
	for j, first := range a.Offsets() {
		for f := int(first); f < int(first)+a.FieldDims[j]; f++ {
			if kept[f*a.Dim] {
				e.Alive[j]++
				smallest++
			}
		}
	}
	if smallest > keep {
		return nil, o.giveUp("the thresholds keep %d features, and one column of each has more entries than the %d of --sparsity %v: expected at most %v", smallest, keep, o.Sparsity, 1-float64(smallest)/float64(a.Parameters()))
	}
	rows, err := o.sampled(ctx)
	if err != nil {
		return nil, err
	}
	source := func(_ context.Context, each func(*model.Rows) error) error { return each(rows) }
	e.Fitness = func(ctx context.Context, columns []int) (*train.Metrics, error) {
		widthMask(a, columns, func(entry int, in bool) {
			p.Embedding[entry] = 0
			if in {
				p.Embedding[entry] = whole[entry]
			}
		})
		m, err := model.New(*a, p.Weights())
		if err != nil {
			return nil, err
		}
		found, err := evaluate.Predict(ctx, m, loss.Logistic, source, runtime.GOMAXPROCS(0))
		if err != nil {
			return nil, err
		}
		metrics := found.Metrics()
		return &train.Metrics{AUC: scores.Figure(metrics.AUC), LogLoss: metrics.Loss}, nil
	}
	e.Done = func() error {
		o.Finding.Widths = e.Seen
		o.progress.Note(fmt.Sprintf("search, candidate %d of %d", len(e.Seen), e.Candidates()))
		if len(e.Seen)%20 == 0 {
			return o.save(trainer)
		}
		return nil
	}
	best, err := e.Run(ctx)
	if err != nil {
		return nil, err
	}
	widthMask(a, best.Columns, func(entry int, in bool) { kept[entry] = kept[entry] && in })
	return kept, nil
}

// widthMask calls f for each entry of the table, and whether it is in the first columns of its field.
func widthMask(a *model.Architecture, columns []int, f func(entry int, in bool)) {
	entry := 0
	for j, size := range a.FieldDims {
		for range size {
			for c := range a.Dim {
				f(entry, c < columns[j])
				entry++
			}
		}
	}
}

// sampled returns at most evolveRows validation rows, at equal distances.
func (o *Course) sampled(ctx context.Context) (*model.Rows, error) {
	all, number := &model.Rows{}, int64(0)
	n := o.data.Rows(dataset.Val)
	most := min(n, evolveRows)
	err := o.data.Scan(ctx, []string{dataset.Val}, 4096, func(rows *model.Rows) error {
		for i := range rows.Len() {
			if (number+1)*most/n > number*most/n {
				all.Append(rows, i)
			}
			number++
		}
		return nil
	})
	return all, err
}

package train

import (
	"context"
	"errors"
	"fmt"
	"math"

	"shaver/internal/click/model"
	"shaver/internal/num/random"
)

// Metrics are those of a model on the validation rows.
type Metrics struct {
	AUC     *float64 `json:"auc"` // nil if all labels are the same
	LogLoss float64  `json:"log_loss"`
}

// Better reports whether m is better than o: by AUC, or by LogLoss if there is no AUC.
func (m *Metrics) Better(o *Metrics) bool {
	if m.AUC != nil && o.AUC != nil {
		return *m.AUC > *o.AUC
	}
	return m.LogLoss < o.LogLoss
}

// Epoch is the result of an epoch. Number 0 is the model before training.
type Epoch struct {
	Number     int      `json:"epoch"`
	Loss       *float64 `json:"loss,omitempty"`       // mean of the steps' losses, each before its step; nil for number 0
	Validation *Metrics `json:"validation,omitempty"` // nil without validation rows
}

// Run trains a model for some epochs and finds the best one.
type Run struct {
	Trainer  *Trainer
	Rows     *model.Rows // all training rows, at least 2
	Epochs   int         // largest number of epochs
	Patience int         // number of epochs without a new best after which Run stops; 0 = never
	Shuffle  bool        // whether each epoch has a random order of its own
	// Untrained makes the model before training a candidate.
	Untrained bool
	// Measure returns the metrics of a model on the validation rows. If it is nil, the last
	// epoch is the best.
	Measure func(ctx context.Context, m *model.Model) (*Metrics, error)
	// Done is called after each epoch, and says whether it is the best so far. The
	// parameters of Trainer are those of the epoch. Done may be nil.
	Done func(e Epoch, best bool) error
	// Stepped is called after each step with the number of its rows. It may be nil.
	Stepped func(rows int)
	// Until says after each step whether the run ends, in the middle of an epoch or not. If it
	// is nil, no step ends the run.
	Until func() bool

	// The epochs so far, and the number of the best. A caller that continues a training
	// sets both.
	History []Epoch
	Best    int // -1 before the first
}

// Diverged means that a loss or a weight is not finite any more.
type Diverged struct{ Epoch, Batch int } // both from 1

func (d *Diverged) Error() string {
	return fmt.Sprintf("epoch %d, batch %d: the training diverged: the loss or a weight is not a finite number", d.Epoch, d.Batch)
}

// Run trains until the epochs or the patience are exhausted. It returns a *Diverged error
// if the training diverges, and the error of ctx after the step in which ctx is done.
func (r *Run) Run(ctx context.Context) error {
	if r.Rows.Len() < 2 {
		return errors.New("there are fewer than 2 training rows")
	}
	if len(r.History) == 0 {
		r.Best = -1
		if r.Untrained {
			if err := r.finish(ctx, Epoch{}); err != nil {
				return err
			}
		}
	}
	for !r.ended() {
		number := 1
		if n := len(r.History); n > 0 {
			number = r.History[n-1].Number + 1
		}
		loss, last, err := r.epoch(ctx, number)
		if err != nil {
			return err
		}
		if err := r.finish(ctx, Epoch{Number: number, Loss: &loss}); err != nil || last {
			return err
		}
	}
	return nil
}

// ended reports whether the training is over.
func (r *Run) ended() bool {
	if len(r.History) == 0 {
		return r.Epochs < 1
	}
	last := r.History[len(r.History)-1].Number
	return last >= r.Epochs || r.Patience > 0 && r.Measure != nil && last-r.Best >= r.Patience
}

// epoch trains on all rows once, unless Until ends the run before. It returns the mean loss of
// the rows, and whether the run ends.
func (r *Run) epoch(ctx context.Context, number int) (mean float64, last bool, err error) {
	n := r.Rows.Len()
	order := make([]int32, n)
	if r.Shuffle {
		stream := random.At(r.Trainer.o.Seed, random.Shuffle, uint64(number), 0)
		stream.Permute(order)
	} else {
		for i := range order {
			order[i] = int32(i)
		}
	}
	var batch model.Rows
	sum, size := 0.0, r.Trainer.o.Batch
	for from, k := 0, 1; from < n; k++ {
		to := min(from+size, n)
		if n-to == 1 { // BatchNorm needs two rows
			to = n
		}
		batch.Reset()
		for _, i := range order[from:to] {
			batch.Append(r.Rows, int(i))
		}
		loss := r.Trainer.Step(&batch, number)
		if math.IsNaN(loss) || math.IsInf(loss, 0) {
			return 0, false, &Diverged{number, k}
		}
		sum += float64(loss * float64(to-from))
		if r.Stepped != nil {
			r.Stepped(to - from)
		}
		if err := ctx.Err(); err != nil {
			return 0, false, err
		}
		if r.Until != nil && r.Until() {
			return sum / float64(to), true, nil
		}
		from = to
	}
	if number == 1 {
		r.Trainer.firstEnded(false)
	}
	return sum / float64(n), false, nil
}

// finish measures the model after an epoch and adds the epoch to the history.
func (r *Run) finish(ctx context.Context, e Epoch) error {
	p := r.Trainer.Parameters()
	if p.Check(&r.Trainer.a) != nil { // a weight is not finite
		return &Diverged{e.Number, (r.Rows.Len() + r.Trainer.o.Batch - 1) / r.Trainer.o.Batch}
	}
	best := true
	if r.Measure != nil {
		m, err := model.New(r.Trainer.a, p.Weights())
		if err != nil {
			return err
		}
		if e.Validation, err = r.Measure(ctx, m); err != nil {
			return err
		}
		best = r.Best < 0 || e.Validation.Better(r.at(r.Best).Validation)
	}
	r.History = append(r.History, e)
	if best {
		r.Best = e.Number
	}
	if r.Done == nil {
		return nil
	}
	return r.Done(e, best)
}

// at returns the epoch with the given number.
func (r *Run) at(number int) *Epoch { return &r.History[number-r.History[0].Number] }

// BestEpoch returns the best epoch so far, or nil before the first.
func (r *Run) BestEpoch() *Epoch {
	if r.Best < 0 || len(r.History) == 0 {
		return nil
	}
	return r.at(r.Best)
}

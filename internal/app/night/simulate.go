package night

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"shaver/internal/base/atomicfile"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/planted"
	"shaver/internal/data/ingest"
	"shaver/internal/prune/nightly"
)

// The simulated nights.
const (
	window       = 5    // number of days that are scored
	leastDayRows = 500  // rows of a day
	drift        = .05  // portion by which what users click turns each day
	rate         = .5   // portion of the way to the truth that a training goes
	noise        = .005 // noise of a training, relative to each parameter
)

// simulated is the configuration of the simulated nights.
const simulated = `# The configuration of the nights that "shaver quickstart --nights" simulated.
# "shaver nightly --config nightly.yaml" continues them.

model: model.safetensors
days: days
window: 5
out: nightly
keep: 7

score:
  estimator: permutation
  passes: 4
  baseline: codebook
  splits: [train]
  sample: 0.05
  full-every: 7
  seed: %d

prune:
  sparsity: 0.6
  hysteresis: 1

calibrate: true

check:
  max-auc-drop: 0.01
  max-logloss-rise: 0.01
`

// Simulation simulates nights on a planted model that drifts.
type Simulation struct {
	Nights int
	Rows   int // of all days together, at least LeastRows(Nights)
	Seed   uint64
	File   func(name string) string // returns the path of a file in a folder for the files
	Say    func(format string, args ...any)
}

// LeastRows returns the least number of rows for a number of nights.
func LeastRows(nights int) int { return leastDayRows * (nights + window - 1) }

// Simulate runs the nights and returns their lines.
func (r *Runner) Simulate(ctx context.Context, o *Simulation) (all []nightly.Line, err error) {
	config := planted.Default
	config.Seed = o.Seed
	truth, err := planted.New(config)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(o.File("days"), 0o777); err != nil {
		return nil, err
	}
	if err := atomicfile.Write(o.File("nightly.yaml"), func(w io.Writer) error { _, err := fmt.Fprintf(w, simulated, o.Seed); return err }); err != nil {
		return nil, err
	}
	days := o.Nights + window - 1
	rows := o.Rows / days
	o.Say("%d nights, each on a window of %d days of %d rows", o.Nights, window, rows)
	trained := truth
	for day := 1; day <= days; day++ {
		if truth, err = truth.Drifted(drift, uint64(day)); err != nil {
			return nil, err
		}
		if err := o.day(ctx, truth, day, rows); err != nil {
			return nil, err
		}
		if trained, err = trained.Retrained(truth, rate, noise, uint64(day)); err != nil {
			return nil, err
		}
		if day < window {
			continue // the first night has a whole window
		}
		if _, err := checkpoint.WriteDense(o.File("model.safetensors"), trained.Checkpoint); err != nil {
			return nil, err
		}
		_, result, err := r.Run(ctx, o.File("nightly.yaml"), nightly.Options{})
		if err != nil {
			return nil, err
		}
		l := result.Latest
		all = append(all, *l)
		o.Say("night %d of %d: %s, %.0f%% of the evaluations of a full job", len(all), o.Nights, l.Outcome, 100**Portion(l.Evaluations, l.FullEvaluations))
	}
	return all, nil
}

// day imports a day of rows that the truth generates.
func (o *Simulation) day(ctx context.Context, truth *planted.Planted, day, rows int) error {
	text := o.File(fmt.Sprintf(".day-%02d.csv", day))
	if err := atomicfile.Write(text, func(w io.Writer) error { return truth.WriteCSV(w, rows) }); err != nil {
		return err
	}
	defer os.Remove(text)
	_, err := ingest.ImportEncoded(ctx, ingest.EncodedConfig{
		Train: []string{text}, Split: "8:1:1", Seed: o.Seed, Sizes: truth.FieldDims, Out: filepath.Join(o.File("days"), fmt.Sprintf("day-%02d", day)),
	})
	return err
}

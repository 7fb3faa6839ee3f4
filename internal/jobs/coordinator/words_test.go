package coordinator_test

import (
	"bytes"
	"math"
	"os"
	"testing"

	"go.uber.org/zap"

	"shaver/internal/click/model/modeltest"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/prepare/preparetest"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/estimator"
)

// A job whose baseline has several words has the same bytes with any number of workers, and its values sum to the loss with everything
// dropped minus the loss with nothing dropped, as in a job with one word, but it is another job with other values.
func TestWords(t *testing.T) {
	for name, o := range map[string]estimator.Options{
		"antithetic":  {Estimator: estimator.Antithetic, Passes: 1},
		"multilinear": {Estimator: estimator.Multilinear, Passes: 1, Draws: 4},
		"path":        {Estimator: estimator.Path, Passes: 1, Sparsity: .99},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.config.Request = preparetest.Wide(t)
			o.SetDefaults()
			b.config.Options = o
			p, err := prepare.New(b.config.Request, zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			read := func(workers int) (*scores.File, []byte) {
				t.Helper()
				data, err := b.run(t.Context(), workers)
				if err != nil {
					t.Fatal(err)
				}
				f, err := scores.Read(b.config.Out)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Remove(b.config.Out); err != nil {
					t.Fatal(err)
				}
				return f, data
			}
			_, plain := read(1)
			words := modeltest.Words(&p.Architecture, 3, 1)
			b.config.BaselineValues = &words
			f, one := read(1)
			if _, three := read(3); !bytes.Equal(one, three) || bytes.Equal(one, plain) {
				t.Errorf("1 and 3 workers give the same bytes: %v; the values are those of one word: %v", bytes.Equal(one, three), bytes.Equal(one, plain))
			}
			if !f.Baseline.Equal(&words) || f.Spec.BaselineValues != prepare.Digest(&words) {
				t.Errorf("the scores have the baseline %+v, expected %+v", f.Baseline, words)
			}
			sum := 0.0
			for _, v := range f.Phi {
				sum += v
			}
			if f.Path == nil && math.Abs(sum-(f.LossEmpty-f.LossFull)) > 1e-5 {
				t.Errorf("the values sum to %g, expected %g", sum, f.LossEmpty-f.LossFull)
			}
		})
	}
}

package coordinator_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"shaver/internal/base/fault"
	"shaver/internal/data/arrowio"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/num/kernel"
	"shaver/internal/num/layout"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// A debiased job fails if its workers have computed values that are biased. It writes no
// scores, and the error does not blame the input.
func TestBiasedJobFails(t *testing.T) {
	for name, bias := range map[string]float64{"biased": .3, "unbiased": 0} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.config.Options = estimator.Options{Estimator: estimator.Debiased, Passes: 1}
			b.config.Options.SetDefaults()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			working, stop := context.WithCancel(ctx)
			worked := make(chan error, 1)
			shape := b.shape()
			go func() { worked <- b.pretend(working, shape, bias) }()
			own := b.connect(ctx, "coordinator")
			defer own.Close()
			_, err := coordinator.Run(ctx, own, b.config)
			stop()
			if err := <-worked; err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			_, missing := os.Stat(b.config.Out)
			if bias == 0 {
				if err != nil || missing != nil {
					t.Errorf("errors %v and %v", err, missing)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "the estimator is biased: over 300 rows") || fault.IsInput(err) || fault.IsUsage(err) {
				t.Errorf("error %v", err)
			}
			if !os.IsNotExist(missing) {
				t.Errorf("scores of a biased job: %v", missing)
			}
		})
	}
}

// pretend is a worker whose rows have mean residuals of the given size, in nat, which it shares
// out.
func (b *bench) pretend(ctx context.Context, shape layout.Shape, bias float64) error {
	own := b.connect(ctx, "pretender")
	defer own.Close()
	for {
		d, err := own.NextTask(ctx, kernel.Name())
		if err != nil {
			return err
		}
		t := &d.Task
		sums := tally.NewSampling(t.Spec.TaskOptions(), 0)
		builder := tally.NewBuilder(shape, sums.Walks, sums.Form(2))
		for i := range t.Rows {
			const nat = 1 << 36
			shared := int64((bias + float64(i%2) - .5) * nat)
			played := &tally.Played{LossFull: nat, LossEmpty: 2 * nat, Sum: make([]int64, shape.Dim()), Correction: make([]int64, shape.Dim()), Shared: shared}
			played.Sum[0], played.Correction[0], played.Correction[1] = nat, -shared, shared
			if err := builder.Add([]int32{0}, played, nil); err != nil {
				return err
			}
		}
		p := builder.Partial()
		var encoded bytes.Buffer
		if err := arrowio.EncodePartial(&encoded, p); err != nil {
			return err
		}
		result := job.Result{Job: t.Job, Shard: t.Shard, Rows: t.Rows, Kernel: t.Spec.Kernel, Worker: "pretender", Digests: []uint64{p.Check}}
		if result.Partial, err = own.Put(ctx, bus.PartialName(t.Job, t.Shard, d.Attempt), encoded.Bytes()); err != nil {
			return err
		}
		if _, err := own.PublishResult(ctx, result); err != nil {
			return err
		}
		if err := d.Done(ctx); err != nil {
			return err
		}
	}
}

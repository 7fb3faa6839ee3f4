package coordinator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"go.uber.org/zap"

	"shaver/internal/baseline"
	"shaver/internal/bus"
	"shaver/internal/checkpoint"
	"shaver/internal/fault"
	"shaver/internal/job"
	"shaver/internal/prepare"
)

// submit stores the specification and claims the job. It returns the job with the
// plan that is stored, because the first submission's plan wins.
func submit(ctx context.Context, b *bus.Bus, c *Config, j *prepare.Job, log *zap.Logger) (*prepare.Job, *bus.Claim, error) {
	for {
		if err := b.Settle(ctx, j.ID); err != nil {
			return nil, nil, err
		}
		plan, err := register(ctx, b, j)
		if err != nil {
			return nil, nil, err
		}
		if c.RowsPerShard > 0 && plan.RowsPerShard != c.RowsPerShard {
			log.Warn("the job keeps the shards that it was first cut into; cancel the job to change them", zap.Int64("rows a shard", plan.RowsPerShard))
		}
		claim, err := b.Claim(ctx, j.ID)
		if err != nil {
			return nil, nil, err
		}
		if claim.Lead.Ending { // its coordinator was cleaning up, and this claim fenced it
			if err := b.Cleanup(ctx, j.ID); err != nil {
				return nil, nil, err
			}
			continue
		}
		log.Debug("claimed", zap.Int64("epoch", claim.Lead.Epoch))
		// The job may have ended between register and Claim.
		return j.WithPlan(plan), claim, claim.Check(ctx)
	}
}

// register stores the specification and the plan, unless the server has them already,
// and returns the stored plan.
func register(ctx context.Context, b *bus.Bus, j *prepare.Job) (job.Plan, error) {
	ours, err := json.Marshal(job.Submission{Spec: j.Spec, Plan: j.Plan})
	if err != nil {
		return job.Plan{}, err
	}
	stored, err := b.CreateSpec(ctx, j.ID, ours)
	if err != nil {
		return job.Plan{}, err
	}
	var s job.Submission
	if err := json.Unmarshal(stored, &s); err != nil || s.Spec.ID() != j.ID || s.Plan.Rows != j.Plan.Rows || !slices.Equal(s.Plan.Rounds, j.Plan.Rounds) || s.Plan.Check(j.Architecture.Fields()) != nil {
		return job.Plan{}, fmt.Errorf("job %s: the stored specification is invalid", j.ID)
	}
	return s.Plan, nil
}

// inputs are the blobs that every task of a job needs.
type inputs struct {
	bus      *bus.Bus
	open     func() (*checkpoint.Checkpoint, error)
	model    job.Blob
	baseline job.Blob
	encoded  []byte // content of the baseline
}

// newInputs returns the inputs of j. modelBytes is the size of the model's file.
func newInputs(b *bus.Bus, open func() (*checkpoint.Checkpoint, error), j *prepare.Job, modelBytes int64) *inputs {
	encoded := baseline.Encode(j.Baseline)
	sum := sha256.Sum256(encoded)
	return &inputs{
		bus: b, open: open,
		model:    job.Blob{Name: bus.ModelName(j.Spec.Model), Bytes: modelBytes, SHA256: j.Spec.Model},
		baseline: job.Blob{Name: bus.BaselineName(j.ID), Bytes: int64(len(encoded)), SHA256: hex.EncodeToString(sum[:])},
		encoded:  encoded,
	}
}

// store stores the inputs that the server lacks. It is called again while the job runs,
// because another job that ends may delete the model. ck is the model's checkpoint, or nil
// if store is to open it when needed.
func (in *inputs) store(ctx context.Context, ck *checkpoint.Checkpoint) error {
	_, err := in.bus.PutFrom(ctx, in.model.Name, func(w io.Writer) error {
		ck := ck
		if ck == nil {
			var err error
			if ck, err = in.open(); err != nil {
				return err
			}
			if digest := ck.Digest(); digest != in.model.SHA256 {
				return fault.Inputf("the model changed while its job runs: digest %s, expected %s", digest, in.model.SHA256)
			}
		}
		_, err := ck.WriteTo(w)
		return err
	}, &in.model)
	if err != nil {
		return err
	}
	_, err = in.bus.PutFrom(ctx, in.baseline.Name, func(w io.Writer) error {
		_, err := w.Write(in.encoded)
		return err
	}, &in.baseline)
	return err
}

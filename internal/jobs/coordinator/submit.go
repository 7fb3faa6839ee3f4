package coordinator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"go.uber.org/zap"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/modelfile"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/value/baseline"
)

// submit stores the specification and claims the job. It returns the job with the
// plan that is stored, because the first submission's plan wins. over is the name of a dead
// leader. If another coordinator leads the job, the error is bus.ErrLed.
func submit(ctx context.Context, b *bus.Bus, c *Config, j *prepare.Job, over string, log *zap.Logger) (*prepare.Job, *bus.Claim, error) {
	for {
		if err := b.Settle(ctx, j.ID); err != nil {
			return nil, nil, err
		}
		plan, err := register(ctx, b, j, c.Program)
		if err != nil {
			return nil, nil, err
		}
		if c.RowsPerShard > 0 && plan.RowsPerShard != c.RowsPerShard {
			log.Warn("the job keeps the shards that it was first cut into; cancel the job to change them", zap.Int64("rows a shard", plan.RowsPerShard))
		}
		claim, err := b.ClaimFor(ctx, j.ID, c.claimant(over))
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
// and returns the stored plan. program names this build. A job that a build with a higher
// protocol submitted is bad input, because this build may not understand its plan.
func register(ctx context.Context, b *bus.Bus, j *prepare.Job, program string) (job.Plan, error) {
	ours, err := json.Marshal(job.Submission{Spec: j.Spec, Plan: j.Plan, Protocol: job.Protocol, Program: program})
	if err != nil {
		return job.Plan{}, err
	}
	stored, err := b.CreateSpec(ctx, j.ID, ours)
	if err != nil {
		return job.Plan{}, err
	}
	var s job.Submission
	if json.Unmarshal(stored, &s) == nil && s.Protocol > job.Protocol {
		return job.Plan{}, fault.Inputf("job %s: submitted by %s with protocol %d, and this build has protocol %d: %s",
			j.ID, cmp.Or(s.Program, "another build"), s.Protocol, job.Protocol, fmt.Sprintf(otherBuild, j.ID))
	}
	if err := json.Unmarshal(stored, &s); err != nil || s.Spec.ID() != j.ID || s.Plan.Rows != j.Plan.Rows || !slices.Equal(s.Plan.Rounds, j.Plan.Rounds) || s.Plan.Check(j.Architecture.Columns()) != nil {
		return job.Plan{}, fmt.Errorf("job %s: the stored specification is invalid", j.ID)
	}
	return s.Plan, nil
}

// otherBuild says what to do with a job, given its id, whose records belong to another
// build.
const otherBuild = `continue with that build, or remove the job with "shaver job cancel %s" and submit it again`

// inputs are the blobs that every task of a job needs.
type inputs struct {
	bus      *bus.Bus
	job      string // id of the job
	game     game
	previous *game // previous model of a paired job; nil = the job is not paired
	rounds   roundInputs
}

// game is a model and what its dropped entries read.
type game struct {
	open     func() (modelfile.Source, error)
	digest   string // identifies the model
	model    job.Blob
	baseline job.Blob
	encoded  []byte // content of the baseline
}

// newGame returns the game with a model, which the digest identifies, and an encoded baseline, which is to be stored under the
// given name. It keeps no reference to m.
func newGame(open func() (modelfile.Source, error), m *model.Model, digest string, encoded []byte, name string) (*game, error) {
	f, err := modelfile.New(m, digest)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(encoded)
	return &game{
		open:     open,
		digest:   digest,
		model:    job.Blob{Name: bus.ModelName(digest), Bytes: f.Size(), SHA256: f.SHA256()},
		baseline: job.Blob{Name: name, Bytes: int64(len(encoded)), SHA256: hex.EncodeToString(sum[:])},
		encoded:  encoded,
	}, nil
}

// newInputs returns the inputs of the job p that r asks for. It keeps no reference to the
// models of p.
func newInputs(ctx context.Context, b *bus.Bus, r *prepare.Request, p *prepare.Prepared) (*inputs, error) {
	encoded := baseline.Encode(&p.Baseline)
	if game, err := p.Game(ctx); err != nil {
		return nil, err
	} else if game.Fields != nil {
		encoded = game.Fields.Encode()
	}
	g, err := newGame(r.Open, p.Model, p.Spec.Model, encoded, bus.BaselineName(p.ID))
	if err != nil {
		return nil, err
	}
	in := &inputs{bus: b, job: p.ID, game: *g}
	if e := p.Earlier; e != nil {
		open := r.Previous.Open
		if p.Spec.Previous.Model == p.Spec.Model {
			open = r.Open
		}
		if in.previous, err = newGame(open, e.Model, p.Spec.Previous.Model, baseline.Encode(&e.Baseline), bus.PreviousBaselineName(p.ID)); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// store stores the inputs that the server lacks. It is called again while the job runs,
// because another job that ends may delete a model. p has the models, or is nil if store is
// to open them when needed.
func (in *inputs) store(ctx context.Context, p *prepare.Prepared) error {
	var m, earlier *model.Model
	if p != nil {
		m = p.Model
	}
	if err := in.game.store(ctx, in.bus, m); err != nil {
		return err
	}
	if err := in.storeMask(ctx); err != nil || in.previous == nil {
		return err
	}
	if p != nil {
		earlier = p.Earlier.Model
	}
	return in.previous.store(ctx, in.bus, earlier)
}

// store stores the model and the baseline unless the server has them. m is nil if store is to open the model when needed.
func (g *game) store(ctx context.Context, b *bus.Bus, m *model.Model) error {
	_, err := b.PutFrom(ctx, g.model.Name, func(w io.Writer) error {
		m := m
		if m == nil {
			var err error
			if m, err = g.read(); err != nil {
				return err
			}
		}
		f, err := modelfile.New(m, g.digest)
		if err == nil {
			_, err = f.WriteTo(w)
		}
		return err
	}, &g.model)
	if err != nil {
		return err
	}
	_, err = b.PutFrom(ctx, g.baseline.Name, func(w io.Writer) error {
		_, err := w.Write(g.encoded)
		return err
	}, &g.baseline)
	return err
}

// read reads the model again.
func (g *game) read() (*model.Model, error) {
	ck, err := g.open()
	if err != nil {
		return nil, err
	}
	if digest := ck.Digest(); digest != g.digest {
		return nil, fault.Inputf("the model changed while its job runs: digest %s, expected %s", digest, g.digest)
	}
	return ck.Model()
}

package launch

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"shaver/internal/app/cli"
	"shaver/internal/base/cputime"
	"shaver/internal/click/modelfile"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/jobs/window"
	"shaver/internal/num/kernel"
	"shaver/internal/value/tally"
)

// Night describes a night: the jobs that bring the sums of a window's days to a model. The
// jobs run where Job says. Its Dataset is a window, and Sample is that of the paired jobs.
type Night struct {
	Job
	State string                                      // folder of the sums; see package window
	Read  func(path string) (modelfile.Source, error) // reads the copy of a model that the state keeps
	// PreviousModel reads the previous model; nil = the copy that the state keeps.
	PreviousModel     func() (modelfile.Source, error)
	FullEvery         int          // see window.Night
	MaxInheritedError float64      // see window.Night
	OnCommit          func() error // called after each change of the state; nil = no call
}

// Run brings the state to the model and writes the scores of the window to Out, with a report
// next to them. If it ends early, the next call for the same night continues it. Run does not change n.
func (n *Night) Run(ctx context.Context) (report *JobReport, err error) {
	if err := n.checkOut(); err != nil {
		return nil, err
	}
	if n.AnyKernel {
		defer kernel.Use(kernel.Name())
	}
	start, cpu := time.Now(), cputime.Process()
	state, err := window.Open(n.State, n.Log)
	if err != nil {
		return nil, err
	}
	defer state.Close()
	state.OnCommit = n.OnCommit
	r := &running{Job: n.Job, night: true, started: make(chan struct{})}
	// The state keeps the progress of the jobs, which replaces that of another night.
	r.Out, r.Outputs.Force = filepath.Join(n.State, window.Progress), true
	r.Sample = 1
	if err := r.keepNightKernel(n.State); err != nil {
		return nil, err
	}
	defer func() { r.close(err) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer func() {
		if err != nil && r.server != nil && r.server.Err() != nil {
			report, err = nil, r.server.Err()
		}
	}()
	if err := r.connect(ctx, stop); err != nil {
		return nil, err
	}
	var done *window.Outcome
	r.jobs = func(ctx context.Context, c coordinator.Config) (total *coordinator.Outcome, err error) {
		total = &coordinator.Outcome{Existing: true, Workers: map[string]int{}}
		done, err = state.Night(ctx, &window.Night{
			Request: n.Request, Previous: n.PreviousModel, Read: n.Read, FullEvery: n.FullEvery, MaxInheritedError: n.MaxInheritedError, OnPlan: planned(n.Log),
			Run: func(ctx context.Context, request prepare.Request, sums func(*tally.Accumulator) error, sink func(*scores.File, func(int, tally.Values)) error) error {
				c := c
				c.Request, c.Sums, c.Sink = request, sums, sink
				o, err := coordinator.Run(ctx, r.bus, c)
				if err == nil {
					total.CPU += o.CPU
					total.Resumed = total.Resumed || o.Resumed
					for name, shards := range o.Workers {
						total.Workers[name] += shards
					}
				}
				return err
			},
		})
		if err != nil {
			return nil, err
		}
		total.Scores = done.Scores
		return total, nil
	}
	outcome, err := r.compute(ctx)
	if err != nil {
		return nil, err
	}
	if err := scores.WriteFrom(n.Out, &outcome.Scores, done.Values); err != nil {
		return nil, err
	}
	if report, err = newReport(outcome, n.Out); err != nil {
		return nil, err
	}
	report.Days, report.Workers = done.Steps, maps.Clone(outcome.Workers)
	report.Rows = 0
	for _, step := range done.Steps {
		report.Evaluations += step.Evaluations
		switch step.Action {
		case window.Full:
			report.Rows += step.Evaluations
		case window.Paired:
			report.Rows += step.Evaluations / 2
		}
	}
	report.DatasetRows = outcome.Scores.DatasetRows
	report.finish(start, cpu, outcome)
	return report, report.write(ReportPath(n.Out))
}

// finish sets the time that a run took.
func (r *JobReport) finish(start time.Time, cpu time.Duration, o *coordinator.Outcome) {
	r.Program, r.Finished = cli.Program(), time.Now().UTC().Format(time.RFC3339)
	r.Seconds = time.Since(start).Seconds()
	r.CPUSeconds = (cputime.Process() - cpu).Seconds() + o.CPU
}

// checkOut is CheckOut for the scores of a window. It lets Run replace scores of the same
// model over the same window, because another run may have paired other days.
func (n *Night) checkOut() error {
	other := func(path string) string {
		found, err := scores.ReadHead(path)
		if err != nil {
			return "is not a scores file that this program reads"
		}
		ck, err := n.Open()
		if err == nil && found.Spec.Model == ck.Digest() && found.Spec.Dataset == n.Dataset.Digest() {
			return ""
		}
		return fmt.Sprintf("has the scores of another job, %s", found.Spec.ID())
	}
	if err := n.Outputs.Check("--out", n.Out, other, ".arrow"); err != nil {
		return err
	}
	return n.Outputs.Check("--out", ReportPath(n.Out), cli.Unless(isReport, "the report of a job"))
}

// writeDays prints what was done with each day of a window, and the cost of all days.
func (r *JobReport) writeDays(w io.Writer) {
	for _, d := range r.Days {
		text := d.Why
		if d.Generation > 0 {
			text += fmt.Sprintf("; generation %d, error %.3g", d.Generation, d.Error)
		}
		fmt.Fprintf(w, "day %.12s\t%s\t%s\n", d.Dataset, d.Action, text)
	}
	fmt.Fprintf(w, "evaluations\t%d\tof rows; a full job over the window: %d\n", r.Evaluations, r.DatasetRows)
}

// planned logs what a night will do.
func planned(log *zap.Logger) func([]window.Step) {
	return func(steps []window.Step) {
		count, evaluations := map[string]int{}, int64(0)
		for _, s := range steps {
			count[s.Action]++
			evaluations += s.Evaluations
		}
		log.Info("night", zap.Int("full", count[window.Full]), zap.Int("paired", count[window.Paired]), zap.Int("kept", count[window.Kept]), zap.Int64("evaluations", evaluations))
	}
}

package launch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"shaver/internal/atomicfile"
	"shaver/internal/bus"
	"shaver/internal/cli"
	"shaver/internal/coordinator"
	"shaver/internal/fault"
	"shaver/internal/job"
	"shaver/internal/scores"
	"shaver/internal/worker"
)

// Job is a scoring job and where it runs: on the cluster behind NATS, or, with
// no address, on a server embedded in this process.
type Job struct {
	coordinator.Config
	cli.Connection
	Metrics Metrics
	Workers int // in this process; 0 = one if the server is embedded, else none
	// Store is where workers read the dataset in place, as dir:PATH (worker.OpenStore);
	// "" = its shards travel.
	Store string
	// Once says that nobody is going to run the job again: without NATS nothing of it
	// is kept, however it ends.
	Once bool
}

// JobReport is what a job came to. It is printed, and written beside the scores.
type JobReport struct {
	Job        string  `json:"job"`
	Rows       int64   `json:"rows"`
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"` // of this process and of the workers elsewhere
	// An earlier run of the job was cut off: what that took is not in Seconds, nor in
	// CPUSeconds but for workers elsewhere.
	Resumed         bool    `json:"resumed,omitempty"`
	Kernel          string  `json:"kernel"`
	LossFull        float64 `json:"loss_full"`        // mean loss with nothing dropped, nat
	LossEmpty       float64 `json:"loss_empty"`       // mean loss with everything dropped, nat
	EfficiencyError float64 `json:"efficiency_error"` // how far the scores sum off their difference, nat
	// Its standard error, of estimators without the efficiency identity: what is
	// beyond two of it is bias.
	EfficiencySE    float64        `json:"efficiency_se,omitempty"`
	Digests         Digests        `json:"digests"`
	Shards          int            `json:"shards"` // 0, and no workers: an earlier run wrote the scores, and was cut off before it told
	RowsPerShard    int64          `json:"rows_per_shard"`
	Workers         map[string]int `json:"workers"`          // shards computed by each
	QuarantinedRows int64          `json:"quarantined_rows"` // missing, in shards that cannot be computed
	// How a job with a rule to stop by, or with a time, ended.
	Stopped *scores.Stopped `json:"stopped,omitempty"`
	// What the audit found.
	Audit *scores.Audit `json:"audit,omitempty"`
}

// Digests are SHA-256, in hexadecimal.
type Digests struct {
	Model   string `json:"model"`
	Dataset string `json:"dataset"`
	Scores  string `json:"scores"`
}

// Run runs the job to its end. Beside the scores file it writes NAME.job.json, if
// that of an earlier run, which wrote the scores, is not there.
func (j *Job) Run(ctx context.Context) (report *JobReport, err error) {
	if err := cli.CheckOut(j.Out); err != nil {
		return nil, err
	}
	start, cpu := time.Now(), cpuTime()
	store, err := j.store()
	if err != nil {
		return nil, err
	}
	if store != nil {
		defer store.Close()
	}
	if err := j.Metrics.start(j.Log); err != nil {
		return nil, err
	}
	defer j.Metrics.stop()
	j.OnBlob = j.Metrics.onBlob()
	j.Metrics.lead(&j.Config)
	connect, end, err := j.server(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { end(err) }()
	b, err := connect(ctx, "coordinator")
	if err != nil {
		return nil, err
	}
	defer b.Close()
	j.Metrics.connected(b)

	running, stop := context.WithCancel(ctx)
	defer stop()
	group, running := errgroup.WithContext(running)
	var progress atomic.Pointer[cli.Progress] // of the job that runs: an audit has several
	var resumed int64
	var once sync.Once
	started := make(chan struct{})
	j.OnStart = func(spec job.Spec, plan job.Plan, merged int64) {
		j.Log.Info("scoring", zap.String("job", spec.ID()), zap.Int64("rows", plan.Rows), zap.Int64("merged", merged), zap.Int("shards", plan.Shards()), zap.String("kernel", spec.Kernel))
		// Rows that were merged before count neither as work nor as speed.
		resumed = merged
		if last := progress.Swap(cli.NewProgress("score", "rows", plan.Rows-merged)); last != nil {
			last.End()
		}
		once.Do(func() { close(started) })
	}
	workers := j.workers()
	if workers == 0 && os.Getenv("GOGC") == "" {
		// Nearly all memory is the sums, which have no pointers: collecting often
		// costs next to nothing, and keeps what is thrown away small beside them.
		debug.SetGCPercent(10)
	}
	if workers == 0 {
		j.OnMerged = func(rows int64) { progress.Load().Set(rows - resumed) }
	}
	var models worker.Models
	for i := range workers {
		group.Go(func() error {
			own, err := connect(running, fmt.Sprintf("local-%d", i+1))
			if err != nil {
				return err
			}
			defer own.Close()
			config := worker.Config{
				Bus: own, Name: fmt.Sprintf("local-%d", i+1), Threads: max(1, runtime.GOMAXPROCS(0)/workers), Models: &models, Store: store, Log: j.Log,
				OnRows: func(n int) {
					select {
					case <-started:
						progress.Load().Add(int64(n))
					case <-running.Done(): // ours never started; the rows were another job's
					}
				},
			}
			j.Metrics.work(&config)
			return worker.Run(running, nil, config)
		})
	}
	var outcome *coordinator.Outcome
	finished := errors.New("finished")
	group.Go(func() (err error) {
		if outcome, err = coordinator.Run(running, b, j.Config); err != nil {
			return err
		}
		return finished // which ends the workers
	})
	err = group.Wait()
	if last := progress.Load(); last != nil {
		last.End()
	}
	if !errors.Is(err, finished) {
		return nil, err
	}
	report, err = newReport(outcome, j.Out)
	if err != nil {
		return nil, err
	}
	path := ReportPath(j.Out)
	if outcome.Existing {
		if former := report.former(path); former != nil {
			return former, nil
		}
	}
	report.Seconds = time.Since(start).Seconds()
	report.CPUSeconds = (cpuTime() - cpu).Seconds() + outcome.CPU
	return report, report.write(path)
}

// ReportPath returns where the report stands of a run that wrote the scores at path.
func ReportPath(path string) string {
	return strings.TrimSuffix(path, filepath.Ext(path)) + ".job.json"
}

// store opens the store, nil if there is none, in which the dataset must be.
func (j *Job) store() (*worker.Store, error) {
	if j.Store == "" {
		return nil, nil
	}
	store, err := worker.OpenStore(j.Store)
	if err != nil {
		return nil, err
	}
	if _, err := store.Dataset(j.Dataset.Digest()); err != nil {
		store.Close()
		return nil, fault.Usagef("--store has to hold --dataset, or a copy: %w", err)
	}
	j.InPlace = true
	return store, nil
}

// former returns the report of an earlier run of the same scores, nil if it is not
// there: that run was cut off before it wrote it.
func (r *JobReport) former(path string) *JobReport {
	text, err := os.ReadFile(path)
	var former JobReport
	if err != nil || json.Unmarshal(text, &former) != nil || former.Digests != r.Digests {
		return nil
	}
	return &former
}

func (j *Job) workers() int {
	if j.Workers == 0 && j.NATS == "" {
		return 1
	}
	return j.Workers
}

// server returns how to connect to the job's server, and how to end it if it is
// ours, which is told how the job ended.
func (j *Job) server(ctx context.Context) (connect func(ctx context.Context, name string) (*bus.Bus, error), end func(err error), err error) {
	if j.NATS == "" {
		return j.local(ctx)
	}
	return func(ctx context.Context, name string) (*bus.Bus, error) {
		return j.Connect(ctx, cli.RoleCoordinator, name, j.Log)
	}, func(error) {}, nil
}

func newReport(o *coordinator.Outcome, path string) (*JobReport, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, f); err != nil {
		return nil, err
	}
	s := &o.Scores
	r := &JobReport{
		Job: s.Spec.ID(), Rows: s.Rows, Kernel: s.Spec.Kernel,
		LossFull: s.LossFull, LossEmpty: s.LossEmpty, EfficiencyError: s.EfficiencyError, EfficiencySE: s.EfficiencySE,
		Digests:      Digests{s.Spec.Model, s.Spec.Dataset, hex.EncodeToString(digest.Sum(nil))},
		RowsPerShard: o.Plan.RowsPerShard, Workers: o.Workers, QuarantinedRows: s.QuarantinedRows, Resumed: o.Resumed, Stopped: s.Stopped, Audit: s.Audit,
	}
	if !o.Existing {
		r.Shards = o.Plan.Shards()
	}
	return r, nil
}

func (r *JobReport) write(path string) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	})
}

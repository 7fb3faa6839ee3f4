package forecast

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"shaver/internal/base/cputime"
	"shaver/internal/click/model"
	"shaver/internal/jobs/prepare"
	"shaver/internal/num/kernel"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
)

// Rate is the speed of a kernel on this machine for one job.
type Rate struct {
	Kernel string `json:"kernel"`
	// RowsPerCore is the number of rows per second of one core while all cores compute, in
	// the best of several short runs. A row has one pass, and its values are not added up.
	RowsPerCore float64 `json:"rows_per_core_second"`
}

const (
	// ratesWithin is the time for all runs. Each kernel has at least two runs, however long
	// they take.
	ratesWithin = 400 * time.Millisecond
	// runsOfEach is how many runs of each kernel fit into ratesWithin.
	runsOfEach = 6
	// tooSlow is the ratio to the time of the fastest kernel from which on a kernel cannot win.
	tooSlow = 1.5
	// nearlyAsFast is the portion of the best rate from which on Fastest prefers an earlier
	// kernel. Runs of one kernel differ by a few percent.
	nearlyAsFast = 0.97
	// mostRateRows bounds the rows of a run.
	mostRateRows = 1 << 12
	// worthwhile is the time of a job, on all threads, from which on it is measured, so that
	// the measurement takes at most a twenty-fifth of the job.
	worthwhile = 10 * time.Second
)

// Rates measures how fast this machine computes the first rows of the job that r asks for
// with each of the kernels, which must be of this machine. It returns the rates in the order
// of kernels. If there is only one kernel, or the job takes less than ten seconds with the
// first one, Rates measures no other and returns nil. The job must not be paired. Nothing
// else may compute in this process meanwhile. Afterwards the kernel in use is the same as
// before.
//
// A run has one pass over each row. For the estimator exact it consists of walks, because
// both compute a state after the other.
func Rates(ctx context.Context, r prepare.Request, kernels []string, threads int) ([]Rate, error) {
	if len(kernels) < 2 {
		return nil, nil
	}
	defer kernel.Use(kernel.Name())
	if !kernel.Use(kernels[0]) {
		return nil, fmt.Errorf("forecast: this machine has no kernel %s", kernels[0])
	}
	p, err := prepare.New(r, zap.NewNop())
	if err != nil {
		return nil, err
	}
	rows, err := firstRows(ctx, p.Job, mostRateRows)
	if err != nil || rows.Len() == 0 {
		return nil, err
	}
	options := shapley.Options{Options: p.Spec.TaskOptions(), Seed: p.Spec.Seed, Weights: p.Spec.Weights()}
	options.Passes = 1
	passes := float64(p.Spec.Passes) // of the job, each as long as that of a run
	if options.Estimator == estimator.Exact {
		options.Options = estimator.Options{Estimator: estimator.Permutation, Passes: 1}
		players := float64(p.Players())
		passes = math.Exp2(players) / players
	}
	game, err := p.Game(ctx)
	if err != nil {
		return nil, err
	}
	c := &contest{options: options, rows: rows, threads: threads}
	return c.rates(ctx, game, kernels, float64(p.Sample.Keep)*passes)
}

// Fastest returns the kernel with the highest rate. Among kernels that are nearly as fast it
// returns the first one. rates must not be empty.
func Fastest(rates []Rate) string {
	best := 0.0
	for _, r := range rates {
		best = max(best, r.RowsPerCore)
	}
	for _, r := range rates {
		if r.RowsPerCore >= nearlyAsFast*best {
			return r.Kernel
		}
	}
	panic("forecast: no rates")
}

// contest runs kernels on the same rows.
type contest struct {
	options shapley.Options
	rows    *model.Rows
	n       int // rows that each thread computes in a run
	threads int
}

// runner is a kernel in a contest.
type runner struct {
	kernel string
	trials []*shapley.Trial // of the threads
	best   time.Duration    // shortest run; 0 = no run yet
}

// rates returns the rates of the kernels, or nil if the first one computes the given number of
// rows in a time that is not worthwhile. The first kernel must be in use, and the model packed
// for it.
func (c *contest) rates(ctx context.Context, game shapley.Game, kernels []string, rows float64) (rates []Rate, err error) {
	first, err := c.enter(kernels[0], game)
	if err != nil {
		return nil, err
	}
	share := ratesWithin / time.Duration(runsOfEach*len(kernels))
	for c.n = 1; ; c.n = min(2*c.n, c.rows.Len()) {
		if first.best, err = c.run(ctx, first); err != nil {
			return nil, err
		}
		if first.best > share/2 || c.n == c.rows.Len() {
			break
		}
	}
	if first.best.Seconds()/float64(c.n*c.threads)*rows < worthwhile.Seconds() {
		return nil, nil
	}
	all := []*runner{first}
	for _, name := range kernels[1:] {
		if !kernel.Use(name) {
			return nil, fmt.Errorf("forecast: this machine has no kernel %s", name)
		}
		if game.Model, err = game.Model.Repack(); err != nil {
			return nil, err
		}
		next, err := c.enter(name, game)
		if err != nil {
			return nil, err
		}
		all = append(all, next)
	}
	if err := c.compete(ctx, all); err != nil {
		return nil, err
	}
	for _, one := range all {
		rates = append(rates, Rate{one.kernel, float64(c.n) / one.best.Seconds()})
	}
	return rates, nil
}

// enter returns the runner of a kernel. The kernel must be in use, and the model packed for
// it.
func (c *contest) enter(name string, game shapley.Game) (*runner, error) {
	one := &runner{kernel: name}
	for range c.threads {
		t, err := shapley.NewTrial(game, c.options)
		if err != nil {
			return nil, err
		}
		one.trials = append(one.trials, t)
	}
	return one, nil
}

// compete runs the kernels in turn until the time is up. A kernel that cannot win has only
// two runs, of which the first may have found cold caches.
func (c *contest) compete(ctx context.Context, all []*runner) error {
	begun := time.Now()
	for turn := 0; ; turn++ {
		fastest := time.Duration(math.MaxInt64)
		for _, one := range all {
			fastest = min(fastest, one.best)
		}
		for _, one := range all {
			if turn >= 2 && time.Since(begun) > ratesWithin {
				return nil
			}
			if turn >= 2 && float64(one.best) > tooSlow*float64(fastest) {
				continue
			}
			took, err := c.run(ctx, one)
			if err != nil {
				return err
			}
			if one.best == 0 || took < one.best {
				one.best = took
			}
		}
	}
}

// run computes the first n rows on each thread and returns the time that a thread needs. This
// is its processor time, because other programs may hold it up for longer than the kernels
// differ.
func (c *contest) run(ctx context.Context, one *runner) (time.Duration, error) {
	kernel.Use(one.kernel)
	group, ctx := errgroup.WithContext(ctx)
	begun, used := time.Now(), cputime.Process()
	for _, t := range one.trials {
		group.Go(func() error {
			rows := c.rows.Slice(0, c.n)
			return t.Compute(ctx, &rows)
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	took := (cputime.Process() - used) / time.Duration(c.threads)
	if runtime.GOOS == "windows" { // its processor times are multiples of 16 ms
		took = time.Since(begun)
	}
	return max(1, took), nil
}

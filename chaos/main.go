// Command chaos runs a small job repeatedly on a cluster of real processes: NATS nodes, a
// coordinator and workers. In each run it injects faults that are drawn from a seed. It
// kills, stops and disconnects processes, fills up storage, separates hosts, sets clocks
// and damages files. After each run it checks that the scores have the same bytes as
// without faults, and that no message, blob, process or listener is left.
// docs/reference/reliability.md describes the guarantees.
//
//	go run ./chaos -seed 1 -runs 5
//
// Run k of a campaign has the seed N + k, so "-seed N+k -runs 1" repeats it.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"shaver/chaos/lan"
)

type options struct {
	seed     uint64
	runs     int
	choice   choice
	work     time.Duration
	limit    time.Duration
	bin      string
	out      string
	report   string
	keep     bool
	hosts    string // auto, yes or no
	together int
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the first run; each next run has the next seed")
	flag.IntVar(&o.runs, "runs", 5, "number of runs")
	flag.IntVar(&o.together, "together", 1, "number of runs at the same time")
	flag.IntVar(&o.choice.nodes, "nodes", 0, "NATS nodes, 1 or 3 (default drawn)")
	flag.IntVar(&o.choice.budget, "faults", 10, "faults per run; faults drawn for a time after the job's end do not happen")
	flag.IntVar(&o.choice.ranges, "ranges", 0, "number of ranges whose sums mergers keep (default the coordinator keeps the sums)")
	flag.StringVar((*string)(&o.choice.job), "job", "", "job of all runs: walks, path, paired, which corrects the scores of a previous model, or fields (default drawn)")
	flag.Float64Var(&o.choice.verify, "verify", 0, "portion of the shards that are verified, from 0 to 1. Above 0, bits in the memory of workers change, too; below 1, scores with other bytes are then counted and are no failure")
	only := flag.String("only", "", "draw only these faults, separated by commas: "+kindNames())
	flag.DurationVar(&o.work, "work", 10*time.Second, "duration of the job without faults")
	flag.DurationVar(&o.limit, "limit", 3*time.Minute, "longest duration of a run; a longer run has failed")
	flag.StringVar(&o.bin, "bin", "", "folder of the programs to test (default: build them from this tree)")
	flag.StringVar(&o.out, "o", "", "file for the results in JSON")
	flag.StringVar(&o.report, "markdown", "", "file for the summary in Markdown")
	flag.StringVar(&o.hosts, "hosts", "auto", "whether each process is on its own host, a network namespace: yes, no, or auto, which is yes if namespaces can be made")
	flag.BoolVar(&o.keep, "keep", false, "also keep the logs of runs without failure")
	flag.Parse()
	var err error
	if o.choice.only, err = parseKinds(*only); err == nil {
		err = o.check()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ending...)
	context.AfterFunc(ctx, stop) // a second signal ends this program; on Linux it also ends the processes that it started
	if err := o.campaign(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func (o *options) check() error {
	switch {
	case !supported:
		return errors.New("this program needs the signals of a Unix system")
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: expected only flags", flag.Arg(0))
	case o.choice.nodes != 0 && o.choice.nodes != 1 && o.choice.nodes != 3:
		return fmt.Errorf("-nodes %d: expected 1 or 3", o.choice.nodes)
	case o.choice.ranges < 0 || o.choice.ranges > 8:
		return fmt.Errorf("-ranges %d: expected 0 to 8", o.choice.ranges)
	case o.choice.job != "" && !slices.Contains(jobs, o.choice.job):
		return fmt.Errorf("-job %s: expected one of %v", o.choice.job, jobs)
	case !(o.choice.verify >= 0 && o.choice.verify <= 1):
		return fmt.Errorf("-verify %v: expected 0 to 1", o.choice.verify)
	case o.choice.ranges > 0 && (o.choice.job == pairedJob || o.choice.job == fieldsJob):
		return fmt.Errorf("-job %s: only walks and paths have -ranges", o.choice.job)
	case o.hosts != "auto" && o.hosts != "yes" && o.hosts != "no":
		return fmt.Errorf("-hosts %s: expected auto, yes or no", o.hosts)
	case o.runs < 1 || o.together < 1 || o.choice.budget < 0 || o.work <= 0 || o.limit <= 0:
		return errors.New("-runs, -together, -work and -limit must be above 0, and -faults at least 0")
	}
	if o.hosts == "no" {
		return nil
	}
	why := lan.Available()
	o.choice.hosts = why == nil
	if why != nil && o.hosts == "yes" {
		return fmt.Errorf("-hosts yes: %w", why)
	}
	if why != nil {
		fmt.Println("all processes share this host, and no faults between hosts are drawn:", why)
	}
	return nil
}

// campaign performs all runs and returns an error if one of them failed.
func (o *options) campaign(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "chaos-*")
	if err != nil {
		return err
	}
	fmt.Println("building the programs, and computing the reference scores of each job")
	f, err := newFixture(ctx, dir, o.bin, o.work)
	if err != nil {
		os.RemoveAll(dir)
		return err
	}
	o.choice.clocks = f.clocks
	if err := o.choice.check(); err != nil {
		os.RemoveAll(dir)
		return err
	}
	results := o.runAll(ctx, f, dir)
	kept := slices.ContainsFunc(results, func(r result) bool { return r.Logs != "" })
	err = o.publish(results)
	for _, name := range []string{"bin", "data"} {
		os.RemoveAll(filepath.Join(dir, name))
	}
	if !kept {
		os.RemoveAll(dir)
	}
	return errors.Join(err, context.Cause(ctx))
}

// runAll performs the runs, some of them at the same time, and returns the results of
// those that were not interrupted.
func (o *options) runAll(ctx context.Context, f *fixture, dir string) (results []result) {
	var mu sync.Mutex
	var busy sync.WaitGroup
	next := 0
	for range o.together {
		busy.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			for next < o.runs && ctx.Err() == nil {
				p := draw(o.seed+uint64(next), o.choice)
				next++
				fmt.Print(p.text())
				mu.Unlock()
				res := o.runOnce(ctx, f, dir, p)
				mu.Lock()
				if ctx.Err() == nil { // otherwise the run was interrupted
					results = append(results, res)
					fmt.Println(res.line())
				}
			}
		})
	}
	busy.Wait()
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(a.Seed, b.Seed) })
	return results
}

// runOnce performs one run.
func (o *options) runOnce(ctx context.Context, f *fixture, dir string, p plan) result {
	r := &run{
		plan: p, fixture: f, dir: filepath.Join(dir, fmt.Sprintf("seed-%d", p.Seed)), diary: newDiary(&p),
		watch: newWatcher(time.Now), left: make(chan *life, len(p.Faults)+1),
	}
	begun := time.Now()
	err := os.Mkdir(r.dir, 0o700)
	if err == nil {
		err = r.do(ctx, o.limit)
	}
	res := result{Seed: p.Seed, Nodes: p.Nodes, Job: p.Job, Seconds: time.Since(begun).Seconds(), Faults: r.diary.done, Missed: r.diary.none, Wrong: r.wrong}
	var longest time.Duration
	res.Counts, longest = r.watch.result()
	res.Stall = longest.Seconds()
	if err != nil {
		res.Failure = err.Error()
	}
	if err == nil && !o.keep {
		os.RemoveAll(r.dir)
		return res
	}
	res.Logs = r.dir
	if err := r.diary.write(filepath.Join(r.dir, "diary.txt")); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	return res
}

// publish prints the results and writes them to files.
func (o *options) publish(results []result) error {
	s := summarise(results)
	fmt.Print("\n", s.markdown())
	var err error
	if o.out != "" {
		err = s.write(o.out)
	}
	if o.report != "" {
		err = errors.Join(err, os.WriteFile(o.report, []byte(s.markdown()), 0o644))
	}
	if s.Failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d runs failed", s.Failed, s.Runs))
	}
	return err
}

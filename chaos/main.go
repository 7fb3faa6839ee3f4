// Command chaos runs a small job again and again on a cluster of real processes
// (NATS nodes, a coordinator, workers), kills, stops, cuts off and fills up what
// a seed says, and checks after each run that the scores have the bytes of a run
// without faults, and that nothing is left: no message, no blob, no process, no
// listener. docs/reliability.md says what is promised.
//
//	go run ./chaos -seed 1 -runs 5
//
// Run k of a campaign is the run of seed + k: -seed N -runs 1 draws it again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

type options struct {
	seed   uint64
	runs   int
	choice choice
	work   time.Duration
	limit  time.Duration
	bin    string
	out    string
	report string
	keep   bool
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the first run; the next ones count up")
	flag.IntVar(&o.runs, "runs", 5, "runs")
	flag.IntVar(&o.choice.nodes, "nodes", 0, "NATS nodes, 1 or 3 (default drawn)")
	flag.IntVar(&o.choice.budget, "faults", 10, "faults a run; those after the job's end do not happen")
	only := flag.String("only", "", "draw only these faults, separated by commas: "+kindNames())
	flag.DurationVar(&o.work, "work", 10*time.Second, "how long the job takes the workers without faults")
	flag.DurationVar(&o.limit, "limit", 3*time.Minute, "a run that takes longer hangs, and has failed")
	flag.StringVar(&o.bin, "bin", "", "folder of programs to test (default built from this tree)")
	flag.StringVar(&o.out, "o", "", "file for the results in JSON")
	flag.StringVar(&o.report, "markdown", "", "file for the summary in Markdown")
	flag.BoolVar(&o.keep, "keep", false, "keep the logs of good runs too")
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
	context.AfterFunc(ctx, stop) // a second signal ends the program, and Linux what it started
	if err := o.campaign(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func (o *options) check() error {
	switch {
	case !supported:
		return errors.New("needs the signals of a Unix system")
	case flag.NArg() > 0:
		return fmt.Errorf("%q: there are only flags", flag.Arg(0))
	case o.choice.nodes != 0 && o.choice.nodes != 1 && o.choice.nodes != 3:
		return fmt.Errorf("-nodes %d: 1 or 3", o.choice.nodes)
	case o.runs < 1 || o.choice.budget < 0 || o.work <= 0 || o.limit <= 0:
		return errors.New("-runs, -faults, -work and -limit are positive")
	}
	return nil
}

// campaign does all runs, and returns an error if one of them failed.
func (o *options) campaign(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "chaos-*")
	if err != nil {
		return err
	}
	fmt.Println("building the programs, making a job and its scores")
	f, err := newFixture(ctx, dir, o.bin, o.work)
	if err != nil {
		os.RemoveAll(dir)
		return err
	}
	var results []result
	kept := false
	for k := 0; k < o.runs && ctx.Err() == nil; k++ {
		p := draw(o.seed+uint64(k), o.choice)
		fmt.Print(p.text())
		res := o.one(ctx, f, dir, p)
		if ctx.Err() != nil {
			break // it was not let end
		}
		results = append(results, res)
		kept = kept || res.Logs != ""
		fmt.Println(res.line())
	}
	err = o.tell(results)
	for _, name := range []string{"bin", "data"} {
		os.RemoveAll(filepath.Join(dir, name))
	}
	if !kept {
		os.RemoveAll(dir)
	}
	return errors.Join(err, context.Cause(ctx))
}

// one does one run.
func (o *options) one(ctx context.Context, f *fixture, dir string, p plan) result {
	r := &run{
		plan: p, fixture: f, dir: filepath.Join(dir, fmt.Sprintf("seed-%d", p.Seed)), diary: newDiary(&p),
		watch: newWatcher(time.Now), left: make(chan *life, len(p.Faults)+1),
	}
	begun := time.Now()
	err := os.Mkdir(r.dir, 0o700)
	if err == nil {
		err = r.do(ctx, o.limit)
	}
	res := result{Seed: p.Seed, Nodes: p.Nodes, Seconds: time.Since(begun).Seconds(), Faults: r.diary.done, Missed: r.diary.none}
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

// tell prints and writes the results.
func (o *options) tell(results []result) error {
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

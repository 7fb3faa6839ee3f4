package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"go.uber.org/zap"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/jobs/forecast"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/jobs/window"
	"shaver/internal/num/kernel"
)

// A job with AnyKernel continues the job that differs from it only in its kernel. The kernel is
// part of a job's id, and a measurement may come out differently each time. keepKernel and
// storedKernel therefore look for that job before chooseKernel measures.

// keepKernel selects the kernel of the job if it follows from files: from the previous scores,
// the scores at Out, or the progress next to them. It sets j.settled if so. spec returns the
// specification of the job with the kernel in use.
func (j *Job) keepKernel(spec func() (*job.Spec, error)) error {
	j.settled = false
	if !j.AnyKernel {
		return nil
	}
	if p := j.Previous; p != nil {
		j.settled = kernel.Use(p.Scores.Spec.Kernel) // without this kernel, prepare says what is wrong
		return nil
	}
	var found []*job.Spec
	if info, err := os.Stat(j.Out); err == nil && info.Mode().IsRegular() {
		if f, err := scores.ReadHead(j.Out); err == nil {
			found = append(found, &f.Spec)
		}
	}
	if s := j.progressSpec(); s != nil {
		found = append(found, s)
	}
	if len(found) == 0 {
		return nil
	}
	own, err := spec()
	if err != nil {
		return err
	}
	for _, s := range found {
		if j.settled = sameButKernel(own, s) && kernel.Use(s.Kernel); j.settled {
			break
		}
	}
	return nil
}

// spec returns a function that returns the specification of the job with the kernel in use. It
// opens the model only once.
func (j *Job) spec() func() (*job.Spec, error) {
	once := sync.OnceValues(func() (*job.Spec, error) { return prepare.Spec(j.Request) })
	return func() (*job.Spec, error) {
		s, err := once()
		if err != nil {
			return nil, err
		}
		own := *s
		own.Kernel = kernel.Name()
		return &own, nil
	}
}

// progressSpec returns the specification of the job whose progress is in j's folder, or nil.
func (j *Job) progressSpec() *job.Spec {
	if j.NATS != "" {
		return nil
	}
	data, err := files.Small(filepath.Join(j.folder(), specFile), mostSpec, "the specification of a job")
	s := new(job.Spec)
	if err != nil || json.Unmarshal(data, s) != nil {
		return nil
	}
	if owner, err := files.Small(filepath.Join(j.folder(), ownerFile), mostSpec, "the id of a job"); err != nil || string(owner) != s.ID() {
		return nil
	}
	return s
}

// sameButKernel reports whether two jobs differ in nothing else than their kernels.
func sameButKernel(a, b *job.Spec) bool {
	other := *a
	other.Kernel = b.Kernel
	return other.ID() == b.ID()
}

// keepNightKernel is keepKernel for a night. All sums of a state have one kernel.
func (r *running) keepNightKernel(state string) error {
	if !r.AnyKernel {
		return nil
	}
	was, err := window.ReadSettings(state)
	if err != nil {
		return err
	}
	if was == nil { // the first night
		return r.keepKernel(r.spec())
	}
	r.settled = kernel.Use(was.Kernel) // without this kernel, the night says what is wrong
	return nil
}

// chooseKernel selects the kernel of a job with AnyKernel, unless it is settled. A job on a
// server keeps the kernel with which it is stored there. Otherwise the kernel is the one with
// the highest rate here, times the number of connected workers that have it.
func (r *running) chooseKernel(ctx context.Context) error {
	if !r.AnyKernel || r.settled {
		return nil
	}
	r.telemetry.Busy("choosing the kernel")
	names, workers := kernel.Candidates(), map[string]int{}
	if r.NATS != "" {
		if stored, err := r.storedKernel(ctx); err != nil || stored != "" {
			r.settled = kernel.Use(stored)
			return err
		}
		workers = r.workersOf(ctx)
		names = served(workers)
	}
	rates, err := forecast.Rates(ctx, r.Request, names, runtime.GOMAXPROCS(0))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case fault.IsInput(err) || fault.IsUsage(err):
		return err
	case err != nil: // the job itself finds out what is wrong with the rows
		r.Log.Debug("cannot measure the kernels", zap.Error(err))
	}
	chosen := fastest(names, rates, workers)
	if len(rates) > 0 {
		fields := []zap.Field{zap.String("kernel", chosen)}
		for _, rate := range rates {
			fields = append(fields, zap.Float64(rate.Kernel, math.Round(rate.RowsPerCore)))
		}
		r.Log.Info("chose the kernel by its rows per second and core", fields...)
	}
	r.settled = kernel.Use(chosen)
	return nil
}

// fastest returns the kernel of names with the highest rate, times the number of workers that
// have it. Without rates all kernels count as equally fast.
func fastest(names []string, rates []forecast.Rate, workers map[string]int) string {
	var all []forecast.Rate
	for i, name := range names {
		rate := forecast.Rate{Kernel: name, RowsPerCore: 1}
		if rates != nil {
			rate = rates[i]
		}
		rate.RowsPerCore *= float64(max(1, workers[name]))
		all = append(all, rate)
	}
	return forecast.Fastest(all)
}

// ChooseKernel selects the kernel that Job.Run would choose on this machine, without scores or
// progress of the job. It returns the rates that it measured, or nil if a choice gains
// nothing or rows cannot be measured.
func ChooseKernel(ctx context.Context, request prepare.Request) ([]forecast.Rate, error) {
	names := kernel.Candidates()
	rates, err := forecast.Rates(ctx, request, names, runtime.GOMAXPROCS(0))
	switch {
	case err == nil:
		kernel.Use(fastest(names, rates, nil))
	case ctx.Err() == nil && !fault.IsInput(err) && !fault.IsUsage(err): // the job itself finds out what is wrong with the rows
		return nil, nil
	}
	return rates, err
}

// storedKernel returns the kernel of the job on the server that differs from this one only in
// its kernel, or "". Of several jobs it takes the one whose scores go to the same place. A
// cancelled job counts, so that other tries of its run end too.
func (r *running) storedKernel(ctx context.Context) (string, error) {
	own, err := prepare.Spec(r.Request)
	if err != nil {
		return "", err
	}
	found := ""
	for _, name := range kernel.Names() {
		other := *own
		other.Kernel = name
		stored, err := r.bus.IsOpen(ctx, other.ID())
		if err == nil && !stored {
			stored, _, err = r.bus.Cancellation(ctx, other.ID())
		}
		if err != nil {
			return "", err
		}
		if !stored {
			continue
		}
		lead, err := r.bus.Leader(ctx, other.ID())
		if err != nil && !fault.IsInput(err) {
			return "", err
		}
		if lead != nil && !lead.Elsewhere(r.Where()) {
			return name, nil
		}
		found = cmp.Or(found, name)
	}
	if !r.night || found != "" {
		return found, nil
	}
	// The job of a day is a job over a window of one day.
	stored, err := r.bus.Jobs(ctx)
	for _, s := range stored {
		ofNight := s.Spec.Model == own.Model && s.Spec.Seed == own.Seed && s.Spec.Options == own.Options &&
			len(s.Spec.Days) == 1 && slices.Contains(own.Days, s.Spec.Days[0])
		if ofNight && slices.Contains(kernel.Names(), s.Spec.Kernel) {
			return s.Spec.Kernel, nil
		}
	}
	return "", err
}

// workersOf returns the number of workers that have each kernel of this machine: those
// connected to the server, and those of this process.
func (r *running) workersOf(ctx context.Context) map[string]int {
	builds, err := r.bus.Connected(ctx)
	if err != nil {
		r.Log.Debug("cannot see which workers are connected", zap.Error(err))
	}
	count := map[string]int{}
	for _, name := range kernel.Names() {
		for _, b := range builds {
			if b.Protocol == job.Protocol && b.Computes(name) {
				count[name]++
			}
		}
		if n := count[name] + r.workers(); n > 0 {
			count[name] = n
		}
	}
	return count
}

// served returns the kernels that the job may have: candidates that a worker has, else other
// kernels that a worker has. If no worker is connected yet, it returns all candidates.
func served(workers map[string]int) []string {
	lacking := func(name string) bool { return workers[name] == 0 }
	for _, names := range [][]string{kernel.Candidates(), kernel.Names()} {
		if names = slices.DeleteFunc(names, lacking); len(names) > 0 {
			return names
		}
	}
	return kernel.Candidates()
}

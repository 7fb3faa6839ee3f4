package main

import (
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"shaver/internal/app/cli"
	"shaver/internal/app/launch"
	"shaver/internal/base/long"
	"shaver/internal/jobs/forecast"
	"shaver/internal/num/kernel"
)

// A worker without --kernel computes jobs of several kernels at the same time. A coordinator
// without --kernel continues a job at the kernel with which it was begun. The scores have the
// bytes of jobs with this kernel in one process.
func TestKernelsOfWorker(t *testing.T) {
	t.Parallel()
	names := kernel.Candidates()
	if len(names) < 2 {
		t.Skip("this machine has one kernel to choose")
	}
	dir, flags := plantedJob(t, 500)
	flags = append(flags, "--passes", "40", "--rows-per-shard", "40")
	url := natsServer(t)
	worker := startWorker(t, url, "worker")
	worker.await("worker ready", 1)
	coordinate := func(out string, args ...string) *process {
		return start(t, nil, "coordinator", slices.Concat([]string{"--nats", url, "--out", out, "--lease", "2s", "--checkpoint-every", "1ms", "--log", "json", "-v"}, args, flags)...)
	}
	out := func(name string) string { return filepath.Join(dir, name+".arrow") }
	second := coordinate(out(names[1]), "--kernel", names[1])
	first := coordinate(out(names[0]), "--kernel", names[0])
	second.await("checkpoint", 1)
	second.signal(syscall.SIGKILL)
	second.wantExit(-1)
	second = coordinate(out(names[1]))
	for i, p := range []*process{first, second} {
		p.wantExit(cli.ExitDone)
		own := filepath.Join(t.TempDir(), "s.arrow")
		shaver(t, nil, slices.Concat([]string{"score", "--out", own, "--kernel", names[i]}, flags)...)
		wantSameFile(t, out(names[i]), own)
	}
	var report launch.JobReport
	readJSON(t, launch.ReportPath(out(names[1])), &report)
	if report.Kernel != names[1] || !report.Resumed {
		t.Errorf("the job without a kernel has %s, expected %s; resumed %v", report.Kernel, names[1], report.Resumed)
	}
}

// A plan without --kernel has the rates of all candidates and is that of the fastest. With
// --kernel nothing is measured.
func TestPlanChoosesKernel(t *testing.T) {
	long.Test(t)
	names := kernel.Candidates()
	_, flags := plantedJob(t, 500)
	flags = append([]string{"plan", "--passes", "100000"}, flags...)
	var f forecast.Forecast
	shaver(t, &f, flags...)
	if len(names) == 1 && f.Kernels != nil || len(names) > 1 && (len(f.Kernels) != len(names) || f.Kernel != forecast.Fastest(f.Kernels)) {
		t.Errorf("the plan is for %s, with the rates %v", f.Kernel, f.Kernels)
	}
	last := names[len(names)-1]
	f = forecast.Forecast{}
	if shaver(t, &f, append(flags, "--kernel", last)...); f.Kernel != last || f.Kernels != nil {
		t.Errorf("the plan is for %s, expected %s; rates %v", f.Kernel, last, f.Kernels)
	}
}

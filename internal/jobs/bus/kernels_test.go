package bus

import (
	"context"
	"errors"
	"testing"
	"time"

	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/job"
)

// taskOf is newTask for a job of the kernel.
func taskOf(kernel string, shard int) job.Task {
	t := newTask(1, shard)
	t.Spec.Kernel = kernel
	t.Job = t.Spec.ID()
	t.Data.Name, t.Baseline.Name = ShardName(t.Job, shard), BaselineName(t.Job)
	return t
}

// A worker with several kernels gets the tasks of all of them, and first those of the kernel
// that it names first. A kernel that nobody sets up
// does not matter.
func TestTasksOfSeveralKernels(t *testing.T) {
	for name, c := range map[string]embedded.Config{"server": {Listen: "127.0.0.1:0"}, "local": {Local: true}} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, c)
			config := Config{Server: s, Desk: NewDesk(), Name: "w"}
			if !c.Local {
				config = Config{URL: s.URL(), Name: "w"}
			}
			b := connect(t, config)
			must(t, b.Setup(t.Context(), testQueue, "avx2"))
			task := func(kernel string, shard int) {
				t.Helper()
				publish(t, b, taskOf(kernel, shard))
			}
			want := func(kernel string, shard int, kernels ...string) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				d, err := b.NextTask(ctx, kernels...)
				must(t, err)
				if d.Task.Spec.Kernel != kernel || d.Task.Shard != shard {
					t.Errorf("kernels %v: shard %d of kernel %s, expected %d of %s", kernels, d.Task.Shard, d.Task.Spec.Kernel, shard, kernel)
				}
				must(t, d.Done(ctx))
			}
			task("avx2", 0)
			task("avx2", 1)
			want("avx2", 0, "absent", "amx", "avx2")
			must(t, b.Setup(t.Context(), testQueue, "amx"))
			task("amx", 2)
			task("amx", 3)
			if !c.Local { // the server counts the tasks of a new consumer a little later
				for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
					amx, err := b.consumer(t.Context(), "amx")
					if must(t, err); amx.CachedInfo().NumPending == 2 || time.Now().After(end) {
						break
					}
				}
			}
			want("amx", 2, "amx", "avx2")
			want("avx2", 1, "avx2", "amx")
			want("amx", 3, "avx2", "amx")
			later := time.AfterFunc(100*time.Millisecond, func() {
				if err := b.PublishTask(t.Context(), taskOf("amx", 4)); err != nil {
					t.Error(err)
				}
			})
			defer later.Stop()
			want("amx", 4, "avx2", "amx") // published while the worker waits
			ctx, cancel := context.WithTimeout(t.Context(), 2*waitOfSeveral)
			defer cancel()
			if _, err := b.NextTask(ctx, "absent", "amx", "avx2"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("without a task: %v", err)
			}
		})
	}
}

// A task that another worker gave back is found although another kernel has tasks.
func TestReleasedTaskOfSeveralKernels(t *testing.T) {
	s := startServer(t, embedded.Config{Listen: "127.0.0.1:0"})
	b := connect(t, Config{URL: s.URL(), Name: "w"})
	must(t, b.Setup(t.Context(), testQueue, "amx", "avx2"))
	ids := map[string]string{}
	for _, kernel := range []string{"amx", "avx2"} {
		task := taskOf(kernel, 0)
		ids[kernel] = task.Job
		publish(t, b, task)
	}
	d, err := b.NextTask(t.Context(), "amx")
	must(t, err)
	must(t, d.Release(t.Context(), time.Millisecond))
	time.Sleep(50 * time.Millisecond)
	again, err := b.NextTask(t.Context(), "amx", "avx2")
	if must(t, err); again.Task.Job != ids["amx"] || again.Try != 2 {
		t.Errorf("job %s, try %d, expected %s", again.Task.Job, again.Try, ids["amx"])
	}
}

package launch

import (
	"shaver/internal/base/cputime"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/ops/page"
)

// openPage opens the page of j, which is for the server of its health and metrics. Close of the page shows its last figures.
func (j *Job) openPage() (*page.Handler, error) {
	server, cpu := "", cputime.Process
	if j.NATS != "" {
		var err error
		if server, _, err = j.Servers(); err != nil {
			return nil, err
		}
		cpu = nil
	}
	j.page = page.NewLocal(server, cpu)
	return page.NewHandler(j.page, nil), nil
}

// show puts a job on the page that begins here.
func (r *running) show(spec *job.Spec, plan job.Plan) {
	if r.page == nil {
		return
	}
	r.page.Start(*spec, plan, r.Where())
	if r.NATS != "" {
		r.page.Ask(r.bus.Connected)
	}
}

// watch makes a coordinator show its progress on the page, if there is one.
func (r *running) watch(c *coordinator.Config) {
	if r.page == nil {
		return
	}
	next := c.OnProgress
	c.OnProgress = func(p bus.Progress) {
		r.page.Progress(p)
		if next != nil {
			next(p)
		}
	}
}

package launch

import (
	"go.uber.org/zap"

	"shaver/internal/base/cputime"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/ops/page"
)

// servePage begins to serve the page of j. stop shows the last figures and ends that.
func (j *Job) servePage() (stop func(), err error) {
	server, cpu := "", cputime.Process
	if j.NATS != "" {
		if server, _, err = j.Servers(); err != nil {
			return nil, err
		}
		cpu = nil
	}
	shown := page.NewLocal(server, cpu)
	site, err := page.Serve(j.Page, page.NewHandler(shown, nil))
	if err != nil {
		return nil, err
	}
	j.Log.Info("page", zap.String("url", site.URL()))
	j.page = shown
	return site.Stop, nil
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

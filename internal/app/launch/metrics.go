package launch

import (
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/ops/metrics"
)

// measure makes a coordinator report the progress of its job in set, unless set is nil.
func measure(set *metrics.Set, c *coordinator.Config) {
	if set == nil {
		return
	}
	c.OnLag = set.Merged
	c.OnProgress = func(p bus.Progress) {
		set.Job(metrics.Job{Rows: p.Rows, RowsTotal: p.RowsTotal, Shards: p.Shards, ShardsTotal: p.ShardsTotal,
			Open: p.Open, Quarantined: p.Quarantined, Epoch: p.Epoch, Checkpoint: p.Checkpoint, Stalled: p.State == bus.Stalled})
	}
}

package main

import (
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"shaver/internal/app/cli"
	"shaver/internal/base/long"
)

// A worker reads rows from its store. If the store does not have them, the worker gets
// them over NATS, and the scores have the same bytes.
func TestStore(t *testing.T) {
	long.Test(t)
	dir, common := plantedJob(t, 400)
	reference := filepath.Join(dir, "reference.arrow")
	shaver(t, nil, slices.Concat([]string{"score", "--out", reference}, common)...)
	for store, travels := range map[string]bool{dir: false, t.TempDir(): true} {
		url, out := natsServer(t), filepath.Join(t.TempDir(), "s.arrow")
		worker := start(t, nil, "worker", "--nats", url, "--store", "dir:"+store, "-v", "--log", "json")
		coordinator := start(t, nil, "coordinator", slices.Concat([]string{"--nats", url, "--out", out, "--store", "dir:" + dir, "--rows-per-shard", "100", "--log", "json"}, common)...)
		coordinator.wantExit(cli.ExitDone)
		worker.signal(syscall.SIGTERM)
		worker.wantExit(cli.ExitDrained)
		wantSameFile(t, out, reference)
		waited, sent := len(worker.having("the task waits until its data is stored again")), len(coordinator.having("sending a shard that a worker cannot read in place"))
		if (waited > 0) != travels || (sent > 0) != travels {
			t.Errorf("store %s: the worker waited for %d shards, the coordinator sent %d; expected some: %v", store, waited, sent, travels)
		}
	}
}

package coordinator_test

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"shaver/internal/jobs/coordinator"
	"shaver/internal/num/kernel"
)

// If the blobs of a task are deleted while it waits, they are stored again, and the
// scores are the same.
func TestLostBlobsAreStoredAgain(t *testing.T) {
	b := newBench(t)
	want, err := b.run(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(b.config.Out)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		c := b.connect(ctx, "coordinator")
		defer c.Close()
		_, err := coordinator.Run(ctx, c, b.config)
		ended <- err
	}()
	c := b.connect(ctx, "spoiler")
	defer c.Close()
	d, err := c.NextTask(ctx, kernel.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{d.Task.Data.Name, d.Task.Model.Name, d.Task.Baseline.Name} {
		if err := c.Delete(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Release(ctx, 0); err != nil {
		t.Fatal(err)
	}
	working, stop := context.WithCancel(ctx)
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		b.work(working)
	}()
	err = <-ended
	stop()
	<-worked
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(b.config.Out); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the scores have other bytes, %v", err)
	}
	b.wantNothing()
}

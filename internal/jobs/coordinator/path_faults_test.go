package coordinator_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"shaver/internal/base/fault"
	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/modelfile"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/kernel"
)

// A mask that is lost, or has other bytes, is stored again in whichever round this happens. The bytes of the
// scores are the same.
func TestLostMasksAreStoredAgain(t *testing.T) {
	b := newPathBench(t)
	want, err := b.run(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	c := b.connect(t.Context(), "spoiler")
	defer c.Close()
	var id string
	b.config.OnStart = func(spec job.Spec, _ job.Plan, _ int64) { id = spec.ID() }
	spoiled := map[string]bool{}
	b.config.OnMerged = func(int64) {
		names, err := c.Blobs(t.Context(), id, "mask")
		if err != nil {
			t.Error(err)
		}
		for _, name := range names {
			if spoiled[name] {
				continue
			}
			spoiled[name] = true
			if err := c.Delete(t.Context(), name); err != nil {
				t.Error(err)
			}
			if len(spoiled)%2 == 0 {
				if _, err := c.Put(t.Context(), name, []byte("damaged")); err != nil {
					t.Error(err)
				}
			}
		}
	}
	b.config.RowsPerShard = 20 // several shards a round
	if err := os.Remove(b.config.Out); err != nil {
		t.Fatal(err)
	}
	if got, err := b.run(t.Context(), 1); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v; same bytes: %v", err, bytes.Equal(got, want))
	}
	if len(spoiled) < 6 {
		t.Errorf("%d masks were spoiled, expected that of nearly each round", len(spoiled))
	}
	b.wantNothing()
}

// spoilFeature makes the rows of the rarest feature impossible to compute, and returns their number.
func (b *bench) spoilFeature() (rows int) {
	b.t.Helper()
	source, err := b.config.Open()
	if err != nil {
		b.t.Fatal(err)
	}
	ck := source.(*checkpoint.Checkpoint)
	var counts []int
	err = b.config.Dataset.Scan(b.t.Context(), []string{dataset.Train}, 4096, func(r *model.Rows) error {
		for i := range r.Len() {
			for _, f := range r.Row(i) {
				counts = append(counts, make([]int, max(0, int(f)+1-len(counts)))...)
				counts[f]++
			}
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	rarest := -1
	for f, n := range counts {
		if n > 0 && (rarest < 0 || n < counts[rarest]) {
			rarest = f
		}
	}
	broken := *ck
	table, dim := ck.Tensors[ck.EmbeddingKey], ck.Architecture.Dim
	table.Data = slices.Clone(table.Data)
	for k := range dim {
		binary.LittleEndian.PutUint32(table.Data[4*(rarest*dim+k):], math.Float32bits(3e38))
	}
	broken.Tensors = map[string]checkpoint.Tensor{}
	for key, tensor := range ck.Tensors {
		broken.Tensors[key] = tensor
	}
	broken.Tensors[ck.EmbeddingKey] = table
	b.config.Open = func() (modelfile.Source, error) { return &broken, nil }
	b.config.Baseline = "zero"
	return counts[rarest]
}

// Rows that cannot be computed end a path after its first round. With AllowQuarantined the path goes on
// without their shards. What a round lacked stays away, even if somebody puts a shard back while no
// coordinator leads. So the bytes are the same wherever the coordinator is interrupted.
func TestQuarantineInPath(t *testing.T) {
	long.Test(t)
	t.Parallel() // the test waits most of the time
	b := newPathBench(t)
	if b.config.RowsPerShard = 10; !long.All() {
		b.config.RowsPerShard = 30
	}
	bad := b.spoilFeature()
	if bad > 20 {
		t.Fatalf("%d rows are spoiled, expected few", bad)
	}
	for range 2 {
		_, err := b.run(t.Context(), 1)
		if !errors.Is(err, coordinator.ErrQuarantined) || !fault.IsInput(err) {
			t.Fatalf("without AllowQuarantined: %v", err)
		}
	}
	c := b.connect(t.Context(), "operator")
	defer c.Close()
	b.config.AllowQuarantined = true
	want, err := b.run(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	f, err := scores.Read(b.config.Out)
	if err != nil || f.QuarantinedRows < 1 || f.QuarantinedRows > 300 || f.Rows+f.QuarantinedRows != 300 || f.Path.Reach < .9 {
		t.Fatalf("%d rows, %d missing, %+v, %v", f.Rows, f.QuarantinedRows, f.Path, err)
	}
	b.wantNothing()
	for at := int64(1); at < 1000; at += 1000/cuts(8) + 1 {
		b.cutOff(at)
		jobs, err := c.Jobs(t.Context())
		if err != nil || len(jobs) != 1 {
			t.Fatalf("%d jobs, %v", len(jobs), err)
		}
		if _, err := c.Retry(t.Context(), jobs[0].ID); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		got, err := b.run(ctx, 1)
		stop()
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("cut off after %d rows: the same bytes: %v, %v", at, bytes.Equal(got, want), err)
		}
		b.wantNothing()
	}
}

// A path cannot go on if a round has no row, not even with AllowQuarantined.
func TestPathWithoutRows(t *testing.T) {
	t.Parallel() // the test waits most of the time
	b := newPathBench(t)
	b.config.RowsPerShard, b.config.AllowQuarantined = 1000, true
	b.spoilFeature()
	if _, err := b.run(t.Context(), 1); !errors.Is(err, coordinator.ErrQuarantined) || !fault.IsInput(err) {
		t.Fatal(err)
	}
}

// A path whose checkpoint is lost begins again, although a shard that it lacked was put back, so that its rounds
// drop other entries. It uses nothing of the rounds before: no mask, no task and no result, whether results are verified or not.
func TestPathBeginsAgainDifferently(t *testing.T) {
	long.Test(t)
	for _, verify := range []float64{0, 1} {
		t.Run(fmt.Sprint(verify), func(t *testing.T) { pathBeginsAgain(t, verify) })
	}
}

func pathBeginsAgain(t *testing.T, verify float64) {
	b := newPathBench(t)
	b.config.RowsPerShard = 75 // four shards in the first round, two in the others
	want, err := b.run(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(b.config.Out)
	b.config.AllowQuarantined = true
	cut, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.config.OnMerged = func(rows int64) {
		if rows >= 240 { // in the second round
			cancel()
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = b.run(cut, 0)
	}()
	c := b.connect(t.Context(), "unlucky")
	defer c.Close()
	d, err := c.NextTask(t.Context(), kernel.Name())
	if err == nil {
		err = d.Quarantine(t.Context(), "row 7: the loss is NaN", true)
	}
	if err != nil {
		t.Fatal(err)
	}
	working, stop := context.WithCancel(cut)
	b.work(working)
	stop()
	<-ended
	// The tasks and results of a round remain, and all that the job has merged is lost.
	names, err := c.Blobs(t.Context(), d.Task.Job, "checkpoint")
	if err != nil || len(names) == 0 {
		t.Fatalf("checkpoints %v, %v", names, err)
	}
	for _, name := range names {
		if err := c.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := c.Retry(t.Context(), d.Task.Job); n != 1 || err != nil {
		t.Fatalf("%d put back, %v", n, err)
	}
	b.config.OnMerged, b.config.Verify = nil, verify
	if _, _, err := b.verified(nil); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(b.config.Out); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v; same bytes: %v", err, bytes.Equal(got, want))
	}
	b.wantNothing()
}

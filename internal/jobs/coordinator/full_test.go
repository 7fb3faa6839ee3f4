package coordinator_test

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sync/errgroup"

	"shaver/internal/base/long"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
)

// A job ends on a server that has room for its inputs, two checkpoints and a few partials, but neither for the partials of all
// shards nor for all tasks and a partial. The bytes are those of a job with room for everything.
func TestFullServer(t *testing.T) {
	long.Test(t)
	t.Run("in place", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.full(60<<10, func() []byte {
			got, _ := b.runInPlace(b.folder, b.folder)
			return got
		})
	})
	t.Run("sent", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.full(100<<10, b.reference)
	})
}

// full compares the scores of run on a server with room for the given number of bytes with those on another one.
func (b *bench) full(bytes int64, run func() []byte) {
	t := b.t
	b.config.RowsPerShard = 5 // 60 shards
	want := run()
	full, err := server.NewServer(&server.Options{
		ServerName: "full", JetStream: true, JetStreamMaxStore: bytes, JetStreamMaxMemory: 1 << 20, StoreDir: t.TempDir(), DontListen: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	full.Start()
	t.Cleanup(full.Shutdown)
	if !full.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	b.server, b.config.SaveEvery = full, 2*time.Second
	core, logged := observer.New(zap.WarnLevel)
	b.config.Log = zap.New(core)
	if !slices.Equal(run(), want) {
		t.Error("the scores have other bytes")
	}
	if logged.FilterMessageSnippet("no room for a checkpoint").Len() == 0 {
		t.Error("every checkpoint found room, so the test proves nothing")
	}
	b.wantNothing()
}

// A job ends on a server that has room for the blob of a checkpoint, but not for the record that
// points to it until a partial is deleted.
func TestFullForRecord(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	want, err := b.run(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(b.config.Out); err != nil {
		t.Fatal(err)
	}
	b.config.SaveEvery = time.Nanosecond
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var workers errgroup.Group
	workers.Go(func() error { b.work(ctx); return nil })
	js := b.jetStream()
	room := func(bytes int64) { // in the stream of the records
		s, err := js.Stream(ctx, "KV_SHAVER_JOBS")
		if err != nil {
			t.Error(err)
			return
		}
		config := s.CachedInfo().Config
		config.MaxBytes, config.Discard = bytes, jetstream.DiscardNew
		if _, err := js.UpdateStream(ctx, config); err != nil {
			t.Error(err)
		}
	}
	var records int // only the coordinator stores them, and only after it has named a checkpoint
	var freed sync.Once
	var stored []string
	own, err := bus.Connect(ctx, bus.Config{Server: b.server, Name: "coordinator", Around: func(what string, request func() error) error {
		switch {
		case strings.HasPrefix(what, "delete blob partial/"):
			freed.Do(func() { room(-1) })
		case strings.HasPrefix(what, "name blob checkpoint/"):
			stored = append(stored, what)
		case strings.HasPrefix(what, "store the checkpoint"):
			if records++; records == 2 { // the first one claims the job
				room(1)
			}
		}
		return request()
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	_, err = coordinator.Run(ctx, own, b.config)
	stop()
	_ = workers.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(b.config.Out); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the scores have other bytes, %v", err)
	}
	if len(stored) < 2 || stored[0] != stored[1] {
		t.Errorf("checkpoints %v: expected the first one twice", stored)
	}
	b.wantNothing()
}

package coordinator_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	"golang.org/x/sync/errgroup"

	"shaver/internal/base/long"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/coordinator"
)

// volume is a server whose folder can be saved and restored.
type volume struct {
	t       *testing.T
	dir     string
	running atomic.Pointer[embedded.Server]
}

func (v *volume) InProcessConn() (net.Conn, error) {
	if s := v.running.Load(); s != nil {
		return s.InProcessConn()
	}
	return nil, errors.New("the server is down")
}

func (v *volume) stop() { v.running.Swap(nil).Shutdown() }

func (v *volume) start() {
	s, err := embedded.Start(embedded.Config{StoreDir: v.dir})
	if err != nil {
		v.t.Error(err)
		return
	}
	v.running.Store(s)
}

// save copies the folder.
func (v *volume) save(to string) {
	v.stop()
	if err := os.CopyFS(to, os.DirFS(v.dir)); err != nil {
		v.t.Error(err)
	}
	v.start()
}

// restore makes the folder what save copied.
func (v *volume) restore(from string) {
	v.stop()
	if err := errors.Join(os.RemoveAll(v.dir), os.Rename(from, v.dir)); err != nil {
		v.t.Error(err)
	}
	v.start()
}

// A job ends with the same bytes after the store of the server went back: behind the last checkpoint, behind the
// coordinator that leads the job, or behind the job. It makes no difference whether the coordinator goes on or
// starts again.
func TestStoreGoesBack(t *testing.T) {
	long.Test(t)
	t.Parallel()
	const saved, restored = 100, 200 // rows merged of 300
	for name, c := range map[string]struct {
		before func(b *bench, save func()) // what happens before the coordinator; nil = the folder is saved in mid job
		again  bool                        // the coordinator starts again
	}{
		"behind a checkpoint":                 {nil, false},
		"behind a checkpoint, start again":    {nil, true},
		"behind the coordinator":              {func(b *bench, save func()) { b.cutOff(saved); save() }, false},
		"behind the coordinator, start again": {func(b *bench, save func()) { b.cutOff(saved); save() }, true},
		"behind the job":                      {func(b *bench, save func()) { _ = os.Remove(b.config.Out); save() }, false},
		"behind the job, start again":         {func(b *bench, save func()) { _ = os.Remove(b.config.Out); save() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the test waits most of the time
			b := newBench(t)
			v := &volume{t: t, dir: filepath.Join(t.TempDir(), "store")}
			v.start()
			t.Cleanup(v.stop)
			b.server, b.config.RowsPerShard, b.config.SaveEvery, b.config.Log = v, 10, time.Nanosecond, zaptest.NewLogger(t)
			want, err := b.run(t.Context(), 2)
			if err != nil {
				t.Fatal(err)
			}
			copied := filepath.Join(t.TempDir(), "copy")
			if c.before != nil {
				c.before(b, func() { v.save(copied) })
			} else if err := os.Remove(b.config.Out); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			var workers errgroup.Group
			for range 2 {
				workers.Go(func() error { b.work(ctx); return nil })
			}
			run := func(ctx context.Context) error {
				own := b.connect(ctx, "coordinator")
				defer own.Close()
				_, err := coordinator.Run(ctx, own, b.config)
				return err
			}
			first, stop := context.WithCancel(ctx)
			defer stop()
			back := false
			b.config.OnMerged = func(rows int64) {
				switch _, err := os.Stat(copied); {
				case back:
				case rows >= saved && err != nil:
					v.save(copied)
				case rows >= restored:
					back = true
					v.restore(copied)
					if c.again {
						stop()
					}
				}
			}
			err = run(first)
			if c.again && errors.Is(err, context.Canceled) {
				err = run(ctx)
			}
			cancel()
			_ = workers.Wait()
			if err != nil || !back {
				t.Fatalf("restored: %v; the job ended with %v", back, err)
			}
			if got, err := os.ReadFile(b.config.Out); err != nil || !bytes.Equal(got, want) {
				t.Errorf("the scores have other bytes, %v", err)
			}
			b.wantNothing()
		})
	}
}

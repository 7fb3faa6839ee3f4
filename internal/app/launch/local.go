package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/filelock"
	"shaver/internal/base/files"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
)

// local starts a server inside this process. The server uses the hidden folder
// .NAME.job next to the scores, which local locks. The function r.end deletes the folder,
// except if the job was interrupted, failed in a way that a retry may cure, has quarantined
// shards, or has merged shards. The same command then resumes the job. With Once, r.end always
// deletes the folder. If the server fails, now or later, local calls stop.
func (r *running) local(ctx context.Context, stop func()) (err error) {
	dir := r.folder()
	unlock, err := filelock.Lock(dir + ".lock")
	if errors.Is(err, filelock.ErrLocked) {
		return fmt.Errorf("another job that writes %s is running: wait for its end or choose another file", r.Out)
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	spec, err := prepare.Spec(r.Request)
	if err != nil {
		return err
	}
	if err := r.prepareFolder(spec); err != nil {
		if !fault.IsUsage(err) {
			err = fmt.Errorf("the state of the job cannot be stored in %s: %w", dir, err)
		}
		return err
	}
	r.Log.Info("the job runs in this process", zap.Int("workers", r.workers()))
	server, err := embedded.Start(embedded.Config{StoreDir: dir, Local: true, Log: r.Log})
	if err != nil {
		return err
	}
	r.server = server
	go func() {
		select {
		case <-server.Failed():
			stop()
		case <-ctx.Done():
		}
	}()
	quiet := r.Log.WithOptions(zap.IncreaseLevel(zapcore.WarnLevel)) // nobody needs to know of connections inside the process
	desk := bus.NewDesk()
	connect := func(ctx context.Context, name string) (*bus.Bus, error) {
		return bus.Connect(ctx, bus.Config{Server: server, Desk: desk, Name: name, Log: quiet, OnBlob: r.OnBlob})
	}
	if err := readmit(ctx, connect); err != nil {
		server.Shutdown()
		return err
	}
	r.dial, r.end = connect, func(err error) {
		server.Shutdown()
		wrong := (fault.IsInput(err) || fault.IsUsage(err)) && !errors.Is(err, coordinator.ErrQuarantined)
		if err == nil || wrong && !r.worthy.Load() || r.Once {
			if err := discard(dir); err != nil {
				r.Log.Warn("cannot delete the folder of a job that is over", zap.Error(err))
			}
		} else {
			r.Log.Info("the state of the job is kept, and the same command resumes it", zap.String("folder", dir))
		}
		unlock()
	}
	return nil
}

// readmit puts quarantined tasks back, because no other command can do that.
func readmit(ctx context.Context, connect dial) error {
	b, err := connect(ctx, "coordinator")
	if err != nil {
		return err
	}
	defer b.Close()
	return b.Readmit(ctx)
}

// prepareFolder makes j's folder that of the job with the given specification. With
// --force it discards the progress of another job.
func (j *Job) prepareFolder(spec *job.Spec) error {
	if err := j.checkFolder(spec); err != nil { // again, because the folder is locked only now
		return err
	}
	dir := j.folder()
	path := filepath.Join(dir, ownerFile)
	switch text, err := files.Small(path, mostSpec, "the id of a job"); {
	case err == nil && string(text) == spec.ID():
		return nil
	case err == nil:
		j.Log.Warn("discarding the progress of another job with the same --out", zap.String("job", string(text)))
	}
	if err := discard(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	about, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, specFile), about, 0o600); err != nil {
		return err
	}
	// The job's state is useless without this file, so it must survive a power failure.
	return atomicfile.Write(path, func(w io.Writer) error {
		_, err := io.WriteString(w, spec.ID())
		return err
	})
}

// discard deletes a job's folder. It deletes the owner file first, so that no job
// resumes from the rest if discard is interrupted.
func discard(dir string) error {
	_ = os.Remove(filepath.Join(dir, ownerFile)) // if this fails, RemoveAll fails too
	return os.RemoveAll(dir)
}

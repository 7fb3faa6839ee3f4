package launch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"shaver/internal/bus"
	"shaver/internal/coordinator"
	"shaver/internal/fault"
	"shaver/internal/filelock"
	"shaver/internal/prepare"
)

// local starts a server inside this process. The server uses the hidden folder
// .NAME.job next to the scores, which local locks. The function end deletes the folder,
// except if the job was interrupted, failed in a way that a retry may cure, or has
// quarantined shards. The same command then resumes the job. With Once, end always
// deletes the folder.
func (j *Job) local(ctx context.Context) (connect dial, end func(err error), err error) {
	dir := filepath.Join(filepath.Dir(j.Out), "."+strings.TrimSuffix(filepath.Base(ReportPath(j.Out)), ".json"))
	unlock, err := filelock.Lock(dir + ".lock")
	if errors.Is(err, filelock.ErrLocked) {
		return nil, nil, fault.Usagef("another job that writes %s is running: wait for its end or choose another file", j.Out)
	}
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	id, err := prepare.ID(j.Request)
	if err != nil {
		return nil, nil, err
	}
	if err := j.prepareFolder(dir, id); err != nil {
		return nil, nil, err
	}
	quiet := j.Log.WithOptions(zap.IncreaseLevel(zapcore.WarnLevel)) // nobody needs log lines about the embedded server
	server, err := bus.StartServer(bus.ServerConfig{StoreDir: dir, Log: quiet})
	if err != nil {
		return nil, nil, err
	}
	connect = func(ctx context.Context, name string) (*bus.Bus, error) {
		return bus.Connect(ctx, bus.Config{Server: server, Name: name, Log: quiet, OnBlob: j.OnBlob})
	}
	if err := recall(ctx, connect); err != nil {
		server.Shutdown()
		return nil, nil, err
	}
	return connect, func(err error) {
		server.Shutdown()
		wrong := (fault.IsInput(err) || fault.IsUsage(err)) && !errors.Is(err, coordinator.ErrQuarantined)
		if err == nil || wrong || j.Once {
			if err := discard(dir); err != nil {
				j.Log.Warn("cannot delete the folder of a job that is over", zap.Error(err))
			}
		} else {
			j.Log.Info("the state of the job is kept, and the same command resumes it", zap.String("folder", dir))
		}
		unlock()
	}, nil
}

// recall frees the tasks of the workers that ended with the previous process. It also
// puts back quarantined tasks, because no other command can do that.
func recall(ctx context.Context, connect dial) error {
	b, err := connect(ctx, "coordinator")
	if err != nil {
		return err
	}
	defer b.Close()
	return b.Recall(ctx)
}

// owner is the file in a job's folder that contains the job's id.
const owner = "job"

// prepareFolder makes dir the folder of the job with the given id. It deletes the
// folder of another job.
func (j *Job) prepareFolder(dir, id string) error {
	path := filepath.Join(dir, owner)
	switch text, err := os.ReadFile(path); {
	case err == nil && string(text) == id:
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
	return os.WriteFile(path, []byte(id), 0o600)
}

// discard deletes a job's folder. It deletes the owner file first, so that no job
// resumes from the rest if discard is interrupted.
func discard(dir string) error {
	_ = os.Remove(filepath.Join(dir, owner)) // if this fails, RemoveAll fails too
	return os.RemoveAll(dir)
}

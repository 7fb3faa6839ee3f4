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

// local starts a server inside this process, on a hidden folder beside the scores,
// .NAME.job, which is locked. The folder is deleted at the job's end; but a job that
// was cut off finds there what it has done, and so does one that failed in a way that
// may pass, or for want of some shards, without which it may be finished.
func (j *Job) local(ctx context.Context) (connect dial, end func(err error), err error) {
	dir := filepath.Join(filepath.Dir(j.Out), "."+strings.TrimSuffix(filepath.Base(ReportPath(j.Out)), ".json"))
	unlock, err := filelock.Lock(dir + ".lock")
	if errors.Is(err, filelock.ErrLocked) {
		return nil, nil, fault.Usagef("another job that writes %s is at work: wait for its end, or name another file", j.Out)
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
	if err := j.belong(dir, id); err != nil {
		return nil, nil, err
	}
	quiet := j.Log.WithOptions(zap.IncreaseLevel(zapcore.WarnLevel)) // nobody wonders whether this server is there
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
				j.Log.Warn("the job is over, and its folder stays", zap.Error(err))
			}
		} else {
			j.Log.Info("what is done is kept: the same command goes on from there", zap.String("folder", dir))
		}
		unlock()
	}, nil
}

// recall makes tasks those of nobody, as who had them ended with the process before,
// and those that were set aside too, as nobody else can put them back.
func recall(ctx context.Context, connect dial) error {
	b, err := connect(ctx, "coordinator")
	if err != nil {
		return err
	}
	defer b.Close()
	return b.Recall(ctx)
}

// owner is the file of a job's folder that has the job's id.
const owner = "job"

// belong makes dir the folder of the job: empty, if it is another's, or is not there.
func (j *Job) belong(dir, id string) error {
	path := filepath.Join(dir, owner)
	switch text, err := os.ReadFile(path); {
	case err == nil && string(text) == id:
		return nil
	case err == nil:
		j.Log.Warn("what another job with this --out had done is thrown away", zap.String("job", string(text)))
	}
	if err := discard(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(id), 0o600)
}

// discard deletes a job's folder, and first what says whose it is: nobody goes on from
// what is left if this is cut off.
func discard(dir string) error {
	_ = os.Remove(filepath.Join(dir, owner)) // if it fails, so does what follows
	return os.RemoveAll(dir)
}

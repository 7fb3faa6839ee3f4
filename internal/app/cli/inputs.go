package cli

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Input is a file, a folder or an object that a command reads.
type Input struct {
	Name string // for people
	// Exists reports whether the input is there. An error ends the wait.
	Exists func(ctx context.Context) (bool, error)
}

// FileInput returns the input for the file at path.
func FileInput(path string) Input {
	return Input{path, func(context.Context) (bool, error) {
		_, err := os.Stat(path)
		if os.IsNotExist(err) {
			return false, nil
		}
		return err == nil, err
	}}
}

// The time between two looks at missing inputs, and between two log lines about them.
const (
	lookEvery    = 2 * time.Second
	waitLogEvery = 5 * time.Minute
)

// AwaitInputs returns when all inputs exist. It waits at most limit, and then returns an
// error that is fs.ErrNotExist and names the missing inputs. A log line says what it waits
// for.
func AwaitInputs(ctx context.Context, limit time.Duration, log *zap.Logger, inputs ...Input) error {
	begun := time.Now()
	var logged time.Time
	for {
		var missing []string
		for _, in := range inputs {
			there, err := in.Exists(ctx)
			if err != nil {
				return err
			}
			if !there {
				missing = append(missing, in.Name)
			}
		}
		left := limit - time.Since(begun)
		switch {
		case len(missing) == 0:
			if !logged.IsZero() {
				log.Info("all inputs exist", zap.Duration("after", time.Since(begun)))
			}
			return nil
		case left <= 0:
			return fmt.Errorf("%s: %w after %v of waiting", strings.Join(missing, ", "), fs.ErrNotExist, limit)
		case time.Since(logged) >= waitLogEvery:
			log.Info("waiting for inputs", zap.Strings("missing", missing), zap.Duration("left", left.Round(time.Second)))
			logged = time.Now()
		}
		select {
		case <-time.After(min(lookEvery, left)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

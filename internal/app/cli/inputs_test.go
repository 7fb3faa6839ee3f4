package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// AwaitInputs returns soon after the last input appears. It logs what is missing at once and
// every few minutes, and no more often.
func TestAwaitInputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		from := func(name string, after time.Duration) Input {
			return Input{name, func(context.Context) (bool, error) { return time.Since(begun) >= after, nil }}
		}
		core, logged := observer.New(zap.InfoLevel)
		if err := AwaitInputs(t.Context(), 0, zap.New(core), from("there", 0)); err != nil || logged.Len() != 0 {
			t.Errorf("an input that is there: %v, %d lines", err, logged.Len())
		}
		err := AwaitInputs(t.Context(), time.Hour, zap.New(core), from("there", 0), from("late", 11*time.Minute), from("later", 12*time.Minute))
		if took := time.Since(begun); err != nil || took < 12*time.Minute || took > 12*time.Minute+lookEvery {
			t.Errorf("%v after %v", err, took)
		}
		waits := logged.FilterMessage("waiting for inputs").All()
		if len(waits) != 3 || logged.FilterMessage("all inputs exist").Len() != 1 {
			t.Fatalf("logged %v", logged.All())
		}
		if missing := waits[0].ContextMap()["missing"]; len(missing.([]any)) != 2 {
			t.Errorf("the first line names %v", missing)
		}
	})
}

// The wait ends with its limit, with the context, and with an error of Exists.
func TestAwaitInputsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := FileInput(filepath.Join(t.TempDir(), "never"))
		begun := time.Now()
		err := AwaitInputs(t.Context(), 90*time.Second, zap.NewNop(), never)
		if !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), never.Name+": ") || time.Since(begun) != 90*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := AwaitInputs(ctx, time.Hour, zap.NewNop(), never); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the end of the context: %v", err)
		}
		broken := errors.New("broken")
		if err := AwaitInputs(t.Context(), time.Hour, zap.NewNop(), Input{"x", func(context.Context) (bool, error) { return false, broken }}); err != broken {
			t.Errorf("an error of Exists: %v", err)
		}
		if there, err := FileInput(os.DevNull).Exists(t.Context()); !there || err != nil {
			t.Errorf("%s: %t, %v", os.DevNull, there, err)
		}
	})
}

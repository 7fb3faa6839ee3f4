package bus

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// A worker that waits for the first job says so once and then rarely, and does not warn. Other
// trouble is a warning every few seconds, also if it begins during that wait.
func TestPauserLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.DebugLevel)
		p := (&Bus{log: zap.New(core)}).pauser("next task")
		wait := func(cause error, d time.Duration) map[zapcore.Level]int {
			for begun := time.Now(); time.Since(begun) < d; {
				if err := p.pause(t.Context(), cause); err != nil {
					t.Fatal(err)
				}
			}
			lines := map[zapcore.Level]int{}
			for _, e := range logged.TakeAll() {
				lines[e.Level]++
			}
			return lines
		}
		if lines := wait(jetstream.ErrStreamNotFound, 9*time.Minute); lines[zap.InfoLevel] != 1 || len(lines) != 1 {
			t.Errorf("lines in nine minutes without a stream: %v", lines)
		}
		if lines := wait(nats.ErrNoResponders, time.Minute); lines[zap.WarnLevel] < 4 || lines[zap.WarnLevel] > 5 || len(lines) != 1 {
			t.Errorf("lines in a minute without a leader: %v", lines)
		}
		if lines := wait(errors.New("other"), time.Minute); lines[zap.WarnLevel] > 5 {
			t.Errorf("lines in a minute of other trouble: %v", lines)
		}
	})
}

// A request whose answer takes seconds is no trouble, and one without an answer is.
func TestPauserSlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.DebugLevel)
		p := (&Bus{log: zap.New(core), address: "nats://127.0.0.1:4222"}).pauser("delete blob")
		for _, c := range []struct {
			takes time.Duration
			want  []zapcore.Level
		}{
			{quiet / 2, nil},
			{7 * time.Second, []zapcore.Level{zap.InfoLevel, zap.InfoLevel}},
			{20 * time.Second, []zapcore.Level{zap.InfoLevel, zap.WarnLevel, zap.InfoLevel}},
		} {
			end := p.begin()
			time.Sleep(c.takes)
			end()
			p.worked()
			var levels []zapcore.Level
			for _, e := range logged.TakeAll() {
				levels = append(levels, e.Level)
			}
			if !slices.Equal(levels, c.want) {
				t.Errorf("an answer after %v: lines %v, expected %v", c.takes, levels, c.want)
			}
		}
	})
}

package cli

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"
)

// A terminal whose TERM is "dumb" gets no escape sequences.
func TestDumbTerminal(t *testing.T) {
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	if !term.IsTerminal(int(f.Fd())) {
		t.Skip("/dev/ptmx is no terminal on this system")
	}
	for name, want := range map[string]bool{"xterm": true, "dumb": false} {
		t.Setenv("TERM", name)
		if found := terminal(f); found != want {
			t.Errorf("TERM=%s: terminal %v, expected %v", name, found, want)
		}
	}
}

// A line of a log for people has date, time and zone, and its fields as key=value.
func TestTextLog(t *testing.T) {
	at := time.Date(2013, 7, 1, 14, 3, 5, 7e8, time.FixedZone("", -4*3600))
	for _, color := range []bool{false, true} {
		var out bytes.Buffer
		core := &textCore{LevelEnabler: zapcore.InfoLevel, out: zapcore.AddSync(&out), color: color}
		log := zap.New(core, zap.WithClock(fixed(at))).With(zap.String("job", "ed8a"), zap.Int("shard", 3))
		log.Info("scoring", zap.Int64("rows", 3000), zap.String("file", "my model.pth"), zap.String("empty", ""), zap.Duration("took", 1234567*time.Microsecond))
		log.Debug("not shown")
		log.Named("part").Warn("no\nnew line\x1b[2J", zap.Error(errors.New("a=\"b\"\x1b[31m")), zap.Float64("rate", 1./3))
		want := "2013-07-01T14:03:05-04:00 INFO  scoring job=ed8a shard=3 rows=3000 file=\"my model.pth\" empty=\"\" took=1.23s\n" +
			"2013-07-01T14:03:05-04:00 WARN  part: no\\nnew line\\u001b[2J job=ed8a shard=3 error=\"a=\\\"b\\\"\\x1b[31m\" rate=0.333333\n"
		if color {
			want = "2013-07-01T14:03:05-04:00 \x1b[34mINFO \x1b[0m " + want[len("2013-07-01T14:03:05-04:00 INFO  "):]
			got := out.String()
			if len(got) < len(want) || got[:60] != want[:60] {
				t.Errorf("printed %q, expected to begin like %q", got, want)
			}
			continue
		}
		if out.String() != want {
			t.Errorf("printed\n%s, expected\n%s", &out, want)
		}
	}
}

type fixed time.Time

func (f fixed) Now() time.Time                         { return time.Time(f) }
func (f fixed) NewTicker(d time.Duration) *time.Ticker { return time.NewTicker(d) }

package embedded

import (
	"fmt"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// serverLog forwards the server's warnings and errors and remembers the last error. The
// log is the only place where a server that does not start gives the reason, and where a
// server whose disk is full says so.
type serverLog struct {
	keep   *zap.Logger
	local  bool
	folder string
	failed chan struct{} // closed when cause is set

	mu    sync.Mutex
	last  string
	dead  bool
	cause error // why a local server cannot use its folder
}

func newServerLog(c *Config) *serverLog {
	l := &serverLog{keep: zap.NewNop(), local: c.Local, folder: c.StoreDir, failed: make(chan struct{})}
	if c.Log != nil {
		l.keep = c.Log.Named("nats-server")
	}
	return l
}

func (l *serverLog) reason() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == "" {
		return fmt.Sprintf("not ready after %v", readyTimeout)
	}
	return l.last
}

// gaveUp reports whether the server logged a fatal error. A NATS logger normally ends the
// process at a fatal error, which an embedded server must not do.
func (l *serverLog) gaveUp() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead || l.cause != nil
}

// note logs a warning or an error. If it is about an error of the folder, a local server
// fails.
func (l *serverLog) note(level zapcore.Level, fatal bool, format string, v []any) {
	text := fmt.Sprintf(format, v...)
	l.mu.Lock()
	if level >= zapcore.ErrorLevel && !l.dead {
		l.last, l.dead = text, fatal
	}
	if l.local {
		level = zapcore.DebugLevel
		if cause := folderError(v); cause != nil && l.cause == nil {
			l.cause = fmt.Errorf("the state of the job cannot be stored in %s: %w", l.folder, cause)
			close(l.failed)
		}
	}
	l.mu.Unlock()
	l.keep.Log(level, text)
}

func (l *serverLog) Noticef(format string, v ...any) { l.keep.Debug(fmt.Sprintf(format, v...)) }
func (l *serverLog) Warnf(format string, v ...any)   { l.note(zapcore.WarnLevel, false, format, v) }
func (l *serverLog) Errorf(format string, v ...any)  { l.note(zapcore.ErrorLevel, false, format, v) }
func (l *serverLog) Fatalf(format string, v ...any)  { l.note(zapcore.ErrorLevel, true, format, v) }
func (l *serverLog) Debugf(string, ...any)           {}
func (l *serverLog) Tracef(string, ...any)           {}

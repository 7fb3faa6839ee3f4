package bus

import (
	"fmt"
	"sync"

	"go.uber.org/zap"
)

// serverLog forwards the server's warnings and errors and remembers the last error. A
// server that does not start gives the reason only in its log.
type serverLog struct {
	keep *zap.Logger
	mu   sync.Mutex
	last string
	dead bool
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
	return l.dead
}

func (l *serverLog) fail(fatal bool, format string, v []any) {
	text := fmt.Sprintf(format, v...)
	l.mu.Lock()
	if !l.dead {
		l.last, l.dead = text, fatal
	}
	l.mu.Unlock()
	l.keep.Error(text)
}

func (l *serverLog) Noticef(format string, v ...any) { l.keep.Debug(fmt.Sprintf(format, v...)) }
func (l *serverLog) Warnf(format string, v ...any)   { l.keep.Warn(fmt.Sprintf(format, v...)) }
func (l *serverLog) Errorf(format string, v ...any)  { l.fail(false, format, v) }
func (l *serverLog) Fatalf(format string, v ...any)  { l.fail(true, format, v) }
func (l *serverLog) Debugf(string, ...any)           {}
func (l *serverLog) Tracef(string, ...any)           {}

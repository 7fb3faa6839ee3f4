package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// interruptible returns a context that Ctrl-C, SIGTERM or SIGHUP cancels. After that, Ctrl-C
// and SIGTERM end the process, and a SIGHUP has no effect, because the terminal and the
// shell may each send one. If SIGHUP is ignored, as under nohup, it stays ignored. stop
// releases the context.
func interruptible() (ctx context.Context, stop context.CancelFunc) {
	parent, cancel := context.WithCancel(context.Background())
	if !signal.Ignored(syscall.SIGHUP) {
		hangup := make(chan os.Signal, 1)
		signal.Notify(hangup, syscall.SIGHUP)
		go func() {
			<-hangup
			cancel()
		}()
	}
	ctx, usual := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, usual) // from then on these signals have their usual effect
	return ctx, cancel
}

package bus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A request is repeated if the failure may pass: a broken connection, no answer, or a
// stream that somebody can repair.
func TestTransient(t *testing.T) {
	api := func(status int, code jetstream.ErrorCode) error {
		return &jetstream.APIError{Code: status, ErrorCode: code}
	}
	for _, test := range []struct {
		err  error
		want bool
	}{
		{&net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}, true},
		{fmt.Errorf("put: %w", &net.OpError{Op: "write", Net: "tcp", Err: net.ErrClosed}), true},
		{context.DeadlineExceeded, true},
		{nats.ErrNoResponders, true},
		{errAgain{errGap}, true},
		{api(503, codeNotAvailable), true},
		{api(500, codeStreamOfflineFor), true},
		{api(500, codeConsumerOfflineFor), true},
		{api(503, codeServerFull), true},
		{api(400, codeAccountFull), true},
		{nats.ErrConnectionClosed, false},
		{api(400, codeWrongLast), false},
		{api(404, jetstream.JSErrCodeStreamNotFound), false},
		{api(503, codeNotEnabledForAccount), false},
		{errors.New("other"), false},
	} {
		if got := transient(test.err); got != test.want {
			t.Errorf("%v: %v", test.err, got)
		}
	}
}

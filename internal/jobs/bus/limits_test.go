package bus

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
)

// An account may limit unacknowledged messages, the size of a message and the storage, and may require a limit of
// every stream. Clients fit these limits. What they store travels in chunks that the account allows.
func TestAccountLimits(t *testing.T) {
	for name, test := range map[string]struct {
		limit func(*jwt.AccountClaims)
		bytes int64 // limit of the stream of blobs
	}{
		"unacknowledged":     {func(c *jwt.AccountClaims) { c.Limits.MaxAckPending = 7 }, -1},
		"payload":            {func(c *jwt.AccountClaims) { c.Limits.Payload = 64 << 10 }, -1},
		"storage":            {func(c *jwt.AccountClaims) { c.Limits.MaxBytesRequired, c.Limits.DiskStorage = true, 16<<20 }, 12_096_000},
		"storage of streams": {func(c *jwt.AccountClaims) { c.Limits.MaxBytesRequired, c.Limits.DiskMaxStreamBytes = true, 2<<20 }, 2 << 20},
		"both": {func(c *jwt.AccountClaims) {
			c.Limits.MaxBytesRequired, c.Limits.DiskStorage, c.Limits.DiskMaxStreamBytes = true, 16<<20, 3<<20
		}, 3 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			host, issue := operated(t, test.limit)
			b := connect(t, Config{URL: host, Access: Access{Creds: secretFile(t, issue(time.Time{}))}})
			setUp(t, b, testQueue)
			setUp(t, b, testQueue)
			publish(t, b, newTask(1, 0))
			d := next(t, b)
			data := random(3*chunkBytes + 5)
			blob, err := b.Put(t.Context(), PartialName(d.Task.Job, 0, d.Attempt), data)
			must(t, err)
			if again, err := b.Get(t.Context(), blob, 1<<30); err != nil || string(again) != string(data) {
				t.Errorf("the blob was read as %d bytes, %v", len(again), err)
			}
			_, err = b.PublishResult(t.Context(), newResult(d.Task, d.Attempt))
			must(t, err)
			must(t, d.Done(t.Context()))
			events(t, b, d.Task.Job, 1)
			s, err := b.stream(t.Context(), blobStream)
			must(t, err)
			if bytes := s.CachedInfo().Config.MaxBytes; bytes != test.bytes {
				t.Errorf("the blobs may have %d bytes, expected %d", bytes, test.bytes)
			}
		})
	}
}

// If the account requires limits and has no storage limit to derive them from, the error says what to do.
func TestNoLimitToShare(t *testing.T) {
	host, issue := operated(t, func(c *jwt.AccountClaims) { c.Limits.MaxBytesRequired = true })
	b := connect(t, Config{URL: host, Access: Access{Creds: secretFile(t, issue(time.Time{}))}})
	if err := b.Setup(t.Context(), testQueue, testKernel); err == nil || !strings.Contains(err.Error(), "create the stream with a limit") {
		t.Errorf("error %v", err)
	}
}

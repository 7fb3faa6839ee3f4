package remote

import (
	"context"
	"io"
	"sync"
	"time"
)

// silence is how long a store may say nothing before the session says what it waits for. Tests
// replace it.
var silence = 2 * time.Second

// heard is a bucket that says what it waits for: once in each time without an answer of the store,
// if that lasts longer than silence.
type heard struct {
	bucket
	say func()

	mu    sync.Mutex
	calls int         // calls that run
	timer *time.Timer // nil unless the store owes an answer
}

// begin notes that the store owes an answer.
func (h *heard) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	if h.timer == nil {
		h.timer = time.AfterFunc(silence, h.say)
	}
}

// end notes the result of a call. The pause before the next try belongs to the same time without an
// answer.
func (h *heard) end(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls--
	if err == nil || judge(err) != temporary {
		h.stop()
		if h.calls > 0 {
			h.timer = time.AfterFunc(silence, h.say)
		}
	}
}

// answered notes a sign of life during a call.
func (h *heard) answered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer.Reset(silence)
}

// stop is for callers that hold mu.
func (h *heard) stop() {
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
}

func (h *heard) head(ctx context.Context, key string) (o object, err error) {
	h.begin()
	defer func() { h.end(err) }()
	return h.bucket.head(ctx, key)
}

func (h *heard) get(ctx context.Context, key, version string, offset int64) (_ io.ReadCloser, _ object, err error) {
	h.begin()
	defer func() { h.end(err) }()
	r, o, err := h.bucket.get(ctx, key, version, offset)
	return heardBody{r, h}, o, err
}

// heardBody is the content of an object, each part of which is an answer.
type heardBody struct {
	io.ReadCloser
	h *heard
}

func (b heardBody) Read(p []byte) (n int, err error) {
	b.h.begin()
	n, err = b.ReadCloser.Read(p)
	if err == io.EOF {
		b.h.end(nil)
	} else {
		b.h.end(err)
	}
	return n, err
}

// put waits for the data more than for the store, so that only its failure is a silence.
func (h *heard) put(ctx context.Context, key string, data io.ReaderAt, size int64, about object, c condition) (version string, err error) {
	version, err = h.bucket.put(ctx, key, data, size, about, c)
	h.begin()
	h.end(err)
	return version, err
}

func (h *heard) list(ctx context.Context, prefix string, shallow bool, visit func(object) error) (err error) {
	h.begin()
	defer func() { h.end(err) }()
	return h.bucket.list(ctx, prefix, shallow, func(o object) error {
		h.answered()
		return visit(o)
	})
}

func (h *heard) remove(ctx context.Context, key string) (err error) {
	h.begin()
	defer func() { h.end(err) }()
	return h.bucket.remove(ctx, key)
}

// hear returns a bucket that calls Waiting of the session.
func (s *Session) hear(b bucket, l Location) bucket {
	if s.Waiting == nil {
		return b
	}
	where := Location{Scheme: l.Scheme, Bucket: l.Bucket}.String()
	if at, ok := b.(interface{ address() string }); ok {
		where += " at " + at.address()
	}
	return &heard{bucket: b, say: func() { s.Waiting("waiting for an answer of the object store " + where) }}
}

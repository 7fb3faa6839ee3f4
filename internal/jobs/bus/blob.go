package bus

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"shaver/internal/base/fault"
	"shaver/internal/jobs/job"
)

// Blobs are objects of a NATS object store. An object is a series of chunks under its own
// token, and one message under its name that gives the token, size and digest. This
// package writes objects itself, because the library's Put replaces an object while
// somebody reads it, may reorder chunks when it sends one again, and keeps up to 500 MB
// in flight.
const (
	chunkPrefix = "$O." + blobBucket + ".C."
	metaPrefix  = "$O." + blobBucket + ".M."

	chunkBytes    = 128 << 10        // largest chunk, because larger ones overrun the server's input buffer
	chunkWindow   = 32               // largest number of unacknowledged chunks
	fewChunks     = 32               // up to this number, chunks are read by one request
	longHeartbeat = 15 * time.Second // the longest that the library takes for a request of 30 seconds
	useTimeout    = 30 * time.Second // for the reader to use a chunk, before the blob is looked up again
)

func metaSubject(name string) string {
	return metaPrefix + base64.URLEncoding.EncodeToString([]byte(name))
}

// chunkSize returns the size of the chunks of the blobs that b stores.
func (b *Bus) chunkSize() int64 { return max(1, min(chunkBytes, b.nc.MaxPayload())) }

// chunks returns the number of chunks of an object.
func chunks(bytes, chunk int64) uint64 { return uint64((bytes + chunk - 1) / chunk) }

func digestText(sum []byte) string { return "SHA-256=" + base64.URLEncoding.EncodeToString(sum) }

// object is the stored description of a blob and its place in the stream.
type object struct {
	jetstream.ObjectInfo
	sequence uint64 // sequence number of the message with the description
}

// is reports whether the description has the size and digest of the blob.
func (o *object) is(blob job.Blob) bool {
	sum, err := hex.DecodeString(blob.SHA256)
	return err == nil && o.Size == uint64(blob.Bytes) && o.Digest == digestText(sum)
}

// chunks returns the number of chunks that the object has if it is whole.
func (o *object) chunks() uint64 {
	if o.Opts == nil || o.Opts.ChunkSize == 0 {
		return chunks(int64(o.Size), chunkBytes)
	}
	return chunks(int64(o.Size), int64(o.Opts.ChunkSize))
}

// object returns what is stored under name, or ErrNotFound. Deleted is set if a tombstone
// is stored. Only other programs leave tombstones.
func (b *Bus) object(ctx context.Context, name string) (*object, error) {
	msg, err := b.last(ctx, "look up blob "+name, blobStream, metaSubject(name))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, fmt.Errorf("blob %s: %w", name, ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	o := &object{sequence: msg.Sequence}
	if err := json.Unmarshal(msg.Data, &o.ObjectInfo); err != nil || o.Name != name || !isToken(o.NUID) {
		return nil, fault.Inputf("blob %s: %w: its description is malformed", name, ErrCorrupt)
	}
	return o, nil
}

// held returns how many of the object's chunks are stored.
func (b *Bus) held(ctx context.Context, o *object) (uint64, error) {
	on := chunkPrefix + o.NUID
	held, err := b.subjects(ctx, "look up blob "+o.Name, blobStream, on)
	return held[on], err
}

// whole reports whether all chunks of the object are stored, and no others.
func (b *Bus) whole(ctx context.Context, o *object) (bool, error) {
	switch want := o.chunks(); {
	case o.Deleted || uint64(o.Chunks) != want:
		return false, nil
	case want == 0:
		return true, nil
	default:
		held, err := b.held(ctx, o)
		return held == want, err
	}
}

// Put stores data under name and returns the reference to it. Storing the same bytes
// again has no effect. If other bytes are stored under the name, Put returns ErrConflict.
func (b *Bus) Put(ctx context.Context, name string, data []byte) (job.Blob, error) {
	sum := sha256.Sum256(data)
	blob := job.Blob{Name: name, Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
	_, err := b.PutFrom(ctx, name, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}, &blob)
	return blob, err
}

// PutFrom stores what source writes, without holding it in memory, and returns the
// reference to it. After a failed attempt it calls source again, and source must write the
// same bytes. If known is not nil, it describes these bytes, and nothing is sent if they
// are stored already. If other bytes are stored under the name, PutFrom returns
// ErrConflict.
func (b *Bus) PutFrom(ctx context.Context, name string, source func(io.Writer) error, known *job.Blob) (job.Blob, error) {
	return b.putFrom(ctx, name, source, known, true)
}

// PutFromIfRoom is PutFrom without a wait for room: if the server has none for the bytes, it
// returns ErrFull.
func (b *Bus) PutFromIfRoom(ctx context.Context, name string, source func(io.Writer) error) (job.Blob, error) {
	return b.putFrom(ctx, name, source, nil, false)
}

// HasRoom reports whether the server has room for the given number of bytes of a job. It stores a blob of
// zeros and deletes it, also if ctx ends meanwhile.
func (b *Bus) HasRoom(ctx context.Context, jobID string, bytes int64) (bool, error) {
	name := PartialName(jobID, 0, rand.Text())
	_, err := b.PutFromIfRoom(ctx, name, func(w io.Writer) error {
		_, err := io.CopyN(w, zeros{}, bytes)
		return err
	})
	if errors.Is(err, ErrFull) {
		return false, nil
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.patience.call)
	defer cancel()
	err = errors.Join(err, b.Delete(after, name))
	return err == nil, err
}

// zeros is an endless reader of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func (b *Bus) putFrom(ctx context.Context, name string, source func(io.Writer) error, known *job.Blob, wait bool) (blob job.Blob, err error) {
	if !isName(name) {
		return job.Blob{}, fmt.Errorf("put blob: invalid name %q", name)
	}
	fresh := known != nil && known.Bytes <= chunkBytes && (strings.HasPrefix(name, "shard/") || strings.HasPrefix(name, "partial/"))
	err = b.again(ctx, "put blob "+name, func(ctx context.Context) error {
		blob, err = b.put(ctx, name, source, known, fresh)
		fresh = false
		if !wait && isFull(err) {
			return ErrFull
		}
		return err
	})
	if err != nil {
		return job.Blob{}, err
	}
	return blob, nil
}

// put is one attempt of putFrom. If fresh is true, the blob is probably not stored, and put does
// not look for it first.
func (b *Bus) put(ctx context.Context, name string, source func(io.Writer) error, known *job.Blob, fresh bool) (blob job.Blob, err error) {
	expect, replaced := uint64(0), ""
	if !fresh {
		there, err := b.object(ctx, name)
		whole := false
		if err == nil {
			whole, err = b.whole(ctx, there)
		}
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return blob, err
		case whole && known != nil && there.is(*known):
			return *known, nil
		case whole:
			return blob, ErrConflict
		default: // a tombstone, or the remains of an unfinished delete
			expect, replaced = there.sequence, there.NUID
		}
	}
	token := newToken(name)
	chunk := b.chunkSize()
	sum, size, err := b.putChunks(ctx, token, int(chunk), source)
	if err != nil {
		b.sweep(ctx, token)
		return blob, err
	}
	blob = job.Blob{Name: name, Bytes: size, SHA256: hex.EncodeToString(sum)}
	body, err := json.Marshal(jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: uint32(chunk)}},
		Bucket:     blobBucket, NUID: token, Size: uint64(size), Chunks: uint32(chunks(size, chunk)), Digest: digestText(sum),
	})
	if err != nil {
		panic("bus: object info does not marshal: " + err.Error())
	}
	var full error
	err = b.call(ctx, "name blob "+name, func(ctx context.Context) error {
		msg := nats.NewMsg(metaSubject(name))
		msg.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject) // this replaces a tombstone
		msg.Data = body
		_, err := b.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(expect), jetstream.WithRetryAttempts(0))
		if isFull(err) { // the chunks must not hold the room
			full = err
			return nil
		}
		return b.orGone(ctx, blobStream, err)
	})
	if full != nil {
		b.sweep(ctx, token)
		return blob, full
	}
	if !isCode(err, codeWrongLast) {
		if err == nil && replaced != "" {
			b.sweep(ctx, replaced)
		}
		if err == nil {
			b.sweepStrays(ctx)
		}
		return blob, err
	}
	// Somebody else was faster, or our earlier attempt succeeded and its answer was lost.
	now, err := b.object(ctx, name)
	if err == nil && now.NUID == token {
		return blob, nil
	}
	if err == nil || errors.Is(err, ErrNotFound) {
		b.sweep(ctx, token)
		return blob, errAgain{ErrConflict} // look again at what is stored
	}
	return blob, err
}

// newToken returns a token for a blob's chunks. The token begins with the blob's owner,
// so that chunks can be found even if their program died before it named them.
func newToken(name string) string { return ownerOf(name) + "." + nuid.Next() }

func isToken(token string) bool {
	owner, rest, ok := strings.Cut(token, ".")
	return ok && isHex(owner, ownerDigits) && isAttempt(rest)
}

// chunker is a writer that sends chunks in order. At most chunkWindow of them are
// unacknowledged at any time.
type chunker struct {
	ctx     context.Context
	b       *Bus
	token   string
	full    int                      // size of a chunk; the last one may be smaller
	chunk   []byte                   // the chunk being filled
	pending []jetstream.PubAckFuture // one for each unacknowledged chunk
	last    uint64                   // sequence of the last acknowledged chunk
	sum     hash.Hash
	size    int64
}

func (b *Bus) putChunks(ctx context.Context, token string, chunk int, source func(io.Writer) error) (sum []byte, size int64, err error) {
	c := &chunker{ctx: ctx, b: b, token: token, full: chunk, sum: sha256.New()}
	// After a failure, wait for the chunks in flight. Otherwise they would be stored
	// after the sweep.
	defer func() {
		for len(c.pending) > 0 && ctx.Err() == nil {
			_ = c.settle()
		}
	}()
	if err := source(c); err != nil {
		return nil, 0, err
	}
	if len(c.chunk) > 0 {
		if err := c.send(c.chunk); err != nil {
			return nil, 0, err
		}
	}
	for len(c.pending) > 0 {
		if err := c.settle(); err != nil {
			return nil, 0, err
		}
	}
	return c.sum.Sum(nil), c.size, nil
}

func (c *chunker) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if len(c.chunk) == 0 && len(p) >= c.full { // send it without a copy
			if err := c.send(p[:c.full]); err != nil {
				return 0, err
			}
			p = p[c.full:]
			continue
		}
		if c.chunk == nil {
			c.chunk = make([]byte, 0, min(c.full, max(n, 4096)))
		}
		part := min(len(p), c.full-len(c.chunk))
		c.chunk, p = append(c.chunk, p[:part]...), p[part:]
		if len(c.chunk) == c.full {
			if err := c.send(c.chunk); err != nil {
				return 0, err
			}
			c.chunk = c.chunk[:0]
		}
	}
	return n, nil
}

// send sends a chunk. The caller may reuse its memory when send returns.
func (c *chunker) send(chunk []byte) error {
	if len(c.pending) == chunkWindow {
		if err := c.settle(); err != nil {
			return err
		}
	}
	c.sum.Write(chunk)
	c.size += int64(len(chunk))
	if c.b.onBlob != nil {
		c.b.onBlob(true, len(chunk))
	}
	return c.b.request("put chunk", func() error {
		// The library must not send a chunk again, because it would be stored out of
		// order.
		future, err := c.b.js.PublishAsync(chunkPrefix+c.token, chunk, jetstream.WithRetryAttempts(0))
		if err == nil {
			c.pending = append(c.pending, future)
		}
		return err
	})
}

// settle waits for the answer to the oldest unacknowledged chunk.
func (c *chunker) settle() error {
	first := c.pending[0]
	c.pending = c.pending[1:]
	select {
	case ack := <-first.Ok():
		if ack.Sequence <= c.last {
			return errAgain{errors.New("chunks were stored out of order")}
		}
		c.last = ack.Sequence
		return nil
	case err := <-first.Err():
		return err
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// sweep deletes chunks that no name points to, as far as it can. Chunks in a slow or
// broken connection may be stored later, so sweepStrays deletes them again.
func (b *Bus) sweep(ctx context.Context, token string) {
	b.mu.Lock()
	b.strays = append(b.strays, token)
	b.mu.Unlock()
	if !b.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_ = b.purge(ctx, "sweep chunks", blobStream, chunkPrefix+token)
}

// sweepStrays repeats the deletes of sweep, now that the server answers.
func (b *Bus) sweepStrays(ctx context.Context) {
	b.mu.Lock()
	strays := b.strays
	b.strays = nil
	b.mu.Unlock()
	if len(strays) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	for i, token := range strays {
		if err := b.purge(ctx, "sweep chunks", blobStream, chunkPrefix+token); err != nil {
			b.mu.Lock()
			b.strays = append(b.strays, strays[i:]...)
			b.mu.Unlock()
			return
		}
	}
}

// Get returns the blob's bytes, checked against the reference. The caller owns them. A
// blob of more than limit bytes is an error, and nothing is read. If the blob is missing,
// the error is ErrNotFound. If the bytes do not match the reference, it is ErrCorrupt.
// A transfer that stops goes on at the missing chunk, however slow it is.
func (b *Bus) Get(ctx context.Context, blob job.Blob, limit int64) (data []byte, err error) {
	err = b.read(ctx, blob, limit, func(o *object) error {
		data = make([]byte, 0, o.Size) // its chunks are stored, so the size is credible
		return b.readChunks(ctx, o, func(chunk []byte) error {
			data = append(data, chunk...)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return data, nil
}

// GetInto is like Get, but does not hold the whole blob in memory. It calls into with a
// reader of the bytes, which are checked against the reference only after all of them
// were read. The results of into are therefore valid only if GetInto returns nil. After a
// failed attempt GetInto calls into again with another reader.
func (b *Bus) GetInto(ctx context.Context, blob job.Blob, limit int64, into func(io.Reader) error) error {
	return b.read(ctx, blob, limit, func(o *object) error {
		in, out := io.Pipe()
		done := make(chan error, 1)
		go func() {
			err := into(in)
			if err == nil {
				_, err = io.Copy(io.Discard, in) // the digest covers all bytes
			}
			in.CloseWithError(err) // a nil error becomes io.ErrClosedPipe
			done <- err
		}()
		err := b.readChunks(ctx, o, func(chunk []byte) error {
			_, err := out.Write(chunk)
			return err
		})
		out.CloseWithError(err) // a nil error becomes io.EOF
		if wrong := <-done; err == nil {
			err = wrong
		}
		return err
	})
}

// read checks the reference and the stored description, and then calls f to read the
// object.
func (b *Bus) read(ctx context.Context, blob job.Blob, limit int64, f func(*object) error) error {
	if err := checkBlob(blob, isName(blob.Name), "a valid blob name"); err != nil {
		return fault.Inputf("get blob: %w", err)
	}
	if blob.Bytes > limit {
		return fault.Inputf("blob %s: %d bytes, expected at most %d", blob.Name, blob.Bytes, limit)
	}
	return b.again(ctx, "get blob "+blob.Name, func(ctx context.Context) error {
		o, err := b.object(ctx, blob.Name)
		switch {
		case err != nil:
			return err
		case o.Deleted:
			return fmt.Errorf("blob %s: %w", blob.Name, ErrNotFound)
		case !o.is(blob):
			return corrupt(blob, "%d bytes with digest %s are stored, expected %d with SHA-256 %s", o.Size, o.Digest, blob.Bytes, blob.SHA256)
		case uint64(o.Chunks) != o.chunks():
			return corrupt(blob, "its description has %d chunks, expected %d", o.Chunks, o.chunks())
		}
		if o.Chunks > fewChunks { // a reader of many chunks would wait for a missing one
			if err := b.checkWhole(ctx, o); err != nil {
				return err
			}
		}
		return f(o)
	})
}

// checkWhole returns an error that wraps ErrCorrupt if not all chunks of the object are stored.
func (b *Bus) checkWhole(ctx context.Context, o *object) error {
	held, err := b.held(ctx, o)
	if err == nil && held != uint64(o.Chunks) {
		return fault.Inputf("blob %s: %w: %d of %d chunks are stored", o.Name, ErrCorrupt, held, o.Chunks)
	}
	return err
}

// corrupt returns an input error that wraps ErrCorrupt and names the blob.
func corrupt(blob job.Blob, format string, args ...any) error {
	return fault.Inputf("blob %s: %w: %s", blob.Name, ErrCorrupt, fmt.Sprintf(format, args...))
}

// errWhole stops follow after the last chunk.
var errWhole = errors.New("all chunks are read")

// readChunks calls f with the object's chunks, in order, and checks the digest. If no
// chunk comes for a while it checks whether the object is still stored, and goes on with the missing chunk.
func (b *Bus) readChunks(ctx context.Context, o *object, f func(chunk []byte) error) error {
	sum, size, count := sha256.New(), uint64(0), uint32(0)
	r := &reading{stream: blobStream, filter: chunkPrefix + o.NUID, next: 1, batch: min(chunkWindow, max(1, int(o.Chunks))), heartbeat: max(b.patience.heartbeat, min(b.patience.call, longHeartbeat)), large: true}
	few := o.Chunks <= fewChunks
	take := func(chunk []byte) error {
		if size += uint64(len(chunk)); size > o.Size {
			return fault.Inputf("blob %s: %w: more than its %d bytes are stored", o.Name, ErrCorrupt, o.Size)
		}
		sum.Write(chunk)
		if b.onBlob != nil {
			b.onBlob(false, len(chunk))
		}
		if err := f(chunk); err != nil {
			return err
		}
		switch count++; {
		case size == o.Size:
			return errWhole
		case count == o.Chunks:
			return fault.Inputf("blob %s: %w: its %d chunks have %d bytes, expected %d", o.Name, ErrCorrupt, count, size, o.Size)
		}
		return nil
	}
	patience := b.patience.call
	stuck := errAgain{fmt.Errorf("no chunk for %v", patience)}
	for size < o.Size {
		reading, cancel := context.WithCancelCause(ctx)
		idle := b.watch(reading, patience, func() { cancel(stuck) })
		var ended error // of take
		read := b.followChunks
		if few {
			read = b.fetchChunks
		}
		err := read(reading, o, r, func(chunk []byte) error {
			idle.Reset(max(patience, useTimeout))
			defer idle.Reset(patience)
			ended = take(chunk)
			return ended
		})
		idle.Stop()
		late := context.Cause(reading) == error(stuck)
		cancel(nil)
		if ended == nil && (late || errors.Is(err, errLate)) {
			err, few = b.checkSame(ctx, o), !few && o.Chunks <= fewChunks // another way may work
		}
		if err != nil && !errors.Is(err, errWhole) {
			return err
		}
	}
	if found := digestText(sum.Sum(nil)); found != o.Digest {
		return fault.Inputf("blob %s: %w: its bytes have the digest %s, expected %s", o.Name, ErrCorrupt, found, o.Digest)
	}
	return nil
}

// slow is the least rate in bytes per second of a link that is slow and not broken.
const slow = 4096

// watch calls stop when the timer that it returns runs out, unless ctx is over or bytes arrive at the rate slow or
// faster.
func (b *Bus) watch(ctx context.Context, patience time.Duration, stop func()) (idle *time.Timer) {
	before := b.dialer.arrived.Load()
	var lock sync.Mutex // until idle is set
	lock.Lock()
	defer lock.Unlock()
	idle = time.AfterFunc(patience, func() {
		lock.Lock()
		defer lock.Unlock()
		now := b.dialer.arrived.Load()
		if ctx.Err() != nil {
			return
		}
		if float64(now-before) < slow*patience.Seconds() {
			stop()
			return
		}
		before = now
		idle.Reset(patience)
	})
	return idle
}

// checkSame returns an error unless the object is still stored under its name, with all of its chunks.
func (b *Bus) checkSame(ctx context.Context, o *object) error {
	now, err := b.object(ctx, o.Name)
	if err == nil && now.NUID != o.NUID {
		return errAgain{fmt.Errorf("blob %s: it was stored again", o.Name)}
	}
	if err != nil {
		return err
	}
	return b.checkWhole(ctx, o)
}

// followChunks calls f with the chunks of the object from r.next on, in order, until f fails. They come
// without a request for each, which suits blobs of many chunks.
func (b *Bus) followChunks(ctx context.Context, _ *object, r *reading, f func(chunk []byte) error) error {
	return b.follow(ctx, r, func(msg jetstream.Msg) error { return f(msg.Data()) })
}

// errLate ends fetchChunks if two answers did not come in time. On a slow link followChunks has more.
var errLate = errors.New("chunks come too late")

// fetchChunks calls f with the chunks of the object from r.next on, in order, until f fails. It asks any
// replica for r.batch of them at once, and the leader of the stream for a chunk that this replica
// does not hold. Unlike followChunks it needs no consumer, which the cluster would have to
// agree on, and might place on a node that cannot read the stream.
func (b *Bus) fetchChunks(ctx context.Context, o *object, r *reading, f func(chunk []byte) error) error {
	what := "read chunks of " + o.Name
	for failures := 0; ; {
		var msgs []*jetstream.RawStreamMsg
		err := b.call(ctx, what, func(ctx context.Context) (err error) {
			msgs, err = b.getDirect(ctx, r.stream, r.filter, r.next, r.batch)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				var msg *jetstream.RawStreamMsg
				msg, err = b.get(ctx, r.stream, getRequest{Next: r.filter, Seq: r.next})
				msgs = append(msgs, msg)
			}
			if err != nil && transient(err) {
				r.slower(0)
				if failures++; failures > 1 && ctx.Err() != nil {
					return errLate
				}
			}
			return err
		})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			if err := b.checkWhole(ctx, o); err != nil {
				return err
			}
			return errAgain{err} // it is stored now
		}
		if err != nil {
			return err
		}
		r.slower(2 * len(msgs))
		for _, msg := range msgs {
			if err := f(msg.Data); err != nil {
				return err
			}
			r.next = msg.Sequence + 1
		}
	}
}

// Delete removes the blob of that name with all its chunks, if it is stored.
func (b *Bus) Delete(ctx context.Context, name string) error {
	if !isName(name) {
		return fmt.Errorf("delete blob: invalid name %q", name)
	}
	return b.delete(ctx, name)
}

// delete removes the chunks before the description that points to them. An unfinished
// delete can therefore be found and completed.
func (b *Bus) delete(ctx context.Context, name string) error {
	what := "delete blob " + name
	msg, err := b.last(ctx, what, blobStream, metaSubject(name))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var info jetstream.ObjectInfo
	if err := json.Unmarshal(msg.Data, &info); err == nil && isToken(info.NUID) {
		if err := b.purge(ctx, what, blobStream, chunkPrefix+info.NUID); err != nil {
			return err
		}
	}
	return b.purge(ctx, what, blobStream, metaSubject(name))
}

package bus

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"shaver/internal/fault"
	"shaver/internal/job"
)

// Blobs are objects of a NATS object store: chunks under a token of their own,
// and one message under the name that says which token, size and digest. They
// are written here and not by the library, because its Put replaces an object
// that somebody is reading, may swap chunks when it tries one again, and holds
// up to 500 MB on the way.
const (
	chunkPrefix = "$O." + blobBucket + ".C."
	metaPrefix  = "$O." + blobBucket + ".M."

	chunkBytes  = 128 << 10 // larger ones overrun the server's intake
	chunkWindow = 32        // chunks on the way at once
	idleTimeout = 5 * time.Second
	baseTimeout = 30 * time.Second
	bytesPerSec = 4 << 20 // slower than this is as good as stuck
)

// blobTimeout is the time that reading so many bytes may take in all.
func blobTimeout(bytes int64) time.Duration {
	return baseTimeout + time.Duration(bytes/bytesPerSec)*time.Second
}

func metaSubject(name string) string {
	return metaPrefix + base64.URLEncoding.EncodeToString([]byte(name))
}

func chunks(bytes int64) uint64 { return uint64((bytes + chunkBytes - 1) / chunkBytes) }

func digestText(sum []byte) string { return "SHA-256=" + base64.URLEncoding.EncodeToString(sum) }

// object is what is stored under a name.
type object struct {
	jetstream.ObjectInfo
	sequence uint64 // of the message that says so
	held     uint64 // chunks that are there
}

// is reports whether the object is the blob, going by what it says of itself.
func (o *object) is(blob job.Blob) bool {
	sum, err := hex.DecodeString(blob.SHA256)
	return err == nil && o.Size == uint64(blob.Bytes) && o.Digest == digestText(sum)
}

// whole reports whether all chunks are there.
func (o *object) whole() bool {
	return uint64(o.Chunks) == o.held && o.held == chunks(int64(o.Size))
}

// object returns what is stored under name, ErrNotFound if nothing is. A
// tombstone, which only other programs leave, comes as Deleted.
func (b *Bus) object(ctx context.Context, name string) (*object, error) {
	msg, err := b.last(ctx, "look up blob "+name, blobStream, metaSubject(name))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, fmt.Errorf("blob %s: %w", name, ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	o := &object{sequence: msg.Sequence}
	if err := json.Unmarshal(msg.Data, &o.ObjectInfo); err != nil || o.Name != name || !isAttempt(o.NUID) {
		return nil, fault.Inputf("blob %s: %w: its description is malformed", name, ErrCorrupt)
	}
	if !o.Deleted && o.Chunks > 0 {
		on := chunkPrefix + o.NUID
		held, err := b.subjects(ctx, "look up blob "+name, blobStream, on)
		if err != nil {
			return nil, err
		}
		o.held = held[on]
	}
	return o, nil
}

// Put stores data under name and returns the reference to it. The same bytes
// under the same name are stored once; other bytes there are ErrConflict.
func (b *Bus) Put(ctx context.Context, name string, data []byte) (job.Blob, error) {
	if !isName(name) {
		return job.Blob{}, fmt.Errorf("put blob: name %q is none of ours", name)
	}
	sum := sha256.Sum256(data)
	blob := job.Blob{Name: name, Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
	err := b.again(ctx, "put blob "+name, func() error { return b.put(ctx, blob, data) })
	if err != nil {
		return job.Blob{}, err
	}
	return blob, nil
}

func (b *Bus) put(ctx context.Context, blob job.Blob, data []byte) error {
	there, err := b.object(ctx, blob.Name)
	expect := uint64(0)
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return err
	case !there.Deleted && there.whole():
		if !there.is(blob) {
			return ErrConflict
		}
		return nil
	default: // a tombstone, or what a delete that did not finish left
		expect = there.sequence
	}
	token := nuid.Next()
	if err := b.putChunks(ctx, token, data); err != nil {
		b.sweep(ctx, token)
		return err
	}
	sum, _ := hex.DecodeString(blob.SHA256)
	body, err := json.Marshal(jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{Name: blob.Name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunkBytes}},
		Bucket:     blobBucket, NUID: token, Size: uint64(len(data)), Chunks: uint32(chunks(blob.Bytes)), Digest: digestText(sum),
	})
	if err != nil {
		panic("bus: object info does not marshal: " + err.Error())
	}
	err = b.call(ctx, "name blob "+blob.Name, func(ctx context.Context) error {
		msg := nats.NewMsg(metaSubject(blob.Name))
		msg.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject) // a tombstone goes
		msg.Data = body
		_, err := b.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(expect), jetstream.WithRetryAttempts(0))
		return err
	})
	if !isCode(err, codeWrongLast) {
		if err == nil && expect > 0 {
			b.sweep(ctx, there.NUID)
		}
		return err
	}
	// Somebody named the blob first: another, or an earlier try of ours whose
	// answer was lost.
	now, err := b.object(ctx, blob.Name)
	if err == nil && now.NUID == token {
		return nil
	}
	if err == nil || errors.Is(err, ErrNotFound) {
		b.sweep(ctx, token)
		return errAgain{ErrConflict} // look again at what is there
	}
	return err
}

// putChunks sends the chunks in order, a bounded number ahead of the answers.
func (b *Bus) putChunks(ctx context.Context, token string, data []byte) error {
	var under []jetstream.PubAckFuture
	last := uint64(0)
	settle := func() error {
		first := under[0]
		under = under[1:]
		select {
		case ack := <-first.Ok():
			if ack.Sequence <= last {
				return errAgain{errors.New("chunks were stored out of order")}
			}
			last = ack.Sequence
			return nil
		case err := <-first.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	// What is still under way after a failure would be stored after the sweep.
	defer func() {
		for len(under) > 0 && ctx.Err() == nil {
			_ = settle()
		}
	}()
	for chunk := range slices.Chunk(data, chunkBytes) {
		if len(under) == chunkWindow {
			if err := settle(); err != nil {
				return err
			}
		}
		// Never let the library send a chunk again: it would come late.
		future, err := b.js.PublishAsync(chunkPrefix+token, chunk, jetstream.WithRetryAttempts(0))
		if err != nil {
			return err
		}
		under = append(under, future)
	}
	for len(under) > 0 {
		if err := settle(); err != nil {
			return err
		}
	}
	return nil
}

// sweep deletes chunks that no name points to, as well as it can.
func (b *Bus) sweep(ctx context.Context, token string) {
	if !b.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_ = b.purge(ctx, "sweep chunks", blobStream, chunkPrefix+token)
}

// Get returns the blob's bytes, checked against the reference, the caller's to
// keep. More than limit bytes are an error before anything is read. A blob that
// is not there is ErrNotFound, one that is not what the reference says is
// ErrCorrupt. The time it may take grows with its size.
func (b *Bus) Get(ctx context.Context, blob job.Blob, limit int64) ([]byte, error) {
	if err := checkBlob(blob, isName(blob.Name), "one of ours"); err != nil {
		return nil, fault.Inputf("get blob: %w", err)
	}
	if blob.Bytes > limit {
		return nil, fault.Inputf("blob %s: %d bytes, expected at most %d", blob.Name, blob.Bytes, limit)
	}
	ctx, cancel := context.WithTimeout(ctx, blobTimeout(blob.Bytes))
	defer cancel()
	var data []byte
	err := b.again(ctx, "get blob "+blob.Name, func() (err error) {
		data, err = b.get(ctx, blob)
		return err
	})
	return data, err
}

func corrupt(blob job.Blob, format string, args ...any) error {
	return fault.Inputf("blob %s: %w: %s", blob.Name, ErrCorrupt, fmt.Sprintf(format, args...))
}

func (b *Bus) get(ctx context.Context, blob job.Blob) ([]byte, error) {
	o, err := b.object(ctx, blob.Name)
	switch {
	case err != nil:
		return nil, err
	case o.Deleted:
		return nil, fmt.Errorf("blob %s: %w", blob.Name, ErrNotFound)
	case !o.is(blob):
		return nil, corrupt(blob, "%d bytes with digest %s are stored, expected %d with SHA-256 %s", o.Size, o.Digest, blob.Bytes, blob.SHA256)
	case !o.whole():
		return nil, corrupt(blob, "%d chunks of %d are stored", o.held, chunks(blob.Bytes))
	}
	data, err := b.readChunks(ctx, o)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != blob.SHA256 {
		return nil, corrupt(blob, "its bytes have SHA-256 %x, expected %s", sum, blob.SHA256)
	}
	return data, nil
}

// errWhole ends the reading of chunks.
var errWhole = errors.New("all chunks are read")

// readChunks reads the object's chunks. When none comes for a while it gives
// up, to look whether the object is still there.
func (b *Bus) readChunks(ctx context.Context, o *object) ([]byte, error) {
	data := make([]byte, 0, o.Size) // the chunks for it are there
	if o.Size == 0 {
		return data, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stuck := errAgain{fmt.Errorf("no chunk for %v", idleTimeout)}
	idle := time.AfterFunc(idleTimeout, func() { cancel(stuck) })
	defer idle.Stop()
	err := b.follow(ctx, blobStream, chunkPrefix+o.NUID, chunkWindow, func(msg jetstream.Msg) error {
		idle.Reset(idleTimeout)
		if len(data)+len(msg.Data()) > int(o.Size) {
			return fault.Inputf("blob %s: %w: more than its %d bytes are stored", o.Name, ErrCorrupt, o.Size)
		}
		data = append(data, msg.Data()...)
		if len(data) == int(o.Size) {
			return errWhole
		}
		return nil
	})
	switch {
	case errors.Is(err, errWhole):
		return data, nil
	case context.Cause(ctx) == error(stuck):
		return nil, stuck
	}
	return nil, err
}

// Delete removes the blob of that name, if there is one, and every trace of it.
func (b *Bus) Delete(ctx context.Context, name string) error {
	if !isName(name) {
		return fmt.Errorf("delete blob: name %q is none of ours", name)
	}
	return b.delete(ctx, name)
}

// delete removes the chunks first: what points to them is how a delete that
// did not finish is found again.
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
	if err := json.Unmarshal(msg.Data, &info); err == nil && isAttempt(info.NUID) {
		if err := b.purge(ctx, what, blobStream, chunkPrefix+info.NUID); err != nil {
			return err
		}
	}
	return b.purge(ctx, what, blobStream, metaSubject(name))
}

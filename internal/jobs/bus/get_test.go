package bus

import (
	"bytes"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The leader sends what is missing on a replica, and everything if the stream does not allow
// direct reads.
func TestGetWithoutDirectReads(t *testing.T) {
	b := newBus(t, testQueue)
	data := random(3*chunkBytes + 1)
	blob, err := b.Put(t.Context(), ShardName(testJob, 0), data)
	must(t, err)
	o, err := b.object(t.Context(), blob.Name)
	must(t, err)
	msgs, err := b.getDirect(t.Context(), blobStream, chunkPrefix+o.NUID, 2, 2)
	must(t, err)
	if len(msgs) != 2 || msgs[0].Sequence != 2 || !bytes.Equal(msgs[1].Data, data[2*chunkBytes:3*chunkBytes]) {
		t.Errorf("%d messages from %d on, expected chunks 2 and 3", len(msgs), msgs[0].Sequence)
	}
	config := testQueue.streams()[3]
	if config.Name != blobStream || !config.AllowDirect {
		t.Fatalf("stream %s allows direct reads: %v", config.Name, config.AllowDirect)
	}
	config.AllowDirect = false
	_, err = b.js.UpdateStream(t.Context(), config)
	must(t, err)
	if _, err := b.getDirect(t.Context(), blobStream, chunkPrefix+o.NUID, 1, 9); !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Errorf("a direct read that is not allowed: %v", err)
	}
	got, err := b.Get(t.Context(), blob, blob.Bytes)
	if must(t, err); !bytes.Equal(got, data) {
		t.Error("Get returned other bytes")
	}
}

func TestGetFromLeader(t *testing.T) {
	b := newBus(t, testQueue)
	on := jobPrefix + testJob + ".spec"
	msg := nats.NewMsg(on)
	msg.Header.Set("KV-Operation", "DEL")
	msg.Data = []byte("data")
	_, err := b.js.PublishMsg(t.Context(), msg)
	must(t, err)
	got, err := b.get(t.Context(), jobStream, getRequest{Last: on})
	must(t, err)
	if got.Subject != on || got.Sequence != 1 || string(got.Data) != "data" || got.Header.Get("KV-Operation") != "DEL" || got.Time.IsZero() {
		t.Errorf("%+v", got)
	}
	if spec, err := b.key(t.Context(), "test", on); err != nil || spec != nil {
		t.Errorf("the key after a delete by the nats command: %v, %v", spec, err)
	}
	if _, err := b.get(t.Context(), jobStream, getRequest{Last: on + "x"}); !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Errorf("another subject: %v", err)
	}
	if _, err := b.get(t.Context(), "NONE", getRequest{Last: on}); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("another stream: %v", err)
	}
}

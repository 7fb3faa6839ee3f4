package bus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// getRequest asks for a message of a stream.
type getRequest struct {
	Last  string `json:"last_by_subj,omitempty"` // the last message of this subject
	Next  string `json:"next_by_subj,omitempty"` // the first message of this subject from Seq on
	Seq   uint64 `json:"seq,omitempty"`
	Batch int    `json:"batch,omitempty"` // largest number of messages; only for direct reads
}

// get returns a message as the stream's leader holds it, or jetstream.ErrMsgNotFound. The
// library asks any replica if the stream allows direct reads, and a replica may lag behind.
func (b *Bus) get(ctx context.Context, stream string, r getRequest) (*jetstream.RawStreamMsg, error) {
	answer, err := b.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, encodeRequest(r))
	if err != nil {
		return nil, err
	}
	var found struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject  string    `json:"subject"`
			Sequence uint64    `json:"seq"`
			Data     []byte    `json:"data"`
			Header   []byte    `json:"hdrs"`
			Time     time.Time `json:"time"`
		} `json:"message"`
	}
	switch err := json.Unmarshal(answer.Data, &found); {
	case err != nil:
		return nil, fmt.Errorf("malformed answer of the server: %w", err)
	case found.Error != nil && found.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, jetstream.ErrMsgNotFound
	case found.Error != nil && found.Error.ErrorCode == jetstream.JSErrCodeStreamNotFound:
		return nil, jetstream.ErrStreamNotFound
	case found.Error != nil:
		return nil, found.Error
	case found.Message == nil:
		return nil, jetstream.ErrInvalidJetStreamResponse
	}
	m := found.Message
	msg := &jetstream.RawStreamMsg{Subject: m.Subject, Sequence: m.Sequence, Data: m.Data, Time: m.Time}
	if len(m.Header) > 0 {
		header, data := splitAgain(m.Header, m.Data)
		if msg.Header, err = nats.DecodeHeadersMsg(header); err != nil {
			return nil, fmt.Errorf("malformed header in the answer of the server: %w", err)
		}
		msg.Data = data
	}
	return msg, nil
}

// endOfHeader ends the header of a message.
var endOfHeader = []byte("\r\n\r\n")

// splitAgain returns the header and the data of a stored message. The server's checksum of a
// message does not cover the length of its header. If that length is damaged on disk, the
// server cuts the message in the wrong place, and splitAgain cuts it in the right one.
func splitAgain(header, data []byte) (_, _ []byte) {
	if end := bytes.Index(header, endOfHeader); end >= 0 && end == len(header)-len(endOfHeader) {
		return header, data
	}
	whole := slices.Concat(header, data)
	end := bytes.Index(whole, endOfHeader)
	if end < 0 {
		return header, data
	}
	end += len(endOfHeader)
	return whole[:end:end], whole[end:]
}

// getDirect returns messages of a subject from a sequence number on, in order, as one of the
// stream's replicas holds them. It returns at least one message and at most batch. It may
// return fewer than the replica holds: servers before 2.11 send one, and getDirect does not
// wait long for the next one. If the replica holds none, or the stream does not allow direct
// reads, the error is jetstream.ErrMsgNotFound. A replica sends plain bytes, whereas the
// leader sends JSON with base64.
func (b *Bus) getDirect(ctx context.Context, stream, subject string, from uint64, batch int) (msgs []*jetstream.RawStreamMsg, err error) {
	inbox := b.nc.NewInbox()
	answers, err := b.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := b.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, encodeRequest(getRequest{Next: subject, Seq: from, Batch: batch})); err != nil {
		return nil, err
	}
	// A caller that gets nothing for b.patience.call begins again.
	soon, cancel := context.WithTimeout(ctx, b.patience.call/2)
	defer cancel()
	for {
		wait := ctx
		if len(msgs) > 0 {
			wait = soon
		}
		msg, err := answers.NextMsgWithContext(wait)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return nil, jetstream.ErrMsgNotFound
		case err != nil && len(msgs) > 0:
			return msgs, nil
		case err != nil:
			return nil, err
		}
		switch status := msg.Header.Get("Status"); status {
		case "":
		case "204": // the batch is complete
			return msgs, nil
		case "404":
			return nil, jetstream.ErrMsgNotFound
		default:
			return nil, fmt.Errorf("direct read of %s: the server answers %s %s", subject, status, msg.Header.Get("Description"))
		}
		sequence, err := strconv.ParseUint(msg.Header.Get(jetstream.SequenceHeader), 10, 64)
		if err != nil || sequence < from || msg.Header.Get(jetstream.SubjectHeader) != subject {
			return nil, errAgain{fmt.Errorf("direct read of %s: %w", subject, errGap)}
		}
		from = sequence + 1
		msgs = append(msgs, &jetstream.RawStreamMsg{Subject: subject, Sequence: sequence, Data: msg.Data})
		if msg.Header.Get("Nats-Num-Pending") == "" {
			return msgs, nil
		}
	}
}

func encodeRequest(r getRequest) []byte {
	body, err := json.Marshal(r)
	if err != nil {
		panic("bus: request does not marshal: " + err.Error())
	}
	return body
}

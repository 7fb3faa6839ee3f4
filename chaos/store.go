package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"shaver/chaos/lan"
)

// The names under which blobs are stored, as docs/reference/formats.md gives them. This program
// bypasses internal/jobs/bus on purpose. It reads what is stored, and damages it, as a foreign
// program would.
const (
	blobStream  = "OBJ_SHAVER_BLOBS"
	chunkPrefix = "$O.SHAVER_BLOBS.C."
	metaPrefix  = "$O.SHAVER_BLOBS.M."
)

// store is this program's own connection to the nodes.
type store struct {
	nc *nats.Conn
	js jetstream.JetStream
}

func openStore(nodes []*node, dialer nats.CustomDialer) (*store, error) {
	var addresses []string
	for _, n := range nodes {
		addresses = append(addresses, n.client)
	}
	nc, err := nats.Connect(lan.URLs(addresses), nats.Name("chaos"), nats.SetCustomDialer(dialer), nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.PingInterval(2*time.Second), nats.MaxPingsOutstanding(1),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // the calls report these errors
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &store{nc, js}, nil
}

func (s *store) close() { s.nc.Close() }

// again calls f, each time with its own short deadline, until f succeeds or ctx ends.
func again(ctx context.Context, f func(context.Context) error) error {
	for {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := f(short)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %v)", ctx.Err(), err)
		}
	}
}

// ready waits until JetStream answers and all nodes are up.
func (s *store) ready(ctx context.Context, nodes int) error {
	return again(ctx, func(ctx context.Context) error {
		if _, err := s.js.AccountInfo(ctx); err != nil || nodes == 1 {
			return err
		}
		const probe = "chaos-probe"
		_, err := s.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: probe, Replicas: nodes})
		if err == nil {
			err = s.js.DeleteStream(ctx, probe)
		}
		return err
	})
}

// errNothing means that there is nothing to damage.
var errNothing = errors.New("nothing of that kind is stored")

// quota limits the blobs to their present size plus room bytes. A room of 0 removes the
// limit.
func (s *store) quota(ctx context.Context, room int64) error {
	stream, err := s.js.Stream(ctx, blobStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return errNothing
	}
	if err != nil {
		return err
	}
	about := stream.CachedInfo()
	about.Config.MaxBytes = -1
	if room > 0 {
		about.Config.MaxBytes = int64(about.State.Bytes) + room
	}
	_, err = s.js.UpdateStream(ctx, about.Config)
	return err
}

// states returns the state of each stream.
func (s *store) states(ctx context.Context) (map[string]jetstream.StreamState, error) {
	held := map[string]jetstream.StreamState{}
	list := s.js.ListStreams(ctx)
	for about := range list.Info() {
		held[about.Config.Name] = about.State
	}
	return held, list.Err()
}

// pick returns the name of the pick-th stream, or "" if no stream exists. It never picks
// the stream of the jobs, because a job without its record counts as ended.
func (s *store) pick(ctx context.Context, pick uint32) (string, error) {
	held, err := s.states(ctx)
	delete(held, "KV_SHAVER_JOBS")
	if err != nil || len(held) == 0 {
		return "", err
	}
	names := slices.Sorted(maps.Keys(held))
	return names[int(pick)%len(names)], nil
}

// lose deletes a stream.
func (s *store) lose(ctx context.Context, name string) error {
	if err := s.js.DeleteStream(ctx, name); !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	return nil
}

// bytes returns the number of bytes in all streams.
func (s *store) bytes(ctx context.Context) (n int64, err error) {
	held, err := s.states(ctx)
	for _, state := range held {
		n += int64(state.Bytes)
	}
	return n, err
}

// ended is the subject of the records of jobs that have ended, which the server keeps.
const ended = "$KV.SHAVER_JOBS.ended"

// leftovers returns a line for each stream that holds messages other than records of jobs that have ended.
func (s *store) leftovers(ctx context.Context) (left []string, err error) {
	held, err := s.states(ctx)
	if err != nil {
		return nil, err
	}
	if len(held) == 0 {
		return nil, errors.New("no stream exists")
	}
	for _, name := range slices.Sorted(maps.Keys(held)) {
		// The list may have what a node with damaged files believes. The stream's leader alone answers this.
		stream, err := s.js.Stream(ctx, name)
		if err != nil {
			return nil, err
		}
		n := stream.CachedInfo().State.Msgs
		if n == 0 {
			continue
		}
		on, err := s.subjects(ctx, name, ">")
		if err != nil {
			return nil, err
		}
		if len(on) == 1 && on[0] == ended {
			continue
		}
		left = append(left, fmt.Sprintf("%s holds %d messages: %s", name, n, strings.Join(on[:min(len(on), 8)], ", ")))
	}
	return left, nil
}

// subjects returns the subjects of a stream that match filter, in ascending order. Names
// of blobs are decoded.
func (s *store) subjects(ctx context.Context, stream, filter string) ([]string, error) {
	handle, err := s.js.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	about, err := handle.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, err
	}
	var on []string
	for subject := range about.State.Subjects {
		if coded, ok := strings.CutPrefix(subject, metaPrefix); ok {
			if name, err := base64.URLEncoding.DecodeString(coded); err == nil {
				subject = metaPrefix + string(name)
			}
		}
		on = append(on, subject)
	}
	slices.Sort(on)
	return on, nil
}

// corrupt flips a bit of the pick-th stored blob whose name has the prefix, and returns
// the blob's name.
func (s *store) corrupt(ctx context.Context, prefix string, pick uint32) (string, error) {
	on, err := s.subjects(ctx, blobStream, metaPrefix+"*")
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "", errNothing
	}
	if err != nil {
		return "", err
	}
	on = slices.DeleteFunc(on, func(subject string) bool { return !strings.HasPrefix(subject, metaPrefix+prefix) })
	if len(on) == 0 {
		return "", errNothing
	}
	name := strings.TrimPrefix(on[int(pick)%len(on)], metaPrefix)
	stream, err := s.js.Stream(ctx, blobStream)
	if err != nil {
		return "", err
	}
	token, err := token(ctx, stream, name)
	if err != nil {
		return "", err
	}
	chunks, err := chunksOf(ctx, stream, token)
	if err != nil || len(chunks) == 0 {
		return "", absent(err)
	}
	chunk := chunks[int(pick/7)%len(chunks)]
	chunk[int(pick/11)%len(chunk)] ^= 1 << (pick % 8)
	return name, s.overwrite(stream, name, token, chunks)
}

// absent turns a missing message into errNothing.
func absent(err error) error {
	if err == nil || errors.Is(err, jetstream.ErrMsgNotFound) {
		return errNothing
	}
	return err
}

// token returns the token of a blob's chunks.
func token(ctx context.Context, stream jetstream.Stream, name string) (string, error) {
	msg, err := stream.GetLastMsgForSubject(ctx, metaPrefix+base64.URLEncoding.EncodeToString([]byte(name)))
	if err != nil {
		return "", absent(err)
	}
	var about jetstream.ObjectInfo
	if err := json.Unmarshal(msg.Data, &about); err != nil {
		return "", err
	}
	return about.NUID, nil
}

func chunksOf(ctx context.Context, stream jetstream.Stream, token string) (chunks [][]byte, err error) {
	for next := uint64(1); ; {
		msg, err := stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject(chunkPrefix+token))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return chunks, nil
		}
		if err != nil {
			return nil, err
		}
		chunks, next = append(chunks, msg.Data), msg.Sequence+1
	}
}

// overwrite replaces the chunks of a blob. It always completes, because chunks that it
// left behind would look like a fault of the tested programs.
func (s *store) overwrite(stream jetstream.Stream, name, at string, chunks [][]byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	purge := func(ctx context.Context) error { return stream.Purge(ctx, jetstream.WithPurgeSubject(chunkPrefix+at)) }
	if err := again(ctx, purge); err != nil {
		return err
	}
	for _, chunk := range chunks {
		err := again(ctx, func(ctx context.Context) error {
			_, err := s.js.Publish(ctx, chunkPrefix+at, chunk)
			return err
		})
		if err != nil {
			return err
		}
	}
	return again(ctx, func(ctx context.Context) error { // the blob may have been deleted in the meantime
		now, err := token(ctx, stream, name)
		if errors.Is(err, errNothing) || err == nil && now != at {
			return purge(ctx)
		}
		return err
	})
}

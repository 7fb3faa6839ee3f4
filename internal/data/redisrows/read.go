package redisrows

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"shaver/internal/base/fault"
)

// ErrStale is returned by Fill if the store does not have all rows of the generation any more. The caller reads
// the head again.
var ErrStale = errors.New("the generation is not in the store any more")

// Generation is a generation that was in the store.
type Generation struct {
	State
	kept bits
}

// bits say which rows of each piece keep an entry: the bit ID%8 of the byte ID/8. A row after the last byte keeps none.
type bits [][]byte

func (b bits) has(piece, id int) bool {
	return piece < len(b) && id/8 < len(b[piece]) && b[piece][id/8]>>(id%8)&1 == 1
}

func (b *bits) set(piece, id int, keeps bool) {
	for piece >= len(*b) {
		*b = append(*b, nil)
	}
	row := &(*b)[piece]
	for id/8 >= len(*row) {
		*row = append(*row, 0)
	}
	(*row)[id/8] &^= 1 << (id % 8)
	if keeps {
		(*row)[id/8] |= 1 << (id % 8)
	}
}

// encode returns the bits as bytes: for each piece their number (uint32), and then themselves.
func (b bits) encode() (value []byte) {
	for _, piece := range b {
		value = append(binary.LittleEndian.AppendUint32(value, uint32(len(piece))), piece...)
	}
	return value
}

// decodeBits decodes a value of encode. A malformed one is false.
func decodeBits(value []byte) (b bits, ok bool) {
	for len(value) > 0 {
		if len(value) < 4 || int64(len(value)-4) < int64(binary.LittleEndian.Uint32(value)) {
			return nil, false
		}
		end := 4 + int(binary.LittleEndian.Uint32(value))
		b, value = append(b, value[4:end]), value[end:]
	}
	return b, true
}

// check returns State.Check.
func check(head, kept []byte) string {
	sum := sha256.New()
	sum.Write(head)
	sum.Write(kept)
	return hex.EncodeToString(sum.Sum(nil))
}

// lost is the error for a key that is missing or has another value than a loader wrote.
func (s *Store) lost(key string, g int64) error {
	return fault.Inputf("%s: the key %s is missing or damaged: write a whole delta of generation %d, and load it by shaver model apply --repair; Redis must not evict keys", s.name, key, g)
}

// Head returns the generation that the store has, and its head. An empty store is bad input.
func (s *Store) Head(ctx context.Context) (*Generation, []byte, error) {
	for {
		state, err := s.State(ctx)
		if err != nil {
			return nil, nil, err
		}
		if state == nil {
			return nil, nil, fault.Inputf("%s has no model: load a whole delta", s.name)
		}
		values, err := s.client.MGet(ctx, s.key("head", state.Generation), s.key("kept", state.Generation)).Result()
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", s.name, err)
		}
		head, _ := values[0].(string)
		kept, _ := values[1].(string)
		if b, ok := decodeBits([]byte(kept)); ok && check([]byte(head), []byte(kept)) == state.Check {
			return &Generation{*state, b}, []byte(head), nil
		}
		// A loader has removed the head since the state was read, or somebody else has.
		if again, err := s.State(ctx); err != nil || again != nil && *again == *state {
			if err == nil {
				err = s.lost(s.key("head", state.Generation)+" or "+s.key("kept", state.Generation), state.Generation)
			}
			return nil, nil, err
		}
	}
}

// Place is where the kept entries of a row go.
type Place struct {
	Piece, ID int
	Values    []float32 // [columns]
}

// readRows is the number of rows that one command reads.
const readRows = 500

// Fill sets the kept entries of n rows of a generation. place returns a row. newer reports whether
// there is a newer generation. The rows are those of one generation, or Fill returns ErrStale. A row that is missing or
// damaged is bad input.
func (s *Store) Fill(ctx context.Context, g *Generation, n int, place func(i int) Place) (newer bool, err error) {
	var places []Place
	for i := range n {
		if p := place(i); g.kept.has(p.Piece, p.ID) {
			places = append(places, p)
		}
	}
	var reads []*redis.SliceCmd
	var now *redis.StringCmd
	_, err = s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for part := range slices.Chunk(places, readRows) {
			keys := make([]string, len(part))
			for i, at := range part {
				keys[i] = s.rowKey(g.Base, at.Piece, at.ID)
			}
			reads = append(reads, p.MGet(ctx, keys...))
		}
		now = p.Get(ctx, s.key("state")) // after the rows
		return nil
	})
	if err != nil && err != redis.Nil {
		return false, fmt.Errorf("%s: %w", s.name, err)
	}
	current, err := s.state(now)
	if err != nil {
		return false, err
	}
	if current == nil {
		return false, fault.Inputf("%s has no model any more: load a whole delta", s.name)
	}
	newer = *current != g.State
	if newer && current.Generation <= g.Generation {
		return true, ErrStale
	}
	for k, read := range reads {
		for i, value := range read.Val() {
			at := places[k*readRows+i]
			text, _ := value.(string)
			v, ok := versionOf(text, len(at.Values), g.Generation)
			if !ok && newer {
				return true, ErrStale
			}
			if !ok {
				return false, s.lost(s.rowKey(g.Base, at.Piece, at.ID), g.Generation)
			}
			v.set(at.Values)
		}
	}
	return newer, nil
}

// versionOf returns the version that readers of a generation use of the value of a row. It is false if the value is
// damaged or has none.
func versionOf(value string, width int, generation int64) (version, bool) {
	all, _ := versions([]byte(value), width)
	i := slices.IndexFunc(all, func(v version) bool { return v.generation() <= generation })
	if i < 0 {
		return version{}, false
	}
	return all[i], true
}

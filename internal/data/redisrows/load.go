package redisrows

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"shaver/internal/base/fault"
)

// Change is a delta to load.
type Change struct {
	Generation  int64
	Model, Mask string // digests, as in State
	Whole       bool   // whether it has all rows
	Digest      string // of the delta
	Head        []byte
	// Repair writes what is missing or damaged of the generation that the store has. The delta must be whole, and of
	// this generation.
	Repair bool
	// Check returns an error if the delta does not apply to a store with the given state, which is nil for an
	// empty store. It is called before anything changes.
	Check func(*State) error
	// Rows calls each for the rows, always in the same order.
	Rows func(each func(*Row) error) error
}

// Loaded says what Load did.
type Loaded struct {
	Generation int64 `json:"generation"`
	Rows       int64 `json:"rows"`    // of the delta
	Skipped    int64 `json:"skipped"` // rows that an earlier, interrupted loader had written
	Written    int64 `json:"written"` // rows that this loader wrote
	Bytes      int64 `json:"bytes"`   // of the keys and values that it wrote
	Removed    int64 `json:"removed"` // keys that no reader needs any more
	Already    bool  `json:"already"` // whether the store had this generation before
}

// The size of a batch of rows.
const (
	batchRows  = 2000
	batchBytes = 1 << 20
)

// maxHead is the largest size of a value in Redis, in bytes.
const maxHead = 512 << 20

var errOvertaken = errors.New("another loader has taken over, or the keys were changed: run only one loader at a time, and start this one again")

// Load brings the store to the generation of a delta. If the process dies, another call of Load with the same
// delta continues. Until Load returns, readers use the generation before.
func (s *Store) Load(ctx context.Context, c *Change) (*Loaded, error) {
	if len(c.Head) > maxHead {
		return nil, fault.Inputf("the head has %d bytes, and a value in Redis has at most %d: a model with more first-order weights cannot be loaded", len(c.Head), maxHead)
	}
	l := &loader{Store: s, change: c, result: Loaded{Generation: c.Generation}}
	err := l.begin(ctx)
	if err == nil && !l.result.Already {
		err = l.run(ctx)
	}
	if errors.Is(err, redis.TxFailedErr) {
		err = errOvertaken
	}
	if redis.IsReadOnlyError(err) || redis.IsExecAbortError(err) { // a transaction does not say why
		if role, _ := s.client.Info(ctx, "replication").Result(); strings.Contains(role, "role:slave") {
			err = fault.Inputf("%s is a replica that cannot be written: expected the address of the server that it copies", s.name)
		}
	}
	if err != nil {
		if !fault.IsInput(err) && !fault.IsUsage(err) && ctx.Err() == nil {
			err = fmt.Errorf("%s: %w", s.name, err)
		}
		return nil, err
	}
	return &l.result, nil
}

// loader is one call of Load.
type loader struct {
	*Store
	change *Change
	result Loaded
	state  *State // before
	kept   bits   // of the delta
	repair bool   // whether the store has the generation before
	at     loading
	batch  []pending
	bytes  int // of batch
	line   int64
}

// pending is a version of a row that is not written yet.
type pending struct {
	key   string
	width int
	bytes []byte // nil for a row that keeps nothing
}

// begin checks the delta, and makes this process the loader.
func (l *loader) begin(ctx context.Context) error {
	return l.client.Watch(ctx, func(tx *redis.Tx) (err error) {
		if l.state, err = l.Store.state(tx.Get(ctx, l.key("state"))); err != nil {
			return err
		}
		before, err := decode[loading](l.Store, tx.Get(ctx, l.key("loading")), "loading")
		if err != nil {
			return err
		}
		s := l.state
		same := s != nil && s.Generation == l.change.Generation && s.Model == l.change.Model && s.Mask == l.change.Mask
		l.repair, l.result.Already = same && l.change.Repair && l.change.Whole, same && !l.change.Repair
		switch {
		case l.result.Already:
			return nil
		case l.change.Repair && s != nil && !l.repair:
			return fault.Inputf("%s has generation %d, the model %.12s: expected a whole delta of these for a repair", l.name, s.Generation, s.Model)
		}
		if err := l.change.Check(l.state); err != nil {
			return err
		}
		l.at = loading{Generation: l.change.Generation, Base: l.change.Generation, Delta: l.change.Digest, Loader: rand.Text()}
		if !l.change.Whole || l.repair {
			l.at.Base = s.Base
		}
		if !l.change.Whole {
			g, _, err := l.Head(ctx)
			if err != nil {
				return err
			}
			l.kept = g.kept
		}
		if s != nil && s.Generation >= l.change.Generation && !l.repair {
			return fault.Inputf("%s has generation %d, and the delta has %d: expected a larger number", l.name, s.Generation, l.change.Generation)
		}
		if before != nil && s != nil && before.Generation == s.Generation {
			before = nil // a repair that did not end
		}
		again := before != nil && before.Delta == l.change.Digest
		switch {
		case again:
			l.at.Line = before.Line
		case before != nil && (!l.change.Whole || l.repair):
			return fault.Inputf("%s: another delta of generation %d is half loaded: load it to its end, or load a whole delta of a later generation", l.name, before.Generation)
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, l.key("loading"), encode(&l.at), 0)
			p.SAdd(ctx, l.key("generations"), l.change.Generation)
			return nil
		})
		if err == nil && l.change.Whole && !again && !l.repair {
			err = l.removeBase(ctx, l.at.Base) // what another whole delta of this generation left
		}
		return err
	}, l.key("state"), l.key("loading"))
}

// run writes the rows and the head, and switches the state.
func (l *loader) run(ctx context.Context) error {
	if err := l.sweep(ctx); err != nil {
		return err
	}
	if l.change.Whole {
		if err := l.client.SAdd(ctx, l.key("bases"), l.at.Base).Err(); err != nil {
			return err
		}
	}
	err := l.change.Rows(func(r *Row) error {
		if r.Width > maxWidth {
			return fault.Inputf("a row has %d columns, expected at most %d", r.Width, maxWidth)
		}
		l.line++
		l.result.Rows++
		absent := len(r.Columns) == 0 && !l.kept.has(r.Piece, r.ID) // as in a whole delta
		l.kept.set(r.Piece, r.ID, len(r.Columns) > 0)
		if l.line <= l.at.Line {
			l.result.Skipped++
			return nil
		}
		if absent {
			return nil
		}
		p := pending{key: l.rowKey(l.at.Base, r.Piece, r.ID), width: r.Width}
		if len(r.Columns) > 0 {
			p.bytes = newVersion(l.change.Generation, r)
		}
		l.batch = append(l.batch, p)
		l.bytes += len(p.bytes) + len(p.key)
		if len(l.batch) < batchRows && l.bytes < batchBytes {
			return nil
		}
		return l.flush(ctx)
	})
	if err != nil {
		return err
	}
	if err := l.flush(ctx); err != nil {
		return err
	}
	head, kept := l.key("head", l.change.Generation), l.kept.encode()
	l.result.Bytes += int64(len(head) + len(l.change.Head) + len(kept))
	return l.fenced(ctx, func(*redis.Tx) (func(redis.Pipeliner), error) {
		return func(p redis.Pipeliner) {
			p.Set(ctx, head, l.change.Head, 0)
			p.Set(ctx, l.key("kept", l.change.Generation), kept, 0)
			p.Set(ctx, l.key("state"), encode(&State{Version, l.change.Generation, l.at.Base, l.change.Model, l.change.Mask, check(l.change.Head, kept)}), 0)
			p.Del(ctx, l.key("loading"))
		}, nil
	})
}

// fenced runs the commands that prepare returns in one step, unless another process is the loader. prepare may
// read.
func (l *loader) fenced(ctx context.Context, prepare func(tx *redis.Tx) (func(redis.Pipeliner), error)) error {
	return l.client.Watch(ctx, func(tx *redis.Tx) error {
		if now, err := tx.Get(ctx, l.key("loading")).Result(); err != nil && err != redis.Nil {
			return err
		} else if now != encode(&l.at) {
			return errOvertaken
		}
		write, err := prepare(tx)
		if err != nil {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			write(p)
			return nil
		})
		return err
	}, l.key("loading"))
}

// flush writes the batch and how far the delta is written, in one step.
func (l *loader) flush(ctx context.Context) error {
	if len(l.batch) == 0 {
		return nil
	}
	next := l.at
	next.Line = l.line
	err := l.fenced(ctx, func(tx *redis.Tx) (func(redis.Pipeliner), error) {
		pairs, gone, err := l.pairs(ctx, tx)
		if err != nil {
			return nil, err
		}
		return func(p redis.Pipeliner) {
			if len(pairs) > 0 {
				p.MSet(ctx, pairs...)
			}
			if len(gone) > 0 {
				p.RPush(ctx, l.key("gone", l.change.Generation), gone...)
			}
			p.Set(ctx, l.key("loading"), encode(&next), 0)
		}, nil
	})
	l.at, l.batch, l.bytes = next, l.batch[:0], 0
	return err
}

// pairs returns the keys and new values of the batch, and the keys of rows that keep nothing.
func (l *loader) pairs(ctx context.Context, tx *redis.Tx) (pairs, gone []any, err error) {
	old := make([]any, len(l.batch))
	if !l.change.Whole || l.repair { // the rows of another whole delta have new keys
		keys := make([]string, len(l.batch))
		for i := range l.batch {
			keys[i] = l.batch[i].key
		}
		if old, err = tx.MGet(ctx, keys...).Result(); err != nil {
			return nil, nil, err
		}
	}
	for i := range l.batch {
		p := &l.batch[i]
		value := p.bytes
		text, there := old[i].(string)
		if value == nil {
			if there {
				gone = append(gone, p.key)
			}
			continue
		}
		if l.repair {
			if v, ok := versionOf(text, p.width, l.change.Generation); ok && bytes.Equal(v.row(), version{value, p.width}.row()) {
				continue
			}
		} else if there {
			found, err := versions([]byte(text), p.width)
			if err != nil {
				return nil, nil, l.lost(p.key, l.state.Generation)
			}
			if found[0].generation() == l.change.Generation { // an interrupted loader wrote it
				found = found[1:]
			}
			if len(found) > 0 {
				value = append(slices.Clip(value), found[0].bytes...)
			}
		}
		pairs = append(pairs, p.key, value)
		l.result.Written++
		l.result.Bytes += int64(len(p.key) + len(value))
	}
	return pairs, gone, nil
}

// sweep removes what readers of the present generation do not need: earlier heads, rows that keep nothing, and
// the rows of earlier whole deltas.
func (l *loader) sweep(ctx context.Context) error {
	if l.state == nil {
		return nil
	}
	generations, err := l.numbers(ctx, "generations")
	if err != nil {
		return err
	}
	for _, g := range generations {
		if g > l.state.Generation {
			continue
		}
		if err := l.removeGone(ctx, g); err != nil {
			return err
		}
		if g < l.state.Generation {
			if err := l.client.Del(ctx, l.key("head", g), l.key("kept", g)).Err(); err != nil {
				return err
			}
			if err := l.client.SRem(ctx, l.key("generations"), g).Err(); err != nil {
				return err
			}
		}
	}
	bases, err := l.numbers(ctx, "bases")
	if err != nil {
		return err
	}
	for _, b := range bases {
		if b != l.state.Base && b != l.at.Base {
			if err := l.removeBase(ctx, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// numbers returns the members of a set, ascending.
func (s *Store) numbers(ctx context.Context, set string) ([]int64, error) {
	members, err := s.client.SMembers(ctx, s.key(set)).Result()
	var all []int64
	for _, m := range members {
		n, err := strconv.ParseInt(m, 10, 64)
		if err != nil {
			return nil, fault.Inputf("%s: the set %s has the member %q, expected numbers", s.name, s.key(set), m)
		}
		all = append(all, n)
	}
	slices.Sort(all)
	return all, err
}

// removeGone removes rows that keep nothing since generation g, which is not later than that of the readers.
func (l *loader) removeGone(ctx context.Context, g int64) error {
	list := l.key("gone", g)
	for {
		keys, err := l.client.LRange(ctx, list, 0, batchRows-1).Result()
		if err != nil || len(keys) == 0 {
			return err
		}
		err = l.fenced(ctx, func(tx *redis.Tx) (func(redis.Pipeliner), error) {
			values, err := tx.MGet(ctx, keys...).Result()
			if err != nil {
				return nil, err
			}
			var dead []string
			for i, v := range values {
				// The newest version is in front. If it is of a later generation, the row keeps an entry again.
				if text, ok := v.(string); ok && len(text) >= 4 && (version{[]byte(text), 0}).generation() <= g {
					dead = append(dead, keys[i])
				}
			}
			l.result.Removed += int64(len(dead))
			return func(p redis.Pipeliner) {
				if len(dead) > 0 {
					p.Unlink(ctx, dead...)
				}
				p.LTrim(ctx, list, int64(len(keys)), -1)
			}, nil
		})
		if err != nil {
			return err
		}
	}
}

// removeBase removes the rows of a whole delta and of those that follow it.
func (l *loader) removeBase(ctx context.Context, base int64) error {
	var cursor uint64
	for {
		keys, next, err := l.client.Scan(ctx, cursor, l.key(base, "*"), batchRows).Result()
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			if err := l.client.Unlink(ctx, keys...).Err(); err != nil {
				return err
			}
			l.result.Removed += int64(len(keys))
		}
		if cursor = next; cursor == 0 {
			return l.client.SRem(ctx, l.key("bases"), base).Err()
		}
	}
}

package merger

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"golang.org/x/sync/errgroup"

	"shaver/internal/num/layout"
	"shaver/internal/value/path"
)

// pieceBytes is the largest number of bytes of a piece. In JSON they are a third longer.
const pieceBytes = 384 << 10

// entries returns the entries [from, to) of range i.
func (r *Ranges) entries(i int) (from, to int) {
	at := func(row int) int {
		if row == r.shape.Rows() {
			return r.shape.Entries()
		}
		from, _ := r.shape.Row(row)
		return from
	}
	return at(r.starts[i]), at(r.starts[i+1])
}

// send sends all mergers bytes of the entries of their ranges, which make returns.
func (r *Ranges) send(ctx context.Context, mask bool, make func(from, to int) []byte) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, m := range r.mergers {
		group.Go(func() error {
			at := 0
			from, to := r.entries(i)
			for step := 2 * pieceBytes; from < to; from += step { // a multiple of 8 entries
				data := make(from, min(from+step, to))
				for ; len(data) > 0; data = data[min(pieceBytes, len(data)):] {
					part := data[:min(pieceBytes, len(data))]
					if _, err := m.ask(ctx, question{Bytes: &piece{mask, at, part}}); err != nil {
						return err
					}
					at += len(part)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// sendTables sends the weights of a path.
func (r *Ranges) sendTables(ctx context.Context) error {
	if r.tables == nil {
		return nil
	}
	return r.send(ctx, false, func(from, to int) []byte {
		data := make([]byte, 0, 4*(to-from))
		for _, x := range r.tables[from:to] {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
		return data
	})
}

// Begin begins a round of a path; see path.Terms.Begin. unmeasured has all entries.
func (r *Ranges) Begin(ctx context.Context, number int, unmeasured layout.Mask, f path.Fade) (fall float64, err error) {
	if err := r.send(ctx, true, func(from, to int) []byte { return unmeasured.Part(from, to) }); err != nil {
		return 0, err
	}
	answers, err := r.all(ctx, func(int) question { return question{Round: &round{number, f}} })
	for _, a := range answers {
		if err == nil && a.Fall == nil {
			return math.NaN(), nil
		}
		if err == nil {
			fall += *a.Fall
		}
	}
	return fall, err
}

// End ends the measurement of a round of a path; see path.Terms.End.
func (r *Ranges) End(ctx context.Context, passes float64) error {
	_, err := r.all(ctx, func(int) question { return question{Passes: passes} })
	return err
}

// Order returns the order of a path over all ranges; see path.Terms.Order.
func (r *Ranges) Order(ctx context.Context, by path.Rank) path.Next {
	lists := make([]list, len(r.mergers))
	begun := false
	return func() (int32, float64, error) {
		if !begun { // the mergers sort at the same time
			group, ctx := errgroup.WithContext(ctx)
			for i := range lists {
				group.Go(func() error { return r.more(ctx, i, by, &lists[i]) })
			}
			if err := group.Wait(); err != nil {
				return 0, 0, err
			}
			begun = true
		}
		var lowest *list
		for i := range lists {
			if l := &lists[i]; len(l.entries) > 0 && (lowest == nil || r.before(l, lowest)) {
				lowest = l
			}
		}
		if lowest == nil {
			return 0, 0, io.EOF
		}
		entry, key := lowest.entries[0], lowest.keys[0]
		if lowest.entries, lowest.keys = lowest.entries[1:], lowest.keys[1:]; len(lowest.entries) == 0 {
			if err := r.more(ctx, lowest.of, by, lowest); err != nil {
				return 0, 0, err
			}
		}
		return entry, key, nil
	}
}

// list is what is fetched of the order of a range.
type list struct {
	of, at  int     // range, and position of the next entry to fetch
	entries []int32 // with the numbers of all ranges
	keys    []float64
}

// more fetches the next entries of range i, if it has more.
func (r *Ranges) more(ctx context.Context, i int, by path.Rank, l *list) error {
	n := answerBytes / keyBytes
	a, err := r.mergers[i].ask(ctx, question{Order: &order{by, span{l.at, l.at + n}}})
	if err != nil {
		return err
	}
	l.of = i
	if l.entries, l.keys, err = decodeOrder(a.body); err != nil {
		return err
	}
	l.at += len(l.entries)
	from, to := r.entries(i)
	for k := range l.entries {
		if l.entries[k] += int32(from); int(l.entries[k]) < from || int(l.entries[k]) >= to {
			return fmt.Errorf("a merger orders entry %d, expected one of %d to %d", l.entries[k], from, to)
		}
	}
	return nil
}

// before reports whether the next entry of a comes before that of b.
func (r *Ranges) before(a, b *list) bool {
	i, j := a.entries[0], b.entries[0]
	size := func(i int32) float64 { return math.Abs(float64(r.tables[i])) }
	return cmp.Or(cmp.Compare(a.keys[0], b.keys[0]), cmp.Compare(size(i), size(j)), cmp.Compare(i, j)) < 0
}

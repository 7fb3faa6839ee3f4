// Package synth writes raw click logs of any size in the published formats of Criteo,
// Avazu and KDD Cup 2012 track 2, and ratings of items by users. The logs are for tests,
// benchmarks and demonstrations of readers. Values follow Zipf's law over the cardinalities of the real files,
// independently for each column. Labels are drawn from a planted logistic model.
//
// A row depends only on the seed and its number. In Avazu's form, whose rows are ordered
// by time, it also depends on the number of rows.
package synth

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"shaver/internal/base/fault"
)

// The compressions of the output.
const (
	Plain = ""
	Gzip  = "gzip"
	Zstd  = "zstd"
)

// Config describes the log to write.
type Config struct {
	Shape       string // one of Shapes
	Rows        int64  // at least 1
	Seed        uint64
	Compression string         // Plain, Gzip or Zstd
	Threads     int            // number of goroutines, at least 1; the bytes do not depend on it
	OnRows      func(rows int) // called after rows are written; nil means no call
}

// Facts describes the log that was written.
type Facts struct {
	Rows      int64 `json:"rows"`
	Positives int64 `json:"positives"` // number of rows with the label 1
	Bytes     int64 `json:"bytes"`     // size before compression
	// AUC is that of the probabilities from which the labels were drawn. No model of the
	// columns has a higher one on average. It is nil if all labels are the same.
	AUC *float64 `json:"auc"`
}

// chunkRows is the number of rows that are generated and compressed together. Each chunk
// is a gzip member or a zstd frame.
const chunkRows = 8192

// Write writes the log to w. It keeps a few chunks per goroutine in memory. It returns
// the first error of w, or ctx's error if ctx ends first.
func Write(ctx context.Context, w io.Writer, c Config) (Facts, error) {
	if !slices.Contains(Shapes(), c.Shape) {
		return Facts{}, fault.Usagef("shape %q: expected one of %s", c.Shape, strings.Join(Shapes(), ", "))
	}
	if c.Rows < 1 {
		return Facts{}, fault.Usagef("%d rows: expected at least 1", c.Rows)
	}
	if c.Threads < 1 {
		panic(fmt.Sprintf("synth: %d threads", c.Threads))
	}
	l := newLaw(shapes[c.Shape], c.Rows, c.Seed)
	group, ctx := errgroup.WithContext(ctx)
	lanes := make([]lane, c.Threads)
	for i := range lanes {
		lanes[i] = lane{make(chan chunk), make(chan chunk, 2), new(tally)}
		group.Go(func() error { return lanes[i].fill(ctx, l, &c, int64(i)) })
	}
	var facts Facts
	group.Go(func() (err error) {
		facts, err = collect(ctx, w, lanes, &c)
		return err
	})
	if err := group.Wait(); err != nil {
		return facts, err
	}
	var all tally
	for i := range lanes {
		all.add(lanes[i].tally)
	}
	facts.AUC = all.auc()
	return facts, nil
}

// tally counts rows by the places of their logits and by labels.
type tally [2*maxLogit + 1][2]int64

func (t *tally) add(o *tally) {
	for place := range t {
		t[place][0] += o[place][0]
		t[place][1] += o[place][1]
	}
}

// auc returns the AUC of the logits, or nil if all labels are the same.
func (t *tally) auc() *float64 {
	var pairs, no, yes float64 // pairs of rows with different labels in the right order; rows by label so far
	for _, rows := range t {
		pairs += float64(float64(rows[1]) * (no + float64(rows[0])/2))
		no += float64(rows[0])
		yes += float64(rows[1])
	}
	if no == 0 || yes == 0 {
		return nil
	}
	auc := pairs / no / yes
	return &auc
}

func (c *Config) chunks() int64 { return (c.Rows-1)/chunkRows + 1 }

// chunk is a sequence of rows.
type chunk struct {
	Facts
	text []byte
	data []byte // output: text, or compressed text
}

// lane carries the chunks of one goroutine. With n lanes, lane k carries chunks k, k + n,
// k + 2n, ...
type lane struct {
	full   chan chunk
	free   chan chunk // written chunks, whose memory is reused
	*tally            // of the rows of all chunks
}

func (n *lane) fill(ctx context.Context, l *law, c *Config, first int64) error {
	compress, err := compressor(c.Compression)
	if err != nil {
		return err
	}
	for k := first; k < c.chunks(); k += int64(c.Threads) {
		var next chunk
		select {
		case next = <-n.free:
		default:
		}
		next.make(l, k, n.tally)
		if next.data, err = compress(next.data[:0], next.text); err != nil {
			return err
		}
		select {
		case n.full <- next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// make fills k with the rows of the chunk that has the given number, and adds them to t.
func (k *chunk) make(l *law, number int64, t *tally) {
	k.text, k.Facts = k.text[:0], Facts{}
	if number == 0 {
		k.text = append(k.text, l.shape.header...)
	}
	var r row
	from := number * chunkRows
	for i := from; i < l.rows && i-from < chunkRows; i++ {
		t[l.row(&r, i)][r.label]++
		k.text = l.shape.write(k.text, l, &r)
		k.Rows++
		k.Positives += int64(r.label)
	}
	k.Bytes = int64(len(k.text))
}

// collect writes the chunks in order.
func collect(ctx context.Context, w io.Writer, lanes []lane, c *Config) (Facts, error) {
	var sum Facts
	for k := range c.chunks() {
		from := &lanes[k%int64(len(lanes))]
		select {
		case next := <-from.full:
			if _, err := w.Write(next.data); err != nil {
				return sum, err
			}
			sum.Rows, sum.Positives, sum.Bytes = sum.Rows+next.Rows, sum.Positives+next.Positives, sum.Bytes+next.Bytes
			if c.OnRows != nil {
				c.OnRows(int(next.Rows))
			}
			select {
			case from.free <- next:
			default:
			}
		case <-ctx.Done():
			return sum, ctx.Err()
		}
	}
	return sum, nil
}

// compressor returns a function that appends compressed text to a slice.
func compressor(kind string) (func(to, text []byte) ([]byte, error), error) {
	switch kind {
	case Plain:
		return func(_, text []byte) ([]byte, error) { return text, nil }, nil
	case Gzip:
		w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
		return func(to, text []byte) ([]byte, error) {
			out := bytes.NewBuffer(to)
			w.Reset(out)
			_, err := w.Write(text)
			if err == nil {
				err = w.Close()
			}
			return out.Bytes(), err
		}, err
	case Zstd:
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		return func(to, text []byte) ([]byte, error) { return w.EncodeAll(text, to), nil }, err
	}
	panic("synth: unknown compression " + kind)
}

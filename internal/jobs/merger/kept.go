package merger

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"

	"shaver/internal/base/fault"
	"shaver/internal/data/arrowio"
	"shaver/internal/jobs/bus"
	"shaver/internal/num/layout"
	"shaver/internal/value/path"
	"shaver/internal/value/tally"
	"shaver/internal/value/tallyio"
)

// Largest sizes that references to blobs may claim.
const (
	maxPartialBytes = 8 << 30
	maxSumsBytes    = 1 << 40
)

// kept is the range that a merger keeps.
type kept struct {
	*Config
	offer offer
	log   *zap.Logger
	stop  []func()
	ended chan struct{} // closed when the coordinator needs the range no more
	end   sync.Once
	ctx   context.Context // ends with the range
	over  context.CancelFunc

	mu     sync.Mutex
	heard  time.Time     // when the last question came
	number int64         // of the last question with work
	done   chan struct{} // closed when its work is done
	closed bool          // no more work may begin
	last   []byte        // the answer to it

	// Used only by work, which runs once at a time.
	begin   *begin
	shape   layout.Shape
	sums    *tally.Accumulator
	terms   *path.Terms    // of a path, whose sums are sums; otherwise nil
	tables  []float32      // weights of the entries of a path
	mask    layout.Mask    // entries that the round of a path does not measure
	pending *tally.Partial // fetched by the last Take; nil = none
}

// newKept returns the range of an offer. It answers from now on.
func newKept(c *Config, o offer) (*kept, error) {
	k := &kept{Config: c, offer: o, ended: make(chan struct{}), heard: time.Now(), done: make(chan struct{})}
	k.log = c.Log.With(zap.String("job", o.Job), zap.Int64("epoch", o.Epoch))
	k.ctx, k.over = context.WithCancel(context.Background())
	close(k.done)
	stop, err := c.Bus.AnswerMerger(o.Token, k.answer)
	if err != nil {
		return nil, err
	}
	k.stop = append(k.stop, stop)
	stop, err = c.Bus.ReceiveAsMerger(func(message []byte) {
		var later offer
		if json.Unmarshal(message, &later) == nil && later.Job == o.Job && later.Epoch > o.Epoch {
			k.leave("a newer coordinator leads the job")
		}
	})
	if err != nil {
		k.stop[0]()
		return nil, err
	}
	k.stop = append(k.stop, stop)
	return k, nil
}

// leave ends the range.
func (k *kept) leave(why string) {
	k.end.Do(func() {
		k.log.Info("the range is not kept any more", zap.String("why", why))
		close(k.ended)
	})
}

// keep answers questions until the range ends, the coordinator is silent, or ctx ends.
func (k *kept) keep(ctx context.Context) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for waiting := true; waiting; {
		select {
		case <-k.ended:
			waiting = false
		case <-ctx.Done():
			waiting = false
		case <-tick.C:
			k.mu.Lock()
			if k.Bus.Ready() != nil {
				k.heard = time.Now()
			}
			most := idleAfter
			if k.number == 0 {
				most = unbegunAfter
			}
			if time.Since(k.heard) > most {
				k.leave("its coordinator is silent")
			}
			k.mu.Unlock()
		}
	}
	for _, stop := range k.stop {
		stop()
	}
	k.over()
	k.mu.Lock()
	k.closed = true
	done := k.done
	k.mu.Unlock()
	<-done
	k.sums, k.terms, k.tables, k.pending = nil, nil, nil, nil // frees their memory, even if an answer is still on its way
}

// answer begins the work of a question, unless it has begun, and waits for its end. It answers
// after answerWithin in any case.
func (k *kept) answer(body []byte) []byte {
	var q question
	if err := json.Unmarshal(body, &q); err != nil {
		return nil
	}
	k.mu.Lock()
	k.heard = time.Now()
	if k.closed {
		k.mu.Unlock()
		return nil
	}
	if q.Number > k.number {
		select {
		case <-k.done:
			k.number, k.done = q.Number, make(chan struct{})
			go k.begun(&q, k.done)
		default: // the coordinator asks for other work before the last is done
		}
	}
	number, done := k.number, k.done
	k.mu.Unlock()
	if q.Number == 0 {
		return (&answer{}).encode()
	}
	if q.Number != number {
		return (&answer{Number: q.Number, Failed: fmt.Sprintf("question %d came after question %d", q.Number, number)}).encode()
	}
	select {
	case <-done:
		return k.last
	case <-time.After(answerWithin):
		return (&answer{Number: q.Number, Busy: true}).encode()
	}
}

// begun does the work of q and closes done.
func (k *kept) begun(q *question, done chan struct{}) {
	defer close(done)
	a, err := k.work(q)
	switch {
	case errors.Is(err, bus.ErrConflict):
		a = &answer{Conflict: true}
	case err != nil && k.ctx.Err() != nil: // the range ended meanwhile
		a = &answer{Failed: "the range ended", Gone: true}
	case err != nil:
		a = &answer{Failed: err.Error(), Gone: bus.IsGone(err)}
		k.log.Error("the range cannot continue", zap.Error(err))
	}
	a.Number = q.Number
	k.last = a.encode()
}

// work does the work of q.
func (k *kept) work(q *question) (*answer, error) {
	if p := k.pending; p != nil && q.Keep {
		if err := k.sums.Merge(p); err != nil {
			return nil, err
		}
	}
	k.pending = nil
	if k.sums == nil && q.Begin == nil && !q.End {
		return nil, errors.New("the range has not begun")
	}
	if k.terms == nil && (q.Bytes != nil || q.Round != nil || q.Passes != 0 || q.Order != nil) {
		return nil, errors.New("the range is not one of a path")
	}
	switch {
	case q.Begin != nil:
		return k.start(q.Begin)
	case q.Take != nil:
		return k.take(q.Take)
	case q.Save != "":
		blob, err := k.Bus.PutFrom(k.ctx, q.Save, k.write, nil)
		return &answer{Saved: &blob}, err
	case q.Summary:
		return &answer{Summary: k.sums.Summary()}, nil
	case q.Counts != nil:
		return k.counts(q.Counts)
	case q.Values != nil:
		return k.values(q.Values)
	case q.Bytes != nil:
		return &answer{}, k.receive(q.Bytes)
	case q.Round != nil:
		return k.round(q.Round)
	case q.Passes != 0:
		k.terms.End(q.Passes)
	case q.Order != nil:
		return k.order(q.Order)
	case q.End:
		k.leave("the job needs it no more")
	}
	return &answer{}, nil
}

// start begins the sums.
func (k *kept) start(b *begin) (a *answer, err error) {
	k.sums, k.terms, k.tables, k.mask, k.begin = nil, nil, nil, nil, b
	k.shape = layout.Shape{}
	for _, table := range b.Tables {
		if table[0] < 1 || table[1] < 1 || table[0] > math.MaxInt32 || table[1] > math.MaxInt32 {
			return nil, fmt.Errorf("a table of %d x %d", table[0], table[1])
		}
		k.shape = k.shape.And(table[0], table[1])
	}
	for _, s := range b.Fixed {
		if s.From < 0 || s.To < s.From || s.To > k.shape.Rows() {
			return nil, fmt.Errorf("rows %d to %d are never dropped, expected some of %d", s.From, s.To, k.shape.Rows())
		}
	}
	if b.Checkpoint == nil {
		k.empty()
		return &answer{}, nil
	}
	err = k.Bus.GetInto(k.ctx, *b.Checkpoint, maxSumsBytes, func(in io.Reader) error {
		k.sums, k.terms = nil, nil // frees the sums of an earlier try
		return k.read(in)
	})
	if why := unusable(err); why != "" {
		k.sums, k.terms = nil, nil
		k.empty()
		return &answer{Unusable: why}, nil
	}
	return &answer{}, err
}

// empty sets the sums to those of no rows.
func (k *kept) empty() {
	if !k.begin.Form.Path {
		k.sums = tally.NewAccumulator(k.shape, k.begin.Form.tally())
		return
	}
	var fixed []int
	for _, s := range k.begin.Fixed {
		for row := s.From; row < s.To; row++ {
			fixed = append(fixed, row)
		}
	}
	if k.tables == nil {
		k.tables, k.mask = make([]float32, k.shape.Entries()), layout.NewMask(k.shape.Entries())
	}
	k.terms = path.NewTerms(k.shape, k.begin.Form.tally(), fixed, k.tables)
	k.sums = k.terms.Sums
}

// receive sets a piece of the weights or of the mask.
func (k *kept) receive(p *piece) error {
	size := 4 * len(k.tables)
	if p.Mask {
		size = len(k.mask)
	}
	if p.At < 0 || p.At > size-len(p.Data) || !p.Mask && (p.At%4 != 0 || len(p.Data)%4 != 0) {
		return fmt.Errorf("%d bytes after the first %d, expected some of %d", len(p.Data), p.At, size)
	}
	if p.Mask {
		copy(k.mask[p.At:], p.Data)
		return nil
	}
	for i := range len(p.Data) / 4 {
		k.tables[p.At/4+i] = math.Float32frombits(binary.LittleEndian.Uint32(p.Data[4*i:]))
	}
	return nil
}

// round begins a round of a path.
func (k *kept) round(r *round) (*answer, error) {
	if err := k.mask.Check(k.shape.Entries()); err != nil {
		return nil, err
	}
	a := &answer{}
	if fall := k.terms.Begin(r.Number, k.mask, r.Fade); !math.IsNaN(fall) {
		a.Fall = &fall
	}
	return a, nil
}

// order answers with a part of an order.
func (k *kept) order(o *order) (*answer, error) {
	if o.From < 0 || o.To < o.From || (o.To-o.From)*keyBytes > 2*answerBytes {
		return nil, fmt.Errorf("entries %d to %d of an order, expected at most %d", o.From, o.To, 2*answerBytes/keyBytes)
	}
	return &answer{body: encodeOrder(k.terms.Lowest(o.Rank, o.From, o.To), k.terms.Key(o.Rank))}, nil
}

// take fetches and checks a partial.
func (k *kept) take(t *take) (*answer, error) {
	p, err := k.partial(t)
	if why := unusable(err); why != "" {
		return &answer{Unusable: why}, nil
	}
	k.pending = p
	return &answer{}, err
}

func (k *kept) partial(t *take) (*tally.Partial, error) {
	data, err := k.Bus.Get(k.ctx, t.Partial, maxPartialBytes)
	if err != nil {
		return nil, err
	}
	p, err := arrowio.DecodePartial(data, k.shape, k.begin.Form.tally(), k.mask)
	if err == nil && p.Rows != t.Rows {
		err = fault.Inputf("it has %d rows, expected %d as in its result", p.Rows, t.Rows)
	}
	if err == nil {
		err = p.Validate(&k.shape, k.begin.Form.tally())
	}
	if err != nil {
		return nil, fault.Inputf("partial %s: %w", t.Partial.Name, err)
	}
	return p, nil
}

// check returns an error if s is not a span of the range with at most mostAnswer bytes.
func (k *kept) check(s *span, bytes int) error {
	if s.From < 0 || s.To < s.From || s.To > k.shape.Rows() || (s.To-s.From)*bytes > 2*answerBytes {
		return fmt.Errorf("features %d to %d, expected some of %d", s.From, s.To, k.shape.Rows())
	}
	return nil
}

func (k *kept) counts(s *span) (*answer, error) {
	if err := k.check(s, 8); err != nil {
		return nil, err
	}
	body := make([]byte, 0, 8*(s.To-s.From))
	for f := s.From; f < s.To; f++ {
		body = binary.LittleEndian.AppendUint64(body, uint64(k.sums.Count(f)))
	}
	return &answer{body: body}, nil
}

// values answers with Phi, Abs, RMS, SE and PopulationSE of all entries of some features, in this
// order.
func (k *kept) values(v *values) (*answer, error) {
	if err := k.check(&v.span, entryBytes*k.shape.Widest()); err != nil {
		return nil, err
	}
	if v.From == v.To {
		return &answer{}, nil
	}
	first, _ := k.shape.Row(v.From)
	_, end := k.shape.Row(v.To - 1)
	all := tally.NewValues(end - first)
	for f := v.From; f < v.To; f++ {
		from, to := k.shape.Row(f)
		k.sums.Values(f, v.Sampling, all.Part(from-first, to-first))
	}
	return &answer{body: encodeValues(&all)}, nil
}

// The checkpoint of a range consists of
//   - rangeMagic;
//   - the length of the header as a uint32, and the header in JSON;
//   - the sums, as package tallyio writes them, or the terms of a path, as package path does.
const rangeMagic = "shaver.range/2\n"

type rangeHeader struct {
	Job    string `json:"job"`
	Range  int    `json:"range"`
	Ranges int    `json:"ranges"`
	Faded  int    `json:"faded,omitempty"` // see path.Terms.Faded
	tallyio.Header
}

func (k *kept) write(w io.Writer) error {
	h := rangeHeader{Job: k.offer.Job, Range: k.begin.Range, Ranges: k.begin.Ranges, Header: tallyio.HeaderOf(k.sums)}
	if k.terms != nil {
		h.Faded = k.terms.Faded()
	}
	if err := tallyio.WriteHead(w, rangeMagic, h); err != nil {
		return err
	}
	if k.terms != nil {
		return k.terms.Write(w)
	}
	return tallyio.Write(w, k.sums)
}

func (k *kept) read(r io.Reader) error {
	var h rangeHeader
	if err := tallyio.ReadHead(r, rangeMagic, &h); err != nil {
		return err
	}
	if h.Job != k.offer.Job || h.Range != k.begin.Range || h.Ranges != k.begin.Ranges {
		return fault.Inputf("range %d of %d of job %q, expected range %d of %d of job %s", h.Range, h.Ranges, h.Job, k.begin.Range, k.begin.Ranges, k.offer.Job)
	}
	if k.begin.Form.Path {
		k.empty()
		if err := k.terms.Read(r, &h.Header, h.Faded); err != nil {
			return err
		}
		k.sums = k.terms.Sums
		return tallyio.ReadEnd(r)
	}
	sums, err := tallyio.Read(r, &h.Header, k.shape, k.begin.Form.tally())
	if err != nil {
		return err
	}
	k.sums = sums
	return tallyio.ReadEnd(r)
}

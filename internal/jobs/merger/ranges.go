package merger

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"shaver/internal/base/fault"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/num/layout"
	"shaver/internal/value/tally"
)

// Ranges are the sums of a job, which mergers keep. Only one goroutine may use them at a time.
type Ranges struct {
	bus     *bus.Bus
	log     *zap.Logger
	shape   layout.Shape
	starts  []int     // see layout.Shape.Cut
	tables  []float32 // of a path; otherwise nil
	mergers []*remote
	lost    chan struct{}
	lose    sync.Once
	over    context.CancelFunc // ends the signs of life
	living  sync.WaitGroup
	failed  error // of Values; nil = none
}

// Job says whose sums to keep.
type Job struct {
	ID    string
	Epoch int64 // of the coordinator
	Shape layout.Shape
	Form  tally.Form // must not be that of a paired job
	// Only of a path: the rows whose entries are never dropped, ascending, and the weights of all entries.
	Fixed  []int
	Tables []float32
	// Check is called now and then while Acquire waits. If it returns an error, such as that
	// another coordinator leads the job, Acquire returns it.
	Check func(ctx context.Context) error
	// OnFound is called with the number of mergers found so far; nil = no call.
	OnFound func(mergers int)
}

// Acquire finds mergers for n ranges of the features of j. It waits until enough mergers are free.
// The mergers of an earlier coordinator of the job become free. The sums begin with the
// checkpoints of the ranges, or empty without checkpoints. If a checkpoint is missing or malformed,
// all sums begin empty, and fresh is true.
func Acquire(ctx context.Context, b *bus.Bus, j Job, n int, checkpoints []job.Blob, log *zap.Logger) (r *Ranges, fresh bool, err error) {
	living, over := context.WithCancel(context.WithoutCancel(ctx))
	r = &Ranges{bus: b, log: log, shape: j.Shape, starts: j.Shape.Cut(n), tables: j.Tables, lost: make(chan struct{}), over: over}
	defer func() {
		if err != nil {
			r.Close(context.WithoutCancel(ctx))
		}
	}()
	wait := waitLog{begun: time.Now()}
	for len(r.mergers) < n {
		m, err := r.find(ctx, &j, n, &wait)
		if err != nil {
			return r, false, err
		}
		r.mergers = append(r.mergers, m)
		if j.OnFound != nil {
			j.OnFound(len(r.mergers))
		}
		r.living.Go(func() { m.live(living) })
	}
	begin := func(i int) *begin {
		from, to := r.starts[i], r.starts[i+1]
		b := &begin{Range: i, Ranges: n, Tables: j.Shape.Tables(from, to), Form: form{j.Form.Within, j.Form.Corrected, j.Form.Weighted, j.Form.Path}}
		for _, row := range j.Fixed {
			switch last := len(b.Fixed) - 1; {
			case row < from || row >= to:
			case last >= 0 && b.Fixed[last].To == row-from:
				b.Fixed[last].To++
			default:
				b.Fixed = append(b.Fixed, span{row - from, row - from + 1})
			}
		}
		return b
	}
	answers, err := r.all(ctx, func(i int) question {
		b := begin(i)
		if len(checkpoints) > 0 {
			b.Checkpoint = &checkpoints[i]
		}
		return question{Begin: b}
	})
	if err != nil {
		return r, false, err
	}
	if why := firstUnusable(answers); why != "" {
		fresh = true
		log.Warn("the checkpoint is lost: the job begins with nothing merged", zap.String("why", why))
		if _, err = r.all(ctx, func(i int) question { return question{Begin: begin(i)} }); err != nil {
			return r, true, err
		}
	}
	return r, fresh, r.sendTables(ctx)
}

// waitLog says when a wait for mergers is logged.
type waitLog struct{ begun, logged time.Time }

const (
	waitFirst = 2 * time.Second  // until the first log line
	waitEvery = 15 * time.Second // between log lines
)

// due reports whether a log line is due now, and notes that it is written.
func (w *waitLog) due() bool {
	now := time.Now()
	due := now.Sub(w.begun) >= waitFirst && now.Sub(w.logged) >= waitEvery
	if due {
		w.logged = now
	}
	return due
}

// find returns a merger that is now this coordinator's.
func (r *Ranges) find(ctx context.Context, j *Job, n int, wait *waitLog) (*remote, error) {
	checked := time.Now()
	for {
		o := offer{Job: j.ID, Epoch: j.Epoch, Token: newToken()}
		text, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		if err := r.bus.SendToMergers(text); err != nil && ctx.Err() == nil {
			r.log.Debug("cannot free the mergers of an earlier coordinator", zap.Error(err))
		}
		data, err := r.bus.AskFree(ctx, text)
		switch {
		case err == nil:
			var a accepted
			if err := json.Unmarshal(data, &a); err != nil {
				return nil, fmt.Errorf("malformed answer of a merger: %w", err)
			}
			if a.Merger == "" {
				break
			}
			r.log.Debug("a merger keeps a range", zap.Int("range", len(r.mergers)), zap.String("merger", a.Merger))
			return &remote{Ranges: r, token: o.Token, name: a.Merger, heard: time.Now()}, nil
		case !errors.Is(err, bus.ErrUnanswered):
			return nil, err
		}
		if time.Since(checked) > pingEvery {
			if err := j.Check(ctx); err != nil {
				return nil, err
			}
			checked = time.Now()
		}
		if wait.due() {
			r.log.Warn("waiting for mergers", zap.Int("needed", n), zap.Int("found", len(r.mergers)), zap.Duration("since", time.Since(wait.begun).Round(time.Second)),
				zap.String("help", fmt.Sprintf(`--ranges=%d needs as many processes "coordinator merge" of this build that keep no range of another job: start more of them (mergers.replicas of the Helm chart), or cancel the job and submit it with fewer ranges`, n)))
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

func pause(ctx context.Context) error {
	select {
	case <-time.After(200 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// all asks all mergers at once. i is the number of the range.
func (r *Ranges) all(ctx context.Context, ask func(i int) question) ([]*answer, error) {
	answers := make([]*answer, len(r.mergers))
	group, ctx := errgroup.WithContext(ctx)
	for i, m := range r.mergers {
		q := ask(i)
		group.Go(func() (err error) {
			answers[i], err = m.ask(ctx, q)
			return err
		})
	}
	return answers, group.Wait()
}

func firstUnusable(answers []*answer) string {
	for _, a := range answers {
		if a.Unusable != "" {
			return a.Unusable
		}
	}
	return ""
}

// Add adds the partial of a result to the sums. If a blob of the partial is missing or invalid,
// the error is bad input, and nothing is added.
func (r *Ranges) Add(ctx context.Context, result *job.Result) error {
	partials := result.Partials()
	if len(partials) != len(r.mergers) {
		return fault.Inputf("partial %s has %d ranges, expected %d", result.Partial.Name, len(partials), len(r.mergers))
	}
	answers, err := r.all(ctx, func(i int) question { return question{Take: &take{partials[i], result.Rows}} })
	if err != nil {
		return err
	}
	if why := firstUnusable(answers); why != "" {
		return fault.Inputf("%s", why)
	}
	for _, m := range r.mergers {
		m.keep = true
	}
	return nil
}

// Save stores the sums of range i under bus.RangeName(name, i), and returns the blobs. If
// something else is stored under a name, the error is bus.ErrConflict.
func (r *Ranges) Save(ctx context.Context, name string) ([]job.Blob, error) {
	answers, err := r.all(ctx, func(i int) question { return question{Save: bus.RangeName(name, i)} })
	if err != nil {
		return nil, err
	}
	var blobs []job.Blob
	for _, a := range answers {
		switch {
		case a.Conflict:
			return nil, fmt.Errorf("checkpoint %s: %w", name, bus.ErrConflict)
		case a.Saved == nil:
			return nil, fmt.Errorf("checkpoint %s: a merger did not say what it stored", name)
		}
		blobs = append(blobs, *a.Saved)
	}
	return blobs, nil
}

// Summary returns the summary of the sums of all ranges.
func (r *Ranges) Summary(ctx context.Context) (sum *tally.Summary, err error) {
	answers, err := r.all(ctx, func(int) question { return question{Summary: true} })
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		switch {
		case a.Summary == nil:
			return nil, errors.New("a merger sent no summary")
		case sum == nil:
			sum = a.Summary
		default:
			if err := sum.Add(a.Summary); err != nil {
				return nil, err
			}
		}
	}
	return sum, nil
}

// Counts returns the number of rows in which each feature occurs.
func (r *Ranges) Counts(ctx context.Context) ([]int64, error) {
	counts := make([]int64, r.shape.Rows())
	group, ctx := errgroup.WithContext(ctx)
	for i, m := range r.mergers {
		group.Go(func() error {
			start, end := r.starts[i], r.starts[i+1]
			for from := start; from < end; from += answerBytes / 8 {
				to := min(from+answerBytes/8, end)
				a, err := m.ask(ctx, question{Counts: &span{from - start, to - start}})
				if err != nil {
					return err
				}
				if len(a.body) != 8*(to-from) {
					return fmt.Errorf("the counts of a merger have %d bytes, expected %d", len(a.body), 8*(to-from))
				}
				for f := from; f < to; f++ {
					counts[f] = int64(binary.LittleEndian.Uint64(a.body[8*(f-from):]))
				}
			}
			return nil
		})
	}
	return counts, group.Wait()
}

// Values returns a function that writes the values of a feature into the slices of into that are
// not nil. It is fast if the features come in ascending order. If it cannot get the values, it
// writes NaN, and Failed returns the reason.
func (r *Ranges) Values(ctx context.Context, e tally.Sampling) func(feature int, into tally.Values) {
	var here *chunk
	var next <-chan *chunk
	return func(feature int, into tally.Values) {
		for here == nil || feature < here.from || feature >= here.to {
			if here != nil && feature == here.to && next != nil {
				here = <-next
			} else {
				here = r.chunk(ctx, e, feature)
			}
			if here.err != nil {
				r.failed = here.err
				break
			}
			next = nil
			if to := here.to; to < r.shape.Rows() {
				ahead := make(chan *chunk, 1)
				next = ahead
				go func() { ahead <- r.chunk(ctx, e, to) }()
			}
		}
		if here.err != nil {
			here = nil
			for c := range into.Phi {
				into.Phi[c] = math.NaN()
			}
			return
		}
		first, _ := r.shape.Row(here.from)
		from, to := r.shape.Row(feature)
		part := here.values.Part(from-first, to-first)
		copy(into.Phi, part.Phi)
		for i, list := range narrow(&into) {
			copy(list, narrow(&part)[i])
		}
	}
}

// Failed returns why a function of Values could not get values, or nil.
func (r *Ranges) Failed() error { return r.failed }

// chunk is the values of consecutive features.
type chunk struct {
	from, to int
	values   tally.Values
	err      error
}

// chunk fetches the values of some features from the given one on.
func (r *Ranges) chunk(ctx context.Context, e tally.Sampling, from int) *chunk {
	i := 0
	for r.starts[i+1] <= from {
		i++
	}
	start := r.starts[i]
	c := &chunk{from: from, to: min(from+max(1, answerBytes/(entryBytes*r.shape.Widest())), r.starts[i+1])}
	first, _ := r.shape.Row(c.from)
	_, end := r.shape.Row(c.to - 1)
	a, err := r.mergers[i].ask(ctx, question{Values: &values{span{c.from - start, c.to - start}, e}})
	if err == nil {
		c.values, err = decodeValues(a.body, end-first)
	}
	c.err = err
	return c
}

// Watch returns ErrLost as soon as a merger is lost, and ctx's error when ctx ends.
func (r *Ranges) Watch(ctx context.Context) error {
	select {
	case <-r.lost:
		return ErrLost
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close frees the mergers.
func (r *Ranges) Close(ctx context.Context) {
	r.over()
	r.living.Wait()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var group sync.WaitGroup
	for _, m := range r.mergers {
		group.Go(func() { _, _ = m.ask(ctx, question{End: true}) }) // a merger that is not asked becomes free after idleAfter
	}
	group.Wait()
}

// remote is a merger, as its coordinator sees it.
type remote struct {
	*Ranges
	token string
	name  string

	asking sync.Mutex // held while a question is open
	number int64      // of the last question
	keep   bool       // whether the merger has taken a partial that is to be added

	mu    sync.Mutex
	heard time.Time // when the merger answered last
}

// ask asks until the work is done.
func (m *remote) ask(ctx context.Context, q question) (*answer, error) {
	m.asking.Lock()
	defer m.asking.Unlock()
	m.number++
	q.Number, q.Keep = m.number, m.keep
	m.keep = false
	for {
		a, err := m.once(ctx, &q)
		if err != nil {
			return nil, err
		}
		if a == nil || a.Busy {
			continue
		}
		switch {
		case a.Number != q.Number:
			return nil, fmt.Errorf("merger %s answered question %d, expected %d", m.name, a.Number, q.Number)
		case a.Gone:
			return nil, fmt.Errorf("%w: merger %s: %s", ErrLost, m.name, a.Failed)
		case a.Failed != "":
			return nil, fmt.Errorf("merger %s: %s", m.name, a.Failed)
		}
		return a, nil
	}
}

// once asks once. Without an answer it returns nil after a pause, or ErrLost if the merger has
// been silent for lostAfter.
func (m *remote) once(ctx context.Context, q *question) (*answer, error) {
	select {
	case <-m.lost:
		return nil, fmt.Errorf("%w: merger %s", ErrLost, m.name)
	default:
	}
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	data, err := m.bus.AskMerger(ctx, m.token, text)
	if err == nil {
		m.mu.Lock()
		m.heard = time.Now()
		m.mu.Unlock()
		return decodeAnswer(data)
	}
	if !errors.Is(err, bus.ErrUnanswered) {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bus.Ready() != nil {
		m.heard = time.Now()
	}
	most := lostAfter
	if errors.Is(err, bus.ErrNobody) {
		most = goneAfter
	}
	if time.Since(m.heard) > most {
		m.lose.Do(func() {
			m.log.Error("a merger does not answer any more", zap.String("merger", m.name), zap.Error(err))
			close(m.Ranges.lost)
		})
	}
	return nil, pause(ctx)
}

// live sends signs of life until ctx ends or the merger is lost.
func (m *remote) live(ctx context.Context) {
	for {
		select {
		case <-time.After(pingEvery):
		case <-ctx.Done():
			return
		}
		m.mu.Lock()
		recent := time.Since(m.heard) < pingEvery
		m.mu.Unlock()
		if recent {
			continue
		}
		if _, err := m.once(ctx, &question{}); errors.Is(err, ErrLost) {
			return
		}
	}
}

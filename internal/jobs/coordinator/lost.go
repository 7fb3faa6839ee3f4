package coordinator

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
)

// lost keeps which workers fell silent while tasks went to other workers, for people.
type lost struct {
	asked   time.Time        // when workers were last asked who they are
	answers chan []job.Build // has room for the answers to the last question
	again   bool             // a task was in a second or later try since the last look
	words   map[string]time.Time
	left    map[string]time.Time // when workers said that they leave, so their silence means nothing
	last    []bus.Lost           // at most bus.MostNamed, the oldest first
}

func newLost() lost {
	return lost{answers: make(chan []job.Build, 1), words: map[string]time.Time{}, left: map[string]time.Time{}}
}

// lookForLost asks the workers who they are, once in the time of a lease, and finds out which have fallen silent if
// tasks have gone to other workers. again is the number of tasks in a second or later try.
func (l *leader) lookForLost(ctx context.Context, again int) {
	o, lease := &l.lost, l.config.Queue.Lease
	o.again = o.again || again > 0
	select {
	case builds := <-o.answers:
		for _, w := range o.look(o.asked, lease, l.meter.workers, builds) {
			l.log.Warn("no word from a worker: if it holds a task, another worker gets it", zap.String("worker", w.Worker), zap.Duration("silence", w.Silence().Round(time.Second)))
		}
	default:
	}
	if time.Since(o.asked) < lease {
		return
	}
	o.asked = time.Now()
	go func() { // answers take up to a second
		all, err := l.bus.Connected(ctx)
		if err != nil || len(all) == 0 { // perhaps nobody may ask
			return
		}
		own := slices.DeleteFunc(all, func(b job.Build) bool { return !b.Computes(l.job.Spec.Kernel) || b.Protocol != job.Protocol })
		select {
		case o.answers <- own:
		default:
		}
	}()
}

// look takes notice of the answers of workers to a question, and of the workers that gave results. If a task was in
// a second try since the last look, it returns the workers that have fallen silent: they did not answer, said
// nothing in the time of half a lease, and had not said that they leave. A worker that speaks again may be lost another time.
func (o *lost) look(asked time.Time, lease time.Duration, results map[string]*workerMeter, answered []job.Build) (found []bus.Lost) {
	maps.DeleteFunc(o.left, func(_ string, at time.Time) bool { return asked.Sub(at) >= keepWord*lease })
	for _, b := range answered {
		if delete(o.left, b.Name); b.Leaving {
			o.left[b.Name] = asked
		}
	}
	for name, w := range results {
		if asked.Sub(w.seen) < keepWord*lease && w.seen.After(o.words[name]) && !o.named(name, w.seen) {
			o.words[name] = w.seen
		}
	}
	for _, b := range answered {
		o.words[b.Name] = asked
	}
	for name, word := range o.words {
		silence := asked.Sub(word)
		if silence >= keepWord*lease || !o.left[name].IsZero() {
			delete(o.words, name)
		} else if o.again && silence >= lease/2 {
			delete(o.words, name)
			found = append(found, bus.Lost{Worker: short(name), Seen: word, At: asked})
		}
	}
	o.again = false
	slices.SortFunc(found, func(x, y bus.Lost) int { return x.Seen.Compare(y.Seen) })
	o.last = append(o.last, found...)
	o.last = slices.Clone(o.last[max(0, len(o.last)-bus.MostNamed):])
	return found
}

// keepWord is the number of leases after which a silent worker is forgotten.
const keepWord = 10

// named reports whether a worker was lost after a word.
func (o *lost) named(name string, word time.Time) bool {
	return slices.ContainsFunc(o.last, func(w bus.Lost) bool { return w.Worker == short(name) && !word.After(w.Seen) })
}

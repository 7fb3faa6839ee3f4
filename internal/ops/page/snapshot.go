// Package page shows how jobs are doing on a page that a browser keeps up to date. It needs no
// script to be read, and changes nothing. Readings become snapshots, which never go back: a shard
// that was computed is not shown as waiting again.
package page

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
)

// Snapshot is all that a page shows.
type Snapshot struct {
	Taken  time.Time
	Server string // addresses of the NATS server without passwords; "" = the job runs in this process
	Jobs   []Job  // those that have not ended come first
	Tasks  []bus.Tasks
	Nights []Night // the latest one first
	// Trouble is why the last reading failed; the rest of the snapshot is then older than Taken.
	// "" = it did not.
	Trouble string
}

// Job is a job on a page.
type Job struct {
	bus.Status
	Name        string    // what people call it
	Out         string    // where its scores go; "" = unknown
	Submitted   time.Time // zero = unknown
	Ended       time.Time // when it was first seen to be over; zero = it is not
	Quarantined int       // shards in quarantine
	Again       int       // tasks with its kernel that were given to a worker before
	Done        int       // shards that are or were merged
	Cells       []Cell    // of the strip; nil = unknown
	CellSize    int       // shards of a cell
	Workers     []Worker  // those that computed shards of it and those that can, in the order of byAnswer
}

// Cell is a part of the strip of shards.
type Cell struct {
	Shards, Merged, Open, Aside int
	// Again is the number of shards that were merged, and have to be merged again because a
	// coordinator died after its last checkpoint, or their results were lost.
	Again int
}

// Worker is a worker of a job.
type Worker struct {
	Name, Kernel string
	Shards       int
	Rate         float64   // rows per second of computing time; 0 = unknown
	Seen         time.Time // its last report: a result, or an answer to the question who it is; zero = none
	Answers      Answer
}

// Answer says whether a worker answered when it was last asked who it is.
type Answer int

// The answers.
const (
	Unknown Answer = iota // nobody can be asked
	Answered
	Left // it was asked to leave, so its silence means nothing
	Silent
)

// Night is a night of shaver nightly.
type Night struct {
	Name, Outcome, Kind string
	Finished            time.Time
	Published           bool // it is the one in use
	Failed              bool
	Rows                int64
	CoreSeconds         float64
	Change              string // what pruning cost, as text
	Report              bool   // its folder has a report
}

// keeper turns readings into snapshots. It is safe for concurrent use.
type keeper struct {
	mu       sync.Mutex
	jobs     map[string]*kept
	ended    []Job             // the latest one first, at most mostEnded
	answered map[string]answer // the last answers, by worker
	asked    time.Time         // when workers were last asked; zero = never, or none answered
	builds   []job.Build       // who answered then
}

type answer struct {
	at      time.Time
	kernels string
	leaving bool
}

const (
	mostEnded  = bus.MostEnded
	keepAnswer = 24 * time.Hour
)

// kept is what is known of a job from earlier readings.
type kept struct {
	submitted time.Time
	size      int   // shards of a cell
	merged    []int // most merged shards of each cell so far
	done      int
	last      Job
	over      time.Time // when its coordinator said that it has ended; zero = it has not
}

func newKeeper() *keeper { return &keeper{jobs: map[string]*kept{}, answered: map[string]answer{}} }

// see completes the jobs of a reading at a time by what is known of them, and adds those that have ended
// since. all says that jobs has all jobs that are stored.
func (k *keeper) see(now time.Time, jobs []Job, all bool) []Job {
	k.mu.Lock()
	defer k.mu.Unlock()
	stored := map[string]bool{}
	for i := range jobs {
		j := &jobs[i]
		stored[j.ID] = true
		known := k.jobs[j.ID]
		if known == nil || !known.submitted.Equal(j.Submitted) {
			known = &kept{submitted: j.Submitted}
			k.jobs[j.ID] = known
			if i := slices.IndexFunc(k.ended, func(e Job) bool { return e.ID == j.ID && e.Submitted.Equal(j.Submitted) && e.Progress.Over() }); i >= 0 {
				known.last, known.over = k.ended[i], k.ended[i].Ended
			}
		}
		if !known.over.IsZero() && !j.Progress.Updated.After(known.last.Progress.Updated) {
			j.Progress = known.last.Progress // the reading is older than the end
		} else if !j.Progress.Over() {
			known.over = time.Time{} // another coordinator leads it
		}
		known.complete(j)
		j.Workers = k.workers(now, j)
		known.last = *j
		k.ended = slices.DeleteFunc(k.ended, func(e Job) bool { return e.ID == j.ID })
	}
	for id, known := range k.jobs {
		if all && !stored[id] {
			if known.last.Ended = now; !known.over.IsZero() {
				known.last.Ended = known.over
			}
			k.ended = slices.Insert(k.ended, 0, known.last)
			delete(k.jobs, id)
		}
	}
	k.ended = k.ended[:min(len(k.ended), mostEnded)]
	return append(jobs, k.ended...)
}

// remember takes notice of the records of jobs that have ended. They are read before the jobs that see gets, so a job that is stored
// then was submitted again.
func (k *keeper) remember(now time.Time, records []bus.Ended) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range records {
		j := Job{Status: r.Status, Name: nameOf(r.ID, r.Out), Out: r.Out, Submitted: r.Submitted, Ended: r.Progress.Updated, Quarantined: r.Progress.Quarantined}
		new(kept).complete(&j)
		j.Workers = k.workers(now, &j)
		if known := k.jobs[r.ID]; known != nil && known.submitted.Equal(r.Submitted) {
			known.last, known.over = j, j.Ended // see finds that it is not stored any more
			continue
		}
		k.ended = append(slices.DeleteFunc(k.ended, func(e Job) bool { return e.ID == r.ID }), j)
	}
	slices.SortStableFunc(k.ended, func(x, y Job) int { return y.Ended.Compare(x.Ended) })
	k.ended = k.ended[:min(len(k.ended), mostEnded)]
}

// end takes notice of the last progress of a job. A reading seldom has it, because a job that has ended is soon
// not stored any more.
func (k *keeper) end(now time.Time, p bus.Progress) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.jobs[p.Job]
	if known == nil {
		return
	}
	j := known.last
	j.Progress = p
	known.complete(&j)
	j.Workers = k.workers(now, &j)
	known.last, known.over = j, now
}

// complete sets what j shows of its shards. It shows at least as many computed shards as before.
func (k *kept) complete(j *Job) {
	p := &j.Progress
	if p.Strip == nil && k.last.Progress.Strip != nil && p.ShardsTotal == k.last.Progress.ShardsTotal { // a coordinator that begins writes none
		before := &k.last.Progress
		p.Strip, p.Shards, p.Rows, p.Open, p.CPU = before.Strip, before.Shards, before.Rows, before.Open, before.CPU
		p.Aside, p.Rounds = before.Aside, before.Rounds
	}
	cells := cellsOf(p)
	if cells != nil && (k.size != p.Strip.Size || len(k.merged) != len(cells)) {
		k.size, k.merged, k.done = p.Strip.Size, make([]int, len(cells)), 0
	}
	k.done = max(k.done, p.Shards)
	j.Done, j.Cells = k.done, cells
	if cells == nil {
		return
	}
	j.CellSize, j.Done = p.Strip.Size, 0
	for i := range cells {
		c := &cells[i]
		k.merged[i] = min(max(k.merged[i], c.Merged), c.Shards-c.Aside)
		c.Again = max(0, k.merged[i]-c.Merged)
		c.Open = max(0, min(c.Open, c.Shards-c.Aside-c.Merged-c.Again))
		j.Done += c.Merged + c.Again
	}
}

// cellsOf returns the cells of a progress, or nil if it has none that fit its number of shards.
func cellsOf(p *bus.Progress) []Cell {
	if p.Strip == nil || p.Strip.Size < 1 || p.ShardsTotal < 1 || p.ShardsTotal > job.MaxShards {
		return nil
	}
	n := (p.ShardsTotal + p.Strip.Size - 1) / p.Strip.Size
	if n > bus.MostCells {
		return nil
	}
	cells := make([]Cell, 0, n)
	for _, run := range p.Strip.Runs {
		for range run.Cells {
			if len(cells) == n {
				return nil
			}
			size := min(p.Strip.Size, p.ShardsTotal-len(cells)*p.Strip.Size)
			merged := min(max(run.Merged, 0), size)
			aside := min(max(run.Aside, 0), size-merged)
			cells = append(cells, Cell{Shards: size, Merged: merged, Aside: aside, Open: min(max(run.Open, 0), size-merged-aside)})
		}
	}
	if len(cells) != n {
		return nil
	}
	return cells
}

// answer keeps which workers answered the question who they are.
func (k *keeper) answer(now time.Time, builds []job.Build) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(builds) == 0 && len(k.builds) == 0 {
		return // perhaps nobody may ask
	}
	k.asked, k.builds = now, builds
	for name, last := range k.answered {
		if now.Sub(last.at) > keepAnswer || len(k.answered) > mostAnswered {
			delete(k.answered, name)
		}
	}
	for _, b := range builds {
		k.answered[b.Name] = answer{now, strings.ReplaceAll(b.AllKernels(), ",", ", "), b.Leaving}
	}
}

// mostAnswered bounds the workers whose last answer is kept.
const mostAnswered = 20_000

// silentAfter is how long a worker must not have answered to count as silent. It is asked twice in
// that time.
const silentAfter = 25 * time.Second

// workers returns the workers of a job.
func (k *keeper) workers(now time.Time, j *Job) []Worker {
	all := make([]Worker, 0, len(j.Progress.Workers))
	found := map[string]int{}
	for _, w := range j.Progress.Workers {
		found[w.Name] = len(all)
		all = append(all, Worker{Name: w.Name, Kernel: j.Spec.Kernel, Shards: w.Shards, Rate: w.Rate, Seen: w.Seen})
	}
	for _, b := range k.builds {
		if !b.Computes(j.Spec.Kernel) || b.Protocol != job.Protocol {
			continue
		}
		if _, known := found[b.Name]; !known {
			found[b.Name] = len(all)
			all = append(all, Worker{Name: b.Name})
		}
	}
	for i := range all {
		w := &all[i]
		last, known := k.answered[w.Name]
		if known {
			w.Kernel = last.kernels
			if last.at.After(w.Seen) {
				w.Seen = last.at
			}
		}
		switch {
		case k.asked.IsZero():
		case last.leaving:
			w.Answers = Left
		case now.Sub(w.Seen) < silentAfter:
			w.Answers = Answered
		default:
			w.Answers = Silent
		}
	}
	slices.SortFunc(all, byAnswer)
	return all
}

// byAnswer orders workers.
func byAnswer(x, y Worker) int {
	return cmp.Or(cmp.Compare(x.Answers, y.Answers), strings.Compare(x.Name, y.Name))
}

// nameOf returns what people call a job whose scores go to out.
func nameOf(id, out string) string {
	name := strings.TrimRight(strings.ReplaceAll(out, `\`, "/"), "/")
	if name = path.Base(name); name == "." || name == "/" {
		return "job " + id[:min(8, len(id))]
	}
	return name
}

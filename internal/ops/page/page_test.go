package page

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/value/estimator"
)

var rewrite = flag.Bool("rewrite", false, "overwrite testdata/*.html")

var now = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// pathJob is a running path with 10,000 shards in 3 rounds, of which the first is over.
func pathJob() Job {
	spec := job.Spec{Version: job.SpecVersion, Options: estimator.Options{Estimator: "path", Passes: 1}, Sample: 1, Kernel: "avx2"}
	plan := job.Plan{Rows: 10_000, RowsPerShard: 1, Rounds: []job.Round{{Rows: 5000, Parts: 4, Take: 4}, {Rows: 2500, Parts: 4}, {Rows: 2500, Parts: 4}}}
	p := bus.Progress{State: bus.Running, Epoch: 2, Rows: 6010, RowsTotal: 10_000, Shards: 6010, ShardsTotal: 10_000, Open: 1000, Quarantined: 2, Rate: 100, Left: 40,
		Started: ago(time.Minute), Updated: ago(time.Second), Checkpoint: ago(12 * time.Second), CPU: 7200, Soonest: 31, Latest: 61,
		Workers: []bus.Worker{{Name: "worker-a", Shards: 4000, Rate: 70, Seen: ago(time.Second)}, {Name: "worker-b", Shards: 2010, Rate: 50, Seen: ago(40 * time.Second)}},
		Strip:   &bus.Strip{Size: 25, Runs: []bus.Run{{Cells: 240, Merged: 25}, {Cells: 1, Merged: 10, Open: 13, Aside: 2}, {Cells: 39, Open: 25}, {Cells: 1, Open: 12}, {Cells: 119}}},
		Rounds:  []bus.Round{{Rows: 5000, Kept: 800, Loss: 0.5}},
		Aside:   []bus.Aside{{Shard: 6011, Input: true, Worker: "worker-a", Reason: "row 7: the loss is NaN"}},
		Retried: 21, Retries: []bus.Republished{{Shard: 3, At: ago(30 * time.Second), Why: "its result is unusable: partial damaged"}},
		Lost: []bus.Lost{{Worker: "worker-b", Seen: ago(44 * time.Second), At: ago(10 * time.Second)}},
	}
	id := spec.ID()
	p.Job = id
	return Job{Status: bus.Status{ID: id, Spec: spec, Plan: plan, Progress: p}, Name: "order.arrow", Out: "/data/order.arrow", Submitted: ago(time.Hour), Quarantined: 2}
}

// untilJob is a running job with a stop rule.
func untilJob() Job {
	figures := []float64{.4, .3, .21}
	spec := job.Spec{Version: job.SpecVersion, Options: estimator.Options{Estimator: "permutation", Passes: 8}, Sample: .5, Kernel: "avx2", Until: &job.Until{Rule: job.Error, Bound: .05}}
	plan := job.Plan{Rows: 4000, RowsPerShard: 100, Rounds: []job.Round{{Rows: 500}, {Rows: 500}, {Rows: 1000}, {Rows: 2000, Pass: 1}}}
	p := bus.Progress{State: bus.Stalled, Epoch: 1, Rows: 2000, RowsTotal: 4000, Shards: 32, ShardsTotal: plan.Shards(), Waiting: "a worker with kernel avx2 and protocol 7; connected workers: none", Updated: now, Workers: []bus.Worker{}}
	for i := range figures {
		p.Rounds = append(p.Rounds, bus.Round{Rows: int64(500 << i), Figure: &figures[i]})
	}
	id := spec.ID()
	p.Job = id
	return Job{Status: bus.Status{ID: id, Spec: spec, Plan: plan, Progress: p}, Name: "until.arrow", Out: "/data/until.arrow", Submitted: ago(2 * time.Hour)}
}

// snapshot is one with both jobs, of which the second one has ended, and nights.
func snapshot(t *testing.T) *Snapshot {
	t.Helper()
	k := newKeeper()
	k.answer(ago(40*time.Second), []job.Build{{Name: "worker-b", Kernel: "avx2", Protocol: job.Protocol}})
	k.answer(ago(4*time.Second), []job.Build{{Name: "worker-a", Kernel: "avx512", Kernels: "avx512,avx2", Protocol: job.Protocol}, {Name: "old", Kernel: "avx2", Protocol: 1}})
	k.see(ago(time.Minute), []Job{untilJob()}, true)
	s := &Snapshot{Taken: now, Server: "nats://nats:4222", Tasks: []bus.Tasks{{Kernel: "avx2", Protocol: job.Protocol, Waiting: 990, Held: 10, Idle: 1, Again: 3}}}
	s.Jobs = k.see(now, []Job{pathJob()}, true)
	for i := range 16 {
		n := Night{Name: fmt.Sprintf("day-%02d", 16-i), Outcome: "published", Kind: "paired, 1", Finished: ago(time.Duration(i) * 24 * time.Hour), Rows: 1000, CoreSeconds: 7200, Change: "AUC -0.0007", Report: true, Published: i == 1}
		if i == 0 {
			n.Outcome, n.Failed, n.Change = "failed", true, "the AUC falls by 0.1, allowed are 0.01"
		}
		s.Nights = append(s.Nights, n)
	}
	return s
}

// The pages of a fixed snapshot have the bytes of testdata.
func TestGolden(t *testing.T) {
	s := snapshot(t)
	for name, id := range map[string]string{"index.html": "", "path.html": s.Jobs[0].ID, "until.html": s.Jobs[1].ID} {
		p, err := render(s, id)
		if err != nil || p == nil {
			t.Fatalf("%s: %v", name, err)
		}
		page := bytes.Join(p.parts, []byte("\n"))
		path := filepath.Join("testdata", name)
		if *rewrite {
			if err := os.WriteFile(path, page, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(page, want) {
			t.Errorf("the page differs from %s: if the difference is intended, run this test with -rewrite", path)
		}
	}
}

// The page says when the job ends, where its shards are, why some are in quarantine and what to do, and who
// works.
func TestPage(t *testing.T) {
	s := snapshot(t)
	p, err := render(s, s.Jobs[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	page := text(p)
	for _, want := range []string{
		"order.arrow", "Running, 60%.", "Ends in 30 to 60 s, between 15:04 UTC and 15:05 UTC.", "2 core-hours, about 3.3 core-hours in all", "number 2",
		"6,010 of 10,000 shards are computed, 1,000 are in the queue, in work or about to be merged, 2,988 come later, 2 in quarantine. A cell stands for 25 shards.",
		"1 of 3 rounds are over", "1 5,000 5,000 800 0.50000", "2 now 2,500 1,012 of 2,500",
		"2 shards in quarantine", "6011 its rows row 7: the loss is NaN worker-a", "The table has 1 of 2 shards",
		"shaver job quarantine " + s.Jobs[0].ID + " --nats nats://nats:4222 --retry", "21 times shards were published again", "3 15:03 UTC its result is unusable: partial damaged",
		"15:03 UTC : no word from worker worker-b for 34 s: if it holds a task, another worker gets it",
		"3 tasks of kernel avx2 are in a second or later try", "worker-a answers avx512, avx2 4,000 70 1 s ago", "worker-b silent avx2 2,010 50 40 s ago",
	} {
		if !strings.Contains(strings.ToLower(page), strings.ToLower(want)) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, " old ") {
		t.Error("the page has a worker of another protocol")
	}
	if p, err = render(s, s.Jobs[1].ID); err != nil {
		t.Fatal(err)
	}
	page = text(p)
	for _, want := range []string{"ended. It is no longer stored", "its scores are at /data/until.arrow.", "3 of 4 rounds are over", "a relative error of the values below 0.05", "From 0.4 after round 1 to 0.21 after round 3; the bound is 0.05"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of the other job lacks %q:\n%s", want, page)
		}
	}
	if p, err = render(s, ""); err != nil {
		t.Fatal(err)
	}
	page = text(p)
	for _, want := range []string{"2 jobs", "order.arrow " + s.Jobs[0].ID + " running 60%", "avx2 protocol 9 990 10 3 1", "day-16 failed", "day-15 published, in use", "2 earlier nights are not in this table"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of all jobs lacks %q:\n%s", want, page)
		}
	}
	if p, err := render(s, strings.Repeat("0", 20)); p != nil || err != nil {
		t.Errorf("a job that does not exist: %v, %v", p, err)
	}
}

var tags = regexp.MustCompile(`<[^>]*>`)

// text returns the text of a page.
func text(p *rendered) string {
	page := tags.ReplaceAllString(strings.ReplaceAll(string(bytes.Join(p.parts, []byte(" "))), "<strong", " <strong"), " ")
	page = strings.Join(strings.Fields(page), " ")
	return strings.NewReplacer(" .", ".", " ,", ",").Replace(page)
}

// The strip stands for all shards, however many there are.
func TestStripHasAllShards(t *testing.T) {
	for _, shards := range []int{1, 7, 400, 401, 9_999, 10_000, 10_001, job.MaxShards} {
		size := (shards + bus.MostCells - 1) / bus.MostCells
		n := (shards + size - 1) / size
		j := Job{Status: bus.Status{ID: strings.Repeat("a", 20), Progress: bus.Progress{State: bus.Running, ShardsTotal: shards, Strip: &bus.Strip{Size: size, Runs: []bus.Run{{Cells: n}}}}}}
		s := &Snapshot{Taken: now, Jobs: newKeeper().see(now, []Job{j}, true)}
		p, err := render(s, j.ID)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, m := range regexp.MustCompile(`title="(?:(\d+) shards|shard \d+)`).FindAllSubmatch(bytes.Join(p.parts, nil), -1) {
			if one, err := strconv.Atoi(string(m[1])); err == nil {
				sum += one
			} else {
				sum++
			}
		}
		if sum != shards {
			t.Errorf("the cells stand for %d shards, expected %d", sum, shards)
		}
	}
}

// A shard that was computed is never shown as waiting, not when a new coordinator resumes from an older
// checkpoint, and not before it says where the shards are. A job that is submitted again begins again.
func TestNothingGoesBack(t *testing.T) {
	k := newKeeper()
	see := func(p bus.Progress, submitted time.Time) Job {
		p.State, p.ShardsTotal, p.RowsTotal = bus.Running, 10, 10
		return k.see(now, []Job{{Status: bus.Status{ID: strings.Repeat("a", 20), Progress: p}, Submitted: submitted}}, true)[0]
	}
	strip := func(runs ...bus.Run) *bus.Strip { return &bus.Strip{Size: 1, Runs: runs} }
	see(bus.Progress{Shards: 6, Rows: 6, Open: 4, Strip: strip(bus.Run{Cells: 6, Merged: 1}, bus.Run{Cells: 4, Open: 1})}, now)
	if j := see(bus.Progress{Epoch: 2}, now); j.Done != 6 || percent(&j) != 60 || len(j.Cells) != 10 {
		t.Errorf("while a coordinator begins: %d done, %d%%, %d cells", j.Done, percent(&j), len(j.Cells))
	}
	j := see(bus.Progress{Epoch: 2, Shards: 3, Rows: 3, Open: 7, Strip: strip(bus.Run{Cells: 3, Merged: 1}, bus.Run{Cells: 7, Open: 1})}, now)
	if j.Done != 6 || percent(&j) != 60 || j.Cells[3] != (Cell{Shards: 1, Again: 1}) || j.Cells[6] != (Cell{Shards: 1, Open: 1}) {
		t.Errorf("after a checkpoint with 3 shards: %d done, %d%%, %+v", j.Done, percent(&j), j.Cells)
	}
	if v := newJobView(&j, &Snapshot{Taken: now}); v.Again != 3 || !strings.Contains(v.StripText, "6 of 10 shards are computed, 4 are in the queue") || !strings.Contains(v.StripText, "3 are merged again") {
		t.Errorf("%d again: %s", v.Again, v.StripText)
	}
	j = see(bus.Progress{Shards: 7, Strip: strip(bus.Run{Cells: 7, Merged: 1}, bus.Run{Cells: 3, Open: 1})}, now)
	if j.Done != 7 || j.Cells[3] != (Cell{Shards: 1, Merged: 1}) {
		t.Errorf("when they are merged: %d done, %+v", j.Done, j.Cells)
	}
	if j = see(bus.Progress{Strip: strip(bus.Run{Cells: 10})}, now.Add(time.Hour)); j.Done != 0 {
		t.Errorf("submitted again: %d done", j.Done)
	}
	for i := range 20 {
		k.see(now, []Job{{Status: bus.Status{ID: fmt.Sprintf("%020x", i)}}}, true)
	}
	if len(k.jobs) != 1 || len(k.ended) != mostEnded {
		t.Errorf("%d jobs and %d ended ones are kept", len(k.jobs), len(k.ended))
	}
}

// No command puts back shards of a round of a path that is over.
func TestPassedQuarantine(t *testing.T) {
	j := pathJob()
	for shard, want := range map[int]int{6011: 1, 4999: 0} {
		j.Quarantined, j.Progress.Aside = 1, []bus.Aside{{Shard: shard}}
		if v := newJobView(&j, &Snapshot{Taken: now, Server: "nats://x"}); len(v.Commands) != want || v.Passed != (want == 0) {
			t.Errorf("shard %d: %+v", shard, v.Commands)
		}
	}
}

// The page of several jobs says which of them needs somebody and why, and has the workers of all, each once.
func TestSeveralJobs(t *testing.T) {
	first, second := pathJob(), untilJob()
	second.Progress.State, second.Progress.Waiting = bus.Interrupted, "a coordinator"
	first.Quarantined = 0
	first.Workers = []Worker{{Name: "both", Shards: 3, Seen: ago(time.Hour), Answers: Silent}, {Name: "one", Shards: 1, Answers: Answered}}
	second.Workers = []Worker{{Name: "both", Shards: 4, Seen: ago(time.Second), Answers: Answered}}
	s := &Snapshot{Taken: now, Jobs: []Job{first, second}}
	p, err := render(s, "")
	if err != nil {
		t.Fatal(err)
	}
	page := string(bytes.Join(p.parts, []byte("\n")))
	for _, want := range []string{"2 jobs, 1 in trouble", "<mark>interrupted</mark>", "No coordinator leads it; submitting it again resumes it.", `<th>both</th><td class="word">answers</td><td class="word"></td><td>7</td>`, "<th>one</th>"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(page, "<th>both</th>"); n != 1 || p.title != "2 jobs, 1 in trouble" {
		t.Errorf("a worker of two jobs is there %d times, title %q", n, p.title)
	}
}

// The page of many jobs has those in trouble first, the worst before the others, and those that have ended last. It says in a sentence
// what the trouble of each is, and which of its workers are silent.
func TestTroubleFirst(t *testing.T) {
	s := &Snapshot{Taken: now, Server: "nats://nats:4222"}
	add := func(name, state string, change func(j *Job)) {
		j := untilJob()
		j.ID, j.Name, j.Progress.State = fmt.Sprintf("%020x", len(s.Jobs)), name, state
		if change != nil {
			change(&j)
		}
		s.Jobs = append(s.Jobs, j)
	}
	for i := range 40 {
		add(fmt.Sprint("fine", i), bus.Running, nil)
	}
	workers := []Worker{{Name: "a", Answers: Answered}, {Name: "v", Seen: ago(9 * time.Hour), Answers: Silent}, {Name: "w", Seen: ago(time.Minute), Answers: Silent},
		{Name: "x", Seen: ago(2 * time.Minute), Answers: Silent}, {Name: "y", Seen: ago(3 * time.Minute), Answers: Silent}}
	add("quiet", bus.Running, func(j *Job) { j.Workers = workers })
	lost := []bus.Lost{{Worker: "w", Seen: ago(time.Minute), At: ago(20 * time.Second)}, {Worker: "a", At: ago(20 * time.Second)}, {Worker: "gone", At: ago(20 * time.Second)}}
	add("lost one", bus.Running, func(j *Job) { j.Workers, j.Progress.Lost, j.Again = workers[:3], lost, 2 })
	add("lost two", bus.Running, func(j *Job) {
		j.Workers, j.Progress.Lost, j.Again = workers, append(lost, bus.Lost{Worker: "x", Seen: ago(2 * time.Minute), At: ago(2 * time.Minute)}), 2
	})
	add("computed again", bus.Running, func(j *Job) { j.Workers, j.Progress.Lost = workers[2:3], lost })
	add("back", bus.Running, func(j *Job) { // and silent another time, without a task
		j.Workers, j.Progress.Lost, j.Again = []Worker{{Name: "w", Seen: ago(10 * time.Second), Answers: Silent}}, lost, 2
	})
	add("left", bus.Running, func(j *Job) {
		j.Workers, j.Progress.Lost, j.Again = []Worker{{Name: "w", Seen: ago(time.Minute), Answers: Left}}, lost, 2
	})
	add("one", bus.Running, func(j *Job) { j.Quarantined = 1 })
	add("aside", bus.Running, func(j *Job) { j.Quarantined, j.Workers = 1200, workers[:2] })
	add("stalled", bus.Stalled, func(j *Job) { j.Quarantined = 1 })
	add("interrupted", bus.Interrupted, func(j *Job) { j.Workers = workers[:2] })
	add("failed", bus.Failed, func(j *Job) { j.Progress.Waiting, j.Workers = "the disk is full", workers })
	add("unreadable", bus.Unreadable, func(j *Job) { j.Error = "unexpected end" })
	for _, state := range []string{bus.Running, bus.Failed, bus.Cancelled} {
		add("ended "+state, state, func(j *Job) { j.Ended, j.Quarantined, j.Workers = ago(time.Minute), 1, workers })
	}
	v, _ := newView(s, "")
	want := []string{
		"interrupted|No coordinator leads it; submitting it again resumes it.|1 of 2 workers is silent: v.", "failed|The disk is full|", "unreadable|Unexpected end|",
		"stalled|No result came for a while. It waits for a worker with kernel avx2 and protocol 7; connected workers: none.|",
		"one|A shard is in quarantine.|", "aside|1,200 shards are in quarantine.|1 of 2 workers is silent: v.", "lost one|A worker fell silent, and a task that it may have held is in another try.|2 of 3 workers are silent: w, v.",
		"lost two|2 workers fell silent, and tasks that they may have held are in another try.|4 of 5 workers are silent: w, x, y, 1 more.",
		"quiet||4 of 5 workers are silent: w, x, y, 1 more.", "computed again||1 of 1 workers is silent: w.", "back||1 of 1 workers is silent: w.",
	}
	for i := range 40 {
		want = append(want, fmt.Sprintf("fine%d||", i))
	}
	want = append(want, "left||", "ended running||", "ended failed||", "ended cancelled||")
	var got []string
	for _, l := range v.List {
		got = append(got, l.Name+"|"+l.Lead+"|"+l.Silent)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the list is\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if v.Title != "55 jobs, 8 in trouble" {
		t.Errorf("the title is %s", v.Title)
	}
	p, err := render(s, "")
	if err != nil {
		t.Fatal(err)
	}
	if page := text(p); !strings.Contains(page, "1,200 shards are in quarantine. 1 of 2 workers is silent: v. when it ends is not known") {
		t.Errorf("the page lacks the sentences: %s", page)
	}
}

// A page with very many workers has a line about those that are not in its table.
func TestManyWorkers(t *testing.T) {
	j := pathJob()
	for i := range 2500 {
		j.Workers = append(j.Workers, Worker{Name: fmt.Sprint(i), Answers: Answered, Shards: 1, Rate: 1})
	}
	for i := range 100 {
		j.Workers = append(j.Workers, Worker{Name: fmt.Sprint("s", i), Answers: Silent})
	}
	v := newJobView(&j, &Snapshot{Taken: now})
	if len(v.Shown) != mostWorkers || v.Shown[mostWorkers-1].Answers != Silent || v.Rest != "2,560 more workers, with 2,470 shards and 2,470 rows/s together; 90 of them are silent." {
		t.Errorf("%d shown; %s", len(v.Shown), v.Rest)
	}
}

// hostile is a text that breaks out of elements, attributes and lines of events.
const hostile = "\"'><script>alert(1)</script><img src=x onerror=a>\r\ndata: x\revent: end\n\n\u202e</section>"

// Names and reasons from a server are text, wherever they are, and do not end an event.
func TestHostile(t *testing.T) {
	s := snapshot(t)
	j := &s.Jobs[0]
	j.Name, j.Out, j.Error, j.Progress.Waiting, s.Server, s.Trouble = hostile, hostile, hostile, hostile, hostile, hostile
	j.Spec.Kernel, j.Spec.Estimator = hostile, hostile
	j.Progress.Aside = []bus.Aside{{Reason: hostile, Worker: hostile}}
	j.Progress.Lost[0].Worker, j.Progress.Retries[0].Why, j.Workers[0].Name, j.Workers[0].Kernel, s.Tasks[0].Kernel = hostile, hostile, hostile, hostile, hostile
	s.Nights[0] = Night{Name: hostile, Outcome: hostile, Kind: hostile, Change: hostile, Report: true}
	for _, state := range []string{bus.Running, bus.Failed, bus.Stalled, bus.Interrupted, bus.Unreadable, bus.Finished, hostile} {
		j.Progress.State = state
		for _, id := range []string{"", j.ID} {
			p, err := render(s, id)
			if err != nil {
				t.Fatal(err)
			}
			page, err := shell(p, "events", "")
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(page, []byte("<script")); n != 1 {
				t.Errorf("%s: %d scripts", state, n)
			}
			for _, bad := range []string{"<img", "onerror=a>", "\u202e", "\r"} {
				if bytes.Contains(page, []byte(bad)) && bad != "\r" || bytes.Contains(bytes.Join(p.parts, nil), []byte(bad)) {
					t.Errorf("%s: the page has %q", state, bad)
				}
			}
			if n := bytes.Count(page, []byte("</section>")); n != len(sections) {
				t.Errorf("%s: %d sections end", state, n)
			}
			var events bytes.Buffer
			for _, one := range p.parts {
				writeEvent(&events, one)
			}
			if got := parse(t, &events); len(got) != len(sections) {
				t.Errorf("%s: %d events, expected %d", state, len(got), len(sections))
			}
		}
	}
	if got := quote("nats://a:1;rm '-rf"); got != `'nats://a:1;rm '\''-rf'` {
		t.Errorf("quoted as %s", got)
	}
}

// parse returns the data of the events in a stream, as a browser reads them.
func parse(t *testing.T, r io.Reader) (events []string) {
	t.Helper()
	all, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	var data []string
	for _, line := range regexp.MustCompile("\r\n|\r|\n").Split(string(all), -1) {
		switch field, value, _ := strings.Cut(line, ": "); {
		case line == "" && data != nil:
			events, data = append(events, strings.Join(data, "\n")), nil
		case field == "data" || field == "data:":
			data = append(data, value)
		case line != "" && field != "":
			t.Errorf("unexpected line %q", line)
		}
	}
	return events
}

// A name is the end of the place of the scores.
func TestName(t *testing.T) {
	for out, want := range map[string]string{"/a/b.arrow": "b.arrow", "s3://bucket/x/y.arrow": "y.arrow", `C:\x\z.arrow`: "z.arrow", "": "job aaaaaaaa", "/": "job aaaaaaaa"} {
		if got := nameOf(strings.Repeat("a", 20), out); got != want {
			t.Errorf("%q is called %q, expected %q", out, got, want)
		}
	}
}

// Numbers, times and ranges are written for people.
func TestTexts(t *testing.T) {
	for got, want := range map[string]string{
		count(1234567): "1,234,567", count(-1000): "-1,000", count(12): "12", span(0): "0 s", span(99): "99 s", span(100): "2 min", span(2e9): "many years",
		between(10, 20): "10 to 20 s", between(50, 200): "50 s to 3 min", between(4800, 5600): "1.3 to 1.6 h", between(600, 620): "about 10 min", coreHours(7200): "2 core-hours", coreHours(5): "5.0 core-seconds",
		coreHours(3600 * 1234): "1,234 core-hours", string(clock(time.Time{}, now)): "-",
		string(clock(now.Add(48*time.Hour), now)): `<time datetime="2026-01-04T15:04:05Z">4 Jan 15:04 UTC</time>`,
	} {
		if got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}

// No progress, plan or specification of a server makes a page fail, and its size is bounded.
func FuzzRender(f *testing.F) {
	for _, j := range []Job{pathJob(), untilJob()} {
		body, err := json.Marshal(j.Status)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Add([]byte(`{"plan":{"rounds":[{"rows":-1},{"rows":9223372036854775807}],"rows_per_shard":-5},"progress":{"shards_total":4194304,"strip":{"size":-1},"soonest":-1,"latest":1e300}}`))
	f.Add([]byte(`{"progress":{"state":"running","rows":-1,"shards_total":3,"strip":{"size":1,"runs":[{"cells":1,"merged":-4,"open":9,"aside":9},{"cells":2}]},"rounds":[{"rows":1},{"rows":2}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var s bus.Status
		if json.Unmarshal(body, &s) != nil {
			return
		}
		s.ID = strings.Repeat("a", 20)
		k := newKeeper()
		for range 2 {
			p, err := render(&Snapshot{Taken: now, Jobs: k.see(now, []Job{{Status: s, Name: "x"}}, true)}, s.ID)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(bytes.Join(p.parts, nil)); n > 200_000+60*len(body) {
				t.Errorf("a page of %d bytes from %d", n, len(body))
			}
		}
	})
}

// fixed is a Source of snapshots that a test sets.
type fixed struct {
	mu    sync.Mutex
	now   *Snapshot
	err   error
	reads atomic.Int64
}

func (f *fixed) Read(context.Context) (*Snapshot, error) {
	f.reads.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now, f.err
}

func (f *fixed) set(s *Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = s
}

// stream reads the events of a page.
type stream struct {
	body    io.ReadCloser
	scanner *bufio.Scanner
}

func watch(t *testing.T, url string) *stream {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: %s, %s", url, answer.Status, answer.Header.Get("Content-Type"))
	}
	scanner := bufio.NewScanner(answer.Body)
	scanner.Buffer(nil, 1<<20)
	return &stream{answer.Body, scanner}
}

// next returns the next event, or "" at the end of the stream.
func (s *stream) next() string {
	var event []string
	for s.scanner.Scan() {
		switch line := s.scanner.Text(); {
		case line == "" && event != nil:
			return strings.Join(event, "\n")
		case line != "" && line[0] != ':':
			event = append(event, line)
		}
	}
	return ""
}

// Ten viewers get every section once and then what changes, from the same snapshots. A job that ends is
// shown as ended, and the last figures come before the end.
func TestEvents(t *testing.T) {
	t.Parallel()
	first := snapshot(t)
	source := &fixed{now: first}
	h := NewHandler(source, nil)
	h.every = 20 * time.Millisecond
	server := httptest.NewServer(h)
	defer server.Close()
	if n := source.reads.Load(); n != 0 {
		t.Errorf("%d snapshots before anybody looked", n)
	}
	id := first.Jobs[0].ID
	var viewers []*stream
	for range 10 {
		v := watch(t, server.URL+"/job/"+id+"/events")
		viewers = append(viewers, v)
		for range sections {
			if e := v.next(); !strings.HasPrefix(e, "data: <section id=") {
				t.Fatalf("event %q", e)
			}
		}
	}
	second := *first
	second.Jobs = []Job{first.Jobs[0]}
	second.Jobs[0].Ended = now
	source.set(&second)
	for i, v := range viewers {
		if e := v.next(); !strings.Contains(e, `id="top"`) || !strings.Contains(e, "It is no longer stored") {
			t.Fatalf("viewer %d: event %q", i, e)
		}
	}
	for _, v := range viewers[1:] {
		v.body.Close()
	}
	before := source.reads.Load()
	h.Close()
	last := ""
	for e := viewers[0].next(); e != ""; e = viewers[0].next() {
		last = e
	}
	if last != "event: end\ndata: end" || source.reads.Load() <= before {
		t.Errorf("the last event is %q, after %d snapshots", last, source.reads.Load()-before)
	}
}

// Nothing is read when the last viewer is gone.
func TestIdle(t *testing.T) {
	t.Parallel()
	source := &fixed{now: snapshot(t)}
	h := NewHandler(source, nil)
	h.every = 20 * time.Millisecond
	server := httptest.NewServer(h)
	defer server.Close()
	v := watch(t, server.URL+"/events")
	v.next()
	v.body.Close()
	for looking := true; looking; time.Sleep(time.Millisecond) {
		h.mu.Lock()
		looking = h.looking
		h.mu.Unlock()
	}
	idle := source.reads.Load()
	time.Sleep(3 * h.every)
	if n := source.reads.Load(); n != idle {
		t.Errorf("%d snapshots while nobody looks", n-idle)
	}
}

// Many requests at once share a snapshot.
func TestOneSnapshot(t *testing.T) {
	t.Parallel()
	source := &fixed{now: snapshot(t)}
	h := NewHandler(source, nil)
	h.every = time.Minute
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			if w.Code != http.StatusOK {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	group.Wait()
	if n := source.reads.Load(); n != 1 {
		t.Errorf("%d snapshots for 20 requests", n)
	}
}

// pipes is a listener of connections without buffers.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A viewer that does not take its events is dropped.
func TestSlowViewer(t *testing.T) {
	t.Parallel()
	h := NewHandler(&fixed{now: snapshot(t)}, nil)
	h.every, h.write = 10*time.Millisecond, 50*time.Millisecond
	server := &http.Server{Handler: h}
	listener := make(pipes, 1)
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	client, other := net.Pipe()
	defer client.Close()
	listener <- other
	if _, err := io.WriteString(client, "GET /events HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 1)); err != nil { // the answer begins, so the viewer has entered
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; {
		h.mu.Lock()
		n := len(h.viewers)
		h.mu.Unlock()
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the viewer is still there")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A page allows nothing but its own style and script, is not kept, and cannot be changed. What does not
// exist is not found.
func TestRequests(t *testing.T) {
	t.Parallel()
	s := snapshot(t)
	files := map[string]string{"history.html": "all nights", "nights/day-16/report.html": "the report"}
	h := NewHandler(&fixed{now: s}, func(name string) (io.ReadCloser, error) {
		if text, ok := files[name]; ok {
			return io.NopCloser(strings.NewReader(text)), nil
		}
		if strings.Contains(name, "day-14") {
			return nil, errors.New("no route to host")
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	})
	get := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w
	}
	for path, want := range map[string]int{
		"/": 200, "/job/" + s.Jobs[0].ID: 200, "/history.html": 200, "/nights/day-16/report.html": 200,
		"/job/" + strings.Repeat("0", 20): 404, "/job/x": 404, "/job/x/events": 404, "/x": 404, "/nights/day-15/report.html": 404, "/nights/day-14/report.html": 502,
		"/nights/..%2f..%2fx/report.html": 404, "/nights/day-99/report.html": 404, "/nights/day-16/scores.arrow": 404,
	} {
		w := get("GET", path)
		if w.Code != want {
			t.Errorf("%s: %d, expected %d", path, w.Code, want)
		}
		header := w.Header()
		if header.Get("Cache-Control") != "no-store" || header.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(header.Get("Content-Security-Policy"), "default-src 'none'; ") {
			t.Errorf("%s: header %v", path, header)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
		if w := get(method, "/"); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
	w := get("GET", "/")
	page, allowed := w.Body.String(), w.Header().Get("Content-Security-Policy")
	for _, element := range []string{"style", "script"} {
		_, text, _ := strings.Cut(page, "<"+element+">")
		text, _, _ = strings.Cut(text, "</"+element+">")
		if len(text) < 500 || !strings.Contains(allowed, element+"-src '"+digest(text)+"'") {
			t.Errorf("the policy does not allow the %s of %d bytes: %s", element, len(text), allowed)
		}
	}
	if strings.Contains(page, "style=") || strings.Contains(page, "onclick") || !strings.Contains(page, `<noscript><meta http-equiv="refresh" content="5"></noscript>`) {
		t.Error("the page has a style or a script that the policy forbids, or does not load again without a script")
	}
	if got := get("GET", "/nights/day-16/report.html").Header().Get("Content-Security-Policy"); !strings.HasSuffix(got, "; sandbox") {
		t.Errorf("the policy of a report is %s", got)
	}
	for range mostViewers {
		if !h.enter(&viewer{next: make(chan *rendered, 1)}) {
			t.Fatal("too few viewers")
		}
	}
	if w := get("GET", "/events"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("one viewer too many: %d", w.Code)
	}
	h.Close()
	broken := NewHandler(&fixed{err: errors.New("broken")}, nil)
	w = httptest.NewRecorder()
	if broken.ServeHTTP(w, httptest.NewRequest("GET", "/", nil)); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "broken") {
		t.Errorf("without a snapshot: %d %s", w.Code, w.Body)
	}
}

// A page of shaver job serve or of --page on this machine answers only to addresses and localhost, and one on another address to all names.
func TestGuard(t *testing.T) {
	t.Parallel()
	h := NewHandler(&fixed{now: snapshot(t)}, nil)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	for host, want := range map[string]int{"": 200, "localhost:80": 200, "[::1]": 200, "evil.example": 421, "evil.example:80": 421} {
		request, err := http.NewRequest("GET", server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("host %q: %s", host, answer.Status)
		}
	}
	at := context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80})
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequestWithContext(at, "GET", "http://name.example/", nil)); w.Code != http.StatusOK {
		t.Errorf("on another address: %d", w.Code)
	}
}

// The page of a coordinator in this process shows its job, the CPU time of the process, and jobs before it.
func TestLocal(t *testing.T) {
	cpu := time.Duration(0)
	l := NewLocal("", func() time.Duration { return cpu })
	if s, err := l.Read(t.Context()); err != nil || s.Trouble == "" || len(s.Jobs) != 0 {
		t.Errorf("before the job: %+v, %v", s, err)
	}
	a, b := pathJob(), untilJob()
	l.Start(a.Spec, a.Plan, "x/a.arrow")
	cpu = time.Minute
	l.Progress(a.Progress)
	l.Progress(b.Progress) // of another job
	s, err := l.Read(t.Context())
	if err != nil || len(s.Jobs) != 1 || s.Jobs[0].Name != "a.arrow" || s.Jobs[0].Progress.CPU != 60 || s.Jobs[0].Workers[0].Answers != Unknown {
		t.Fatalf("%+v, %v", s, err)
	}
	p, err := render(s, "")
	if err != nil {
		t.Fatal(err)
	}
	if page := text(p); !strings.Contains(page, "The same command, run again") || strings.Contains(page, "--nats") || !strings.Contains(page, "From this process") {
		t.Errorf("the page is %s", page)
	}
	l.Start(b.Spec, b.Plan, "b.arrow")
	asked := 0
	l.Ask(func(context.Context) ([]job.Build, error) {
		asked++
		return []job.Build{{Name: "w", Kernel: "avx2", Protocol: job.Protocol}}, nil
	})
	for range 2 {
		if s, err = l.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.Jobs) != 2 || s.Jobs[0].ID != b.ID || s.Jobs[1].Ended.IsZero() || asked != 1 || len(s.Jobs[0].Workers) != 1 || s.Jobs[0].Workers[0].Answers != Answered {
		t.Errorf("asked %d times; %+v", asked, s.Jobs)
	}
}

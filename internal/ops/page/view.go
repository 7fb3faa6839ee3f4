package page

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"shaver/internal/base/chart"
	"shaver/internal/base/style"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
)

//go:embed page.html
var pageText string

// sections are the parts of a page, in their order. Each has a template of this name.
var sections = []string{"top", "shards", "rounds", "trouble", "jobs", "workers", "nights"}

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"count": func(n any) string { return count(reflect.ValueOf(n).Int()) }, "age": age, "clock": clock, "core": coreHours, "clocks": clocks, "rate": func(v float64) string { return count(int64(math.Round(v))) },
}).Parse(pageText))

// rendered is a page.
type rendered struct {
	title string
	parts [][]byte // one for each of sections
}

// view is what the templates see.
type view struct {
	*Snapshot
	Job   *jobView // nil = the page is that of several jobs, or of none
	Team  *jobView // the workers of Job, or of all jobs; nil = there is no job
	Title string   // of the page
	Whole bool     // the page is that of the server, and not of one job
	Home  string   // link to the page of the server, relative; "" = this is it
	List  []listed
	More  int // nights that are not shown
}

// listed is a job in the list of all.
type listed struct {
	Job
	Link, State string
	Lead        string // what the trouble is; "" = it has none
	Silent      string // which workers are silent; "" = none, or it has ended
	Took        string // see jobView
	End         ending
	Percent     int
	Runs, Bad   bool
}

// jobView is a job as text.
type jobView struct {
	*Job
	Now         time.Time
	Title, Lead string
	End         ending // after Lead
	State       string
	Runs        bool
	Bad         bool // the state needs somebody
	Kind        string
	Percent     int
	Whole       string // core-hours of the whole job; "" = unknown
	Took        string // time from its submission to its end; "" = unknown
	Strip       template.HTML
	StripText   string
	Again, Open int
	Waiting     int
	Local       bool
	Commands    []command
	Passed      bool // the rounds of all shards in quarantine are over
	Shown       []Worker
	Rest        string // the other workers in one line
	Rounds      []roundView
	RoundText   string
	Trend       template.HTML
	TrendTitle  string
	TrendText   string
}

type command struct{ What, Line string }

type roundView struct {
	Number       int
	Rows         int64
	Shards, Done int
	Found        string
	Kept         int
	Over, Now    bool
}

// mostNights bounds the nights on a page, and mostWorkers its workers. The page says how many more there are.
const (
	mostNights  = 14
	mostWorkers = 40
)

// newView returns the view of the job with the id, or of the whole server if id is "". found is false
// if the snapshot has no such job. A server with one job shows it with the rest.
func newView(s *Snapshot, id string) (v *view, found bool) {
	v = &view{Snapshot: s, Whole: id == ""}
	prefix := "job/"
	if id != "" {
		v.Home, prefix = "../", ""
	}
	troubled, team := 0, map[string]Worker{}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		for _, w := range j.Workers {
			if last, known := team[w.Name]; known { // of several jobs
				w.Shards, w.Rate = w.Shards+last.Shards, max(w.Rate, last.Rate)
				if last.Seen.After(w.Seen) {
					w.Seen, w.Answers = last.Seen, last.Answers
				}
			}
			if j.Ended.IsZero() {
				team[w.Name] = w
			}
		}
		l := listed{Job: *j, Link: prefix + j.ID, State: stateOf(j), Percent: percent(j), Bad: bad(j), Lead: trouble(j), Silent: silent(j), Took: took(j)}
		if l.Bad {
			troubled++
		}
		l.End = ends(j, s.Taken)
		l.Runs = l.End.Text != ""
		v.List = append(v.List, l)
		if j.ID == id || id == "" && len(s.Jobs) == 1 {
			v.Job = newJobView(j, s)
			v.Team, v.Title = v.Job, v.Job.Title+" "+v.Job.Name
		}
	}
	slices.SortStableFunc(v.List, func(x, y listed) int { return cmp.Compare(x.rank(), y.rank()) })
	if v.Job == nil {
		v.Title = fmt.Sprintf("%d jobs", len(s.Jobs))
		if troubled > 0 {
			v.Title += fmt.Sprintf(", %d in trouble", troubled)
		}
		if len(s.Jobs) > 0 {
			v.Team = &jobView{Job: &Job{Workers: slices.SortedFunc(maps.Values(team), byAnswer)}, Now: s.Taken}
			v.Team.setWorkers()
		}
	}
	if len(s.Nights) > mostNights {
		shown := *s
		shown.Nights, v.More = s.Nights[:mostNights], len(s.Nights)-mostNights
		v.Snapshot = &shown
	}
	return v, v.Job != nil || id == ""
}

// render returns the page of a job, or of the whole server if id is "". It returns nil if the snapshot has
// no such job.
func render(s *Snapshot, id string) (*rendered, error) {
	v, found := newView(s, id)
	if !found {
		return nil, nil
	}
	r := &rendered{title: v.Title}
	for _, name := range sections {
		var html bytes.Buffer
		if err := pageTemplate.ExecuteTemplate(&html, name, v); err != nil {
			return nil, err
		}
		// A carriage return of a name would end a line of an event.
		r.parts = append(r.parts, bytes.ReplaceAll(style.Visible(bytes.TrimSpace(html.Bytes())), []byte("\r"), []byte(" ")))
	}
	return r, nil
}

// shell returns a whole page. events and home are links to its events and to the page of the server.
func shell(r *rendered, events, home string) ([]byte, error) {
	main := make([]template.HTML, len(r.parts))
	for i := range r.parts {
		main[i] = template.HTML(r.parts[i]) // the templates have escaped it
	}
	var html bytes.Buffer
	err := pageTemplate.ExecuteTemplate(&html, "shell", map[string]any{
		"Title": r.title, "Events": events, "Home": home, "Parts": main, "Style": template.CSS(styles), "Script": template.JS(script), "Refresh": refreshEvery,
	})
	return style.Visible(html.Bytes()), err
}

func newJobView(j *Job, s *Snapshot) *jobView {
	v := &jobView{Job: j, Now: s.Taken, State: stateOf(j), Percent: percent(j), Local: s.Server == ""}
	v.Title = v.State
	if p := &j.Progress; (p.State == bus.Running || p.State == bus.Stalled) && j.Ended.IsZero() {
		v.Title = fmt.Sprintf("%d%%", v.Percent)
	}
	v.Bad = bad(j)
	v.Kind = kindOf(&j.Spec)
	if v.Lead = lead(j); v.Lead == "" {
		v.End = ends(j, s.Taken)
		v.Lead = upper(v.End.Text)
		v.Runs = true
	}
	if p := &j.Progress; p.CPU > 0 && p.Rows > 0 && p.Rows < p.RowsTotal && j.Ended.IsZero() {
		v.Whole = coreHours(p.CPU * float64(p.RowsTotal) / float64(p.Rows))
	}
	v.Took = took(j)
	v.setStrip()
	v.setTrouble(s)
	v.setWorkers()
	v.setRounds()
	return v
}

// took returns the time from the submission of a job to its end, or "" if it is unknown.
func took(j *Job) string {
	if j.Ended.IsZero() || j.Submitted.IsZero() {
		return ""
	}
	return span(max(0, j.Ended.Sub(j.Submitted).Seconds()))
}

// stopped lists the states of a job that does not continue by itself.
var stopped = []string{bus.Interrupted, bus.Failed, bus.Unreadable}

// bad reports whether a job needs somebody.
func bad(j *Job) bool {
	return j.Ended.IsZero() && (j.Progress.State == bus.Stalled || slices.Contains(stopped, j.Progress.State) || j.Quarantined > 0 || held(j) > 0)
}

// held returns how many silent workers may have held tasks that are in a second or later try now. A worker that was asked to leave
// finishes its task, so it does not count.
func held(j *Job) (n int) {
	for _, w := range j.Workers {
		if w.IsSilent() && j.Again > 0 && slices.ContainsFunc(j.Progress.Lost, func(l bus.Lost) bool { return l.Worker == w.Name && !w.Seen.After(l.At) }) {
			n++
		}
	}
	return n
}

// trouble returns the sentence that says why a job is bad, or "" if it is not. Of several reasons it gives the worst.
func trouble(j *Job) string {
	switch state := j.Progress.State; {
	case !bad(j):
		return ""
	case state == bus.Interrupted:
		return "No coordinator leads it; submitting it again resumes it."
	case state == bus.Stalled || slices.Contains(stopped, state):
		return lead(j)
	case j.Quarantined == 1:
		return "A shard is in quarantine."
	case j.Quarantined == 0 && held(j) == 1:
		return "A worker fell silent, and a task that it may have held is in another try."
	case j.Quarantined == 0:
		return count(held(j)) + " workers fell silent, and tasks that they may have held are in another try."
	}
	return count(j.Quarantined) + " shards are in quarantine."
}

// mostSilent bounds the silent workers that a sentence names.
const mostSilent = 3

// silent returns the sentence that says which workers of a job are silent, or "" if none is or the job has ended. A job is
// not bad because of a silent worker alone, which may hold no task.
func silent(j *Job) string {
	_, quiet := talking(j.Workers)
	if len(quiet) == 0 || !j.Ended.IsZero() || j.Progress.Over() {
		return ""
	}
	var names []string
	for _, w := range quiet[:min(len(quiet), mostSilent)] {
		names = append(names, w.Name)
	}
	if more := len(quiet) - len(names); more > 0 {
		names = append(names, count(more)+" more")
	}
	verb := "are"
	if len(quiet) == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%s of %s workers %s silent: %s.", count(len(quiet)), count(len(j.Workers)), verb, strings.Join(names, ", "))
}

// rank orders the jobs of the list: those in trouble first, the worst before the others, and those that have ended last.
func (l *listed) rank() int {
	switch state := l.Progress.State; {
	case !l.Ended.IsZero():
		return 6
	case slices.Contains(stopped, state):
		return 0
	case state == bus.Stalled:
		return 1
	case l.Quarantined > 0:
		return 2
	case l.Bad:
		return 3
	case l.Silent != "":
		return 4
	}
	return 5
}

// stateOf returns the state of a job in a word or two.
func stateOf(j *Job) string {
	state := j.Progress.State
	if !j.Ended.IsZero() && state != bus.Finished && state != bus.Failed && state != bus.Cancelled {
		return "ended"
	}
	return state
}

// percent returns the portion of the rows that are merged, rounded down. Rows that are merged again count,
// as far as the strip shows them.
func percent(j *Job) int {
	p := &j.Progress
	if j.Progress.State == bus.Finished {
		return 100
	}
	if p.RowsTotal < 1 || p.ShardsTotal < 1 {
		return 0
	}
	portion := float64(p.Rows) / float64(p.RowsTotal)
	if again := j.Done - p.Shards; again > 0 {
		portion += float64(again) / float64(p.ShardsTotal)
	}
	return int(min(100, max(0, 100*portion)))
}

// kindOf returns what a job computes.
func kindOf(s *job.Spec) string {
	text := s.Estimator
	if s.Passes > 1 {
		text += fmt.Sprintf(", %d passes", s.Passes)
	}
	if s.Sample > 0 && s.Sample < 1 {
		text += fmt.Sprintf(", %.3g%% of the rows", 100*s.Sample)
	}
	if s.Previous != nil {
		text += fmt.Sprintf(", paired job %d", s.Previous.Generation)
	}
	if u := s.Until; u != nil && u.Rule != "" {
		text += ", until " + u.Rule
	}
	if u := s.Until; u != nil && u.Seconds > 0 {
		text += ", at most " + span(u.Seconds)
	}
	return text
}

// lead returns the sentence that says how a job is doing, or "" for one that runs.
func lead(j *Job) string {
	p := &j.Progress
	switch {
	case stateOf(j) == "ended":
		text := "It is no longer stored: it has finished, or somebody cancelled it."
		if j.Out != "" {
			text += " If it has finished, its scores are at " + j.Out + "."
		}
		return text
	case p.State == bus.Finished:
		return "All is merged, and the scores are at " + cmp.Or(j.Out, "the place that the coordinator names") + "."
	case p.State == bus.Cancelled:
		return "Somebody cancelled it, and nothing of it is kept."
	case p.State == bus.Failed:
		return upper(p.Waiting)
	case p.State == bus.Unreadable:
		return upper(j.Error)
	case p.State == bus.Interrupted:
		return "No coordinator leads it. What is merged is kept, and submitting the job again resumes it. It waits for " + p.Waiting + "."
	case p.State == bus.Stalled:
		return "No result came for a while. It waits for " + p.Waiting + "."
	}
	return ""
}

// ending says when a job ends. From and To are zero if the text says all.
type ending struct {
	Text     string
	From, To time.Time
}

// ends returns when a job ends. The text is "" if it does not run.
func ends(j *Job, now time.Time) (e ending) {
	p := &j.Progress
	if p.State != bus.Running && p.State != bus.Stalled || !j.Ended.IsZero() {
		return e
	}
	passed := max(0, now.Sub(p.Updated).Seconds())
	soonest, latest := max(0, p.Soonest-passed), max(0, p.Latest-passed)
	switch {
	case p.Rows >= p.RowsTotal:
		e.Text = "all rows are merged, and the scores are being written"
	case p.Soonest == 0:
		e.Text = "when it ends is not known before a few results came"
	case p.Latest == 0:
		e.Text = "results have stopped coming; ends in " + span(soonest) + " at the earliest"
	default:
		e = ending{"ends in " + between(soonest, latest), now.Add(seconds(soonest)), now.Add(seconds(latest))}
		if j.Spec.Until != nil {
			e.Text += " or earlier"
		}
	}
	return e
}

func seconds(s float64) time.Duration { return time.Duration(min(s, 1e9) * float64(time.Second)) }

// between returns a range of seconds as text, in the unit of the second one if the first one has at least
// one of it.
func between(from, to float64) string {
	a, b := span(from), span(to)
	for _, unit := range units {
		if strings.HasSuffix(b, unit.name) && from >= unit.seconds {
			a = fmt.Sprintf(unit.format, from/unit.seconds)
			break
		}
	}
	if number, _ := strings.CutSuffix(b, " "+lastWord(b)); a == b || a == number {
		return "about " + b
	}
	return a + " to " + b
}

func lastWord(text string) string { return text[strings.LastIndexByte(text, ' ')+1:] }

// clockOf returns a moment as text: the time, and the date if it is not within 20 hours of now.
func clockOf(at, now time.Time) string {
	layout := "15:04 UTC"
	if d := at.Sub(now); d < -20*time.Hour || d > 20*time.Hour {
		layout = "2 Jan 15:04 UTC"
	}
	return at.UTC().Format(layout)
}

// clock is clockOf as an element that a script turns into the time of the reader.
func clock(at, now time.Time) template.HTML {
	if at.IsZero() || at.Year() < 2000 {
		return "-"
	}
	return template.HTML(`<time datetime="` + at.UTC().Format(time.RFC3339) + `">` + clockOf(at, now) + `</time>`)
}

// clocks returns the two moments of an end, only the second one if they are in the same minute, or nothing
// if it has none.
func clocks(e ending, now time.Time) map[string]template.HTML {
	switch {
	case e.To.IsZero():
		return nil
	case clockOf(e.From, now) == clockOf(e.To, now):
		return map[string]template.HTML{"To": clock(e.To, now)}
	}
	return map[string]template.HTML{"From": clock(e.From, now), "To": clock(e.To, now)}
}

// units are those of span. A number of seconds below most has the unit.
var units = []struct {
	most, seconds float64
	name, format  string
}{
	{99.5, 1, " s", "%.0f"}, {5400, 60, " min", "%.0f"}, {36 * 3600, 3600, " h", "%.1f"}, {1e9, 86400, " days", "%.1f"},
}

// span returns a number of seconds as text with two digits.
func span(s float64) string {
	for _, unit := range units {
		if s < unit.most {
			return fmt.Sprintf(unit.format, s/unit.seconds) + unit.name
		}
	}
	return "many years"
}

// age returns how long ago a moment was.
func age(at, now time.Time) string {
	if at.IsZero() || at.Year() < 2000 {
		return "-"
	}
	return span(max(0, now.Sub(at).Seconds())) + " ago"
}

// coreHours returns core-seconds as text.
func coreHours(s float64) string {
	switch h := s / 3600; {
	case s < 9.95:
		return fmt.Sprintf("%.1f core-seconds", s)
	case s < 360:
		return fmt.Sprintf("%.0f core-seconds", s)
	case h < 99.5:
		return fmt.Sprintf("%.2g core-hours", h)
	default:
		return count(int64(h)) + " core-hours"
	}
}

// count returns a number with separated thousands.
func count[T int | int64](n T) string {
	text := strconv.FormatInt(int64(n), 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func upper(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// setStrip draws the shards. Each cell says in its title for which shards it stands.
func (v *jobView) setStrip() {
	j := v.Job
	p := &j.Progress
	var html strings.Builder
	for i := range j.Cells {
		c := &j.Cells[i]
		v.Again, v.Open = v.Again+c.Again, v.Open+c.Open
		class, done := "", c.Merged+c.Again
		switch {
		case c.Aside > 0:
			class = "q"
		case c.Again > 0:
			class = "r"
		case done == c.Shards:
			class = "d"
		case done > 0:
			class = "d" + strconv.Itoa(1+3*done/c.Shards)
		case c.Open > 0:
			class = "o"
		}
		from := i * j.CellSize
		what := fmt.Sprintf("shard %d", from)
		if c.Shards > 1 {
			what = fmt.Sprintf("%d shards, %d to %d", c.Shards, from, from+c.Shards-1)
		}
		fmt.Fprintf(&html, `<i class="%s" title="%s: %s"></i>`, class, what, c.text())
	}
	v.Strip = template.HTML(html.String()) // only numbers and words of this function
	if j.Cells == nil {
		v.Open = p.Open
	}
	v.Waiting = max(0, p.ShardsTotal-j.Done-v.Open-j.Quarantined)
	v.StripText = fmt.Sprintf("%s of %s shards are computed", count(j.Done), count(p.ShardsTotal))
	if v.Open > 0 {
		v.StripText += fmt.Sprintf(", %s are in the queue, in work or about to be merged", count(v.Open))
	}
	if v.Waiting > 0 {
		v.StripText += fmt.Sprintf(", %s come later", count(v.Waiting))
	}
	if j.Quarantined > 0 {
		v.StripText += fmt.Sprintf(", %s in quarantine", count(j.Quarantined))
	}
	v.StripText += "."
	if v.Again > 0 {
		v.StripText += fmt.Sprintf(" Of the computed ones, %s are merged again after the last checkpoint.", count(v.Again))
	}
	if j.CellSize > 1 {
		v.StripText += fmt.Sprintf(" A cell stands for %s shards", count(j.CellSize))
		if last := p.ShardsTotal % j.CellSize; last > 0 {
			v.StripText += fmt.Sprintf(", the last one for %s", count(last))
		}
		v.StripText += "."
	}
}

// text says what is in a cell.
func (c *Cell) text() string {
	var parts []string
	for _, one := range []struct {
		n    int
		what string
	}{{c.Merged, "computed"}, {c.Again, "merged again"}, {c.Open, "published"}, {c.Aside, "in quarantine"}, {c.Shards - c.Merged - c.Again - c.Open - c.Aside, "later"}} {
		switch {
		case one.n == c.Shards:
			return one.what
		case one.n > 0:
			parts = append(parts, fmt.Sprintf("%d %s", one.n, one.what))
		}
	}
	return strings.Join(parts, ", ")
}

// setTrouble sets the commands that help with what went wrong.
func (v *jobView) setTrouble(s *Snapshot) {
	j := v.Job
	if j.Quarantined == 0 || v.Local || !j.Ended.IsZero() {
		return
	}
	if v.Passed = passed(j); v.Passed {
		return
	}
	flags := j.ID + " --nats " + quote(s.Server)
	v.Commands = append(v.Commands, command{"Put the shards back when the cause is gone", "shaver job quarantine " + flags + " --retry"})
	if j.Quarantined > len(j.Progress.Aside) {
		v.Commands = append(v.Commands, command{"List all of them with their whole reasons", "shaver job quarantine " + flags})
	}
}

// passed reports whether all shards in quarantine belong to rounds of a path that are over. They cannot be
// put back, because later rounds depend on what these lack.
func passed(j *Job) bool {
	over := min(len(j.Progress.Rounds), len(j.Plan.Rounds))
	if !j.Spec.Traits().Ranks || over == 0 || len(j.Progress.Aside) < j.Quarantined {
		return false
	}
	end := j.Plan.End(over - 1)
	return !slices.ContainsFunc(j.Progress.Aside, func(a bus.Aside) bool { return a.Shard >= end })
}

// quote quotes text for a shell if that is needed.
func quote(text string) string {
	if strings.Trim(text, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz:/.-_[],") == "" && text != "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// setWorkers chooses the workers in the table, and describes the others in a line. Those that are
// silent come last, and the longest silent of them are in the line first.
func (v *jobView) setWorkers() {
	all := v.Workers
	if len(all) <= mostWorkers {
		v.Shown = all
		return
	}
	heard, quiet := talking(all)
	few := min(len(quiet), max(mostWorkers/4, mostWorkers-len(heard)))
	v.Shown = slices.Concat(heard[:mostWorkers-few], quiet[:few])
	rest := slices.Concat(heard[mostWorkers-few:], quiet[few:])
	shards, rate, gone := 0, 0.0, 0
	for _, w := range rest {
		shards, rate = shards+w.Shards, rate+w.Rate
		if w.Answers == Silent {
			gone++
		}
	}
	v.Rest = fmt.Sprintf("%s more workers, with %s shards and %s rows/s together; %s of them are silent.", count(len(rest)), count(shards), count(int64(rate)), count(gone))
}

// talking splits workers into those that are not silent, and those that are, the one that was heard last first.
func talking(all []Worker) (heard, quiet []Worker) {
	for _, w := range all {
		if w.IsSilent() {
			quiet = append(quiet, w)
		} else {
			heard = append(heard, w)
		}
	}
	slices.SortStableFunc(quiet, func(x, y Worker) int { return y.Seen.Compare(x.Seen) })
	return heard, quiet
}

// mostRounds bounds the rounds of the table. The line above it counts all.
const mostRounds = 12

// setRounds describes the rounds of a job with several.
func (v *jobView) setRounds() {
	j := v.Job
	n := len(j.Plan.Rounds)
	if n == 0 || j.Plan.Check(1) != nil && j.Plan.RowsPerShard < 1 {
		return
	}
	path := j.Spec.Traits().Ranks
	over := min(len(j.Progress.Rounds), n)
	merged := j.Done + j.Quarantined
	for r, first := 0, 0; r < n; r++ {
		shards, _ := j.Plan.ShardsOf(r)
		one := roundView{Number: r + 1, Rows: j.Plan.Rounds[r].Rows, Shards: shards, Done: min(shards, max(0, merged-first)), Over: r < over}
		if one.Over {
			found := j.Progress.Rounds[r]
			one.Done, one.Kept = shards, found.Kept
			switch {
			case path && found.Rows > 0:
				one.Found = fmt.Sprintf("%.5f", found.Loss)
			case found.Figure != nil:
				one.Found = fmt.Sprintf("%.4g", *found.Figure)
			}
		}
		one.Now = r == over
		first += shards
		v.Rounds = append(v.Rounds, one)
	}
	v.RoundText = fmt.Sprintf("%d of %d rounds are over.", over, n)
	if until := j.Spec.Until; until != nil && until.Rule != "" {
		direction := "below"
		if until.Rule == job.Overlap {
			direction = "above"
		}
		v.RoundText += fmt.Sprintf(" The job ends after a round with %s %s %g, or after the last one.", ruleText(until), direction, until.Bound)
	}
	if path {
		v.RoundText += " Each round measures the entries that are left, and drops some of them."
	}
	v.setTrend(over, path)
	if n > mostRounds { // those around the current one
		from := min(max(0, over-mostRounds/2), n-mostRounds)
		v.Rounds = v.Rounds[from : from+mostRounds]
		v.RoundText += fmt.Sprintf(" The table has rounds %d to %d.", from+1, from+mostRounds)
	}
}

// ruleText returns what a rule looks at.
func ruleText(u *job.Until) string {
	switch u.Rule {
	case job.Overlap:
		return fmt.Sprintf("an overlap of the halves at sparsity %g", u.Sparsity)
	case job.Error:
		return "a relative error of the values"
	}
	return "a largest standard error, relative to the range of the values,"
}

// setTrend draws what the rounds that are over found.
func (v *jobView) setTrend(over int, path bool) {
	curve := chart.Series{Strong: true, Plain: true}
	for r, one := range v.Progress.Rounds[:over] {
		switch {
		case path && one.Rows > 0:
			curve.X, curve.Y = append(curve.X, float64(r+1)), append(curve.Y, one.Loss)
		case one.Figure != nil:
			curve.X, curve.Y = append(curve.X, float64(r+1)), append(curve.Y, *one.Figure)
		}
	}
	end := len(curve.X) - 1
	if end < 1 {
		return
	}
	v.TrendTitle = "Mean loss of the table after each round, nat"
	v.TrendText = fmt.Sprintf("From %.4g after round %g to %.4g after round %g", curve.Y[0], curve.X[0], curve.Y[end], curve.X[end])
	curve.Label = fmt.Sprintf("%.4g", curve.Y[end])
	c := chart.Chart{Marks: []chart.Mark{&curve}, Y: chart.Axis{Room: [2]float64{8, 8}}}
	low, high := slices.Min(curve.Y), slices.Max(curve.Y)
	if until := v.Spec.Until; !path && until != nil && until.Rule != "" {
		v.TrendTitle = "The stop rule's figure after each round"
		v.TrendText += fmt.Sprintf("; the bound is %g", until.Bound)
		c.Marks = append(c.Marks, &chart.Rule{At: until.Bound, Label: fmt.Sprintf("bound %g", until.Bound)})
		low, high = min(low, until.Bound), max(high, until.Bound)
	}
	if low > 0 && high/low > 20 {
		c.Y.Scale, c.Y.Ticks = math.Log10, chart.Log(chart.Short)
	}
	last := int(curve.X[end])
	c.X = chart.Axis{Label: "round", Ends: []float64{1, float64(min(len(v.Plan.Rounds), max(6, last+last/3)))}, Ticks: chart.Whole}
	c.About = v.TrendTitle
	v.Trend = c.Element("plot trend", 368, 160)
}

// Doing says in a word what the worker does.
func (w Worker) Doing() string {
	switch w.Answers {
	case Answered:
		return "answers"
	case Left:
		return "was asked to leave"
	case Silent:
		return "silent"
	}
	return "-"
}

// IsSilent reports whether the worker did not answer.
func (w Worker) IsSilent() bool { return w.Answers == Silent }

package nightly

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/filelock"
	"shaver/internal/base/files"
)

// The steps of a night, in their order.
const (
	stepChoose = "choose"
	stepScore  = "score"
	stepPrune  = "prune"
	stepCheck  = "check"
	stepReport = "report"
)

// stepFiles are the files that each step writes.
var stepFiles = map[string][]string{
	stepChoose: {}, stepScore: {ScoresFile}, stepPrune: {PrunedFile, PruneFile}, stepCheck: {CheckFile}, stepReport: {ReportFile},
}

// optionalFiles are the files that a step writes in some nights.
var optionalFiles = map[string][]string{stepPrune: append([]string{ONNXFile, ONNXDataFile, SweepFile}, DeltaFiles...), stepCheck: {SweepFile}}

// Options say how to run a night.
type Options struct {
	Date  string // name of the night, without its counter; "" = that of the newest day
	Again bool   // run a night even if nothing is new

	Say func(format string, args ...any) // prints a line for people
	Now func() time.Time
	CPU func() time.Duration // processor time of this process
	// Changed is called with all lines of the history when Run begins and after every
	// night; nil = no call.
	Changed func(lines []Line) error
	// Observe is called when work on a night begins, and when it ends otherwise than by the end of the
	// context; nil = no call.
	Observe func(e Event)
	// Commit is called after each change of the folder for the results that another process
	// may continue from; nil = no call.
	Commit func() error
}

// Event is the beginning or the end of the work of this process on a night.
type Event struct {
	Record *Record // read-only
	Folder string  // of the night
	Page   string  // path of the page about the nights
	Ended  bool
	Err    error // why the night could not be finished
	Line   Line  // of the history, if Ended is true and Err is nil
}

// observe calls Observe.
func (r *runner) observe(n *Record, e Event) {
	if r.Observe != nil {
		e.Record, e.Folder, e.Page = n, r.folder(n.Night), r.path(historyPage)
		r.Observe(e)
	}
}

// Result is what Run did.
type Result struct {
	// Nights are the nights that ended. A night that an earlier process began comes first.
	Nights []Line
	// Latest is the last line of the history; nil = no night has ended.
	Latest *Line
	// Current is the published night; nil = none.
	Current *Current
}

// runner runs nights.
type runner struct {
	config *Config
	keys   Keys
	steps  Steps
	Options
	linkless bool // the system has no symbolic links
}

func (r *runner) path(name string) string    { return filepath.Join(r.config.Out, name) }
func (r *runner) folder(night string) string { return filepath.Join(r.path(nightsFolder), night) }
func (r *runner) say(format string, args ...any) {
	if r.Say != nil {
		r.Say(format, args...)
	}
}
func (r *runner) commit() error {
	if r.Commit == nil {
		return nil
	}
	return r.Commit()
}
func (r *runner) now() string { return r.Now().UTC().Format(time.RFC3339) }

// Run finishes the night that an earlier process left, if there is one, and then runs a night
// if the model, the days or the settings are not those of the last night. If another process
// works in the same folder, it returns wrong usage.
func Run(ctx context.Context, c *Config, keys Keys, s Steps, o Options) (*Result, error) {
	r := &runner{config: c, keys: keys, steps: s, Options: o}
	if err := checkDate(o.Date); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.path(nightsFolder), 0o777); err != nil {
		return nil, err
	}
	unlock, err := r.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := r.checkLink(); err != nil {
		return nil, err
	}
	if err := r.sweepUp(); err != nil {
		return nil, err
	}
	if c.Source != nil {
		if err := s.Import(ctx, o.Date); err != nil {
			return nil, err
		}
	}
	lines, err := r.settle()
	if err != nil {
		return nil, err
	}
	result := &Result{}
	for {
		n, err := r.next(ctx, lines, len(result.Nights) > 0)
		if err != nil {
			return nil, err
		}
		if n == nil {
			break
		}
		resumed := n.Attempts > 0
		r.observe(n, Event{})
		if err := r.run(ctx, n); err != nil {
			if ctx.Err() == nil {
				r.observe(n, Event{Ended: true, Err: err})
			}
			return nil, err
		}
		r.Again = false // once is enough
		if lines, err = r.settle(); err != nil {
			return nil, err
		}
		result.Nights = append(result.Nights, lines[len(lines)-1])
		r.observe(n, Event{Ended: true, Line: lines[len(lines)-1]})
		if !resumed {
			break
		}
	}
	if len(lines) > 0 {
		result.Latest = &lines[len(lines)-1]
	}
	result.Current, err = ReadCurrent(c.Out)
	return result, err
}

// lock keeps other processes from the folder for the results.
func (r *runner) lock() (unlock func(), err error) {
	unlock, err = filelock.Lock(r.path(lockFile))
	if errors.Is(err, filelock.ErrLocked) {
		return nil, fmt.Errorf("another shaver nightly works in %s: wait for its end", r.config.Out)
	}
	return unlock, err
}

// Import imports the days that Run would import first.
func Import(ctx context.Context, c *Config, s Steps, date string) error {
	r := &runner{config: c}
	if err := checkDate(date); err != nil {
		return err
	}
	if err := os.MkdirAll(c.Out, 0o777); err != nil {
		return err
	}
	unlock, err := r.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.Import(ctx, date); err != nil || date == "" {
		return err
	}
	if _, err := os.Stat(filepath.Join(c.Days, date)); err != nil {
		return fault.Inputf("the table has no day %s, or it is older than the window", date)
	}
	return nil
}

// checkDate returns wrong usage unless a night may have the name.
func checkDate(date string) error {
	if date == "" {
		return nil
	}
	odd := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r))
	}
	if len(date) > 64 || strings.HasPrefix(date, ".") || strings.ContainsFunc(date, odd) {
		return fault.Usagef("--date %q: expected at most 64 letters, digits, dots, dashes and underscores, such as 2026-11-22", date)
	}
	return nil
}

// inputs are the model and the days that are there now.
type inputs struct {
	model string // digest
	days  []Day
}

// look finds the model and the days.
func (r *runner) look() (*inputs, error) {
	if info, err := os.Stat(r.config.Days); err == nil && !info.IsDir() {
		return nil, fault.Inputf("%s is not a folder: expected one with a folder for each day", r.config.Days)
	}
	entries, err := os.ReadDir(r.config.Days)
	if err != nil {
		return nil, fmt.Errorf("key days of the configuration: %w", err)
	}
	var names []string // in the order of ReadDir, by name
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(r.config.Days, e.Name())) // a day may be a symbolic link
		if err != nil {
			return nil, err
		}
		if info.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return nil, fault.Inputf("%s has no days: expected a folder for each day, made by shaver dataset import", r.config.Days)
	}
	for i := 1; i < len(names); i++ {
		if numberedAfter(names[i-1], names[i]) {
			return nil, fault.Inputf("%s: the day %q would be older than %q, because names are compared byte by byte: give the numbers in the names of days the same width, such as day-09 and day-10", r.config.Days, names[i-1], names[i])
		}
	}
	in := &inputs{}
	for _, name := range names[max(0, len(names)-r.config.Window):] {
		digest, err := r.steps.Day(filepath.Join(r.config.Days, name))
		if err != nil {
			return nil, err
		}
		in.days = append(in.days, Day{name, digest})
	}
	in.model, err = r.steps.Model(r.config.Model)
	if err != nil {
		return nil, fmt.Errorf("key model of the configuration: %w", err)
	}
	return in, nil
}

// numberedAfter reports whether the names first differ in a number, and a has the larger
// one. A number is a sequence of digits.
func numberedAfter(a, b string) bool {
	digit := func(s string, i int) bool { return i < len(s) && s[i] >= '0' && s[i] <= '9' }
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	start := i
	for start > 0 && digit(a, start-1) {
		start--
	}
	number := func(s string) string {
		end := start
		for digit(s, end) {
			end++
		}
		return strings.TrimLeft(s[start:end], "0")
	}
	if !digit(a, start) || !digit(b, start) {
		return false
	}
	x, y := number(a), number(b)
	return len(x) > len(y) || len(x) == len(y) && x > y
}

// next returns the night to work on, or nil if nothing is new. It says so unless this run has worked on a night.
func (r *runner) next(ctx context.Context, lines []Line, worked bool) (*Record, error) {
	records, err := readRecords(r.path(nightsFolder))
	if err != nil {
		return nil, err
	}
	settings := r.config.digest(r.keys)
	var last *Record // the last night that ended
	for _, n := range records {
		if n.Outcome == Published || n.Outcome == Failed {
			last = n
		}
	}
	in, err := r.look()
	for _, n := range records {
		if n.finished() {
			continue
		}
		reason, checking := r.stale(n, in, err, settings)
		if checking != nil {
			return nil, checking
		}
		if reason == "" {
			r.say("continuing the night %s", n.Night)
			return n, nil
		}
		r.say("leaving the night %s: %s", n.Night, reason)
		n.Outcome, n.Error, n.Finished = Abandoned, reason, r.now()
		if err := n.save(r.folder(n.Night)); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	if last != nil && last.Model == in.model && slices.Equal(last.Days, in.days) && last.Settings == settings && !r.Again {
		if !worked {
			r.say("nothing to do: the model, the days and the settings are those of the night %s, which %s", last.Night, outcomes[last.Outcome])
		}
		return nil, nil
	}
	return r.begin(ctx, in, settings, records, lines)
}

var outcomes = map[string]string{Published: "was published", Failed: "failed its check"}

// stale returns why an unfinished night cannot be continued, or "". looked is the error of
// looking for the inputs.
func (r *runner) stale(n *Record, in *inputs, looked error, settings string) (reason string, err error) {
	if current, err := ReadCurrent(r.config.Out); err != nil || current != nil && current.Night == n.Night {
		return "", err // it is published, and only its record is not complete
	}
	if n.Settings != settings {
		return "its settings are others than those of " + r.config.Path, nil
	}
	if n.Error != "" && looked == nil && (n.Model != in.model || !slices.Equal(n.Days, in.days)) {
		return "it failed, and there is a new model or a new day (" + n.Error + ")", nil
	}
	for _, d := range n.Days {
		path := filepath.Join(r.config.Days, d.Name)
		switch found, err := r.steps.Day(path); {
		case fault.IsInput(err), errors.Is(err, fs.ErrNotExist):
			return "its day " + path + " is not there any more", nil
		case err != nil:
			return "", err
		case found != d.Digest:
			return "its day " + path + " has changed", nil
		}
	}
	return "", nil
}

// begin makes the folder of a new night.
func (r *runner) begin(ctx context.Context, in *inputs, settings string, records []*Record, lines []Line) (*Record, error) {
	n := &Record{Version: RecordVersion, Settings: settings, Days: in.days, ModelFile: filepath.Base(r.config.Model), Started: r.now(), Steps: []Done{}}
	base := r.Date
	if newest := in.days[len(in.days)-1].Name; base == "" {
		base = newest
	} else if base != newest {
		r.say("--date names the night only: the newest of its days is %s", newest)
	}
	counter := 0
	count := func(night string, number int) {
		n.Number = max(n.Number, number)
		if text, ok := strings.CutPrefix(night, base+"."); ok {
			if c, err := strconv.Atoi(text); err == nil {
				counter = max(counter, c)
			}
		}
	}
	for _, l := range lines {
		count(l.Night, l.Number)
	}
	for _, other := range records {
		count(other.Night, other.Number)
	}
	n.Number++
	n.Night = fmt.Sprintf("%s.%d", base, counter+1)
	current, err := ReadCurrent(r.config.Out)
	if err != nil {
		return nil, err
	}
	if current != nil {
		n.Previous = &Previous{current.Night, current.Pruned}
	}
	folder := filepath.Join(r.path(nightsFolder), newPrefix+n.Night)
	if err := os.Mkdir(folder, 0o777); err != nil {
		return nil, err
	}
	made := atomicfile.Track(folder)
	defer made.Remove() // does nothing after the rename
	if err := r.copyModel(ctx, filepath.Join(folder, modelFolder)); err != nil {
		return nil, err
	}
	// The digest of the copy counts, because the checkpoint may have changed meanwhile.
	if n.Model, err = r.steps.Model(filepath.Join(folder, modelFolder, n.ModelFile)); err != nil {
		return nil, err
	}
	if err := n.save(folder); err != nil {
		return nil, err
	}
	if err := made.Rename(r.folder(n.Night)); err != nil {
		return nil, err
	}
	if err := atomicfile.SyncFolder(r.path(nightsFolder)); err != nil {
		return nil, err
	}
	return n, r.commit()
}

// copyModel copies the files of the checkpoint to a new folder.
func (r *runner) copyModel(ctx context.Context, folder string) error {
	if err := os.Mkdir(folder, 0o777); err != nil {
		return err
	}
	for _, path := range r.steps.ModelFiles(r.config.Model) {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) && path != r.config.Model {
			continue
		}
		if err != nil {
			return err
		}
		to := filepath.Join(folder, filepath.Base(path))
		if filepath.Dir(path) == filepath.Clean(r.config.Model) { // a file of a checkpoint that is a folder
			to = filepath.Join(folder, filepath.Base(r.config.Model), filepath.Base(path))
		}
		if info.IsDir() {
			err = os.MkdirAll(to, 0o777)
		} else if err = os.MkdirAll(filepath.Dir(to), 0o777); err == nil {
			err = copyFile(ctx, path, to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func copyFile(ctx context.Context, path, to string) error {
	from, err := files.Open(path, "a file of a model")
	if err != nil {
		return err
	}
	defer from.Close()
	return atomicfile.Write(to, func(w io.Writer) error {
		_, err := io.Copy(w, reader{ctx, from})
		return err
	})
}

// reader reads until its context ends.
type reader struct {
	ctx context.Context
	io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// run does what is left of a night.
func (r *runner) run(ctx context.Context, n *Record) error {
	folder := r.folder(n.Night)
	n.Attempts++
	n.Error = ""
	if err := n.save(folder); err != nil {
		return err
	}
	if err := r.commit(); err != nil {
		return err
	}
	err := r.work(ctx, n)
	if err != nil && ctx.Err() == nil {
		n.Error = err.Error()
		saving := n.save(folder)
		if saving == nil {
			saving = r.commit()
		}
		if saving != nil {
			r.say("%v", saving)
		}
	}
	return err
}

func (r *runner) work(ctx context.Context, n *Record) error {
	folder := r.folder(n.Night)
	if err := removeTemporary(folder); err != nil {
		return err
	}
	night := &Night{Config: r.config, Name: n.Night, Number: n.Number, Folder: folder, Model: filepath.Join(folder, modelFolder, n.ModelFile)}
	var days []string
	for _, d := range n.Days {
		night.Days = append(night.Days, filepath.Join(r.config.Days, d.Name))
		days = append(days, d.Name, d.Digest)
	}
	previous := ""
	var before *Record // the published night
	if n.Previous != nil {
		previous = n.Previous.Pruned
		night.Previous = filepath.Join(r.folder(n.Previous.Night), PrunedFile)
		record := &Record{}
		if err := readJSON(filepath.Join(r.folder(n.Previous.Night), RecordFile), record); err != nil {
			return err
		}
		night.PreviousNumber, night.PreviousChosen = record.Number, record.Chosen
		if model := filepath.Join(r.folder(n.Previous.Night), modelFolder, record.ModelFile); record.Settings == n.Settings && exists(model) {
			night.PreviousModel = model
		}
		before = record
	}
	for _, step := range []struct {
		name string
		run  func() error
	}{
		{stepChoose, func() error { return r.choose(ctx, n, night, before) }},
		{stepScore, func() error { return r.score(ctx, n, night) }},
		{stepPrune, func() (err error) { n.Pruned, err = r.steps.Prune(ctx, night); return err }},
		{stepCheck, func() error { return r.check(ctx, n, night) }},
		{stepReport, func() error { return r.steps.Report(ctx, night) }},
	} {
		night.Kept = n.Chosen != nil && n.Chosen.Kept
		if step.name == stepChoose && (r.config.Reuse == nil || before == nil) || night.Kept && (step.name == stepScore || step.name == stepReport) {
			continue
		}
		from := digestOf(slices.Concat([]string{step.name, n.Model, n.Settings, previous}, days, n.results(step.name))...)
		if done, err := r.isDone(n, step.name, from); done || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		r.say("%s: %s", n.Night, step.name)
		n.Steps = slices.DeleteFunc(n.Steps, func(d Done) bool { return d.Step == step.name }) // those results are gone
		began, cpu := r.Now(), r.CPU()
		err := step.run()
		n.finite()
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		done := Done{Step: step.name, Inputs: from, Files: map[string]string{}, Seconds: r.Now().Sub(began).Seconds(), CoreSeconds: (r.CPU() - cpu).Seconds()}
		if step.name == stepScore {
			if n.Scored.CoreSeconds > 0 {
				done.CoreSeconds = n.Scored.CoreSeconds
			}
			if n.Attempts > 1 {
				n.Scored.Note = strings.TrimSpace(n.Scored.Note + " The evaluations and the time of an attempt that was interrupted are not counted.")
			}
		}
		for _, file := range stepFiles[step.name] {
			digest, err := files.Digest(filepath.Join(folder, file))
			if err != nil {
				return err
			}
			done.Files[file] = digest
		}
		for _, file := range optionalFiles[step.name] {
			digest, err := files.Digest(filepath.Join(folder, file))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			done.Files[file] = digest
		}
		n.Steps = append(n.Steps, done)
		if err := n.save(folder); err != nil {
			return err
		}
		if err := r.commit(); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	outcome := Failed
	if n.Checked.Passed {
		if err := r.publish(n); err != nil {
			return err
		}
		if err := r.commit(); err != nil { // before the record says that it is published
			return err
		}
		outcome = Published
	}
	n.Outcome, n.Finished = outcome, r.now()
	return n.save(folder)
}

// finite replaces numbers that JSON cannot express by null.
func (n *Record) finite() {
	if s := n.Scored; s != nil {
		s.RelativeError, s.Reduction = finite(s.RelativeError), finite(s.Reduction)
	}
	if p := n.Pruned; p != nil {
		p.Churn, p.PlainChurn = finite(p.Churn), finite(p.PlainChurn)
	}
}

// results returns the digests of the results on which a step depends.
func (n *Record) results(step string) []string {
	if step == stepPrune && n.Chosen != nil && n.Chosen.Kept {
		return []string{"kept"}
	}
	files := map[string][]string{stepPrune: {ScoresFile}, stepCheck: {PrunedFile}, stepReport: {ScoresFile}}[step]
	if step == stepReport && n.Previous != nil { // the report compares the pruned models
		files = append(files, PrunedFile)
	}
	var digests []string
	for _, file := range files {
		digests = append(digests, file, n.digest(file))
	}
	if step == stepCheck {
		for _, file := range []string{ONNXFile, ONNXDataFile} {
			if digest := n.digest(file); digest != "" {
				digests = append(digests, file, digest)
			}
		}
	}
	return digests
}

// choose sets what a night chooses. A night that keeps the choice of the published one stands for the same rows.
func (r *runner) choose(ctx context.Context, n *Record, night *Night, before *Record) (err error) {
	if n.Chosen, err = r.steps.Choose(ctx, night); err != nil {
		return err
	}
	n.Chosen.Scores = ""
	if n.Chosen.Kept {
		n.Chosen.Scores = before.scores()
		if s := before.Scored; s != nil {
			n.Scored = &Scored{Generation: s.Generation, Rows: s.Rows, FullEvaluations: s.FullEvaluations}
		}
	}
	r.say("%s: %s", n.Night, n.Chosen.Why)
	return nil
}

// score sets how a night is scored.
func (r *runner) score(ctx context.Context, n *Record, night *Night) (err error) {
	if n.Scored, err = r.steps.Score(ctx, night); err == nil && n.Scored.Noise != "" {
		r.say("%s: %s", n.Night, n.Scored.Noise)
	}
	return err
}

// check sets whether the pruned model of a night passes, and why not.
func (r *runner) check(ctx context.Context, n *Record, night *Night) (err error) {
	if n.Checked, err = r.steps.Check(ctx, night); err == nil && !n.Checked.Passed && n.Scored != nil && n.Scored.Noise != "" {
		n.Checked.Reasons = append(n.Checked.Reasons, n.Scored.Noise)
	}
	return err
}

// exists reports whether a file or a folder has the path.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// isDone reports whether a step has finished with these inputs, and its files are still
// what it wrote. It deletes files that somebody has changed.
func (r *runner) isDone(n *Record, step, inputs string) (bool, error) {
	d := n.done(step)
	if d == nil || d.Inputs != inputs {
		return false, nil
	}
	whole := true
	for file, digest := range d.Files {
		path := filepath.Join(r.folder(n.Night), file)
		if found, err := files.Digest(path); err == nil && found == digest {
			continue
		}
		whole = false
		if err := os.RemoveAll(path); err != nil {
			return false, err
		}
	}
	return whole, nil
}

// removeTemporary deletes the temporary files that a process which was killed left in a
// folder. Folders stay, because a job continues from its own.
func removeTemporary(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); !e.IsDir() && strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".tmp") {
			if err := os.Remove(filepath.Join(folder, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle brings the link, the history, its page and the folders up to date with the nights
// that have ended, and calls Changed. It returns the history.
func (r *runner) settle() ([]Line, error) {
	if err := r.relink(); err != nil {
		return nil, err
	}
	lines, err := readHistory(r.path(historyFile))
	if err != nil {
		return nil, err
	}
	records, err := readRecords(r.path(nightsFolder))
	if err != nil {
		return nil, err
	}
	known := 0
	if len(lines) > 0 {
		known = lines[len(lines)-1].Number
	}
	before := len(lines)
	for _, n := range records {
		if n.Number > known && (n.Outcome == Published || n.Outcome == Failed) {
			lines = append(lines, n.line())
		}
	}
	if len(lines) > before {
		if err := writeHistory(r.path(historyFile), lines); err != nil {
			return nil, err
		}
	}
	if err := r.retain(); err != nil {
		return nil, err
	}
	if err := r.writePage(lines); err != nil {
		return lines, err
	}
	if err := r.commit(); err != nil || r.Changed == nil {
		return lines, err
	}
	return lines, r.Changed(lines)
}

// writePage writes the page about the nights, unless it is up to date.
func (r *runner) writePage(lines []Line) error {
	if len(lines) == 0 {
		return nil
	}
	folders := map[string]bool{}
	for _, l := range lines {
		if _, err := os.Stat(filepath.Join(r.folder(l.Night), ReportFile)); err == nil {
			folders[l.Night] = true
		}
	}
	page, err := r.steps.History(lines, folders)
	if err != nil {
		return err
	}
	if found, err := files.Small(r.path(historyPage), mostJSON, written); err == nil && string(found) == string(page) {
		return nil
	}
	return write(r.path(historyPage), page)
}

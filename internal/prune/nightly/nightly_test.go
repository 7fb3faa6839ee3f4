package nightly

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"shaver/internal/base/fault"
	"shaver/internal/base/filelock"
	"shaver/internal/base/files"
)

// keys are the settings that the tests use.
var keys = Keys{
	Score: []Key{{Name: "sample", Kind: Number}, {Name: "splits", Kind: List}, {Name: "store", Kind: Path, Local: true}},
	Prune: []Key{{Name: "sparsity", Kind: Number}},
	Check: []Key{{Name: "max-auc-drop", Kind: Number}},
}

// world is a folder with a model, days and results, and steps that write the names of what
// they get.
type world struct {
	t       *testing.T
	dir     string
	config  *Config
	calls   []string                // steps that ran
	fail    func(step string) error // called before a step writes its file
	after   func(step string) error // called after a step has written its file
	passes  func(night string) bool // whether a night passes its check; nil = yes
	noise   string                  // Scored.Noise
	options Options
}

func newWorld(t *testing.T, more ...string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	w.write("nightly.yaml", "model: model.bin\ndays: days\nout: out\nwindow: 2\nkeep: 2\nprune:\n  sparsity: 0.9\n"+strings.Join(more, "\n"))
	w.read()
	w.model("one")
	w.day("mon")
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w.options = Options{
		Say: func(format string, args ...any) { t.Logf(format, args...) },
		Now: func() time.Time { clock = clock.Add(time.Second); return clock },
		CPU: func() time.Duration { return 0 },
	}
	return w
}

func (w *world) path(elements ...string) string {
	return filepath.Join(append([]string{w.dir}, elements...)...)
}

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(w.path(name)), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.path(name), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) read() {
	w.t.Helper()
	var err error
	if w.config, err = Read(w.path("nightly.yaml"), keys); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) model(text string) { w.write("model.bin", text) }
func (w *world) day(name string)   { w.write(filepath.Join("days", name, "rows"), name) }

// run runs a night that must end without an error.
func (w *world) run() *Result {
	w.t.Helper()
	result, err := Run(w.t.Context(), w.config, keys, w, w.options)
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

// current returns the pruned model that the link, and that the file, leads to.
func (w *world) current() string {
	w.t.Helper()
	c, err := ReadCurrent(w.path("out"))
	if err != nil {
		w.t.Fatal(err)
	}
	if c == nil {
		return ""
	}
	byFile, err := os.ReadFile(w.path("out", filepath.FromSlash(c.Folder), PrunedFile))
	if err != nil {
		w.t.Fatal(err)
	}
	byLink, err := os.ReadFile(w.path("out", "current", PrunedFile))
	if err != nil || string(byLink) != string(byFile) {
		w.t.Fatalf("the link leads to %q, %v, and the file to %q", byLink, err, byFile)
	}
	return string(byFile)
}

// nights returns the names of the folders of nights.
func (w *world) nights() []string {
	w.t.Helper()
	entries, err := os.ReadDir(w.path("out", "nights"))
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (w *world) Model(path string) (string, error) { return files.Digest(path) }
func (w *world) ModelFiles(path string) []string   { return []string{path + ".json", path} }
func (w *world) Import(context.Context, string) error {
	w.calls = append(w.calls, "import")
	return nil
}
func (w *world) Day(path string) (string, error) {
	digest, err := files.Digest(filepath.Join(path, "rows"))
	if err != nil {
		return "", fault.Inputf("%s is not a day", path)
	}
	return digest, nil
}

// step writes a file as a step does, and calls fail and after.
func (w *world) step(ctx context.Context, n *Night, step, file, text string) error {
	w.calls = append(w.calls, step)
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.fail != nil {
		if err := w.fail(step); err != nil {
			return err
		}
	}
	if err := write(filepath.Join(n.Folder, file), []byte(text)); err != nil {
		return err
	}
	if w.after != nil {
		return w.after(step)
	}
	return nil
}

func (w *world) text(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Choose keeps the choice of the published night for a model whose text begins with "light".
func (w *world) Choose(_ context.Context, n *Night) (*Chosen, error) {
	w.calls = append(w.calls, stepChoose)
	c := &Chosen{Kept: strings.HasPrefix(w.text(n.Model), "light"), Why: "because", Nights: 1}
	if c.Kept && n.PreviousModel == "" {
		return nil, errors.New("no model of the published night")
	}
	if p := n.PreviousChosen; p != nil {
		c.Nights += p.Nights
	}
	return c, nil
}

func (w *world) Score(ctx context.Context, n *Night) (*Scored, error) {
	var days []string
	for _, d := range n.Days {
		days = append(days, filepath.Base(d))
	}
	text := fmt.Sprintf("%s on %s", w.text(n.Model), strings.Join(days, "+"))
	unknown := math.Inf(1)
	return &Scored{Rows: int64(len(days)), RelativeError: &unknown, CoreSeconds: 7, Noise: w.noise}, w.step(ctx, n, stepScore, ScoresFile, text)
}

func (w *world) Prune(ctx context.Context, n *Night) (*Pruned, error) {
	text := w.text(filepath.Join(n.Folder, ScoresFile))
	if n.Kept {
		text = w.text(n.Model)
	}
	if n.Previous != "" {
		text += " after (" + w.text(n.Previous) + ")"
	}
	if err := write(filepath.Join(n.Folder, PruneFile), []byte("{}")); err != nil {
		return nil, err
	}
	if n.Config.ONNX != "" {
		for _, file := range []string{ONNXFile, ONNXDataFile} {
			if err := write(filepath.Join(n.Folder, file), []byte(file+" of "+text)); err != nil {
				return nil, err
			}
		}
	}
	return &Pruned{Bytes: 1}, w.step(ctx, n, stepPrune, PrunedFile, text)
}

func (w *world) Check(ctx context.Context, n *Night) (*Checked, error) {
	c := &Checked{Passed: w.passes == nil || w.passes(n.Name), Reasons: []string{}}
	if !c.Passed {
		c.Reasons = append(c.Reasons, "AUC falls by too much")
	}
	return c, w.step(ctx, n, stepCheck, CheckFile, "checked")
}

func (w *world) Report(ctx context.Context, n *Night) error {
	return w.step(ctx, n, stepReport, ReportFile, "report")
}

func (w *world) History(lines []Line, folders map[string]bool) ([]byte, error) {
	return fmt.Appendf(nil, "%d lines, folders %v", len(lines), slices.Sorted(maps.Keys(folders))), nil
}

var all = []string{stepScore, stepPrune, stepCheck, stepReport}

// A night runs only if something is new. A new day and a new model each start one, and its
// pruning takes the published one into account.
func TestNights(t *testing.T) {
	w := newWorld(t)
	w.run()
	if got := w.current(); got != "one on mon" || !slices.Equal(w.calls, all) {
		t.Fatalf("current is %q after %v", got, w.calls)
	}
	w.calls = nil
	if r := w.run(); len(r.Nights) > 0 || w.calls != nil {
		t.Fatalf("nothing is new, but %v ran", w.calls)
	}
	w.day("tue")
	w.run()
	w.model("two")
	w.run()
	w.day("wed")
	r := w.run()
	if got, want := w.current(), "two on tue+wed after (two on mon+tue after (one on mon+tue after (one on mon)))"; got != want {
		t.Errorf("current is %q, expected %q", got, want)
	}
	if r.Latest.Number != 4 || r.Latest.Night != "wed.1" || r.Current.Night != "wed.1" || r.Latest.ScoreCoreSeconds != 7 || r.Latest.CoreSeconds <= 6 {
		t.Errorf("the last night is %+v", r.Latest)
	}
	if got := w.nights(); !slices.Equal(got, []string{"tue.2", "wed.1"}) {
		t.Errorf("the folders are %v", got)
	}
	if lines, err := readHistory(w.path("out", historyFile)); err != nil || len(lines) != 4 || lines[2].Night != "tue.2" {
		t.Errorf("history %+v, %v", lines, err)
	}
	if got := w.text(w.path("out", historyPage)); got != "4 lines, folders [tue.2 wed.1]" {
		t.Errorf("the page is %q", got)
	}
	for night, want := range map[string]bool{"tue.2": false, "wed.1": true} {
		if _, err := os.Stat(w.path("out", nightsFolder, night, modelFolder, "model.bin")); (err == nil) != want {
			t.Errorf("copy of the checkpoint of %s: %v", night, err)
		}
	}
	w.options.Again, w.options.Date = true, "extra"
	var said []string
	w.options.Say = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	if r = w.run(); r.Latest.Night != "extra.1" || len(r.Nights) != 1 {
		t.Errorf("--again gave %+v", r.Latest)
	}
	if !slices.Contains(said, "--date names the night only: the newest of its days is wed") {
		t.Errorf("said %q", said)
	}
	if w.run(); w.nights()[1] != "extra.2" {
		t.Errorf("--again gave %v", w.nights())
	}
}

// A night that fails its check changes nothing that is published. The next one prunes with
// regard to the one that is.
func TestGate(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.passes = func(night string) bool { return night != "tue.1" && night != "wed.1" && night != "x.1" }
	var said []string
	for _, day := range []string{"tue", "wed", "x"} {
		w.day(day)
		if day == "x" {
			w.noise = "few rows"
			w.options.Say = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
		}
		r := w.run()
		if day == "x" {
			if !slices.Equal(r.Latest.Reasons, []string{"AUC falls by too much", "few rows"}) || !slices.Contains(said, "x.1: few rows") {
				t.Errorf("reasons %q, said %q", r.Latest.Reasons, said)
			}
			r.Latest.Reasons, w.noise = r.Latest.Reasons[:1], ""
		}
		if r.Latest.Outcome != Failed || len(r.Latest.Reasons) != 1 || r.Current.Night != "mon.1" || w.current() != "one on mon" {
			t.Fatalf("%s: %+v, current %q", day, r.Latest, w.current())
		}
	}
	// The published night stays, although it is not among the last two.
	if got := w.nights(); !slices.Equal(got, []string{"mon.1", "wed.1", "x.1"}) {
		t.Errorf("the folders are %v", got)
	}
	if w.calls = nil; len(w.run().Nights) > 0 || w.calls != nil {
		t.Errorf("a failed night is not new, but %v ran", w.calls)
	}
	w.day("y")
	w.run()
	if got := w.current(); got != "one on x+y after (one on mon)" {
		t.Errorf("current is %q", got)
	}
	if got := w.nights(); !slices.Equal(got, []string{"x.1", "y.1"}) {
		t.Errorf("the folders are %v", got)
	}
	// A looser check is a new setting, so that the night runs again.
	w.write("nightly.yaml", w.text(w.path("nightly.yaml"))+"\ncheck:\n  max-auc-drop: 0.5\n")
	w.read()
	if r := w.run(); r.Latest.Night != "y.2" {
		t.Errorf("a new setting gave %+v", r.Latest)
	}
	// Where a step runs is not a setting that changes results.
	w.write("nightly.yaml", w.text(w.path("nightly.yaml"))+"\nscore:\n  store: elsewhere\n")
	w.read()
	if r := w.run(); len(r.Nights) > 0 {
		t.Errorf("a local setting gave %+v", r.Latest)
	}
}

// With the setting reuse, a night that keeps the published choice is neither scored nor reported. It stands for the
// rows and the scores of the night that was scored last. A night that is interrupted does not decide again.
func TestReuse(t *testing.T) {
	w := newWorld(t, "reuse: 0.001")
	night := func(model string, steps ...string) *Line {
		t.Helper()
		w.model(model)
		w.calls = nil
		r := w.run()
		if !slices.Equal(w.calls, steps) {
			t.Errorf("%s: the steps are %q, expected %q", model, w.calls, steps)
		}
		return r.Latest
	}
	kept, scored := []string{stepChoose, stepPrune, stepCheck}, append([]string{stepChoose}, all...)
	first := night("one", all...) // nothing is published
	if first.Choice != "" {
		t.Errorf("the first night chose: %+v", first)
	}
	for i, model := range []string{"light", "light again"} {
		l := night(model, kept...)
		if l.Choice != ChoiceKept || l.Why != "because" || l.Scores != first.Scores || l.Rows != first.Rows || l.Evaluations != 0 || l.Pruned == first.Pruned {
			t.Errorf("%s: %+v", model, l)
		}
		if c := w.record(l.Night).Chosen; c.Nights != i+1 {
			t.Errorf("%s: %d nights kept their choices, expected %d", model, c.Nights, i+1)
		}
	}
	if l := night("heavy", scored...); l.Choice != ChoiceScored || l.Scores == first.Scores {
		t.Errorf("after a heavy retraining: %+v", l)
	}
	w.model("light, interrupted")
	w.calls = nil
	stop := errors.New("stop")
	w.fail = func(string) error { return stop }
	if _, err := Run(t.Context(), w.config, keys, w, w.options); !errors.Is(err, stop) {
		t.Fatalf("error %v", err)
	}
	w.fail = nil
	night("light, interrupted", kept[1:]...)
	w.passes = func(string) bool { return false }
	night("light, fails", kept...)
	w.passes = nil
	if l := night("light, after a failure", kept...); w.record(l.Night).Previous.Night != "mon.5" {
		t.Errorf("after a failure: %+v", w.record(l.Night).Previous)
	}
}

// record returns the record of a night.
func (w *world) record(night string) *Record {
	w.t.Helper()
	r := &Record{}
	if err := readJSON(w.path("out", nightsFolder, night, RecordFile), r); err != nil {
		w.t.Fatal(err)
	}
	return r
}

// results returns the files of all nights, and the history without its times.
func (w *world) results() map[string]string {
	w.t.Helper()
	found := map[string]string{"current": w.current()}
	lines, err := readHistory(w.path("out", historyFile))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range lines {
		l.Started, l.Finished, l.Seconds, l.CoreSeconds, l.Attempts, l.Note = "", "", 0, 0, 0, ""
		text, err := json.Marshal(l)
		if err != nil {
			w.t.Fatal(err)
		}
		found[l.Night] = string(text)
	}
	for _, night := range w.nights() {
		for _, file := range []string{ScoresFile, PrunedFile, CheckFile, ReportFile} {
			found[night+"/"+file] = w.text(w.path("out", "nights", night, file))
		}
	}
	return found
}

// A night that is interrupted before or after any step ends as if nothing had happened, and
// steps that are finished do not run again. The model that counts is that of the beginning.
func TestRestart(t *testing.T) {
	whole := newWorld(t)
	whole.run()
	whole.day("tue")
	whole.run()
	want := whole.results()
	stop := errors.New("stop")
	for i, at := range all {
		for _, moment := range []string{"before", "after"} {
			t.Run(moment+" "+at, func(t *testing.T) {
				w := newWorld(t)
				w.run()
				w.day("tue")
				ctx, cancel := context.WithCancel(t.Context())
				cut := func(step string) error {
					if step != at {
						return nil
					}
					cancel() // as Ctrl-C does
					return stop
				}
				if w.calls = nil; moment == "before" {
					w.fail = cut
				} else {
					w.after = cut
				}
				if _, err := Run(ctx, w.config, keys, w, w.options); !errors.Is(err, stop) {
					t.Fatalf("error %v", err)
				}
				if got := w.current(); got != "one on mon" {
					t.Errorf("current is %q after the interruption", got)
				}
				w.write(filepath.Join("out", "nights", "tue.1", ".scores.arrow.123.tmp"), "half")
				w.write(filepath.Join("out", ".current.json.123.tmp"), "half")
				w.calls, w.fail, w.after = nil, nil, nil
				var said strings.Builder
				w.options.Say = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
				if r := w.run(); len(r.Nights) != 1 || r.Nights[0].Attempts != 2 || (r.Nights[0].Note != "") != (at == stepScore) {
					t.Errorf("%+v", r.Nights)
				}
				if !slices.Equal(w.calls, all[i:]) {
					t.Errorf("the steps %v ran again", w.calls)
				}
				if strings.Contains(said.String(), "nothing to do") {
					t.Errorf("the run that ended the night said:\n%s", said.String())
				}
				if got := w.results(); !maps.Equal(got, want) {
					t.Errorf("found\n%v\nexpected\n%v", got, want)
				}
				for _, left := range []string{"nights/tue.1/.scores.arrow.123.tmp", ".current.json.123.tmp"} {
					if _, err := os.Stat(w.path("out", left)); err == nil {
						t.Errorf("%s is still there", left)
					}
				}
			})
		}
	}
}

// After an interruption between any two of the last actions, the next run completes them.
func TestSettle(t *testing.T) {
	for name, undo := range map[string]func(w *world) error{
		"no link":         func(w *world) error { return os.Remove(w.path("out", currentLink)) },
		"no history":      func(w *world) error { return os.Remove(w.path("out", historyFile)) },
		"no page":         func(w *world) error { return os.Remove(w.path("out", historyPage)) },
		"half a deletion": func(w *world) error { return os.Mkdir(w.path("out", nightsFolder, gonePrefix+"sun.1"), 0o755) },
		"half a night":    func(w *world) error { return os.Mkdir(w.path("out", nightsFolder, newPrefix+"tue.1"), 0o755) },
		"old link": func(w *world) error {
			if err := os.Remove(w.path("out", currentLink)); err != nil {
				return err
			}
			return os.Symlink(filepath.Join(nightsFolder, "sun.1"), w.path("out", currentLink))
		},
		"no outcome": func(w *world) error {
			records, err := readRecords(w.path("out", nightsFolder))
			if err != nil {
				return err
			}
			n := records[len(records)-1]
			n.Outcome, n.Finished, n.Error = "", "", "something went wrong"
			w.model("two") // the night is published, so that it is not abandoned
			if err := os.Remove(w.path("out", historyFile)); err != nil {
				return err
			}
			return n.save(w.path("out", nightsFolder, n.Night))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.run()
			if err := undo(w); err != nil {
				t.Fatal(err)
			}
			w.calls = nil
			r := w.run()
			if name == "no outcome" {
				if len(r.Nights) != 2 || len(w.calls) != len(all) || w.current() != "two on mon after (one on mon)" {
					t.Errorf("nights %+v, steps %v, current %q", r.Nights, w.calls, w.current())
				}
				return
			}
			if len(r.Nights) > 0 || w.calls != nil {
				t.Errorf("%v ran", w.calls)
			}
			if w.current() != "one on mon" || w.text(w.path("out", historyPage)) != "1 lines, folders [mon.1]" || !slices.Equal(w.nights(), []string{"mon.1"}) {
				t.Errorf("current %q, page %q, nights %v", w.current(), w.text(w.path("out", historyPage)), w.nights())
			}
		})
	}
}

// Run deletes its own temporary files and leaves those of others alone.
func TestTemporary(t *testing.T) {
	w := newWorld(t)
	w.write("out/.mine.tmp/file", "mine")
	w.write("out/.other.arrow.1.tmp", "mine")
	w.write("out/."+historyPage+".12.tmp", "ours")
	w.write("out/."+currentFile+".12.tmp", "ours")
	w.run()
	if w.text(w.path("out", ".mine.tmp", "file")) != "mine" || w.text(w.path("out", ".other.arrow.1.tmp")) != "mine" {
		t.Error("files of others were deleted")
	}
	if left, err := filepath.Glob(w.path("out", ".*.12.tmp")); err != nil || left != nil {
		t.Errorf("%v are left, error %v", left, err)
	}
}

// A step runs again if somebody changed its file, and so do the steps that follow from it.
func TestDamage(t *testing.T) {
	w := newWorld(t)
	w.fail = func(step string) error {
		if step == stepReport {
			return errors.New("no room")
		}
		return nil
	}
	if _, err := Run(t.Context(), w.config, keys, w, w.options); err == nil {
		t.Fatal("no error")
	}
	w.write("out/nights/mon.1/"+PrunedFile, "damaged")
	w.calls, w.fail = nil, nil
	w.run()
	if !slices.Equal(w.calls, []string{stepPrune, stepReport}) || w.current() != "one on mon" {
		t.Errorf("%v ran, current is %q", w.calls, w.current())
	}
}

// The files of ONNX are published like the others: current.json has their digests, and the
// step that writes them runs again if somebody changed one, and so does the check if they then differ.
func TestONNX(t *testing.T) {
	w := newWorld(t)
	w.config.ONNX = DenseONNX
	plain := *w.config
	plain.ONNX = ""
	if w.config.digest(keys) == plain.digest(keys) {
		t.Error("the settings have the same digest without ONNX")
	}
	w.fail = func(step string) error {
		if step == stepReport {
			return errors.New("no room")
		}
		return nil
	}
	if _, err := Run(t.Context(), w.config, keys, w, w.options); err == nil {
		t.Fatal("no error")
	}
	w.fail = nil
	w.write("out/nights/mon.1/"+ONNXDataFile, "damaged")
	w.calls = nil
	w.run()
	if !slices.Equal(w.calls, []string{stepPrune, stepReport}) {
		t.Errorf("%v ran", w.calls)
	}
	c, err := ReadCurrent(w.path("out"))
	if err != nil {
		t.Fatal(err)
	}
	for file, digest := range map[string]string{PrunedFile: c.Pruned, ONNXFile: c.ONNX, ONNXDataFile: c.ONNXData} {
		if found, err := files.Digest(w.path("out", "current", file)); err != nil || found != digest {
			t.Errorf("%s has the digest %s, and current.json %s: %v", file, found, digest, err)
		}
	}
	w.day("tue")
	w.config.ONNX = ""
	w.run()
	if c, err = ReadCurrent(w.path("out")); err != nil || c.Night != "tue.1" || c.ONNX+c.ONNXData != "" {
		t.Errorf("without ONNX: %+v, %v", c, err)
	}
}

// A night that failed for a reason other than its check is tried again, until a new model or
// a new day replaces it.
func TestAbandon(t *testing.T) {
	w := newWorld(t)
	w.fail = func(step string) error { return fault.Inputf("a bad model") }
	for range 2 {
		if _, err := Run(t.Context(), w.config, keys, w, w.options); !fault.IsInput(err) || !strings.Contains(err.Error(), "score: a bad model") {
			t.Fatalf("error %v", err)
		}
	}
	if got := w.nights(); !slices.Equal(got, []string{"mon.1"}) {
		t.Fatalf("the folders are %v", got)
	}
	w.fail = nil
	w.model("better")
	w.run()
	if got := w.current(); got != "better on mon" {
		t.Errorf("current is %q", got)
	}
	if got := w.nights(); !slices.Equal(got, []string{"mon.2"}) {
		t.Errorf("the folders are %v", got)
	}
	// A night that was killed continues with its own model, even if there is a new one. The
	// new one is next.
	w.day("tue")
	ctx, cancel := context.WithCancel(t.Context())
	w.fail = func(step string) error { cancel(); return ctx.Err() }
	if _, err := Run(ctx, w.config, keys, w, w.options); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	w.fail = nil
	w.model("best")
	if r := w.run(); len(r.Nights) != 2 || w.current() != "best on mon+tue after (better on mon+tue after (better on mon))" {
		t.Errorf("%d nights, current is %q", len(r.Nights), w.current())
	}
	// A night whose day is gone cannot continue.
	w.day("wed")
	ctx, cancel = context.WithCancel(t.Context())
	w.fail = func(step string) error { cancel(); return ctx.Err() }
	if _, err := Run(ctx, w.config, keys, w, w.options); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	w.fail = nil
	if err := os.RemoveAll(w.path("days", "tue")); err != nil {
		t.Fatal(err)
	}
	if r := w.run(); len(r.Nights) != 1 || r.Latest.Night != "wed.2" || !strings.HasPrefix(w.current(), "best on mon+wed") {
		t.Errorf("%+v, current is %q", r.Latest, w.current())
	}
}

// What cannot begin is refused in one line.
func TestRefused(t *testing.T) {
	expect := func(t *testing.T, w *world, kind func(error) bool, text string) {
		t.Helper()
		_, err := Run(t.Context(), w.config, keys, w, w.options)
		if err == nil || !kind(err) || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, expected one with %q", err, text)
		}
	}
	t.Run("two at once", func(t *testing.T) {
		w := newWorld(t)
		w.run()
		unlock, err := filelock.Lock(w.path("out", lockFile))
		if err != nil {
			t.Fatal(err)
		}
		expect(t, w, func(err error) bool { return !fault.IsUsage(err) && !fault.IsInput(err) }, "another shaver nightly works in")
		unlock()
		w.run()
	})
	t.Run("no days", func(t *testing.T) {
		w := newWorld(t)
		if err := os.RemoveAll(w.path("days", "mon")); err != nil {
			t.Fatal(err)
		}
		expect(t, w, fault.IsInput, "has no days")
	})
	t.Run("no dataset", func(t *testing.T) {
		w := newWorld(t)
		if err := os.MkdirAll(w.path("days", "tue"), 0o755); err != nil {
			t.Fatal(err)
		}
		expect(t, w, fault.IsInput, "tue is not a day")
	})
	t.Run("no link", func(t *testing.T) {
		w := newWorld(t)
		w.write("out/current/file", "mine")
		expect(t, w, fault.IsUsage, "current is not a symbolic link")
	})
	t.Run("date", func(t *testing.T) {
		w := newWorld(t)
		w.options.Date = "../x"
		expect(t, w, fault.IsUsage, `--date "../x"`)
	})
	t.Run("damaged record", func(t *testing.T) {
		w := newWorld(t)
		w.run()
		w.write("out/nights/mon.1/night.json", "{")
		expect(t, w, fault.IsInput, "night.json is not a file that shaver nightly wrote")
	})
	t.Run("foreign file", func(t *testing.T) {
		w := newWorld(t)
		w.write("out/nights/notes.txt", "mine")
		expect(t, w, fault.IsInput, "notes.txt is not the folder of a night, which has a file night.json")
	})
	t.Run("foreign folder", func(t *testing.T) {
		w := newWorld(t)
		w.write("out/nights/mine/file", "mine")
		expect(t, w, fault.IsInput, "mine is not the folder of a night, which has a file night.json")
	})
	t.Run("no folder of days", func(t *testing.T) {
		w := newWorld(t)
		w.config.Days = w.path("model.bin")
		expect(t, w, fault.IsInput, "model.bin is not a folder")
	})
	// A record cannot name files elsewhere, which would be deleted if they have another digest.
	for name, change := range map[string]struct {
		change func(*Record)
		want   string
	}{
		"file of a step":    {func(n *Record) { n.Steps[3].Files = map[string]string{"../../../model.bin": "0"} }, `the step report has the file "../../../model.bin", expected report.html`},
		"missing digest":    {func(n *Record) { n.Steps[0].Files = nil }, "the step score has no digest of scores.arrow"},
		"unknown step":      {func(n *Record) { n.Steps[0].Step = "x" }, `the step "x" is unknown`},
		"no result":         {func(n *Record) { n.Checked = nil }, "the step check is done, but its result is missing"},
		"day elsewhere":     {func(n *Record) { n.Days[0].Name = "../model.bin" }, `the name "../model.bin", expected that of a file or a folder without a path`},
		"model elsewhere":   {func(n *Record) { n.ModelFile = ".." }, `the name ".."`},
		"previous nowhere":  {func(n *Record) { n.Previous = &Previous{} }, `the name ""`},
		"number of a night": {func(n *Record) { n.Number = math.MaxInt }, "number 9223372036854775807"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.run()
			records, err := readRecords(w.path("out", nightsFolder))
			if err != nil {
				t.Fatal(err)
			}
			records[0].Outcome = ""
			change.change(records[0])
			if err := records[0].save(w.path("out", nightsFolder, "mon.1")); err != nil {
				t.Fatal(err)
			}
			expect(t, w, fault.IsInput, change.want)
			if w.text(w.path("model.bin")) != "one" {
				t.Error("a file elsewhere was deleted")
			}
		})
	}
	t.Run("published elsewhere", func(t *testing.T) {
		w := newWorld(t)
		w.run()
		if err := writeJSON(w.path("out", currentFile), Current{Version: CurrentVersion, Night: "../../days", Folder: "nights/../../days"}); err != nil {
			t.Fatal(err)
		}
		expect(t, w, fault.IsInput, `current.json: version "shaver.current/1", night "../../days"`)
	})
	t.Run("number in the history", func(t *testing.T) {
		w := newWorld(t)
		w.run()
		if err := writeHistory(w.path("out", historyFile), []Line{{Version: LineVersion, Night: "mon.1", Number: math.MaxInt}}); err != nil {
			t.Fatal(err)
		}
		expect(t, w, fault.IsInput, "history.jsonl:1: night \"mon.1\", number 9223372036854775807")
	})
	t.Run("damaged history", func(t *testing.T) {
		w := newWorld(t)
		w.run()
		w.write("out/history.jsonl", "{}\n")
		expect(t, w, fault.IsInput, `history.jsonl:1: version ""`)
	})
}

// TestInputsNamed checks that an error about the inputs names the key, and that days are
// refused whose names give another order than their numbers.
func TestInputsNamed(t *testing.T) {
	for _, c := range []struct {
		name, want string
		set        func(w *world)
	}{
		{"no model", "key model of the configuration: ", func(w *world) { w.config.Model = w.path("gone.pth") }},
		{"no days", "key days of the configuration: ", func(w *world) { w.config.Days = w.path("gone") }},
		{"numbers", `the day "day10" would be older than "day9"`, func(w *world) { w.day("day9"); w.day("day10") }},
		{"dates", `the day "2026-11-22" would be older than "2026-11-3"`, func(w *world) { w.day("2026-11-22"); w.day("2026-11-3") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			c.set(w)
			if _, err := Run(t.Context(), w.config, keys, w, w.options); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, expected %q", err, c.want)
			}
		})
	}
	for _, names := range [][2]string{{"day-09", "day-10"}, {"2026-11-22", "2026-11-22-2"}, {"fri", "mon"}, {"a1", "b0"}, {"1", "x"}, {"007", "7"}, {"day", "day1"}} {
		if numberedAfter(names[0], names[1]) {
			t.Errorf("the days %s are refused", names)
		}
	}
}

// Results reads the history and the published night through a function, and reports files that
// shaver nightly did not write. A folder without files has no nights.
func TestResults(t *testing.T) {
	files := map[string]string{}
	open := func(name string) (io.ReadCloser, error) {
		text, ok := files[name]
		if !ok {
			return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
		}
		return io.NopCloser(strings.NewReader(text)), nil
	}
	if lines, current, err := Results(open); err != nil || len(lines) != 0 || current != nil {
		t.Errorf("without files: %v, %v, %v", lines, current, err)
	}
	files[historyFile] = `{"version":"shaver.history/1","night":"monday","number":1}` + "\n"
	if lines, current, err := Results(open); err != nil || len(lines) != 1 || lines[0].Night != "monday" || current != nil {
		t.Errorf("without a published night: %v, %v, %v", lines, current, err)
	}
	files[currentFile] = `{"version":"shaver.current/1","night":"monday","folder":"nights/monday"}`
	if _, current, err := Results(open); err != nil || current == nil || current.Night != "monday" {
		t.Errorf("with a published night: %v, %v", current, err)
	}
	for name, text := range map[string]string{
		currentFile: `{"version":"shaver.current/1","night":"../monday","folder":"nights/../monday"}`, historyFile: `{"version":"shaver.history/2","night":"monday","number":1}`,
	} {
		good := files[name]
		files[name] = text
		if _, _, err := Results(open); !fault.IsInput(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, expected bad input", name, err)
		}
		files[name] = good
	}
	lost := errors.New("no connection")
	if _, _, err := Results(func(string) (io.ReadCloser, error) { return nil, lost }); !errors.Is(err, lost) {
		t.Errorf("%v, expected %v", err, lost)
	}
}

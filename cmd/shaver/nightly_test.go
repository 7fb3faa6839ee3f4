package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"shaver/infer"
	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/base/filelock"
	"shaver/internal/base/files"
	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/planted"
	"shaver/internal/data/dataset"
	"shaver/internal/data/redisrows"
	"shaver/internal/data/redisrows/redistest"
	"shaver/internal/jobs/scores"
	"shaver/internal/onnx/wire/onnxtest"
	"shaver/internal/prune/delta/deltatest"
	"shaver/internal/prune/gate"
	"shaver/internal/prune/nightly"
)

// smallNights is the configuration of the tests. The checks are so loose that they pass.
const smallNights = `model: model.safetensors
days: days
window: 2
out: out
keep: 2
score:
  baseline: codebook
  splits: [train]
  sample: 0.2
prune:
  sparsity: 0.5
  hysteresis: 1
calibrate: true
check:
  max-auc-drop: 0.5
  max-logloss-rise: 0.5
metrics:
  textfile: shaver.prom
`

// nightsSource has a model and a day for each of some nights.
type nightsSource struct {
	t      *testing.T
	dir    string
	nights int
}

// newNightsSource makes models and days. A model of a night reads two of three columns.
func newNightsSource(t *testing.T, nights int) *nightsSource {
	t.Helper()
	s := &nightsSource{t, t.TempDir(), nights}
	p, err := planted.New(planted.Config{Fields: []string{"a", "b", "c"}, FieldDims: []int{40, 30, 20}, Informative: 2, Silent: 1, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	truth := p
	for night := range nights {
		if truth, err = truth.Drifted(.1, uint64(night)); err == nil {
			p, err = p.Retrained(truth, .5, .01, uint64(night))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := checkpoint.WriteDense(s.model(night), p.Checkpoint); err != nil {
			t.Fatal(err)
		}
		rows := filepath.Join(s.dir, "rows.csv")
		f, err := os.Create(rows)
		if err == nil {
			err = errors.Join(truth.WriteCSV(f, 3000), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		command(t, "shaver", "dataset", "import", "csv", "--train", rows, "--split", "8:1:1", "--model", s.model(night), "--out", s.day(night))
	}
	return s
}

// drift writes the model of a night: ck with noise in its table, of the size scale in each night.
func (s *nightsSource) drift(night int, ck *checkpoint.Checkpoint, scale float32) {
	s.t.Helper()
	table, err := ck.Embedding()
	if err != nil {
		s.t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(7, uint64(night)))
	for i := range table {
		table[i] += float32(night) * scale * float32(r.NormFloat64())
	}
	if _, err := checkpoint.WriteDense(s.model(night), ck.WithEmbedding(table)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *nightsSource) model(night int) string {
	return filepath.Join(s.dir, fmt.Sprintf("model-%d.safetensors", night))
}
func (s *nightsSource) day(night int) string {
	return filepath.Join(s.dir, fmt.Sprintf("day-%d", night))
}

// nightsFolder is a folder in which shaver nightly runs.
type nightsFolder struct {
	*nightsSource
	dir string
}

// folder returns a new folder with a configuration. change replaces parts of it.
func (s *nightsSource) folder(change ...string) *nightsFolder {
	s.t.Helper()
	f := &nightsFolder{s, s.t.TempDir()}
	if err := os.Mkdir(f.path("days"), 0o755); err != nil {
		s.t.Fatal(err)
	}
	f.write("nightly.yaml", strings.NewReplacer(change...).Replace(smallNights))
	return f
}

func (f *nightsFolder) path(elements ...string) string {
	return filepath.Join(append([]string{f.dir}, elements...)...)
}

func (f *nightsFolder) write(name, text string) {
	f.t.Helper()
	if err := os.WriteFile(f.path(name), []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// text returns the content of a file in the folder.
func (f *nightsFolder) text(name string) string {
	f.t.Helper()
	data, err := os.ReadFile(f.path(name))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(data)
}

// bring puts the model and the day of a night in their places.
func (f *nightsFolder) bring(night int) {
	f.t.Helper()
	model, err := os.ReadFile(f.model(night))
	if err != nil {
		f.t.Fatal(err)
	}
	f.write("model.safetensors", string(model))
	if err := os.CopyFS(f.path("days", filepath.Base(f.day(night))), os.DirFS(f.day(night))); err != nil {
		f.t.Fatal(err)
	}
}

// args returns the command.
func (f *nightsFolder) args(more ...string) []string {
	return append([]string{"nightly", "--config", f.path("nightly.yaml")}, more...)
}

// run runs a night and returns the exit code and what it wrote to stderr.
func (f *nightsFolder) run(more ...string) (code int, log string) {
	f.t.Helper()
	c := exec.CommandContext(f.t.Context(), "shaver", f.args(more...)...)
	var stderr strings.Builder
	c.Stderr = &stderr
	code, err := exitCode(c.Run())
	if err != nil {
		f.t.Fatal(err)
	}
	return code, stderr.String()
}

// must runs a night that must be published.
func (f *nightsFolder) must(more ...string) {
	f.t.Helper()
	if code, log := f.run(more...); code != 0 {
		f.t.Fatalf("exit code %d:\n%s", code, log)
	}
}

// published returns the bytes of what the link leads to: the results that must be the same
// in every run. current.json must name the same night.
func (f *nightsFolder) published() map[string]string {
	f.t.Helper()
	found := map[string]string{}
	for _, name := range []string{nightly.ScoresFile, nightly.PrunedFile, nightly.CheckFile} {
		data, err := os.ReadFile(f.path("out", "current", name))
		if err != nil {
			f.t.Fatal(err)
		}
		found[name] = string(data)
	}
	target, err := os.Readlink(f.path("out", "current"))
	if err != nil {
		f.t.Fatal(err)
	}
	current, err := nightly.ReadCurrent(f.path("out"))
	if err != nil {
		f.t.Fatal(err)
	}
	if filepath.ToSlash(target) != current.Folder {
		f.t.Errorf("the link leads to %s, and current.json names %s", target, current.Folder)
	}
	found["night"] = current.Night
	return found
}

// wantWhole checks what a reader finds after a kill: nothing before the first night, and
// otherwise the whole last night or the one before.
func (f *nightsFolder) wantWhole(nights []map[string]string) {
	f.t.Helper()
	night := len(nights) - 1
	current, err := nightly.ReadCurrent(f.path("out"))
	if err != nil || current == nil {
		if err != nil || night > 0 {
			f.t.Fatalf("after a kill in night %d, %v is published, error %v", night, current, err)
		}
		return
	}
	for _, folder := range []string{filepath.FromSlash(current.Folder), "current"} {
		found := map[string]string{}
		for _, name := range []string{nightly.ScoresFile, nightly.PrunedFile, nightly.CheckFile} {
			data, err := os.ReadFile(f.path("out", folder, name))
			if errors.Is(err, fs.ErrNotExist) && folder == "current" && night == 0 {
				found = nil // killed between the file and the first link
				break
			}
			if err != nil {
				f.t.Fatal(err)
			}
			found[name] = string(data)
		}
		whole := found == nil
		for _, n := range nights[max(0, night-1):] {
			n = maps.Clone(n)
			delete(n, "night")
			whole = whole || maps.Equal(found, n)
		}
		if !whole {
			f.t.Fatalf("after a kill in night %d, %s has the files of no night", night, folder)
		}
	}
}

// wantDelta applies the delta of a night to the file before, or to nothing if that is "". It fails unless the result is the published model, and
// returns its path.
func (f *nightsFolder) wantDelta(night int, before string) string {
	f.t.Helper()
	name := fmt.Sprintf("applied-%d.safetensors", night)
	args := []string{"model", "apply", f.path("out", "current", nightly.DeltaFolder), "--out", f.path(name)}
	if before != "" {
		args = append(args, "--model", before)
	}
	command(f.t, "shaver", args...)
	if f.text(name) != f.text("out/current/pruned.safetensors") {
		f.t.Errorf("night %d: the delta does not lead to the published model", night)
	}
	return f.path(name)
}

// history returns the lines of history.jsonl.
func (f *nightsFolder) history() []nightly.Line {
	f.t.Helper()
	var lines []nightly.Line
	text, err := os.ReadFile(f.path("out", "history.jsonl"))
	if err != nil {
		f.t.Fatal(err)
	}
	for one := range strings.Lines(string(text)) {
		var l nightly.Line
		if err := json.Unmarshal([]byte(one), &l); err != nil {
			f.t.Fatal(err)
		}
		lines = append(lines, l)
	}
	return lines
}

// wantChanges checks that the report of a night counts the features that keep no entry any more and those that keep one again since
// the night before, and names the most frequent of each field. It returns their number.
func (f *nightsFolder) wantChanges(before, night string) int {
	f.t.Helper()
	var alive [2][][]bool // by night, field and id
	for k, name := range []string{before, night} {
		ck, err := checkpoint.Read(f.path("out", "nights", name, nightly.PrunedFile))
		if err != nil {
			f.t.Fatal(err)
		}
		dropped, _, err := ck.Pruned()
		if err != nil {
			f.t.Fatal(err)
		}
		for _, size := range ck.Architecture.FieldDims {
			var ids []bool
			for range size {
				ids = append(ids, slices.Contains(dropped[:ck.Architecture.Dim], false))
				dropped = dropped[ck.Architecture.Dim:]
			}
			alive[k] = append(alive[k], ids)
		}
	}
	found, err := scores.Read(f.path("out", "nights", night, nightly.ScoresFile))
	if err != nil {
		f.t.Fatal(err)
	}
	var total [2]int
	rows, first := "", 0
	for j, ids := range alive[0] {
		var lists [2][]int
		for id, was := range ids {
			if is := alive[1][j][id]; was && !is {
				lists[0] = append(lists[0], id)
			} else if is && !was {
				lists[1] = append(lists[1], id)
			}
		}
		if len(lists[0])+len(lists[1]) > 0 {
			rows += found.Fields[j]
		}
		for k, list := range lists {
			total[k] += len(list)
			slices.SortStableFunc(list, func(x, y int) int { return int(found.Count[first+y] - found.Count[first+x]) })
			for _, id := range list[:min(len(list), 4)] {
				if n := found.Count[first+id]; n > 0 {
					rows += fmt.Sprintf("id %d %d rows", id, n)
				}
			}
		}
		first += len(ids)
	}
	page := f.text(filepath.Join("out", "nights", night, nightly.ReportFile))
	_, section, _ := strings.Cut(page, "What changed against "+before+"</h2>")
	section, _, _ = strings.Cut(section, "</section>")
	_, body, _ := strings.Cut(section, "<tbody>")
	body = regexp.MustCompile(`<[^>]*>|\n|\d+ more`).ReplaceAllString(strings.ReplaceAll(body, " 1 row<", " 1 rows<"), "")
	if want := regexp.MustCompile(fmt.Sprintf("%d features? keeps? no entry any more, and %d keeps? one again", total[0], total[1])); !want.MatchString(section) || body != rows {
		f.t.Errorf("%s against %s: expected %v and %q, the page says %s", night, before, want, rows, section)
	}
	return total[0] + total[1]
}

// Nights score a new day in full and correct the others, prune with hysteresis, and are
// published. The page, the metrics and the reports of the kept nights are there.
func TestNightly(t *testing.T) {
	f := newNightsSource(t, 4).folder()
	for night := range f.nights {
		f.bring(night)
		f.must()
	}
	lines := f.history()
	if len(lines) != 4 {
		t.Fatalf("%d lines", len(lines))
	}
	full := lines[0].FullEvaluations
	for i, l := range lines {
		rows := full * int64(min(i+1, 2))
		if l.Outcome != nightly.Published || l.Number != i+1 || l.Night != fmt.Sprintf("day-%d.1", i) || l.AUC == nil || l.PrunedAUC == nil || l.RelativeError == nil || l.CoreSeconds <= 0 {
			t.Errorf("night %d: %+v", i, l)
		}
		if d := float64(l.FullEvaluations - rows); d < -100 || d > 100 { // days differ a little in their splits
			t.Errorf("night %d: a full job has %d evaluations, expected about %d", i, l.FullEvaluations, rows)
		}
		if i == 0 {
			if l.Evaluations != l.FullEvaluations || l.Generation != 0 || l.Churn != nil || *l.RelativeError != 0 {
				t.Errorf("the first night is not a full one: %+v", l)
			}
			continue
		}
		// The new day in full, and two models on a fifth of the other one.
		if share := float64(l.Evaluations) / float64(l.FullEvaluations); share < .67 || share > .73 {
			t.Errorf("night %d took %.2f of the evaluations of a full job, expected 0.7", i, share)
		}
		if l.Generation != 1 || l.Churn == nil || l.PlainChurn == nil || *l.Churn > *l.PlainChurn || *l.RelativeError <= 0 {
			t.Errorf("night %d: %+v", i, l)
		}
	}
	wantFiles(t, f.path("out", "nights"), "day-2.1", "day-3.1")
	wantFiles(t, f.path("out", "nights", "day-2.1"), "check.json", "night.json", "prune.json", "pruned.safetensors", "report.html", "scores.arrow", "scores.job.json")
	wantFiles(t, f.path("out"), "current", "current.json", "history.html", "history.jsonl", "nights", "state")
	page, err := os.ReadFile(f.path("out", "history.html"))
	if err != nil || !strings.Contains(string(page), `href="nights/day-3.1/report.html"`) || strings.Contains(string(page), `href="nights/day-1.1`) {
		t.Errorf("the page has wrong links (%v)", err)
	}
	if changed := f.wantChanges("day-2.1", "day-3.1"); changed == 0 {
		t.Error("no feature lost its last entry or got one back")
	}
	text, err := os.ReadFile(f.path("shaver.prom"))
	if err != nil || !strings.Contains(string(text), "\nshaver_night_number 4\n") || !strings.Contains(string(text), "\nshaver_night_published 1\n") {
		t.Errorf("metrics %s, %v", text, err)
	}

	// What the steps wrote is what the commands write.
	if code, log := f.run(); code != 0 || !strings.Contains(log, "nothing to do") {
		t.Errorf("exit code %d:\n%s", code, log)
	}
	unlock, err := filelock.Lock(f.path("out", ".nightly.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if code, log := f.run(); code != 1 || !regexp.MustCompile(`^shaver: another shaver nightly works in \S+: wait for its end\n$`).MatchString(log) {
		t.Errorf("two at once: exit code %d:\n%s", code, log)
	}
	unlock()
	var line nightly.Line
	shaver(t, &line, f.args("--again", "--date", "again")...)
	if line.Night != "again.1" || line.Evaluations != 0 || line.Scores != lines[3].Scores {
		t.Errorf("the same night again: %+v", line)
	}
}

// Nights of a path compute a full job each, keep choices by rounds of the path, and need no
// state. Settings that need values are refused in one line before anything runs.
func TestNightlyPath(t *testing.T) {
	long.Test(t)
	s := newNightsSource(t, 3)
	f := s.folder("  sample: 0.2\n", "  estimator: path\n  parts: 4\n", "calibrate: true\n", "calibrate: true\ndelta: true\n")
	before := "" // every night's delta brings this file to the published model
	for night := range f.nights {
		f.bring(night)
		f.must()
		before = f.wantDelta(night, before)
	}
	lines := f.history()
	if len(lines) != 3 {
		t.Fatalf("%d lines", len(lines))
	}
	for i, l := range lines {
		if l.Outcome != nightly.Published || l.Generation != 0 || l.RelativeError != nil || l.Rows <= 0 || l.Evaluations <= l.Rows || l.Evaluations != l.FullEvaluations {
			t.Errorf("night %d: %+v", i, l)
		}
		if i > 0 && (l.Churn == nil || *l.Churn > *l.PlainChurn) {
			t.Errorf("night %d: churn %v", i, l)
		}
	}
	var record nightly.Record
	readJSON(t, f.path("out", "current", nightly.RecordFile), &record)
	if !strings.Contains(record.Scored.Noise, " rows, and a path is noisy below 30000: try the estimator multilinear") {
		t.Errorf("the scores %+v do not say that they come from few rows", record.Scored)
	}
	wantFiles(t, f.path("out"), "current", "current.json", "history.html", "history.jsonl", "nights")
	for _, c := range []struct{ old, to, want string }{
		{"  parts: 4\n", "  sample: 0.2\n", `:10: score.sample "0.2": with the estimator path every night is a full job: expected no such key`},
		{"  parts: 4\n", "  full-every: 7\n", `score.full-every "7": with the estimator path`},
		{"  parts: 4\n", "  max-inherited-error: 0.1\n", `score.max-inherited-error "0.1": with the estimator path`},
		{"  hysteresis: 1\n", "  aggregate: rms\n", `prune.aggregate "rms": the estimator path gives an order and no values: expected no such key`},
		{"  hysteresis: 1\n", "  aggregate: signed\n", `prune.aggregate "signed": the estimator path`},
	} {
		before := f.text("nightly.yaml")
		f.write("nightly.yaml", strings.Replace(before, c.old, c.to, 1))
		if code, log := f.run(); code != cli.ExitBadInput || !strings.Contains(log, c.want) || strings.Count(log, "\n") != 1 {
			t.Errorf("exit code %d: %s", code, log)
		}
		f.write("nightly.yaml", before)
	}
}

// Nights of a path may have several words. A night that is scored finds new ones, and one that keeps the last choice keeps which row reads
// which. Their deltas lead to the published files, and to a Redis with the same rows. Values need one word.
func TestNightlyWords(t *testing.T) {
	long.Test(t)
	s, p := &nightsSource{t, t.TempDir(), 3}, clustered(t)
	for night := range s.nights {
		s.drift(night, p.Checkpoint, .005)
		rows, err := os.Create(filepath.Join(s.dir, "rows.csv"))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.WriteCSV(rows, 4000+night), rows.Close()); err != nil {
			t.Fatal(err)
		}
		command(t, "shaver", "dataset", "import", "csv", "--train", rows.Name(), "--split", "8:1:1", "--model", s.model(night), "--out", s.day(night))
	}
	f := s.folder("keep: 2\n", "keep: 3\n", "  sample: 0.2\n", "  estimator: path\n  sparsity: 0.9\n  parts: 4\n", "  sparsity: 0.5\n", "  sparsity: 0.9\n", "baseline: codebook\n", "baseline: words\n", "calibrate: true\n", "calibrate: true\ndelta: true\nreuse: 0.5\n")
	var baselines []model.Baseline
	before := ""
	for night := range s.nights {
		f.bring(night)
		if night == 2 {
			f.write("nightly.yaml", strings.Replace(f.text("nightly.yaml"), "reuse: 0.5\n", "", 1))
		}
		f.must()
		ck, err := checkpoint.Read(f.path("out", "current", nightly.PrunedFile))
		if err != nil || ck.Compact.Baseline().Words == nil {
			t.Fatalf("night %d: one word for each field, %v", night, err)
		}
		baselines = append(baselines, ck.Compact.Baseline())
		before = f.wantDelta(night, before)
	}
	lines := f.history()
	for i, l := range lines {
		if kept := i == 1; kept != (l.Choice == nightly.ChoiceKept) || kept != (l.Evaluations == 0) {
			t.Errorf("night %d: %+v", i, l)
		}
	}
	if a, b := &baselines[0], &baselines[1]; !slices.Equal(a.Words, b.Words) || !slices.Equal(a.Numbers, b.Numbers) || slices.Equal(a.Values, b.Values) {
		t.Errorf("the night that keeps its choice has %v words, expected %v with other values", b.Words, a.Words)
	}
	f.write("nightly.yaml", strings.Replace(f.text("nightly.yaml"), "  estimator: path\n  sparsity: 0.9\n  parts: 4\n", "", 1))
	if code, log := f.run(); code != cli.ExitBadInput || !strings.Contains(log, `score.baseline "words": nights have several words only with the estimator path: expected codebook`) || strings.Count(log, "\n") != 1 {
		t.Errorf("exit code %d: %s", code, log)
	}
	address := redistest.Start(t)
	for _, l := range lines {
		command(t, "shaver", "model", "apply", f.path("out", "nights", l.Night, nightly.DeltaFolder), "--redis", address)
	}
	store, err := redisrows.Open(t.Context(), address, "shaver")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	deltatest.WantRows(t, store, f.path("out", "current", nightly.PrunedFile))
}

// With the setting reuse, a night keeps the mask while the loss rises by no more than it did when the table was
// scored. The mask that is kept is that of the published night, and the history says why.
func TestNightlyReuse(t *testing.T) {
	long.Test(t)
	s := newNightsSource(t, 2)
	f := s.folder("  sample: 0.2\n", "  estimator: path\n  parts: 4\n", "calibrate: true\n", "calibrate: true\nreuse: 0.01\n")
	f.bring(0)
	f.must()
	mask := func() []bool {
		ck, err := checkpoint.Read(f.path("out", "current", nightly.PrunedFile))
		if err != nil {
			t.Fatal(err)
		}
		dropped, _, err := ck.Pruned()
		if err != nil {
			t.Fatal(err)
		}
		return dropped
	}
	first := mask()
	command(t, "shaver", "train", "--model", s.model(0), "--dataset", s.day(0), "--epochs", "1", "--learning-rate", "1e-5", "--out", f.path("light.safetensors"))
	f.write("model.safetensors", f.text("light.safetensors"))
	f.must()
	l := f.history()[1]
	if l.Choice != nightly.ChoiceKept || !slices.Equal(mask(), first) || l.Evaluations != 0 || *l.Churn != 0 || l.KeptRise == nil || *l.KeptRiseHigh > .01 || l.Scores != f.history()[0].Scores {
		t.Errorf("after a light training: %+v", l)
	}
	if page := f.text("out/history.html"); !strings.Contains(page, "The last choice of entries is kept: LogLoss rises by") {
		t.Error("the page does not say why")
	}
	f.write("nightly.yaml", strings.Replace(f.text("nightly.yaml"), "reuse: 0.01", "reuse: 0", 1))
	f.must() // the settings are new
	f.bring(1)
	f.must()
	for i, want := range []string{"the settings changed", "rises by"} {
		if l := f.history()[2+i]; l.Choice != nightly.ChoiceScored || !strings.Contains(l.Why, want) || l.Evaluations == 0 {
			t.Errorf("expected %q: %+v", want, l)
		}
	}
}

// A model of kind graph whose tables have two widths has nights too. The second night
// corrects the scores, keeps most of the first night's choices, and its file is served.
func TestNightlyGraph(t *testing.T) {
	s := &nightsSource{t, t.TempDir(), 2}
	ck, err := checkpoint.Read(filepath.Join("..", "..", "testdata", "onnx", "ncf.dynamo.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	for night := range s.nights {
		s.drift(night, ck, 0.02)
		rows := filepath.Join(s.dir, fmt.Sprintf("rows-%d.csv", night))
		encodedRows(t, rows, 600+night, 7, 11)
		command(t, "shaver", "dataset", "import", "csv", "--train", rows, "--split", "8:1:1", "--model", s.model(night), "--out", s.day(night))
	}
	f := s.folder()
	for night := range s.nights {
		f.bring(night)
		f.must()
	}
	lines := f.history()
	if len(lines) != 2 || lines[1].Outcome != "published" || lines[1].Generation == 0 || lines[1].Churn == nil || *lines[1].Churn > .5 {
		t.Errorf("the nights are %+v", lines)
	}
	served, err := infer.Open(f.path("out", "current", nightly.PrunedFile))
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	if err := served.Logits(make([]float64, 1), []int32{6, 10}, nil); err != nil {
		t.Error(err)
	}
}

// Nights whose labels are numbers are checked, recorded and shown by RMSE.
func TestNightlyRatings(t *testing.T) {
	long.Test(t)
	s := &nightsSource{t, t.TempDir(), 3}
	ratings := filepath.Join("..", "..", "testdata", "ratings")
	ck, err := checkpoint.ReadOutput(filepath.Join(ratings, "ratings.onnx"), "rating")
	if err != nil {
		t.Fatal(err)
	}
	for night := range s.nights {
		s.drift(night, ck, 0.005)
		command(t, "shaver", "dataset", "import", "csv", "--train", filepath.Join(ratings, "train.csv"), "--split", "8:1:1", "--seed", fmt.Sprint(night), "--labels", "numbers", "--model", s.model(night), "--out", s.day(night))
	}
	f := s.folder("max-auc-drop: 0.5", "max-rmse-rise: 9", "  max-logloss-rise: 0.5\n", "")
	for night := range s.nights {
		f.bring(night)
		if night == 2 {
			f.write("nightly.yaml", strings.Replace(f.text("nightly.yaml"), "max-rmse-rise: 9", "max-rmse-rise: 0", 1))
		}
		code, log := f.run()
		if want := map[bool]int{true: cli.ExitGate}[night == 2]; code != want {
			t.Fatalf("night %d: exit code %d, expected %d:\n%s", night, code, want, log)
		}
	}
	lines := f.history()
	if len(lines) != 3 || lines[1].Generation != 1 || lines[2].Outcome != nightly.Failed || !strings.Contains(strings.Join(lines[2].Reasons, ""), "the RMSE rises by") {
		t.Errorf("the nights are %+v", lines)
	}
	for i, l := range lines {
		if l.AUC != nil || l.LogLoss != nil || l.LogLossRise != nil || l.RMSE == nil || l.RMSERise == nil || math.Abs(*l.PrunedRMSE-*l.RMSE-*l.RMSERise) > 1e-9 || !(*l.RMSE > 0) {
			t.Errorf("night %d: %+v", i, l)
		}
	}
	if page := f.text(filepath.Join("out", "history.html")); !strings.Contains(page, "RMSE") || strings.Contains(page, "LogLoss") {
		t.Error("the page does not show the RMSE, or shows the LogLoss")
	}
	if text := f.text("shaver.prom"); !strings.Contains(text, "\nshaver_night_rmse_rise ") || strings.Contains(text, "log_loss") {
		t.Errorf("metrics %s", text)
	}
}

// A night with an .onnx model publishes a pruned .onnx file, with its external data, that is
// the same model as its compact file. That holds for a graph and for a recognized model, with
// and without a calibration. Without onnx in the configuration there is no such file.
func TestNightlyONNX(t *testing.T) {
	long.Test(t)
	for _, c := range []struct {
		name, form string
		calibrate  bool
		sizes      []int
	}{
		{"ncf.external.onnx", nightly.CompactONNX, true, []int{7, 11}},
		{"pytorch-fm-deepfm.legacy.onnx", nightly.DenseONNX, true, []int{7, 11, 5, 4, 3}},
		{"pytorch-fm-deepfm.legacy.onnx", nightly.CompactONNX, false, []int{7, 11, 5, 4, 3}},
	} {
		t.Run(fmt.Sprint(c.name, c.calibrate), func(t *testing.T) {
			s := &nightsSource{t, t.TempDir(), 2}
			key := fmt.Sprintf("calibrate: %v\nonnx: %s\n", c.calibrate, c.form)
			f := s.folder("model: model.safetensors", "model: model.onnx", "calibrate: true\n", key)
			ck, err := checkpoint.Read(filepath.Join("..", "..", "testdata", "onnx", c.name))
			if err != nil {
				t.Fatal(err)
			}
			for night := range s.nights {
				table, err := ck.Embedding()
				if err != nil {
					t.Fatal(err)
				}
				r := rand.New(rand.NewPCG(7, uint64(night)))
				for i := range table {
					table[i] += float32(night) * 0.02 * float32(r.NormFloat64())
				}
				if _, err := checkpoint.WriteONNX(f.path("model.onnx"), ck.WithEmbedding(table), checkpoint.ONNXOptions{}); err != nil {
					t.Fatal(err)
				}
				rows := filepath.Join(s.dir, fmt.Sprintf("rows-%d.csv", night))
				encodedRows(t, rows, 600+night, c.sizes...)
				day := f.path("days", fmt.Sprint("day-", night))
				command(t, "shaver", "dataset", "import", "csv", "--train", rows, "--split", "8:1:1", "--model", f.path("model.onnx"), "--out", day)
				f.must()
				f.wantONNX(day, strings.Contains(c.name, "external"))
			}
			lines := f.history()
			if len(lines) != 2 || lines[1].Outcome != "published" || lines[1].Generation == 0 || lines[1].Churn == nil || *lines[1].Churn > .5 {
				t.Errorf("the nights are %+v", lines)
			}
			f.write("nightly.yaml", strings.NewReplacer("model: model.safetensors", "model: model.onnx").Replace(smallNights))
			f.must()
			if _, err := os.Stat(f.path("out", "current", nightly.ONNXFile)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a night without onnx has %s: %v", nightly.ONNXFile, err)
			}
		})
	}
}

// wantONNX checks the published .onnx file. external says whether it has external data.
func (f *nightsFolder) wantONNX(day string, external bool) {
	f.t.Helper()
	current, err := nightly.ReadCurrent(f.path("out"))
	if err != nil {
		f.t.Fatal(err)
	}
	digests := map[string]string{nightly.ONNXFile: current.ONNX}
	if external {
		digests[nightly.ONNXDataFile] = current.ONNXData
	} else if current.ONNXData != "" {
		f.t.Error("current.json has a digest of external data")
	}
	for file, want := range digests {
		data, err := os.ReadFile(f.path("out", "current", file))
		if found := fmt.Sprintf("%x", sha256.Sum256(data)); err != nil || found != want {
			f.t.Errorf("%s has the digest %s, and current.json %q: %v", file, found, want, err)
		}
	}
	var served, kept []float64
	for file, to := range map[string]*[]float64{nightly.ONNXFile: &served, nightly.PrunedFile: &kept} {
		out := filepath.Join(f.t.TempDir(), "p.csv")
		command(f.t, "shaver", "evaluate", "--model", f.path("out", "current", file), "--dataset", day, "--predictions", out)
		*to = readLogits(f.t, out)
	}
	if len(served) < 20 {
		f.t.Fatalf("%d predictions", len(served))
	}
	for i, z := range served {
		if !(math.Abs(z-kept[i]) <= 1e-6*max(1, math.Abs(z))) {
			f.t.Fatalf("row %d: the .onnx file has the logit %v, the compact file %v", i, z, kept[i])
		}
	}
	ck, err := checkpoint.Read(f.path("out", "current", nightly.ONNXFile))
	if err != nil {
		f.t.Fatal(err)
	}
	var d gate.Document
	readJSON(f.t, f.path("out", "current", nightly.CheckFile), &d)
	if !d.Passed || d.Pruned != ck.Digest() {
		f.t.Errorf("the check is about the model %s, and the .onnx file is %s", d.Pruned, ck.Digest())
	}
}

// readLogits returns the logits in a file of predictions.
func readLogits(t *testing.T, path string) (logits []float64) {
	t.Helper()
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	lines, err := csv.NewReader(in).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.Index(lines[0], "logit")
	for _, line := range lines[1:] {
		z, err := strconv.ParseFloat(line[at], 64)
		if err != nil {
			t.Fatal(err)
		}
		logits = append(logits, z)
	}
	return logits
}

// A night that cannot write its .onnx file says so before anything is scored.
func TestNightlyONNXRefused(t *testing.T) {
	s := newNightsSource(t, 1)
	for _, c := range []struct{ model, add, want string }{
		{"model.safetensors", "onnx: dense\n", "nightly.yaml: onnx: the model MODEL is not an .onnx file: an .onnx file is written from an .onnx file only"},
		{"model.onnx", "onnx: dense\n", "nightly.yaml: onnx: a dense .onnx file keeps the types of its tables, but prune.values is int8: expected onnx: compact, or float32 or no such key"},
	} {
		f := s.folder("model: model.safetensors", "model: "+c.model, "calibrate: true\n", "calibrate: true\n"+c.add, "hysteresis: 1", "values: int8")
		code, log := f.run()
		if want := strings.ReplaceAll(c.want, "MODEL", f.path(c.model)); code != 42 || !strings.Contains(log, want) {
			t.Errorf("exit code %d:\n%s\nexpected %s", code, log, want)
		}
	}
	f := s.folder("model: model.safetensors", "model: model.onnx", "calibrate: true\n", "calibrate: true\nonnx: dense\n")
	g := clickGraph()
	g.Nodes = append(g.Nodes, onnxtest.Node("Neg", onnxtest.Names{"y"}, onnxtest.Names{"other"}))
	f.write("model.onnx", string(onnxtest.Model(18, g.Message())))
	encodedRows(t, f.path("rows.csv"), 100, 3, 4, 3)
	command(t, "shaver", "dataset", "import", "csv", "--train", f.path("rows.csv"), "--split", "8:1:1", "--model", f.path("model.onnx"), "--out", f.path("days", "day-0"))
	code, log := f.run()
	want := "shaver: score: " + f.path("out", "nights", "day-0.1", "model", "model.onnx") + ": the graph cannot be calibrated: node n_other (Neg) reads y too, so that a calibration would change more than the output y"
	if code != 42 || !strings.Contains(log, want) {
		t.Errorf("exit code %d:\n%s\nexpected %s", code, log, want)
	}
	f.write("nightly.yaml", strings.NewReplacer("model: model.safetensors", "model: model.onnx", "calibrate: true\n", "calibrate: false\nonnx: dense\n").Replace(smallNights))
	f.must()
}

// Without pairing and hysteresis a night's files are those of the commands.
func TestNightlyCommands(t *testing.T) {
	f := newNightsSource(t, 1).folder()
	f.bring(0)
	f.must()
	day := f.day(0)
	command(t, "shaver", "nightly", "score", "--model", f.model(0), "--dataset", day, "--baseline", "codebook", "--splits", "train", "--state", f.path("other"), "--out", f.path("s.arrow"))
	command(t, "shaver", "prune", "--model", f.model(0), "--scores", f.path("s.arrow"), "--sparsity", "0.5", "--calibrate", "--dataset", day, "--out", f.path("p.safetensors"))
	wantSameFile(t, f.path("s.arrow"), f.path("out", "current", nightly.ScoresFile))
	wantSameFile(t, f.path("p.safetensors"), f.path("out", "current", nightly.PrunedFile))
	// Its documents are those that the commands print and write for its files.
	current, err := filepath.EvalSymlinks(f.path("out", "current"))
	if err != nil {
		t.Fatal(err)
	}
	before := f.published()
	file := func(name string) string { return filepath.Join(current, name) }
	model := file(filepath.Join("model", "model.safetensors"))
	out := command(t, "shaver", "prune", "--model", model, "--scores", file(nightly.ScoresFile), "--sparsity", "0.5", "--calibrate", "--dataset", day, "--out", file(nightly.PrunedFile), "-o", "json")
	if text := f.text(filepath.Join("out", "current", nightly.PruneFile)); text != string(out) {
		t.Errorf("the night has %s, and the command prints %s", text, out)
	}
	command(t, "shaver", "check", "--model", file(nightly.PrunedFile), "--against", model, "--dataset", day, "--max-auc-drop", "0.5", "--max-logloss-rise", "0.5", "--out", file(nightly.CheckFile))
	report := f.text(filepath.Join("out", "current", nightly.ReportFile))
	command(t, "shaver", "report", "--model", model, "--scores", file(nightly.ScoresFile), "--dataset", day, "--out", file(nightly.ReportFile))
	if after := f.published(); !maps.Equal(before, after) || f.text(filepath.Join("out", "current", nightly.ReportFile)) != report {
		t.Errorf("files of the commands differ from those of the night: %v, %v", before, after)
	}
}

// A field that does not exist is found before anything is scored.
func TestNightlyProtect(t *testing.T) {
	f := newNightsSource(t, 1).folder("prune:\n", "prune:\n  protect: [a, z]\n")
	f.bring(0)
	code, log := f.run()
	if code != 42 || !strings.Contains(log, `nightly.yaml:11: prune.protect "a,z": no field "z"; the fields are a, b, c`) {
		t.Errorf("exit code %d:\n%s", code, log)
	}
	if found, err := filepath.Glob(f.path("out", "nights", "*", nightly.ScoresFile)); err != nil || len(found) > 0 {
		t.Errorf("scores %v, %v", found, err)
	}
	f.write("nightly.yaml", strings.Replace(smallNights, "prune:\n", "prune:\n  protect: [c]\n  table-budget: [a=..2, b=1..]\n", 1))
	f.must()
	if l := f.history(); len(l) != 1 || len(l[0].Tables) != 3 || l[0].Tables[0].Name != "a" || l[0].Tables[0].Kept > 2 || l[0].Tables[1].Kept < 1 || l[0].Tables[2].Kept != l[0].Tables[2].Entries {
		t.Errorf("history %+v", l)
	}
	// What only the rows and the table show names keys, too.
	f.write("nightly.yaml", strings.Replace(smallNights, "prune:\n", "prune:\n  protect: [a, b]\n", 1))
	if code, log := f.run(); code != 2 || !strings.Contains(log, "prune: prune.sparsity 0.5 drops ") || !strings.Contains(log, " but prune.protect and prune.field-minimum allow at most ") {
		t.Errorf("exit code %d:\n%s", code, log)
	}
}

// A pruned model that fails its check ends the night with exit code 7. The published night
// stays, the state of the scores goes on, and the next night compares with the published one.
func TestNightlyGate(t *testing.T) {
	f := newNightsSource(t, 3).folder()
	f.bring(0)
	f.must()
	before := f.published()
	f.bring(1)
	strict := strings.NewReplacer("max-auc-drop: 0.5", "max-auc-drop: 0").Replace(smallNights)
	f.write("nightly.yaml", strings.Replace(strict, "sparsity: 0.5", "sparsity: 0.95", 1))
	code, log := f.run()
	if code != 7 || !strings.Contains(log, "shaver: the pruned model failed its check: the AUC falls by ") || !strings.HasSuffix(log, "; the night day-0.1 stays published\n") {
		t.Fatalf("exit code %d:\n%s", code, log)
	}
	if !maps.Equal(f.published(), before) {
		t.Error("what is published has changed")
	}
	wantFiles(t, f.path("out", "nights", "day-1.1"), "check.json", "model", "night.json", "prune.json", "pruned.safetensors", "report.html", "scores.arrow", "scores.job.json", "sweep.json")
	lines := f.history()
	if last := lines[len(lines)-1]; last.Outcome != nightly.Failed || len(last.Reasons) != 1 {
		t.Errorf("history %+v", last)
	}
	if text, err := os.ReadFile(f.path("shaver.prom")); err != nil || !strings.Contains(string(text), "\nshaver_night_published 0\n") {
		t.Errorf("metrics %s, %v", text, err)
	}
	f.bring(2)
	f.write("nightly.yaml", smallNights)
	f.must()
	var record nightly.Record
	readJSON(t, f.path("out", "nights", "day-2.1", nightly.RecordFile), &record)
	if record.Previous == nil || record.Previous.Night != "day-0.1" {
		t.Errorf("the night compares with %+v, expected that of day-0", record.Previous)
	}
	// The night that failed has scored its day, which is now corrected.
	if share := float64(record.Scored.Evaluations) / float64(record.Scored.FullEvaluations); share < .67 || share > .73 {
		t.Errorf("the night took %.2f of the evaluations of a full job, expected 0.7", share)
	}
}

// A night whose labels are inverted fails its check, although the pruned model is as good as the model.
func TestNightlyDoubt(t *testing.T) {
	f := newNightsSource(t, 1).folder()
	text, err := os.ReadFile(filepath.Join(f.nightsSource.dir, "rows.csv"))
	if err != nil {
		t.Fatal(err)
	}
	f.write("inverted.csv", strings.NewReplacer("\n0,", "\n1,", "\n1,", "\n0,").Replace(string(text)))
	if err := os.RemoveAll(f.day(0)); err != nil {
		t.Fatal(err)
	}
	command(t, "shaver", "dataset", "import", "csv", "--train", f.path("inverted.csv"), "--split", "8:1:1", "--model", f.model(0), "--out", f.day(0))
	f.bring(0)
	code, log := f.run()
	if code != 7 || !strings.Contains(log, "the pruned model failed its check: the model has an AUC of 0.") || !strings.Contains(log, " and predicts worse than a constant: ") {
		t.Fatalf("exit code %d:\n%s", code, log)
	}
	lines := f.history()
	if last := lines[len(lines)-1]; last.Outcome != nightly.Failed || len(last.Reasons) != 1 {
		t.Errorf("history %+v", last)
	}
	var checked gate.Document
	readJSON(t, f.path("out", "nights", "day-0.1", nightly.CheckFile), &checked)
	if checked.Passed || !checked.Worthless {
		t.Errorf("check %+v", checked)
	}
}

// Nights whose rows are computed on a cluster publish the same bytes as those in one process.
func TestNightlyCluster(t *testing.T) {
	long.Test(t)
	source := newNightsSource(t, 2)
	url := natsServer(t)
	startWorker(t, url, "elsewhere")
	alone, cluster := source.folder(), source.folder("score:\n", "score:\n  nats: "+url+"\n")
	for night := range source.nights {
		for _, f := range []*nightsFolder{alone, cluster} {
			f.bring(night)
			f.must()
		}
		if !maps.Equal(alone.published(), cluster.published()) {
			t.Errorf("night %d differs", night)
		}
	}
}

// With an address in the configuration, the metrics can be read while a night runs.
func TestNightlyMetrics(t *testing.T) {
	address := freeAddress(t)
	f := newNightsSource(t, 2).folder("metrics:\n", "metrics:\n  address: "+address+"\n")
	f.bring(0)
	f.must()
	f.bring(1)
	p := start(t, nil, "shaver", f.args()...)
	found := false
	for !found {
		select {
		case <-p.done:
			t.Fatal("the night ended before its metrics could be read")
		default:
		}
		answer, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			continue
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		found = err == nil && strings.Contains(string(text), "\nshaver_night_number 1\n")
	}
	p.wantExit(0)
}

// MLflow and OpenLineage get a night, and a night ends as before without them.
func TestNightlyTracking(t *testing.T) {
	var lock sync.Mutex
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		lock.Lock()
		got = append(got, r.Method+" "+r.URL.Path+" "+string(body))
		lock.Unlock()
		switch {
		case strings.HasSuffix(r.URL.Path, "get-by-name"):
			_, _ = io.WriteString(w, `{"experiment": {"experiment_id": "1"}}`)
		case strings.HasSuffix(r.URL.Path, "runs/create"):
			_, _ = io.WriteString(w, `{"run": {"info": {"run_id": "r", "artifact_uri": "mlflow-artifacts:/1/r/artifacts"}}}`)
		default:
			_, _ = io.WriteString(w, "{}")
		}
	}))
	defer server.Close()
	f := newNightsSource(t, 1).folder("metrics:\n", "tracking:\n  mlflow: "+server.URL+"\n  openlineage: "+server.URL+"/lineage\nmetrics:\n")
	f.bring(0)
	f.must()
	line := f.history()[0]
	digest, err := files.Digest(f.path("out", "current", nightly.PrunedFile))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]string{
		{"POST /lineage ", `"eventType":"START"`, `"datasetVersion":"` + line.Model},
		{"POST /lineage ", `"eventType":"COMPLETE"`, `"datasetVersion":"` + digest},
		{"GET /api/2.0/mlflow/experiments/get-by-name "},
		{"POST /api/2.0/mlflow/runs/create ", `"run_name":"day-0.1"`, `{"key":"shaver.outcome","value":"published"}`, `{"key":"shaver.days","value":"day-0"}`},
		{"POST /api/2.0/mlflow/runs/log-batch ", fmt.Sprintf(`{"key":"pruned_auc","value":%v,`, *line.PrunedAUC), `{"key":"score.sample","value":"0.2"}`},
		{"PUT /api/2.0/mlflow-artifacts/artifacts/1/r/artifacts/report.html ", "<html"},
		{"PUT /api/2.0/mlflow-artifacts/artifacts/1/r/artifacts/check.json ", `"shaver.check/`},
		{"PUT /api/2.0/mlflow-artifacts/artifacts/1/r/artifacts/prune.json "},
		{"PUT /api/2.0/mlflow-artifacts/artifacts/1/r/artifacts/history.html ", "<html"},
		{"POST /api/2.0/mlflow/runs/update ", `"status":"FINISHED"`},
	} {
		for _, part := range want {
			if i >= len(got) || !strings.HasPrefix(got[i], want[0]) || !strings.Contains(got[i], part) {
				t.Fatalf("request %d of %d lacks %q: %.3000s", i, len(got), part, strings.Join(got[min(i, len(got)):], "\n"))
			}
		}
	}
	server.Close()
	code, log := f.run("--again")
	if lines := f.history(); code != 0 || len(lines) != 2 || lines[1].Outcome != nightly.Published || lines[1].Pruned != line.Pruned {
		t.Errorf("exit code %d and history %+v without the servers:\n%s", code, f.history(), log)
	}
	for _, want := range []string{"no event was sent to OpenLineage, which does not change the night", "MLflow does not have all of the night, which does not change it"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	f.write("nightly.yaml", strings.Replace(f.text("nightly.yaml"), "max-auc-drop: 0.5", "max-auc-drop: 0.4", 1))
	if err := os.WriteFile(f.path("model.safetensors"), []byte("no model"), 0o666); err != nil {
		t.Fatal(err)
	}
	if code, log := f.run(); code != 42 || strings.Contains(log, "MLflow does not") {
		t.Errorf("exit code %d for a damaged model:\n%s", code, log)
	}
}

// The configuration that --init writes has correct settings, and nothing is replaced by it.
func TestNightlyInit(t *testing.T) {
	f := newNightsSource(t, 1).folder()
	path := f.path("example.yaml")
	command(t, "shaver", "nightly", "--init", "--config", path)
	c, err := readNights(path)
	if err != nil {
		t.Fatal(err)
	}
	if c.Window != 7 || c.Score.Get("parts") != "16" || !c.Calibrate {
		t.Errorf("%+v", c)
	}
	if out, err := exec.CommandContext(t.Context(), "shaver", "nightly", "--init", "--config", path).CombinedOutput(); err == nil || !strings.Contains(string(out), "already exists") {
		t.Errorf("a second time: %s, %v", out, err)
	}
}

// A night scores train, also if the configuration does not say so, so that its check measures on other rows.
func TestNightlyScoresTrain(t *testing.T) {
	source := newNightsSource(t, 1)
	said, silent := source.folder(), source.folder("  splits: [train]\n", "")
	for _, f := range []*nightsFolder{said, silent} {
		f.bring(0)
		f.must()
	}
	if !maps.Equal(said.published(), silent.published()) {
		t.Error("a night without score.splits is not that of train")
	}
}

// The rows of a night have one purpose each, by the documents that it writes: some are scored, others calibrate, and others judge. The
// newest day and the split fresh count as rows that the model has not seen, which the days before no longer are.
func TestNightlyApart(t *testing.T) {
	long.Test(t)
	source := newNightsSource(t, 3)
	f := source.folder("  sample: 0.2\n", "  estimator: path\n  parts: 4\n  fresh-days: 1\n", "  splits: [train]\n", "")
	f.bring(0)
	for night := 1; night < 3; night++ {
		f.bring(night)
		if night == 2 { // a day with fresh rows of its own
			day := f.path("days", filepath.Base(f.day(night)))
			if err := os.RemoveAll(day); err != nil {
				t.Fatal(err)
			}
			command(t, "shaver", "dataset", "import", "csv", "--train", filepath.Join(source.dir, "rows.csv"), "--split", "7:1:1:1", "--model", f.model(night), "--out", day)
		}
		if code, log := f.run(); code != 0 || strings.Contains(log, "leaving out a split") {
			t.Fatalf("night %d: exit code %d: %s", night, code, log)
		}
		newest, err := dataset.OpenAll([]string{f.path("days", filepath.Base(f.day(night)))})
		if err != nil {
			t.Fatal(err)
		}
		d, err := dataset.OpenAll([]string{f.path("days", filepath.Base(f.day(night-1))), f.path("days", filepath.Base(f.day(night)))})
		if err != nil {
			t.Fatal(err)
		}
		of, err := scores.Read(f.path("out", "current", nightly.ScoresFile))
		if err != nil {
			t.Fatal(err)
		}
		pruned, err := checkpoint.Read(f.path("out", "current", nightly.PrunedFile))
		if err != nil {
			t.Fatal(err)
		}
		var check gate.Document
		readJSON(t, f.path("out", "current", nightly.CheckFile), &check)
		if of.Spec.Dataset != d.Digest() || check.Dataset != d.Digest() {
			t.Fatalf("night %d: the scores are of %s and the check is of %s, expected %s", night, of.Spec.Dataset, check.Dataset, d.Digest())
		}

		purpose := map[int64]string{}
		use := func(split, what string) {
			for _, part := range d.Numbers(split) {
				for row := part[0]; row < part[1]; row++ {
					if before := purpose[row]; before != "" && before != what {
						t.Fatalf("night %d: row %d of %s is %s and %s", night, row, split, before, what)
					}
					purpose[row] = what
				}
			}
		}
		for _, split := range of.Spec.Splits {
			use(split, "scored")
		}
		for _, s := range pruned.Scored {
			for _, split := range s.Splits {
				use(split, cmp.Or(string(s.Did), "scored"))
			}
		}
		use(check.Split, "judged")
		counts := map[string]int64{}
		for _, what := range purpose {
			counts[what]++
		}
		if scored := d.Rows(dataset.Train) + d.Rows(dataset.Fresh); counts["scored"] != scored || counts["calibrated"] != d.Rows(dataset.Val) || counts["judged"] != d.Rows(dataset.Test) {
			t.Errorf("night %d: %v of the splits %v", night, counts, d.SplitNames())
		}
		if fresh := newest.Rows(dataset.Train) + newest.Rows(dataset.Fresh); of.Spec.Fresh == nil || of.Spec.Fresh.Count() != fresh {
			t.Errorf("night %d: fresh %+v, expected the %d rows of the newest day", night, of.Spec.Fresh, fresh)
		}
		var record nightly.Record
		readJSON(t, f.path("out", "current", nightly.RecordFile), &record)
		if r := record.Checked.Rows; r == nil || !slices.Contains(r.Scored, "train") || slices.Contains(r.Scored, "fresh") != (d.Rows(dataset.Fresh) > 0) || r.Chose != "val" || r.Judged != check.Split {
			t.Errorf("night %d: the record says %+v", night, r)
		}
	}
}

// A night whose days lack the rows that judge is refused before it computes, be it to score or to reuse a choice.
func TestNightlyLacksRows(t *testing.T) {
	source := newNightsSource(t, 2)
	f := source.folder("calibrate: true\n", "calibrate: true\nreuse: 0.01\n", "window: 2\n", "window: 1\n")
	for night, step := range []string{"score", "choose"} {
		f.bring(night)
		day := f.path("days", filepath.Base(f.day(night)))
		if err := os.RemoveAll(day); err != nil {
			t.Fatal(err)
		}
		command(t, "shaver", "dataset", "import", "csv", "--train", filepath.Join(source.dir, "rows.csv"), "--split", "9:1:0", "--model", f.model(night), "--out", day)
		if code, log := f.run(); code != cli.ExitBadInput || !strings.Contains(log, step+": "+f.path("nightly.yaml")+": the days have no rows of the split test, and their splits are [train val]: import days with ") {
			t.Errorf("exit code %d: %s", code, log)
		}
		if err := os.RemoveAll(day); err != nil {
			t.Fatal(err)
		}
		f.bring(night)
		f.must()
	}
}

// Every setting is checked before anything runs, and the error names its line.
func TestNightlySettings(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "n.yaml")
	const base = "model: m\ndays: d\nout: o\n"
	const prune = "prune:\n  sparsity: 0.5\n"
	for text, want := range map[string]string{
		base:                                                                    ": prune has 0 budgets: expected one of within, sparsity, parameters and bytes",
		base + prune + "  bytes: 100\n":                                         ": prune has 2 budgets: expected one of within, sparsity, parameters and bytes",
		base + "prune:\n  sparsity: 2\n":                                        `:5: prune.sparsity "2": expected a number from 0 to 1`,
		base + prune + "  values: int7\n":                                       `:6: prune.values "int7": expected one of `,
		base + prune + "  aggregate: max\n":                                     `:6: prune.aggregate "max": `,
		base + prune + "  hysteresis: -1\n":                                     `:6: prune.hysteresis "-1": expected a finite number of at least 0`,
		base + prune + "  bytes: 0\n":                                           `:6: prune.bytes "0": expected a whole number, at least 1`,
		base + prune + "reuse: -1\n":                                            `:6: reuse "-1": expected a number of at least 0, in the unit of the loss`,
		base + prune + "score:\n  sample: 0\n":                                  `:7: score.sample "0": expected a number above 0, at most 1`,
		base + prune + "score:\n  sample: 1.5\n":                                `:7: score.sample "1.5": expected a number above 0, at most 1`,
		base + prune + "score:\n  baseline: mean\n":                             `:7: score.baseline "mean": expected one of `,
		base + prune + "score:\n  splits: [train, all]\n":                       `:7: score.splits "train,all": expected one of train, val, test`,
		base + "calibrate: true\n" + prune + "score:\n  splits: [train, val]\n": `:8: score.splits "train,val": nights calibrate and reuse choices by the split val, which is scored`,
		base + "reuse: 0.1\n" + prune + "check:\n  split: val\n":                `:8: check.split "val": the check would judge by the split val, by which nights calibrate and reuse choices`,
		base + prune + "score:\n  splits: [train, test]\n":                      `:7: score.splits "train,test": the check would judge by the split test, which is scored`,
		base + prune + "check:\n  split: train\n":                               `:7: check.split "train": the check would judge by the split train, which is scored`,
		base + prune + "score:\n  full-every: 0\n":                              `:7: score.full-every "0": must be above 0`,
		base + prune + "score:\n  max-inherited-error: 0\n":                     `:7: score.max-inherited-error "0": must be above 0`,
		base + prune + "score:\n  seed: 99999999999999999999\n":                 `:7: score.seed "99999999999999999999": expected a whole number, at least 0`,
		base + prune + "score:\n  passes: 9999999\n":                            `: score: 9999999 passes, expected 1 to `,
		base + prune + "score:\n  estimator: guess\n":                           `: score: estimator "guess": the estimators are `,
		base + prune + "score:\n  estimator: multilinear\n  draws: 3\n":         `: score: 3 draws, expected an even number`,
		base + prune + "score:\n  nats: n\n  nkey: a\n  creds: b\n":             `: score: score.creds and score.nkey both identify the client: give one`,
		base + prune + "score:\n  tlsca: a\n":                                   `: score: score.tlsca is for score.nats, which is not given`,
		base + prune + "score:\n  replicas: 2\n":                                `:7: score.replicas "2": must be 1 or 3`,
		base + prune + "score:\n  wait: soon\n":                                 `:7: score.wait "soon": expected a duration such as 30s or 5m`,
		base + prune + "score:\n  kernel: abacus\n":                             `:7: score.kernel "abacus": expected auto or a kernel of this machine`,
		base + prune + "wait-inputs: -1h\n":                                     `:6: wait-inputs "-1h": expected a duration such as 30m or 6h`,
		base + prune + "check:\n  split: all\n":                                 `:7: check.split "all": expected one of train, val, test`,
		base + prune + "check:\n  max-auc-drop: 2\n":                            `:7: check.max-auc-drop "2": expected a number from 0 to 1`,
		base + prune + "check:\n  max-logloss-rise: -1\n":                       `:7: check.max-logloss-rise "-1": expected a finite number of at least 0`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := readNights(path)
		if err == nil || !fault.IsInput(err) || !strings.HasPrefix(err.Error(), path+want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, expected %s", text, err, want)
		}
	}
}

// A night that is killed at any moment, and started again, publishes the same bytes as
// without that. SHAVER_LONG=2 kills 50 times, otherwise it is a few times.
func TestNightlyKilled(t *testing.T) {
	long.Test(t)
	kills := 6
	if long.Hours() {
		kills = 50
	}
	source := newNightsSource(t, 3)
	calm := source.folder()
	var want []map[string]string // by night
	var took []time.Duration
	for night := range source.nights {
		calm.bring(night)
		began := time.Now()
		calm.must()
		want, took = append(want, calm.published()), append(took, time.Since(began))
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	killed, rounds := 0, 0
	for killed < kills {
		if rounds++; rounds > 10*kills {
			t.Fatalf("%d kills in %d rounds: the nights end before they can be killed", killed, rounds)
		}
		f := source.folder()
		for night := range source.nights {
			f.bring(night)
			for killed < kills && kill(t, f, time.Duration(random.Int64N(int64(took[night])))) {
				killed++
				f.wantWhole(want[:night+1])
			}
			f.must()
			got := f.published()
			for name, data := range want[night] {
				if got[name] != data {
					t.Fatalf("after %d kills, %s of night %d differs from that of an undisturbed run", killed, name, night)
				}
			}
		}
		others := f.history()
		for i, l := range calm.history() {
			if o := others[i]; len(others) != source.nights || o.Night != l.Night || o.Scores != l.Scores || o.Pruned != l.Pruned || o.Outcome != l.Outcome {
				t.Errorf("history %+v, expected %+v", o, l)
			}
		}
		wantFiles(t, f.path("out"), "current", "current.json", "history.html", "history.jsonl", "nights", "state")
		wantFiles(t, f.path("out", "nights"), "day-1.1", "day-2.1")
	}
	t.Logf("%d kills in %d rounds of %d nights", killed, rounds, source.nights)
}

// kill starts a night and kills it after a time. It reports whether the night was still
// running.
func kill(t *testing.T, f *nightsFolder, after time.Duration) bool {
	t.Helper()
	c := exec.CommandContext(t.Context(), "shaver", f.args()...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
		return false
	case <-time.After(after):
	}
	_ = c.Process.Kill() // fails if the process has ended
	return <-ended != nil
}

// Ten nights, of which one in five rows of the model changes, end in a Redis whose rows are those of the last
// model, although the night is killed once and the loader three times. The loader sends no more than the rows that
// changed, in their values or by the churn in their choice, and the head.
func TestNightlyRedis(t *testing.T) {
	long.Test(t)
	address := redistest.Start(t)
	source := newNightsSource(t, 1)
	f := source.folder("calibrate: true", "delta: true", "window: 2", "window: 1", "hysteresis: 1", "hysteresis: 0")
	f.bring(0)
	ck, err := checkpoint.Read(source.model(0))
	if err != nil {
		t.Fatal(err)
	}
	dim := ck.Architecture.Dim
	n := ck.Architecture.Parameters()
	random := rand.New(rand.NewPCG(3, 4))
	store, err := redisrows.Open(t.Context(), address, "ctr")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	took := time.Duration(0) // of the first night
	for night := range 10 {
		moved := n / dim
		if night > 0 {
			table, err := ck.Embedding()
			if err != nil {
				t.Fatal(err)
			}
			moved = 0
			for row := range n / dim {
				if random.IntN(5) > 0 {
					continue
				}
				moved++
				for i := range dim {
					table[row*dim+i] += .1 * float32(random.NormFloat64())
				}
			}
			ck = ck.WithEmbedding(table)
			if _, err := checkpoint.WriteDense(f.path("model.safetensors"), ck); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		for tries := 0; night == 4 && !kill(t, f, took/3); tries++ { // the night ended before
			if tries == 9 {
				t.Fatal("no night was killed")
			}
			command(t, "shaver", "model", "apply", f.path("out", "current", nightly.DeltaFolder), "--prefix", "ctr", "--redis", address)
			f.write("nightly.yaml", strings.Replace(f.text("nightly.yaml"), fmt.Sprintf("window: %d", tries+1), fmt.Sprintf("window: %d", tries+2), 1)) // so that the next one is new
			moved = 0
		}
		f.must()
		if night == 0 {
			took = time.Since(began)
		}
		line := f.history()[len(f.history())-1]
		folder := f.path("out", "nights", line.Night)
		args := []string{"model", "apply", filepath.Join(folder, nightly.DeltaFolder), "--prefix", "ctr"}
		if bytes := map[int]int64{3: 500, 6: 1200, 8: 2500}[night]; bytes > 0 {
			p := redistest.NewProxy(t, address, bytes)
			c := exec.CommandContext(t.Context(), "shaver", append(args, "--redis", p.Address)...)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			<-p.Stopped
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait()
			if state, err := store.State(t.Context()); err != nil || state.Generation != int64(line.Number)-1 {
				t.Errorf("night %d: generation %+v after the loader was killed: %v", night, state, err)
			}
		}
		var loaded redisrows.Loaded
		if err := json.Unmarshal([]byte(command(t, "shaver", append(args, "--redis", address, "-o", "json")...)), &loaded); err != nil {
			t.Fatal(err)
		}
		deltatest.WantRows(t, store, filepath.Join(folder, nightly.PrunedFile))
		head, err := os.Stat(filepath.Join(folder, nightly.DeltaFolder, "head.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		churned := 0.
		if night > 0 { // both masks keep equally many entries
			churned = math.Round(*line.Churn * 2 * (1 - line.Sparsity) * float64(n))
		}
		if most := moved + int(churned); int(loaded.Rows) > most || night > 0 && moved > 0 && loaded.Rows == 0 {
			t.Errorf("night %d: %d rows, expected at most the %d that changed and %g by churn", night, loaded.Rows, moved, churned)
		}
		// Two versions of a row, each with its length, generation and columns, under its key.
		if most := head.Size() + 1000 + loaded.Rows*int64(2*(5*dim+24)+40); loaded.Bytes > most {
			t.Errorf("night %d: %d bytes for %d rows, expected at most %d", night, loaded.Bytes, loaded.Rows, most)
		}
		t.Logf("night %d: %d of %d rows changed, %g entries by churn; %d rows and %d bytes, of which the head has %d", night, moved, n/dim, churned, loaded.Rows, loaded.Bytes, head.Size())
	}
}

// The checkpoint of a night may be a folder of torch.distributed.checkpoint. The night copies it, and the next run
// sees that it is the same.
func TestNightlySharded(t *testing.T) {
	s := &nightsSource{t, t.TempDir(), 1}
	f := s.folder("model.safetensors", "sharded")
	if err := os.CopyFS(f.path("sharded"), os.DirFS("../../internal/click/checkpoint/testdata/sharded/ranks2")); err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	rows.WriteString("label,a,b,c\n")
	for i := range 600 {
		fmt.Fprintf(&rows, "%d,%d,%d,%d\n", i*i%7%2, i%4, i%3, i%6)
	}
	f.write("rows.csv", rows.String())
	command(t, "shaver", "dataset", "import", "csv", "--train", f.path("rows.csv"), "--split", "8:1:1", "--model", f.path("sharded"), "--out", f.path("days", "day-0"))
	f.must()
	line := f.history()[0]
	if ck, err := checkpoint.Read(f.path("out", "nights", line.Night, "model", "sharded")); err != nil || ck.Digest() != line.Model {
		t.Errorf("the copy of the model: %v", err)
	}
	if code, log := f.run(); code != 0 || !strings.Contains(log, "nothing to do") {
		t.Errorf("exit code %d for the same model:\n%s", code, log)
	}
}

// TestNightTableNote checks that the table has the note of a night, if there is one.
func TestNightTableNote(t *testing.T) {
	for _, note := range []string{"", "Not all attempts are counted."} {
		var b strings.Builder
		nightTable(&b, &nightly.Result{Latest: &nightly.Line{Night: "1.1", Note: note}})
		if got, want := strings.Contains(b.String(), "note"), note != ""; got != want || !strings.Contains(b.String(), note) {
			t.Errorf("note %q: %s", note, b.String())
		}
	}
}

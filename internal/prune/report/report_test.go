package report

import (
	"bytes"
	"flag"
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"shaver/internal/base/chart"
	"shaver/internal/base/fault"
	"shaver/internal/base/style"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/jobs/gap"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/explain"
	"shaver/internal/prune/picture"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
	"shaver/internal/value/tally"
)

var rewrite = flag.Bool("rewrite", false, "overwrite testdata/*.html")

const hostile = `<script>alert("1")</script>`

// facts returns facts about three fields of 4, 3 and 2 features and 2 columns. Entry i has the
// value (i+1) * 1e-5, and its standard error is a third of that. There are two exceptions: the
// first feature never occurs, and the entries of the last field have small negative values.
func facts() *Facts {
	s := &scores.File{
		Fields: []string{hostile, "a name that is much too long\nfor an axis, " + strings.Repeat("x", 100), "C"}, Layout: model.Architecture{FieldDims: []int{4, 3, 2}, Dim: 2}, DatasetRows: 1200, QuarantinedRows: 7,
		Baseline: model.Baseline{Values: make([]float32, 6)},
		Spec: job.Spec{
			Version: job.SpecVersion, Model: strings.Repeat("ab", 32), Dataset: strings.Repeat("cd", 32), Splits: []string{"train", "val"}, Sample: 1, Baseline: "zero",
			Options: estimator.Options{Estimator: "permutation", Passes: 2}, Seed: 5, Kernel: "portable-amd64",
		},
	}
	s.Result = tally.Result{Rows: 1193, LossFull: .4, LossEmpty: .5, EfficiencyError: 3.25e-10}
	s.Scores = tally.Scores{Shape: s.Layout.Shape(), Count: []int64{0, 3, 40, 1150, 300, 400, 493, 1000, 193}, Values: tally.NewValues(18)}
	for i := range s.Phi {
		v := 1e-5 * float64(i+1)
		switch {
		case i < 2:
			v = 0
		case i >= 14:
			v = -1e-6 * float64(i)
		}
		s.Phi[i], s.Abs[i], s.RMS[i] = v, float32(2*math.Abs(v)), float32(3*math.Abs(v))
		s.SE[i], s.PopulationSE[i] = float32(math.Abs(v)/3), float32(math.Abs(v)/2)
	}
	f := &Facts{
		Architecture: &model.Architecture{Kind: model.FM, FieldDims: s.Layout.FieldDims, Dim: 2}, Entries: make([]float32, 18), Scores: s, Digest: strings.Repeat("ef", 32),
		Aggregate: scores.Sum, Run: &Run{Seconds: 90, CPUSeconds: 7200, Shards: 1234, Workers: 3, Finished: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), Program: "shaver v1, commit abc"},
		Within: sweep.Bound(.02), Program: "shaver v2, commit def",
		Ends: []Ends{{Top: []Feature{{"<b>", 40, new(1e-4), 2}}, Bottom: []Feature{{"id 1", 3, new(7e-5), 0}}, Occur: 3, Alive: 1}, {}, {}},
	}
	f.Sweep = swept(s.Spec.ID())
	at := func(value, half float64) evaluate.Difference {
		return evaluate.Difference{Value: value, SE: half / 1.96, Low: value - half, High: value + half}
	}
	f.Gap = &gap.Gap{Rows: [2]int{16384, 1193}, Loss: [2]float64{.33, .61}, Total: gap.Field{Name: "all fields", Worth: [2]evaluate.Difference{at(.3, .01), at(.1, .02)}}, Fields: []gap.Field{
		{Name: hostile, Worth: [2]evaluate.Difference{at(.2, .008), at(-.01, .01)}},
		{Name: "b", Worth: [2]evaluate.Difference{at(.1, .004), at(.11, .02)}},
		{Name: "c", Worth: [2]evaluate.Difference{at(.001, .004), at(0, .003)}},
	}}
	f.Row = row()
	return f
}

// row returns an explanation of a row with 14 fields, whose effects fall from .7 and, in the pruned model, are half of that. Every third one is below 0.
func row() *explain.Document {
	r := explain.Row{Row: 1234, Label: 1, Output: explain.Output{Base: -1, Logit: -1, Probability: new(.25)}, Against: &explain.Output{Base: -1.5, Logit: -1.5, Probability: new(.75)}}
	for k := range 14 {
		e := explain.Effect{Field: "field " + strconv.Itoa(k), Values: []string{"<i>", "b", "c", "d", "e"}[:1+k%5], Effect: (.7 - .04*float64(k)) / 2, SE: new(.015)}
		if k%3 == 2 {
			e.Effect = -e.Effect
		}
		if k == 0 {
			e.Field, e.SE = hostile, nil
		}
		e.Against = new(2 * e.Effect)
		r.Logit += e.Effect
		r.Against.Logit += *e.Against
		r.Effects = append(r.Effects, e)
	}
	return &explain.Document{Split: "test", Background: 64, Sampled: 10000, Rows: []explain.Row{r}}
}

// The section shows the first 11 of 14 fields and the sum of the others. The base and all lines sum to the logit. The picture has two bars for each line.
func TestRow(t *testing.T) {
	f := facts()
	var pictures []*chart.Figure
	s := f.rowOf(func(p *chart.Figure) chart.Inline { pictures = append(pictures, p); return p.Inline() })
	if len(s.Rows) != 14 || s.Rows[0].Name != "base" || s.Rows[12].Name != "3 others" || s.Rows[13].Name != "logit" || s.Rows[12].SE != "-" || s.Rows[2].SE != "0.0150" {
		t.Fatalf("%+v", s.Rows)
	}
	for k, of := range []func(rowLine) string{func(l rowLine) string { return l.Before }, func(l rowLine) string { return l.After }, func(l rowLine) string { return l.Change }} {
		sum := 0.
		for i, line := range s.Rows {
			v, err := strconv.ParseFloat(strings.ReplaceAll(of(line), "−", "-"), 64)
			if err != nil {
				t.Fatal(err)
			}
			if sum += v; i == 13 && math.Abs(sum-2*v) > 1e-3 {
				t.Errorf("column %d: the lines sum to %v, expected the logit %v", k, sum-v, v)
			}
		}
	}
	if want := "One row: its probability goes from 0.7500 to 0.2500"; s.Heading != want || !strings.Contains(s.Note, "row 1,234 of the test split, with label 1. Of the first 10,000 rows it changes most from the whole table to that of sparsity 0.5, both without calibration.") {
		t.Errorf("%q, %q, expected %q", s.Heading, s.Note, want)
	}
	if s.Rows[5].Value != "<i>, b, c, d, …" {
		t.Errorf("values %q", s.Rows[5].Value)
	}
	for _, panel := range s.Figure.Panels {
		// On a desk and on a phone: a full bar for 8 fields and the others, and an empty one for 3.
		if full, empty := strings.Count(string(panel.Drawing), "crispEdges"), strings.Count(string(panel.Drawing), "--ink-D55E00"); full != 2*9 || empty != 2*3 {
			t.Errorf("%s has %d full and %d empty bars", panel.Title, full, empty)
		}
	}
	f.Row.Rows[0].Probability = nil
	if s = f.rowOf(func(p *chart.Figure) chart.Inline { return p.Inline() }); !strings.HasPrefix(s.Heading, "One row: its output goes from ") {
		t.Errorf("%q", s.Heading)
	}
	f.Row = nil
	if r, err := Write(f); err != nil || bytes.Contains(r.HTML, []byte(`id="row"`)) {
		t.Errorf("the page has the section without a row: %v", err)
	}
}

// swept returns a sweep of two rivals and of two repeats, the first of which is by the scores
// of the given job.
func swept(id string) *sweep.Document {
	d := &sweep.Document{
		Version: sweep.Version, Model: strings.Repeat("ab", 32), Kind: "fm", Split: "test", Rows: 1000, Features: 9, Entries: 18,
		Settings: &sweep.Settings{Rank: "signed", Protect: []string{hostile}, FieldMinimum: .125},
		Sources:  []sweep.ScoresFile{{Job: id, Options: estimator.Options{Estimator: "permutation"}, Seed: 5, Sample: 1}, {Job: "another", Options: estimator.Options{Estimator: "permutation"}, Seed: 6, Sample: 1}},
	}
	nine := int64(9)
	d.Slices = []sweep.Slice{{Least: 0, Most: &nine, Rows: 100, Positives: new(int64(20))}, {Least: 10, Rows: 900, Positives: new(int64(300))}, {Field: hostile, Least: 0, Most: new(int64), Rows: 10, Positives: new(int64(1))}}
	metrics := func(auc, loss float64) sweep.Metrics {
		calibrated := loss - .01
		return sweep.Metrics{AUC: &auc, LogLoss: &loss, CalibratedLogLoss: &calibrated}
	}
	interval := func(v, half float64) *sweep.Interval {
		low, high := v-half, v+half
		return &sweep.Interval{Value: v, Low: &low, High: &high}
	}
	differences := func(auc, loss, half float64) *sweep.Differences {
		return &sweep.Differences{AUC: interval(auc-.81, half), LogLoss: interval(loss-.4, half), CalibratedLogLoss: interval(loss-.4, half)}
	}
	measure := func(auc, loss float64, bytes int64) sweep.Measure {
		m := sweep.Measure{Metrics: metrics(auc, loss), Bytes: &bytes, TableBytes: &bytes, MemoryBytes: &bytes}
		for i := range 4 {
			p := .1 + .2*float64(i)
			calibrated := p + .01
			m.CalibrationCurve = append(m.CalibrationCurve, sweep.CurveBin{Rows: 250, Predicted: p, Calibrated: &calibrated, Observed: p + .02 + loss/100})
		}
		return m
	}
	d.Unpruned = measure(.81, .4, 72_000)
	for range d.Slices {
		d.Unpruned.Slices = append(d.Unpruned.Slices, sweep.SliceMetrics{Metrics: metrics(.8, .41)})
	}
	add := func(p sweep.Point, sparsity, auc, loss float64) {
		p.Sparsity, p.Parameters, p.Bits, p.Values, p.Measure, p.Difference = sparsity, 18-int(18*sparsity), 32, "float32", measure(auc, loss, int64(72_000*(1-sparsity))), differences(auc, loss, .004)
		for k := range d.Slices {
			p.Slices = append(p.Slices, sweep.SliceMetrics{Metrics: metrics(auc, loss), Difference: differences(auc, loss+.01*float64(2-k), .012)})
		}
		if strings.HasPrefix(p.Method, "ptq") {
			p.Bits, p.Values, p.Bytes, p.TableBytes, p.MemoryBytes = 8, "int8", nil, nil, nil
		}
		d.Points = append(d.Points, p)
	}
	for k, t := range []float64{.5, .9} {
		for source := range 2 {
			add(sweep.Point{Method: "shapley", Source: &source, EmptyFeatures: 4 * k}, t, .8-.02*float64(k)+.002*float64(source), .41+.02*float64(k))
		}
		add(sweep.Point{Method: "magnitude"}, t, .75-.1*float64(k), .45+.1*float64(k))
	}
	add(sweep.Point{Method: "ptq8"}, .75, .805, .402)
	return d
}

// The page is the recorded one, and the same facts give the same bytes.
func TestGolden(t *testing.T) {
	r, err := Write(facts())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Write(facts()); err != nil || !bytes.Equal(again.HTML, r.HTML) {
		t.Errorf("the same facts give different bytes, error %v", err)
	}
	golden(t, "report.html", r.HTML)
	var names []string
	for _, p := range r.Pictures {
		names = append(names, p.Name)
	}
	if got := strings.Join(names, " "); got != "differences sweep calibration row fields frequency gone cut" {
		t.Errorf("the pictures are %s", got)
	}
}

// golden compares a page with the file of the given name in testdata.
func golden(t *testing.T, name string, page []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page, want) {
		t.Errorf("the page differs from %s: if the difference is intended, run this test with -rewrite", path)
	}
}

// A page loads no other files and has no scripts, and names are plain text.
func TestForeign(t *testing.T) {
	r, err := Write(facts())
	if err != nil {
		t.Fatal(err)
	}
	page := string(r.HTML)
	needsNothing(t, page)
	if strings.Count(page, `&lt;script&gt;alert(`) < 5 { // in four tables and, shortened, in the picture
		t.Error("the name of a field is missing")
	}
	for _, link := range regexp.MustCompile(`href="#(\w+)"`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, `id="`+link[1]+`"`) {
			t.Errorf("the link to %s leads nowhere", link[1])
		}
	}
}

func needsNothing(t *testing.T, page string) {
	t.Helper()
	for _, pattern := range []string{`<script`, `<b>`, `\bon\w+=`, `https?:`, `\burl\(`, `@import`, `\bsrc=`, `<iframe`, `<object`, `ZgotmplZ`} {
		if found := regexp.MustCompile(pattern).FindString(page); found != "" {
			t.Errorf("the page contains %q", found)
		}
	}
	for _, link := range regexp.MustCompile(`href="[^"]*"`).FindAllString(page, -1) {
		if link != `href="data:,"` && !strings.HasPrefix(link, `href="#`) {
			t.Errorf("the page links to %s", link)
		}
	}
}

// The page begins with the warning of its scores.
func TestWarning(t *testing.T) {
	f := facts()
	f.Sweep = nil
	for _, off := range []float64{.09, 6.2} {
		f.Scores.Spec.Estimator, f.Scores.EfficiencyError = estimator.Multilinear, off
		r, err := Write(f)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(r.HTML), "<strong>Warning</strong>: the efficiency error of multilinear, "); got != (off > 1) {
			t.Errorf("an efficiency error of %v: the page has the warning: %t", off, got)
		}
	}
}

// The page leaves out sections for which it has no facts: the sweep, the resources of the job,
// the features that are worth most, and the stopping rule. With a stopping rule it says how
// the job ended.
func TestParts(t *testing.T) {
	f := facts()
	has := func(text string) bool {
		t.Helper()
		r, err := Write(f)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(r.HTML), text)
	}
	for _, text := range []string{
		"certain to be within", "What each ranking is for", "Where pruning loses", "worth most and least", "but uncertain", "by their signed scores. These fields keep all entries: &lt;script&gt;", "at least 12.5% of its",
		"<dt>time</dt><dd>90 s</dd>", "<dt>CPU time</dt><dd>2 h</dd>", "finished <strong>2026-05-04 03:02 UTC</strong>", "shaver v1, commit abc", "shaver v2, commit def",
	} {
		if !has(text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	const more = "not including an earlier run that was interrupted"
	if has(more) {
		t.Errorf("the page has %q for a run that was not resumed", more)
	}
	if f.Run.Resumed = true; !has(more) {
		t.Errorf("the page lacks %q", more)
	}
	f.Sweep, f.Run, f.Ends = nil, nil, nil
	for _, text := range []string{"certain to be within", "What each ranking is for", "Where pruning loses", "CPU time", "finished", "worth most and least", "not converged"} {
		if has(text) {
			t.Errorf("the page has %q without its facts", text)
		}
	}
	f.Scores.Stopped = &scores.Stopped{Rounds: 3, Reason: scores.TimeOver}
	if !has("not converged <small>the time is over after 3 rounds</small>") {
		t.Error("the page does not say how the job ended")
	}
	bias := .125
	f.Scores.Audit = &scores.Audit{Reference: "debiased", Rows: 2400, Entries: 99, RelativeBias: &bias, Overlaps: []scores.Overlap{{Sparsity: .9, Overlap: .75, Reference: .5}}}
	for _, text := range []string{"2,400 rows <small>99 entries", "0.125 <small>relative", "up to undefined may", "overlap at 0.9", "0.750 <small>portion of the kept entries that debiased also keeps; debiased on one half of the rows and on the other half: 0.500"} {
		if !has(text) {
			t.Errorf("the facts of the audit lack %q", text)
		}
	}
	f.Aggregate = scores.RMS
	f.Ends = facts().Ends
	if !has("Next to each feature are the sum of the root mean squares of the contributions of its entries") {
		t.Error("the page calls root mean squares values")
	}
	if has("but uncertain") || !has("rms at the cut") {
		t.Error("the page has intervals for an aggregate without standard errors")
	}
}

// The page says that the model memorises, and warns if rows of the training alone were scored. It shows what comes back
// of a field only if it is certain to be worth something on these.
func TestGap(t *testing.T) {
	f := facts()
	page := func() string {
		t.Helper()
		r, err := Write(f)
		if err != nil {
			t.Fatal(err)
		}
		return string(r.HTML)
	}
	const warning, section = "<strong>Warning</strong>: the model memorises: ", `<section id="gap">`
	whole := page()
	contains(t, whole, section, "<h2>The model memorises: of what the fields are worth on rows of the training, 33% comes back", "has the loss 0.3300 on 16,384 rows of the training and 0.6100 on 1,193 rows",
		"<td>0%</td>", "<td>100%</td>", "<td class=\"interval\">−0.003000 to &#43;0.003000</td><td>-</td>", "<tr><th>all fields</th>")
	if strings.Contains(whole, warning) {
		t.Error("the page warns although rows of val were scored")
	}
	f.Scores.Spec.Splits = []string{"train"}
	contains(t, page(), warning)
	f.Gap.Total.Worth[gap.Unseen] = f.Gap.Total.Worth[gap.Train]
	if whole = page(); strings.Contains(whole, "memorises") || !strings.Contains(whole, "<h2>Of what the fields are worth on rows of the training, 100% comes back") {
		t.Error("the page says that a model memorises of which all comes back")
	}
	if f.Gap = nil; strings.Contains(page(), section) {
		t.Error("the page has the section without a gap")
	}
}

// The page has no NaN and no infinity if all entries are kept or dropped, if AUC is undefined,
// or if all values are 0.
func TestExtremes(t *testing.T) {
	f := facts()
	for i := range f.Sweep.Points {
		p := &f.Sweep.Points[i]
		p.Sparsity, p.AUC, p.Difference.AUC = float64(i%2), nil, nil
		for k := range p.Slices {
			p.Slices[k].AUC, p.Slices[k].Difference.AUC = nil, nil
		}
	}
	f.Sweep.Unpruned.AUC = nil
	clear(f.Scores.Phi)
	clear(f.Scores.SE)
	r, err := Write(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"NaN", "Inf", "<h3>AUC</h3>"} {
		if strings.Contains(string(r.HTML), text) {
			t.Errorf("the page contains %q", text)
		}
	}
	if !strings.Contains(string(r.HTML), "<td>-</td>") {
		t.Error("the page has no dash for an undefined AUC")
	}
}

// A report names a few features that keep no entry any more since an earlier night, or keep one again, and counts the others. Fields
// without changes have no row.
func TestChanges(t *testing.T) {
	f := facts()
	f.Since = "day-1.1"
	changes := func() string {
		page, err := Write(f)
		if err != nil {
			t.Fatal(err)
		}
		_, section, _ := strings.Cut(string(page.HTML), `<section id="changes">`)
		section, _, _ = strings.Cut(section, "</section>")
		return html.UnescapeString(strings.Join(strings.Fields(regexp.MustCompile("<[^>]*>").ReplaceAllString(section, " ")), " "))
	}
	if got := changes(); got != "" {
		t.Errorf("without an earlier night: %s", got)
	}
	f.Changes = make([]Changes, len(f.Scores.Fields))
	if got := changes(); got != "What changed against day-1.1 No feature lost its last entry or keeps one again." {
		t.Errorf("without a change: %s", got)
	}
	f.Changes[1] = Changes{Gone: 1001, Back: 1, MostGone: []Feature{{Name: "<x>", Count: 1200}}, MostBack: []Feature{{Name: "y", Count: 1}}}
	got := changes()
	for _, want := range []string{"1,001 features keep no entry any more, and 1 keeps one again.", "field gone back " + strings.Join(strings.Fields(f.Scores.Fields[1]), " ") + " <x> 1,200 rows 1,000 more y 1 row"} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q: %s", want, got)
		}
	}
	if strings.HasSuffix(got, "more") {
		t.Errorf("the page says that more are back: %s", got)
	}
}

// Check returns bad input for a sweep of another model or of other scores.
func TestCheck(t *testing.T) {
	f := facts()
	if err := f.Check(); err != nil {
		t.Error(err)
	}
	f.Sweep.Sources = f.Sweep.Sources[1:]
	if err := f.Check(); !fault.IsInput(err) || !strings.HasSuffix(err.Error(), "only the scores of job another") {
		t.Error(err)
	}
	f.Sweep.Model = strings.Repeat("12", 32)
	if err := f.Check(); !fault.IsInput(err) || !strings.HasPrefix(err.Error(), "the sweep is for the model with digest 1212") {
		t.Error(err)
	}
}

// analyse agrees with numbers counted by hand. By ascending |phi|, the entries are 0 and 1 with
// 0, 14 to 17 with 1.4e-5 to 1.7e-5, and 2 to 13 with 3e-5 to 1.4e-4.
func TestAnalyse(t *testing.T) {
	f := facts()
	found, err := analyse(f)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(found.sparsities) != "[0.5 0.9]" || found.reference() != 0 {
		t.Errorf("sparsities %v, expected .5 and .9", found.sparsities)
	}
	// At .5 the nine entries 5 to 13 are kept, at .9 the entries 12 and 13.
	for j, want := range [][]int{{3, 0}, {6, 2}, {0, 0}} {
		if got := found.fields[j]; fmt.Sprint(got.kept) != fmt.Sprint(want) {
			t.Errorf("field %d keeps %v entries, expected %v", j, got.kept, want)
		}
	}
	if first := found.fields[0]; first.Seen != 3 || math.Abs(first.Sum-33e-5) > 1e-12 {
		t.Errorf("first field: %+v", first)
	}
	if fmt.Sprint(found.byWorth()) != "[1 0 2]" {
		t.Errorf("order of fields by worth %v, expected [1 0 2]", found.byWorth())
	}
	// The rarest third of the features is 0, 1 and 2. Only feature 2 keeps an entry, its second.
	if b := found.bins[0][0]; b.Features != 3 || b.Least != 0 || b.Most != 40 || b.Kept != 1 {
		t.Errorf("bin of the rarest third: %+v", b)
	}
	// The value at the cut at .5 is 6e-5. The entries 2 and 3 of feature 1 have no
	// interval. The half-width of an interval is about .65 times the value, so an interval
	// contains the cut if the value is from 6e-5/1.65 = 3.6e-5 to 6e-5/.35 = 1.7e-4. These
	// are all kept entries and the dropped entry 4.
	cut := found.cuts[0]
	if cut.kept != 9 || math.Abs(cut.value-6e-5) > 1e-12 || cut.unknown != 2 || cut.uncertainKept != 9 || cut.uncertainDropped != 1 {
		t.Errorf("cut at .5: %+v", cut)
	}
	f.Sweep = nil
	if found, err := analyse(f); err != nil || len(found.cuts) != len(Sparsities) {
		t.Errorf("without a sweep: cuts at %v, error %v", found.sparsities, err)
	}
}

// The page of a model with look-ups counts the entries of a field in all its tables.
func TestLookUps(t *testing.T) {
	f := facts()
	s := f.Scores
	s.Layout = modeltest.LookUps()
	s.Shape, s.Baseline, s.Values = s.Layout.Shape(), s.Layout.Zero(), tally.NewValues(s.Layout.Parameters())
	for i := range s.Phi {
		s.Phi[i], s.RMS[i] = float64(i+1), float32(i+1)
	}
	s.Count = s.Layout.RowCounts([]int64{1, 2, 3, 4, 5, 6, 7, 8, 9})
	a := s.Layout
	f.Architecture, f.Entries, f.Sweep = &a, make([]float32, a.Parameters()), nil
	found, err := analyse(f)
	if err != nil {
		t.Fatal(err)
	}
	// At .5 the 14 entries 13 to 26 are kept: two of field 0, and the wide table of field 1.
	half := slices.Index(found.sparsities, .5)
	for j, want := range []int{2, 12, 0} {
		if got := found.fields[j].kept[half]; got != want {
			t.Errorf("field %d keeps %d entries at .5, expected %d", j, got, want)
		}
	}
	if cut := found.cuts[half]; cut.kept != 14 || cut.value != 14 || cut.unknown != 14 {
		t.Errorf("cut at .5: %+v", cut)
	}
	r, err := Write(f)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(r.HTML, []byte("9 features, 27 parameters")) || !bytes.Contains(r.HTML, []byte("of at most 5 entries")) {
		t.Error("the page lacks the size of the tables")
	}
}

// Numbers are written in the forms of the page.
func TestText(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) is %s", n, got)
		}
	}
	for p, want := range map[float64]string{0: "0%", .0004: "<0.1%", .0123: "1.2%", .5: "50%", 1: "100%"} {
		if got := percent(p); got != want {
			t.Errorf("percent(%g) is %s", p, got)
		}
	}
	for s, want := range map[float64]string{3: "3 s", 150: "2.5 min", 36000: "10 h"} {
		if got := duration(s); got != want {
			t.Errorf("duration(%g) is %s", s, got)
		}
	}
}

// In the light and the dark scheme, text has a contrast of at least 4.5 to 1 with the page, and
// pictures have at least 3 to 1 (WCAG 2, 1.4.3 and 1.4.11). The grid of a picture is exempt.
func TestContrast(t *testing.T) {
	light, dark, ok := strings.Cut(style.CSS, "@media (prefers-color-scheme: dark)")
	if !ok {
		t.Fatal("the style sheet has no dark scheme")
	}
	variables := func(css string) map[string]string {
		found := map[string]string{}
		for _, m := range regexp.MustCompile(`--([\w-]+): (#[0-9a-f]{6});`).FindAllStringSubmatch(css, -1) {
			found[m[1]] = m[2]
		}
		return found
	}
	r, err := Write(facts())
	if err != nil {
		t.Fatal(err)
	}
	var curves []chart.Series
	for i := range 16 {
		curves = append(curves, chart.Series{Label: "a", X: []float64{0, 1}, Y: []float64{0, 1}, Style: i})
	}
	figure := picture.Frequency(1, "1", []string{"all"}, curves).Inline()
	drawn := string(r.HTML) + string(figure.Panels[0].Drawing) // has all inks
	for _, scheme := range []struct {
		name      string
		variables map[string]string
	}{{"light", variables(light)}, {"dark", variables(dark)}} {
		paper := scheme.variables["paper"]
		for _, name := range []string{"text", "quiet", "link"} {
			for _, ground := range []string{"paper", "mark"} {
				if c := contrast(t, scheme.variables[name], scheme.variables[ground]); c < 4.5 {
					t.Errorf("%s scheme: %s on %s has a contrast of %.1f, expected at least 4.5", scheme.name, name, ground, c)
				}
			}
		}
		inks := map[string]bool{}
		for _, m := range regexp.MustCompile(`var\(--(ink-[0-9A-F]{6}),(#[0-9A-F]{6})\)`).FindAllStringSubmatch(drawn, -1) {
			ink, known := scheme.variables[m[1]]
			if !known {
				if ink = m[2]; scheme.name == "dark" {
					t.Errorf("dark scheme: the variable --%s is not defined", m[1])
				}
			}
			if c := contrast(t, ink, paper); c < 3 && m[1] != "ink-E1E1E1" {
				t.Errorf("%s scheme: %s (%s) has a contrast of %.1f, expected at least 3", scheme.name, m[1], ink, c)
			}
			inks[m[1]] = true
		}
		if len(inks) < 10 {
			t.Errorf("%d inks, expected at least 10", len(inks))
		}
	}
}

// contrast returns the contrast ratio, as WCAG defines it, of two colours #rrggbb.
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	luminance := func(colour string) float64 {
		v, err := strconv.ParseUint(strings.TrimPrefix(colour, "#"), 16, 32)
		if err != nil || len(colour) != 7 {
			t.Fatalf("%q is not a colour of the form #rrggbb", colour)
		}
		channel := func(shift int) float64 {
			c := float64(v>>shift&255) / 255
			if c <= .04045 {
				return c / 12.92
			}
			return math.Pow((c+.055)/1.055, 2.4)
		}
		return .2126*channel(16) + .7152*channel(8) + .0722*channel(0)
	}
	x, y := luminance(a), luminance(b)
	return (max(x, y) + .05) / (min(x, y) + .05)
}

// A feature counts in the bin of the smallest sparsity that keeps none of its entries, and in that of its frequency.
func TestGone(t *testing.T) {
	f := facts()
	found, err := analyse(f)
	if err != nil {
		t.Fatal(err)
	}
	n, rows, all := len(f.Entries), 0, 0
	for j, features := range f.Scores.Layout.FieldDims {
		want := make([][]int, picture.GoneBins)
		for b := range want {
			want[b] = make([]int, len(found.bins[0]))
		}
		for id := range features {
			row, kept := rows+id, 0
			for drop := range n + 1 {
				if mask := mask.Of(found.order, drop); !mask[2*row] || !mask[2*row+1] {
					kept = drop
				}
			}
			sort := 0
			for f.Scores.Count[row] > found.bins[0][sort].Most {
				sort++
			}
			if f.Scores.Count[row] > 0 {
				want[picture.GoneBin(float64(kept+1)/float64(n))][sort]++
				all++
			}
		}
		rows += features
		if !reflect.DeepEqual(found.gone[j], want) {
			t.Errorf("field %d: %v, expected %v", j, found.gone[j], want)
		}
	}
	if all != 8 || picture.GoneBin(0) != 0 || picture.GoneBin(.9) != picture.GoneBins/4 || picture.GoneBin(1) != picture.GoneBins-1 {
		t.Errorf("%d features occur, bins %d %d %d", all, picture.GoneBin(0), picture.GoneBin(.9), picture.GoneBin(1))
	}
}

// A feature with an entry that is never dropped goes at no sparsity.
func TestGoneFixed(t *testing.T) {
	a := model.Architecture{Kind: model.Graph, FieldDims: []int{4, 4, 2}, Tables: []model.Table{{Name: "a", Rows: 4, Dim: 1}, {Name: "b", Rows: 4, Dim: 1}, {Name: "c", Rows: 2, Dim: 1}},
		LookUps: []model.LookUp{{}, {Table: 1}, {Field: 1}, {Field: 2, Table: 2}}, Frozen: []int{1}}
	f := facts()
	f.Scores.Layout, f.Scores.Count = a, []int64{9, 9, 9, 9, 9, 9, 9, 9, 5, 6}
	found := &findings{order: []int32{8, 4, 9, 5, 6, 7, 0, 1, 2, 3}}
	found.bins = [][]mask.Bin{mask.AllBins(&a, f.Scores.Count, make([]bool, 10), binsShown)}
	n := 0
	for _, bins := range f.gone(found) {
		for _, sorts := range bins {
			for _, features := range sorts {
				n += features
			}
		}
	}
	if n != 2 { // those of the last field
		t.Errorf("%d features go, expected 2", n)
	}
}

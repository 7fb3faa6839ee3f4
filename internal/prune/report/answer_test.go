package report

import (
	"html"
	"regexp"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/prune/gate"
	"shaver/internal/prune/sweep"
)

// shown returns the report of f, without escapes.
func shown(t *testing.T, f *Facts) string {
	t.Helper()
	r, err := Write(f)
	if err != nil {
		t.Fatal(err)
	}
	return html.UnescapeString(string(r.HTML))
}

func contains(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
}

func lacks(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(page, text) {
			t.Errorf("the page has %q without a reason", text)
		}
	}
}

// plain returns the text of a page without its elements.
func plain(page string) string {
	return regexp.MustCompile(`(\s*<[^>]*>)+\s*`).ReplaceAllString(page, "|")
}

// The page begins with the smallest table within the bound, its size and its row.
func TestAnswer(t *testing.T) {
	f := facts()
	page := shown(t, f)
	contains(t, page,
		"<h2>Keep 50% of the entries: 35 KiB instead of 70 KiB</h2>", "This is the smallest measured table that is certain to be within 0.02 AUC and 0.02 calibrated LogLoss of the unpruned model.",
		`<code>--sparsity 0.5 --aggregate signed --protect '<script>alert("1")</script>' --field-minimum 0.125 --calibrate --dataset DIR</code>`,
		`<tr class="chosen"><th>0.5</th><td>35 KiB</td>`,
		"The best of 2 rankings was chosen on the rows on which it is measured", "The intervals of the answer account for this",
		"AUC and LogLoss hold up to sparsity 0.5",
	)
	if strings.Count(page, `<tr class="chosen">`) != 2 { // and that of its ranking
		t.Error("the page does not mark one budget and one ranking")
	}
	// The repeats at 0.5 have the AUC 0.8 and 0.802, and their intervals end .004 from them.
	contains(t, plain(page), "|0.5|35 KiB|0.8010|−0.0090|−0.0140 to −0.0040|0.4000|+0.0100|+0.0060 to +0.0140|9|35 KiB|0|0.02|shapley|")
	contains(t, plain(page), "|table|35 KiB|of 70 KiB|AUC|−0.0090|95%: −0.0140 to −0.0040|calibrated LogLoss|+0.0100|95%: +0.0060 to +0.0140|slices that lose|2 of 3|for certain|calibration|holds|no rate is certain to be off|rows judged|1,000|",
		"|new rows|33%|of what the fields are worth holds there|")

	// A larger bound allows a smaller table, and a smaller one allows none.
	f.Within = sweep.Bound(.05)
	contains(t, shown(t, f), "Keep 10% of the entries", "within 0.05 AUC and 0.05 calibrated LogLoss", `<tr class="chosen"><th>0.9</th>`)
	f.Within = .012
	page = shown(t, f)
	contains(t, page, "No measured table is certain to be within 0.012 AUC and 0.012 calibrated LogLoss", "The best guess keeps 50% of the entries, 35 KiB on disk; about ", " rows would make it certain.", "AUC and LogLoss are not certain to hold", "<h2>No smaller table is certain</h2>")
	lacks(t, page, "--sparsity 0.5 --aggregate", `<dl class="verdict">`)

	// There is only one ranking.
	f = facts()
	f.Sweep.Points = f.Sweep.Points[:1]
	page = shown(t, f)
	contains(t, page, "Keep 50% of the entries")
	lacks(t, page, "slightly too good", "best ranking", "What each ranking is for")
}

// If a file was made, the page names it and its price, and no command. It is said to be certain only if the check of the file says so.
func TestShipped(t *testing.T) {
	f := facts()
	value, low, high := .001, -.002, .004
	f.Shipped = &Shipped{File: hostile, Bytes: 408 << 10, Dense: 2 << 20, Kept: 7, Entries: 18, Rounded: true, Within: .02, Check: &gate.Document{Split: "test", Rows: 1000,
		AUC: &gate.Metric{Passed: true, Difference: sweep.Interval{Value: value, Low: &low, High: &high}}, LogLoss: &gate.Metric{Passed: true, Difference: sweep.Interval{Value: .003}},
		Answer: &sweep.Answer{Rungs: []sweep.Rung{{Within: .02, Certain: &sweep.Table{Parameters: 9}}}}}}
	page := shown(t, f)
	contains(t, page, "<h2>Ship "+oneLine(hostile)+": 408 KiB instead of 2.0 MiB</h2>", "It is the smallest file found that is certain to be within 0.02 AUC and 0.02 calibrated LogLoss of the unpruned model, on 1,000 rows of test. It keeps 7 of 18 entries, those of the marked table, and rounds numbers.", "before it is rounded")
	contains(t, plain(strings.ReplaceAll(page, hostile, "")), "|file|408 KiB|of 2.0 MiB|AUC|+0.0010|95%: −0.0020 to +0.0040|LogLoss as served|+0.0030|slices that lose|2 of 3|for certain, before rounding|")
	lacks(t, page, "To make this table")

	// A file of a size that was asked for may have another table than the sweep recommends, and says nothing of a bound.
	f.Shipped.Within, f.Shipped.Rounded, f.Shipped.Check.Answer.Rungs[0].Certain.Parameters = 0, false, 8
	page = shown(t, f)
	contains(t, page, "<h2>"+oneLine(hostile)+": 408 KiB instead of 2.0 MiB</h2>", "It has the size or the sparsity that was asked for. It keeps 7 of 18 entries.")
	lacks(t, page, "the smallest file found", "slices that lose", "Ship ")
}

// A metric whose interval is unknown is not said to hold.
func TestUnknownInterval(t *testing.T) {
	f := facts()
	for i := range f.Sweep.Points {
		auc := f.Sweep.Points[i].Difference.AUC
		auc.Low, auc.High = nil, nil
	}
	page := shown(t, f)
	contains(t, page, "No measured table is certain to be within", "AUC and LogLoss are not certain to hold")
}

// The page's command makes the recommended table, and not one that is only near it.
func TestAnswerCommand(t *testing.T) {
	f := facts()
	for i := range f.Sweep.Points {
		if p := &f.Sweep.Points[i]; p.Sparsity == .5 {
			p.Sparsity, p.Parameters, p.Values, p.Bits = 4./9, 10, "float16", 16
		}
	}
	contains(t, shown(t, f), "<code>--parameters 10 --aggregate signed", "--field-minimum 0.125 --values float16 --calibrate")
	for i := range f.Sweep.Points {
		if p := &f.Sweep.Points[i]; p.Values == "float16" {
			p.Values, p.Bits = "mixed", 0
		}
	}
	f.Sweep.Unpruned.CalibratedLogLoss = nil
	contains(t, shown(t, f), "--values auto --dataset DIR")
	contains(t, shown(t, f), "The scores are those of job "+f.Sweep.Sources[0].Job+" (permutation, ")
	// The table with nothing kept has the pads of lists, and needs no order.
	for want, p := range map[string]sweep.Point{"--sparsity 1": {Sparsity: 1}, "--parameters 3": {Sparsity: 32. / 35, Parameters: 3}} {
		p.Method, p.Values = sweep.Nothing, "float32"
		if got := compare(f.Sweep, f.Within).command(&budget{&method{name: sweep.Nothing}, &sweep.Mean{Point: &p}}); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}

// A difference is bold if its interval does not contain 0, and only then.
func TestBold(t *testing.T) {
	f := facts()
	page := shown(t, f)
	contains(t, page, `<td class="change"><strong>−0.0090</strong></td><td class="interval">−0.0140 to −0.0040</td>`)
	for i := range f.Sweep.Points {
		d := f.Sweep.Points[i].Difference
		for _, interval := range []*sweep.Interval{d.AUC, d.LogLoss, d.CalibratedLogLoss} {
			low, high := -1., 1.
			interval.Low, interval.High = &low, &high
		}
		for k := range f.Sweep.Slices {
			f.Sweep.Points[i].Slices[k].Difference = d
		}
	}
	page = shown(t, f)
	contains(t, page, `<td class="change">−0.0090</td><td class="interval">−1.0000 to +1.0000</td>`)
	start, end := strings.Index(page, "<main>"), strings.Index(page, `<section id="fields">`)
	if bold := regexp.MustCompile(`<strong>[^<]*\d{4}`).FindAllString(page[start:end], -1); len(bold) > 0 {
		t.Errorf("bold although nothing differs: %q", bold)
	}
}

// A sweep of an older program, which has no intervals, has no answer and no page.
func TestOlderSweep(t *testing.T) {
	f := facts()
	f.Sweep.Points[0].Difference = nil
	if err := f.Check(); !fault.IsInput(err) || !strings.Contains(err.Error(), "an older program wrote it: run shaver sweep again") {
		t.Error(err)
	}
}

// Methods far from the best one do not stretch the axes. They are only in the picture of all
// methods.
func TestZoom(t *testing.T) {
	f := facts()
	f.Within = sweep.Bound(.003)
	page := shown(t, f)
	start := strings.Index(page, `<section id="curves">`)
	zoomed, rest, _ := strings.Cut(page[start:], "<details>")
	figure, _, _ := strings.Cut(zoomed, "</figure>")
	contains(t, figure, ">shapley<", ">int8<", ">unpruned 0.8100<", ">bound<", "the axis is stretched")
	lacks(t, figure, ">magnitude<", ">−0.06<")
	contains(t, zoomed, `Under "All methods" are the rankings that are far from the best: magnitude.`)
	contains(t, rest, "magnitude")
}

// The page compares the calibration and the metrics on slices of the unpruned model and of
// the recommended table.
func TestQuality(t *testing.T) {
	f := facts()
	page := shown(t, f)
	contains(t, page, "This section compares the unpruned model with shapley at sparsity 0.5.", "After calibration: no predictions are certain to be off", "Rows whose rarest feature occurs up to 9 times lose: calibrated LogLoss +0.0",
		"<th>10 times or more</th><td>900<small>33% positive</small></td><td>0.8000</td>", `<td class="word">never</td>`)
	for i := range f.Sweep.Points {
		p := &f.Sweep.Points[i]
		low, high := -1., 1.
		for k := range p.Slices {
			d := p.Slices[k].Difference
			d.CalibratedLogLoss.Low, d.CalibratedLogLoss.High = &low, &high
		}
	}
	contains(t, shown(t, f), "No slice is certain to lose")
}

// The page ranks by the aggregate of the recommended table if its scores are those of the page.
func TestRecommended(t *testing.T) {
	f := facts()
	for i := range f.Sweep.Points {
		if p := &f.Sweep.Points[i]; p.Method == "shapley" {
			p.Method = "shapley-rms"
		}
	}
	if got := f.Recommended(); got != "rms" {
		t.Errorf("the recommended aggregate is %q, expected rms", got)
	}
	f.Sweep.Sources[0].Job = "yet another"
	if got := f.Recommended(); got != "" {
		t.Errorf("the recommended aggregate is %q for other scores, expected none", got)
	}
}

func TestSizes(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0 B", 999: "999 B", 1023: "1023 B", 1024: "1.0 KiB", 10_188: "9.9 KiB", 10_189: "10 KiB", 31_400: "31 KiB", 500_032: "488 KiB", 1_023_500: "1.0 MiB", 2_121_244: "2.0 MiB", 3 << 40: "3 TiB"} {
		if got := size(&bytes); got != want {
			t.Errorf("size(%d) is %s, expected %s", bytes, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0.0000", -.00004: "0.0000", .00123: "+0.0012", -.5: "−0.5000"} {
		if got := signed(v); got != want {
			t.Errorf("signed(%v) is %s, expected %s", v, got, want)
		}
	}
}

// addModel adds a model that is measured as it is, with the other facts of the first point.
func addModel(f *Facts, file string, sparsity, auc float64) {
	p := f.Sweep.Points[0]
	low, high := auc-.811, auc-.809
	p.Method, p.Source, p.Model, p.AUC, p.Sparsity, p.Parameters = "pep", nil, new(len(f.Sweep.Models)), &auc, sparsity, 18-int(18*sparsity)
	p.Difference = &sweep.Differences{AUC: &sweep.Interval{Value: auc - .81, Low: &low, High: &high}, LogLoss: p.Difference.LogLoss, CalibratedLogLoss: p.Difference.CalibratedLogLoss}
	f.Sweep.Version = sweep.ModelsVersion
	f.Sweep.Models = append(f.Sweep.Models, sweep.ModelFile{File: file, Model: "ab"})
	f.Sweep.Points = append(f.Sweep.Points, p)
}

// If the recommended table is that of a model file, the page names the file, and no command that
// would make another table.
func TestAnswerModel(t *testing.T) {
	f := facts()
	addModel(f, hostile, .8, .815)
	page := shown(t, f)
	contains(t, page, "<h2>Take the table of "+hostile+", 20% of the unpruned one: ",
		"This table is part of a model of its own, in the file <code>"+hostile+"</code>.", `<tr class="chosen"><th>0.8</th>`, "This section compares the unpruned model with pep at sparsity 0.8.",
		"The best of 2 rankings", "The sweep also measured model files as they are")
	lacks(t, page, "To make this table")
	if got := f.Recommended(); got != "" {
		t.Errorf("the recommended aggregate is %q, expected none", got)
	}
	r, err := Write(f)
	if err != nil || strings.Contains(string(r.HTML), hostile) {
		t.Errorf("the name of the file is not escaped, error %v", err)
	}

	f = facts()
	addModel(f, "pep.safetensors", .8, .7)
	page = shown(t, f)
	contains(t, page, "Keep 50% of the entries", "To make this table", `<th>0.8</th>`)
	lacks(t, page, "This table is part of a model")
}

// A model that is far from the others at a sparsity of its own neither stretches the axes nor ends
// them there.
func TestModelAlone(t *testing.T) {
	f := facts()
	f.Within = sweep.Bound(.003)
	for k := range 4 {
		addModel(f, "pep.safetensors", .1+.05*float64(k), .6)
	}
	page := shown(t, f)
	zoomed, _, _ := strings.Cut(page[strings.Index(page, `<section id="curves">`):], "<details>")
	contains(t, zoomed, ">shapley<", `Under "All methods" are the rankings that are far from the best: magnitude and pep.`)
	lacks(t, zoomed, ">−0.06<", "leave the axes before sparsity 0.1.")
}

// A sweep of models alone belongs to all scores of its model.
func TestModelsAlone(t *testing.T) {
	f := facts()
	addModel(f, "pep.safetensors", .8, .815)
	f.Sweep.Points, f.Sweep.Sources = f.Sweep.Points[len(f.Sweep.Points)-1:], nil
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	contains(t, shown(t, f), "Take the table of pep.safetensors")
	f.Sweep.Model = strings.Repeat("12", 32)
	if err := f.Check(); err == nil {
		t.Error("a sweep of another model has no error")
	}
}

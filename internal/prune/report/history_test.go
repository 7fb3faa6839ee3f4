package report

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"shaver/internal/prune/nightly"
)

// history returns n nights. The fourth fails its check, and every seventh is scored in full.
func history(n int) (lines []nightly.Line, folders map[string]bool) {
	folders = map[string]bool{}
	value := func(v float64) *float64 { return &v }
	for i := range n {
		x := math.Sin(float64(i))
		l := nightly.Line{
			Version: nightly.LineVersion, Night: fmt.Sprintf("2026-%02d-%02d.1", 1+i/28, 1+i%28), Number: i + 1, Outcome: nightly.Published, Reasons: []string{},
			Started: "2026-11-22T01:00:00Z", Finished: "2026-11-22T01:10:00Z", Attempts: 1, Seconds: 100 + 10*x, CoreSeconds: 200 + 20*x, ScoreCoreSeconds: 150 + 10*x,
			Days: []string{"2026-11-16", "2026-11-22"}, Generation: i % 7, Rows: 1234567, FullEvaluations: 1234567, Evaluations: 234567 + int64(1000*x),
			Sparsity: .9, Bytes: 1 << 20, DenseBytes: 10 << 20,
			AUC: value(.75 + .01*x), PrunedAUC: value(.749 + .01*x), AUCDrop: value(.001), AUCDropLow: value(.0005), AUCDropHigh: value(.0015), AUCDropBound: value(.002), LogLossRiseBound: value(.004),
			LogLoss: value(.45 - .01*x), PrunedLogLoss: value(.451 - .01*x), LogLossRise: value(.001), LogLossRiseLow: value(-.001), LogLossRiseHigh: value(.003),
			Model: strings.Repeat("ab", 32), Scores: strings.Repeat("cd", 32), Pruned: strings.Repeat("ef", 32),
		}
		if i%7 == 0 {
			l.Evaluations, l.RelativeError = l.FullEvaluations, value(0)
		} else {
			l.RelativeError, l.Reduction = value(.01*float64(i%7)), value(12.5)
		}
		if i > 0 {
			l.Churn, l.PlainChurn = value(.02+.005*x), value(.05+.005*x)
		}
		if i == 3 {
			l.Outcome, l.Reasons = nightly.Failed, []string{"the AUC falls by 0.002000, and at most 0.001 is allowed " + hostile}
		}
		if i >= n-3 {
			folders[l.Night] = true
		}
		lines = append(lines, l)
	}
	return lines, folders
}

// The page about ten nights is the one that people have looked at.
func TestHistoryGolden(t *testing.T) {
	lines, folders := history(10)
	page, err := History(lines, folders, "shaver v2, commit def")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "history.html", page)
	if !bytes.Contains(page[:markWithin], []byte(mark)) {
		t.Error("the page is not recognised as one of this package")
	}
}

// The drop and the rise of each night are drawn with their intervals against what the check allows. Records of
// older programs have no bound.
func TestHistoryBounds(t *testing.T) {
	lines, _ := history(10)
	for i := range lines {
		if lines[i].AUCDrop = new(.001); i < 5 {
			lines[i].AUCDropBound = nil
		}
	}
	f, _ := trends(lines)
	var drawing string
	for _, p := range f.Panels {
		if p.Title == "Drop of the AUC, and what the check allows" {
			drawing = string(p.Drawing)
		}
	}
	for _, want := range []string{">drop<", ">allowed<", ">0.0020<"} {
		if !strings.Contains(drawing, want) {
			t.Errorf("the panel lacks %s:\n%.400s", want, drawing)
		}
	}
	for i := range lines {
		lines[i].AUCDropBound = nil
	}
	if f, _ := trends(lines); strings.Contains(string(f.Panels[2].Drawing), ">allowed<") {
		t.Error("a bound is drawn that no line has")
	}
}

// The page shows what is known, for one night, for many, after a failed check, and with
// names from outside.
func TestHistory(t *testing.T) {
	page := func(lines []nightly.Line, folders map[string]bool) string {
		t.Helper()
		text, err := History(lines, folders, "")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	expect := func(text string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("the page lacks %q", part)
			}
		}
	}
	lines, folders := history(1)
	one := page(lines, folders)
	expect(one, "The night 2026-01-01.1 is published.", `href="nights/2026-01-01.1/report.html"`, "100% of the row evaluations of a full job")
	if strings.Contains(one, "Churn, %") || strings.Contains(one, "Older nights") {
		t.Error("the page about one night shows what does not exist")
	}
	lines, folders = history(4)
	failed := page(lines, folders)
	expect(failed, "The night 2026-01-04.1 failed its check.", "The night 2026-01-03.1 stays published.", "at most 0.001 is allowed &lt;script&gt;", "A cross at the bottom", `class="chosen"><th><a href="nights/2026-01-03.1/report.html">`)
	lines, folders = history(100)
	many := page(lines, folders)
	expect(many, "Older nights", "nights <strong>100</strong>", "no. 100", "no. 1<")
	if strings.Count(many, `href="nights/`) != 3 {
		t.Error("the page links to folders that are not there")
	}
	lines, _ = history(2)
	lines[1].Night, lines[1].Days, lines[1].AUC, lines[1].PrunedAUC, lines[1].AUCDrop = hostile+"/?#", []string{hostile}, nil, nil, nil
	foreign := page(lines, map[string]bool{hostile + "/?#": true})
	expect(foreign, "nights/%3Cscript%3Ealert%28%221%22%29%3C%2Fscript%3E%2F%3F%23/report.html")
	if strings.Contains(foreign, "<script") {
		t.Error("a name is not escaped")
	}
}

// TestDropped checks that a sparsity near 1 is not rounded to everything.
func TestDropped(t *testing.T) {
	for p, want := range map[float64]string{.9: "90%", .99: "99%", .994: "99%", .999: "99.9%", .9999999: "99.9999%", 1: "100%", 0: "0%"} {
		if got := dropped(p); got != want {
			t.Errorf("%v: %s, expected %s", p, got, want)
		}
	}
}

// The page says what each table of the last night keeps, and how that changed since the first night of which it is known.
func TestHistoryOfTables(t *testing.T) {
	lines, folders := history(4)
	lines[1].Tables = []nightly.Table{{Name: "item", Rows: 1000, Entries: 4000, Kept: 1000, Bytes: 4096}}
	lines[3].Tables = []nightly.Table{{Name: "item", Rows: 1500, Entries: 6000, Kept: 990, Bytes: 5120}, {Name: hostile, Rows: 7, Entries: 7, Kept: 7, Bytes: 28}}
	page, err := History(lines, folders, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<tr><th>item</th><td>1,500<small>&#43;50.0%</small></td><td>990<small>-1.0%</small></td><td>16%</td><td>5.0 KiB<small>&#43;25.0%</small></td></tr>`,
		"<td>7</td><td>7</td><td>100%</td><td>28 B</td>", "changes since the night 2026-01-02.1.",
	} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if page, err = History(lines[:3], folders, ""); err != nil || bytes.Contains(page, []byte("Tables of the last night")) {
		t.Errorf("a page about a night without tables has some; error %v", err)
	}
}

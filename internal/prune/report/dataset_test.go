package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
)

// nasty lists values that may occur in a log and must not harm the page.
var nasty = []string{
	hostile, "", " ", "a\x00b\x1b[31m\r\nc", "\u202eturned round\u2066", "\u2069\u2069closed", "שלום עולם", "\xff\xfe", `back\slash "quoted"`, "Z" + strings.Repeat("\u0334\u0352", 200),
	strings.Repeat("w", 100_000) + "end", strings.Repeat("\U0010ffff", 500), strings.Repeat("﷽", 40), strings.Repeat("漢", 60), "</li></ol><style>*{display:none}", "{{.}}",
}

// inspection returns facts about 1,000 rows and four fields. The first field has a nasty name
// and nasty values. The second has OOV values in most rows. The third has features that never
// occur. The fourth has no OOV values.
func inspection() *dataset.Inspection {
	share := func(v float64) *float64 { return &v }
	held := func(features ...int) (all []dataset.HeldFacts) {
		for k, n := range features {
			all = append(all, dataset.HeldFacts{Share: dataset.Held[k], Features: n})
		}
		return all
	}
	other := dataset.ValueFacts{ID: 8, Rows: 640, Share: .64}
	facts := &dataset.Inspection{
		Digest: strings.Repeat("ab", 32), IDs: dataset.RawStrings, Rows: 1000, LabelFacts: labelFacts(44, 1000), Skipped: 3, Features: 60_031,
		Splits: []dataset.SplitFacts{{Name: "train", Rows: 900, LabelFacts: labelFacts(40, 900)}, {Name: "test", Rows: 100, LabelFacts: labelFacts(4, 100)}},
		Fields: []dataset.FieldFacts{
			{Name: hostile + "\u202e\x00" + strings.Repeat("x", 300), Size: 17, Seen: 17, OOV: share(.1), Concentration: held(3, 14, 17)},
			{Name: "rare", Size: 9, Seen: 9, OOV: share(.64), Top: []dataset.ValueFacts{other}, Concentration: held(1, 4, 8)},
			{Name: "brought", Size: 60_000, Seen: 700, OOV: share(.2499), Concentration: held(200, 600, 690)},
			{Name: "whole", Size: 5, Seen: 4, OOV: share(0), Concentration: held(1, 2, 4)},
		},
	}
	for id, value := range nasty {
		facts.Fields[0].Top = append(facts.Fields[0].Top, dataset.ValueFacts{ID: id, Value: &value, Rows: int64(60 - id), Share: float64(60-id) / 1000})
	}
	return facts
}

var origin = Origin{Name: hostile, Written: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), Program: "shaver v2, commit def"}

func TestOneLine(t *testing.T) {
	a, b := strings.Repeat("a", 50), strings.Repeat("b", 25)
	for text, want := range map[string]string{
		"": "", "ü": "ü", a + b: a + b, a + "x" + b: a + "…" + b, a + "\xff\xff" + b: a + "…" + b, strings.Repeat("\x00", 20): strings.Repeat(`\x00`, 12) + "…" + strings.Repeat(`\x00`, 6),
		strings.Repeat("\xe6\xbc", 40): strings.Repeat(`\xe6\xbc`, 6) + "…" + strings.Repeat(`\xe6\xbc`, 3), "\u00a0\u2028\t": `\u00a0\u2028\t`,
	} {
		if got := oneLine(text); got != want {
			t.Errorf("oneLine(%q) is %s, expected %s", text, got, want)
		}
	}
}

func TestDatasetGolden(t *testing.T) {
	page, err := Dataset(inspection(), origin)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Dataset(inspection(), origin); err != nil || !bytes.Equal(again, page) {
		t.Errorf("the same facts give different bytes, error %v", err)
	}
	golden(t, "dataset.html", page)
}

// On the page values are plain text, short, and without invisible characters.
func TestDatasetForeign(t *testing.T) {
	data, err := Dataset(inspection(), origin)
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	needsNothing(t, page)
	if len(page) > 100_000 {
		t.Errorf("the page has %d bytes, expected at most 100000", len(page))
	}
	for _, r := range page {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			t.Errorf("the page contains the character %U", r)
		}
	}
	for _, text := range []string{
		`<bdi>&#34;&#34;</bdi>`, `a\x00b\x1b[31m\r\nc`, `\u202eturned round\u2066`, `&#34;שלום עולם&#34;`, `&#34;\xff\xfe&#34;`, `&#34;{{.}}&#34;`, "www…www", "wend&#34;",
		`<h3>&lt;script&gt;alert(\&#34;1\&#34;)&lt;/script&gt;\u202e\x00xxx`,
	} {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %s", text)
		}
	}
}

// The page marks high OOV shares and features that never occur, explains the marks, and marks
// nothing else.
func TestDatasetMarks(t *testing.T) {
	facts := inspection()
	has := func(text string) bool {
		t.Helper()
		page, err := Dataset(facts, origin)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(page), text)
	}
	for _, text := range []string{
		"<mark>64.00%</mark>", "<mark>59,300 never</mark>", "<td>24.99%</td>", "<td>4</td><td>0.00%</td>", "Marked: an OOV share of 25% or more", "Marked: features that occur in no row", `<bdi class="note">other values (OOV)</bdi><span class="bar"><i style="width: 64.00%"></i></span><span>640</span><span class="note">64%</span>`,
		"cover 99% of the rows", "<h1>&lt;script&gt;", "written <strong>2026-05-04</strong>", "shaver v2, commit def", "brought has 100% of the features",
		"<dt>skipped</dt><dd>3 <small>malformed rows",
	} {
		if !has(text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	facts.Fields, facts.Skipped = facts.Fields[3:], 0
	for _, text := range []string{"<mark>", "Marked", "skipped", "Most frequent values"} {
		if has(text) {
			t.Errorf("the page has %q without a reason", text)
		}
	}
	// Features of encoded rows have only ids, and there are no OOV values.
	facts.IDs = dataset.LocalIDs
	facts.Fields[0].OOV, facts.Fields[0].Top = nil, []dataset.ValueFacts{{ID: 3, Rows: 500, Share: .5}}
	// One id that never occurs is usual. The page says so once and marks nothing.
	if has("OOV") || has("never") || !has("In 1 of 1 field, exactly one feature occurs in no row.") || !has("<bdi>3</bdi>") {
		t.Error("the page is wrong for features that have only ids")
	}
	facts.Fields[0].Seen = 3
	if !has("<mark>2 never</mark>") || has("exactly one feature") {
		t.Error("two features that never occur are not marked")
	}
}

// The page lists dense inputs, whose names may be any text.
func TestDatasetDense(t *testing.T) {
	facts := inspection()
	mean, deviation := 12.5, 3.25
	facts.Dense = []dense.Input{{Name: "<b>price", Rule: dense.ZScore, Mean: &mean, Deviation: &deviation, Missing: &mean, Filled: 250, Values: dense.Values{Min: -1, Mean: 12, Max: 1e6}},
		{Name: "age", Rule: dense.Log1p, Values: dense.Values{Max: 80}}}
	page, err := Dataset(facts, origin)
	if err != nil {
		t.Fatal(err)
	}
	needsNothing(t, string(page))
	for _, text := range []string{"Dense inputs", "<th>&lt;b&gt;price</th><td>zscore (mean 12.5, deviation 3.25)</td><td>-1</td><td>12</td><td>1e&#43;06</td><td>25% as 12.5</td>",
		"<th>age</th><td>log1p</td><td>0</td><td>0</td><td>80</td><td></td>"} {
		if !strings.Contains(string(page), text) {
			t.Errorf("the page lacks %s", text)
		}
	}
}

// The page is the same if the facts were written as JSON and read again.
func TestDatasetFromJSON(t *testing.T) {
	facts := inspection()
	for i := range facts.Fields[0].Top { // JSON texts are valid UTF-8
		value := strings.ToValidUTF8(*facts.Fields[0].Top[i].Value, "?")
		facts.Fields[0].Top[i].Value = &value
	}
	text, err := json.Marshal(facts)
	if err != nil {
		t.Fatal(err)
	}
	var read dataset.Inspection
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	want, err := Dataset(facts, origin)
	if err != nil {
		t.Fatal(err)
	}
	if page, err := Dataset(&read, origin); err != nil || !bytes.Equal(page, want) {
		t.Errorf("the page differs, error %v", err)
	}
}

// labelFacts returns the facts about labels that are 0 or 1.
func labelFacts(positives int64, rows float64) dataset.LabelFacts {
	rate := float64(positives) / rows
	return dataset.LabelFacts{Positives: &positives, LabelRate: &rate}
}

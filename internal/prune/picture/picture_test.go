package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/chart"
	"shaver/internal/prune/sweep"
)

// document returns a sweep with two repeats, a method at one point, and a method whose
// AUC is undefined.
func document() *sweep.Document {
	d := &sweep.Document{Kind: "deepfm", Split: "test", Unpruned: sweep.Measure{Metrics: sweep.Metrics{LogLoss: new(.44)}}, Sources: []sweep.ScoresFile{{Seed: 1}, {Seed: 2}}}
	value := func(v float64) *float64 { return &v }
	d.Unpruned.AUC = value(.8)
	for i, auc := range []float64{.79, .78, .6, .59} {
		source := i % 2
		d.Points = append(d.Points, sweep.Point{Method: "shapley", Source: &source, Sparsity: []float64{.5, .99}[i/2], Measure: sweep.Measure{Metrics: sweep.Metrics{AUC: value(auc), LogLoss: new(1 - auc)}}})
	}
	return &sweep.Document{Kind: d.Kind, Split: d.Split, Unpruned: d.Unpruned, Sources: d.Sources, Points: append(d.Points,
		sweep.Point{Method: "ptq8", Sparsity: .75, Measure: sweep.Measure{Metrics: sweep.Metrics{AUC: value(.8), LogLoss: new(.45)}}},
		sweep.Point{Method: "none\x00<&>\uffff", Sparsity: 1, Measure: sweep.Measure{Metrics: sweep.Metrics{LogLoss: new(.7)}}})}
}

func TestPictures(t *testing.T) {
	dir := t.TempDir()
	draw := func(name string) []byte {
		path := filepath.Join(dir, name)
		if err := chart.Check(path); err != nil {
			t.Fatal(err)
		}
		if err := Sweep(document()).Write(path); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	svg := draw("a.svg")
	if !bytes.Equal(svg, draw("b.svg")) {
		t.Error("the same document gives different bytes")
	}
	// The picture is valid XML, and contains the words of the document.
	var words strings.Builder
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok {
			fmt.Fprintln(&words, strings.TrimSpace(string(text)))
		}
	}
	for _, want := range []string{"AUC of deepfm on the test split", "sparsity: portion of the entries dropped", "LogLoss of deepfm on the test split, nat", "unpruned", "shapley", "ptq8", "none <&>", "0.99"} {
		if !strings.Contains(words.String(), "\n"+want+"\n") {
			t.Errorf("the picture does not contain %q", want)
		}
	}
	if !chart.Written(filepath.Join(dir, "a.svg")) {
		t.Error("the file is not recognised")
	}
}

// On a page, a picture has no background, colour or typeface of its own.
func TestInline(t *testing.T) {
	f := Sweep(document()).Inline()
	if len(f.Panels) != 2 || len(f.Keys) != 4 {
		t.Fatalf("Inline returned %d panels and %d keys", len(f.Panels), len(f.Keys))
	}
	for _, svg := range []template.HTML{f.Panels[0].Drawing, f.Panels[1].Drawing, f.Keys[1].Shape, chart.Sample(3)} {
		for _, unwanted := range []string{"#FFFFFF", "font-family", "<?xml", "http", `"#`} {
			if strings.Contains(string(svg), unwanted) {
				t.Errorf("%q occurs in %.200s", unwanted, svg)
			}
		}
		if err := xml.Unmarshal([]byte("<div>"+svg+"</div>"), new(struct{})); err != nil {
			t.Errorf("%v in %.200s", err, svg)
		}
	}
	p := Fields([]string{"<a>\n" + strings.Repeat("x", 50), "b\xff"}, []string{"of all"}, [][]float64{{.5, .5}})
	drawing := func() string { return string(p.Inline().Panels[0].Drawing) }
	if svg := drawing(); !strings.Contains(svg, ">&lt;a&gt; xxxxx") || !strings.Contains(svg, "x…<") || strings.Contains(svg, strings.Repeat("x", 50)) || !strings.Contains(svg, ">b?<") {
		t.Errorf("wrong field names in %s", svg)
	}
	// Numbers of features are on a logarithmic axis that ends at a power of ten.
	p = Concentration([]string{"a", "b"}, []string{"half", "all"}, [][]int{{1, 3}, {1, 1_000_001}})
	if svg := drawing(); len(p.Keys) != 2 || !strings.Contains(svg, ">1<") || !strings.Contains(svg, ">100<") || !strings.Contains(svg, ">10k<") || strings.Contains(svg, ">100M<") {
		t.Errorf("%d keys, panel %s", len(p.Keys), svg)
	}
	// Pictures without data, or with equal values only, can be drawn.
	for _, p = range []*chart.Figure{
		Cut("nat", []chart.Series{{Label: "none"}}), Cut("nat", []chart.Series{{Label: "same", X: []float64{0, .5}, Y: []float64{.1, .1}}}), Cut("nat", []chart.Series{{Label: "zero", X: []float64{0}, Y: []float64{0}}}),
		Frequency(1, "1", []string{"all"}, []chart.Series{{Label: "one", X: []float64{0}, Y: []float64{1}}}),
		Concentration([]string{"one"}, []string{"all"}, [][]int{{1}}),
		Calibration([]chart.Series{{Label: "none"}}), Calibration([]chart.Series{{Label: "one", X: []float64{0}, Y: []float64{0}}}),
		Differences(Lines{Low: -1, High: 1}), Differences(Lines{Low: -1, High: 1, Curves: []chart.Series{{Label: "one", X: []float64{.5}, Y: []float64{0}, Low: []float64{-2}, High: []float64{2}, Strong: true}}}),
		Differences(Lines{Low: -1e100, High: 1e100}), Differences(Lines{Low: 1e17, High: 1e17 + 64}),
	} {
		if svg := drawing(); len(p.Charts) != 1 || strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%d charts: %s", len(p.Charts), svg)
		}
	}
}

// The answer has a line and a label, although it is close to others, and each label has the second line of its own sparsity.
func TestDifferencesMarkTheAnswer(t *testing.T) {
	at := []float64{.5, .9, .984, .985, .986, .99}
	for _, answer := range at {
		l := Lines{Low: -1, High: 1, Curves: []chart.Series{{Label: "path", X: at, Y: make([]float64, len(at))}}, Answer: answer, Under: func(s float64) string { return fmt.Sprintf("u%g", s) }}
		svg := string(Differences(l).Inline().Panels[0].Drawing)
		labels, seconds := 0, 0
		for _, s := range at {
			if strings.Contains(svg, fmt.Sprintf(">%g<", s)) {
				labels++
				if strings.Contains(svg, fmt.Sprintf(">u%g<", s)) {
					seconds++
				}
			}
		}
		if !strings.Contains(svg, fmt.Sprintf(">%g<", answer)) || labels < 3 || seconds != labels || strings.Count(svg, "stroke-dasharray=\"4 3\"") != 2 { // one for desks, one for phones
			t.Errorf("answer %g: %d labels, %d second lines: %s", answer, labels, seconds, svg)
		}
	}
}

// Rankings draws two panels in a row, and leaves no room for keys that it does not have.
func TestRankings(t *testing.T) {
	curve := chart.Series{Label: "path", X: []float64{.5, .9}, Y: []float64{.8, .7}}
	path := filepath.Join(t.TempDir(), "a.svg")
	if err := Rankings(
		Lines{Title: "panel 1", Curves: []chart.Series{curve}, Low: .6, High: .9},
		Lines{Title: "panel 2", Curves: []chart.Series{curve}, Low: .6, High: .9},
		Lines{Title: "panel 3", Curves: []chart.Series{curve}, Low: .6, High: .9},
	).Write(path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	place := func(title string) (across, down string) {
		before, _, ok := strings.Cut(string(data), ">"+title+"<")
		at := max(0, strings.LastIndex(before, "translate("))
		if _, err := fmt.Sscanf(strings.NewReplacer("(", " ", ")", " ").Replace(before[at:]), "translate %s %s", &across, &down); err != nil || !ok {
			t.Fatalf("%s: no text with this title (%v)", title, err)
		}
		return across, down
	}
	x1, y1 := place("panel 1")
	x2, y2 := place("panel 2")
	x3, y3 := place("panel 3")
	if x1 == x2 || y1 != y2 || x1 != x3 || y1 == y3 {
		t.Errorf("the panels are at %v, %v and %v, %v and %v, %v", x1, y1, x2, y2, x3, y3)
	}
}

// A method has one ink in all pictures, whatever else is in them, and no two series look alike.
func TestMethodsHaveOneInk(t *testing.T) {
	ink := chart.Ink
	few, many := Styles([]string{"frequency", "pep"}), Styles([]string{"pep", "magnitude", "path", "path", "random", "frequency", "ptq8", "ptq4", "shapley"})
	if ink(few[0]) != ink(many[5]) || ink(few[1]) != ink(many[0]) || ink(many[2]) != ink(many[3]) {
		t.Error("the ink of a method depends on the other methods")
	}
	for i, style := range many {
		if slices.Contains(many[:i], style) {
			t.Errorf("two series have the style %d", style)
		}
	}
	if ink(Styles([]string{"magnitude"})[0]) == ink(Styles([]string{"frequency"})[0]) {
		t.Error("two methods of the table have one ink")
	}
}

// The label of a curve has no mark, which would look like a point: a picture has as many marks as points.
func TestLabelsHaveNoMarks(t *testing.T) {
	c := chart.Series{Label: "a", X: []float64{1, 2, 3}, Y: []float64{1, 3, 2}}
	p := Nights(nil, Trend{Title: "T", Curves: []chart.Series{c}})
	if n := strings.Count(string(p.Charts[0].Element("", 368, 227)), "0 1 0 6 0a"); n != 3 {
		t.Errorf("%d marks for 3 points", n)
	}
}

// The axis of nights has their names, or numbers if a name is too long.
func TestNamesOfNights(t *testing.T) {
	c := chart.Series{X: []float64{1, 2, 3}, Y: []float64{1, 3, 2}}
	for name, want := range map[string]bool{"day-2": true, "the second day": false} {
		p := Nights(map[float64]string{1: "day-1", 2: name, 3: "day-3"}, Trend{Title: "T", Curves: []chart.Series{c}})
		if text := string(p.Charts[0].Element("", 368, 227)); strings.Contains(text, ">day-3<") != want || strings.Contains(text, ">3<") == want {
			t.Errorf("%s: the axis has names: %t", name, !want)
		}
	}
}

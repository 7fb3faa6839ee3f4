package chart

import (
	"encoding/xml"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"shaver/internal/base/fault"
)

// No two of 32 curves look the same without colour, and Style and Shaped keep the ink.
func TestStyles(t *testing.T) {
	seen := map[string]int{}
	for i := range 32 {
		l := lookOf(&Series{Style: i})
		name := fmt.Sprintf("%p %s", l.glyph, l.dash)
		if other, ok := seen[name]; ok {
			t.Errorf("curves %d and %d have the same style %s", other, i, name)
		}
		seen[name] = i
	}
	for ink := range inks {
		for dash := range dashes {
			if l := lookOf(&Series{Style: Style(ink, dash)}); l.ink != inks[ink] || l.dash != dashes[dash] {
				t.Errorf("Style(%d, %d) looks like %v", ink, dash, l)
			}
		}
		if l := lookOf(&Series{Style: Shaped(ink, Ring)}); l.ink != inks[ink] || l.glyph != &glyphs[Ring] {
			t.Errorf("Shaped(%d, Ring) looks like %v", ink, l)
		}
	}
}

// A file that is not SVG is refused before anything is drawn.
func TestCheck(t *testing.T) {
	for _, path := range []string{"a.png", "a.gif", "a"} {
		if err := Check(path); !fault.IsUsage(err) || !strings.Contains(err.Error(), "expected a picture file with extension .svg") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := Check("a.svg"); err != nil {
		t.Error(err)
	}
}

// Round marks multiples of a round step within the range, in either direction.
func TestRound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low, size := rapid.Float64Range(-1e6, 1e6).Draw(t, "low"), rapid.Float64Range(1e-3, 1e6).Draw(t, "size")
		ticks := Round(low+size, low, 6)
		if len(ticks) < 2 || len(ticks) > 9 {
			t.Fatalf("%d ticks", len(ticks))
		}
		step := ticks[1].At - ticks[0].At
		if digits := step / math.Pow(10, math.Floor(math.Log10(step)+1e-9)); math.Abs(digits-math.Round(digits)) > 1e-6 || !strings.Contains("1 2 5 10", strconv.Itoa(int(math.Round(digits)))) {
			t.Errorf("a step of %v", step)
		}
		for _, tick := range ticks {
			if tick.At < low-1e-6*step || tick.At > low+size+1e-6*step {
				t.Errorf("%v is not in the range", tick.At)
			}
		}
	})
}

// Any data and any text give valid XML without infinite coordinates, and no label of the x axis overlaps its neighbour.
func TestAny(t *testing.T) {
	place := regexp.MustCompile(`<text x="([-0-9.]+)" y="([-0-9.]+)" text-anchor="middle" fill="#59626B">([^<]*)<`)
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64(), 1, 8)
		x := values.Draw(t, "x")
		s := &Series{Label: rapid.String().Draw(t, "label"), X: x, Bars: rapid.Bool().Draw(t, "bars"), Alone: rapid.Bool().Draw(t, "alone"), Strong: rapid.Bool().Draw(t, "strong"), Style: rapid.IntRange(0, 99).Draw(t, "style")}
		for range x {
			y := rapid.Float64().Draw(t, "y")
			s.Y, s.Low, s.High = append(s.Y, y), append(s.Low, y-1), append(s.High, y+1)
		}
		c := &Chart{Title: rapid.String().Draw(t, "title"), Marks: []Mark{s, &Rule{At: x[0], Label: "rule", Vertical: rapid.Bool().Draw(t, "vertical")}}}
		if rapid.Bool().Draw(t, "logarithmic") {
			c.X.Scale, c.X.Ticks, c.Y.Scale, c.Y.Ticks = math.Log10, Log(Short), math.Log10, Log(Short)
		}
		f := &Figure{Charts: []*Chart{c}, Keys: []Key{{"<key>", s}, {"rule", &Rule{}}}, Height: 200}
		svg := f.document()
		if err := xml.Unmarshal([]byte(svg), new(struct{})); err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
		if regexp.MustCompile(`="[^"]*(NaN|Inf)`).MatchString(svg) {
			t.Fatal(svg)
		}
		last := math.Inf(-1)
		for _, m := range place.FindAllStringSubmatch(svg, -1) {
			at, _ := strconv.ParseFloat(m[1], 64)
			half := width(m[3], textSize) / 2
			if at-half < last-.2 {
				t.Errorf("%s overlaps the label before it in %s", m[3], svg)
			}
			last = at + half
		}
	})
}

// What is beyond a fixed axis is not drawn.
func TestFixed(t *testing.T) {
	c := &Chart{X: Axis{Ends: []float64{0, 1}, Fixed: true}, Y: Axis{Ends: []float64{0, 1}, Fixed: true}, Marks: []Mark{&Series{X: []float64{0, 2}, Y: []float64{.5, .5}}}}
	svg := string(c.Element("", 300, 200))
	if n := strings.Count(svg, "0 1 0 6 0a"); n != 1 {
		t.Errorf("%d points are drawn, expected one: %s", n, svg)
	}
	if strings.Count(svg, "<svg ") != 2 {
		t.Errorf("the curve is not cut off: %s", svg)
	}
}

package chart

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// Canvas is what marks draw on.
type Canvas struct {
	out           strings.Builder
	width, height float64 // px
	x, y          scale
	page          bool // the drawing is for a page, whose style has its colours
	bold          bool // text is bold
	clipped       bool
	path          strings.Builder
	open          bool   // the path has a point
	style         string // attributes of the path
	filled        bool
}

// X and Y return the place of a value in px. Both grow to the right and downwards.
func (c *Canvas) X(v float64) float64 { return c.x.at(v) }
func (c *Canvas) Y(v float64) float64 { return c.y.at(v) }

// Bottom returns the lower end of the y axis in px.
func (c *Canvas) Bottom() float64 { return c.y.from }

// Boxes draws rectangles with the left, upper, right and lower end in px, full or as outlines.
func (c *Canvas) Boxes(ink string, full bool, boxes ...[4]float64) {
	if c.paint("stroke", ink, 1.3); full {
		c.paint("fill", ink, 1)
		c.style += ` shape-rendering="crispEdges"`
	}
	for _, b := range boxes {
		c.move(b[0], b[1]).to(b[2], b[1]).to(b[2], b[3]).to(b[0], b[3]).close()
	}
	c.end()
}

// Lines draws separate lines, with the px of both ends.
func (c *Canvas) Lines(ink string, ends ...[4]float64) {
	c.paint("stroke", ink, 1.2)
	for _, e := range ends {
		c.move(e[0], e[1]).to(e[2], e[3])
	}
	c.end()
}

// Dots draws small points at places in px.
func (c *Canvas) Dots(ink string, places ...[2]float64) {
	c.paint("fill", ink, 1)
	for _, p := range places {
		c.glyph(look{size: 1.2}, p[0], p[1])
	}
	c.end()
}

// inks have a contrast of at least 3 to 1 against white. Most people with colour blindness can distinguish them.
var inks = []string{"0072B2", "D55E00", "008A63", "B8578F", "6B4423", "5E3C99", "757575", "000000", "8A7800"}

// Ink returns the colour of a style.
func Ink(style int) string { return inks[style%len(inks)] }

// The colours of what is not data.
const (
	quiet = "59626B" // text and lines
	faint = "E1E1E1" // grid
)

var dashes = []string{"", "5 2", "1.5 1.5", "6 2 1.5 2"}

// Style returns the number of a style with the ink of another one and one of four sorts of dashes. Sort 0 is a full line.
func Style(ink, dash int) int {
	for (ink+ink/8)%len(dashes) != dash {
		ink += len(inks)
	}
	return ink
}

// Shaped returns the number of a style with the ink of another one and a shape.
func Shaped(ink, shape int) int {
	for ink%len(glyphs) != shape {
		ink += len(inks)
	}
	return ink
}

// The shapes that Shaped accepts.
const (
	Circle = iota
	Square
	Triangle
	Cross
	Plus
	Ring
)

// glyph is the shape of a point: a polygon, in units of its radius, or a circle if it has no corners.
type glyph struct {
	full    bool
	corners [][2]float64
}

// glyphs differ in shape, so that curves can be distinguished without colour.
var glyphs = []glyph{
	{true, nil}, {false, frame}, {false, up}, {false, [][2]float64{{-1, -1}, {1, 1}, {0, 0}, {1, -1}, {-1, 1}, {0, 0}}}, {false, [][2]float64{{-1.2, 0}, {1.2, 0}, {0, 0}, {0, -1.2}, {0, 1.2}, {0, 0}}}, {false, nil}, {true, square}, {true, up},
	{true, diamond}, {false, diamond}, {true, down}, {false, down}, {true, hourglass}, {false, hourglass}, {true, beam}, {false, beam},
}

var (
	square    = [][2]float64{{-.9, -.9}, {.9, -.9}, {.9, .9}, {-.9, .9}}
	frame     = [][2]float64{{-1.05, -1.05}, {1.05, -1.05}, {1.05, 1.05}, {-1.05, 1.05}}
	up        = [][2]float64{{-1.1, .8}, {1.1, .8}, {0, -1.1}}
	down      = [][2]float64{{-1.1, -.8}, {1.1, -.8}, {0, 1.1}}
	diamond   = [][2]float64{{0, 1.3}, {1.3, 0}, {0, -1.3}, {-1.3, 0}}
	hourglass = [][2]float64{{-1, 1.1}, {1, 1.1}, {-1, -1.1}, {1, -1.1}}
	beam      = [][2]float64{{-1.4, .45}, {1.4, .45}, {1.4, -.45}, {-1.4, -.45}}
)

// look is how a curve looks. Among 32 styles no two have both the same shape and the same dashes, so they differ
// even without colour.
type look struct {
	ink, dash string
	width     float64
	*glyph
	size float64
}

func lookOf(s *Series) look {
	i := s.Style
	l := look{Ink(i), dashes[(i+i/8)%len(dashes)], 1.3, &glyphs[i%len(glyphs)], 3}
	if s.Strong {
		l.dash, l.width = "", 2.2
	}
	if s.Small {
		l.glyph, l.size = &glyphs[Circle], 1.8
	}
	return l
}

// paint begins a path of one colour. size is the width of a stroke, or the opacity of a filling.
func (c *Canvas) paint(how, ink string, size float64) {
	c.path.Reset()
	c.open, c.filled = false, how == "fill"
	if c.style = fmt.Sprintf(` fill="none" stroke="%s" stroke-width="%s"`, c.ink(ink), number(size)); c.filled {
		if c.style = fmt.Sprintf(` fill="%s"`, c.ink(ink)); size < 1 {
			c.style += fmt.Sprintf(` fill-opacity="%s"`, number(size))
		}
	}
}

// ink returns a colour as the value of an attribute.
func (c *Canvas) ink(ink string) string {
	if c.page {
		return "var(--ink-" + ink + ",#" + ink + ")"
	}
	return "#" + ink
}

func (c *Canvas) line(l look) {
	if c.paint("stroke", l.ink, l.width); l.dash != "" {
		c.style += ` stroke-dasharray="` + l.dash + `"`
	}
	c.style += ` stroke-linejoin="round"`
}

func (c *Canvas) glyphs(l look) {
	if c.paint("stroke", l.ink, 1); l.full {
		c.paint("fill", l.ink, 1)
	}
}

func (c *Canvas) glyph(l look, x, y float64) {
	if l.glyph == nil || l.corners == nil {
		d := 2 * l.size
		fmt.Fprintf(&c.path, "M%s %sa%[3]s %[3]s 0 1 0 %[4]s 0a%[3]s %[3]s 0 1 0 -%[4]s 0z", number(x-l.size), number(y), number(l.size), number(d))
		return
	}
	c.open = false
	for _, corner := range l.corners {
		c.to(x+l.size*corner[0], y+l.size*corner[1])
	}
	c.close()
}

// to draws a line to a point, or begins a path there. A point without a place is a gap.
func (c *Canvas) to(x, y float64) *Canvas {
	if !finite(x + y) {
		c.open = c.filled && c.open
		return c
	}
	c.path.WriteString(map[bool]string{true: "L", false: "M"}[c.open] + number(x) + " " + number(y))
	c.open = true
	return c
}

func (c *Canvas) move(x, y float64) *Canvas {
	c.open = false
	return c.to(x, y)
}

func (c *Canvas) close() {
	c.path.WriteByte('z')
	c.open = false
}

// end draws the path.
func (c *Canvas) end() {
	if c.path.Len() > 0 {
		c.out.WriteString("<path" + c.style + ` d="` + c.path.String() + "\"/>\n")
	}
}

// clip begins or ends a part of the drawing that shows nothing beyond the axes.
func (c *Canvas) clip(on bool) {
	if c.clipped {
		c.out.WriteString("</svg>\n")
	}
	if c.clipped = on; on {
		x, y, w, h := number(c.x.from-2), number(c.y.to-2), number(c.x.to-c.x.from+4), number(c.y.from-c.y.to+4)
		fmt.Fprintf(&c.out, `<svg x="%[1]s" y="%[2]s" width="%[3]s" height="%[4]s" viewBox="%[1]s %[2]s %[3]s %[4]s">`+"\n", x, y, w, h)
	}
}

// text writes a text at its baseline. anchor is middle, end, or "" for the start. ink is "" for the colour of text.
func (c *Canvas) text(x, y float64, anchor, ink, text string) {
	c.write(fmt.Sprintf(` x="%s" y="%s"`, number(x), number(y)), anchor, ink, text)
}

// turned writes a quiet text upwards.
func (c *Canvas) turned(x, y float64, anchor, text string) {
	c.write(fmt.Sprintf(` transform="translate(%s %s) rotate(-90)"`, number(x), number(y)), anchor, quiet, text)
}

func (c *Canvas) write(attributes, anchor, ink, text string) {
	if anchor != "" {
		attributes += ` text-anchor="` + anchor + `"`
	}
	if ink != "" {
		attributes += ` fill="` + c.ink(ink) + `"`
	}
	if c.bold {
		attributes += ` font-weight="bold"`
	}
	fmt.Fprintf(&c.out, "<text%s>%s</text>\n", attributes, html.EscapeString(plain(text)))
}

// short returns a text, truncated to a third of the chart.
func (c *Canvas) short(text string) string { return cut(text, c.width/3) }

// cut returns a text, truncated to px.
func cut(text string, px float64) string {
	text = plain(text)
	for runes := []rune(text); width(text, textSize) > px && len(runes) > 0; text = string(runes) + "…" {
		runes = runes[:len(runes)-1]
	}
	return text
}

// width returns at least the width of a text in px, in the typefaces that systems have.
func width(text string, size float64) (sum float64) {
	for _, r := range text {
		switch {
		case strings.ContainsRune("iIjl.,:;'|! ()[]ftr-", r):
			sum += .42
		case strings.ContainsRune("mwMW@%—…−+", r) || r > 0x2ff && !unicode.IsMark(r):
			sum += 1
		case unicode.IsUpper(r):
			sum += .74
		case !unicode.IsMark(r):
			sum += .64
		}
	}
	return sum * size
}

// plain returns text on one line, with only characters that XML allows.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == 0xfffe || r == 0xffff {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

// number writes a coordinate.
func number(v float64) string {
	text := strconv.FormatFloat(math.Max(-1e6, math.Min(1e6, v)), 'f', 1, 64)
	text = strings.TrimSuffix(text, ".0")
	if text == "-0" {
		return "0"
	}
	return text
}

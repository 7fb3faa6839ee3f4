package chart

import (
	"fmt"
	"html"
	"html/template"
	"io"
	"path/filepath"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
)

// Figure is one or more charts with the keys of their curves.
type Figure struct {
	Name          string // of a file, without extension
	Charts        []*Chart
	Keys          []Key
	Width, Height float64 // of a chart, in px; a Width of 0 is 400
	Columns       int     // greatest number of charts in a row of a file; 0 = all
}

// Key explains a curve or a colour.
type Key struct {
	Label string
	Of    Mark // a Series or a Rule, of which only the style counts, or a mark that draws in 26 by 10 px
}

// Extension is that of pictures.
const Extension = ".svg"

// Check returns a usage error if path has another extension than pictures. It accepts "", which means no picture.
func Check(path string) error {
	if path == "" || filepath.Ext(path) == Extension {
		return nil
	}
	return fault.Usagef("%s: expected a picture file with extension %s", path, Extension)
}

// mark is the end of a file of Write.
const mark = "<!-- written by shaver -->\n"

// Written reports whether the file at path is a picture that Write wrote.
func Written(path string) bool {
	f, err := files.Open(path, "a picture")
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false
	}
	found := make([]byte, len(mark))
	_, err = f.ReadAt(found, max(info.Size()-int64(len(mark)), 0))
	return (err == nil || err == io.EOF) && string(found) == mark
}

// Write draws the figure to a file.
func (f *Figure) Write(path string) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		_, err := io.WriteString(w, f.document())
		return err
	})
}

const (
	keyWidth  = 26
	keyHeight = 16
	margin    = 10
)

// document returns the figure as a file: the charts on white from left to right, followed by the keys if there are any.
func (f *Figure) document() string {
	columns, across, title := len(f.Charts), f.Width, ""
	if f.Columns > 0 {
		columns = min(columns, f.Columns)
	}
	if across == 0 {
		across = 400
	}
	rows := (len(f.Charts) + columns - 1) / columns
	legend := 0.
	for _, k := range f.Keys {
		legend = max(legend, keyWidth+8+width(k.Label, textSize)+margin)
	}
	wide, high := float64(columns)*across+legend, max(float64(rows)*f.Height, keyHeight*float64(len(f.Keys))+2*margin)
	var out Canvas
	for i, h := range f.Charts {
		c := Canvas{width: across - 2*margin, height: f.Height - margin}
		h.draw(&c, true)
		fmt.Fprintf(&out.out, `<g transform="translate(%s %s)">`+"\n%s</g>\n", number(float64(i%columns)*across+margin), number(float64(i/columns)*f.Height+margin/2), c.out.String())
		if title += h.About; i+1 < len(f.Charts) {
			title += ". "
		}
	}
	for i, k := range f.Keys {
		y := margin + keyHeight*(float64(i)+.5)
		fmt.Fprintf(&out.out, `<g transform="translate(%s %s)">`+"\n%s</g>\n", number(float64(columns)*across), number(y-5), k.sample(false))
		out.text(float64(columns)*across+keyWidth+8, y+3.4, "", "", k.Label)
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%[1]spt" height="%[2]spt" viewBox="0 0 %[1]s %[2]s" role="img" font-family="system-ui, sans-serif" font-size="%[3]g">
<title>%[4]s</title>
<rect width="100%%" height="100%%" fill="#FFFFFF"/>
%[5]s</svg>
%[6]s`, number(wide), number(high), textSize, html.EscapeString(plain(title)), out.out.String(), mark)
}

// sample draws what a key explains, in a box of keyWidth by 10 px.
func (k *Key) sample(page bool) string {
	c := Canvas{page: page}
	c.x, c.y = scale{Axis: &Axis{}, low: 0, high: 1, to: keyWidth}, scale{Axis: &Axis{}, low: 0, high: 1, to: 10}
	switch of := k.Of.(type) {
	case *Rule:
		(&Rule{At: .5}).Draw(&c)
	case *Series:
		line, point := *of, *of
		line.X, line.Y, line.Low, line.Plain = []float64{0, 1}, []float64{.5, .5}, nil, true
		point.X, point.Y, point.Low, point.Alone, point.Label = []float64{.5}, []float64{.5}, nil, true, ""
		if !of.Alone && len(of.X) != 1 {
			line.Draw(&c)
		}
		if !of.Plain {
			point.Draw(&c)
		}
	default:
		of.Draw(&c)
	}
	return c.out.String()
}

// The sizes of charts on a page, in px: for the column of a desk, and for a phone, which shows the small one about as large as a
// desk shows the wide one.
const (
	wideWidth  = 368
	smallWidth = 283
)

// Inline is a figure on a page. The keys are separate, so that they can flow with the page's text. The svg elements have no background and use
// the page's text colour and typeface. Their other colours are variables of the page's style, --ink-RRGGBB, with defaults for a white page.
// All text in them is escaped.
type Inline struct {
	Panels []Panel
	Keys   []Shape
}

// Panel is a chart on a page. Drawing is without the title.
type Panel struct {
	Title   string
	Drawing template.HTML
}

// Shape is a key on a page.
type Shape struct {
	Label string
	Shape template.HTML
}

// Inline returns the figure for a page.
func (f *Figure) Inline() (on Inline) {
	for _, h := range f.Charts {
		on.Panels = append(on.Panels, Panel{h.Title, h.Element("plot on-desk", wideWidth, f.Height) + "\n" + h.Element("plot on-phone", smallWidth, f.Height)})
	}
	for _, k := range f.Keys {
		on.Keys = append(on.Keys, Shape{k.Label, k.element()})
	}
	return on
}

// Element returns the chart without its title as an svg element of a class, with sizes in px. See Inline.
func (h *Chart) Element(class string, width, height float64) template.HTML {
	c := Canvas{page: true, width: width, height: height}
	h.draw(&c, false)
	return template.HTML(fmt.Sprintf(`<svg class="%s" viewBox="0 0 %s %s" font-size="%g" role="img" aria-label="%s">`+"\n%s</svg>", class, number(width), number(height), textSize, html.EscapeString(plain(h.About)), c.out.String()))
}

// Sample returns an svg element that shows the style of a series.
func Sample(style int) template.HTML { return (&Key{Of: &Series{Style: style}}).element() }

func (k *Key) element() template.HTML {
	return template.HTML(fmt.Sprintf(`<svg class="key" viewBox="0 0 %d 10" aria-hidden="true">`+"\n%s</svg>", keyWidth, k.sample(true)))
}

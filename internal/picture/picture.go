// Package picture draws curves over budgets, and what else a report shows, into
// files and into pages. It is the only importer of gonum/plot.
package picture

import (
	"image/color"
	"io"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"shaver/internal/atomicfile"
	"shaver/internal/fault"
)

// Formats lists the endings of files that can be drawn.
func Formats() []string { return []string{".svg", ".png"} }

// Check returns wrong usage for a path of another format; "" is none.
func Check(path string) error {
	switch filepath.Ext(path) {
	case ".svg", ".png":
		return nil
	}
	if path == "" {
		return nil
	}
	return fault.Usagef("%s: pictures are %s", path, strings.Join(Formats(), " or "))
}

// Picture is panels that stand side by side and share what their curves mean. The
// same facts give the same picture, and that the same bytes.
type Picture struct {
	Name   string // of a file, without its ending
	panels []panel
	keys   []key
	height vg.Length // of a panel
}

// panel is a plot, and what it shows in words, for who cannot see it.
type panel struct {
	*plot.Plot
	about string
}

// key says what a curve is.
type key struct {
	label  string
	thumbs []plot.Thumbnailer
}

const (
	panelWidth  = 14 * vg.Centimeter
	panelHeight = 10 * vg.Centimeter
	inlineWidth = 12 * vg.Centimeter // of a panel on a page, which may be a phone's
	legendWidth = 6 * vg.Centimeter
	keyHeight   = 6 * vg.Millimeter
	margin      = 4 * vg.Millimeter // the last tick's label stands out
	edge        = vg.Millimeter     // letters of another typeface may be higher
)

// Write draws the picture into a file of a format that Check takes: the panels on
// white, from left to right, and then the keys.
func (p *Picture) Write(path string) error {
	width := panelWidth*vg.Length(len(p.panels)) + legendWidth
	height := max(p.height, keyHeight*vg.Length(len(p.keys))+2*margin)
	switch filepath.Ext(path) {
	case ".svg":
		canvas := newVector(width, height)
		p.draw(draw.New(canvas))
		return atomicfile.Write(path, func(w io.Writer) error {
			_, err := io.WriteString(w, canvas.document())
			return err
		})
	case ".png":
		canvas := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(144))
		p.draw(draw.New(canvas))
		return atomicfile.Write(path, func(w io.Writer) error {
			_, err := vgimg.PngCanvas{Canvas: canvas}.WriteTo(w)
			return err
		})
	}
	panic("picture: Write: " + path)
}

func (p *Picture) draw(c draw.Canvas) {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	left, right := vg.Length(0), c.Max.X-c.Min.X
	for _, panel := range p.panels {
		panel.Draw(draw.Crop(c, left+margin, left+panelWidth-right-margin, margin, -margin))
		left += panelWidth
	}
	keys := blank()
	keys.HideAxes()
	keys.Legend.Left, keys.Legend.Top, keys.Legend.Padding = true, true, vg.Millimeter
	for _, k := range p.keys {
		keys.Legend.Add(k.label, k.thumbs...)
	}
	keys.Draw(draw.Crop(c, left, -margin, margin, -margin))
}

// blank returns a plot without anything, in the typeface of all pictures.
func blank() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, style := range []*draw.TextStyle{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.X.Tick.Label, &p.Y.Label.TextStyle, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Variant = "Sans"
	}
	p.Legend.TextStyle.Font.Size = vg.Points(10)
	p.Title.Padding = 2 * vg.Millimeter
	return p
}

// grid returns a plot with a grid and named axes.
func grid(title, x, y string) *plot.Plot {
	p := blank()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	lines := plotter.NewGrid()
	lines.Horizontal.Color, lines.Vertical.Color = color.Gray{225}, color.Gray{225}
	p.Add(lines)
	return p
}

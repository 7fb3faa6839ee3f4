// Package picture draws the curves of a sweep and the other pictures of a report, as
// files or as parts of a page. It is the only importer of gonum/plot.
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

// Formats returns the file extensions of the supported formats.
func Formats() []string { return []string{".svg", ".png"} }

// Check returns a usage error if the format of path is not supported. It accepts "",
// which means no picture.
func Check(path string) error {
	switch filepath.Ext(path) {
	case ".svg", ".png":
		return nil
	}
	if path == "" {
		return nil
	}
	return fault.Usagef("%s: expected a picture file with extension %s", path, strings.Join(Formats(), " or "))
}

// Picture is a row of panels that share the keys of their curves. The same input gives
// the same bytes.
type Picture struct {
	Name   string // name of a file, without extension
	panels []panel
	keys   []key
	height vg.Length // height of a panel
}

// panel is a plot with a description for readers who cannot see it.
type panel struct {
	*plot.Plot
	about string
}

// key explains a curve.
type key struct {
	label  string
	thumbs []plot.Thumbnailer
}

const (
	panelWidth  = 14 * vg.Centimeter
	panelHeight = 10 * vg.Centimeter
	inlineWidth = 12 * vg.Centimeter // width of a panel on a page, which may be shown on a phone
	legendWidth = 6 * vg.Centimeter
	keyHeight   = 6 * vg.Millimeter
	margin      = 4 * vg.Millimeter // the label of the last tick extends beyond the axis
	edge        = vg.Millimeter     // letters of another typeface may be taller
)

// Write draws the picture to a file, in the format of its extension. Check must accept
// the path. The panels are on white from left to right, followed by the keys.
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

// blank returns an empty plot in the typeface of all pictures.
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

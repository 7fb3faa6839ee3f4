// Package picture draws what a sweep found. It is the only importer of gonum/plot.
package picture

import (
	"image/color"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"shaver/internal/atomicfile"
	"shaver/internal/fault"
	"shaver/internal/sweep"
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

const (
	panelWidth  = 14 * vg.Centimeter
	legendWidth = 5 * vg.Centimeter
	width       = 2*panelWidth + legendWidth
	height      = 11 * vg.Centimeter
	margin      = 4 * vg.Millimeter // the last tick's label stands out
)

// Write draws the document's series into a file of a format that Check takes: AUC on
// the left, LogLoss on the right, calibrated if the document has that. The same
// document gives the same bytes.
func Write(path string, d *sweep.Document) error {
	p := panelsOf(d)
	switch filepath.Ext(path) {
	case ".svg":
		canvas := vgsvg.New(width, height)
		p.draw(draw.New(canvas))
		return write(path, canvas)
	case ".png":
		canvas := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(144))
		p.draw(draw.New(canvas))
		return write(path, vgimg.PngCanvas{Canvas: canvas})
	}
	panic("picture: Write: " + path)
}

func write(path string, canvas io.WriterTo) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		_, err := canvas.WriteTo(w)
		return err
	})
}

// panels are what a picture has, from left to right.
type panels struct{ auc, loss, legend *plot.Plot }

func (p *panels) draw(c draw.Canvas) {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	p.auc.Draw(draw.Crop(c, margin, -panelWidth-legendWidth-margin, margin, -margin))
	p.loss.Draw(draw.Crop(c, panelWidth+margin, -legendWidth-margin, margin, -margin))
	p.legend.Draw(draw.Crop(c, 2*panelWidth, -margin, margin, -margin))
}

func panelsOf(d *sweep.Document) *panels {
	p := &panels{panel(d, "AUC"), panel(d, "LogLoss, nat"), plot.New()}
	p.legend.HideAxes()
	p.legend.Legend.Left, p.legend.Legend.Top, p.legend.Legend.Padding = true, true, vg.Millimeter
	p.legend.Legend.TextStyle.Font.Size = vg.Points(10)
	calibrated := d.Unpruned.CalibratedLogLoss != nil
	full := d.Unpruned.LogLoss
	if calibrated {
		p.loss.Y.Label.Text = "LogLoss, calibrated, nat"
		full = *d.Unpruned.CalibratedLogLoss
	}
	p.legend.Legend.Add("unpruned", level(p.loss, full))
	if d.Unpruned.AUC != nil {
		level(p.auc, *d.Unpruned.AUC)
	}
	for i, s := range d.Series() {
		drawn := line(p.auc, i, &s, func(m *sweep.Mean) sweep.Spread { return m.AUC })
		line(p.loss, i, &s, func(m *sweep.Mean) sweep.Spread {
			if calibrated {
				return m.Calibrated
			}
			return m.LogLoss
		})
		p.legend.Legend.Add(s.Label, drawn...)
	}
	for _, panel := range []*plot.Plot{p.auc, p.loss} { // no mark on the edge
		room := (panel.Y.Max - panel.Y.Min) / 30
		panel.Y.Min, panel.Y.Max = panel.Y.Min-room, panel.Y.Max+room
	}
	return p
}

func panel(d *sweep.Document, label string) *plot.Plot {
	p := plot.New()
	p.Title.Text = d.Kind + ", " + d.Split + " split"
	p.X.Label.Text = "sparsity: portion of the entries dropped"
	p.Y.Label.Text = label
	p.X.Min, p.X.Max = 0, at(.999)
	p.X.Tick.Marker = plot.ConstantTicks(ticks())
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{225}, color.Gray{225}
	p.Add(grid)
	return p
}

// at is where a sparsity stands: what is kept counts, by its logarithm, since there
// is little to see below one half.
func at(sparsity float64) float64 { return -math.Log10(max(1-sparsity, 1e-4)) }

func ticks() []plot.Tick {
	var all []plot.Tick
	for _, t := range []float64{0, .5, .8, .9, .95, .99, .999} {
		all = append(all, plot.Tick{Value: at(t), Label: strconv.FormatFloat(t, 'g', -1, 64)})
	}
	return all
}

// level draws the unpruned model.
func level(p *plot.Plot, y float64) plot.Thumbnailer {
	f := plotter.NewFunction(func(float64) float64 { return y })
	f.Color, f.Dashes, f.Samples = color.Gray{110}, []vg.Length{vg.Points(4), vg.Points(3)}, 2
	p.Add(f)
	p.Y.Min, p.Y.Max = min(p.Y.Min, y), max(p.Y.Max, y)
	return f
}

// inks differ for most people who see few colours too (Okabe and Ito, and brown).
var inks = []color.RGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
	{86, 180, 233, 255}, {230, 159, 0, 255}, {120, 120, 120, 255}, {0, 0, 0, 255}, {140, 86, 75, 255},
}

var glyphs = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}}

// points are a series with the deviations of its repeats.
type points struct {
	plotter.XYs
	off []float64
}

func (p *points) YError(i int) (float64, float64) { return p.off[i], p.off[i] }

// line draws series i and returns how, for the legend.
func line(p *plot.Plot, i int, s *sweep.Series, of func(*sweep.Mean) sweep.Spread) (drawn []plot.Thumbnailer) {
	var list points
	bars := false
	for k := range s.Points {
		v := of(&s.Points[k])
		if math.IsNaN(v.Mean) {
			continue
		}
		list.XYs = append(list.XYs, plotter.XY{X: at(s.Points[k].Sparsity), Y: v.Mean})
		list.off = append(list.off, v.Off)
		bars = bars || v.Off > 0
	}
	if len(list.XYs) == 0 {
		return nil
	}
	ink, glyph := inks[i%len(inks)], glyphs[(i+i/len(inks))%len(glyphs)]
	scatter := &plotter.Scatter{XYs: list.XYs, GlyphStyle: draw.GlyphStyle{Color: ink, Radius: vg.Points(3), Shape: glyph}}
	drawn = append(drawn, scatter)
	if len(list.XYs) > 1 {
		curve := &plotter.Line{XYs: list.XYs, LineStyle: draw.LineStyle{Color: ink, Width: vg.Points(1.3)}}
		p.Add(curve)
		drawn = append(drawn, curve)
	}
	p.Add(scatter)
	if bars {
		if b, err := plotter.NewYErrorBars(&list); err == nil { // fails on values that are not finite only
			b.Color = ink
			p.Add(b)
		}
	}
	return drawn
}

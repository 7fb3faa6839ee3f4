package picture

import (
	"fmt"
	"hash/crc32"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// inks have a contrast of at least 3 to 1 against white. Most people with colour
// blindness can distinguish them.
var inks = []color.RGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 138, 99, 255}, {184, 87, 143, 255},
	{107, 68, 35, 255}, {94, 60, 153, 255}, {117, 117, 117, 255}, {0, 0, 0, 255}, {138, 120, 0, 255},
}

var dashes = [][]vg.Length{nil, {vg.Points(5), vg.Points(2)}, {vg.Points(1.5), vg.Points(1.5)}, {vg.Points(6), vg.Points(2), vg.Points(1.5), vg.Points(2)}}

// styles returns the style of curve i. Among 32 curves no two have both the same glyph
// and the same dashes, so they differ even without colour.
func styles(i int) (draw.GlyphStyle, draw.LineStyle) {
	ink := inks[i%len(inks)]
	return draw.GlyphStyle{Color: ink, Radius: vg.Points(3), Shape: glyphs[i%len(glyphs)]},
		draw.LineStyle{Color: ink, Width: vg.Points(1.3), Dashes: dashes[(i+i/8)%len(dashes)]}
}

// methods have the inks of their positions. The empty one is that of the unpruned model.
var methods = []string{"path", "magnitude", "frequency", "shapley", "shapley-rms", "shapley-abs", "random", "", "taylor-rms"}

// Styles returns the styles of series, given the names of their methods. A method has the same ink in all pictures,
// and no two series have the same style.
func Styles(names []string) (all []int) {
	for _, name := range names {
		style := slices.Index(methods, name)
		if style < 0 {
			style = int(crc32.ChecksumIEEE([]byte(name)) % uint32(len(inks)))
		}
		for slices.Contains(all, style) {
			style += len(inks)
		}
		all = append(all, style)
	}
	return all
}

// points are the points of a curve, with the standard deviation of each.
type points struct {
	plotter.XYs
	off []float64
}

func (p *points) YError(i int) (float64, float64) { return p.off[i], p.off[i] }

func (p *points) add(x, y, off float64) {
	p.XYs, p.off = append(p.XYs, plotter.XY{X: x, Y: y}), append(p.off, off)
}

// curve draws curve i, with a glyph at each point if marked is set. It returns the drawn
// parts for the curve's key, or nil if the curve has no points.
func curve(p *plot.Plot, i int, list *points, marked bool) (drawn []plot.Thumbnailer) {
	if len(list.XYs) == 0 {
		return nil
	}
	glyph, line := styles(i)
	if len(list.XYs) > 1 {
		c := &plotter.Line{XYs: list.XYs, LineStyle: line}
		p.Add(c)
		drawn = append(drawn, c)
	}
	if marked || len(list.XYs) == 1 {
		s := &plotter.Scatter{XYs: list.XYs, GlyphStyle: glyph}
		p.Add(s)
		drawn = append(drawn, s)
	}
	for _, off := range list.off {
		if off > 0 {
			if b, err := plotter.NewYErrorBars(list); err == nil { // fails only on values that are not finite
				b.Color = line.Color
				p.Add(b)
			}
			break
		}
	}
	return drawn
}

// horizontal draws a dashed horizontal line at y, for a key.
func horizontal(p *plot.Plot, y float64) plot.Thumbnailer {
	f := plotter.NewFunction(func(float64) float64 { return y })
	f.Color, f.Dashes, f.Samples = color.Gray{110}, []vg.Length{vg.Points(4), vg.Points(3)}, 2
	p.Add(f)
	p.Y.Min, p.Y.Max = min(p.Y.Min, y), max(p.Y.Max, y)
	return f
}

// sparsityAxis makes the x axis an axis of sparsity, from 0 to at least most.
func sparsityAxis(p *plot.Plot, most float64) {
	p.X.Label.Text = "sparsity: portion of the entries dropped"
	p.X.Min, p.X.Max = 0, position(most)
	var ticks []plot.Tick
	for _, t := range []float64{0, .5, .8, .9, .95, .99, .999} {
		ticks = append(ticks, plot.Tick{Value: position(t), Label: strconv.FormatFloat(t, 'g', -1, 64)})
		if t >= most {
			p.X.Max = position(t)
			break
		}
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
}

// position returns the x of a sparsity: the negative logarithm of the portion that is
// kept. A linear axis would show too much of low sparsities, where little happens.
func position(sparsity float64) float64 { return -math.Log10(max(1-sparsity, 1e-4)) }

// logAxis labels the y axis as powers of ten. The values of y are logarithms.
func logAxis(p *plot.Plot) {
	p.Y.Min, p.Y.Max = math.Floor(p.Y.Min), math.Ceil(p.Y.Max)
	step := math.Ceil((p.Y.Max - p.Y.Min) / 8)
	var ticks []plot.Tick
	for y := p.Y.Min; y <= p.Y.Max; y += max(step, 1) {
		ticks = append(ticks, plot.Tick{Value: y, Label: fmt.Sprintf("1e%.0f", y)})
	}
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
}

// plain returns text from outside on one line, with only characters that XML allows.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == 0xfffe || r == 0xffff {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

// short returns a name from outside, truncated to fit next to an axis.
func short(name string) string {
	name = plain(name)
	if runes := []rune(name); len(runes) > 18 {
		return string(runes[:17]) + "…"
	}
	return name
}

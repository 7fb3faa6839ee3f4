package picture

import (
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// glyphs differ in shape, so that curves can be distinguished without colour.
var glyphs = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{},
	polygon{filled: true, corners: diamond}, polygon{corners: diamond}, polygon{filled: true, corners: down}, polygon{corners: down},
	polygon{filled: true, corners: hourglass}, polygon{corners: hourglass}, polygon{filled: true, corners: beam}, polygon{corners: beam},
}

// The corners of polygons, relative to the point, in units of the radius.
var (
	diamond   = [][2]vg.Length{{0, 1.3}, {1.3, 0}, {0, -1.3}, {-1.3, 0}}
	down      = [][2]vg.Length{{-1.1, .8}, {1.1, .8}, {0, -1.1}}
	hourglass = [][2]vg.Length{{-1, 1.1}, {1, 1.1}, {-1, -1.1}, {1, -1.1}}
	beam      = [][2]vg.Length{{-1.4, .45}, {1.4, .45}, {1.4, -.45}, {-1.4, -.45}}
)

type polygon struct {
	filled  bool
	corners [][2]vg.Length
}

func (p polygon) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	var path vg.Path
	for i, corner := range p.corners {
		point := vg.Point{X: at.X + corner[0]*style.Radius, Y: at.Y + corner[1]*style.Radius}
		if i == 0 {
			path.Move(point)
		} else {
			path.Line(point)
		}
	}
	path.Close()
	if p.filled {
		c.Fill(path)
		return
	}
	c.SetLineStyle(draw.LineStyle{Color: style.Color, Width: vg.Points(.5)})
	c.Stroke(path)
}

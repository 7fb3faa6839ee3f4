package picture

import (
	"bytes"
	"fmt"
	"html"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// vector is an SVG canvas that records the length of each text. The lengths are written
// to the file, so that text in another typeface cannot overlap anything.
type vector struct {
	*vgsvg.Canvas
	lengths []vg.Length
}

func newVector(width, height vg.Length) *vector { return &vector{Canvas: vgsvg.New(width, height)} }

func (v *vector) FillString(face font.Face, at vg.Point, text string) {
	v.lengths = append(v.lengths, face.Width(text))
	v.Canvas.FillString(face, at, text)
}

// document returns the drawing as an SVG file.
func (v *vector) document() string {
	var drawn bytes.Buffer
	if _, err := v.WriteTo(&drawn); err != nil {
		panic("picture: writing to a buffer: " + err.Error())
	}
	texts := strings.Split(drawn.String(), "<text ") // a < within a text is escaped
	if len(texts) != len(v.lengths)+1 {
		panic("picture: vgsvg wrote an unexpected number of texts")
	}
	var out strings.Builder
	out.WriteString(texts[0])
	for i, text := range texts[1:] {
		out.WriteString("<text ")
		if length := v.lengths[i].Points(); length > 0 {
			fmt.Fprintf(&out, `textLength="%.5g" lengthAdjust="spacingAndGlyphs" `, length)
		}
		out.WriteString(text)
	}
	return out.String()
}

// Panel is a panel on a page. Wide and Small are svg elements without the title, for the
// column of a desk and for a phone. A phone shows the small one about as large as a desk shows the wide one.
type Panel struct{ Title, Wide, Small string }

// Key explains a curve. SVG is an svg element that shows the curve's style.
type Key struct{ Label, SVG string }

// Inline returns the panels as svg elements for a page. The keys are separate, so that
// they can flow with the page's text. The elements have no background and use the page's
// text colour and typeface. Their other colours are variables of the page's style,
// --ink-RRGGBB, with defaults for a white page. All text is escaped.
func (p *Picture) Inline() (panels []Panel, keys []Key) {
	for _, panel := range p.panels {
		untitled := *panel.Plot
		untitled.Title.Text = ""
		element := func(class string, width vg.Length) string {
			v := newVector(width, p.height)
			untitled.Draw(draw.Crop(draw.New(v), edge, -margin, edge, -2*edge))
			return v.element(class, fmt.Sprintf(`role="img" aria-label="%s"`, html.EscapeString(panel.about)))
		}
		panels = append(panels, Panel{panel.Title.Text, element("plot on-desk", wideInline), element("plot on-phone", smallInline)})
	}
	for _, k := range p.keys {
		keys = append(keys, Key{k.label, shape(k.thumbs...)})
	}
	return panels, keys
}

// Style returns an svg element that shows the style with the given number, a line with a
// mark or, if alone is set, only the mark.
func Style(number int, alone bool) string {
	glyph, line := styles(number)
	if alone {
		return shape(&plotter.Scatter{GlyphStyle: glyph})
	}
	return shape(&plotter.Line{LineStyle: line}, &plotter.Scatter{GlyphStyle: glyph})
}

func shape(thumbs ...plot.Thumbnailer) string {
	v := newVector(vg.Points(26), vg.Points(10))
	c := draw.New(v)
	for _, thumb := range thumbs {
		thumb.Thumbnail(&c)
	}
	return v.element("key", `aria-hidden="true"`)
}

var (
	styled = regexp.MustCompile(`style="[^"]*"`)
	colour = regexp.MustCompile(`#([0-9A-F]{6})`)
	faces  = regexp.MustCompile(`font-(family|variant|style|weight:normal)[^;"]*;?`)
)

// element returns the drawing as an svg element for a page.
func (v *vector) element(class, attributes string) string {
	_, document, _ := strings.Cut(v.document(), "<svg ")
	_, body, _ := strings.Cut(document, ">")
	body = styled.ReplaceAllStringFunc(body, func(style string) string {
		return colour.ReplaceAllString(faces.ReplaceAllString(style, ""), "var(--ink-$1,#$1)")
	})
	width, height := v.Size()
	return fmt.Sprintf(`<svg class="%s" viewBox="0 0 %.5g %.5g" %s>%s`, class, width.Points(), height.Points(), attributes, strings.TrimSpace(body))
}

package picture

import (
	"bytes"
	"fmt"
	"html"
	"regexp"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Key is what a curve is, and how it looks: an svg element.
type Key struct{ Label, SVG string }

// Inline returns the panels as svg elements for a page, and their keys apart, so that
// these flow with its text. The elements have no background and take the page's
// colour and typeface; their other colours are variables of the page's style,
// --ink-RRGGBB, which default to what they are on white. All text is escaped.
func (p *Picture) Inline() (panels []string, keys []Key) {
	for _, panel := range p.panels {
		canvas := vgsvg.New(panelWidth, p.height)
		panel.Draw(draw.Crop(draw.New(canvas), 0, -margin, 0, 0))
		panels = append(panels, inline(canvas, "plot", fmt.Sprintf(`role="img" aria-label="%s"`, html.EscapeString(panel.about))))
	}
	for _, k := range p.keys {
		canvas := vgsvg.New(vg.Points(26), vg.Points(10))
		c := draw.New(canvas)
		for _, thumb := range k.thumbs {
			thumb.Thumbnail(&c)
		}
		keys = append(keys, Key{k.label, inline(canvas, "key", `aria-hidden="true"`)})
	}
	return panels, keys
}

var (
	styled = regexp.MustCompile(`style="[^"]*"`)
	colour = regexp.MustCompile(`#([0-9A-F]{6})`)
	faces  = regexp.MustCompile(`font-(family|variant|weight|style):[^;"]*;?`)
)

// inline makes an element of what vgsvg makes a document of.
func inline(canvas *vgsvg.Canvas, class, attributes string) string {
	var document bytes.Buffer
	if _, err := canvas.WriteTo(&document); err != nil {
		panic("picture: a buffer that cannot be written: " + err.Error())
	}
	_, rest, _ := strings.Cut(document.String(), "<svg ")
	_, body, _ := strings.Cut(rest, ">")
	width, height := canvas.Size()
	body = styled.ReplaceAllStringFunc(body, func(style string) string {
		return colour.ReplaceAllString(faces.ReplaceAllString(style, ""), "var(--ink-$1,#$1)")
	})
	return fmt.Sprintf(`<svg class="%s" viewBox="0 0 %.5g %.5g" %s>%s`, class, width.Points(), height.Points(), attributes, strings.TrimSpace(body))
}

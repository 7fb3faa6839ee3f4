// Package picture draws the curves of a sweep and the other pictures of a report, as
// files or as parts of a page. It is the only importer of gonum/plot.
package picture

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image/color"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
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

// Picture is one or more rows of panels that share the keys of their curves. The same input gives
// the same bytes.
type Picture struct {
	Name    string // name of a file, without extension
	panels  []panel
	keys    []key
	height  vg.Length // height of a panel
	columns int       // greatest number of panels in a row of a file; 0 = all
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
	lowHeight   = 8 * vg.Centimeter  // height of a panel next to a table
	wideInline  = 13 * vg.Centimeter // width of a panel on a page
	smallInline = 10 * vg.Centimeter // width of a panel on the page of a phone
	legendWidth = 6 * vg.Centimeter
	keyHeight   = 6 * vg.Millimeter
	margin      = 4 * vg.Millimeter // the label of the last tick extends beyond the axis
	edge        = vg.Millimeter     // letters of another typeface may be taller
)

// Write draws the picture to a file, in the format of its extension. Check must accept
// the path. The panels are on white from left to right, followed by the keys if there are any.
func (p *Picture) Write(path string) error {
	columns, rows := p.rows()
	width := panelWidth * vg.Length(columns)
	if len(p.keys) > 0 || rows < 2 {
		width += legendWidth
	}
	height := max(p.height*vg.Length(rows), keyHeight*vg.Length(len(p.keys))+2*margin)
	switch filepath.Ext(path) {
	case ".svg":
		canvas := newVector(width, height)
		p.draw(draw.New(canvas))
		return atomicfile.Write(path, func(w io.Writer) error {
			_, err := io.WriteString(w, canvas.document()+svgMark)
			return err
		})
	case ".png":
		canvas := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(144))
		p.draw(draw.New(canvas))
		var image bytes.Buffer
		if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(&image); err != nil {
			return err
		}
		return atomicfile.Write(path, func(w io.Writer) error {
			_, err := w.Write(slices.Insert(image.Bytes(), pngHeader, pngMark()...))
			return err
		})
	}
	panic("picture: Write: " + path)
}

// A file of Write says that shaver wrote it: an SVG file ends with a comment, and in a PNG
// file a text chunk follows the header.
const (
	svgMark   = "<!-- written by shaver -->\n"
	pngHeader = 8 + 4 + 4 + 13 + 4 // bytes of the signature and of the chunk IHDR
)

// pngMark returns the chunk: its length, type, data and checksum.
func pngMark() []byte {
	data := "tEXtSoftware\x00shaver"
	chunk := binary.BigEndian.AppendUint32(nil, uint32(len(data)-len("tEXt")))
	chunk = append(chunk, data...)
	return binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE([]byte(data)))
}

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
	at, mark := int64(pngHeader), string(pngMark())
	if filepath.Ext(path) == ".svg" {
		at, mark = info.Size()-int64(len(svgMark)), svgMark
	}
	found := make([]byte, len(mark))
	_, err = f.ReadAt(found, max(at, 0))
	return (err == nil || err == io.EOF) && string(found) == mark
}

// rows returns the number of panels in a row, and the number of rows.
func (p *Picture) rows() (columns, rows int) {
	columns = len(p.panels)
	if p.columns > 0 {
		columns = min(columns, p.columns)
	}
	return columns, (len(p.panels) + columns - 1) / max(columns, 1)
}

func (p *Picture) draw(c draw.Canvas) {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	columns, rows := p.rows()
	width, height := c.Max.X-c.Min.X, (c.Max.Y-c.Min.Y)/vg.Length(max(rows, 1))
	for i, panel := range p.panels {
		left, below := panelWidth*vg.Length(i%columns), height*vg.Length(rows-1-i/columns)
		above := height * vg.Length(i/columns)
		panel.Draw(draw.Crop(c, left+margin, left+panelWidth-width-margin, below+margin, -above-margin))
	}
	left := panelWidth * vg.Length(columns)
	if len(p.keys) == 0 {
		return
	}
	keys := blank()
	keys.HideAxes()
	keys.Legend.Left, keys.Legend.Top, keys.Legend.Padding = true, true, vg.Millimeter
	for _, k := range p.keys {
		keys.Legend.Add(k.label, k.thumbs...)
	}
	keys.Draw(draw.Crop(c, left, -margin, margin, -margin))
}

// The colours of what is not data.
var (
	quiet = color.RGBA{89, 98, 107, 255} // text and lines
	faint = color.Gray{225}              // grid
)

// bold is golang.org/x/image/font.WeightBold.
const bold = 3

// blank returns an empty plot in the typeface of all pictures.
func blank() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, style := range []*draw.TextStyle{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.X.Tick.Label, &p.Y.Label.TextStyle, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Variant = "Sans"
		style.Font.Size = vg.Points(9.5)
	}
	p.Title.TextStyle.Font.Size = vg.Points(11)
	p.Title.Padding = 2 * vg.Millimeter
	return p
}

// labelStyle returns the style of labels within a plot.
func labelStyle() draw.TextStyle { return blank().Legend.TextStyle }

// grid returns a plot with a grid and named axes. Lines are thin and grey, so that the data
// stand out.
func grid(title, x, y string) *plot.Plot {
	p := blank()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Color, axis.LineStyle.Width = quiet, vg.Points(.6)
		axis.Tick.LineStyle.Width, axis.Tick.Length = 0, 0
		axis.Tick.Label.Color, axis.Label.TextStyle.Color = quiet, quiet
		axis.Padding, axis.Label.Padding = vg.Points(4), vg.Points(3)
		axis.Tick.Marker = evenTicks{}
	}
	p.Y.LineStyle.Width = 0
	lines := plotter.NewGrid()
	lines.Horizontal.Color, lines.Vertical.Color = faint, faint
	p.Add(lines)
	return p
}

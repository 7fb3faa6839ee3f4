package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"reflect"

	"shaver/internal/picture"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	styleText string
)

// page is the common part of all pages. Each page adds its own template "main".
var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"style": func() template.CSS { return template.CSS(styleText) },
	"count": func(n any) string { return count(reflect.ValueOf(n).Int()) }, "percent": percent, "rate": rate, "number": number, "value": value, "worth": func(v float64) string { return fmt.Sprintf("%+.3g", v) },
}).Parse(pageText))

// pageOf returns the page whose "main" is the given template text.
func pageOf(text string) *template.Template {
	return template.Must(template.Must(page.Clone()).Parse(text))
}

// render returns the HTML of a page for document, which must embed a frame.
func render(page *template.Template, document any) ([]byte, error) {
	var html bytes.Buffer
	if err := page.Execute(&html, document); err != nil {
		return nil, err
	}
	return html.Bytes(), nil
}

// frame is the input of the common part of a page.
type frame struct {
	Title   string
	Summary []fact
}

// fact is a line of a list. Note may be empty.
type fact struct{ Name, Value, Note string }

// figure is a picture on the page.
type figure struct {
	Panels []template.HTML
	Keys   []figureKey
}

type figureKey struct {
	Label string
	Shape template.HTML
}

func figureOf(p *picture.Picture) figure {
	panels, keys := p.Inline()
	var f figure
	for _, svg := range panels {
		f.Panels = append(f.Panels, template.HTML(svg)) // escaped by picture
	}
	for _, k := range keys {
		f.Keys = append(f.Keys, figureKey{k.Label, template.HTML(k.SVG)})
	}
	return f
}

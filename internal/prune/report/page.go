package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"reflect"
	"strings"

	"shaver/internal/base/files"
	"shaver/internal/base/style"
)

//go:embed page.html
var pageText string

// page is the common part of all pages. Each page adds its own template "main".
var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"style": func() template.CSS { return template.CSS(style.CSS) },
	"count": func(n any) string { return count(reflect.Indirect(reflect.ValueOf(n)).Int()) }, "percent": percent, "rate": rate, "number": number, "value": value, "sum": signed,
	"worth": func(v float64) string { return strings.Replace(fmt.Sprintf("%+.3g", v), "-", "−", 1) },
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
	return style.Visible(html.Bytes()), nil
}

// mark is in every page, within its first markWithin bytes. markOf comes before frame.Of in every page
// that is not of an older program, followed by a quotation mark.
const (
	mark       = `<meta name="generator" content="shaver">`
	markOf     = `<meta name="shaver-of" content="`
	markWithin = 256
)

// What a page is of. Of the report about scores it is OfModel with the digest of the model.
const (
	OfModel   = "model "
	OfDataset = "dataset"
	ofNights  = "nights"
)

// Of returns what the page at path is of, or "" if the file is not a page or is of an older program.
func Of(path string) string {
	_, text, _ := strings.Cut(string(files.Beginning(path, markWithin)), markOf)
	text, _, found := strings.Cut(text, `"`)
	if !found {
		return ""
	}
	return text
}

// Written reports whether the file at path is a page from this package.
func Written(path string) bool {
	return bytes.Contains(files.Beginning(path, markWithin), []byte(mark))
}

// frame is the input of the common part of a page.
type frame struct {
	Of          string // what the page is of, for programs; see Of
	Kind, Title string // what the page is, and what it is about
	Summary     []fact
	Links       []link // parts of the page
}

// link leads to a part of the page.
type link struct{ ID, Name string }

// fact is a line of a list. Note may be empty.
type fact struct{ Name, Value, Note string }

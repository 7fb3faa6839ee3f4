package report

import (
	"html/template"
	"strings"
	"testing"
)

// A value that turns the direction of the text shows its escape, also in a script.
func TestVisible(t *testing.T) {
	page := template.Must(template.New("page").Parse(`<td>{{.}}</td><script>x = {{.}}</script>`))
	html, err := render(page, "safe\u202eexe\u2066")
	if err != nil {
		t.Fatal(err)
	}
	if text := string(html); strings.ContainsAny(text, "\u202e\u2066") || !strings.Contains(text, `<td>safe\u202eexe\u2066</td>`) {
		t.Errorf("the page is %q", text)
	}
}

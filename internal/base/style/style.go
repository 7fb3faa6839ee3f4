// Package style has what all HTML pages of this module share: how they look, and that no text in
// them can make them show another text.
package style

import (
	"bytes"
	_ "embed"
	"fmt"
)

// CSS is the style sheet of all pages, for light and dark screens, phones and paper.
//
//go:embed style.css
var CSS string

// Visible replaces the characters that change the direction of the text around them by their escapes,
// as on a terminal. A name in a page could otherwise make the page show another one.
func Visible(html []byte) []byte {
	for _, char := range "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069" {
		html = bytes.ReplaceAll(html, []byte(string(char)), fmt.Appendf(nil, `\u%04x`, char))
	}
	return html
}

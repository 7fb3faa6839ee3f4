package sweep

import (
	"strconv"
	"strings"

	"shaver/internal/click/compact"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/mask"
)

// AutoValues is the name of compact.Mixed in --values.
const AutoValues = "auto"

// Flags returns the flags with which shaver prune ranks by the aggregate, keeps entries and
// stores values as the sweep did at the point p, which ranks by scores. They are words of a
// POSIX shell. They do not name the budget.
func (d *Document) Flags(p *Point, aggregate string) []string {
	var words []string
	s := d.Settings
	if s != nil && s.Rank == mask.Signed {
		aggregate = s.Rank
	}
	if aggregate != scores.ByPath { // the only one that these scores have
		words = append(words, "--aggregate", aggregate)
	}
	if s != nil {
		if len(s.Protect) > 0 {
			words = append(words, "--protect", ShellWord(strings.Join(s.Protect, ",")))
		}
		if s.FieldMinimum > 0 {
			words = append(words, "--field-minimum", strconv.FormatFloat(s.FieldMinimum, 'g', -1, 64))
		}
	}
	switch p.Values {
	case string(compact.Float32):
	case string(compact.Mixed):
		words = append(words, "--values", AutoValues)
	default:
		words = append(words, "--values", ShellWord(p.Values))
	}
	return words
}

// ShellWord quotes text for a POSIX shell if that is necessary.
func ShellWord(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:,=+@%", r)
	}
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !plain(r) }) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

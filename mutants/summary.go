package main

import (
	"fmt"
	"slices"
	"strings"
)

// score counts the mutants of a package or of an area.
type score struct {
	name                      string
	killed, accepted, unknown int // unknown is the number of survivors without a reason
}

func (s *score) all() int { return s.killed + s.accepted + s.unknown }

// score returns the portion that is killed, of those that could be.
func (s *score) score() float64 {
	if s.killed+s.unknown == 0 {
		return 1
	}
	return float64(s.killed) / float64(s.killed+s.unknown)
}

func (s *score) row() string {
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %.0f%% |\n", s.name, s.all(), s.killed, s.accepted, s.unknown, 100*s.score())
}

// summary has the scores of areas and packages, and the survivors.
type summary struct {
	areas, packages []*score
	unknown         []result
	reasons         [][2]string // accepted survivors, with their reasons
}

// summarise counts results. Each line of accepted is a mutant, " # " and the reason why it may survive.
func summarise(all []result, accepted string) (*summary, error) {
	reasons := map[string]string{}
	for i, line := range strings.Split(accepted, "\n") {
		if line == "" {
			continue
		}
		mutant, reason, ok := strings.Cut(line, " # ")
		if !ok || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("accepted.txt: line %d: expected a mutant, \" # \" and a reason", i+1)
		}
		reasons[mutant] = reason
	}
	s := new(summary)
	of := func(list *[]*score, name string) *score {
		i := slices.IndexFunc(*list, func(s *score) bool { return s.name == name })
		if i < 0 {
			i = len(*list)
			*list = append(*list, &score{name: name})
		}
		return (*list)[i]
	}
	for _, r := range all {
		for _, c := range []*score{of(&s.areas, r.Area), of(&s.packages, r.Package)} {
			switch reason, ok := reasons[r.Mutant]; {
			case r.Outcome == killed:
				c.killed++
			case ok:
				c.accepted++
				if c.name == r.Area {
					s.reasons = append(s.reasons, [2]string{r.Mutant, reason})
				}
			default:
				c.unknown++
				if c.name == r.Area {
					s.unknown = append(s.unknown, r)
				}
			}
		}
	}
	slices.SortFunc(s.packages, func(a, b *score) int { return strings.Compare(a.name, b.name) })
	slices.SortFunc(s.unknown, func(a, b result) int { return strings.Compare(a.Mutant, b.Mutant) })
	slices.SortFunc(s.reasons, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return s, nil
}

// markdown returns the tables.
func (s *summary) markdown() string {
	var b strings.Builder
	for _, part := range []struct {
		name string
		of   []*score
	}{{"area", s.areas}, {"package", s.packages}} {
		fmt.Fprintf(&b, "| %s | mutants | killed | accepted | survived | score |\n|---|---|---|---|---|---|\n", part.name)
		for _, c := range part.of {
			b.WriteString(c.row())
		}
		b.WriteString("\n")
	}
	code := func(text string) string { return "`` " + text + " ``" }
	if len(s.reasons) > 0 {
		b.WriteString("Accepted:\n\n")
		for _, r := range s.reasons {
			fmt.Fprintf(&b, "- %s: %s\n", code(r[0]), r[1])
		}
		b.WriteString("\n")
	}
	if len(s.unknown) > 0 {
		b.WriteString("Survivors without a reason:\n\n")
		for _, r := range s.unknown {
			fmt.Fprintf(&b, "- %s (line %d)\n", code(r.Mutant), r.Line)
		}
	}
	return b.String()
}

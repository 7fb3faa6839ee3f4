// Package estimator declares the estimators: their names, what each of them is
// and takes, and the options that choose one. Package shapley computes them.
package estimator

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// The names of the estimators.
const (
	Permutation = "permutation"
	Antithetic  = "antithetic"
	Multilinear = "multilinear"
	Exact       = "exact"
	Taylor      = "taylor"
)

// Traits is what the rest of the program needs to know of an estimator.
type Traits struct {
	Name string
	Help string // what it computes, in a few words

	// WalksPerPass is the number of walks in a pass, 0 for an estimator without.
	WalksPerPass int
	// Exact means that a row's values have no random error, so that one pass is all.
	Exact bool
	// Efficient means that a row's contributions sum to its loss with everything
	// dropped minus its loss with nothing dropped.
	Efficient bool
	// Shapley means that the values are estimates of Shapley values.
	Shapley bool
	// MostPlayers is the largest number of players in a row, 0 for any number.
	MostPlayers int
	// Draws means that the effort for a row is Options.Draws, weighed by
	// Options.Endpoints, and that one pass is all.
	Draws bool
}

// table declares all estimators, in the order in which people see them.
var table = []Traits{
	{Name: Permutation, Help: "random walks, as in the paper; unbiased", WalksPerPass: 1, Efficient: true, Shapley: true},
	{Name: Antithetic, Help: "walks, each also backwards; less variance", WalksPerPass: 2, Efficient: true, Shapley: true},
	{Name: Multilinear, Help: "derivatives at random sets of players; fast, but biased", Shapley: true, Draws: true},
	{Name: Exact, Help: "all sets of players; no error", Exact: true, Efficient: true, Shapley: true, MostPlayers: 20}, // 2^20 forward passes a row
	{Name: Taylor, Help: "the paper's rival, which is not a Shapley value", Exact: true},
}

// Names returns the names of all estimators.
func Names() []string {
	var names []string
	for _, t := range table {
		names = append(names, t.Name)
	}
	return names
}

// Lookup returns the traits of the named estimator, and whether there is one.
func Lookup(name string) (Traits, bool) {
	i := slices.IndexFunc(table, func(t Traits) bool { return t.Name == name })
	if i < 0 {
		return Traits{}, false
	}
	return table[i], true
}

// Help lists all estimators, each on a line, for the help of a command.
func Help() string {
	var lines []string
	for _, t := range table {
		text := fmt.Sprintf("  %-11s  %s", t.Name, t.Help)
		if t.MostPlayers > 0 {
			text += fmt.Sprintf(", for at most %d players per row", t.MostPlayers)
		}
		lines = append(lines, text)
	}
	return strings.Join(lines, "\n")
}

// The values of Options.Endpoints. They say how the draws are weighed.
const (
	Plain    = "plain"    // all alike
	Balanced = "balanced" // as if each player were present in every second draw; needs four draws
)

// DefaultDraws is the number of draws if none is given. More rows are worth more
// than more draws.
const DefaultDraws = 2

// MaxDraws is the largest number of draws for a row.
const MaxDraws = 1 << 16

// MaxPasses is the largest number of passes over a row.
const MaxPasses = 1 << 20

// Options chooses an estimator and its effort. They decide the bytes of a job's
// scores, so their JSON is part of a job's specification and of its id.
type Options struct {
	Estimator string `json:"estimator"`           // one of Names
	Passes    int    `json:"passes"`              // independent estimates of a row, at least 1
	Draws     int    `json:"draws,omitempty"`     // sets of present players for a row, even; 0 unless Traits.Draws
	Endpoints string `json:"endpoints,omitempty"` // Plain or Balanced; empty unless Traits.Draws
}

// Traits returns the traits of the chosen estimator. They are zero for a name that
// Validate refuses.
func (o Options) Traits() Traits {
	t, _ := Lookup(o.Estimator)
	return t
}

// SetDefaults sets the options that the estimator needs and that are not set.
func (o *Options) SetDefaults() {
	if !o.Traits().Draws {
		return
	}
	if o.Draws == 0 {
		o.Draws = DefaultDraws
	}
	if o.Endpoints == "" {
		o.Endpoints = Plain
	}
}

// Validate returns an error for options that no estimator takes, and for rows with
// too many players.
func (o Options) Validate(players int) error {
	t, ok := Lookup(o.Estimator)
	switch {
	case !ok:
		return fmt.Errorf("estimator %q: the estimators are %s", o.Estimator, strings.Join(Names(), ", "))
	case o.Passes < 1 || o.Passes > MaxPasses:
		return fmt.Errorf("%d passes: a row takes 1 to %d", o.Passes, MaxPasses)
	case o.Passes != 1 && t.Exact:
		return fmt.Errorf("%d passes: the %s estimator takes 1, which has no error to average out", o.Passes, t.Name)
	case o.Passes != 1 && t.Draws:
		return fmt.Errorf("%d passes: the %s estimator takes 1, with more draws", o.Passes, t.Name)
	case t.MostPlayers > 0 && players > t.MostPlayers:
		return fmt.Errorf("a row has %d players: the %s estimator takes at most %d; use %s", players, t.Name, t.MostPlayers, Permutation)
	case !t.Draws && (o.Draws != 0 || o.Endpoints != ""):
		return fmt.Errorf("draws and endpoints are of the %s estimator, not of %s", Multilinear, t.Name)
	case !t.Draws:
		return nil
	case o.Draws < 2 || o.Draws%2 != 0 || o.Draws > MaxDraws:
		return fmt.Errorf("%d draws: a row takes an even number from 2 to %d", o.Draws, MaxDraws)
	case o.Endpoints != Plain && o.Endpoints != Balanced:
		return fmt.Errorf("endpoints %q: they are %s or %s", o.Endpoints, Plain, Balanced)
	case o.Endpoints == Balanced && o.Draws < 4:
		return fmt.Errorf("%d draws: %s endpoints compare a pair of draws with others, and need 4 or more", o.Draws, Balanced)
	}
	return nil
}

// Walks returns the number of walks that a row takes, 0 for an estimator without.
func (o Options) Walks() int { return o.Passes * o.Traits().WalksPerPass }

// Setting is one of the Options, for flags and for tables.
type Setting struct {
	Name   string // name of its flag, "draws"
	Help   string // help text of its flag
	Target any    // pointer to the option: *string, *int or *float64
	Phrase string // the value in words, "2 draws"; empty if the estimator does not take the option
}

// Value returns the value of the option as text.
func (s Setting) Value() string { return fmt.Sprint(reflect.ValueOf(s.Target).Elem()) }

// Settings lists all options of o. Commands make a flag of each of them.
func (o *Options) Settings() []Setting {
	draws := ""
	if o.Draws != 0 {
		draws = fmt.Sprintf("%d draws", o.Draws)
	}
	return []Setting{
		{"estimator", fmt.Sprintf("`name` of the estimator: %s for values to quote, %s to rank and prune large tables; shaver score --help lists all", Permutation, Multilinear), &o.Estimator, o.Estimator},
		{"passes", fmt.Sprintf("number of random orders per row, with --until the largest number; for %s, each order also backwards", Antithetic), &o.Passes, fmt.Sprintf("%d passes", o.Passes)},
		{"draws", fmt.Sprintf("for %s: number of random sets of players per row, even (default %d)", Multilinear, DefaultDraws), &o.Draws, draws},
		{"endpoints", fmt.Sprintf("for %s: `weights` of the draws, %s, or %s, which has less bias and more noise, and needs 4 draws (default %s)", Multilinear, Plain, Balanced, Plain), &o.Endpoints, o.Endpoints},
	}
}

// Effort says how much of the estimator each row gets.
func (o Options) Effort() string {
	effort := "1 pass"
	if o.Passes != 1 {
		effort = fmt.Sprintf("%d passes", o.Passes)
	}
	if o.Draws > 0 {
		effort += fmt.Sprintf(" of %d draws, %s end points", o.Draws, o.Endpoints)
	}
	return effort
}

// Package estimator declares the estimators: their names, their traits, and the options
// that select one. Package shapley implements them.
package estimator

import (
	"fmt"
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

// Traits describes an estimator to the rest of the program.
type Traits struct {
	Name string
	Help string // description of a few words

	// WalksPerPass is the number of walks in a pass. It is 0 for an estimator that has no
	// walks.
	WalksPerPass int
	// Exact means that the values of a row have no random error, so one pass is enough.
	Exact bool
	// Efficient means that a row's contributions sum to its loss with everything
	// dropped minus its loss with nothing dropped.
	Efficient bool
	// Shapley means that the values are estimates of Shapley values.
	Shapley bool
	// MostPlayers is the largest allowed number of players in a row. 0 means no limit.
	MostPlayers int
	// Draws means that the estimator takes Options.Draws and Options.Endpoints, and only
	// one pass.
	Draws bool
}

// table declares all estimators, in the order in which users see them.
var table = []Traits{
	{Name: Permutation, Help: "walks, as in the paper", WalksPerPass: 1, Efficient: true, Shapley: true},
	{Name: Antithetic, Help: "walks, each also backwards", WalksPerPass: 2, Efficient: true, Shapley: true},
	{Name: Multilinear, Help: "derivatives at random sets of players", Shapley: true, Draws: true},
	{Name: Exact, Help: "all sets of players", Exact: true, Efficient: true, Shapley: true, MostPlayers: 20}, // 2^20 forward passes for each row
	{Name: Taylor, Help: "the paper's rival, no Shapley values", Exact: true},
}

// Names returns the names of all estimators.
func Names() []string {
	var names []string
	for _, t := range table {
		names = append(names, t.Name)
	}
	return names
}

// Lookup returns the traits of the named estimator, and reports whether it exists.
func Lookup(name string) (Traits, bool) {
	i := slices.IndexFunc(table, func(t Traits) bool { return t.Name == name })
	if i < 0 {
		return Traits{}, false
	}
	return table[i], true
}

// Help lists all estimators in one line, for the help text of a flag.
func Help() string {
	var all []string
	for _, t := range table {
		text := t.Name + " (" + t.Help
		if t.MostPlayers > 0 {
			text += fmt.Sprintf(", for at most %d players a row", t.MostPlayers)
		}
		all = append(all, text+")")
	}
	return strings.Join(all, ", ")
}

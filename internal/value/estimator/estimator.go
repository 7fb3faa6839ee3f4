// Package estimator declares the estimators: their names, their traits, and the options
// that select one. Package shapley implements them.
package estimator

import (
	"cmp"
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
	Debiased    = "debiased"
	Exact       = "exact"
	Taylor      = "taylor"
	Path        = "path"
)

// The kinds of players.
const (
	Entries = "entries" // the embedding entries that a row reads
	Fields  = "fields"  // the fields and the dense inputs, each as a whole
	Pairs   = "pairs"   // as Fields, and also pairs of them
)

// mostInPairs is the largest number of fields and dense inputs that have values of pairs.
const mostInPairs = 512

// fieldsExactly is the largest number of fields for which DefaultForFields is Exact. A row then takes
// at most 1,024 forward passes.
const fieldsExactly = 10

// DefaultForFields returns the default estimator of the values of n fields.
func DefaultForFields(n int) string {
	if n <= fieldsExactly {
		return Exact
	}
	return Antithetic
}

// Traits describes an estimator to the rest of the program.
type Traits struct {
	Name string
	Help string // description in a few words

	// WalksPerPass is the number of times in a pass that all players appear one by one. It
	// is 0 for an estimator that has no walks.
	WalksPerPass int
	// Exact means that the values of a row have no random error, so one pass is enough.
	Exact bool
	// Efficient means that a row's contributions sum to its loss with everything
	// dropped minus its loss with nothing dropped.
	Efficient bool
	// Shares means that the contributions do so because the estimator shares the row's
	// residual out among the players. An estimator is not both Efficient and Shares.
	Shares bool
	// Revision changes when the same options would give other bytes. It is 0 for estimators
	// that never changed. A change of all estimators raises job.SpecVersion instead.
	Revision int
	// Shapley means that the values are estimates of Shapley values.
	Shapley bool
	// MostPlayers is the largest allowed number of players in a row. 0 means no limit.
	MostPlayers int
	// Derivatives means that the estimator needs the derivatives of the model.
	Derivatives bool
	// Draws means that the estimator takes Options.Draws and Options.Endpoints. Without Flips
	// it takes only one pass.
	Draws bool
	// Flips means that the estimator takes Options.Flips and only Plain end points. Its values
	// are a base, which alone determines absolute values and squares, and a correction.
	Flips bool
	// Ranks means that the estimator gives no values, only the order in which entries are
	// dropped. It drops in rounds, and takes Options.Parts and Options.Sparsity.
	Ranks bool
}

// table declares all estimators, in the order in which users see them.
var table = []Traits{
	{Name: Permutation, Help: "random walks, as in the paper; unbiased", WalksPerPass: 1, Efficient: true, Shapley: true},
	{Name: Antithetic, Help: "pairs of walks, an order and its reverse; less variance", WalksPerPass: 2, Efficient: true, Shapley: true},
	{Name: Multilinear, Help: "derivatives at random sets of players; fast, with a small bias", Shares: true, Revision: 2, Shapley: true, Derivatives: true, Draws: true},
	{Name: Debiased, Help: "multilinear, corrected by flips of single players; unbiased", Shares: true, Revision: 2, Shapley: true, Derivatives: true, Draws: true, Flips: true},
	{Name: Exact, Help: "all sets of players; no error", Exact: true, Efficient: true, Shapley: true, MostPlayers: 20}, // 2^20 forward passes for each row
	{Name: Taylor, Help: "not a Shapley value; the paper compares against it", Exact: true, Derivatives: true},
	{Name: Path, Help: "an order for pruning, measured again while it drops; no values", Exact: true, Revision: 1, Derivatives: true, Ranks: true},
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

// Help lists all estimators, one per line, for the help of a command.
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

// The values of Options.Endpoints. They select the weights of the draws.
const (
	Plain    = "plain"    // equal weights
	Balanced = "balanced" // weights as if each player were present in half of the draws; needs at least 4 draws
)

// DefaultDraws is the default number of draws. It is small because scoring more rows
// improves the values more than drawing more often for each row.
const DefaultDraws = 2

// DefaultFlips is the default number of flips.
const DefaultFlips = 8

// JumpPasses is the number of passes from which on the standard errors of debiased hold for a
// network whose logit jumps (docs/internals/estimators.md).
const JumpPasses = 30

// MaxFlips is the largest number of flips for a row.
const MaxFlips = 1 << 16

// MaxDraws is the largest number of draws for a row.
const MaxDraws = 1 << 16

// MaxPasses is the largest number of passes over a row.
const MaxPasses = 1 << 20

// DefaultParts is the default number of parts of the rows. The first round takes FirstParts of
// them, or all if there are fewer. Each later round takes one.
const (
	DefaultParts = 6
	FirstParts   = 8
)

// MaxParts is the largest number of parts.
const MaxParts = 1 << 10

// DefaultSparsity is the default sparsity at which an order ends.
const DefaultSparsity = 0.999

// Options selects an estimator and its effort. The options determine the bytes of a job's
// scores, so their JSON is part of a job's specification and id. An option that the
// estimator does not take has the zero value, and its JSON tag has omitempty.
type Options struct {
	Estimator string `json:"estimator"`           // one of Names
	Passes    int    `json:"passes"`              // number of independent estimates of a row, at least 1
	Draws     int    `json:"draws,omitempty"`     // number of draws for a row, even; 0 unless Traits.Draws
	Endpoints string `json:"endpoints,omitempty"` // Plain or Balanced; empty unless Traits.Draws
	Flips     int    `json:"flips,omitempty"`     // expected number of flips for a row in a pass; 0 unless Traits.Flips
	// Parts is the number of parts of the rows. The first round of a path takes FirstParts of them, or
	// all, and each later round one; 0 unless Traits.Ranks.
	Parts int `json:"parts,omitempty"`
	// Sparsity is the largest sparsity to which entries are dropped in rounds, in (0, 1); 0
	// unless Traits.Ranks.
	Sparsity float64 `json:"sparsity,omitempty"`
}

// Traits returns the traits of the selected estimator. They are zero if there is no such
// estimator.
func (o Options) Traits() Traits {
	t, _ := Lookup(o.Estimator)
	return t
}

// SetDefaults sets the options that the estimator takes and that are not set to their
// defaults.
func (o *Options) SetDefaults() {
	if o.Traits().Draws {
		o.Draws = cmp.Or(o.Draws, DefaultDraws)
		o.Endpoints = cmp.Or(o.Endpoints, Plain)
	}
	if o.Traits().Flips {
		o.Flips = cmp.Or(o.Flips, DefaultFlips)
	}
	if o.Traits().Ranks {
		o.Parts = cmp.Or(o.Parts, DefaultParts)
		o.Sparsity = cmp.Or(o.Sparsity, DefaultSparsity)
	}
}

// Validate returns an error if an option is invalid, or if the estimator does not support
// rows with this many players.
func (o Options) Validate(players int) error {
	t, ok := Lookup(o.Estimator)
	switch {
	case !ok:
		return fmt.Errorf("estimator %q: the estimators are %s", o.Estimator, strings.Join(Names(), ", "))
	case o.Passes < 1 || o.Passes > MaxPasses:
		return fmt.Errorf("%d passes, expected 1 to %d", o.Passes, MaxPasses)
	case o.Passes != 1 && t.Exact:
		return fmt.Errorf("%d passes: the %s estimator takes 1 pass, because it has no random error; %s takes several", o.Passes, t.Name, Permutation)
	case o.Passes != 1 && t.Draws && !t.Flips:
		return fmt.Errorf("%d passes: the %s estimator takes 1 pass; use more draws", o.Passes, t.Name)
	case t.MostPlayers > 0 && players > t.MostPlayers:
		return fmt.Errorf("a row has %d players: the %s estimator takes at most %d; use %s, or %s if the players are fields", players, t.Name, t.MostPlayers, Debiased, Permutation)
	case !t.Draws && (o.Draws != 0 || o.Endpoints != ""):
		return fmt.Errorf("the %s estimator takes neither draws nor endpoints; only the %s estimator and the %s estimator do", t.Name, Multilinear, Debiased)
	case !t.Flips && o.Flips != 0:
		return fmt.Errorf("the %s estimator takes no flips; only the %s estimator does", t.Name, Debiased)
	case t.Flips && (o.Flips < 1 || o.Flips > MaxFlips):
		return fmt.Errorf("%d flips, expected 1 to %d", o.Flips, MaxFlips)
	case t.Flips && o.Endpoints == Balanced:
		return fmt.Errorf("the %s estimator takes only %s endpoints, because it has no bias", t.Name, Plain)
	case t.Draws && (o.Draws < 2 || o.Draws%2 != 0 || o.Draws > MaxDraws):
		return fmt.Errorf("%d draws, expected an even number from 2 to %d", o.Draws, MaxDraws)
	case t.Draws && o.Endpoints != Plain && o.Endpoints != Balanced:
		return fmt.Errorf("endpoints %q, expected %s or %s", o.Endpoints, Plain, Balanced)
	case !t.Ranks && (o.Parts != 0 || o.Sparsity != 0):
		return fmt.Errorf("the %s estimator takes neither parts nor a sparsity; only the %s estimator does", t.Name, Path)
	case t.Ranks && (o.Parts < 1 || o.Parts > MaxParts):
		return fmt.Errorf("%d parts, expected 1 to %d", o.Parts, MaxParts)
	case t.Ranks && !(o.Sparsity > 0 && o.Sparsity < 1):
		return fmt.Errorf("sparsity %v is outside (0, 1)", o.Sparsity)
	case o.Endpoints == Balanced && o.Draws < 4:
		return fmt.Errorf("%d draws: %s endpoints need at least 4", o.Draws, Balanced)
	}
	return nil
}

// ValidateFields returns an error if the players of the selected estimator cannot be fields.
func (o Options) ValidateFields() error {
	if t := o.Traits(); t.Derivatives {
		return fmt.Errorf("the %s estimator needs embedding entries as players: for %s use %s, %s or %s", t.Name, Fields, Exact, Antithetic, Permutation)
	}
	return nil
}

// CheckPairs returns an error if n fields and dense inputs are too many for the values of pairs.
func CheckPairs(n int) error {
	if n > mostInPairs {
		return fmt.Errorf("%d fields and dense inputs, expected at most %d for the values of %s: use the players %s", n, mostInPairs, Pairs, Fields)
	}
	return nil
}

// Walks returns the number of walks for a row. It is 0 for an estimator that has no walks.
func (o Options) Walks() int { return o.Passes * o.Traits().WalksPerPass }

// Setting is one of the Options, for flags and for tables.
type Setting struct {
	Name   string // name of its flag, for example "draws"
	Help   string // help text of its flag
	Target any    // pointer to the option: *string, *int or *float64
	// Phrase is the value in words, for example "2 draws". It is empty if the estimator
	// does not take the option. Different values have different phrases, because a sweep
	// treats jobs with the same phrases as repeats of each other.
	Phrase  string
	Choices []string // the values of a text
}

// Value returns the value of the option as text.
func (s Setting) Value() string { return fmt.Sprint(reflect.ValueOf(s.Target).Elem()) }

// Settings lists all options of o. Commands have a flag for each of them.
func (o *Options) Settings() []Setting {
	passes, draws, endpoints, flips, parts, sparsity := "1 pass", "", "", "", "", ""
	if o.Passes != 1 {
		passes = fmt.Sprintf("%d passes", o.Passes)
	}
	if o.Draws != 0 {
		draws = fmt.Sprintf("%d draws", o.Draws)
	}
	if o.Endpoints != "" {
		endpoints = o.Endpoints + " end points"
	}
	if o.Flips != 0 {
		flips = fmt.Sprintf("%d flips", o.Flips)
	}
	if o.Parts != 0 {
		parts = fmt.Sprintf("%d parts", o.Parts)
	}
	if o.Sparsity != 0 {
		sparsity = fmt.Sprintf("to sparsity %v", o.Sparsity)
	}
	return []Setting{
		{"estimator", fmt.Sprintf("`estimator`: %s if you want to prune, %s if you want to quote values", Path, Debiased), &o.Estimator, o.Estimator, Names()},
		{"passes", fmt.Sprintf("number of random orders per row (the maximum if the job may stop early); %s also walks each order in reverse", Antithetic), &o.Passes, passes, nil},
		{"draws", fmt.Sprintf("for %s and %s: number of random sets of players per row, even (default %d)", Multilinear, Debiased, DefaultDraws), &o.Draws, draws, nil},
		{"endpoints", fmt.Sprintf("for %s: `weights` of the draws, %s, or %s with less bias, more noise and at least 4 draws (default %s)", Multilinear, Plain, Balanced, Plain), &o.Endpoints, endpoints, []string{Plain, Balanced}},
		{"flips", fmt.Sprintf("for %s: expected number of true flips of single players per row and pass (default %d)", Debiased, DefaultFlips), &o.Flips, flips, nil},
		{"parts", fmt.Sprintf("for %s: number of `parts` of the rows; the first round takes %d of them, or all, and each later round one; with 16 it takes about half of the time of the default, %d", Path, FirstParts, DefaultParts), &o.Parts, parts, nil},
		{"sparsity", fmt.Sprintf("for %s: largest `portion` of the entries that pruning will drop (default %g)", Path, DefaultSparsity), &o.Sparsity, sparsity, nil},
	}
}

// Effort describes in words how much work each row gets: all options except the
// estimator's name.
func (o Options) Effort() string {
	var phrases []string
	for _, s := range o.Settings()[1:] {
		if s.Phrase != "" {
			phrases = append(phrases, s.Phrase)
		}
	}
	return strings.Join(phrases, ", ")
}

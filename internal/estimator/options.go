package estimator

import (
	"fmt"
	"strings"
)

// The values of Options.Endpoints. They select the weights of the draws.
const (
	Plain    = "plain"    // equal weights
	Balanced = "balanced" // weights as if each player were present in half of the draws; needs at least 4 draws
)

// DefaultDraws is the default number of draws. It is small because scoring more rows
// improves the values more than drawing more often for each row.
const DefaultDraws = 2

// MaxDraws is the largest number of draws for a row.
const MaxDraws = 1 << 16

// MaxPasses is the largest number of passes over a row.
const MaxPasses = 1 << 20

// Options selects an estimator and its effort. The options determine the bytes of a job's
// scores, so their JSON is part of a job's specification and id.
type Options struct {
	Estimator string `json:"estimator"`           // one of Names
	Passes    int    `json:"passes"`              // number of independent estimates of a row, at least 1
	Draws     int    `json:"draws,omitempty"`     // number of draws for a row, even; 0 unless Traits.Draws
	Endpoints string `json:"endpoints,omitempty"` // Plain or Balanced; empty unless Traits.Draws
}

// Traits returns the traits of the selected estimator. They are zero if there is no such
// estimator.
func (o Options) Traits() Traits {
	t, _ := Lookup(o.Estimator)
	return t
}

// SetDefaults sets Draws and Endpoints to their defaults if the estimator needs them and
// they are not set.
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

// Validate returns an error if the options are invalid, or if the estimator does not
// support rows with this many players.
func (o Options) Validate(players int) error {
	t, ok := Lookup(o.Estimator)
	switch {
	case !ok:
		return fmt.Errorf("estimator %q: the estimators are %s", o.Estimator, strings.Join(Names(), ", "))
	case o.Passes < 1 || o.Passes > MaxPasses:
		return fmt.Errorf("%d passes, expected 1 to %d", o.Passes, MaxPasses)
	case o.Passes != 1 && t.Exact:
		return fmt.Errorf("%d passes: the %s estimator takes 1 pass, because its values have no random error", o.Passes, t.Name)
	case o.Passes != 1 && t.Draws:
		return fmt.Errorf("%d passes: the %s estimator takes 1 pass; use more draws", o.Passes, t.Name)
	case t.MostPlayers > 0 && players > t.MostPlayers:
		return fmt.Errorf("a row has %d players: the %s estimator takes at most %d; use %s", players, t.Name, t.MostPlayers, Permutation)
	case !t.Draws && (o.Draws != 0 || o.Endpoints != ""):
		return fmt.Errorf("the %s estimator takes neither draws nor endpoints; only the %s estimator does", t.Name, Multilinear)
	case !t.Draws:
		return nil
	case o.Draws < 2 || o.Draws%2 != 0 || o.Draws > MaxDraws:
		return fmt.Errorf("%d draws, expected an even number from 2 to %d", o.Draws, MaxDraws)
	case o.Endpoints != Plain && o.Endpoints != Balanced:
		return fmt.Errorf("endpoints %q, expected %s or %s", o.Endpoints, Plain, Balanced)
	case o.Endpoints == Balanced && o.Draws < 4:
		return fmt.Errorf("%d draws: %s endpoints need at least 4", o.Draws, Balanced)
	}
	return nil
}

// Walks returns the number of walks for a row. It is 0 for an estimator that has no walks.
func (o Options) Walks() int { return o.Passes * o.Traits().WalksPerPass }

// Setting is one of the options in words.
type Setting struct {
	Name   string // for example "draws"
	Value  string // for example "2"
	Phrase string // for example "2 draws"; empty if the estimator does not take the option
}

// Settings lists all options.
func (o Options) Settings() []Setting {
	draws := ""
	if o.Draws != 0 {
		draws = fmt.Sprintf("%d draws", o.Draws)
	}
	return []Setting{
		{"estimator", o.Estimator, o.Estimator},
		{"passes", fmt.Sprint(o.Passes), fmt.Sprintf("%d passes", o.Passes)},
		{"draws", fmt.Sprint(o.Draws), draws},
		{"end points", o.Endpoints, o.Endpoints},
	}
}

// Effort describes the passes and draws for each row in words.
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

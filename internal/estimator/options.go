package estimator

import (
	"fmt"
	"strings"
)

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

// Setting is one of the options, for people.
type Setting struct {
	Name   string // "draws"
	Value  string // "2"
	Phrase string // "2 draws"; empty if the estimator does not take it
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

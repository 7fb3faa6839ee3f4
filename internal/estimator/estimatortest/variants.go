// Package estimatortest makes options of estimators for tests. They are derived from the
// declarations in package estimator, so that the tests cover a new estimator or option at
// once.
package estimatortest

import (
	"reflect"
	"regexp"

	"shaver/internal/estimator"
)

var word = regexp.MustCompile(`[a-z]+`)

// Variants returns valid and invalid options: the defaults of each estimator, and of an
// unknown name, with every combination of values of any two options.
func Variants() []estimator.Options {
	seen := map[estimator.Options]bool{}
	var all []estimator.Options
	for _, name := range append(estimator.Names(), "x") {
		o := estimator.Options{Estimator: name, Passes: 1}
		o.SetDefaults()
		for i := range o.Settings()[1:] {
			for j := range i + 1 {
				for _, first := range change(o, i+1) {
					for _, second := range change(first, j+1) {
						if !seen[second] {
							seen[second] = true
							all = append(all, second)
						}
					}
				}
			}
		}
	}
	return all
}

// change returns o with some values of its i-th setting. For a text setting, the values
// are the words of its help.
func change(o estimator.Options, i int) []estimator.Options {
	var values []any
	switch s := o.Settings()[i]; s.Target.(type) {
	case *string:
		for _, w := range append(word.FindAllString(s.Help, -1), "") {
			values = append(values, w)
		}
	case *int:
		values = []any{-1, 0, 1, 2, 3, 4, 1<<16 + 2, 1<<20 + 1}
	case *float64:
		values = []any{-1., 0., .25, .5, 1., 2.}
	default:
		panic("estimatortest: no values for option " + s.Name)
	}
	var changed []estimator.Options
	for _, v := range values {
		other := o
		reflect.ValueOf(other.Settings()[i].Target).Elem().Set(reflect.ValueOf(v))
		changed = append(changed, other)
	}
	return changed
}

// Valid returns the variants that are valid for rows of one player.
func Valid() []estimator.Options {
	var valid []estimator.Options
	for _, o := range Variants() {
		if o.Validate(1) == nil {
			valid = append(valid, o)
		}
	}
	return valid
}

// Small returns the valid variants with little effort: at most 2 passes, and all other
// numbers at most 4.
func Small() []estimator.Options {
	var small []estimator.Options
	for _, o := range Valid() {
		little := o.Passes <= 2
		for _, s := range o.Settings() {
			if n, ok := s.Target.(*int); ok && *n > 4 {
				little = false
			}
		}
		if little {
			small = append(small, o)
		}
	}
	return small
}

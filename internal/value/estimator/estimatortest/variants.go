// Package estimatortest makes options of estimators for tests. They follow from what
// package estimator declares, so that the tests cover a new estimator or option at once.
package estimatortest

import (
	"reflect"
	"slices"

	"shaver/internal/value/estimator"
)

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

// change returns o with some values of its i-th setting.
func change(o estimator.Options, i int) []estimator.Options {
	var values []any
	switch s := o.Settings()[i]; s.Target.(type) {
	case *string:
		for _, text := range append(slices.Clone(s.Choices), "", "x") {
			values = append(values, text)
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

// OfValues returns the names of the estimators of values.
func OfValues() []string {
	return slices.DeleteFunc(estimator.Names(), func(name string) bool {
		t, _ := estimator.Lookup(name)
		return t.Ranks
	})
}

// Small returns the valid variants of estimators of values with little effort: at most 2 passes,
// and other numbers of at most 4.
func Small() []estimator.Options {
	var small []estimator.Options
	for _, o := range Valid() {
		little := o.Passes <= 2 && !o.Traits().Ranks
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

// Package estimatortest makes options of estimators for tests. They follow from what
// package estimator declares, so that the tests cover a new estimator or option at once.
package estimatortest

import (
	"regexp"

	"shaver/internal/estimator"
)

var word = regexp.MustCompile(`[a-z]+`)

// Variants returns valid and invalid options: every combination of some values of each
// option. The values of a text option are the words of its help. The first option is the
// estimator's name.
func Variants() []estimator.Options {
	all := []estimator.Options{{}}
	for i, setting := range new(estimator.Options).Settings() {
		var next []estimator.Options
		for _, o := range all {
			switch setting.Target.(type) {
			case *string:
				values := word.FindAllString(setting.Help, -1)
				if i == 0 {
					values = estimator.Names()
				}
				values = append(values, "", "x")
				seen := map[string]bool{}
				for _, v := range values {
					if !seen[v] {
						seen[v] = true
						*o.Settings()[i].Target.(*string) = v
						next = append(next, o)
					}
				}
			case *int:
				for _, v := range []int{-1, 0, 1, 2, 3, 4, 1<<16 + 2, 1<<20 + 1} {
					*o.Settings()[i].Target.(*int) = v
					next = append(next, o)
				}
			case *float64:
				for _, v := range []float64{-1, 0, .25, .5, 1, 2} {
					*o.Settings()[i].Target.(*float64) = v
					next = append(next, o)
				}
			default:
				panic("estimatortest: no values for option " + setting.Name)
			}
		}
		all = next
	}
	return all
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

// Small returns the valid variants of little effort: at most 2 passes, and other numbers
// of at most 4.
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

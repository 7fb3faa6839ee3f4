package estimator_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	. "shaver/internal/value/estimator"
	"shaver/internal/value/estimator/estimatortest"
)

// SetDefaults sets only missing options, and Validate rejects invalid ones.
func TestOptions(t *testing.T) {
	good := Options{Estimator: Multilinear, Passes: 1, Draws: 4, Endpoints: Balanced}
	if err := good.Validate(1); err != nil {
		t.Error(err)
	}
	set := Options{Estimator: Multilinear, Passes: 1}
	if set.SetDefaults(); set.Draws != 2 || set.Endpoints != Plain {
		t.Errorf("SetDefaults gives %+v", set)
	}
	walks := Options{Estimator: Antithetic, Passes: 3}
	if set := walks; walks.Validate(1000) != nil || walks.Walks() != 6 {
		t.Errorf("options %+v: error %v, %d walks, expected 6", set, walks.Validate(1000), walks.Walks())
	} else if set.SetDefaults(); set != walks {
		t.Errorf("SetDefaults gives %+v", set)
	}
	for want, change := range map[string]func(*Options){
		"3 draws":          func(o *Options) { o.Draws = 3 },
		"0 draws":          func(o *Options) { o.Draws = 0 },
		"need at least 4":  func(o *Options) { o.Draws = 2 },
		`endpoints "x"`:    func(o *Options) { o.Endpoints = "x" },
		"2 passes":         func(o *Options) { o.Passes = 2 },
		"0 passes":         func(o *Options) { o.Passes = 0 },
		"takes 1 pass":     func(o *Options) { *o = Options{Estimator: Taylor, Passes: 2} },
		"takes at most 20": func(o *Options) { *o = Options{Estimator: Exact, Passes: 1} },
		"only the multilinear estimator and the debiased":                      func(o *Options) { o.Estimator = Antithetic },
		"estimators are permutation, antithetic, multilinear, debiased, exact": func(o *Options) { o.Estimator = "x" },
	} {
		o := good
		if change(&o); o.Validate(21) == nil || !strings.Contains(o.Validate(21).Error(), want) {
			t.Errorf("error for %+v: %v, want %q", o, o.Validate(21), want)
		}
	}
}

// Settings lists every option.
func TestSettings(t *testing.T) {
	o := Options{Estimator: Multilinear, Passes: 1, Draws: 2, Endpoints: Plain}
	if got, want := len(o.Settings()), reflect.TypeFor[Options]().NumField(); got != want {
		t.Errorf("%d settings, expected %d", got, want)
	}
	if got, want := o.Effort(), "1 pass, 2 draws, plain end points"; got != want {
		t.Errorf("effort %q, want %q", got, want)
	}
}

// Valid options are valid with their defaults, and different valid options have
// different phrases.
func TestPhrases(t *testing.T) {
	found, named := map[string]Options{}, map[string]int{}
	for _, o := range estimatortest.Valid() {
		var phrases []string
		for _, s := range o.Settings() {
			phrases = append(phrases, s.Phrase)
		}
		key := strings.Join(phrases, "|")
		if other, ok := found[key]; ok {
			t.Errorf("%+v and %+v have the same phrases %q", o, other, phrases)
		}
		found[key] = o
		named[o.Estimator]++
		set := o
		if set.SetDefaults(); set != o {
			t.Errorf("SetDefaults changes the valid options %+v to %+v", o, set)
		}
	}
	for _, name := range Names() {
		o := Options{Estimator: name, Passes: 1}
		if o.SetDefaults(); o.Validate(1) != nil || named[name] == 0 {
			t.Errorf("%+v: error %v, %d valid variants", o, o.Validate(1), named[name])
		}
	}
}

// Every estimator has a row in docs/guide/estimators.md and is named in the help.
func TestEveryEstimatorIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/guide/estimators.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Names() {
		if !strings.Contains(string(page), "\n| `"+name+"` |") {
			t.Errorf("docs/guide/estimators.md has no row for %s", name)
		}
		if !strings.Contains(Help(), "  "+name+" ") {
			t.Errorf("the help does not name %s: %s", name, Help())
		}
	}
}

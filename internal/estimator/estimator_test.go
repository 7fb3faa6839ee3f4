package estimator

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

func TestOptions(t *testing.T) {
	good := Options{Estimator: Multilinear, Passes: 1, Draws: 4, Endpoints: Balanced}
	if err := good.Validate(1); err != nil {
		t.Error(err)
	}
	set := Options{Estimator: Multilinear, Passes: 1}
	if set.SetDefaults(); set.Draws != 2 || set.Endpoints != Plain {
		t.Errorf("defaults %+v", set)
	}
	walks := Options{Estimator: Antithetic, Passes: 3}
	if set := walks; walks.Validate(1000) != nil || walks.Walks() != 6 {
		t.Errorf("%+v: %v, %d walks", set, walks.Validate(1000), walks.Walks())
	} else if set.SetDefaults(); set != walks {
		t.Errorf("defaults %+v", set)
	}
	for want, change := range map[string]func(*Options){
		"3 draws":                func(o *Options) { o.Draws = 3 },
		"0 draws":                func(o *Options) { o.Draws = 0 },
		"need 4":                 func(o *Options) { o.Draws = 2 },
		`endpoints "x"`:          func(o *Options) { o.Endpoints = "x" },
		"2 passes":               func(o *Options) { o.Passes = 2 },
		"0 passes":               func(o *Options) { o.Passes = 0 },
		"no error":               func(o *Options) { *o = Options{Estimator: Taylor, Passes: 2} },
		"takes at most 20":       func(o *Options) { *o = Options{Estimator: Exact, Passes: 1} },
		"are of the multilinear": func(o *Options) { o.Estimator = Antithetic },
		"estimators are permutation, antithetic, multilinear, exact": func(o *Options) { o.Estimator = "x" },
	} {
		o := good
		if change(&o); o.Validate(21) == nil || !strings.Contains(o.Validate(21).Error(), want) {
			t.Errorf("%+v: %v, want %q", o, o.Validate(21), want)
		}
	}
}

// Settings leaves no option out.
func TestSettings(t *testing.T) {
	o := Options{Estimator: Multilinear, Passes: 1, Draws: 2, Endpoints: Plain}
	if got, want := len(o.Settings()), reflect.TypeFor[Options]().NumField(); got != want {
		t.Errorf("%d settings, expected %d", got, want)
	}
	for _, of := range []struct{ got, want string }{
		{o.Effort(), "1 pass of 2 draws, plain end points"},
		{Options{Estimator: Permutation, Passes: 3}.Effort(), "3 passes"},
	} {
		if of.got != of.want {
			t.Errorf("effort %q, want %q", of.got, of.want)
		}
	}
}

// Every estimator has a row in docs/estimators.md and a place in the help.
func TestEveryEstimatorIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/estimators.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Names() {
		if !strings.Contains(string(page), "\n| `"+name+"` |") {
			t.Errorf("docs/estimators.md has no row for %s", name)
		}
		if !strings.Contains(Help(), "  "+name+" ") {
			t.Errorf("the help does not name %s: %s", name, Help())
		}
	}
}

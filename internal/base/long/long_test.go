package long

import (
	"flag"
	"fmt"
	"testing"
)

// A test that takes long runs with SHAVER_LONG or if -run selects it, and one that computes much also needs that -short is not set.
func TestWhichRun(t *testing.T) {
	for _, c := range []struct {
		variable, run, short   string
		test, heavy, all, hour bool
	}{
		{"", "", "false", false, false, false, false},
		{"", "", "true", false, false, false, false},
		{"1", "", "false", true, true, true, false},
		{"1", "", "true", true, false, false, false},
		{"2", "", "false", true, true, true, true},
		{"", "Name", "false", true, true, true, false},
		{"", "Name", "true", true, false, false, false},
	} {
		t.Run(fmt.Sprintf("%s,%s,%s", c.variable, c.run, c.short), func(t *testing.T) {
			t.Setenv("SHAVER_LONG", c.variable)
			set(t, "test.run", c.run)
			set(t, "test.short", c.short)
			ran := func(skip func(testing.TB)) (ran bool) {
				t.Run("", func(t *testing.T) { skip(t); ran = true })
				return ran
			}
			if test, heavy, all, hour := ran(Test), ran(Heavy), All(), Hours(); test != c.test || heavy != c.heavy || all != c.all || hour != c.hour {
				t.Errorf("%v %v %v %v, expected %v %v %v %v", test, heavy, all, hour, c.test, c.heavy, c.all, c.hour)
			}
		})
	}
}

// set sets a flag of the test binary until the test ends.
func set(t *testing.T, name, value string) {
	f := flag.Lookup(name)
	before := f.Value.String()
	t.Cleanup(func() { _ = f.Value.Set(before) })
	if err := f.Value.Set(value); err != nil {
		t.Fatal(err)
	}
}

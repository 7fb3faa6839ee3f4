// Package long says which tests run. Usually tests leave out what takes long, and all of them together end within
// minutes. SHAVER_LONG=1 runs everything that a change must pass, as CI does. SHAVER_LONG=2 also runs what takes hours
// or needs the network. A test that the flag -run selects runs whole in any case.
//
// The flag -short leaves out what computes much, for the race detector and for kernels that are slow.
package long

import (
	"flag"
	"os"
	"testing"
)

// Test skips a test that takes long.
func Test(t testing.TB) {
	t.Helper()
	if !selected(os.Getenv("SHAVER_LONG"), run()) {
		t.Skip("it takes long: SHAVER_LONG=1 runs it")
	}
}

// Heavy skips a test that takes long because it computes much. With -short it always skips it.
func Heavy(t testing.TB) {
	t.Helper()
	if Test(t); testing.Short() {
		t.Skip("it computes much, and -short is set")
	}
}

// All reports whether a test runs all of its cases, except those that take hours.
func All() bool { return selected(os.Getenv("SHAVER_LONG"), run()) && !testing.Short() }

// Hours reports whether tests that take hours run too.
func Hours() bool { return os.Getenv("SHAVER_LONG") == "2" }

func selected(variable, run string) bool { return variable != "" || run != "" }

// run returns the flag -run.
func run() string { return flag.Lookup("test.run").Value.String() }

// Package long says which tests run. Without the variable SHAVER_LONG, tests leave out what takes long, and all of
// them together end within minutes. SHAVER_LONG=1 runs everything that a change must pass, as CI does. SHAVER_LONG=2
// also runs what takes hours or needs the network.
package long

import (
	"os"
	"testing"
)

// Test skips a test that takes long unless SHAVER_LONG is set.
func Test(t testing.TB) {
	t.Helper()
	if !All() {
		t.Skip("it takes long: SHAVER_LONG=1 runs it")
	}
}

// All reports whether tests leave nothing out, except what takes hours.
func All() bool { return os.Getenv("SHAVER_LONG") != "" }

// Hours reports whether tests that take hours run too.
func Hours() bool { return os.Getenv("SHAVER_LONG") == "2" }

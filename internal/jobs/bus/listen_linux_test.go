package bus

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"shaver/internal/jobs/bus/embedded"
)

// listening returns the addresses on which this process listens for TCP connections, as
// Linux writes them in /proc.
func listening(t *testing.T) []string {
	t.Helper()
	mine := map[string]bool{}
	files, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, f := range files {
		if target, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil {
			mine[target] = true
		}
	}
	var all []string
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile("/proc/self/net/" + table)
		if os.IsNotExist(err) {
			continue
		}
		must(t, err)
		for line := range strings.Lines(string(text)) {
			column := strings.Fields(line)
			if len(column) > 9 && column[3] == "0A" && mine[fmt.Sprintf("socket:[%s]", column[9])] {
				all = append(all, column[1])
			}
		}
	}
	return all
}

// The embedded server opens no socket unless Listen is set.
func TestNoListener(t *testing.T) {
	if before := listening(t); len(before) != 0 {
		t.Fatalf("the process listens before the test: %v", before)
	}
	s := startServer(t, embedded.Config{})
	connect(t, Config{Server: s})
	if found := listening(t); len(found) != 0 {
		t.Errorf("the embedded server listens on %v", found)
	}
	startServer(t, embedded.Config{Listen: "127.0.0.1:0"})
	if found := listening(t); len(found) != 1 || !strings.HasPrefix(found[0], "0100007F:") {
		t.Errorf("the server listens on %v, expected only 127.0.0.1", found)
	}
}

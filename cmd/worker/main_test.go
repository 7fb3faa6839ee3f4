package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"shaver/internal/app/cli"
	"shaver/internal/app/work"
)

// The worker links neither a server, nor object stores, nor what only coordinators and nights need. It
// is the program that a cluster starts most.
func TestDependencies(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	if len(packages) < 100 {
		t.Fatalf("go list gives %d packages", len(packages))
	}
	for _, p := range packages {
		if regexp.MustCompile(`minio|azure|nats-server|/(coordinator|forecast|nightly|remote|launch|score)$`).MatchString(strings.ToLower(p)) {
			t.Errorf("the worker links %s", p)
		}
	}
}

// The help documents the exit codes.
func TestExitHelp(t *testing.T) {
	if !strings.Contains(work.Command("worker").Long, cli.ExitHelp) {
		t.Error("the help does not document the exit codes")
	}
}

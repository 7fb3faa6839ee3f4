// Package internal_test keeps the architecture: which package may import which.
package internal_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// policy is the import order. Each line is a package, and what it may import of
// ours and of other modules (the first part of whose path is enough); the
// standard library is free, but for the pure packages, which also do without the
// packages of impure. Changing a line is changing the architecture: docs/design.md
// says the same in prose.
const policy = `
# foundations
fault:
random:                 pure
atomicfile:
filelock:

# the pure core: no file, no network, no clock
kernel:                 pure golang.org/x/sys
quantize:               pure
model:                  pure kernel
tally:                  pure gonum.org/v1/gonum
shapley:                pure model random tally golang.org/x/sync
prune:                  pure model quantize random
compare:                pure prune gonum.org/v1/gonum
evaluate:               pure model golang.org/x/sync
job:                    pure
compact:                pure kernel

# files; arrowio is the only importer of Arrow
checkpoint:             atomicfile compact fault model
arrowio:                fault model tally github.com/apache/arrow/go/v17 github.com/google/flatbuffers github.com/klauspost/compress
rawtext:                fault github.com/klauspost/compress
vocabulary:             arrowio fault rawtext
dataset:                arrowio atomicfile fault filelock model random rawtext vocabulary golang.org/x/sync
scores:                 arrowio atomicfile fault job model shapley tally
shard:                  arrowio job model random
planted:                checkpoint model random
synth:                  fault random github.com/klauspost/compress golang.org/x/sync

# what pruning costs; picture is the only importer of gonum/plot, and report, which
# needs no file but is not pure as scores, dataset and picture know them, makes a page
# of facts: a job's, or those that dataset says of itself
sweep:                  compact evaluate fault model prune scores shapley
picture:                atomicfile fault sweep gonum.org/v1/plot
report:                 dataset fault model picture prune scores sweep

# the job; bus is the only importer of NATS
bus:                    fault job github.com/nats-io go.uber.org/zap golang.org/x/sync
worker:                 arrowio atomicfile bus checkpoint dataset fault job kernel model shapley shard go.uber.org/zap
coordinator:            arrowio bus checkpoint compare dataset fault job kernel model prune scores shapley shard tally go.uber.org/zap golang.org/x/sync

# what a process tells of itself; the only importer of Prometheus
metrics:                fault github.com/prometheus/client_golang

# what people and clusters run
cli:                    bus fault kernel github.com/spf13/cobra github.com/schollz/progressbar/v3 go.uber.org/zap golang.org/x/term
launch:                 atomicfile bus checkpoint cli coordinator dataset fault filelock job metrics prune scores shapley worker github.com/spf13/cobra go.uber.org/zap golang.org/x/sync golang.org/x/sys
cmd/shaver:             arrowio atomicfile bus checkpoint cli compact compare coordinator dataset evaluate fault job launch model picture planted prune report scores shapley sweep synth tally github.com/spf13/cobra
cmd/coordinator:        cli launch
cmd/worker:             cli launch

# what others import: scoring with a pruned model
infer:                  checkpoint fault model golang.org/x/sys

# faults for them; it goes round bus, to spoil and to judge what is stored
chaos:                  cli github.com/nats-io/nats.go

# for tests of other packages
model/modeltest:        model
`

// impure is what a pure package does not import.
var impure = []string{"os", "net", "io", "io/fs", "net/http", "path/filepath", "os/exec", "os/signal", "syscall", "time", "database/sql", "embed", "log", "log/slog", "unsafe"}

func TestImportOrder(t *testing.T) {
	allowed := map[string][]string{}
	for line := range strings.Lines(policy) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, list, ok := strings.Cut(line, ":")
		if !ok {
			t.Fatalf("policy line %q", line)
		}
		allowed[name] = strings.Fields(list)
	}
	seen := map[string]bool{}
	for _, root := range []string{".", "../cmd", "../chaos", "../infer"} {
		err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), "_") {
				return fs.SkipDir // a generator, a module of its own
			}
			if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || strings.Contains(file, "testdata") {
				return err
			}
			name := strings.TrimPrefix(path.Dir(filepath.ToSlash(file)), "../")
			if strings.HasPrefix(name, "model/modeltest") && root == "." {
				name = "model/modeltest"
			}
			list, ok := allowed[name]
			if !ok {
				t.Errorf("%s: package %s is not in the policy", file, name)
				return nil
			}
			seen[name] = true
			checkFile(t, file, name, list)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(allowed)) {
		if !seen[name] {
			t.Errorf("the policy names %s, which does not exist", name)
		}
	}
}

func checkFile(t *testing.T, file, name string, list []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		ours, isOurs := strings.CutPrefix(imported, "shaver/internal/")
		switch {
		case isOurs:
			if !slices.Contains(list, ours) {
				t.Errorf("%s: %s may not import %s", file, name, ours)
			}
		case strings.Contains(strings.Split(imported, "/")[0], "."):
			if !slices.ContainsFunc(list, func(module string) bool { return imported == module || strings.HasPrefix(imported, module+"/") }) {
				t.Errorf("%s: %s may not import %s", file, name, imported)
			}
		case imported == "C":
			t.Errorf("%s: cgo", file)
		case slices.Contains(list, "pure") && slices.Contains(impure, imported):
			t.Errorf("%s: %s is pure and may not import %s", file, name, imported)
		}
	}
}

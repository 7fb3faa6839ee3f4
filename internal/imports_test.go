// Package internal_test checks that each package imports only what the architecture
// allows.
package internal_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// policy is the import order. It has a line for every package of the module. The line
// lists the packages of this module that the package imports, without "internal/", and
// the other modules, for which a prefix of the path is enough. A package may import only
// what its line lists, and must import all of it. Every package may import the standard
// library, except that pure packages may not import the packages listed in impure. Tests
// may import anything. docs/internals/design.md says what each area has. Change it if a
// package moves to another area, or an area gets a new purpose.
const policy = `
# foundations
base/fault:
num/random: pure
base/atomicfile: base/fault base/filelock
base/filelock:
base/cputime: golang.org/x/sys
base/seal: base/fault
base/files: base/fault
base/style:
base/long:
base/chart: base/atomicfile base/fault base/files

# the pure core: no file, no network, no clock
num/kernel: pure golang.org/x/sys
num/vector: pure golang.org/x/sys
onnx/graph: pure base/files
num/layout: pure
value/estimator: pure
onnx/execute: pure onnx/graph num/kernel
num/loss: pure
click/model: pure onnx/execute onnx/graph num/kernel num/layout num/vector
click/match: pure onnx/graph click/model
value/tally: pure value/estimator num/layout num/vector gonum.org/v1/gonum/mathext
value/shapley: pure value/estimator num/layout num/loss click/model num/random value/tally num/vector golang.org/x/sync value/baseline
value/baseline: pure click/model num/random
value/mask: pure click/model num/random num/layout
value/compare: pure num/layout gonum.org/v1/gonum
click/train: pure click/composed num/kernel num/loss click/model num/random
click/evaluate: pure base/fault num/loss click/model golang.org/x/sync gonum.org/v1/gonum
jobs/job: pure click/model value/estimator num/loss
click/compact: pure num/kernel click/model
click/composed: pure
data/dense: pure click/model

# files; arrowio and columnfile are the only importers of Arrow, and columnfile of Parquet
click/checkpoint/family: pure base/fault click/model click/tensor
click/checkpoint: base/atomicfile click/compact click/composed onnx/dissect onnx/emit base/fault onnx/graph click/match click/model onnx/wire base/seal base/files click/checkpoint/family click/tensor click/modelfile
click/inspect: click/checkpoint click/compact click/composed click/model onnx/dissect onnx/wire
onnx/wire: base/fault base/files google.golang.org/protobuf
onnx/dissect: base/fault onnx/graph onnx/wire
onnx/emit: base/fault onnx/graph onnx/wire
data/arrowio: base/fault num/layout click/model value/tally github.com/apache/arrow/go/v17/arrow github.com/google/flatbuffers github.com/klauspost/compress
data/columnfile: base/fault base/files click/model data/arrowio num/layout value/tally github.com/apache/arrow/go/v17/arrow github.com/apache/arrow/go/v17/parquet
data/lake: base/fault data/columnfile github.com/RoaringBitmap/roaring/v2/roaring64
data/lake/iceberg: base/fault base/files data/columnfile data/lake github.com/RoaringBitmap/roaring/v2/roaring64 github.com/klauspost/compress data/folders
data/lake/deltalog: base/fault base/files data/columnfile data/lake github.com/RoaringBitmap/roaring/v2/roaring64 data/folders
data/rawtext: base/fault base/files github.com/klauspost/compress
data/folders: base/fault base/files
data/vocabulary: base/fault base/files data/rawtext data/columnfile data/dataset
data/dataset: data/arrowio data/dense base/fault num/loss click/model base/files
data/measure: base/atomicfile base/fault base/files click/evaluate click/model data/dataset data/dense num/loss data/columnfile
data/ingest: data/arrowio base/atomicfile data/dataset data/dense base/fault base/filelock data/folders click/model num/random data/rawtext data/vocabulary base/files golang.org/x/sync data/columnfile data/lake
jobs/scores: data/arrowio base/atomicfile num/layout value/estimator base/fault jobs/job click/model base/seal value/tally base/files value/compare value/mask
jobs/paired: click/model jobs/scores value/tally
value/tallyio: base/fault num/layout value/tally base/files
value/path: base/fault num/layout num/loss click/model value/estimator value/mask value/tally value/tallyio
jobs/shard: data/arrowio value/estimator jobs/job click/model num/random
click/planted: click/checkpoint click/model num/random
# rows of pruned models in Redis; the only importer of its client
data/redisrows: base/fault github.com/redis/go-redis/v9
data/redisrows/redistest:
data/synth: base/fault num/random github.com/klauspost/compress golang.org/x/sync

# what happens in a night; nightly does not know how its steps compute
prune/nightly: base/atomicfile base/fault base/filelock base/files go.yaml.in/yaml/v3

# the cost of pruning, and pages about jobs, datasets and nights; report opens no file, but is not
# pure because its imports are not
prune/keep: pure click/compact click/model num/layout value/mask
prune/sweep: prune/keep value/baseline click/compact value/estimator click/evaluate base/fault num/loss click/model value/mask jobs/scores base/files num/layout
prune/benchmark: prune/sweep
prune/rate: pure click/compact click/model
prune/gate: click/evaluate num/loss prune/sweep base/fault base/files
prune/cut: prune/keep base/fault click/checkpoint click/compact click/evaluate click/model data/dataset data/measure jobs/scores jobs/shard num/layout num/loss onnx/dissect prune/rate prune/slice prune/sweep value/mask value/shapley jobs/job value/baseline value/tally click/modelfile
prune/slice: base/atomicfile base/fault base/files num/loss prune/sweep
prune/delta: base/atomicfile base/fault base/files base/seal click/checkpoint click/compact click/model data/columnfile value/mask
prune/delta/toredis: data/redisrows prune/delta
prune/worth: base/atomicfile base/fault data/dataset jobs/scores prune/cut data/columnfile
prune/explain: base/fault click/evaluate click/model data/dataset jobs/scores num/loss value/shapley gonum.org/v1/gonum
prune/picture: pure base/chart prune/sweep
prune/report: prune/explain prune/gate base/chart data/dataset base/fault click/evaluate click/model prune/nightly prune/picture value/mask jobs/scores prune/sweep base/files num/layout base/style prune/slice num/loss jobs/gap value/path

# the job; bus is the only importer of NATS
jobs/bus: base/fault jobs/job base/files github.com/nats-io go.uber.org/zap golang.org/x/sync
jobs/worker: data/arrowio base/atomicfile value/baseline jobs/bus data/dataset base/fault base/files jobs/job num/kernel num/layout click/model value/mask value/shapley jobs/shard value/tally go.uber.org/zap click/modelfile
jobs/gap: click/evaluate click/model data/dataset jobs/job num/loss gonum.org/v1/gonum
jobs/prepare: jobs/gap value/baseline data/dataset value/estimator click/evaluate base/fault jobs/job num/kernel num/loss value/mask click/model value/path jobs/scores jobs/shard value/tally go.uber.org/zap value/shapley click/modelfile
jobs/forecast: base/cputime base/fault value/estimator jobs/job num/kernel num/layout click/model value/mask value/path jobs/prepare value/shapley jobs/shard value/tally go.uber.org/zap golang.org/x/sync
jobs/merger: data/arrowio jobs/bus base/fault jobs/job num/layout value/path value/tally value/tallyio go.uber.org/zap golang.org/x/sync
jobs/coordinator: data/arrowio base/atomicfile value/baseline jobs/bus value/compare click/evaluate base/fault jobs/forecast jobs/job num/layout num/loss jobs/merger click/model jobs/paired value/path jobs/prepare jobs/scores jobs/shard value/tally value/tallyio go.uber.org/zap golang.org/x/sync click/modelfile
jobs/window: base/atomicfile value/baseline data/dataset value/estimator base/fault base/filelock jobs/job num/layout num/loss click/model jobs/paired jobs/prepare jobs/scores base/seal value/tally value/tallyio base/files go.uber.org/zap click/modelfile
jobs/audit: jobs/bus value/compare jobs/coordinator num/layout jobs/prepare jobs/scores value/tally go.uber.org/zap
jobs/bus/embedded: github.com/nats-io go.uber.org/zap

# copies between object stores and local folders; the only importer of their libraries
ops/remote: base/atomicfile base/fault base/filelock base/files github.com/minio/minio-go/v7 github.com/Azure/azure-sdk-for-go/sdk golang.org/x/oauth2 golang.org/x/sync

ops/remote/remotetest: base/filelock

# health and metrics of a process; the only importer of Prometheus
ops/metrics: base/fault base/files github.com/prometheus/client_golang

# runs of MLflow and events of OpenLineage
ops/tracking: base/fault

# metrics of all jobs, and the number of workers
ops/autoscale: base/fault base/files go.uber.org/zap
ops/overview: ops/autoscale jobs/bus jobs/job ops/metrics go.uber.org/zap
ops/page: base/chart base/style jobs/bus jobs/job

# programs that people and clusters run
app/cli: base/atomicfile jobs/bus base/fault click/model jobs/job num/kernel github.com/spf13/cobra github.com/spf13/pflag go.uber.org/zap golang.org/x/term
app/flags: app/cli data/dataset jobs/scores num/loss prune/keep value/mask github.com/spf13/cobra
app/places: click/checkpoint app/cli data/dataset data/folders base/fault ops/remote jobs/window base/files github.com/spf13/cobra github.com/spf13/pflag go.uber.org/zap
app/tables: app/places base/fault data/columnfile data/dataset data/folders data/ingest data/lake data/lake/deltalog data/lake/iceberg ops/remote
app/launch: base/atomicfile jobs/audit jobs/bus app/cli jobs/coordinator base/cputime base/fault base/filelock jobs/forecast jobs/job num/kernel ops/metrics jobs/prepare jobs/scores value/tally jobs/window jobs/worker app/process jobs/bus/embedded base/files go.uber.org/zap golang.org/x/sync ops/page click/modelfile
app/training: app/cli base/cputime base/fault base/filelock click/checkpoint click/compact click/composed click/evaluate click/model click/train data/dataset data/measure jobs/scores num/kernel num/loss base/files num/layout base/atomicfile
app/sweeping: app/cli app/training base/fault click/checkpoint click/compact click/evaluate click/model data/dataset data/measure jobs/scores prune/cut prune/keep prune/sweep value/baseline value/mask value/estimator
app/steps: app/cli app/training base/atomicfile base/fault click/checkpoint click/compact data/dataset num/loss prune/cut prune/gate prune/slice prune/sweep value/mask click/evaluate click/model data/measure click/modelfile jobs/scores
app/night: app/cli app/places base/atomicfile base/cputime base/fault click/checkpoint click/compact click/planted data/dataset data/ingest jobs/scores num/kernel ops/metrics ops/tracking base/files prune/delta prune/gate prune/nightly prune/report value/baseline value/estimator value/mask app/reporting app/score app/steps go.uber.org/zap app/sweeping prune/sweep click/evaluate num/loss app/tables data/lake ops/remote
app/compress: app/cli app/reporting app/score app/steps app/sweeping base/atomicfile base/fault click/checkpoint click/compact data/dataset prune/gate prune/report prune/sweep value/mask jobs/scores prune/cut click/model
app/quickstart: app/cli app/launch app/sweeping app/training base/atomicfile click/checkpoint click/compact click/model click/planted click/train data/dataset data/ingest jobs/scores prune/sweep value/baseline value/estimator value/mask app/score app/steps app/compress
app/rivals: app/cli app/training base/atomicfile base/cputime base/fault base/filelock click/checkpoint click/model click/train data/dataset jobs/scores prune/benchmark prune/picture value/baseline value/estimator value/mask base/files app/score app/steps num/kernel
app/reporting: prune/explain value/mask app/cli app/launch base/fault base/files click/checkpoint prune/cut prune/report prune/sweep prune/worth jobs/scores prune/slice jobs/gap base/atomicfile data/dataset base/chart
app/merge: app/cli app/process jobs/job jobs/merger github.com/spf13/cobra go.uber.org/zap
app/score: base/files click/model github.com/spf13/cobra go.uber.org/zap app/cli app/launch app/merge app/places base/fault click/checkpoint data/dataset jobs/bus jobs/coordinator jobs/forecast jobs/job jobs/prepare jobs/scores jobs/window num/kernel num/loss value/baseline value/estimator click/modelfile
app/process: app/cli jobs/bus jobs/job jobs/worker ops/metrics github.com/spf13/cobra go.uber.org/zap
app/work: app/cli app/process base/cputime base/fault jobs/job jobs/worker num/kernel github.com/spf13/cobra go.uber.org/zap
cmd/shaver: prune/explain base/chart data/arrowio base/atomicfile ops/autoscale value/baseline prune/benchmark jobs/bus click/checkpoint app/cli click/compact value/compare click/composed jobs/coordinator data/dataset data/dense onnx/dissect value/estimator click/evaluate base/fault jobs/forecast prune/gate data/ingest jobs/job num/kernel app/launch app/score num/loss ops/metrics click/model prune/nightly ops/overview prune/picture app/places jobs/prepare value/mask prune/report jobs/scores prune/sweep data/synth value/tally click/train data/measure prune/slice prune/cut prune/worth app/rivals app/training app/sweeping app/night click/inspect prune/delta prune/delta/toredis data/redisrows base/files app/flags app/quickstart app/reporting cmd/shaver/help num/layout github.com/spf13/cobra go.uber.org/zap ops/page app/steps click/modelfile data/columnfile app/compress app/tables data/lake github.com/spf13/pflag
cmd/shaver/help: app/cli
cmd/coordinator: app/cli app/score github.com/spf13/cobra
cmd/worker: app/cli app/work github.com/spf13/cobra

# for other programs: scoring with a pruned model
infer: click/checkpoint base/fault base/files click/compact click/model golang.org/x/sys
infer/redis: infer data/redisrows
infer/c: infer base/fault C
infer/browser: infer
infer/infertest: infer click/checkpoint click/compact click/model onnx/dissect

# runs of a cluster with injected faults; chaos bypasses bus to damage and to check
# what is stored
chaos: chaos/clock chaos/lan app/cli num/kernel github.com/nats-io/nats.go golang.org/x/sys
chaos/clock:
chaos/lan: golang.org/x/sys

# for tests of other packages
jobs/prepare/preparetest: value/baseline data/dataset value/estimator data/ingest click/model click/planted jobs/prepare jobs/scores value/tally go.uber.org/zap click/modelfile click/checkpoint
prune/delta/deltatest: click/checkpoint click/compact click/model click/train data/redisrows
jobs/scores/scorestest: click/model click/model/modeltest jobs/job jobs/scores num/layout value/estimator value/tally
app/training/trainingtest: data/ingest num/random
click/model/modeltest: onnx/graph click/model
click/checkpoint/family/familytest: click/model click/tensor
click/modelfile: base/fault base/files click/model click/tensor onnx/graph base/atomicfile
click/tensor: base/fault base/seal base/files
onnx/wire/onnxtest: google.golang.org/protobuf
value/estimator/estimatortest: value/estimator
onnx/graph/graphtest: onnx/graph

# measurements, for developers
bench: base/cputime value/baseline click/checkpoint value/estimator num/kernel click/model click/model/modeltest value/shapley
bench/fields: click/checkpoint click/evaluate click/model data/dataset num/loss num/random prune/cut prune/slice
bench/full: app/cli base/atomicfile base/filelock data/dataset jobs/forecast
bench/train: num/kernel click/model num/random click/train
bench/rankings: base/chart click/compact base/atomicfile bench/gates bench/paired bench/stage value/baseline value/estimator click/checkpoint data/dataset click/evaluate click/model prune/picture value/mask jobs/scores prune/sweep data/measure
bench/gates: num/kernel num/layout num/loss click/model num/random value/mask
bench/claims: bench/paired bench/stage value/baseline click/checkpoint click/compact data/dataset click/evaluate num/loss click/model value/mask jobs/scores prune/sweep
bench/paired: data/dataset click/evaluate num/loss click/model gonum.org/v1/gonum
bench/stage: base/atomicfile
bench/estimators: base/chart bench/flights base/cputime value/baseline value/compare value/estimator num/kernel click/model click/planted value/shapley value/tally
bench/equalwork: base/chart bench/flights bench/stage value/baseline click/checkpoint base/cputime value/estimator num/kernel click/model num/random value/shapley value/tally gonum.org/v1/gonum
bench/flights: click/checkpoint data/dataset data/ingest click/model

# the steps of a trial of a whole system, and the page about them
deploy/compose/try: app/cli deploy/internal/trial

# tools, and packages that contain only tests
deploy/k8s:
ops/remote/remotetest: base/filelock
deploy/k8s/try: app/cli click/checkpoint deploy/k8s/try/cluster jobs/job click/model click/planted deploy/internal/trial github.com/minio/minio-go
deploy/k8s/try/cluster: deploy/internal/trial golang.org/x/sys
deploy/k8s/monitoring:
deploy/nats:
deploy/nats/keys: github.com/nats-io/nkeys
deploy/internal/trial:
docs/prose:
internal:
mutants:
release: github.com/google/licensecheck golang.org/x/crypto
release/module:
schemas:
`

// areas is the order of the folders of internal, and of the programs. A package imports nothing of an area
// to its right. Areas between commas do not import each other.
const areas = "base < num < onnx < click < value < data < jobs < prune, ops < app < cmd"

// The policy follows the order of the areas.
func TestAreas(t *testing.T) {
	position := map[string]int{}
	for i, place := range strings.Split(areas, " < ") {
		for _, area := range strings.Split(place, ", ") {
			position[area] = i + 1
		}
	}
	folders, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		if f.IsDir() && position[f.Name()] == 0 {
			t.Errorf("internal/%s is not an area", f.Name())
		}
	}
	area := func(name string) string { return strings.Split(name, "/")[0] }
	for line := range strings.Lines(policy) {
		name, list, _ := strings.Cut(strings.TrimSpace(line), ":")
		at := position[area(name)]
		for _, imported := range strings.Fields(list) {
			if p := position[area(imported)]; at > 0 && p > 0 && (p > at || p == at && area(imported) != area(name)) {
				t.Errorf("%s imports %s: expected no area to the right in %s", name, imported, areas)
			}
		}
	}
}

// core is the first ring: what computes a job from rows and a model to its scores. It reads only forms of our own, and
// imports nothing outside the ring. Areas stand for all their packages.
const core = "base num value jobs onnx/graph onnx/execute click/model click/modelfile click/tensor click/evaluate " +
	"data/arrowio data/dataset data/dense"

// extras are for few users: rivals of the path, Redis, and synthetic logs. Only programs and each other import them.
const extras = "app/rivals data/redisrows prune/delta/toredis data/synth"

// workshop measures, breaks and ships whole systems. Nothing imports it.
const workshop = "bench chaos deploy docs release"

// A ring imports itself and those inside it.
func TestRings(t *testing.T) {
	in := func(ring, name string) bool {
		return slices.ContainsFunc(strings.Fields(ring), func(of string) bool { return name == of || strings.HasPrefix(name, of+"/") })
	}
	for line := range strings.Lines(policy) {
		name, list, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || name[0] == '#' || strings.HasSuffix(name, "test") {
			continue
		}
		for _, imported := range strings.Fields(list) {
			ours := strings.Contains(policy, "\n"+imported+":")
			program := in("cmd infer", name) || in(workshop, name)
			switch {
			case !ours:
			case in(core, name) && !in(core, imported):
				t.Errorf("%s of the core imports %s", name, imported)
			case in(extras, imported) && !in(extras, name) && !program:
				t.Errorf("%s imports %s of the extras", name, imported)
			case in(workshop, imported) && !in(workshop, name):
				t.Errorf("%s imports %s of the workshop", name, imported)
			}
		}
	}
}

// linked are the packages of this module that the two programs of a cluster link, and the most lines that these have without
// tests. A program that links more is larger, and its reader has more to know.
var linked = []struct {
	program string
	lines   int
	never   string // beginnings of packages that it does not link, of this module or others
}{
	{"cmd/worker", 47_200, "click/checkpoint click/compact click/composed click/match onnx/wire onnx/dissect onnx/emit ops/remote prune data/columnfile data/vocabulary data/rawtext github.com/apache/arrow/go/v17/parquet gonum.org/v1/gonum/stat"},
	{"cmd/coordinator", 97_000, "click/train prune/cut prune/sweep prune/report"},
}

// templates matches what links package text/template, which calls methods by their names. The linker then cannot
// remove unused methods. cobra has templates too, but links the package only for those that a program sets.
var templates = regexp.MustCompile(`"(text|html)/template"|\.Set(Version|Help|Usage)Template\(`)

// The programs of a cluster link little.
func TestLinked(t *testing.T) {
	imports := map[string][]string{}
	for line := range strings.Lines(policy) {
		if name, list, ok := strings.Cut(line, ":"); ok {
			imports[name] = strings.Fields(list)
		}
	}
	for _, l := range linked {
		lines, seen := 0, map[string]bool{l.program: true}
		for all := []string{l.program}; len(all) > 0; all = all[1:] {
			name := all[0]
			folder := name
			if strings.HasPrefix(name, "cmd/") {
				folder = "../" + name
			}
			files, err := filepath.Glob(folder + "/*.go")
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.HasSuffix(file, "_test.go") {
					lines += strings.Count(string(text), "\n")
					if found := templates.Find(text); found != nil && l.program == "cmd/worker" {
						t.Errorf("%s has %s, which makes %s much larger", file, found, l.program)
					}
				}
			}
			for _, imported := range imports[name] {
				for _, never := range strings.Fields(l.never) {
					if imported == never || strings.HasPrefix(imported, never+"/") {
						t.Errorf("%s links %s, which %s imports", l.program, imported, name)
					}
				}
				if imports[imported] != nil && !seen[imported] {
					seen[imported] = true
					all = append(all, imported)
				}
			}
		}
		t.Logf("%s links %d packages with %d lines", l.program, len(seen), lines)
		if lines > l.lines {
			t.Errorf("%s links %d lines of this module, expected at most %d", l.program, lines, l.lines)
		}
	}
}

// opening lists the files whose functions may open others: package files, atomicfile, which opens folders, and readers of an
// os.Root, which look at a file before.
var opening = []string{
	"base/files/files.go", "base/atomicfile/atomicfile.go", "jobs/worker/store.go", "onnx/wire/external.go",
}

// opens matches calls that open a file.
var opens = regexp.MustCompile(`\b(os\.(Open|ReadFile)|[rR]oot\.Open(File)?)\(`)

// No program opens a pipe or a device where it expects a file, because all open files with package files, or look at them
// before.
func TestOpens(t *testing.T) {
	for _, folder := range []string{".", "../cmd", "../infer"} {
		err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") || strings.HasSuffix(filepath.Dir(file), "test") {
				return err
			}
			text, err := os.ReadFile(file)
			if found := opens.FindAll(text, -1); len(found) > 0 && !slices.Contains(opening, filepath.ToSlash(file)) {
				t.Errorf("%s calls %s: expected files.Open or files.Small", file, found[0])
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// impure lists the packages of the standard library that a pure package may not import.
var impure = []string{"os", "net", "io", "io/fs", "net/http", "path/filepath", "os/exec", "os/signal", "syscall", "time", "database/sql", "embed", "log", "log/slog", "unsafe"}

// Every package imports exactly what the policy lists for it.
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
	used := map[string]map[string]bool{} // by package, the permissions that its files use
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	module := strings.Fields(string(mod))[1]
	err = filepath.WalkDir("..", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && name != ".." && (name[0] == '_' || name[0] == '.' || name == "testdata") {
			return fs.SkipDir // the go command skips these folders too
		}
		if entry.IsDir() || !strings.HasSuffix(file, ".go") {
			return nil
		}
		name := path.Dir(strings.TrimPrefix(filepath.ToSlash(file), "../"))
		name = strings.TrimPrefix(name, "internal/")
		list, ok := allowed[name]
		if !ok {
			t.Errorf("%s: package %s is not in the policy", file, name)
			return nil
		}
		if used[name] == nil {
			used[name] = map[string]bool{"pure": true}
		}
		if !strings.HasSuffix(file, "_test.go") {
			checkFile(t, module, file, name, list, used[name])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(allowed)) {
		if used[name] == nil {
			t.Errorf("the policy names %s, which does not exist", name)
			continue
		}
		for _, permission := range allowed[name] {
			if !used[name][permission] {
				t.Errorf("the policy lists %[2]s for %[1]s, which does not import it", name, permission)
			}
		}
	}
}

// checkFile checks the imports of a file in the named package of a module. list is what the package
// may import. checkFile adds to used the entries of list that the file imports.
func checkFile(t *testing.T, module, file, name string, list []string, used map[string]bool) {
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
		ours, isOurs := strings.CutPrefix(imported, module+"/")
		var permission int
		switch {
		case imported == "C": // cgo
			permission = slices.Index(list, "C")
		case isOurs:
			permission = slices.Index(list, strings.TrimPrefix(ours, "internal/"))
		case strings.Contains(strings.Split(imported, "/")[0], "."):
			permission = slices.IndexFunc(list, func(other string) bool { return imported == other || strings.HasPrefix(imported, other+"/") })
		case slices.Contains(list, "pure") && slices.Contains(impure, imported):
			t.Errorf("%s: %s is pure and may not import %s", file, name, imported)
			continue
		default:
			continue
		}
		if permission < 0 {
			t.Errorf("%s: %s may not import %s", file, name, imported)
		} else {
			used[list[permission]] = true
		}
	}
}

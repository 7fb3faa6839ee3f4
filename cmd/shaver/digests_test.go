package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/num/kernel"
	"shaver/internal/value/estimator"
)

var rewrite = flag.Bool("rewrite", false, "write the files that the tests compare with: testdata/digests.json and testdata/outputs.json for this machine's kernels, testdata/documents, and docs/reference/cli")

// digestsFile holds the records: kernel -> case -> digests.
var digestsFile = filepath.Join("testdata", "digests.json")

// digests identify a job and what it computes.
type digests struct {
	Job    string `json:"job"`    // the job's id
	Scores string `json:"scores"` // SHA-256 of the scores file, hexadecimal
}

// digestCase is one job that TestDigests pins.
type digestCase struct {
	name    string
	model   string   // a model of testdata/golden
	flags   []string // of shaver score
	earlier []string // flags of the previous job, of which model is the model; nil = the job is not paired
	exit    int      // expected exit code
	kernels int      // how many kernels run it, the fastest first, without SHAVER_LONG=2
}

// Each model of testdata/golden has an architecture, except that two are DeepFM.
// With deepfm-plain, which has no BatchNorm, the options are tried.
var (
	digestModels     = []string{"fm", "deepfm", "dcn-mix", "dcnv2-parallel", "dcnv2-stacked", "neumf"}
	digestEstimators = []string{"permutation", "antithetic", "multilinear", "debiased", "exact", "taylor", "path"}
	digestBaselines  = []string{"zero", "codebook"}
)

// digestOptions are jobs of the model deepfm-plain. Only permutation and antithetic
// take several passes, and only multilinear takes draws, end points and an audit.
var digestOptions = []digestCase{
	{name: "seed", flags: []string{"--seed", "18446744073709551615"}},
	{name: "permutation, passes", flags: []string{"--passes", "3"}},
	{name: "antithetic, passes", flags: []string{"--estimator", "antithetic", "--passes", "2", "--baseline", "codebook"}},

	{name: "sample", flags: []string{"--sample", "0.5", "--seed", "3"}},
	{name: "sample of one row", flags: []string{"--sample", "0.0001"}},
	{name: "sample, passes", flags: []string{"--sample", "0.7", "--passes", "2"}},
	{name: "sample, multilinear", flags: []string{"--sample", "0.5", "--estimator", "multilinear"}},
	{name: "sample, exact", flags: []string{"--sample", "0.5", "--estimator", "exact"}},
	{name: "sample, taylor", flags: []string{"--sample", "0.5", "--estimator", "taylor"}},
	{name: "max rows", flags: []string{"--max-rows", "10"}},

	{name: "split train", flags: []string{"--splits", "train"}},
	{name: "split test, codebook", flags: []string{"--splits", "test", "--baseline", "codebook"}},
	{name: "splits in another order", flags: []string{"--splits", "val,train"}},
	{name: "all splits", flags: []string{"--splits", "train,val,test"}},

	{name: "multilinear, draws", flags: []string{"--estimator", "multilinear", "--draws", "6"}},
	{name: "multilinear, balanced", flags: []string{"--estimator", "multilinear", "--draws", "4", "--endpoints", "balanced"}},
	{name: "multilinear, balanced, codebook", flags: []string{"--estimator", "multilinear", "--draws", "8", "--endpoints", "balanced", "--baseline", "codebook"}},
	{name: "debiased, passes", flags: []string{"--estimator", "debiased", "--draws", "4", "--flips", "3", "--passes", "2", "--baseline", "codebook"}},
	{name: "multilinear, audit", flags: []string{"--estimator", "multilinear", "--audit", "0.5"}},

	{name: "path, parts", flags: []string{"--estimator", "path", "--parts", "16", "--sparsity", "0.9", "--baseline", "codebook"}},
	{name: "path, sample", flags: []string{"--estimator", "path", "--sample", "0.5", "--seed", "3"}},

	{name: "paper, met", flags: []string{"--until", "paper", "--bound", "0.9"}},
	{name: "paper, unmet", flags: []string{"--until", "paper", "--passes", "3"}, exit: 3},
	{name: "overlap, met", flags: []string{"--until", "overlap", "--bound", "0.05", "--sparsity", "0.5", "--passes", "4"}},
	{name: "overlap, unmet", flags: []string{"--until", "overlap", "--bound", "0.999", "--passes", "4", "--baseline", "codebook"}, exit: 3},
	{name: "overlap, unmet, antithetic", flags: []string{"--until", "overlap", "--bound", "0.999", "--passes", "2", "--estimator", "antithetic"}, exit: 3},
	{name: "overlap, unmet, multilinear", flags: []string{"--until", "overlap", "--bound", "0.999", "--sparsity", "0.5", "--estimator", "multilinear", "--draws", "4"}, exit: 3},
	{name: "overlap, unmet, exact", flags: []string{"--until", "overlap", "--bound", "0.999", "--sparsity", "0.5", "--estimator", "exact", "--sample", "0.6"}, exit: 3},
	{name: "overlap, unmet, taylor", flags: []string{"--until", "overlap", "--bound", "0.999", "--sparsity", "0.5", "--estimator", "taylor"}, exit: 3},
	{name: "error, met", flags: []string{"--until", "error", "--bound", "0.5", "--estimator", "exact"}},
	{name: "error, unmet", flags: []string{"--until", "error", "--bound", "0.001", "--passes", "2"}, exit: 3},

	{name: "fields, exact", flags: []string{"--players", "fields", "--estimator", "exact", "--baseline", "zero"}},
	{name: "fields, antithetic, codebook", flags: []string{"--players", "fields", "--estimator", "antithetic", "--baseline", "codebook", "--passes", "2"}},
	{name: "fields, marginal", flags: []string{"--players", "fields", "--estimator", "permutation", "--baseline", "marginal", "--sample", "0.8"}},
	{name: "fields, error, met", flags: []string{"--players", "fields", "--until", "error", "--bound", "0.9", "--estimator", "exact", "--baseline", "marginal"}},
	{name: "pairs, exact", flags: []string{"--players", "pairs", "--estimator", "exact", "--baseline", "marginal"}},
	{name: "pairs, antithetic", flags: []string{"--players", "pairs", "--estimator", "antithetic", "--baseline", "codebook", "--passes", "2"}},

	{name: "paired, permutation", earlier: []string{"--passes", "2"}, flags: []string{"--sample", "0.5"}},
	{name: "paired, antithetic, codebook", earlier: []string{"--estimator", "antithetic", "--baseline", "codebook", "--seed", "3"}, flags: []string{"--sample", "0.4"}},
	{name: "paired, multilinear, codebook", earlier: []string{"--estimator", "multilinear", "--baseline", "codebook"}, flags: []string{"--sample", "0.5"}},
	{name: "paired, debiased", earlier: []string{"--estimator", "debiased"}, flags: []string{"--sample", "0.5"}},
	{name: "paired, exact", earlier: []string{"--estimator", "exact", "--sample", "0.7"}, flags: []string{"--sample", "0.5"}},
	{name: "paired, taylor", earlier: []string{"--estimator", "taylor"}, flags: []string{"--max-rows", "9"}},
	{name: "paired, all rows", earlier: []string{}, flags: []string{"--sample", "1"}},
	{name: "paired, overlap", earlier: []string{"--estimator", "multilinear"}, flags: []string{"--until", "overlap", "--bound", "0.01", "--sparsity", "0.5", "--sample", "0.6"}},
	{name: "paired, error", earlier: []string{}, flags: []string{"--until", "error", "--bound", "1e-6", "--sample", "0.6"}, exit: 3},
}

// digestCases returns every estimator with every architecture and both baselines,
// and the options. No combination is missing: a row of a golden has at most 10
// players, and exact takes up to 20. How a job is cut into shards does not matter for
// its digests: one shard saves time, and the options have several to merge.
func digestCases() []digestCase {
	var cases []digestCase
	for i, model := range digestModels {
		for j, estimator := range digestEstimators {
			for k, baseline := range digestBaselines {
				kernels := 0
				switch {
				case (i+j+k)%2 == 1: // the other baseline's turn
				case (i+j)%len(digestEstimators) > 1:
					kernels = 1
				default: // two estimators of each model, and two models of each estimator
					kernels = math.MaxInt
				}
				cases = append(cases, digestCase{
					name:    strings.Join([]string{model, estimator, baseline}, ", "),
					model:   model,
					flags:   []string{"--estimator", estimator, "--baseline", baseline, "--rows-per-shard", "100"},
					kernels: kernels,
				})
			}
		}
	}
	for _, c := range digestOptions {
		c.model = "deepfm-plain"
		c.flags = append(slices.Clone(c.flags), "--rows-per-shard", "10")
		c.kernels = 1
		cases = append(cases, c)
	}
	return cases
}

// TestDigests pins the ids of jobs and the bytes of their scores files, for every
// estimator and architecture and for the options that determine the scores. Users rely on
// both: a job that is submitted again is found by its id, and the same job has the same
// bytes. A refactoring does not change them.
//
// The test runs the command line on small models and rows, and compares with
// testdata/digests.json. Each kernel has its own records, because it rounds in its
// own way. To save time, the fastest kernel of the machine runs each estimator with
// each model and one of the baselines, and all options; other kernels run some of these
// cases. SHAVER_LONG=2 runs all cases with all kernels. A kernel without records is
// skipped, but on amd64 and arm64 at least one kernel must have records. The same job has the same values at
// avx2, avx512 and neon, and at the portable levels of amd64 and arm64, but not the same digests, because the file has the
// name of the kernel.
//
// The flag -rewrite runs all cases with all of the machine's kernels and writes their
// records; it keeps those of other kernels. There are four reasons to use it:
//
//   - job.SpecVersion was raised, because the same job now has different scores. Then
//     write the records again on machines with all of the kernels. If the revision of
//     an estimator was raised, only the records of its jobs change.
//   - arrowio.ScoresVersion was raised, because the form of the file changed. Then do the
//     same, and show that the job's id and all columns are the same as before.
//   - A kernel has no records yet. Add them on a machine where the test passes for the
//     other kernels.
//   - A case is new, or gone.
//
// Make's target pipeline-arm64 runs it for arm64 in qemu.
//
// For the last two reasons, the diff of the file only adds or deletes lines. Without a
// raise of one of these numbers, a changed digest is a bug in the code, not in the file.
func TestDigests(t *testing.T) {
	long.Test(t)
	records := map[string]map[string]digests{}
	if _, err := os.Stat(digestsFile); err == nil || !*rewrite {
		readJSON(t, digestsFile, &records)
	}
	dir := t.TempDir()
	writeLarger(t, filepath.Join(goldenDir, "deepfm-plain.pth"), filepath.Join(dir, "larger.safetensors"))
	for _, model := range append([]string{"deepfm-plain"}, digestModels...) {
		golden := filepath.Join(goldenDir, model)
		shaver(t, nil, "dataset", "import", "csv", "--ids", "global", "--train", golden+".rows.csv", "--model", golden+".pth", "--split", "2:1:1", "--out", filepath.Join(dir, model))
	}
	if !slices.Equal(digestEstimators, estimator.Names()) {
		t.Errorf("the cases are of the estimators %v, but the estimators are %v", digestEstimators, estimator.Names())
	}
	cases := digestCases()
	checked := 0 // kernels with records
	for _, level := range kernel.Names() {
		t.Run(level, func(t *testing.T) {
			want := records[level]
			if *rewrite {
				records[level] = writeDigests(t, level, dir, cases)
				return
			}
			if want == nil {
				t.Skipf("%s has no records of %s: see the comment of TestDigests", digestsFile, level)
			}
			wantCases(t, want, cases)
			faster := checked
			checked++
			for _, c := range cases {
				if faster >= c.kernels && !long.Hours() {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					found := runDigests(t, level, dir, &c)
					if found.Job != want[c.name].Job {
						t.Errorf("the job is %s, expected %s", found.Job, want[c.name].Job)
					}
					if found.Scores != want[c.name].Scores {
						t.Errorf("the scores are %s, expected %s", found.Scores, want[c.name].Scores)
					}
				})
			}
		})
	}
	if checked == 0 && !*rewrite && (runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64") {
		t.Errorf("%s has no records of any kernel of this machine", digestsFile)
	}
	if *rewrite && !t.Failed() {
		data, err := json.MarshalIndent(records, "", "\t")
		if err == nil {
			err = os.WriteFile(digestsFile, append(data, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// wantCases fails the test unless the records are of these cases and no others.
func wantCases(t *testing.T, records map[string]digests, cases []digestCase) {
	t.Helper()
	var names []string
	for _, c := range cases {
		names = append(names, c.name)
		if _, ok := records[c.name]; !ok {
			t.Errorf("%s has no record of %q", digestsFile, c.name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(records)) {
		if !slices.Contains(names, name) {
			t.Errorf("%s has a record of %q, which is not a case", digestsFile, name)
		}
	}
}

// writeDigests runs all cases with a kernel and returns what they give.
func writeDigests(t *testing.T, level, dir string, cases []digestCase) map[string]digests {
	t.Helper()
	var mu sync.Mutex
	found := map[string]digests{}
	t.Run("write", func(t *testing.T) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				d := runDigests(t, level, dir, &c)
				mu.Lock()
				defer mu.Unlock()
				found[c.name] = d
			})
		}
	})
	return found
}

// runDigests runs a case as a process. Its dataset is in dir, under the model's name.
func runDigests(t *testing.T, level, dir string, c *digestCase) digests {
	t.Helper()
	out, model, flags := filepath.Join(t.TempDir(), "scores.arrow"), filepath.Join(goldenDir, c.model+".pth"), c.flags
	if c.earlier != nil {
		earlier := filepath.Join(t.TempDir(), "earlier.arrow")
		runScore(t, 0, model, filepath.Join(dir, c.model), level, earlier, c.earlier)
		flags = append([]string{"--previous", earlier, "--previous-model", model}, flags...)
		model = filepath.Join(dir, "larger.safetensors")
	}
	stdout := runScore(t, c.exit, model, filepath.Join(dir, c.model), level, out, flags)
	var report struct{ Job string }
	if err := json.Unmarshal(stdout, &report); err != nil {
		t.Fatalf("shaver score %q printed no JSON: %v", flags, err)
	}
	scores, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(scores)
	return digests{Job: report.Job, Scores: hex.EncodeToString(sum[:])}
}

// runScore runs shaver score or, for a paired job, shaver nightly score. The command must end with
// the given exit code. runScore returns what it prints.
func runScore(t *testing.T, exit int, model, dataset, level, out string, flags []string) []byte {
	t.Helper()
	command := []string{"score"}
	if slices.Contains(flags, "--previous") {
		command = []string{"nightly", "score"}
	}
	args := slices.Concat(command, []string{"--model", model, "--dataset", dataset, "--out", out, "--kernel", level, "-o", "json"}, flags)
	cmd := emulated(t.Context(), "shaver", args...)
	cmd.Env = append(os.Environ(), "GOGC=off") // a short process with small data
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if code, other := exitCode(err); other != nil || code != exit {
		t.Fatalf("shaver %q: exit code %d, expected %d (%v)\n%s", args, code, exit, other, &stderr)
	}
	return stdout
}

// writeLarger writes the model at path to out, with every embedding made larger by a tenth.
func writeLarger(t *testing.T, path, out string) {
	t.Helper()
	ck, err := checkpoint.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	table, err := ck.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	table = slices.Clone(table)
	for i := range table {
		table[i] *= 1.1
	}
	file, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ck.WithEmbedding(table).WriteTo(file); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

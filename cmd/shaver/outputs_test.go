package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"shaver/internal/app/cli"
	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/kernel"
	"shaver/internal/num/loss"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

var (
	outputsFile  = filepath.Join("testdata", "outputs.json") // kernel -> output -> SHA-256
	documentsDir = filepath.Join("testdata", "documents")
)

// anyKernel is the kernel of outputs that have the same bytes at all kernels, because no logits are computed for them.
const anyKernel = "any"

// outputs is a folder of models with scores, in which commands write files.
type outputs struct {
	t         *testing.T
	level     string                       // kernel in use, or anyKernel
	found     map[string]map[string]string // kernel -> output -> SHA-256
	documents string                       // path of documentsDir
}

// outputModels are the models of the folder, by their names there.
var outputModels = map[string]string{
	"deepfm.pth":        "golden/deepfm.pth", // with BatchNorm
	"dcn-mix.pth":       "golden/dcn-mix.pth",
	"stacked.pth":       "golden/dcnv2-stacked.pth",
	"neumf.pth":         "golden/neumf.pth",
	"fuxictr.model":     "families/fuxictr-fm.model",
	"deepctr.h5":        "families/deepctr-torch-fm.h5",
	"lightning.ckpt":    "families/lightning.ckpt",
	"ncf.onnx":          "onnx/recbole-ncf.legacy.onnx", // two tables for each field
	"ncf.external.onnx": "onnx/ncf.external.onnx",
	"lists.onnx":        "histories/two-towers.onnx", // a list that shares its table
	"known.onnx":        "onnx/pytorch-fm-deepfm.legacy.onnx",
	"ratings.onnx":      "ratings/ratings.onnx", // the loss is squared
	"night.pth":         "nightly/deepfm.pth",
	"night-heavier.pth": "nightly/deepfm-heavier.pth",
}

// newOutputs makes the folder, and works in it, so that no output has a path of this machine.
func newOutputs(t *testing.T) *outputs {
	t.Helper()
	testdata, err := filepath.Abs(filepath.Join("..", "..", "testdata"))
	if err != nil {
		t.Fatal(err)
	}
	documents, err := filepath.Abs(documentsDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	o := &outputs{t: t, level: anyKernel, found: map[string]map[string]string{}, documents: documents}
	for name, path := range outputModels {
		from := filepath.Join(testdata, filepath.FromSlash(path))
		o.copy(from, name)
		for suffix, to := range map[string]string{".data": name + ".data", ".json": strings.TrimSuffix(name, filepath.Ext(name)) + ".json"} {
			beside := from + suffix
			if suffix == ".json" {
				beside = strings.TrimSuffix(from, filepath.Ext(from)) + suffix
			}
			if _, err := os.Stat(beside); err == nil {
				o.copy(beside, to)
			}
		}
	}
	for _, split := range []string{"train.csv", "val.csv", "test.csv"} {
		o.copy(filepath.Join(testdata, "ratings", split), split)
	}
	f, err := os.Open(filepath.Join(testdata, "nightly", "rows.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	log, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(io.LimitReader(log, 60_000)) // 3,800 rows
	if err != nil {
		t.Fatal(err)
	}
	o.write("log.csv", text[:bytes.LastIndexByte(text, '\n')+1])
	encodedRows(t, "pairs.csv", 300, 7, 11)
	return o
}

func (o *outputs) copy(from, to string) {
	o.t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		o.t.Fatal(err)
	}
	o.write(to, data)
}

func (o *outputs) write(name string, data []byte) {
	o.t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		o.t.Fatal(err)
	}
}

// run runs a command line in this process, at the kernel in use, and returns what it prints. It must end with the exit code.
func (o *outputs) run(args ...string) []byte {
	o.t.Helper()
	root := newRoot()
	cli.Setup(root)
	var out, log bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&log)
	root.SetArgs(recorded(append([]string{"shaver"}, args...))[1:])
	if err := root.ExecuteContext(o.t.Context()); err != nil {
		o.t.Fatalf("shaver %q: %v\n%s", args, err, &log)
	}
	return out.Bytes()
}

// note takes the digest of an output.
func (o *outputs) note(name string, data []byte) {
	o.t.Helper()
	of := o.found[o.level]
	if of == nil {
		of = map[string]string{}
		o.found[o.level] = of
	}
	if of[name] != "" {
		o.t.Fatalf("there are two outputs %q", name)
	}
	of[name] = fmt.Sprintf("%x", sha256.Sum256(data))
}

// noteFiles takes the digests of files in the folder.
func (o *outputs) noteFiles(names ...string) {
	o.t.Helper()
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			o.t.Fatal(err)
		}
		o.note(name, data)
	}
}

// noteFolder takes the digests of all files in a folder.
func (o *outputs) noteFolder(name string) {
	o.t.Helper()
	files, err := filepath.Glob(filepath.Join(name, "*"))
	if err != nil || len(files) == 0 {
		o.t.Fatalf("the folder %s is empty (%v)", name, err)
	}
	o.noteFiles(files...)
}

// score writes scores of a model: fixed numbers, which no kernel computes. The baseline is zero or the codebook.
func (o *outputs) score(model, output, out, base string) {
	o.t.Helper()
	ck, err := checkpoint.ReadOutput(model, output)
	if err != nil {
		o.t.Fatal(err)
	}
	a, r := &ck.Architecture, rand.New(rand.NewPCG(1, 2))
	n := a.Parameters()
	f := &scores.File{
		Layout: scores.LayoutOf(a), Baseline: a.Zero(), DatasetRows: 100,
		Spec:   job.Spec{Version: job.SpecVersion, Model: ck.Digest(), Splits: []string{"train"}, Sample: 1, Baseline: base, Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}},
		Result: tally.Result{Rows: 100, Scores: tally.Scores{Shape: a.Shape(), Count: a.RowCounts(slices.Repeat([]int64{3}, a.Features())), Values: tally.NewValues(n)}},
	}
	if output != "" {
		f.Spec.Loss = loss.Squared
	}
	for j := range a.FieldDims {
		f.Fields = append(f.Fields, "f"+strconv.Itoa(j))
	}
	for i := range f.Baseline.Values {
		if base == baseline.Codebook {
			f.Baseline.Values[i] = float32(i%4-1) / 8 // the same for fields that share a table of 4 columns
		}
	}
	for i, rank := range r.Perm(n) {
		f.Phi[i] = float64(rank*(1-rank%3)) / 256 // of both signs
		f.RMS[i], f.Abs[i] = float32(rank)/128, float32(rank^1)/128
		f.SE[i], f.PopulationSE[i] = .03125, .0625
	}
	if err := scores.Write(out, f); err != nil {
		o.t.Fatal(err)
	}
}

// pruned runs shaver prune with more flags, and notes what it writes.
func (o *outputs) pruned(out, flags string) {
	o.t.Helper()
	o.run(append([]string{"prune", "--out", out}, strings.Fields(flags)...)...)
	o.noteFiles(out)
}

// fixed writes the outputs that are the same at all kernels: scores that are not computed choose the entries.
func (o *outputs) fixed() {
	for name := range outputModels {
		o.score(name, map[string]string{"ratings.onnx": "rating"}[name], name+".zero", baseline.Zero)
		o.score(name, map[string]string{"ratings.onnx": "rating"}[name], name+".arrow", baseline.Codebook)
	}
	forms := append(compact.EncodingNames(), "dense")
	for model, of := range map[string][]string{
		"deepfm.pth": forms, "fuxictr.model": forms, "ncf.onnx": forms, "lists.onnx": forms,
		"dcn-mix.pth": {"float16"}, "stacked.pth": {"int8"}, "neumf.pth": {"float32"}, "deepctr.h5": {"int8", "dense"}, "lightning.ckpt": {"float16", "dense"}, "known.onnx": {"int8"},
	} {
		for _, form := range of {
			flags := "--values " + form
			if form == "dense" {
				flags = "--dense"
			}
			o.pruned(model+"."+form+".safetensors", "--model "+model+" --scores "+model+".arrow --sparsity 0.7 "+flags)
		}
	}
	for _, model := range []string{"ncf", "ncf.external", "lists", "known"} {
		from := "--model " + model + ".onnx --scores " + model + ".onnx.arrow --sparsity 0.8"
		o.pruned(model+".pruned.onnx", from)
		o.pruned(model+".compact.onnx", from+" --dense=false")
	}
	o.noteFiles("ncf.external.pruned.onnx.data", "ncf.external.compact.onnx.data")
	o.pruned("ratings.pruned.onnx", "--model ratings.onnx --model-output rating --scores ratings.onnx.arrow --sparsity 0.5")

	deepfm := "--model deepfm.pth --scores deepfm.pth.arrow "
	for name, flags := range map[string]string{
		"all":        "--sparsity 1",
		"none":       "--sparsity 0 --values float16",
		"bytes":      "--bytes 3420 --values int8",
		"parameters": "--parameters 15",
		"signed":     "--sparsity 0.5 --aggregate signed",
		"abs":        "--sparsity 0.5 --aggregate abs",
		"protected":  "--sparsity 0.5 --protect f1 --field-minimum 0.2",
	} {
		o.pruned(name+".safetensors", deepfm+flags)
	}
	o.pruned("zero.safetensors", "--model deepfm.pth --scores deepfm.pth.zero --sparsity 0.6")
	o.run("model", "convert", "zero.safetensors", "converted.safetensors", "--dense")
	o.noteFiles("converted.safetensors")
	o.pruned("next.safetensors", "--model deepfm.pth --scores deepfm.pth.arrow --sparsity 0.5 --hysteresis 3 --previous zero.safetensors")
	o.run("model", "delta", "next.safetensors", "--from", "zero.safetensors", "--generation", "2", "--out", "delta")
	o.noteFolder("delta")
	o.run("dataset", "import", "csv", "--train", "log.csv", "--split", "2:1:1", "--model", "night.pth", "--out", "data")
	o.pruned("layers.safetensors", "--model night.pth --scores night.pth.zero --layers 0.5,0.8,0.95 --values float16")
	o.pruned("zero-night.safetensors", "--model night.pth --scores night.pth.zero --sparsity 0.5")
	o.pruned("fields.safetensors", "--model night.pth --dataset data --drop-fields hour,slot")
	o.pruned("lists.fields.safetensors", "--model lists.onnx --drop-fields user")
	o.pruned("lists.fields.onnx", "--model lists.onnx --drop-fields user")
}

// computed writes the outputs that need logits. level is the kernel in use.
func (o *outputs) computed(level string) {
	o.level = level
	night := "--model night.pth --scores night.pth.arrow --dataset data "
	for name, flags := range map[string]string{
		"auto":             "--sparsity 0.6 --values auto",
		"auto, calibrated": "--sparsity 0.6 --values auto --calibrate",
		"auto, bytes":      "--bytes 6000 --values auto",
		"calibrated":       "--sparsity 0.6 --calibrate",
		"tuned":            "--sparsity 0.6 --tune",
		"bound":            "--max-rise 0.05",
	} {
		o.pruned(name+".safetensors", night+flags)
	}
	o.run("dataset", "import", "csv", "--train", "pairs.csv", "--split", "4:1:1", "--model", "ncf.onnx", "--out", "pairs")
	ncf := "--model ncf.onnx --scores ncf.onnx.arrow --dataset pairs --sparsity 0.5 --calibrate "
	o.pruned("ncf.auto.safetensors", ncf+"--values auto")
	o.pruned("ncf.calibrated.onnx", ncf)
	o.pruned("path.safetensors", "--model night.pth --dataset data --fields 4 --columns 3")
	o.document("path", o.text("path.safetensors.path.json"))
	o.printed("sweep", "sweep --methods magnitude,ptq4-row --sparsities 0.8 --calibrate "+night)
	o.printed("sweep-all", "sweep --methods all --sparsities 0.8 --calibrate "+night)
	o.printed("sweep-values", "sweep --methods= --sparsities 0.5,0.9 --values float32,int8,auto --out sweep.json "+night)
	o.printed("check", "check --model auto.safetensors --against night.pth --dataset data --max-auc-drop 1 --max-logloss-rise 1")
	o.printed("evaluate", "evaluate --model auto.safetensors --against night.pth --dataset data")
	o.printed("prune", "prune --sparsity 0.6 --values int8 --calibrate --previous zero-night.safetensors --out previous.safetensors "+night)
	if !strings.HasPrefix(level, "portable") { // a study chooses its kernel: one in assembly, if there are any, all of which compute the same values
		study := o.run("study", "--model", "night.pth", "--dataset", "data", "--portions", "0.1,1", "--sparsities", "0.5", "--out", "study", "-o", "json")
		o.document("study", regexp.MustCompile(`"job": "[0-9a-f]+"`).ReplaceAll(study, nil))
	}
	o.printed("report", "report --sweep sweep.json --out report.html --model night.pth --scores night.pth.arrow")
	o.noteFiles("report.html")
	o.printed("benchmark", "benchmark --dataset data --kinds fm --search 0 --methods shapley-rms,qr --seeds 1 --epochs 1 --warm-up 0 --sparsities 0.5 --kernel "+level+" --out benchmark")
	o.run("dataset", "import", "csv", "--train", "train.csv", "--val", "val.csv", "--test", "test.csv", "--model", "ratings.onnx", "--model-output", "rating", "--labels", "numbers", "--out", "ratings")
	ratings := "--model ratings.onnx --model-output rating --scores ratings.onnx.arrow --dataset ratings "
	o.run("model", "convert", "ratings.onnx", "rating.safetensors", "--model-output", "rating")
	o.pruned("ratings.safetensors", "--values auto --calibrate --sparsity 0.3 "+ratings)
	o.printed("sweep-ratings", "sweep --sparsities 0.5 --models ratings.safetensors "+ratings)
	o.printed("check-ratings", "check --model ratings.safetensors --against rating.safetensors --dataset ratings --max-rmse-rise 9")
	o.night(level)
}

// night runs two nights, and notes what the second one writes.
func (o *outputs) night(level string) {
	o.t.Helper()
	config := strings.NewReplacer("model.safetensors", "model.pth", "baseline:", "kernel: "+level+"\n  estimator: multilinear\n  baseline:").Replace(smallNights)
	o.write("nightly.yaml", []byte(config))
	if err := os.Mkdir("days", 0o755); err != nil {
		o.t.Fatal(err)
	}
	rows := o.text("log.csv")
	header, half := bytes.IndexByte(rows, '\n')+1, len(rows)/2
	half += bytes.IndexByte(rows[half:], '\n') + 1
	for i, model := range []string{"night.pth", "night-heavier.pth"} {
		o.copy(model, "model.pth")
		day := "day-" + strconv.Itoa(i)
		o.write(day+".csv", append(slices.Clone(rows[:header]), [][]byte{rows[header:half], rows[half:]}[i]...))
		o.run("dataset", "import", "csv", "--train", day+".csv", "--split", "8:1:1", "--model", "model.pth", "--out", filepath.Join("days", day))
		o.run("nightly", "--config", "nightly.yaml")
	}
	o.document("current", o.text("out/current.json"))
	lines := bytes.SplitAfter(o.text("out/history.jsonl"), []byte("\n"))
	o.document("history", lines[1])
	for _, name := range []string{"night", "prune", "check", "scores.job"} {
		o.document("night-"+name, o.text("out/current/"+name+".json"))
	}
	for _, name := range []string{"scores.arrow", "pruned.safetensors"} {
		o.note("the second night's "+name, o.text("out/current/"+name))
	}
}

func (o *outputs) text(name string) []byte {
	o.t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		o.t.Fatal(err)
	}
	return data
}

// printed notes the JSON document that a command prints.
func (o *outputs) printed(name, command string) {
	o.t.Helper()
	o.document(name, o.run(append(strings.Fields(command), "-o", "json")...))
}

// volatile are the parts of documents that differ from run to run, or between machines.
var volatile = regexp.MustCompile(`("(?:started|finished|program|kernel|[a-z_]*seconds)": ?)(?:"[^"]*"|[0-9.e-]+)|("workers": ?)\{[^}]*\}`)

// document notes a document or several lines of them. Those of readable are also kept as they are read by people.
func (o *outputs) document(name string, text []byte) {
	o.t.Helper()
	text = volatile.ReplaceAll(text, []byte("${1}${2}null"))
	o.note(name+".json", text)
	if !slices.Contains(readable, name) {
		return
	}
	var b strings.Builder
	for d := json.NewDecoder(bytes.NewReader(text)); d.More(); {
		var v any
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			o.t.Fatalf("%s: %v", name, err)
		}
		layJSON(&b, shortened(v, 0), "")
		b.WriteByte('\n')
	}
	path := filepath.Join(o.documents, name+".json")
	if *rewrite {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			o.t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		o.t.Fatal(err)
	}
	if got := strings.Split(b.String(), "\n"); b.String() != string(want) {
		for i, line := range strings.Split(string(want), "\n") {
			if i >= len(got) || got[i] != line {
				o.t.Errorf("%s, kernel %s: line %d is not\n%s\nbut the document is\n%s", path, o.level, i+1, line, &b)
				break
			}
		}
	}
}

// readable are the documents of which people may want to see what changed.
var readable = []string{"path", "sweep", "check", "prune", "sweep-ratings", "night-night", "night-scores.job", "history", "current"}

var (
	hexadecimal = regexp.MustCompile(`[0-9a-f]{12,}`)
	decimals    = regexp.MustCompile(`[.eE]`)
)

// shortened returns a document without digests, with 5 decimals of each number, and with one element of longer arrays below the first level.
func shortened(v any, depth int) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = shortened(value, depth+1)
		}
	case []any:
		for i := range v {
			v[i] = shortened(v[i], depth+1)
		}
		if n := len(v) - 1; n > 1 && depth > 1 {
			return []any{v[0], fmt.Sprintf("and %d more", n)}
		}
	case string:
		return hexadecimal.ReplaceAllString(v, "DIGEST")
	case json.Number:
		if f, err := v.Float64(); err == nil && decimals.MatchString(v.String()) {
			return json.Number(strconv.FormatFloat(math.Round(f*1e5)/1e5+0, 'g', -1, 64))
		}
	}
	return v
}

// layJSON writes a value in lines of at most 150 bytes. A part that does not fit into one line has lines of its own.
func layJSON(b *strings.Builder, v any, indent string) {
	text, _ := json.Marshal(v) // what was decoded can be encoded
	object, isObject := v.(map[string]any)
	array, isArray := v.([]any)
	if len(indent)+len(text) <= 150 || !isObject && !isArray {
		b.Write(text)
		return
	}
	inner, column := indent+"\t", 150
	part := func(i int, key string, v any) {
		text, _ := json.Marshal(v)
		if i > 0 {
			b.WriteByte(',')
		}
		if column += len(key) + len(text) + 2; column > 150 {
			b.WriteString("\n" + inner)
			column = len(inner) + len(key) + len(text)
		} else {
			b.WriteByte(' ')
		}
		b.WriteString(key)
		layJSON(b, v, inner)
	}
	b.WriteByte(text[0])
	for i, key := range slices.Sorted(maps.Keys(object)) {
		part(i, strconv.Quote(key)+": ", object[key])
	}
	for i, v := range array {
		part(i, "", v)
	}
	b.WriteString("\n" + indent + string(text[len(text)-1:]))
}

// Pruned files, and the documents that commands print and write, have the bytes that they always had, except for times.
//
// The test runs commands in this process and compares with testdata/outputs.json. The records of anyKernel are of files for which no logits
// are computed. The others are of a kernel, as those of TestDigests. The fastest kernel with records is tried, and with SHAVER_LONG=2 all are. Some
// documents are also in testdata/documents, without digests and with fewer decimals, where all kernels have the same ones, so that a diff shows
// what changed.
//
// The flag -rewrite writes the records for all of the machine's kernels. If a form changes, write them again on machines with the other
// kernels, too.
func TestOutputs(t *testing.T) {
	records := map[string]map[string]string{}
	if _, err := os.Stat(outputsFile); err == nil || !*rewrite {
		readJSON(t, outputsFile, &records)
	}
	before := kernel.Name()
	t.Cleanup(func() { kernel.Use(before) })
	tried := 0
	for _, level := range kernel.Names() {
		if !*rewrite && (records[level] == nil || tried > 0 && !long.Hours()) {
			continue
		}
		tried++
		t.Run(level, func(t *testing.T) {
			kernel.Use(level)
			o := newOutputs(t)
			o.fixed()
			o.computed(level)
			if *rewrite {
				maps.Copy(records, o.found)
				return
			}
			for of, found := range o.found {
				want := records[of]
				for name, digest := range found {
					if digest != want[name] {
						t.Errorf("%s, kernel %s: the digest is %s, expected %q", name, of, digest, want[name])
					}
				}
				for name := range want {
					if found[name] == "" {
						t.Errorf("%s has a record of %q, which is not an output", outputsFile, name)
					}
				}
			}
		})
	}
	if tried == 0 && (runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64") {
		t.Errorf("%s has no records of any kernel of this machine", outputsFile)
	}
	if *rewrite && !t.Failed() {
		data, err := json.MarshalIndent(records, "", "\t")
		if err == nil {
			err = os.WriteFile(outputsFile, append(data, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

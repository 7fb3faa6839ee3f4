package checkpoint

import (
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
	"shaver/internal/value/mask"
)

// Every golden checkpoint loads as its JSON file describes and computes the golden logits.
// Float32 folding and float64 sums stay within 1e-5 of PyTorch.
func TestGoldens(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("..", "..", "..", "testdata", "golden", "*.pth"))
	if err != nil || len(paths) < 7 {
		t.Fatalf("%d goldens, want 7: %v", len(paths), err)
	}
	if _, err := os.Stat(filepath.Join("..", "..", "..", "..", "shared")); err == nil || os.Getenv("CI") == "true" {
		others, err := filepath.Glob(filepath.Join(shared(t, "golden"), "*.pth"))
		if err != nil || len(others) != 6 {
			t.Fatalf("%d other goldens, want 6: %v", len(others), err)
		}
		paths = append(paths, others...)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			c, err := Read(path)
			if err != nil {
				t.Fatal(err)
			}
			var golden struct {
				Kind      string    `json:"kind"`
				FieldDims []int     `json:"field_dims"`
				Dim       int       `json:"dim"`
				Logits    []float64 `json:"logits"`
			}
			stem := strings.TrimSuffix(path, ".pth")
			text, err := os.ReadFile(stem + ".json")
			if err == nil {
				err = json.Unmarshal(text, &golden)
			}
			if err != nil {
				t.Fatal(err)
			}
			a := c.Architecture
			if string(a.Kind) != strings.ReplaceAll(golden.Kind, "_", "-") || !slices.Equal(a.FieldDims, golden.FieldDims) || a.Dim != golden.Dim {
				t.Errorf("architecture %+v, want %s %v %d", a, golden.Kind, golden.FieldDims, golden.Dim)
			}
			m, err := c.Model()
			if err != nil {
				t.Fatal(err)
			}
			rows := readRows(t, stem+".rows.csv")
			if len(rows) != len(golden.Logits) {
				t.Fatalf("%d rows, %d logits", len(rows), len(golden.Logits))
			}
			for i, row := range rows {
				if got := logit(m, row); math.Abs(got-golden.Logits[i]) > 1e-5*max(1, math.Abs(got)) {
					t.Errorf("row %d: logit %v, want %v", i, got, golden.Logits[i])
				}
			}
			checkRoundTrips(t, c)
		})
	}
}

func readRows(t *testing.T, path string) [][]int {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]int
	for _, line := range lines[1:] {
		var row []int
		for _, text := range line[1:] {
			id, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			row = append(row, id)
		}
		rows = append(rows, row)
	}
	return rows
}

func TestFlights(t *testing.T) {
	shared(t, "data", "flights")
	for name, want := range map[string]model.Architecture{
		"deepfm.pth":  {Kind: model.DeepFM, Dim: 16, Hidden: []int{400, 400, 400}},
		"dcn-mix.pth": {Kind: model.DCNMix, Dim: 16, Hidden: []int{400, 400, 400}, CrossLayers: 3, Experts: 4, Rank: 64},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Read(shared(t, "data", "flights", name))
			if err != nil {
				t.Fatal(err)
			}
			want.FieldDims = c.Architecture.FieldDims
			if !reflect.DeepEqual(c.Architecture, want) || c.Architecture.Features() != 7813 || c.Architecture.Fields() != 11 {
				t.Errorf("architecture %+v, want %+v", c.Architecture, want)
			}
			if _, err := c.Model(); err != nil {
				t.Error(err)
			}
			checkRoundTrips(t, c)
		})
	}
}

// checkRoundTrips writes c dense and compact and reads it back.
func checkRoundTrips(t *testing.T, c *Checkpoint) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.safetensors")
	n, err := WriteDense(path, c)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil || int64(len(data)) != n || c.Size() != n || string(data) != string(canonical(c)) {
		t.Errorf("dense file of %d bytes, reported %d, planned %d: %v", len(data), n, c.Size(), err)
	}
	dense, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	checkSame(t, dense, c)
	if dense.Compact != nil {
		t.Error("a dense file reads as compact")
	}
	a := &c.Architecture
	baseline := a.Zero()
	for i := range baseline.Values {
		baseline.Values[i] = float32(i%3) - 0.25
	}
	for _, step := range []int{1, 2, 3, 50} {
		dropped := make([]bool, a.Parameters())
		kept := 0
		for i := range dropped {
			if dropped[i] = i%step != 0; !dropped[i] {
				kept++
			}
		}
		checkCompact(t, c, dropped, baseline, kept)
	}
}

// checkSame fails unless both checkpoints are the same state dict and model.
func checkSame(t *testing.T, got, want *Checkpoint) {
	t.Helper()
	keys := slices.Clone(want.Keys)
	if slices.Sort(keys); !slices.Equal(slices.Sorted(slices.Values(got.Keys)), keys) {
		t.Errorf("keys %v, want %v", got.Keys, want.Keys)
	}
	for key, w := range want.Tensors {
		g := got.Tensors[key]
		if g.DType != w.DType || !slices.Equal(g.Shape, w.Shape) || string(g.Data) != string(w.Data) {
			t.Errorf("tensor %s differs: %s %v, want %s %v", key, g.DType, g.Shape, w.DType, w.Shape)
		}
	}
	if !reflect.DeepEqual(got.Architecture, want.Architecture) || got.EmbeddingKey != want.EmbeddingKey {
		t.Errorf("architecture %+v with %s, want %+v with %s", got.Architecture, got.EmbeddingKey, want.Architecture, want.EmbeddingKey)
	}
	if got.Digest() != want.Digest() {
		t.Errorf("digest %s, want %s", got.Digest(), want.Digest())
	}
}

// checkCompact writes c in compact form and compares it with the pruned dense checkpoint.
func checkCompact(t *testing.T, c *Checkpoint, dropped []bool, baseline model.Baseline, kept int) {
	t.Helper()
	table, err := c.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	want := c.WithEmbedding(mask.Apply(&c.Architecture, table, dropped, baseline))
	path := filepath.Join(t.TempDir(), "c.safetensors")
	n, err := WriteCompact(path, c, dropped, baseline, compact.Float32)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() != n {
		t.Errorf("compact file of %d bytes, reported %d: %v", info.Size(), n, err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Compact == nil {
		t.Fatal("the file reads as dense")
	}
	if got.Compact.Kept() != kept {
		t.Fatalf("compact with %d kept, want %d", got.Compact.Kept(), kept)
	}
	gone, book, err := got.Pruned()
	if read := readOf(c, dropped, baseline); err != nil || !slices.Equal(gone, dropped) || !book.Equal(&read) {
		t.Errorf("another mask or codebook came back: %v", err)
	}
	checkSame(t, got, want)
	checkModel(t, path, want)
}

// checkModel scores rows with a compact file that is not inflated, and with the pruned
// dense checkpoint.
func checkModel(t *testing.T, path string, want *Checkpoint) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	small, _, err := ParseModel(path, data)
	if err != nil {
		t.Fatal(err)
	}
	dense, err := want.Model()
	if err != nil {
		t.Fatal(err)
	}
	rows := &model.Rows{Width: dense.Fields(), Inputs: len(dense.Dense)}
	offsets := dense.Offsets()
	for i := range 20 {
		for k := range dense.Dense {
			rows.Dense = append(rows.Dense, float32(i-k)/8)
		}
		rows.Number, rows.Label = append(rows.Number, int64(i)), append(rows.Label, 0)
		for j, size := range dense.FieldDims {
			rows.Features = append(rows.Features, offsets[j]+int32(i*7919%size))
		}
	}
	a, b := make([]float64, rows.Len()), make([]float64, rows.Len())
	small.NewScorer().Logits(a, rows)
	dense.NewScorer().Logits(b, rows)
	if small.Weights.Embedding != nil || !slices.Equal(a, b) {
		t.Errorf("logits of the compact file %v, of the pruned dense model %v", a, b)
	}
}

// testdata/make.py wrote these files with PyTorch. The values follow its formula.
func TestTypes(t *testing.T) {
	quarters := func(seed, n int) []float32 {
		values := make([]float32, n)
		for i := range values {
			values[i] = float32((seed+5*i)%17-8) / 4
		}
		return values
	}
	variance := quarters(9, 5)
	for i, v := range variance {
		variance[i] = max(v, -v)
	}
	wants := map[string]struct {
		dtype  DType
		values []float32
	}{
		"embedding._emb_module.weight":       {F16, quarters(1, 18)},
		"fc.weight":                          {BF16, quarters(2, 9)},
		"_bias":                              {F32, quarters(3, 1)},
		"_deep_branch.0.weight":              {F32, quarters(4, 30)},
		"_deep_branch.0.bias":                {F64, quarters(5, 5)},
		"_deep_branch.1.weight":              {F32, quarters(6, 5)},
		"_deep_branch.1.bias":                {F32, quarters(7, 5)},
		"_deep_branch.1.running_mean":        {F32, quarters(8, 5)},
		"_deep_branch.1.running_var":         {F32, variance},
		"_deep_branch.1.num_batches_tracked": {I64, []float32{7}},
		"_deep_branch.4.weight":              {F16, []float32{1, -2, 3, -4, 5}},
		"_deep_branch.4.bias":                {F32, []float32{0.5}},
		"offsets":                            {I64, []float32{0, 2, 5}},
	}
	for _, name := range []string{"types.pth", "types4.pth"} {
		c, err := Read(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(c.Architecture, sampleArchitecture("deepfm")) || len(c.Keys) != len(wants) {
			t.Errorf("%s: architecture %+v with keys %v", name, c.Architecture, c.Keys)
		}
		for key, want := range wants {
			values, err := c.Tensors[key].Float32s()
			if err != nil || c.Tensors[key].DType != want.dtype || !slices.Equal(values, want.values) {
				t.Errorf("%s: tensor %s is %s %v, want %s %v: %v", name, key, c.Tensors[key].DType, values, want.dtype, want.values, err)
			}
		}
		if _, err := c.Model(); err != nil {
			t.Error(err)
		}
		checkRoundTrips(t, c)
	}
	bare, err := Read(filepath.Join("testdata", "bare.pth"))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(bare.Architecture, sampleArchitecture("deepfm")) || bare.Keys[0] != "embedding._emb_module.weight" {
		t.Errorf("bare.pth: architecture %+v with keys %v", bare.Architecture, bare.Keys)
	}
	_, err = Read(filepath.Join("testdata", "legacy.pth"))
	wantInput(t, err, "legacy.pth", "save it again with a current torch")
}

// The same weights have the same digest, whatever file they came from.
func TestDigest(t *testing.T) {
	for _, kind := range sampleKinds {
		folder := t.TempDir()
		entries := sampleEntries(kind)
		path := filepath.Join(folder, "bare.safetensors")
		write(t, path, fileBytes(entries, nil))
		write(t, filepath.Join(folder, "bare.json"), []byte(`{"field_dims": [2, 3, 4], "dim": 2, "note": "ours"}`))
		bare, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if want := sampleArchitecture(kind); !reflect.DeepEqual(bare.Architecture, want) {
			t.Errorf("%s: architecture %+v, want %+v", kind, bare.Architecture, want)
		}
		slices.Reverse(entries)
		tensor.Arrange(entries)
		reordered, err := Parse("reordered", fileBytes(entries, map[string]string{metaArchitecture: `{"field_dims": [2, 3, 4]}`}))
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := Parse("canonical", canonical(bare))
		if err != nil {
			t.Fatal(err)
		}
		checkSame(t, reordered, bare)
		checkSame(t, parsed, bare)
		if _, err := parsed.Model(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestWriteFails(t *testing.T) {
	c, err := Read(filepath.Join("testdata", "bare.pth"))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if _, err := WriteDense(filepath.Join(folder, "missing", "m.safetensors"), c); err == nil {
		t.Error("no error for a folder that does not exist")
	}
	if err := os.Mkdir(filepath.Join(folder, "taken"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := WriteDense(filepath.Join(folder, "taken"), c); err == nil {
		t.Error("no error for a path that is a folder")
	}
	if left, _ := os.ReadDir(folder); len(left) != 1 {
		t.Errorf("%d files left behind", len(left)-1)
	}
}

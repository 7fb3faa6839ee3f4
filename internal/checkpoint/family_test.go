package checkpoint

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/compact"
	"shaver/internal/model"
)

const familyFolder = "../../testdata/families"

// familyCase is a checkpoint that a real package saved; see testdata/families/README.md.
type familyCase struct {
	name   string
	File   string `json:"file"`
	Family string `json:"family"`
	Form   string `json:"form"`
	Kind   string `json:"kind"`
	Fields []struct {
		Name string `json:"name"`
		Rows int    `json:"rows"`
	} `json:"fields"`
	Dense  []string  `json:"dense"`
	Rows   [][]int32 `json:"rows"`
	Logits []float64 `json:"logits"`
}

// familyCases returns all cases, except that of PyTorch's old format.
func familyCases(t *testing.T) []familyCase {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(familyFolder, "*.json"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no cases in %s: %v", familyFolder, err)
	}
	var all []familyCase
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		c := familyCase{name: strings.TrimSuffix(filepath.Base(name), ".json")}
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.Contains(c.name, "legacy") {
			all = append(all, c)
		}
	}
	return all
}

// said returns what the file next to c's file has to hold, or "".
func (c *familyCase) said() string {
	said := map[string]any{}
	kind, structure, _ := strings.Cut(c.Kind, " ")
	if kind != "fm" && c.Family != "recbole" && c.Family != "pytorch-fm" {
		said["activation"] = "relu"
	}
	if c.Family != "fuxictr" && structure == "" && (kind != "fm" || c.Family != "pytorch-fm") {
		said["kind"] = strings.ReplaceAll(kind, "-", "")
	}
	if c.Family == "recbole" || c.Family == "pytorch-fm" {
		said["field_dims"] = c.dims()
	}
	if len(said) == 0 {
		return ""
	}
	return string(mustMarshal(said))
}

// key returns the key of the state dict, if the file has several.
func (c *familyCase) key() string {
	if c.name == "wrapped-ambiguous" {
		return "model"
	}
	return ""
}

func (c *familyCase) dims() (dims []int) {
	for _, f := range c.Fields {
		dims = append(dims, f.Rows)
	}
	return dims
}

// copyTo copies c's file to a folder, with said in the file next to it, and returns its
// path.
func (c *familyCase) copyTo(t *testing.T, folder, said string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(familyFolder, c.File))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, c.File)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	if said != "" {
		if err := os.WriteFile(path+".json", []byte(said), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// rows returns c's rows for the model m.
func (c *familyCase) rows(m *model.Model) *model.Rows {
	rows := &model.Rows{Fields: m.Fields()}
	offsets := m.Offsets()
	for i, row := range c.Rows {
		rows.Number, rows.Label = append(rows.Number, int64(i)), append(rows.Label, 0)
		for j, id := range row {
			rows.Features = append(rows.Features, offsets[j]+id)
		}
	}
	return rows
}

func (c *familyCase) logits(m *model.Model) []float64 {
	logits := make([]float64, len(c.Rows))
	m.NewScorer().Logits(logits, c.rows(m))
	return logits
}

// near checks that logits differ from the expected ones by less than the tolerance.
func near(t *testing.T, what string, got, want []float64, tolerance float64) {
	t.Helper()
	if len(got) == 0 || len(got) != len(want) {
		t.Errorf("%s: %d logits, expected %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if !(math.Abs(got[i]-want[i]) <= tolerance) {
			t.Errorf("%s: row %d has the logit %v, expected %v", what, i, got[i], want[i])
			return
		}
	}
}

// raw returns the tensors of a .pth or safetensors file, without recognising them. key is
// Options.StateDict.
func raw(t *testing.T, path, key string) map[string]Tensor {
	t.Helper()
	data := must(os.ReadFile(path))(t)
	if !isZip(data) {
		entries, _, err := parseSafetensors(path, data)
		if err != nil {
			t.Fatal(err)
		}
		tensors := map[string]Tensor{}
		for _, e := range entries {
			tensors[e.key] = e.Tensor
		}
		return tensors
	}
	a := must(openArchive(path, bytes.NewReader(data), int64(len(data))))(t)
	pickle := must(a.read(a.entries[a.root+"/data.pkl"], maxPickle))(t)
	chosen, _, err := chooseStates(path, candidates(must(unpickle(path, pickle))(t)), key)
	if err != nil {
		t.Fatal(err)
	}
	states := must(chosen.states(path))(t)
	c := &Checkpoint{Tensors: map[string]Tensor{}}
	if err := a.fill(c, states); err != nil {
		t.Fatal(err)
	}
	return c.Tensors
}

// must returns a function that returns v, or ends the test if err is not nil.
func must[V any](v V, err error) func(*testing.T) V {
	return func(t *testing.T) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// State dicts of real packages have the logits of these packages. What is written has the
// same tensors under the same keys, and reads as the same model in every form.
func TestFamilies(t *testing.T) {
	done := map[string]bool{}
	for _, c := range familyCases(t) {
		if c.Kind == "" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			ck, err := ReadPart(c.copyTo(t, folder, c.said()), Options{StateDict: c.key()})
			if err != nil {
				t.Fatal(err)
			}
			kind, structure, _ := strings.Cut(c.Kind, " ")
			if got := string(ck.Architecture.Kind); ck.Family != c.Family || got != strings.ReplaceAll(kind, "-", "") || ck.Architecture.Structure != structure {
				t.Errorf("recognised as %s %s of %s", got, ck.Architecture.Structure, ck.Family)
			}
			if !slices.Equal(ck.Architecture.FieldDims, c.dims()) {
				t.Errorf("fields have the sizes %v, expected %v", ck.Architecture.FieldDims, c.dims())
			}
			if ck.joined() {
				for j, f := range c.Fields {
					if ck.Fields[j] != f.Name {
						t.Errorf("field %d is %s, expected %s", j, ck.Fields[j], f.Name)
					}
				}
			}
			m := must(ck.Model())(t)
			near(t, "as saved", c.logits(m), c.Logits, 1e-6)
			done[c.Family+" "+c.Kind] = true

			dense := filepath.Join(folder, "dense.safetensors")
			size := must(WriteDense(dense, ck))(t)
			if size != ck.Size() {
				t.Errorf("WriteDense wrote %d bytes, Size says %d", size, ck.Size())
			}
			if !maps.EqualFunc(raw(t, dense, ""), raw(t, filepath.Join(familyFolder, c.File), c.key()), func(a, b Tensor) bool {
				return a.DType == b.DType && slices.Equal(a.Shape, b.Shape) && bytes.Equal(a.Data, b.Data)
			}) {
				t.Error("the dense file has other tensors")
			}
			again := must(Read(dense))(t)
			if again.Digest() != ck.Digest() || again.TensorCount() != ck.TensorCount() {
				t.Error("the dense file is another checkpoint")
			}
			near(t, "dense", c.logits(must(again.Model())(t)), c.Logits, 1e-6)
			near(t, "parsed", c.logits(must(ParseModel(dense, must(os.ReadFile(dense))(t)))(t)), c.Logits, 1e-6)

			a := &ck.Architecture
			dropped, baseline := make([]bool, a.Parameters()), make([]float32, a.Players())
			table := must(ck.Embedding())(t)
			for i := range dropped {
				if dropped[i] = i%3 == 0; dropped[i] {
					table[i] = 0
				}
			}
			pruned := ck.WithEmbedding(table)
			if _, err := WriteDense(dense, pruned); err != nil {
				t.Fatal(err)
			}
			if !maps.EqualFunc(raw(t, dense, ""), raw(t, filepath.Join(familyFolder, c.File), c.key()), func(a, b Tensor) bool {
				return a.DType == b.DType && slices.Equal(a.Shape, b.Shape)
			}) {
				t.Error("the pruned file has other tensors")
			}
			small := filepath.Join(folder, "small.safetensors")
			if _, err := WriteCompact(small, ck, dropped, baseline, compact.Float32); err != nil {
				t.Fatal(err)
			}
			inflated := must(Read(small))(t)
			if inflated.Digest() != pruned.Digest() || must(Read(dense))(t).Digest() != pruned.Digest() {
				t.Error("the pruned files hold different checkpoints")
			}
			want := c.logits(must(pruned.Model())(t))
			near(t, "compact", c.logits(must(ParseModel(small, must(os.ReadFile(small))(t)))(t)), want, 0)

			calibrated, _, err := ck.Calibrated(1.5, -0.25)
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range c.Logits {
				want[i] = 1.5*v - 0.25
			}
			near(t, "calibrated", c.logits(must(calibrated.Model())(t)), want, 5e-6)
		})
	}
	for _, want := range []string{
		"fuxictr fm", "fuxictr deepfm", "fuxictr wide-deep", "fuxictr dcnv2 parallel", "fuxictr dcnv2 stacked",
		"deepctr-torch fm", "deepctr-torch deepfm", "deepctr-torch wide-deep", "deepctr-torch dcnv2 parallel",
		"recbole fm", "recbole deepfm", "recbole wide-deep", "recbole dcnv2 parallel", "recbole dcnv2 stacked",
		"pytorch-fm fm", "pytorch-fm deepfm", "pytorch-fm wide-deep", "torch-rechub deepfm", "torch-rechub wide-deep",
	} {
		if !done[want] {
			t.Errorf("no case of %s passed", want)
		}
	}
}

// A model that is not one of ours is refused, and the error says why and what to do.
func TestForeignFamilies(t *testing.T) {
	wants := map[string]string{
		"fuxictr-deepfm-numeric":         "tensor embedding_layer.embedding_layer.embedding_layers.age.weight has shape [4, 1], and the table of field \"user\" has 4 columns: one of them is the projection of a numeric feature",
		"fuxictr-deepfm-tanh":            "which does not say which activation its hidden layers have: write fuxictr-deepfm-tanh.json with what is true, for example {\"activation\": \"relu\"}",
		"fuxictr-dcnv2-stacked-parallel": "tensors stacked_dnn.mlp.* and parallel_dnn.mlp.* are two networks",
		"fuxictr-dcnv2-mixture":          "tensor crossnet.U_list.0 belongs to a mixture of low-rank cross layers",
		"fuxictr-dcn":                    "tensor crossnet.cross_net.0.bias belongs to the cross layers of the first DCN",
		"deepctr-torch-deepfm-dense":     "tensor linear_model.weight belongs to dense inputs",
		"deepctr-torch-dcnmix":           "tensor crossnet.U_list belongs to a mixture of low-rank cross layers",
		"deepctr-torch-dcn":              "tensor crossnet.kernels has shape [2, 20, 1], expected [layers, 20, 20]",
		"torch-rechub-dcnv2-parallel":    "tensor crossnet.b.0 belongs to cross layers that add the bias outside the product",
		"torch-rechub-dcnv2-stacked":     "tensor crossnet.b.0 belongs to cross layers that add the bias outside the product",
	}
	for _, c := range familyCases(t) {
		if c.Kind != "" {
			continue
		}
		said := `{"activation": "relu", "kind": "deepfm"}`
		want := []string{c.File, wants[c.name]}
		switch {
		case strings.HasSuffix(c.name, "-tanh"):
			said = ""
		case strings.Contains(c.name, "dcn"):
			said = `{"activation": "relu"}`
			fallthrough
		default:
			want = append(want, "export the model to ONNX (shaver model export-help --for ")
		}
		if wants[c.name] == "" {
			t.Errorf("%s: no error is expected", c.name)
		}
		_, err := Read(c.copyTo(t, t.TempDir(), said))
		wantInput(t, err, want...)
		delete(wants, c.name)
	}
	for name := range wants {
		t.Errorf("there is no case %s", name)
	}
	for _, c := range familyCases(t) {
		if c.name == "fuxictr-deepfm-tanh" {
			_, err := Read(c.copyTo(t, t.TempDir(), `{"activation": "Tanh"}`))
			wantInput(t, err, `says that the activation is "Tanh", but only relu is supported in a state dict: export the model to ONNX (shaver model export-help --for fuxictr)`)
		}
	}
}

package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/checkpoint/tensor"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
)

const familyFolder = "../../../testdata/families"

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
	rows := &model.Rows{Width: m.Fields()}
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
func raw(t *testing.T, path, key string) *Checkpoint {
	t.Helper()
	data := must(os.ReadFile(path))(t)
	if !isZip(data) {
		entries, _, err := parseSafetensors(path, data)
		if err != nil {
			t.Fatal(err)
		}
		c := &Checkpoint{Tensors: map[string]Tensor{}, name: "m", unordered: true}
		for _, e := range entries {
			c.add(e.key, e.Tensor)
		}
		return c
	}
	a := must(openArchive(path, bytes.NewReader(data), int64(len(data))))(t)
	pickle := must(a.read(a.entries[a.root+"/data.pkl"], maxPickle))(t)
	chosen, _, err := chooseStates(path, must(candidates(must(unpickle(path, pickle))(t)))(t), key)
	if err != nil {
		t.Fatal(err)
	}
	states := must(chosen.states(path))(t)
	c := &Checkpoint{Tensors: map[string]Tensor{}, name: "m"}
	if err := a.fill(c, states); err != nil {
		t.Fatal(err)
	}
	return c
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
			if ck.state().joined() {
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
			if !maps.EqualFunc(raw(t, dense, "").Tensors, raw(t, filepath.Join(familyFolder, c.File), c.key()).Tensors, func(a, b Tensor) bool {
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
			if !maps.EqualFunc(raw(t, dense, "").Tensors, raw(t, filepath.Join(familyFolder, c.File), c.key()).Tensors, func(a, b Tensor) bool {
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

// A model of another kind is refused, and the error says why and what to do.
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

// unread returns the tensors of a case, not yet recognised.
func unread(t *testing.T, file string) *Checkpoint {
	return raw(t, filepath.Join(familyFolder, file), "")
}

// saying returns a lookup that finds a JSON file with the given text.
func saying(t *testing.T, text string) Lookup {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.pth")
	if err := os.WriteFile(path+".json", []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return sidecarFile(path)
}

const fuxiTable = "embedding_layer.embedding_layer.embedding_layers."

// The order of the fields comes from field_names, or from feature_map.json, or from the
// state dict. The logits are those of rows in this order.
func TestFieldOrder(t *testing.T) {
	cases := familyCases(t)
	c := cases[slices.IndexFunc(cases, func(c familyCase) bool { return c.name == "fuxictr-dcnv2-parallel" })]
	own := must(Read(c.copyTo(t, t.TempDir(), c.said())))(t)
	names := slices.Clone(own.Fields)
	slices.Sort(names)

	// A safetensors file sorts its tensors. Without the order of the fields it is refused.
	plain := filepath.Join(t.TempDir(), "m.safetensors")
	if err := os.WriteFile(plain, fileBytes(newFile(own.split(), nil).entries, nil), 0o666); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(filepath.Dir(plain), name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("m.json", `{"activation": "relu"}`)
	_, err := Read(plain)
	wantInput(t, err, "does not say the order of its fields, because safetensors sorts them: add what is true to m.json", `{"field_names": ["category","city","device","item","user"]}`)
	write("m.json", `{"activation": "relu", "field_names": ["user", "item", "category", "city", "device"]}`)
	stated := must(Read(plain))(t)
	if stated.Digest() != own.Digest() {
		t.Error("with field_names, the safetensors file is another checkpoint")
	}
	write("m.json", `{"activation": "relu"}`)
	features := []string{`{"hour": {"type": "numeric"}}`} // a feature that the model does not use
	for _, name := range own.Fields {
		features = append(features, `{"`+name+`": {"type": "categorical", "padding_idx": 0}}`)
	}
	write("feature_map.json", `{"dataset_id": "x", "features": [`+strings.Join(features, ", ")+`]}`)
	mapped := must(Read(plain))(t)
	if mapped.Digest() != own.Digest() {
		t.Error("with feature_map.json, the safetensors file is another checkpoint")
	}
	if slices.Contains(mapped.Assumed(), stated.Assumed()[0]) || len(stated.Assumed()) != 2 {
		t.Errorf("assumed %q with feature_map.json, %q without", mapped.Assumed(), stated.Assumed())
	}
	near(t, "sorted file", c.logits(must(mapped.Model())(t)), c.Logits, 1e-6)

	for text, want := range map[string]string{
		`{"features": [{"user": {"type": "categorical", "vocab_size": 8}}]}`:                                              `feature "user" has 8 ids, but tensor ` + fuxiTable + `user.weight has shape [7, 4]`,
		`{"features": [{"user": {"type": "categorical"}}]}`:                                                               `feature_map.json has no feature "`,
		`{"features": [{"user": {"type": "categorical"}}, {"user": {"type": "categorical"}}]}`:                            `has the feature "user" twice`,
		`{"features": [{"user": {"type": "categorical"}}, {"item": {"type": "categorical", "share_embedding": "user"}}]}`: `feature "item" shares the table of "user", which is not supported yet`,
		`{"features": [{"user": {"type": "sequence"}}]}`:                                                                  `is of type "sequence": only categorical features are supported in a state dict; export the model to ONNX`,
		`{"features": [{}]}`: `features[0] has 0 names, expected 1`,
		`{"features": []}`:   `expected a list of features`,
		`{"features": 7}`:    `features is a value of type number`,
	} {
		write("feature_map.json", text)
		_, err := Read(plain)
		wantInput(t, err, want)
	}
}

// Tensors that two modules share are one tensor in the checkpoint, and have both keys in
// every dense file.
func TestAliases(t *testing.T) {
	c := unread(t, "fuxictr-fm.model")
	table := fuxiTable + "item.weight"
	c.add("context.table.weight", c.Tensors[table])
	c.add("tied.bias", c.Tensors["fm.lr_layer.bias"])
	if err := c.recognise(nil, nil, noSidecar); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"context.table.weight": table, "tied.bias": "fm.lr_layer.bias"}; !maps.Equal(c.aliases, want) {
		t.Fatalf("aliases %v, expected %v", c.aliases, want)
	}
	entries := must(Parse("again", canonical(c)))(t)
	if entries.Digest() != c.Digest() || !maps.Equal(entries.aliases, c.aliases) {
		t.Error("the canonical file has other aliases")
	}
	values := must(c.Embedding())(t)
	clear(values)
	path := filepath.Join(t.TempDir(), "m.safetensors")
	must(WriteDense(path, c.WithEmbedding(values)))(t)
	written := raw(t, path, "")
	for _, key := range []string{"context.table.weight", table} {
		if got, ok := written.Tensors[key]; !ok || !bytes.Equal(got.Data, make([]byte, 11*4*4)) {
			t.Errorf("tensor %s is not the pruned table", key)
		}
	}
	small := must(c.compact(make([]bool, c.Architecture.Parameters()), make([]float32, c.Architecture.Players()), compact.Float32))(t)
	if back := must(Parse("small", unsealed(small.entries, small.metadata)))(t); back.Digest() != c.Digest() {
		t.Error("the compact file is another checkpoint")
	}

	// The same values in other memory are another tensor.
	c = unread(t, "fuxictr-fm.model")
	other := c.Tensors[table]
	other.Data = bytes.Clone(other.Data)
	c.add("context.table.weight", other)
	wantInput(t, c.recognise(nil, nil, noSidecar), "tensor context.table.weight of shape [11, 4] belongs to no known layer")

	c = unread(t, "fuxictr-fm.model")
	for i := range maxAliases + 1 {
		c.add(fmt.Sprintf("tied.%d", i), c.Tensors["fm.lr_layer.bias"])
	}
	wantInput(t, c.recognise(nil, nil, noSidecar), "65 tensors are other names of tensors, expected at most 64")
}

// Tables that cannot be joined are refused, and so are tensors in unusual places.
func TestUnusualFamilies(t *testing.T) {
	said := `{"kind": "deepfm", "activation": "relu"}`
	recboleSaid := `{"kind": "deepfm", "field_dims": [7, 11, 4, 3]}`
	change := func(c *Checkpoint, key string, f func(t *Tensor)) {
		tensor, ok := c.Tensors[key]
		if !ok {
			t.Fatalf("no tensor %s", key)
		}
		f(&tensor)
		c.Tensors[key] = tensor
	}
	rename := func(c *Checkpoint, from, to string) {
		for i, key := range c.Keys {
			if rest, ok := strings.CutPrefix(key, from); ok {
				c.Keys[i] = to + rest
				c.Tensors[to+rest] = c.Tensors[key]
				delete(c.Tensors, key)
			}
		}
	}
	for name, test := range map[string]struct {
		file   string
		change func(c *Checkpoint)
		want   string
	}{
		"shared table": {"fuxictr-fm.model", func(c *Checkpoint) { c.Tensors[fuxiTable+"item.weight"] = c.Tensors[fuxiTable+"user.weight"] },
			"tensors " + fuxiTable + "item.weight and " + fuxiTable + "user.weight share memory, as if two fields had one table"},
		"overlapping tables": {"fuxictr-fm.model", func(c *Checkpoint) {
			change(c, fuxiTable+"city.weight", func(t *Tensor) { t.Data = c.Tensors[fuxiTable+"user.weight"].Data[16:80] })
		}, "share memory"},
		"widths": {"deepctr-torch-deepfm.h5", func(c *Checkpoint) {
			change(c, "embedding_dict.city.weight", func(t *Tensor) { t.Shape = []int{8, 2} })
		}, "tensor embedding_dict.city.weight has 2 columns, and the table of field \"user\" has 4: expected equal widths; export the model to ONNX"},
		"one value": {"fuxictr-fm.model", func(c *Checkpoint) {
			for key, tensor := range c.Tensors {
				if strings.HasPrefix(key, fuxiTable) {
					tensor.Shape, tensor.Data = []int{tensor.Shape[0], 1}, tensor.Data[:tensor.Shape[0]*4]
					c.Tensors[key] = tensor
				}
			}
			change(c, fuxiTable+"city.weight", func(t *Tensor) { t.Shape, t.Data = []int{1, 1}, t.Data[:4] })
		}, fuxiTable + "city.weight has one value, like the projection of a numeric feature: copy FuxiCTR's feature_map.json to the same folder"},
		"types": {"deepctr-torch-deepfm.h5", func(c *Checkpoint) {
			change(c, "embedding_dict.city.weight", func(t *Tensor) { t.DType, t.Data = F16, t.Data[:32] })
		}, "tensor embedding_dict.city.weight has the type F16, and the table of field \"user\" has F32"},
		"rows": {"deepctr-torch-deepfm.h5", func(c *Checkpoint) {
			change(c, "embedding_dict.city.weight", func(t *Tensor) { t.Shape, t.Data = []int{0, 4}, nil })
		}, "tensor embedding_dict.city.weight has no rows"},
		"first order": {"deepctr-torch-deepfm.h5", func(c *Checkpoint) {
			change(c, "linear_model.embedding_dict.city.weight", func(t *Tensor) { t.Shape, t.Data = []int{3, 1}, t.Data[:12] })
		}, "tensor linear_model.embedding_dict.city.weight has shape [3, 1], expected [4, 1]"},
		"a field without a table": {"deepctr-torch-deepfm.h5", func(c *Checkpoint) { rename(c, "embedding_dict.city.", "linear_model.embedding_dict.town.") },
			"the model has dense inputs, or tables that fields share, or another number of fields"},
		"prefixes": {"deepctr-torch-deepfm.h5", func(c *Checkpoint) { rename(c, "embedding_dict.city.", "module.embedding_dict.city.") }, "have different prefixes"},
		"star":     {"deepctr-torch-deepfm.h5", func(c *Checkpoint) { rename(c, "embedding_dict.city.", "embedding_dict.*.") }, "tensor embedding_dict.*.weight has no field in its name"},
		"no activation between layers": {"fuxictr-deepfm-plain.model", func(c *Checkpoint) { rename(c, "mlp.mlp.2.", "mlp.mlp.1.") },
			"tensor mlp.mlp.1.weight follows another layer without an activation"},
		"BatchNorm after the activation": {"fuxictr-deepfm.model", func(c *Checkpoint) { rename(c, "mlp.mlp.1.", "mlp.mlp.3.") },
			"tensor mlp.mlp.3.running_mean belongs to a BatchNorm that does not follow a linear layer"},
		"activation with parameters": {"fuxictr-deepfm-plain.model", func(c *Checkpoint) { c.add("mlp.mlp.1.weight", tensor.FromFloat32s([]int{8}, make([]float32, 8))) },
			"tensors mlp.mlp.1.* belong neither to a linear layer nor to a BatchNorm, perhaps to an activation with parameters"},
		"no cross layers": {"recbole-dcnv2-state.pth", func(c *Checkpoint) { // like RecBole's FNN
			for _, key := range []string{"cross_layer_w.0", "cross_layer_w.1", "bias.0", "bias.1"} {
				delete(c.Tensors, key)
			}
			c.Keys = slices.DeleteFunc(c.Keys, func(key string) bool { _, ok := c.Tensors[key]; return !ok })
		}, "tensor deep_predict_layer.weight is missing: export the model to ONNX"},
		"no output": {"deepctr-torch-deepfm.h5", func(c *Checkpoint) { rename(c, "dnn_linear.", "tower.") }, "tensor dnn_linear.weight is missing"},
		"leftover":  {"deepctr-torch-deepfm.h5", func(c *Checkpoint) { c.add("gate.weight", tensor.FromFloat32s([]int{1}, []float32{1})) }, "tensor gate.weight of shape [1] belongs to no known layer and may change what the model computes: export the model to ONNX"},
	} {
		c := unread(t, test.file)
		test.change(c)
		text := said
		if strings.HasPrefix(test.file, "recbole") {
			text = recboleSaid
		}
		err := c.recognise(nil, nil, saying(t, text))
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		wantInput(t, err, test.want)
	}

	// A field without first-order weights has zeros in DeepCTR-Torch, in which the two
	// lists of features may differ.
	c := unread(t, "deepctr-torch-deepfm.h5")
	delete(c.Tensors, "linear_model.embedding_dict.city.weight")
	c.Keys = slices.DeleteFunc(c.Keys, func(key string) bool { return key == "linear_model.embedding_dict.city.weight" })
	if err := c.recognise(nil, nil, saying(t, said)); err != nil {
		t.Fatal(err)
	}
	m := must(c.Model())(t)
	for f, w := range m.Weights.FirstOrder {
		if zero := f >= 23 && f < 27; (w == 0) != zero {
			t.Errorf("feature %d has the first-order weight %v", f, w)
		}
	}
}

// model. and net. are removed only if all tensors have them.
func TestShortNames(t *testing.T) {
	for keys, want := range map[string]string{
		"model.a model.b":                    "a b",
		"module.model.a module.model.b":      "a b",
		"net._orig_mod.module.model.a net.b": "model.a b",
		"model.net.a model.net.b":            "a b",
		"model.a b":                          "model.a b",
		"model.module.a model._orig_mod.b":   "a b",
		"network.a network.b":                "network.a network.b",
		"_orig_mod.model.a module.net.b":     "model.a net.b",
	} {
		if got := strings.Join(shortNames(strings.Fields(keys)), " "); got != want {
			t.Errorf("%s became %s, expected %s", keys, got, want)
		}
	}
}

// A WideDeep may have our own names. The JSON file says that it is not a DeepFM.
func TestOwnWideDeep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if err := os.WriteFile(path, fileBytes(sampleEntries("deepfm"), nil), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".json", []byte(`{"field_dims": [2, 3, 4], "kind": "WideDeep"}`), 0o666); err != nil {
		t.Fatal(err)
	}
	c := must(Read(path))(t)
	again := must(Parse("again", canonical(c)))(t)
	if c.Architecture.Kind != model.WideDeep || again.Architecture.Kind != model.WideDeep || must(again.Model())(t).Kind != model.WideDeep {
		t.Errorf("kinds %s and %s", c.Architecture.Kind, again.Architecture.Kind)
	}
}

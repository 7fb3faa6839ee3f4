package family_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/checkpoint/family"
	"shaver/internal/click/checkpoint/family/familytest"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

const fuxiTable = "embedding_layer.embedding_layer.embedding_layers."

const folder = "../../../../testdata/families"

// raw returns the tensors of a .pth or safetensors file, without recognising them. key is
// checkpoint.Options.StateDict.
func raw(t *testing.T, path, key string) *family.State {
	t.Helper()
	return must(checkpoint.ReadState(path, key))(t)
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

// parsed returns the model in a safetensors file.
func parsed(t *testing.T, path string) *model.Model {
	t.Helper()
	m, _, err := checkpoint.ParseModel(path, must(os.ReadFile(path))(t))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// wantInput fails the test unless err is an input error that contains all texts.
func wantInput(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil || !fault.IsInput(err) {
		t.Fatalf("error %v, want an input error with %q", err, texts)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q lacks %q", err, text)
		}
	}
}

// saying returns a Lookup that finds a JSON file with the given text.
func saying(t *testing.T, text string) family.Lookup {
	t.Helper()
	s := family.Statement{From: "m.json", File: "m.json"}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return func(string) (*family.Statement, error) { return &s, nil }
}

// State dicts of real packages have the logits of these packages. What is written has the
// same tensors under the same keys, and reads as the same model in every form.
func TestFamilies(t *testing.T) {
	done := map[string]bool{}
	for _, c := range familytest.Cases(t, folder) {
		if c.Kind == "" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			temporary := t.TempDir()
			ck, err := checkpoint.ReadPart(c.CopyTo(t, temporary, c.Said()), checkpoint.Options{StateDict: c.Key()})
			if err != nil {
				t.Fatal(err)
			}
			kind, structure, _ := strings.Cut(c.Kind, " ")
			if got := string(ck.Architecture.Kind); ck.Family != c.Family || got != strings.ReplaceAll(kind, "-", "") || ck.Architecture.Structure != structure {
				t.Errorf("recognised as %s %s of %s", got, ck.Architecture.Structure, ck.Family)
			}
			if !slices.Equal(ck.Architecture.FieldDims, c.Dims()) {
				t.Errorf("fields have the sizes %v, expected %v", ck.Architecture.FieldDims, c.Dims())
			}
			if strings.Contains(ck.EmbeddingKey, "*") { // the tables of the fields are joined
				for j, f := range c.Fields {
					if ck.Fields[j] != f.Name {
						t.Errorf("field %d is %s, expected %s", j, ck.Fields[j], f.Name)
					}
				}
			}
			m := must(ck.Model())(t)
			familytest.Near(t, "as saved", c.Logits(m), c.Want, 1e-6)
			done[c.Family+" "+c.Kind] = true

			dense := filepath.Join(temporary, "dense.safetensors")
			size := must(checkpoint.WriteDense(dense, ck))(t)
			if size != ck.Size() {
				t.Errorf("WriteDense wrote %d bytes, Size says %d", size, ck.Size())
			}
			if !maps.EqualFunc(raw(t, dense, "").Tensors, raw(t, c.Path(), c.Key()).Tensors, func(a, b tensor.Tensor) bool {
				return a.DType == b.DType && slices.Equal(a.Shape, b.Shape) && bytes.Equal(a.Data, b.Data)
			}) {
				t.Error("the dense file has other tensors")
			}
			again := must(checkpoint.Read(dense))(t)
			if again.Digest() != ck.Digest() || again.TensorCount() != ck.TensorCount() {
				t.Error("the dense file is another checkpoint")
			}
			familytest.Near(t, "dense", c.Logits(must(again.Model())(t)), c.Want, 1e-6)
			familytest.Near(t, "parsed", c.Logits(parsed(t, dense)), c.Want, 1e-6)

			a := &ck.Architecture
			dropped, baseline := make([]bool, a.Parameters()), a.Zero()
			table := must(ck.Embedding())(t)
			for i := range dropped {
				if dropped[i] = i%3 == 0; dropped[i] {
					table[i] = 0
				}
			}
			pruned := ck.WithEmbedding(table)
			if _, err := checkpoint.WriteDense(dense, pruned); err != nil {
				t.Fatal(err)
			}
			if !maps.EqualFunc(raw(t, dense, "").Tensors, raw(t, c.Path(), c.Key()).Tensors, func(a, b tensor.Tensor) bool {
				return a.DType == b.DType && slices.Equal(a.Shape, b.Shape)
			}) {
				t.Error("the pruned file has other tensors")
			}
			small := filepath.Join(temporary, "small.safetensors")
			if _, err := checkpoint.WriteCompact(small, ck, dropped, baseline, compact.Float32); err != nil {
				t.Fatal(err)
			}
			inflated := must(checkpoint.Read(small))(t)
			if inflated.Digest() != pruned.Digest() || must(checkpoint.Read(dense))(t).Digest() != pruned.Digest() {
				t.Error("the pruned files hold different checkpoints")
			}
			want := c.Logits(must(pruned.Model())(t))
			familytest.Near(t, "compact", c.Logits(parsed(t, small)), want, 0)

			calibrated, _, err := ck.Calibrated(1.5, -0.25)
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range c.Want {
				want[i] = 1.5*v - 0.25
			}
			familytest.Near(t, "calibrated", c.Logits(must(calibrated.Model())(t)), want, 5e-6)
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
	for _, c := range familytest.Cases(t, folder) {
		if c.Kind != "" {
			continue
		}
		said := `{"activation": "relu", "kind": "deepfm"}`
		want := []string{c.File, wants[c.Name]}
		switch {
		case strings.HasSuffix(c.Name, "-tanh"):
			said = ""
		case strings.Contains(c.Name, "dcn"):
			said = `{"activation": "relu"}`
			fallthrough
		default:
			want = append(want, "export the model to ONNX (shaver model export-help --for ")
		}
		if wants[c.Name] == "" {
			t.Errorf("%s: no error is expected", c.Name)
		}
		_, err := checkpoint.Read(c.CopyTo(t, t.TempDir(), said))
		wantInput(t, err, want...)
		delete(wants, c.Name)
	}
	for name := range wants {
		t.Errorf("there is no case %s", name)
	}
	for _, c := range familytest.Cases(t, folder) {
		if c.Name == "fuxictr-deepfm-tanh" {
			_, err := checkpoint.Read(c.CopyTo(t, t.TempDir(), `{"activation": "Tanh"}`))
			wantInput(t, err, `says that the activation is "Tanh", but only relu is supported in a state dict: export the model to ONNX (shaver model export-help --for fuxictr)`)
		}
	}
}

// The classes in a pickled module of DeepCTR-Torch say the kind and the activation, also in a wrapper. What they leave
// open is asked for, and another activation is refused.
func TestPickledClasses(t *testing.T) {
	const deepFM, wdl = "deepctr_torch.models.deepfm.DeepFM", "deepctr_torch.models.wdl.WDL"
	const relu, sigmoid = "torch.nn.modules.activation.ReLU", "torch.nn.modules.activation.Sigmoid"
	for name, test := range map[string]struct {
		class, first, second string // of the model and of its two activations
		pairs                bool   // whether there is a module fm
		wrapper              string
		want                 string // kind, or error
	}{
		"DeepFM":                {deepFM, relu, relu, true, "", "deepfm"},
		"DeepFM without pairs":  {deepFM, relu, relu, false, "", "widedeep"},
		"WDL":                   {wdl, relu, relu, false, "", "widedeep"},
		"DataParallel":          {wdl, relu, relu, false, "module", "widedeep"},
		"another class":         {"app.DeepFM", relu, relu, true, "", `m.pth is a module of deepctr-torch, which does not say whether it is a DeepFM or a WideDeep: write m.json with what is true, for example {"kind": "deepfm"}; if it is another model, export the model to ONNX (shaver model export-help --for deepctr-torch)`},
		"NFM":                   {"deepctr_torch.models.nfm.NFM", relu, relu, false, "", `the pickled module says kind "nfm", but these tensors of deepctr-torch are read only as "deepfm" or "widedeep": if it is another model, export the model to ONNX (shaver model export-help --for deepctr-torch)`},
		"without an activation": {deepFM, "", "", true, "", `m.pth is a module of deepctr-torch, which does not say which activation its hidden layers have: write m.json`},
		"another activation":    {deepFM, relu, sigmoid, true, "", `the pickled module says that the activation is "sigmoid", but only relu is supported in a state dict: export the model to ONNX`},
		"an activation by hand": {deepFM, "app.layers.Swish", relu, true, "", `says that the activation is "swish"`},
		"another prefix":        {deepFM, relu, relu, true, "other", `m.pth is a module of deepctr-torch, which does not say`},
	} {
		c := raw(t, filepath.Join(folder, "deepctr-torch-deepfm.h5"), "")
		c.Name, c.Sidecar = "m.pth", "m.json"
		prefix := ""
		if test.wrapper != "" {
			prefix = test.wrapper + "."
		}
		classes := map[string]string{"": "torch.nn.parallel.DataParallel", test.wrapper: test.class, prefix + "dnn": "deepctr_torch.layers.core.DNN", prefix + "act": sigmoid, prefix + "dnn.linears": "torch.nn.modules.container.ModuleList"}
		if test.pairs {
			classes[prefix+"fm"] = "deepctr_torch.layers.interaction.FM"
		}
		for i, class := range []string{test.first, test.second} {
			if class != "" {
				classes[fmt.Sprintf("%sdnn.activation_layers.%d", prefix, i)] = class
			}
			classes[fmt.Sprintf("%sdnn.linears.%d", prefix, i)] = "torch.nn.modules.linear.Linear"
		}
		if test.wrapper == "module" {
			for i, key := range c.Keys {
				c.Tensors["module."+key] = c.Tensors[key]
				delete(c.Tensors, key)
				c.Keys[i] = "module." + key
			}
		}
		err := c.Recognise([]family.Statement{{From: "the pickled module", Classes: classes}}, nil, func(string) (*family.Statement, error) { return nil, nil })
		switch {
		case strings.Contains(test.want, " "):
			wantInput(t, err, test.want)
		case err != nil || string(c.Architecture.Kind) != test.want:
			t.Errorf("%s: recognised as %s: %v", name, c.Architecture.Kind, err)
		}
	}
}

// A pickled module is read if what stands between its linear layers is what a state dict with the same tensors is assumed to
// have, and otherwise refused.
func TestLayersOfModules(t *testing.T) {
	const nn = "torch.nn.modules."
	const linear, norm, relu, dropout = nn + "linear.Linear", nn + "batchnorm.BatchNorm1d", nn + "activation.ReLU", nn + "dropout.Dropout"
	const sequential, list = nn + "container.Sequential", nn + "container.ModuleList"
	const only, after = "expected Linear, BatchNorm1d, ReLU or Dropout", "expected nothing after the last linear layer"
	type classes map[string]string
	whole := func(change classes) map[string]string {
		all := map[string]string{"": "app.DeepFM", "embedding": nn + "sparse.Embedding", "_deep_branch": sequential, "_deep_branch.0": linear, "_deep_branch.1": norm, "_deep_branch.2": relu, "_deep_branch.3": dropout, "_deep_branch.4": linear}
		maps.Copy(all, change)
		return all
	}
	for name, test := range map[string]struct {
		change classes
		want   string // error; "" if the module is read
	}{
		"as assumed":                {nil, ""},
		"list":                      {classes{"_deep_branch": list}, ""},
		"list, activation outside":  {classes{"_deep_branch": list, "_deep_branch.2": dropout}, ""},
		"output's sigmoid and loss": {classes{"sigmoid": nn + "activation.Sigmoid", "loss": nn + "loss.BCEWithLogitsLoss"}, ""},
		"dropout at the end":        {classes{"_deep_branch.5": dropout}, ""},
		"no effect":                 {classes{"_deep_branch.3": nn + "linear.Identity"}, ""},
		"of the author":             {classes{"_deep_branch.2": "app.Swish"}, only},
		"author's layer":            {classes{"_deep_branch.0": "app.Linear"}, only},
		"norm after ReLU":           {classes{"_deep_branch.3": norm}, only},
		"no activation":             {classes{"_deep_branch.2": dropout}, "no ReLU follows the linear layer with the tensor _deep_branch.0.weight"},
		"identity":                  {classes{"_deep_branch.2": nn + "linear.Identity"}, "no ReLU follows"},
		"ReLU at the end":           {classes{"_deep_branch.5": relu}, after},
		"sigmoid at the end":        {classes{"_deep_branch.5": nn + "activation.Sigmoid"}, `module "_deep_branch.5" is of class torch.nn.modules.activation.Sigmoid`},
		"GELU":                      {classes{"_deep_branch.2": nn + "activation.GELU"}, `module "_deep_branch.2" is of class torch.nn.modules.activation.GELU, expected Linear`},
		"another norm":              {classes{"_deep_branch.1": nn + "normalization.LayerNorm"}, "LayerNorm"},
		"bag":                       {classes{"embedding": nn + "sparse.EmbeddingBag"}, "EmbeddingBag"},
	} {
		c := sample("", same)
		said := family.Statement{From: "the pickled module", FieldDims: familytest.Dims, Classes: whole(test.change)}
		err := c.Recognise([]family.Statement{said}, nil, func(string) (*family.Statement, error) { return nil, nil })
		if test.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		wantInput(t, err, "m.pth: the pickled module: ", test.want, "; export the model to ONNX (shaver model export-help --for pytorch)")
	}
}

// sample returns the state dict of a DeepFM, with a prefix before each key. change may change its tensors.
func sample(prefix string, change func(key string, t *tensor.Tensor) string) *family.State {
	c := &family.State{Name: "m.pth", Sidecar: "m.json", Tensors: map[string]tensor.Tensor{}}
	for _, e := range familytest.Sample("deepfm") {
		key := change(e.Key, &e.Tensor)
		c.Keys = append(c.Keys, prefix+key)
		c.Tensors[prefix+key] = e.Tensor
	}
	return c
}

// same is a change of none.
func same(key string, _ *tensor.Tensor) string { return key }

// dims says the fields of familytest.Sample.
var dims = []family.Statement{{From: "the test", FieldDims: familytest.Dims}}

// Each tensor that the logit reads must have floating-point numbers. Those of a packed table are not what the table stands for.
func TestWholeNumbers(t *testing.T) {
	for _, e := range familytest.Sample("deepfm") {
		for _, d := range []tensor.DType{tensor.U8, tensor.I8, tensor.Bool, tensor.I64} {
			c := sample("", func(key string, t *tensor.Tensor) string {
				if key == e.Key {
					t.DType, t.Data = d, make([]byte, t.Elements()*d.Size())
				}
				return key
			})
			err := c.Recognise(slices.Clone(dims), nil, saying(t, "{}"))
			if strings.HasSuffix(e.Key, "num_batches_tracked") || strings.HasPrefix(e.Key, "linear_layer.") { // which no logit reads
				if err != nil {
					t.Error(err)
				}
				continue
			}
			wantInput(t, err, "m.pth: tensor "+e.Key+" has elements of type "+string(d)+", expected floating-point numbers: if it is quantised or packed, dequantise it")
		}
	}
}

// Tensors that only a training uses change nothing, inside or outside the module that has the model. Others are named.
func TestTensorsOfTraining(t *testing.T) {
	for prefix, keys := range map[string][]string{
		"model.": {"criterion.pos_weight", "loss_fn.weight"}, "module.": {"n_averaged"}, "module.model.": {"n_averaged", "module.pos_weight"}, "": {"n_averaged", "loss.pos_weight"},
		"net.": {"net.criterion.weight"},
	} {
		c := sample(prefix, same)
		for _, key := range keys {
			c.Keys = append(c.Keys, key)
			c.Tensors[key] = tensor.FromFloat32s([]int{1}, []float32{1})
		}
		if err := c.Recognise(slices.Clone(dims), nil, saying(t, "{}")); err != nil || c.EmbeddingKey != prefix+"embedding.weight" {
			t.Errorf("%q: table %q: %v", prefix, c.EmbeddingKey, err)
		}
	}
	for _, prefix := range []string{"model.", "tower."} {
		c := sample(prefix, same)
		c.Keys = append(c.Keys, "temperature")
		c.Tensors["temperature"] = tensor.FromFloat32s([]int{1}, []float32{1})
		wantInput(t, c.Recognise(slices.Clone(dims), nil, saying(t, "{}")), "those with the prefix "+prefix+" are those of a DeepFM, but not temperature: save only those with the prefix if the others do not change the logit")
	}
}

// A list of tables is the table of all fields, in the order of the numbers, also if the file sorts its keys.
func TestListOfTables(t *testing.T) {
	names := map[string][]string{"numbers": nil, "modules": {"user", "item", "city"}}
	for j := range 12 {
		names["numbers"] = append(names["numbers"], fmt.Sprint(j))
	}
	for form, fields := range names {
		c := &family.State{Name: "m.safetensors", Sidecar: "m.json", Tensors: map[string]tensor.Tensor{}, Unordered: form == "numbers"}
		add := func(key string, t tensor.Tensor) {
			c.Keys = append(c.Keys, key)
			c.Tensors[key] = t
		}
		var want, first []byte
		for j, field := range fields {
			table := tensor.FromFloat32s([]int{1, 2}, []float32{float32(j), 1})
			add("embedding."+field+".weight", table)
			add("fc."+field+".weight", tensor.FromFloat32s([]int{1, 1}, []float32{float32(j)}))
			want, first = append(want, table.Data...), append(first, table.Data[:4]...)
		}
		add("_bias", tensor.FromFloat32s([]int{1}, []float32{1}))
		if c.Unordered {
			slices.Sort(c.Keys)
		}
		before := maps.Clone(c.Tensors)
		if err := c.Recognise(nil, nil, saying(t, "{}")); err != nil {
			t.Fatal(err)
		}
		roles := must(c.Roles())(t)
		var wide []byte
		for _, key := range roles.FirstOrder {
			wide = append(wide, c.Tensors[key].Data...)
		}
		if !bytes.Equal(c.Tensors[c.EmbeddingKey].Data, want) || !bytes.Equal(wide, first) || !slices.Equal(c.Fields, fields) {
			t.Errorf("%s: the fields %v have other rows", form, c.Fields)
		}
		if after := c.Split(); !reflect.DeepEqual(after, before) {
			t.Errorf("%s: the file that is written has other tensors", form)
		}
	}
}

// A weight that a parametrization or a mask computes is named with the call that stores it.
func TestParametrizations(t *testing.T) {
	for part, undo := range map[string]string{
		"weight_orig": "prune.remove", "weight_g": "remove_weight_norm", "parametrizations.weight.original0": "parametrize.remove_parametrizations",
	} {
		for _, module := range []string{"embedding.", "_deep_branch.0."} {
			c := sample("", func(key string, _ *tensor.Tensor) string {
				if key == module+"weight" {
					return module + part
				}
				return key
			})
			wantInput(t, c.Recognise(slices.Clone(dims), nil, saying(t, "{}")), "tensor "+module+"weight is missing, because a parametrization or a mask computes it from "+module+part+": call torch.nn.utils.", undo+`(module, "weight") before you save`)
		}
	}
}

// A stated kind that the tensors cannot be, or that shaver does not know, leads to ONNX.
func TestStatedKinds(t *testing.T) {
	const do = "if it is another model, export the model to ONNX (shaver model export-help --for "
	for _, test := range []struct{ file, said, want string }{
		{"deepctr-torch-deepfm.h5", `{"kind": "FiBiNET", "activation": "relu"}`, `m.json says kind "fibinet", but these tensors of deepctr-torch are read only as "deepfm" or "widedeep": ` + do + "deepctr-torch)"},
		{"deepctr-torch-fm.h5", `{"kind": "ifm"}`, `m.json says kind "ifm", but these tensors of deepctr-torch are read only as "fm": ` + do + "deepctr-torch)"},
		{"recbole-dcnv2-state.pth", `{"kind": "autoint", "field_dims": [7, 11, 4, 3]}`, `m.json says kind "autoint", which shaver does not read from a state dict of recbole: export the model to ONNX (shaver model export-help --for recbole)`},
		{"recbole-dcnv2-state.pth", `{"kind": "fm", "field_dims": [7, 11, 4, 3]}`, `m.json says kind "fm", the tensors have dcnv2; ` + do + "recbole)"},
	} {
		wantInput(t, raw(t, filepath.Join(folder, test.file), "").Recognise(nil, nil, saying(t, test.said)), test.want)
	}
}

// A tensor that only another model of DeepCTR-Torch has names that model, whatever the user states.
func TestModelsOfDeepCTRTorch(t *testing.T) {
	for key, what := range map[string]string{
		"SE.excitation.0.weight": "a FiBiNET", "Bilinear.bilinear.weight": "a FiBiNET", "int_layers.0.W_Query": "an AutoInt", "fm.attention_W": "an AFM",
		"conv_layer.conv_layer.0.weight": "a CCPM", "second_order_embedding_dict.user+item.emb1.weight": "an ONN",
		"factor_estimating_net.linears.0.weight": "an IFM", "vector_wise_net.W_Query": "a DIFM", "ltl.ltl_weights": "an AFN",
		"region_linear_model.0.embedding_dict.user.weight": "an MLR",
	} {
		for _, said := range []string{"{}", `{"kind": "deepfm", "activation": "relu"}`, `{"kind": "fm"}`, `{"kind": "other"}`} {
			c := raw(t, filepath.Join(folder, "deepctr-torch-deepfm.h5"), "")
			c.Keys = append(c.Keys, key)
			c.Tensors[key] = tensor.FromFloat32s([]int{1}, []float32{1})
			wantInput(t, c.Recognise(nil, nil, saying(t, said)), "tensor "+key+" belongs to "+what+": export the model to ONNX (shaver model export-help --for deepctr-torch)")
		}
	}
}

// Tables that cannot be joined are refused, and so are tensors in unusual places.
func TestUnusualFamilies(t *testing.T) {
	said := `{"kind": "deepfm", "activation": "relu"}`
	recboleSaid := `{"kind": "deepfm", "field_dims": [7, 11, 4, 3]}`
	change := func(c *family.State, key string, f func(t *tensor.Tensor)) {
		found, ok := c.Tensors[key]
		if !ok {
			t.Fatalf("no tensor %s", key)
		}
		f(&found)
		c.Tensors[key] = found
	}
	add := func(c *family.State, key string, added tensor.Tensor) {
		c.Keys = append(c.Keys, key)
		c.Tensors[key] = added
	}
	rename := func(c *family.State, from, to string) {
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
		change func(c *family.State)
		want   string
	}{
		"shared table": {"fuxictr-fm.model", func(c *family.State) { c.Tensors[fuxiTable+"item.weight"] = c.Tensors[fuxiTable+"user.weight"] },
			"tensors " + fuxiTable + "item.weight and " + fuxiTable + "user.weight share memory, as if two fields had one table"},
		"overlapping tables": {"fuxictr-fm.model", func(c *family.State) {
			change(c, fuxiTable+"city.weight", func(t *tensor.Tensor) { t.Data = c.Tensors[fuxiTable+"user.weight"].Data[16:80] })
		}, "share memory"},
		"widths": {"deepctr-torch-deepfm.h5", func(c *family.State) {
			change(c, "embedding_dict.city.weight", func(t *tensor.Tensor) { t.Shape = []int{8, 2} })
		}, "tensor embedding_dict.city.weight has 2 columns, and the table of field \"user\" has 4: expected equal widths; export the model to ONNX"},
		"one value": {"fuxictr-fm.model", func(c *family.State) {
			for key, found := range c.Tensors {
				if strings.HasPrefix(key, fuxiTable) {
					found.Shape, found.Data = []int{found.Shape[0], 1}, found.Data[:found.Shape[0]*4]
					c.Tensors[key] = found
				}
			}
			change(c, fuxiTable+"city.weight", func(t *tensor.Tensor) { t.Shape, t.Data = []int{1, 1}, t.Data[:4] })
		}, fuxiTable + "city.weight has one value, like the projection of a numeric feature: copy FuxiCTR's feature_map.json to the same folder"},
		"types": {"deepctr-torch-deepfm.h5", func(c *family.State) {
			change(c, "embedding_dict.city.weight", func(t *tensor.Tensor) { t.DType, t.Data = tensor.F16, t.Data[:32] })
		}, "tensor embedding_dict.city.weight has the type F16, and the table of field \"user\" has F32"},
		"rows": {"deepctr-torch-deepfm.h5", func(c *family.State) {
			change(c, "embedding_dict.city.weight", func(t *tensor.Tensor) { t.Shape, t.Data = []int{0, 4}, nil })
		}, "tensor embedding_dict.city.weight has no rows"},
		"first order": {"deepctr-torch-deepfm.h5", func(c *family.State) {
			change(c, "linear_model.embedding_dict.city.weight", func(t *tensor.Tensor) { t.Shape, t.Data = []int{3, 1}, t.Data[:12] })
		}, "tensor linear_model.embedding_dict.city.weight has shape [3, 1], expected [4, 1]; export the model to ONNX (shaver model export-help --for deepctr-torch)"},
		"output": {"deepctr-torch-deepfm.h5", func(c *family.State) {
			change(c, "dnn_linear.weight", func(t *tensor.Tensor) { t.Shape, t.Data = []int{1, 26}, make([]byte, 4*26) })
		}, "tensor dnn_linear.weight has shape [1, 26], expected [1, 6]; export the model to ONNX (shaver model export-help --for deepctr-torch)"},
		"a field without a table": {"deepctr-torch-deepfm.h5", func(c *family.State) { rename(c, "embedding_dict.city.", "linear_model.embedding_dict.town.") },
			"the model has dense inputs, or tables that fields share, or another number of fields"},
		"prefixes": {"deepctr-torch-deepfm.h5", func(c *family.State) { rename(c, "embedding_dict.city.", "module.embedding_dict.city.") }, "have different prefixes"},
		"star":     {"deepctr-torch-deepfm.h5", func(c *family.State) { rename(c, "embedding_dict.city.", "embedding_dict.*.") }, "tensor embedding_dict.*.weight has no field in its name"},
		"no activation between layers": {"fuxictr-deepfm-plain.model", func(c *family.State) { rename(c, "mlp.mlp.2.", "mlp.mlp.1.") },
			"tensor mlp.mlp.1.weight follows another layer without an activation"},
		"BatchNorm after the activation": {"fuxictr-deepfm.model", func(c *family.State) { rename(c, "mlp.mlp.1.", "mlp.mlp.3.") },
			"tensor mlp.mlp.3.running_mean belongs to a BatchNorm that does not follow a linear layer"},
		"activation with parameters": {"fuxictr-deepfm-plain.model", func(c *family.State) { add(c, "mlp.mlp.1.weight", tensor.FromFloat32s([]int{8}, make([]float32, 8))) },
			"tensors mlp.mlp.1.* belong neither to a linear layer nor to a BatchNorm, perhaps to an activation with parameters"},
		"no cross layers": {"recbole-dcnv2-state.pth", func(c *family.State) { // like RecBole's FNN
			for _, key := range []string{"cross_layer_w.0", "cross_layer_w.1", "bias.0", "bias.1"} {
				delete(c.Tensors, key)
			}
			c.Keys = slices.DeleteFunc(c.Keys, func(key string) bool { _, ok := c.Tensors[key]; return !ok })
		}, "tensor deep_predict_layer.weight is missing: export the model to ONNX"},
		"no output": {"deepctr-torch-deepfm.h5", func(c *family.State) { rename(c, "dnn_linear.", "tower.") }, "tensor dnn_linear.weight is missing"},
		"leftover":  {"deepctr-torch-deepfm.h5", func(c *family.State) { add(c, "gate.weight", tensor.FromFloat32s([]int{1}, []float32{1})) }, "tensor gate.weight of shape [1] belongs to no known layer and may change what the model computes: export the model to ONNX"},
	} {
		c := raw(t, filepath.Join(folder, test.file), "")
		test.change(c)
		text := said
		if strings.HasPrefix(test.file, "recbole") {
			text = recboleSaid
		}
		err := c.Recognise(nil, nil, saying(t, text))
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		wantInput(t, err, test.want)
	}
}

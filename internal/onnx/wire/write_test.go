package wire

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/wire/onnxtest"
)

// written is a rewritten model that was read again.
type written struct {
	*Rewriting
	main, data []byte
	model      *Model
}

// rewriteFile rewrites the model at path with new values of some of its tensors, and reads the
// result.
func rewriteFile(t *testing.T, path string, o Options, values map[string][]float32, compact ...*Compact) written {
	t.Helper()
	forms := map[string]*Compact{} // of the table t
	for _, c := range compact {
		forms["t"] = c
	}
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var tables []Table
	for _, tensor := range tensorsOf(m.Graph) {
		if v, ok := values[tensor.Name]; ok {
			tables = append(tables, Table{tensor, v, forms[tensor.Name]})
		}
	}
	if len(tables) != len(values) {
		t.Fatalf("%d tables, expected %d", len(tables), len(values))
	}
	o.Data = "new.data"
	r, err := m.Rewrite(tables, o)
	if err != nil {
		t.Fatal(err)
	}
	var main, data bytes.Buffer
	n, err := r.WriteTo(&main)
	if err != nil || n != r.Bytes || int64(main.Len()) != n {
		t.Fatalf("wrote %d bytes in %d, expected %d: %v", n, main.Len(), r.Bytes, err)
	}
	if n, err = r.WriteData(&data); err != nil || n != r.DataBytes || int64(data.Len()) != n {
		t.Fatalf("wrote %d bytes of external data in %d, expected %d: %v", n, data.Len(), r.DataBytes, err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "new.onnx"), main.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if r.External {
		if err := os.WriteFile(filepath.Join(folder, o.Data), data.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	again, err := Open(filepath.Join(folder, "new.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	return written{r, main.Bytes(), data.Bytes(), again}
}

// tensorsOf returns the tensors of g and of the graphs in it.
func tensorsOf(g *Graph) []*Tensor {
	all := slices.Clone(g.Initializers)
	for i := range g.Nodes {
		for _, name := range sortedNames(g.Nodes[i].Attributes) {
			a := g.Nodes[i].Attributes[name]
			if a.Tensor != nil {
				all = append(all, a.Tensor)
			}
			if a.Graph != nil {
				all = append(all, tensorsOf(a.Graph)...)
			}
		}
	}
	return all
}

func floatsOf(t *testing.T, m *Model, name string) []float32 {
	t.Helper()
	for _, tensor := range tensorsOf(m.Graph) {
		if tensor.Name == name {
			v, err := tensor.Floats()
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("there is no tensor %s", name)
	return nil
}

func save(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.onnx")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// halves returns a tensor of float16 or bfloat16 whose bits are in int32_data.
func halves(name string, kind int64, bits ...uint64) onnxtest.Message {
	var data []byte
	for _, b := range bits {
		data = binary.AppendUvarint(data, b)
	}
	return onnxtest.Message(nil).Int(1, int64(len(bits))).Int(2, kind).Text(5, string(data)).Text(8, name)
}

// forms is a model with a table in every form, and a table in a body within a body.
func forms() []byte {
	doubles := make([]byte, 0, 16)
	for _, v := range []float64{math.Pi, 1} {
		doubles = binary.LittleEndian.AppendUint64(doubles, math.Float64bits(v))
	}
	inner := onnxtest.Graph{
		Nodes:   []onnxtest.Message{onnxtest.Node("Constant", nil, onnxtest.Names{"deep"}, onnxtest.Attribute("value", onnxtest.Floats("inner", []float32{1, 2, 3}, 3)))},
		Outputs: []onnxtest.Message{onnxtest.Value("deep", 1, 3)},
	}
	branch := func(name string) onnxtest.Graph {
		return onnxtest.Graph{
			Nodes: []onnxtest.Message{onnxtest.Node("If", onnxtest.Names{"yes"}, onnxtest.Names{name},
				onnxtest.Attribute("then_branch", inner), onnxtest.Attribute("else_branch", onnxtest.Graph{
					Nodes: []onnxtest.Message{onnxtest.Node("Identity", onnxtest.Names{"raw"}, onnxtest.Names{name + "o"})}, Outputs: []onnxtest.Message{onnxtest.Value(name+"o", 1)}}))},
			Outputs: []onnxtest.Message{onnxtest.Value(name, 1, 3)},
		}
	}
	g := onnxtest.Graph{
		Outputs: []onnxtest.Message{onnxtest.Value("y", 1, 3)},
		Initializers: []onnxtest.Message{
			onnxtest.Floats("raw", []float32{1, float32(math.Copysign(0, -1)), 3}, 3),
			onnxtest.Message(nil).Int(1, 2).Int(2, 1).Text(8, "typed").Text(4, string(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, math.Float32bits(5)), math.Float32bits(6)))),
			onnxtest.Raw("double", 11, doubles, 2),
			halves("half", 10, 0x3c00, 0x4000, 0),
			halves("brain", 16, 0x3f80, 0x4000),
			onnxtest.Raw("yes", 9, []byte{1}),
		},
		Nodes: []onnxtest.Message{onnxtest.Node("If", onnxtest.Names{"yes"}, onnxtest.Names{"y"},
			onnxtest.Attribute("then_branch", branch("a")), onnxtest.Attribute("else_branch", branch("b")))},
	}
	return onnxtest.Model(18, g.Message(), onnxtest.Message(nil).Text(99, "a field of a newer version"))
}

// A model with the same values has the same bytes. Otherwise only the elements that change
// have other bytes, whatever their form is.
func TestRewriteForms(t *testing.T) {
	data := forms()
	path := save(t, data)
	minusZero := float32(math.Copysign(0, -1))
	same := map[string][]float32{"raw": {1, minusZero, 3}, "typed": {5, 6}, "double": {float32(math.Pi), 1}, "half": {1, 2, 0}, "brain": {1, 2}}
	if w := rewriteFile(t, path, Options{}, same); !bytes.Equal(w.main, data) || w.External {
		t.Error("a model with the same values has other bytes")
	}
	changes := map[string][]float32{"raw": {1, 0, 7}, "typed": {-5, 6}, "double": {float32(math.Pi), 1.5}, "half": {0.1, 2, 65504}, "brain": {1, 1.004}}
	w := rewriteFile(t, path, Options{}, changes)
	want := map[string][]float32{"raw": changes["raw"], "typed": changes["typed"], "double": changes["double"], "half": {0.099975586, 2, 65504}, "brain": {1, 1.0078125}}
	for name, values := range want {
		if got := floatsOf(t, w.model, name); !slices.Equal(got, values) || math.Signbit(float64(got[1])) {
			t.Errorf("%s is %v, expected %v", name, got, values)
		}
	}
	if !bytes.Contains(w.main, binary.LittleEndian.AppendUint64(nil, math.Float64bits(math.Pi))) {
		t.Error("an element of float64 that does not change was rounded to float32")
	}
	if !bytes.HasSuffix(w.main, []byte("a field of a newer version")) {
		t.Error("an unknown field is lost")
	}
	small := map[string][]float32{"half": {70000, 1, 1}}
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	half := m.Graph.Initializers[3]
	if _, err := m.Rewrite([]Table{{Tensor: half, Values: small["half"]}}, Options{}); !fault.IsInput(err) || !strings.Contains(err.Error(), "cannot hold the value 70000") {
		t.Errorf("a value beyond float16: %v", err)
	}
	if _, err := m.Rewrite([]Table{{Tensor: half, Values: []float32{1, 2, 0}}, {Tensor: half, Values: []float32{1, 2, 0}}}, Options{}); !fault.IsInput(err) || !strings.Contains(err.Error(), "are one tensor") {
		t.Errorf("one tensor twice: %v", err)
	}
}

// If the file would be too large, the tables move to a file with external data, also from a
// body in a body, whose messages get other lengths.
func TestRewriteLarge(t *testing.T) {
	path := save(t, forms())
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var inner *Tensor
	for _, tensor := range tensorsOf(m.Graph) {
		if tensor.Name == "inner" {
			inner = tensor
		}
	}
	values := slices.Repeat([]float32{4}, 3)
	r, err := m.Rewrite([]Table{{Tensor: m.Graph.Initializers[0], Values: values}, {Tensor: inner, Values: values}}, Options{Data: "new.data", most: m.Size() - 1})
	if err == nil || !strings.Contains(err.Error(), "expected at most") { // what points to the tables is longer than these tables
		t.Errorf("a file that is too large without its tables: %v, %v", r, err)
	}
	table := make([]float32, 1000)
	g := onnxtest.Graph{
		Outputs:      []onnxtest.Message{onnxtest.Value("y", 1, 1000)},
		Initializers: []onnxtest.Message{onnxtest.Floats("t", table, 1000), halves("half", 10, 0x3c00)},
		Nodes:        []onnxtest.Message{onnxtest.Node("Identity", onnxtest.Names{"t"}, onnxtest.Names{"y"})},
	}
	for i := range table {
		table[i] = float32(i)
	}
	w := rewriteFile(t, save(t, onnxtest.Model(18, g.Message())), Options{most: 2000}, map[string][]float32{"t": table, "half": {3}})
	if !w.External || w.Bytes > 2000 || !slices.Equal(floatsOf(t, w.model, "t"), table) || floatsOf(t, w.model, "half")[0] != 3 {
		t.Errorf("the tables are in %+v", w.Rewriting)
	}
}

// modelOutside writes a model whose tensors are in other files. Each setting is a name, a file, an
// offset and the number of float32.
func modelOutside(t *testing.T, files map[string]int, tensors ...[]any) string {
	t.Helper()
	folder := t.TempDir()
	for name, size := range files {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i/4%100 + 1) // finite
			if i%4 == 3 {
				data[i] = 0x3f
			}
		}
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := onnxtest.Graph{Outputs: []onnxtest.Message{onnxtest.Value("y", 1, 1)}}
	for _, s := range tensors {
		settings := []string{"location", s[1].(string), "offset", s[2].(string), "checksum", "of " + s[0].(string)}
		g.Initializers = append(g.Initializers, onnxtest.Outside(s[0].(string), 1, settings, int64(s[3].(int))))
	}
	g.Nodes = []onnxtest.Message{onnxtest.Node("Identity", onnxtest.Names{tensors[0][0].(string)}, onnxtest.Names{"y"})}
	path := filepath.Join(folder, "m.onnx")
	if err := os.WriteFile(path, onnxtest.Model(18, g.Message()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// External tensors keep their places, and bytes that belong to no tensor become 0. Several
// files become one. A table that shares bytes with another tensor gets bytes of its own.
func TestRewriteExternal(t *testing.T) {
	path := modelOutside(t, map[string]int{"a": 4096}, []any{"one", "a", "0", 16}, []any{"two", "a", "256", 32})
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	one, two := floatsOf(t, m, "one"), floatsOf(t, m, "two")
	changed := slices.Clone(two)
	changed[3] = 0
	w := rewriteFile(t, path, Options{}, map[string][]float32{"one": one, "two": changed})
	original, err := os.ReadFile(filepath.Join(filepath.Dir(path), "a"))
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Concat(original[:64], make([]byte, 192), original[256:384])
	copy(want[256+12:], make([]byte, 4))
	if !bytes.Equal(w.data, want) {
		t.Errorf("the external data are\n%v, expected\n%v", w.data, want)
	}
	if !bytes.Contains(w.main, []byte("of one")) || bytes.Contains(w.main, []byte("of two")) {
		t.Error("expected the checksum of the tensor that did not change only")
	}
	if !slices.Equal(floatsOf(t, w.model, "two"), changed) || !slices.Equal(floatsOf(t, w.model, "one"), one) {
		t.Error("the tensors have other values")
	}

	path = modelOutside(t, map[string]int{"a": 512, "b": 512}, []any{"one", "b", "64", 16}, []any{"tied", "b", "64", 16}, []any{"part", "b", "100", 16}, []any{"two", "a", "0", 100})
	if m, err = Open(path); err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	one, part := floatsOf(t, m, "one"), floatsOf(t, m, "part")
	w = rewriteFile(t, path, Options{}, map[string][]float32{"one": make([]float32, 16)})
	if !slices.Equal(floatsOf(t, w.model, "one"), make([]float32, 16)) || !slices.Equal(floatsOf(t, w.model, "tied"), one) || !slices.Equal(floatsOf(t, w.model, "part"), part) {
		t.Error("a table that shares bytes changes other tensors, or does not change")
	}
	if files := w.model.External(); len(files) != 1 || w.DataBytes > 1024 {
		t.Errorf("the external data are in %q, %d bytes", files, w.DataBytes)
	}
	if _, err := m.Rewrite(nil, Options{Data: "c:data"}); !fault.IsInput(err) || !strings.Contains(err.Error(), "expected a name without a colon") {
		t.Errorf("a name that cannot be read: %v", err)
	}
}

// An external tensor without elements, between tensors that share bytes, moves no other
// tensor.
func TestRewriteEmptyExternal(t *testing.T) {
	path := modelOutside(t, map[string]int{"a": 512}, []any{"wide", "a", "0", 64}, []any{"empty", "a", "100", 0}, []any{"part", "a", "120", 10}, []any{"last", "a", "256", 16})
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	last := floatsOf(t, m, "last")
	changed := slices.Clone(last)
	changed[0] = 0
	w := rewriteFile(t, path, Options{}, map[string][]float32{"last": changed})
	for _, name := range []string{"wide", "part"} {
		if !slices.Equal(floatsOf(t, w.model, name), floatsOf(t, m, name)) {
			t.Errorf("tensor %s has other values", name)
		}
	}
	if !slices.Equal(floatsOf(t, w.model, "last"), changed) {
		t.Errorf("the table has the values %v, expected %v", floatsOf(t, w.model, "last"), changed)
	}
}

// looked is a graph in which nodes look up rows of a table, also in a body.
func looked(table onnxtest.Message, more ...onnxtest.Message) onnxtest.Graph {
	body := onnxtest.Graph{
		Nodes:   []onnxtest.Message{onnxtest.Node("Gather", onnxtest.Names{"t", "ids"}, onnxtest.Names{"in"}, onnxtest.Attribute("axis", 0))},
		Outputs: []onnxtest.Message{onnxtest.Value("in", 1, -1, 4)},
	}
	other := onnxtest.Graph{
		Nodes:   []onnxtest.Message{onnxtest.Node("Gather", onnxtest.Names{"t", "ids"}, onnxtest.Names{"else"})},
		Outputs: []onnxtest.Message{onnxtest.Value("else", 1, -1, 4)},
	}
	return onnxtest.Graph{
		Inputs:       []onnxtest.Message{onnxtest.Value("ids", 7, -1)},
		Outputs:      []onnxtest.Message{onnxtest.Value("y", 1, -1, 4)},
		Initializers: []onnxtest.Message{table, onnxtest.Raw("yes", 9, []byte{1})},
		Nodes: append([]onnxtest.Message{
			onnxtest.Node("Gather", onnxtest.Names{"t", "ids"}, onnxtest.Names{"e"}),
			onnxtest.Node("If", onnxtest.Names{"yes"}, onnxtest.Names{"b"}, onnxtest.Attribute("then_branch", body), onnxtest.Attribute("else_branch", other)),
			onnxtest.Node("Add", onnxtest.Names{"e", "b"}, onnxtest.Names{"y"}),
		}, more...),
	}
}

// sparse returns a table of 500 rows of 4 in which one row of ten is kept.
func sparse() []float32 {
	v := make([]float32, 2000)
	for i := 0; i < len(v); i += 40 {
		v[i], v[i+2] = float32(i+1), -1
	}
	return v
}

// keptOf returns how a table of four columns is stored by the entries that are not 0.
func keptOf(values []float32) *Compact {
	rows := len(values) / 4
	c := &Compact{Quantizers: []Quantizer{{Bits: 32}}, Rows: make([]uint8, rows), Spans: []WordSpan{{rows, 1}}, Words: make([]float32, 4), Word: make([]uint8, rows)}
	for _, v := range values {
		if c.Dropped = append(c.Dropped, v == 0); v != 0 {
			c.Numbers = append(c.Numbers, math.Float32bits(v))
		}
	}
	return c
}

// A compact table has the same values as before when it is read, and the graph the same
// nodes. Inline tables stay inline, external ones external.
func TestCompact(t *testing.T) {
	table := slices.Repeat([]float32{1}, 2000)
	path := save(t, onnxtest.Model(18, looked(onnxtest.Floats("t", table, 500, 4)).Message()))
	values := map[string][]float32{"t": sparse()}
	w := rewriteFile(t, path, Options{}, values, keptOf(sparse()))
	dense := rewriteFile(t, path, Options{}, values)
	if w.Compact != 1 || w.External || w.TableBytes > 4500 || len(w.main) > len(dense.main)-8000+int(w.TableBytes) {
		t.Errorf("the compact file has %d bytes, the dense one %d, %+v", len(w.main), len(dense.main), w.Rewriting)
	}
	checkSame := func(w written) {
		t.Helper()
		if !slices.Equal(floatsOf(t, w.model, "t"), sparse()) {
			t.Error("the table has other values")
		}
		got, want := w.model.Graph, dense.model.Graph
		if len(got.Initializers) != len(want.Initializers) || len(got.Nodes) != len(want.Nodes) || len(got.Inputs) != len(want.Inputs) {
			t.Fatalf("%d tensors, %d nodes, %d inputs; expected %d, %d, %d", len(got.Initializers), len(got.Nodes), len(got.Inputs), len(want.Initializers), len(want.Nodes), len(want.Inputs))
		}
		for i, n := range got.Nodes {
			if !slices.Equal(n.Inputs, want.Nodes[i].Inputs) || n.Op != want.Nodes[i].Op {
				t.Errorf("node %+v, expected %+v", n, want.Nodes[i])
			}
		}
		for _, name := range []string{"then_branch", "else_branch"} {
			if body := got.Nodes[1].Attributes[name].Graph; len(body.Nodes) != 1 || !slices.Equal(body.Nodes[0].Inputs, []string{"t", "ids"}) {
				t.Errorf("the body is %+v", body)
			}
		}
	}
	checkSame(w)
	inline := int64(len(w.main))
	tensor := w.model.Graph.Initializers[0]
	if _, err := w.model.Rewrite([]Table{{Tensor: tensor, Values: table}}, Options{}); !fault.IsInput(err) || !strings.Contains(err.Error(), "is compact") {
		t.Errorf("a compact table changes: %v", err)
	}
	var again bytes.Buffer
	r, err := w.model.Rewrite([]Table{{tensor, sparse(), keptOf(sparse())}}, Options{})
	if err == nil {
		_, err = r.WriteTo(&again)
	}
	if err != nil || !bytes.Equal(again.Bytes(), w.main) || r.TableBytes != w.TableBytes || r.Compact != 1 {
		t.Errorf("a compact file has other bytes when it is written again: %v, %d bytes and %d", err, r.TableBytes, w.TableBytes)
	}

	folder := filepath.Dir(path)
	raw := make([]byte, 0, 8000)
	for _, v := range table {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	if err := os.WriteFile(filepath.Join(folder, "t.data"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(folder, "outside.onnx")
	if err := os.WriteFile(outside, onnxtest.Model(18, looked(onnxtest.Outside("t", 1, []string{"location", "t.data"}, 500, 4)).Message()), 0o600); err != nil {
		t.Fatal(err)
	}
	w = rewriteFile(t, outside, Options{}, values, keptOf(sparse()))
	if w.Compact != 1 || !w.External || w.DataBytes > 3000 {
		t.Errorf("the compact file has %d bytes of external data, %+v", len(w.data), w.Rewriting)
	}
	checkSame(w)
	w = rewriteFile(t, path, Options{most: inline - 1}, values, keptOf(sparse()))
	if w.Compact != 1 || !w.External {
		t.Errorf("a compact table of a large file is inline: %+v", w.Rewriting)
	}
	checkSame(w)
}

// A table that something other than a look-up reads stays dense, and so does one that would
// not be smaller.
func TestNotCompact(t *testing.T) {
	table := onnxtest.Floats("t", slices.Repeat([]float32{1}, 2000), 500, 4)
	distinct := make([]float32, 2000)
	for i := range distinct {
		distinct[i] = float32(i + 1)
	}
	input := looked(table)
	input.Inputs = append(input.Inputs, onnxtest.Value("t", 1, 500, 4))
	for name, c := range map[string]struct {
		graph  onnxtest.Graph
		opset  int64
		values []float32
	}{
		"everything":     {looked(table), 18, distinct},
		"old operators":  {looked(table), compactOpset - 1, sparse()},
		"an input":       {input, 18, sparse()},
		"another reader": {looked(table, onnxtest.Node("Neg", onnxtest.Names{"t"}, onnxtest.Names{"n"})), 18, sparse()},
		"another axis":   {looked(table, onnxtest.Node("Gather", onnxtest.Names{"t", "ids"}, onnxtest.Names{"n"}, onnxtest.Attribute("axis", 1))), 18, sparse()},
		"as ids":         {looked(table, onnxtest.Node("Gather", onnxtest.Names{"e", "t"}, onnxtest.Names{"n"})), 18, sparse()},
		"shadowed": {looked(table, onnxtest.Node("If", onnxtest.Names{"yes"}, onnxtest.Names{"s"},
			onnxtest.Attribute("then_branch", onnxtest.Graph{Nodes: []onnxtest.Message{onnxtest.Node("Neg", onnxtest.Names{"e"}, onnxtest.Names{"t"})}, Outputs: []onnxtest.Message{onnxtest.Value("t", 1)}}))), 18, sparse()},
	} {
		t.Run(name, func(t *testing.T) {
			path := save(t, onnxtest.Model(c.opset, c.graph.Message()))
			w := rewriteFile(t, path, Options{}, map[string][]float32{"t": c.values}, keptOf(c.values))
			m, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			can := name == "everything" // which is larger if it is compact
			if n := m.LookUps(m.Graph.Initializers[:1]); can != (n[0] > 0) {
				t.Errorf("%d look-ups", n)
			}
			if w.Compact != 0 || !slices.Equal(floatsOf(t, w.model, "t"), c.values) {
				t.Errorf("%+v", w.Rewriting)
			}
		})
	}
	taken := looked(table, onnxtest.Node("Neg", onnxtest.Names{"e"}, onnxtest.Names{"shv0.word"}))
	w := rewriteFile(t, save(t, onnxtest.Model(18, taken.Message())), Options{}, map[string][]float32{"t": sparse()}, keptOf(sparse()))
	if w.Compact != 1 || !bytes.Contains(w.main, []byte(`"prefix":"shv1"`)) {
		t.Errorf("a name is in use twice: %+v", w.Rewriting)
	}
}

// A table in the compact form of older programs is refused.
func TestDistinctRows(t *testing.T) {
	g := looked(onnxtest.Floats("t", sparse(), 500, 4))
	g.Initializers = append(g.Initializers, onnxtest.Raw("t.shaver.rows", 6, make([]byte, 8), 2))
	data := onnxtest.Model(18, g.Message())
	if _, err := Read("m.onnx", bytes.NewReader(data), int64(len(data))); !fault.IsInput(err) || !strings.Contains(err.Error(), "table t is compact in the form of an older program: prune the model again") {
		t.Error(err)
	}
}

// A model that can be read can be rewritten, with the same bytes if nothing changes, and the
// new file has the new values.
func FuzzRewrite(f *testing.F) {
	f.Add(forms(), true)
	f.Add(onnxtest.Model(18, looked(onnxtest.Floats("t", sparse(), 500, 4)).Message()), true)
	f.Add(onnxtest.Model(9, looked(onnxtest.Floats("t", sparse(), 500, 4)).Message()), false)
	f.Fuzz(func(t *testing.T, data []byte, small bool) {
		read := func(data []byte) (*Model, error) { return Read("m", bytes.NewReader(data), int64(len(data))) }
		m, err := read(data)
		if err != nil {
			return
		}
		var kept, zeros []Table
		for _, tensor := range m.Graph.Initializers {
			if !tensor.Type.Floating() || tensor.Elements() == 0 || tensor.form == computed || tensor.form == compacted {
				continue
			}
			values, err := tensor.Floats()
			if err != nil {
				return
			}
			kept = append(kept, Table{Tensor: tensor, Values: values})
			zeros = append(zeros, Table{Tensor: tensor, Values: make([]float32, len(values))})
		}
		write := func(tables []Table, o Options) []byte {
			r, err := m.Rewrite(tables, o)
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if n, err := r.WriteTo(&b); err != nil || n != r.Bytes {
				t.Fatalf("%d of %d bytes: %v", n, r.Bytes, err)
			}
			return b.Bytes()
		}
		if !bytes.Equal(write(kept, Options{}), data) {
			t.Fatal("a model with the same values has other bytes")
		}
		if small {
			for i, z := range zeros {
				if dims := z.Tensor.Dims; len(dims) == 2 {
					zeros[i].Compact = &Compact{Dropped: slices.Repeat([]bool{true}, len(z.Values)), Rows: make([]uint8, dims[0]), Spans: []WordSpan{{dims[0], 1}}, Words: make([]float32, dims[1])}
				}
			}
		}
		again, err := read(write(zeros, Options{}))
		if err != nil {
			t.Fatal(err)
		}
		for _, tensor := range again.Graph.Initializers {
			if !slices.ContainsFunc(zeros, func(z Table) bool { return z.Tensor.Name == tensor.Name }) {
				continue
			}
			values, err := tensor.Floats()
			if err != nil || slices.ContainsFunc(values, func(v float32) bool { return math.Float32bits(v) != 0 }) {
				t.Fatalf("tensor %s is %v, %v", tensor.Name, values, err)
			}
		}
	})
}

// Metadata are added to a file or replaced in it. Those of other programs stay, and a key twice
// is refused.
func TestRewriteMetadata(t *testing.T) {
	property := func(key, value string) onnxtest.Message {
		return onnxtest.Message(nil).Sub(14, onnxtest.Message(nil).Text(1, key).Text(2, value))
	}
	of := func(more ...onnxtest.Message) []byte {
		return onnxtest.Model(18, onnxtest.Graph{Nodes: []onnxtest.Message{onnxtest.Node("Identity", onnxtest.Names{"x"}, onnxtest.Names{"y"})},
			Inputs: []onnxtest.Message{onnxtest.Value("x", 1, 1)}, Outputs: []onnxtest.Message{onnxtest.Value("y", 1, 1)}}.Message(), more...)
	}
	file := of(property("author", "me\xff"), property("shaver.a", "old"))
	w := rewriteFile(t, save(t, file), Options{Metadata: map[string]string{"shaver.a": "a longer value", "shaver.b": "new"}}, nil)
	if got := w.model.Metadata; len(got) != 2 || got["shaver.a"] != "a longer value" || got["shaver.b"] != "new" {
		t.Errorf("the metadata are %q", got)
	}
	if want := of(property("author", "me\xff"), property("shaver.a", "a longer value"), property("shaver.b", "new")); !bytes.Equal(w.main, want) {
		t.Error("other bytes than those of the metadata changed")
	}
	if _, err := Open(save(t, of(property("shaver.a", "1"), property("shaver.a", "2")))); !fault.IsInput(err) || !strings.Contains(err.Error(), "have the key shaver.a twice") {
		t.Errorf("a key twice: %v", err)
	}
}

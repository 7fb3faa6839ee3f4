package schemas_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"shaver/internal/app/launch"
	"shaver/internal/click/composed"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/jobs/window"
	"shaver/internal/onnx/graph"
	"shaver/internal/prune/benchmark"
	"shaver/internal/prune/delta"
	"shaver/internal/prune/gate"
	"shaver/internal/prune/nightly"
	"shaver/internal/prune/slice"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/estimator/estimatortest"
	"shaver/internal/value/mask"
	"shaver/schemas"
)

// pinned maps each JSON Schema to the type that is written by it, or to nil if another
// schema of the same type has all its properties.
var pinned = map[string]reflect.Type{
	"answer.v1.json":       reflect.TypeFor[sweep.Answer](),
	"architecture.v1.json": reflect.TypeFor[model.Architecture](),
	"benchmark.v1.json":    reflect.TypeFor[benchmark.Document](),
	"blob.v1.json":         reflect.TypeFor[job.Blob](),
	"blocks.v1.json":       reflect.TypeFor[dataset.Blocks](),
	"check.v1.json":        nil, // the log loss
	"check.v2.json":        reflect.TypeFor[gate.Document](),
	"current.v1.json":      reflect.TypeFor[nightly.Current](),
	"dataset.v1.json":      nil, // the manifest without dense inputs
	"dataset.v2.json":      nil, // the manifest without lists, with labels 0 and 1
	"dataset.v3.json":      nil, // the manifest without weights, with one label
	"dataset.v4.json":      reflect.TypeFor[dataset.Manifest](),
	"delta.v1.json":        reflect.TypeFor[delta.Manifest](),
	"dense.v1.json":        reflect.TypeFor[dense.Input](),
	"ended.v1.json":        reflect.TypeFor[bus.Ended](),
	"estimator.v1.json":    reflect.TypeFor[estimator.Options](),
	"graph.v1.json":        reflect.TypeFor[graph.Description](),
	"history.v1.json":      reflect.TypeFor[nightly.Line](),
	"inspection.v3.json":   nil, // labels 0 and 1
	"inspection.v4.json":   nil, // one label, without weights
	"inspection.v5.json":   reflect.TypeFor[dataset.Inspection](),
	"lead.v1.json":         reflect.TypeFor[job.Lead](),
	"lineage.v1.json":      reflect.TypeFor[scores.Lineage](),
	"night.v1.json":        reflect.TypeFor[nightly.Record](),
	"path.v1.json":         reflect.TypeFor[scores.Path](),
	"plan.v1.json":         reflect.TypeFor[job.Plan](),
	"progress.v1.json":     reflect.TypeFor[bus.Progress](),
	"quarantine.v2.json":   reflect.TypeFor[job.Quarantine](),
	"removals.v1.json":     reflect.TypeFor[slice.Path](),
	"report.v1.json":       reflect.TypeFor[launch.JobReport](),
	"result.v2.json":       reflect.TypeFor[job.Result](),
	"shape.v1.json":        reflect.TypeFor[composed.Shape](),
	"spec.v1.json":         nil, // a job that is not paired, on one folder, without the rule error
	"spec.v2.json":         nil, // a job with the log loss
	"spec.v3.json":         reflect.TypeFor[job.Spec](),
	"state.v1.json":        reflect.TypeFor[window.Index](),
	"submission.v2.json":   reflect.TypeFor[job.Submission](),
	"sweep.v1.json":        nil, // the log loss
	"sweep.v2.json":        nil, // the squared loss
	"sweep.v3.json":        reflect.TypeFor[sweep.Document](),
	"task.v2.json":         reflect.TypeFor[job.Task](),
}

// jsonSchemas returns the names of the JSON Schemas.
func jsonSchemas(t testing.TB) []string {
	t.Helper()
	names, err := fs.Glob(schemas.Files, "*.json")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return strings.HasSuffix(name, ".arrow.json") || strings.HasSuffix(name, ".safetensors.json")
	})
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	text, err := schemas.Files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func parse(t testing.TB, text []byte) any {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return value
}

// compile compiles the schema of that name. It can resolve references to the other
// schemas.
func compile(t testing.TB, name string) *jsonschema.Schema {
	t.Helper()
	const base = "file:///schemas/"
	c := jsonschema.NewCompiler()
	for _, other := range jsonSchemas(t) {
		if err := c.AddResource(base+other, parse(t, read(t, other))); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Compile(base + name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// accept checks that the schema accepts the text, and that it is closed: it refuses the
// text with an additional property, or without a required one.
func accept(t *testing.T, name string, text []byte) {
	t.Helper()
	s := compile(t, name)
	if err := s.Validate(parse(t, text)); err != nil {
		t.Errorf("%s refuses what the code wrote: %v\n%s", name, err, text)
		return
	}
	changed := parse(t, text)
	objects(changed, func(o map[string]any) {
		o["not in the form"] = json.Number("1")
		if s.Validate(changed) == nil && name != "estimator.v1.json" { // open, because others extend it
			t.Errorf("%s accepts an unknown property next to %v", name, slices.Sorted(maps.Keys(o)))
		}
		delete(o, "not in the form")
	})
	top := changed.(map[string]any)
	required := node(t, name)["required"].([]any)
	for _, key := range required {
		value := top[key.(string)]
		delete(top, key.(string))
		if s.Validate(changed) == nil {
			t.Errorf("%s accepts a document without %s", name, key)
		}
		top[key.(string)] = value
	}
}

// objects visits every object in value, except the one whose properties are the names of
// workers, and those items of a list that have the same properties as one before them.
func objects(value any, visit func(map[string]any)) {
	switch v := value.(type) {
	case map[string]any:
		visit(v)
		for key, inner := range v {
			if key != "workers" {
				objects(inner, visit)
			}
		}
	case []any:
		seen := map[string]bool{}
		for _, inner := range v {
			if o, ok := inner.(map[string]any); ok {
				form := strings.Join(slices.Sorted(maps.Keys(o)), " ")
				if seen[form] {
					continue
				}
				seen[form] = true
			}
			objects(inner, visit)
		}
	}
}

func TestEveryFileHasItsPlace(t *testing.T) {
	if got, want := jsonSchemas(t), slices.Sorted(maps.Keys(pinned)); !slices.Equal(got, want) {
		t.Errorf("JSON Schemas %v, pinned are %v", got, want)
	}
	for _, name := range jsonSchemas(t) {
		compile(t, name)
		if n := node(t, name); n["$id"] != name || n["$schema"] != "https://json-schema.org/draft/2020-12/schema" || n["title"] == nil || n["description"] == nil {
			t.Errorf("%s: $id, $schema, title or description is missing or wrong", name)
		}
	}
}

// node returns a schema as it is stored.
func node(t testing.TB, name string) map[string]any {
	t.Helper()
	return parse(t, read(t, name)).(map[string]any)
}

// TestTypes compares each schema's properties with the JSON tags of its type.
func TestTypes(t *testing.T) {
	for name, of := range pinned {
		if of != nil {
			w := walker{t: t, file: name, root: node(t, name)}
			w.compare(strings.TrimSuffix(name, ".json"), w.root, of)
		}
	}
}

type walker struct {
	t    *testing.T
	file string
	root map[string]any
}

// compare checks that schema describes values of the type of.
func (w *walker) compare(at string, schema map[string]any, of reflect.Type) {
	w.t.Helper()
	if ref, ok := schema["$ref"].(string); ok {
		if inner, ok := strings.CutPrefix(ref, "#/$defs/"); ok {
			w.compare(at, w.root["$defs"].(map[string]any)[inner].(map[string]any), of)
		} else if own := pinned[path.Base(ref)]; own != of && (of.Kind() != reflect.Pointer || own != of.Elem()) { // checked under its own name
			w.t.Errorf("%s refers to %s, which is not the schema of %v", at, ref, of)
		}
		return
	}
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
		if choices, ok := schema["anyOf"].([]any); ok && len(choices) == 2 { // the value may be null
			schema = choices[1].(map[string]any)
			w.compare(at, schema, of)
			return
		}
	}
	want := kindOf(of)
	if of == reflect.TypeFor[time.Time]() {
		want = "string"
	}
	if got := typeOf(schema); got != want {
		w.t.Errorf("%s has the type %q in the schema, %q in the code (%v)", at, got, want, of)
		return
	}
	switch want {
	case "object":
		if of.Kind() == reflect.Map {
			w.compare(at+".*", schema["additionalProperties"].(map[string]any), of.Elem())
			return
		}
		w.compareStruct(at, schema, of)
	case "array":
		if items, ok := schema["items"].(map[string]any); ok {
			w.compare(at+"[]", items, of.Elem())
		}
	}
}

func (w *walker) compareStruct(at string, schema map[string]any, of reflect.Type) {
	w.t.Helper()
	properties := schema["properties"].(map[string]any)
	own, closed := ownFields(schema, of)
	var names, required []string
	for _, f := range own {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if name == "" || !f.IsExported() {
			w.t.Errorf("%v.%s has no json tag", of, f.Name)
			continue
		}
		names = append(names, name)
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			required = append(required, name)
		}
		if inner, ok := properties[name].(map[string]any); ok {
			w.compare(at+"."+name, inner, f.Type)
		}
	}
	if got := slices.Sorted(maps.Keys(properties)); !slices.Equal(got, slices.Sorted(slices.Values(names))) {
		w.t.Errorf("%s has the properties %v, %v has %v", at, got, of, names)
	}
	if got := texts(schema["required"]); !slices.Equal(got, required) {
		w.t.Errorf("%s requires %v, but %v always writes %v", at, got, of, required)
	}
	if closed != "" && schema[closed] != false {
		w.t.Errorf("%s has no %q: false", at, closed)
	}
}

// ownFields returns the fields of a struct that its schema describes itself, and the
// keyword that closes the schema, "" if it is open. A schema may refer, in allOf, to the
// schema of an embedded struct, which describes the fields of that struct and is open.
func ownFields(schema map[string]any, of reflect.Type) (own []reflect.StructField, closed string) {
	own, closed = fields(of), "additionalProperties"
	if of == pinned["estimator.v1.json"] {
		return own, ""
	}
	all, _ := schema["allOf"].([]any)
	for _, part := range all {
		name, ok := part.(map[string]any)["$ref"].(string)
		if !ok {
			continue
		}
		closed = "unevaluatedProperties"
		own = slices.DeleteFunc(own, func(f reflect.StructField) bool {
			_, embedded := pinned[name].FieldByName(f.Name)
			return embedded
		})
	}
	return own, closed
}

// fields returns the fields of a struct. Like encoding/json it replaces embedded structs
// by their fields.
func fields(of reflect.Type) []reflect.StructField {
	var all []reflect.StructField
	for i := range of.NumField() {
		if f := of.Field(i); f.Anonymous && f.Tag.Get("json") == "" {
			all = append(all, fields(f.Type)...)
		} else {
			all = append(all, f)
		}
	}
	return all
}

// kindOf returns the JSON type of a Go type.
func kindOf(of reflect.Type) string {
	switch of.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Slice, reflect.Array:
		if of == reflect.TypeFor[[]byte]() {
			return "string" // in base64
		}
		return "array"
	case reflect.Struct, reflect.Map:
		return "object"
	}
	return "integer"
}

// typeOf returns the JSON type in a schema. If the schema has none, it infers the type
// from the schema's values.
func typeOf(schema map[string]any) string {
	if name, ok := schema["type"].(string); ok {
		return name
	}
	values, _ := schema["enum"].([]any)
	if only, ok := schema["const"]; ok {
		values = []any{only}
	}
	found := ""
	for _, value := range values {
		name := "array"
		switch value.(type) {
		case string:
			name = "string"
		case json.Number:
			name = "integer"
		}
		if found != "" && found != name {
			return "several"
		}
		found = name
	}
	return found
}

func texts(list any) []string {
	var all []string
	for _, v := range list.([]any) {
		all = append(all, v.(string))
	}
	return all
}

// TestNames compares the closed lists of names with those of the code.
func TestNames(t *testing.T) {
	property := func(name string, keys ...string) map[string]any {
		n := node(t, name)
		for _, key := range keys {
			n = n[key].(map[string]any)
		}
		return n
	}
	for _, c := range []struct {
		what string
		got  []string
		want []string
	}{
		{"stop rules", texts(property("spec.v2.json", "properties", "until", "properties", "rule")["enum"]), job.Rules()},
		{"baselines", texts(property("spec.v2.json", "properties", "baseline")["enum"]), baseline.Names()},
		{"baselines of old jobs", texts(property("spec.v1.json", "properties", "baseline")["enum"]), baseline.Names()},
		{"estimators", texts(property("estimator.v1.json", "properties", "estimator")["enum"]), estimator.Names()},
		{"methods of a benchmark", texts(property("benchmark.v1.json", "$defs", "method")["enum"]), append(benchmark.Methods(), benchmark.Full)},
		{"baselines of a benchmark", texts(property("benchmark.v1.json", "$defs", "baseline")["enum"]), baseline.Names()},
		{"baselines of a sweep", texts(property("sweep.v1.json", "$defs", "point", "properties", "baseline")["enum"]), baseline.Names()},
		{"ranks of a sweep", texts(property("sweep.v1.json", "properties", "settings", "properties", "rank")["enum"]), mask.Ranks()},
		{"kinds of a sweep", texts(property("sweep.v1.json", "properties", "kind")["enum"]), texts(property("architecture.v1.json", "properties", "kind")["enum"])},
		{"kinds", texts(property("architecture.v1.json", "properties", "kind")["enum"]),
			[]string{string(model.FM), string(model.DeepFM), string(model.DCNMix), string(model.DCNv2), string(model.WideDeep), string(model.NeuMF), string(model.Graph)}},
		{"structures", texts(property("architecture.v1.json", "properties", "structure")["enum"]), []string{model.Stacked, model.Parallel}},
		{"splits", texts(property("dataset.v1.json", "properties", "splits", "items", "properties", "name")["enum"]), dataset.SplitNames},
		{"splits of checks", texts(property("check.v2.json", "properties", "split")["enum"]), dataset.SplitNames},
		{"splits of inspections", texts(property("inspection.v5.json", "properties", "splits", "items", "properties", "name")["enum"]), dataset.SplitNames},
		{"forms of ids of inspections", texts(property("inspection.v3.json", "properties", "ids")["enum"]), []string{dataset.LocalIDs, dataset.GlobalIDs, dataset.RawStrings}},
		{"rules", texts(property("dense.v1.json", "properties", "rule")["enum"]), dense.Rules},
		{"forms of ids", texts(property("dataset.v1.json", "properties", "ids")["enum"]), []string{dataset.LocalIDs, dataset.GlobalIDs, dataset.RawStrings}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: schema %v, code %v", c.what, c.got, c.want)
		}
	}
	for _, name := range []string{"spec.v1.json", "spec.v2.json", "spec.v3.json"} {
		if got := property(name, "properties", "version")["const"]; got != json.Number("2") || job.SpecVersion != 2 {
			t.Errorf("version of the specification: %s %v, code %d", name, got, job.SpecVersion)
		}
	}
	if got := property("graph.v1.json", "properties", "version")["const"]; got != json.Number("1") || graph.Version != 1 {
		t.Errorf("version of a graph: schema %v, code %d", got, graph.Version)
	}
	if got := property("benchmark.v1.json", "properties", "version")["const"]; got != benchmark.Version {
		t.Errorf("version of a benchmark: %v", got)
	}
	if got := property("check.v2.json", "properties", "version")["const"]; got != gate.SquaredVersion {
		t.Errorf("version of a check with the squared loss: schema %v, code %s", got, gate.SquaredVersion)
	}
	if got := property("removals.v1.json", "properties", "version")["const"]; got != slice.Version {
		t.Errorf("version of a path of fields: schema %v, code %s", got, slice.Version)
	}
	if got := property("check.v1.json", "properties", "version")["const"]; got != gate.Version {
		t.Errorf("version of a check: schema %v, code %s", got, gate.Version)
	}
	if got := property("dataset.v1.json", "properties", "version")["const"]; got != dataset.Version {
		t.Errorf("version of the manifest: schema %v, code %s", got, dataset.Version)
	}
}

// TestEstimator checks that the schema accepts all valid options of the estimators and
// nothing that the code refuses.
func TestEstimator(t *testing.T) {
	s := compile(t, "estimator.v1.json")
	for _, o := range estimatortest.Variants() {
		text := marshal(t, o)
		if schema, code := s.Validate(parse(t, text)), o.Validate(1); (schema == nil) != (code == nil) {
			t.Errorf("the schema says %v, but the code says %v\n%s", schema, code, text)
		}
	}
}

// TestGraph checks that the schema accepts the description of a graph with attributes of
// all types.
func TestGraph(t *testing.T) {
	g := &graph.Graph{}
	add := func(op string, attributes graph.Attributes, inputs ...graph.Value) graph.Value {
		out, err := g.Add(graph.Node{Name: op, Op: op, Inputs: inputs, Attributes: attributes})
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	v := g.AddInput("x", graph.Float, []int{1, 2})
	v = add("Transpose", graph.Attributes{"perm": []int64{1, 0}}, v)
	v = add("Gather", graph.Attributes{"axis": int64(0)}, v, g.AddConstant(graph.NewInts([]int64{1}, 1)))
	v = add("Elu", graph.Attributes{"alpha": float32(.1)}, v)
	v = add("Gelu", graph.Attributes{"approximate": "tanh"}, v)
	v = add("Clip", nil, v, graph.Absent, g.AddConstant(graph.NewFloats([]float32{1})))
	g.Output = add("Where", nil, g.AddConstant(graph.NewBools([]bool{true}, 1)), v, v)
	text, _ := graph.Encode(g)
	accept(t, "graph.v1.json", text)
}

// TestArchitecture checks that the schema accepts every valid architecture and nothing
// that the code refuses.
func TestArchitecture(t *testing.T) {
	s := compile(t, "architecture.v1.json")
	changes := []func(*model.Architecture){
		func(a *model.Architecture) { a.Kind = "mlp" },
		func(a *model.Architecture) { a.FieldDims = []int{} },
		func(a *model.Architecture) { a.FieldDims = []int{3, 0} },
		func(a *model.Architecture) { a.Dim = 0 },
		func(a *model.Architecture) { a.Dim = 1<<16 + 1 },
		func(a *model.Architecture) { a.Hidden = nil },
		func(a *model.Architecture) { a.Hidden = []int{4} },
		func(a *model.Architecture) { a.Hidden = []int{4, 0} },
		func(a *model.Architecture) { a.CrossLayers = 0 },
		func(a *model.Architecture) { a.CrossLayers = 2 },
		func(a *model.Architecture) { a.Experts, a.Rank = 0, 0 },
		func(a *model.Architecture) { a.Experts, a.Rank = 2, 3 },
		func(a *model.Architecture) { a.Structure = "" },
		func(a *model.Architecture) { a.Structure = model.Parallel },
		func(a *model.Architecture) { a.Structure = "both" },
		func(a *model.Architecture) { a.Tables = append(a.Tables, model.Table{Name: "t", Rows: a.Features()}) },
		func(a *model.Architecture) { a.LookUps = append(a.LookUps, model.LookUp{Field: -1}) },
		func(a *model.Architecture) { a.Tables, a.LookUps = nil, nil },
		func(a *model.Architecture) { a.Kind, a.Hidden = model.Graph, []int{4} },
		func(a *model.Architecture) { a.Lists = []model.List{{Field: 0, Length: 2, Pad: -1}} },
		func(a *model.Architecture) { a.Lists = []model.List{{Field: 0, Length: 0, Pad: -1}} },
		func(a *model.Architecture) { a.Lists = []model.List{{Field: 0, Length: 1, Pad: -2}} },
		func(a *model.Architecture) { a.Lists = []model.List{{Field: -1, Length: 1}} },
	}
	refused := 0
	tables := modeltest.LookUps()
	tables.Kind = model.Graph
	architectures := modeltest.Architectures()
	architectures["graph"], architectures["graph-tables"] = model.Architecture{Kind: model.Graph, FieldDims: []int{2, 3}, Dim: 4}, tables
	architectures["graph-lists"] = modeltest.Lists()
	for name, a := range architectures {
		accept(t, "architecture.v1.json", marshal(t, a))
		for i, change := range changes {
			changed := a
			change(&changed)
			text := marshal(t, changed)
			schema, code := s.Validate(parse(t, text)), changed.Validate()
			if (schema == nil) != (code == nil) {
				t.Errorf("%s, change %d: the schema says %v, but the code says %v\n%s", name, i, schema, code, text)
			}
			if code != nil {
				refused++
			}
		}
	}
	if refused == 0 {
		t.Error("no change made an architecture invalid")
	}
}

func marshal(t testing.TB, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

package arrowio_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/ipc"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/data/arrowio"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/layout"
	"shaver/internal/value/tally"
	"shaver/schemas"
)

// The fields of the files below, and the splits of the frequencies.
var (
	schemaFields = []string{"user", "item"}
	schemaSizes  = []int{3, 2}
	schemaSplits = []string{"train", "test"}
	schemaDense  = []string{"price", "age"}
	schemaLabels = []string{"buy"}
)

const schemaDim = 4

// latest maps each form to its version.
var latest = map[string]string{"rows": ".v1", "rows.v2": "", "rows.v3": "", "rows.v4": "", "frequencies": ".v1", "partial": ".v6", "partial.v7": "", "scores": ".v3", "scores.v4": "", "scores.v5": ""}

// arrowForm is the content of a .arrow.json in package schemas.
type arrowForm struct {
	Container, Compression string
	Metadata               []struct{ Key, Const, When string }
	Columns                []struct {
		Name, Type string
		Nullable   bool
		When, Each string
	}
}

// written returns the bytes of each form as the programs write it.
func written(t *testing.T) map[string][]byte {
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	form := arrowio.RowForm{Fields: schemaFields, Sizes: schemaSizes}
	rows := func(dense []string, numbered bool) []byte {
		form.Dense, form.Numbered = dense, numbered
		inputs, weight := len(dense)+len(form.Labels), []int32(nil)
		if form.Weighted {
			weight = []int32{1, 3}
		}
		features := []int32{0, 3, 2, 4}
		if form.Lengths != nil {
			features = []int32{0, 3, 4, 2, 4, 4}
		}
		var out bytes.Buffer
		w, err := arrowio.NewRowWriter(&out, form, 1)
		ok(err)
		ok(w.Append(&model.Rows{Width: len(features) / 2, Inputs: inputs, Number: []int64{0, 5}, Label: []float32{0, 1}, Features: features, Dense: make([]float32, 2*inputs), Weight: weight}))
		ok(w.Close())
		return out.Bytes()
	}
	var frequencies bytes.Buffer
	ok(arrowio.WriteFrequencies(&frequencies, schemaSplits, [][]int64{{1, 2, 3, 4, 5}, {0, 0, 0, 0, 1}}))
	partial := func(within []int64, paired bool) []byte {
		var out bytes.Buffer
		sums := make([]int64, schemaDim)
		p := &tally.Partial{
			Shape: layout.Of(5, schemaDim), Rows: 2, LossFull: 1, LossEmpty: 2, Features: []int32{1}, Count: []int64{2}, Sum: sums, Abs: sums, Square: sums, Within: within,
		}
		if paired {
			p.Fourths = make([]tally.Powers, len(schemaFields))
			for _, list := range p.AllLists() {
				*list = sums
			}
		}
		p.Check = p.Checksum()
		ok(arrowio.EncodePartial(&out, p))
		return out.Bytes()
	}
	whole := func(se float64) []byte {
		file := filepath.Join(t.TempDir(), "scores.arrow")
		ok(scores.Write(file, &scores.File{
			Fields: schemaFields, Layout: model.Architecture{FieldDims: schemaSizes, Dim: schemaDim}, Spec: job.Spec{Version: job.SpecVersion}, Baseline: model.Baseline{Values: make([]float32, 2*schemaDim)},
			Result: tally.Result{EfficiencySE: se, Scores: tally.Scores{Shape: layout.Of(5, schemaDim), Count: make([]int64, 5), Values: tally.NewValues(5 * schemaDim)}},
		}))
		data, err := os.ReadFile(file)
		ok(err)
		return data
	}
	paired := func() []byte {
		file := filepath.Join(t.TempDir(), "scores.arrow")
		ok(scores.Write(file, &scores.File{
			Fields: schemaFields, Layout: model.Architecture{FieldDims: schemaSizes, Dim: schemaDim}, Spec: job.Spec{Version: job.SpecVersion}, Baseline: model.Baseline{Values: make([]float32, 2*schemaDim)}, Lineage: &scores.Lineage{},
			Result: tally.Result{Scores: tally.Scores{Shape: layout.Of(5, schemaDim), Count: make([]int64, 5), Values: tally.NewPairedValues(5 * schemaDim)}},
		}))
		data, err := os.ReadFile(file)
		ok(err)
		return data
	}
	path := func(a model.Architecture, baseline model.Baseline, fields ...string) []byte {
		file := filepath.Join(t.TempDir(), "scores.arrow")
		shape := a.Shape()
		s := tally.Scores{Shape: shape, Count: make([]int64, shape.Rows()), Values: tally.NewRanks(a.Parameters())}
		for i := range s.Rank {
			s.Rank[i] = int32(i)
		}
		ok(scores.Write(file, &scores.File{
			Fields: fields, Layout: a, Spec: job.Spec{Version: job.SpecVersion}, Baseline: baseline, Path: &scores.Path{}, Result: tally.Result{Scores: s},
		}))
		data, err := os.ReadFile(file)
		ok(err)
		return data
	}
	tables := func(a model.Architecture, baseline model.Baseline, fields ...string) []byte {
		file := filepath.Join(t.TempDir(), "scores.arrow")
		ok(scores.Write(file, &scores.File{
			Fields: fields, Layout: a, Spec: job.Spec{Version: job.SpecVersion}, Baseline: baseline,
			Result: tally.Result{Scores: tally.Scores{Shape: a.Shape(), Count: make([]int64, 12), Values: tally.NewValues(a.Parameters())}},
		}))
		data, err := os.ReadFile(file)
		ok(err)
		return data
	}
	plain, lookUps, lists := model.Architecture{FieldDims: schemaSizes, Dim: schemaDim}, modeltest.LookUps(), modeltest.Lists()
	files := map[string][]byte{
		"scores/look-ups+lists+words": tables(lists, modeltest.Words(&lists, 3, 1), "item", "user", "history", "tags"), "scores.v5/words": path(plain, modeltest.Words(&plain, 3, 1), schemaFields...),
		"scores/look-ups": tables(lookUps, lookUps.Zero(), "user", "item", "day"), "scores/look-ups+lists": tables(lists, lists.Zero(), "item", "user", "history", "tags"),
		"scores.v5": path(plain, plain.Zero(), schemaFields...), "scores.v5/look-ups": path(lookUps, lookUps.Zero(), "user", "item", "day"), "scores.v5/look-ups+lists": path(lists, lists.Zero(), "item", "user", "history", "tags"),
		"scores.v4": paired(), "rows": rows(nil, false), "rows/shards": rows(nil, true), "rows.v2": rows(schemaDense, false), "rows.v2/shards": rows(schemaDense, true), "frequencies": frequencies.Bytes(), "partial": partial(nil, false), "partial/passes": partial(make([]int64, schemaDim), false), "partial.v7": partial(nil, true), "scores": whole(0), "scores/multilinear": whole(1),
	}
	form.Lengths = []int{0, 2}
	files["rows.v3/lists"], files["rows.v3/lists+shards"] = rows(schemaDense, false), rows(schemaDense, true)
	form.Lengths, form.Numbers = nil, true
	files["rows.v3/numbers"], files["rows.v3/numbers+shards"] = rows(schemaDense, false), rows(schemaDense, true)
	form.Weighted = true
	files["rows.v4/numbers+weights+shards"] = rows(schemaDense, true)
	form.Numbers, form.Labels = false, schemaLabels
	files["rows.v4/clicks+weights+tasks"] = rows(schemaDense, false)
	form.Lengths, form.Weighted = []int{0, 2}, false
	files["rows.v4/clicks+lists+tasks"] = rows(schemaDense, false)
	return files
}

// TestSchemas compares the forms in package schemas with the bytes that are written.
func TestSchemas(t *testing.T) {
	for name, data := range written(t) {
		t.Run(name, func(t *testing.T) {
			kind, variant, _ := strings.Cut(name, "/")
			text, err := schemas.Files.ReadFile(kind + latest[kind] + ".arrow.json")
			if err != nil {
				t.Fatal(err)
			}
			var form arrowForm
			if err := json.Unmarshal(text, &form); err != nil {
				t.Fatal(err)
			}
			container, schema := open(t, data)
			if container != form.Container {
				t.Errorf("the container is %s, the form says %s", container, form.Container)
			}
			compression := "none"
			if bytes.Contains(data, []byte{0x28, 0xb5, 0x2f, 0xfd}) { // zstd's magic number
				compression = "zstd"
			}
			if compression != form.Compression {
				t.Errorf("compression %s, the form says %s", compression, form.Compression)
			}
			if got, want := columnsOf(schema), form.columns(variant); !slices.Equal(got, want) {
				t.Errorf("columns\n%s\nthe form says\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			form.compareMetadata(t, variant, schema.Metadata())
		})
	}
}

func open(t *testing.T, data []byte) (container string, schema *arrow.Schema) {
	t.Helper()
	if bytes.HasPrefix(data, []byte("ARROW1")) {
		r, err := ipc.NewFileReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		return "Arrow IPC file", r.Schema()
	}
	r, err := ipc.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	return "Arrow IPC stream", r.Schema()
}

func columnText(name, kind string, nullable bool) string {
	return fmt.Sprintf("%s: %s, nullable %t", name, kind, nullable)
}

func columnsOf(schema *arrow.Schema) []string {
	var columns []string
	for _, f := range schema.Fields() {
		kind := f.Type.String()
		if list, ok := f.Type.(*arrow.FixedSizeListType); ok && !list.ElemField().Nullable {
			switch {
			case list.Elem().ID() == arrow.INT32 && list.Len() != schemaDim:
				kind = "fixed_size_list<int32>[length]"
			case list.Len() == schemaDim:
				kind = fmt.Sprintf("fixed_size_list<%s>[d]", list.Elem())
			}
		}
		if list, ok := f.Type.(*arrow.ListType); ok && !list.ElemField().Nullable { // as the metadata dim describes it
			kind = fmt.Sprintf("fixed_size_list<%s>[d]", list.Elem())
		}
		columns = append(columns, columnText(f.Name, kind, f.Nullable))
	}
	return columns
}

// columns returns the columns that the form describes for one of our files. variant has
// the conditions, joined by "+", of those columns and metadata that are conditional.
func (f *arrowForm) columns(variant string) []string {
	repeated := map[string][]string{"{field}": schemaFields, "{split}": schemaSplits, "{dense}": schemaDense, "{label}": schemaLabels}
	if holds("lists", variant) {
		repeated["{field}"], repeated["{list}"] = schemaFields[:1], schemaFields[1:]
	}
	var columns []string
	for _, c := range f.Columns {
		if !holds(c.When, variant) {
			continue
		}
		names := []string{c.Name}
		if c.Each != "" {
			names = repeated[c.Name]
		}
		for _, name := range names {
			columns = append(columns, columnText(name, c.Type, c.Nullable))
		}
	}
	return columns
}

// holds reports whether a condition is empty or in variant.
func holds(condition, variant string) bool {
	return condition == "" || slices.Contains(strings.Split(variant, "+"), condition)
}

func (f *arrowForm) compareMetadata(t *testing.T, variant string, got arrow.Metadata) {
	t.Helper()
	var keys []string
	for _, m := range f.Metadata {
		if !holds(m.When, variant) {
			continue
		}
		keys = append(keys, m.Key)
		if value, _ := got.GetValue(m.Key); m.Const != "" && value != m.Const {
			t.Errorf("metadata %s is %q, the form says %q", m.Key, value, m.Const)
		}
	}
	if !slices.Equal(got.Keys(), keys) {
		t.Errorf("metadata %v, the form says %v", got.Keys(), keys)
	}
}

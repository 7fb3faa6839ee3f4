package ingest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
	"shaver/internal/data/ingest"
)

// judged has the columns click, buy, like, w, a, b and price. Labels after the first may be empty.
type judged [][]string

func judgedRows(n, seed int) (rows judged) {
	for i := range n {
		k := i*7 + seed
		rows = append(rows, []string{fmt.Sprint(k % 2), []string{"", "0", "1", "1.0"}[k%4], []string{"1", "", "NaN", "0", "0"}[k%5], []string{"1", "0.5", "2.5", "12"}[k%3], fmt.Sprint(k % 3), fmt.Sprint(k % 4), fmt.Sprint(k)})
	}
	return rows
}

var judgedColumns = []string{"click", "buy", "like", "w", "a", "b", "price"}

func (j judged) text(separator string) string {
	var text strings.Builder
	for _, row := range append(judged{judgedColumns}, j...) {
		text.WriteString(strings.Join(row, separator) + "\n")
	}
	return text.String()
}

// arrow returns the rows as an Arrow file, in which empty cells are nulls and weights are float32.
func (j judged) arrow(t *testing.T) string {
	t.Helper()
	var columns []arrow.Field
	for _, name := range judgedColumns {
		columns = append(columns, arrow.Field{Name: name, Type: arrow.BinaryTypes.String, Nullable: true})
	}
	columns[3].Type = arrow.PrimitiveTypes.Float32
	schema := arrow.NewSchema(columns, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for _, row := range j {
		for i, cell := range row {
			if i == 3 {
				x, _ := strconv.ParseFloat(cell, 32)
				b.Field(i).(*array.Float32Builder).Append(float32(x))
			} else if cell == "" {
				b.Field(i).AppendNull()
			} else {
				b.Field(i).(*array.StringBuilder).Append(cell)
			}
		}
	}
	var out strings.Builder
	w := ipc.NewWriter(&out, ipc.WithSchema(schema))
	if err := w.Write(b.NewRecord()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// rows returns what a dataset of j whose weights have the greatest common divisor unit, in thousandths, has for the tasks. first is the number of rows before
// those of j. sizes are those of the fields.
func (j judged) rows(tasks []model.Task, unit float64, first int, sizes []int) *model.Rows {
	rows := &model.Rows{Width: 2, Inputs: 1}
	if len(tasks) > 1 {
		rows.Inputs += len(tasks)
	}
	for i, row := range j {
		w, _ := strconv.ParseFloat(row[3], 64)
		for t, task := range tasks {
			label, err := strconv.ParseFloat(row[slices.Index(judgedColumns, task.Label)], 64)
			if err != nil || label != label {
				continue
			}
			price, _ := strconv.ParseFloat(row[6], 64)
			a, _ := strconv.Atoi(row[4])
			b, _ := strconv.Atoi(row[5])
			rows.Number = append(rows.Number, int64((first+i)*len(tasks)+t))
			rows.Label = append(rows.Label, float32(label))
			rows.Features = append(rows.Features, int32(a), int32(sizes[0]+b))
			rows.Dense = append(rows.Dense, float32(price))
			rows.Weight = append(rows.Weight, int32(w*1000/unit)*int32(task.Weight))
			for s := range tasks {
				if len(tasks) > 1 {
					rows.Dense = append(rows.Dense, map[bool]float32{true: 1}[s == t])
				}
			}
		}
	}
	return rows
}

// importJudged imports rows of train and val in one of several forms, and returns the dataset.
func importJudged(t *testing.T, form string, weight string, splits ...judged) *dataset.Dataset {
	t.Helper()
	d, err := dataset.Open(judgedFolder(t, form, weight, splits...))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// judgedFolder is importJudged for the folder of the dataset.
func judgedFolder(t *testing.T, form, weight string, splits ...judged) string {
	t.Helper()
	dir := t.TempDir()
	files := make([][]string, 2)
	for k, rows := range splits {
		file, text := filepath.Join(dir, fmt.Sprint(k)), rows.text(map[string]string{"tsv": "\t"}[form]+map[bool]string{true: ","}[form != "tsv"])
		if form == "arrow" {
			text = rows.arrow(t)
		}
		write(t, file, text)
		files[k] = []string{file}
	}
	numbers := ingest.Dense{Columns: []ingest.DenseColumn{{Name: "price", Input: dense.Input{Rule: dense.None}}}}
	out := filepath.Join(dir, "out")
	var err error
	if form == "encoded" {
		config := ingest.EncodedConfig{Train: files[0], Val: files[1], Dense: numbers, Label: "click", Others: []string{"buy", "like"}, Weight: weight, Sizes: []int{3, 4}, Out: out}
		_, err = ingest.ImportEncoded(t.Context(), config)
	} else {
		format := ingest.Format{}
		if form == "arrow" {
			format = ingest.Tables()
		}
		format.Label, format.Others, format.Weight, format.Dense = "click", []string{"buy", "like"}, weight, numbers
		if weight == "" {
			format.Columns = []ingest.Column{{Name: "a"}, {Name: "b"}}
		}
		_, err = ingest.ImportRaw(t.Context(), ingest.RawConfig{Format: format, Files: files[0], Val: files[1], Split: map[bool]string{true: "1:0:0"}[files[1] == nil], MinCount: 1, Workers: 2, Out: out})
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// read returns the rows of d from row first on, with the price and the selectors of n tasks.
func read(t *testing.T, d *dataset.Dataset, n int, first int64, splits ...string) *model.Rows {
	t.Helper()
	inputs := []string{"price"}
	for k := range n {
		if n > 1 {
			inputs = append(inputs, dataset.Selector(k))
		}
	}
	d, err := d.Choose(inputs)
	if err != nil {
		t.Fatal(err)
	}
	all := &model.Rows{}
	err = d.ScanFrom(context.Background(), splits, first, 7, func(rows *model.Rows) error {
		all.AppendAll(rows)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Every form of input gives the rows of each set of tasks by their definition, with the counts of each split and
// from each row on. Weights are over their greatest common divisor.
func TestWeightsAndTasks(t *testing.T) {
	train, val := judgedRows(50, 1), judgedRows(21, 2)
	for _, form := range []string{"csv", "tsv", "encoded", "arrow"} {
		d := importJudged(t, form, "w", train, val)
		if want := (dataset.Weights{Denominator: 1000, Divisor: 500, Largest: 2500}); *d.Weights != want || !slices.Equal(d.Tasks, []string{"click", "buy", "like"}) {
			t.Errorf("%s: weights %+v of the labels %q", form, *d.Weights, d.Tasks)
		}
		for _, tasks := range [][]model.Task{{{Label: "click", Weight: 1}}, {{Label: "like", Weight: 1}}, {{Label: "like", Weight: 2}, {Label: "click", Weight: 3}}, {{Label: "click", Weight: 1}, {Label: "buy", Weight: 1}, {Label: "like", Weight: 7}}} {
			view, err := d.ForTasks(tasks)
			if err != nil {
				t.Fatal(err)
			}
			all := &model.Rows{}
			for k, rows := range []judged{train, val} {
				want := rows.rows(tasks, 500, k*len(train), d.FieldDims())
				split := dataset.SplitNames[k]
				if got := read(t, view, len(tasks), 0, split); !reflect.DeepEqual(got, want) {
					t.Errorf("%s: the split %s has for %v\n%v, expected\n%v", form, split, tasks, got, want)
				}
				positives := int64(0)
				for _, label := range want.Label {
					positives += int64(label)
				}
				if n, known := view.Positives([]string{split}); view.Rows(split) != int64(want.Len()) || n != positives || !known {
					t.Errorf("%s: the split %s has %d rows and %d positives for %v, expected %d and %d", form, split, view.Rows(split), n, tasks, want.Len(), positives)
				}
				for _, r := range view.Numbers(split) {
					if r[0] > want.Number[0] || r[1] <= want.Number[want.Len()-1] {
						t.Errorf("%s: the split %s has the numbers %v, which lack some of its rows", form, split, r)
					}
				}
				all.AppendAll(want)
			}
			for first := range all.Len() {
				if rest := all.Slice(first, all.Len()); !reflect.DeepEqual(*read(t, view, len(tasks), int64(first)), rest) {
					t.Fatalf("%s: other rows of %v from row %d on", form, tasks, first)
				}
			}
			if f := view.Form(); !f.Weighted || len(f.Labels) > 0 {
				t.Errorf("%s: the form of rows of tasks is %+v", form, f)
			}
			if blocks, err := view.Blocks(); len(tasks) > 1 && (blocks != "" || err != nil || view.Digest() != d.Digest()) {
				t.Errorf("%s: rows of tasks have the blocks %q, %v, and the dataset's digest: %v", form, blocks, err, view.Digest() == d.Digest())
			}
		}
	}
}

// Weights that are all the same are no weights, and tasks with the same weights make none.
func TestSameWeights(t *testing.T) {
	rows := judgedRows(30, 1)
	for _, row := range rows {
		row[3] = "0.25"
	}
	with, without := importJudged(t, "csv", "w", rows), importJudged(t, "csv", "", rows)
	tasks := []model.Task{{Label: "buy", Weight: 4}, {Label: "click", Weight: 4}}
	for name, d := range map[string]*dataset.Dataset{"with": with, "without": without} {
		view, err := d.ForTasks(tasks)
		if err != nil {
			t.Fatal(err)
		}
		want := rows.rows(tasks, 250, 0, d.FieldDims())
		want.Weight = nil
		if got := read(t, view, 2, 0); !reflect.DeepEqual(got, want) || view.Form().Weighted {
			t.Errorf("%s weights: rows\n%v, expected\n%v", name, got, want)
		}
	}
}

// A window has the weights of all days over their common divisor. Rows of a day without weights have the weight 1.
func TestWeightsOfDays(t *testing.T) {
	one, two, three := judgedRows(20, 1), judgedRows(25, 2), judgedRows(11, 3)
	for i := range two {
		two[i][3] = "1"
	}
	for i := range three {
		three[i][3] = fmt.Sprint(.75 * float64(i%2+1))
	}
	days, all := []judged{one, two, three}, []*dataset.Dataset{}
	for k, day := range days {
		all = append(all, importJudged(t, "csv", []string{"w", "", "w"}[k], day))
	}
	window, err := dataset.Join(all)
	if err != nil {
		t.Fatal(err)
	}
	if total := 0.0; window.Splits[0].Weight > 0 {
		for _, day := range days {
			for _, row := range day {
				w, _ := strconv.ParseFloat(row[3], 64)
				total += w
			}
		}
		facts, err := window.Inspect(0)
		if err != nil || facts.Weight != total || facts.Splits[0].Weight != total || facts.Rows != 56 {
			t.Errorf("the weight is %v in %d rows, %v, expected %v", facts.Weight, facts.Rows, err, total)
		}
	}
	tasks := []model.Task{{Label: "like", Weight: 2}, {Label: "buy", Weight: 3}}
	view, err := window.ForTasks(tasks)
	if err != nil {
		t.Fatal(err)
	}
	got, rest := read(t, view, 2, 0), 0
	for k, day := range days {
		want := day.rows(tasks, 250, 0, window.FieldDims())
		part := got.Slice(rest, rest+want.Len())
		rest += want.Len()
		alone := read(t, view.Days()[k], 2, 0)
		if !reflect.DeepEqual(*alone, part) {
			t.Errorf("day %d has other rows alone", k)
		}
		if window.Days()[k].Digest() == mustJoin(t, all[k]).Digest() {
			t.Errorf("day %d has its own digest with weights over the divisor of the window", k)
		}
		for i, number := range part.Number {
			part.Number[i] = number % model.RowsPerDay
		}
		if !reflect.DeepEqual(&part, want) {
			t.Errorf("day %d has the rows\n%v, expected\n%v", k, part, want)
		}
	}
	if rest != got.Len() {
		t.Errorf("%d rows, expected %d", got.Len(), rest)
	}
	if day := mustJoin(t, all[0]); day.Days()[0].Digest() != day.Digest() {
		t.Error("a window of one day has another digest than its day")
	}
}

func mustJoin(t *testing.T, days ...*dataset.Dataset) *dataset.Dataset {
	t.Helper()
	d, err := dataset.Join(days)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Weights and labels that are not valid are bad rows, and columns that are not valid are wrong.
func TestWeightsRefuse(t *testing.T) {
	for cell, want := range map[string]string{
		"0": `the weight is "0", expected a number above 0 and at most 2000000`, "-1": `the weight is "-1"`, "NaN": `the weight is "NaN"`, "": `the weight is ""`, "inf": `the weight is "inf"`,
		"2000000.1": `the weight is "2000000.1"`, "0.0004": `the weight is "0.0004", which rounds to 0`,
	} {
		file, out := filepath.Join(t.TempDir(), "rows.csv"), filepath.Join(t.TempDir(), "out")
		write(t, file, "click,buy,w,a\n1,0,2000000,x\n0,,"+cell+",y\n0,1,0.0005,x\n")
		config := ingest.RawConfig{Format: ingest.Format{Label: "click", Others: []string{"buy"}, Weight: "w"}, Files: []string{file}, Split: "1:0:0", Out: out}
		if _, err := ingest.ImportRaw(t.Context(), config); !fault.IsInput(err) || !strings.Contains(err.Error(), file+":3: column 2 (w): "+want) {
			t.Errorf("error %v, expected %q", err, want)
		}
		config.OnBadRow = ingest.Skip
		summary, err := ingest.ImportRaw(t.Context(), config)
		if err != nil || summary.Skipped != 1 || summary.Weights.Largest != 2e9 || summary.Weights.Divisor != 1 || summary.Splits[0].Weight != 2_000_000.001 {
			t.Errorf("without the bad row: %+v, %v", summary, err)
		}
	}
	file := filepath.Join(t.TempDir(), "rows.csv")
	write(t, file, "click,buy,w,a\n1,0,1,x\n0,2,1,y\n")
	for want, f := range map[string]ingest.Format{
		`rows.csv:3: column 1 (buy): label is "2", expected 0 or 1`:     {Label: "click", Others: []string{"buy"}},
		`no column "order" for a label`:                                 {Label: "click", Others: []string{"order"}},
		`label 1 and label 2 have the same name "buy"`:                  {Label: "click", Others: []string{"buy", "buy"}},
		`column "click" is named twice as a label`:                      {Label: "click", Others: []string{"click"}},
		`no column "times" for the weight`:                              {Label: "click", Weight: "times"},
		`labels are numbers, but of several labels each must be 0 or 1`: {Label: "click", Others: []string{"buy"}, Numbers: true},
		`field 0 has the name "weight", which is reserved`:              {Label: "click", Weight: "w", Columns: []ingest.Column{{Name: "a", As: "weight"}}},
		`field 0 and label 1 have the same name "buy"`:                  {Label: "click", Others: []string{"buy"}, Columns: []ingest.Column{{Name: "a", As: "buy"}}},
		`column "buy" is the label, so it cannot be a dense input`:      {Label: "click", Others: []string{"buy"}, Dense: ingest.Dense{Columns: []ingest.DenseColumn{{Name: "buy"}}}},
	} {
		_, err := ingest.ImportRaw(t.Context(), ingest.RawConfig{Format: f, Files: []string{file}, Split: "1:0:0", Out: filepath.Join(t.TempDir(), "out")})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected %q", err, want)
		}
	}
	for text, want := range map[string]string{"buy,click,a\n0,1,1\n": `the first column is "buy", expected the first label, "click"`, "0,1,1\n": "weights and several labels need a header"} {
		write(t, file, text)
		_, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{file}, Label: "click", Others: []string{"buy"}, Out: filepath.Join(t.TempDir(), "out")})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected %q", err, want)
		}
	}
}

// A dataset has only tasks of its labels.
func TestTasksRefuse(t *testing.T) {
	whole := judgedFolder(t, "csv", "w", judgedRows(20, 1))
	several, err := dataset.Open(whole)
	if err != nil {
		t.Fatal(err)
	}
	file, out := filepath.Join(t.TempDir(), "rows.csv"), filepath.Join(t.TempDir(), "out")
	write(t, file, "click,a\n1,x\n0,y\n")
	if _, err := ingest.ImportRaw(t.Context(), ingest.RawConfig{Format: ingest.Format{Label: "click"}, Files: []string{file}, Split: "1:0:0", Out: out}); err != nil {
		t.Fatal(err)
	}
	one, err := dataset.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]struct {
		d     *dataset.Dataset
		tasks []model.Task
	}{
		"the dataset has one label without a name: import the rows with several, as in --label click,buy":      {one, []model.Task{{Label: "buy", Weight: 1}}},
		`the dataset has the labels ["click" "buy" "like"]: import the rows with --label click,buy,like,order`: {several, []model.Task{{Label: "order", Weight: 1}}},
		`the label "buy" is named twice`:                                            {several, []model.Task{{Label: "buy", Weight: 1}, {Label: "buy", Weight: 2}}},
		"the task buy has the weight 0, expected at least 1":                        {several, []model.Task{{Label: "buy", Weight: 0}}},
		"the task buy has the weight 1000000000, which makes a row count more than": {several, []model.Task{{Label: "buy", Weight: 1e9}, {Label: "like", Weight: 1}}},
	} {
		if _, err := c.d.ForTasks(c.tasks); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected %q", err, want)
		}
	}
	view, err := several.ForTasks([]model.Task{{Label: "buy", Weight: 1}, {Label: "like", Weight: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for _, inputs := range [][]string{{"price", "task.0"}, {"task.0", "task.1", "price"}, {"price", "task.1", "task.0"}, {"task.2"}} {
		if _, err := view.Choose(inputs); !fault.IsInput(err) {
			t.Errorf("a model that reads %q: %v", inputs, err)
		}
	}
	// Files whose weights or labels are not those of the manifest are refused.
	for old, changed := range map[string]string{`"divisor": 500`: `"divisor": 1250`, `"largest": 2500`: `"largest": 2000`, `"tasks": [
    "click",
    "buy"`: `"tasks": [
    "click",
    "bought"`} {
		folder := filepath.Join(t.TempDir(), "out")
		if err := os.CopyFS(folder, os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
		manifest := filepath.Join(folder, dataset.ManifestName)
		text, err := os.ReadFile(manifest)
		if err != nil || !strings.Contains(string(text), old) {
			t.Fatalf("%s lacks %q, %v", text, old, err)
		}
		write(t, manifest, strings.Replace(string(text), old, changed, 1))
		d, err := dataset.Open(folder)
		if err == nil {
			if d, err = d.ForTasks([]model.Task{{Label: "click", Weight: 1}, {Label: "like", Weight: 1}}); err == nil {
				err = d.Scan(t.Context(), nil, 10, func(*model.Rows) error { return nil })
			}
		}
		if !fault.IsInput(err) {
			t.Errorf("%s in place of %s: error %v", changed, old, err)
		}
	}
}

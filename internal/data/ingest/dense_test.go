package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
)

// numbered is rows with two fields and three columns of numbers. Some prices are missing.
type numbered struct {
	label []uint8
	user  []int32
	price []float64 // NaN if missing
	age   []int64
	dwell []float32
}

func numberedRows(n int) *numbered {
	r := rand.New(rand.NewPCG(11, 12))
	rows := &numbered{}
	for range n {
		rows.label = append(rows.label, uint8(r.IntN(2)))
		rows.user = append(rows.user, int32(r.IntN(7)))
		price := math.Exp(3 * r.NormFloat64())
		if r.IntN(9) == 0 {
			price = math.NaN()
		}
		rows.price = append(rows.price, price)
		rows.age = append(rows.age, int64(r.IntN(80)-5))
		rows.dwell = append(rows.dwell, float32(1e6+math.Round(8*r.NormFloat64())/4))
	}
	return rows
}

// slice returns rows [from, to).
func (n *numbered) slice(from, to int) *numbered {
	return &numbered{n.label[from:to], n.user[from:to], n.price[from:to], n.age[from:to], n.dwell[from:to]}
}

var numberedColumns = []string{"label", "price", "user", "age", "dwell"}

// text returns the rows as text with a header.
func (n *numbered) text(separator string) string {
	var out strings.Builder
	out.WriteString(strings.Join(numberedColumns, separator) + "\n")
	for i := range n.label {
		price := ""
		if !math.IsNaN(n.price[i]) {
			price = strconv.FormatFloat(n.price[i], 'g', -1, 64)
		}
		cells := []string{strconv.Itoa(int(n.label[i])), price, strconv.Itoa(int(n.user[i])), strconv.Itoa(int(n.age[i])),
			strconv.FormatFloat(float64(n.dwell[i]), 'f', -1, 32)}
		out.WriteString(strings.Join(cells, separator) + "\n")
	}
	return out.String()
}

// arrow returns the rows as an Arrow file with batches of the given size.
func (n *numbered) arrow(t testing.TB, batch int) string {
	t.Helper()
	s := arrow.NewSchema([]arrow.Field{
		{Name: "label", Type: arrow.PrimitiveTypes.Uint8}, {Name: "price", Type: arrow.PrimitiveTypes.Float64, Nullable: true}, {Name: "user", Type: arrow.PrimitiveTypes.Int32},
		{Name: "age", Type: arrow.PrimitiveTypes.Int64}, {Name: "dwell", Type: arrow.PrimitiveTypes.Float32}}, nil)
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(s))
	for from := 0; from < len(n.label); from += batch {
		part := n.slice(from, min(from+batch, len(n.label)))
		b := array.NewRecordBuilder(memory.DefaultAllocator, s)
		b.Field(0).(*array.Uint8Builder).AppendValues(part.label, nil)
		for _, x := range part.price {
			if math.IsNaN(x) {
				b.Field(1).AppendNull()
			} else {
				b.Field(1).(*array.Float64Builder).Append(x)
			}
		}
		b.Field(2).(*array.Int32Builder).AppendValues(part.user, nil)
		b.Field(3).(*array.Int64Builder).AppendValues(part.age, nil)
		b.Field(4).(*array.Float32Builder).AppendValues(part.dwell, nil)
		record := b.NewRecord()
		if err := w.Write(record); err != nil {
			t.Fatal(err)
		}
		record.Release()
		b.Release()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// parquet returns the rows as a Parquet file with row groups of the given size. A missing
// price is NaN.
func (n *numbered) parquet(t testing.TB, group int) string {
	t.Helper()
	once := parquet.Repetitions.Required
	root, err := schema.NewGroupNode("schema", once, schema.FieldList{schema.NewInt32Node("label", once, -1), schema.NewFloat64Node("price", once, -1),
		schema.NewInt32Node("user", once, -1), schema.NewInt64Node("age", once, -1), schema.NewFloat32Node("dwell", once, -1)}, -1)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := file.NewParquetWriter(struct{ io.Writer }{&out}, root)
	for from := 0; from < len(n.label); from += group {
		part := n.slice(from, min(from+group, len(n.label)))
		g := w.AppendRowGroup()
		labels := make([]int32, len(part.label))
		for i, label := range part.label {
			labels[i] = int32(label)
		}
		column := func(write func(file.ColumnChunkWriter) (int64, error)) {
			t.Helper()
			c, err := g.NextColumn()
			if err == nil {
				_, err = write(c)
			}
			if err = errors.Join(err, c.Close()); err != nil {
				t.Fatal(err)
			}
		}
		column(func(c file.ColumnChunkWriter) (int64, error) {
			return c.(*file.Int32ColumnChunkWriter).WriteBatch(labels, nil, nil)
		})
		column(func(c file.ColumnChunkWriter) (int64, error) {
			return c.(*file.Float64ColumnChunkWriter).WriteBatch(part.price, nil, nil)
		})
		column(func(c file.ColumnChunkWriter) (int64, error) {
			return c.(*file.Int32ColumnChunkWriter).WriteBatch(part.user, nil, nil)
		})
		column(func(c file.ColumnChunkWriter) (int64, error) {
			return c.(*file.Int64ColumnChunkWriter).WriteBatch(part.age, nil, nil)
		})
		column(func(c file.ColumnChunkWriter) (int64, error) {
			return c.(*file.Float32ColumnChunkWriter).WriteBatch(part.dwell, nil, nil)
		})
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// rowFiles writes texts to files with the given end.
func rowFiles(t testing.TB, end string, texts ...string) (paths []string) {
	t.Helper()
	dir := t.TempDir()
	for k, text := range texts {
		path := filepath.Join(dir, "part-"+strconv.Itoa(k)+end)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

func denseColumns(rules ...string) (columns []DenseColumn) {
	for _, rule := range rules {
		name, rule, _ := strings.Cut(rule, ":")
		columns = append(columns, DenseColumn{Name: name, Input: dense.Input{Rule: rule}})
	}
	return columns
}

// rowsWith reads all rows of splits with all dense inputs.
func rowsWith(t testing.TB, d *dataset.Dataset, splits ...string) *model.Rows {
	t.Helper()
	var names []string
	for _, in := range d.Dense {
		names = append(names, in.Name)
	}
	d, err := d.Choose(names)
	if err != nil {
		t.Fatal(err)
	}
	all := &model.Rows{}
	if err := d.Scan(t.Context(), splits, 1000, func(rows *model.Rows) error { all.AppendAll(rows); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

// With each rule, the dense inputs are those of the definition. The bytes do not depend on
// the format of the files, their number, their blocks, the workers or the memory.
func TestImportDense(t *testing.T) {
	rows := numberedRows(4000)
	n := len(rows.label)
	halves := []*numbered{rows.slice(0, 37), rows.slice(37, n)}
	columns := denseColumns("dwell:zscore", "price:log1p", "age:log1p-clipped", "user:none")
	columns[3].Input.Name = "user number" // a column may be a field too
	fields := []Column{{Name: "user"}, {Name: "age", As: "age group"}}
	text := Format{Columns: fields, Dense: Dense{Columns: columns, Missing: MissingMean}}
	tables := text
	tables.tables = true
	first := ""
	for k, c := range []struct {
		format  Format
		files   []string
		workers int
		memory  int64
	}{
		{text, rowFiles(t, ".csv", rows.text(",")), 1, 1 << 30},
		{text, rowFiles(t, ".tsv", rows.text("\t")), 3, 700 << 10},
		{text, rowFiles(t, ".csv", halves[0].text(","), halves[1].text(",")), 2, 1 << 30},
		{text, rowFiles(t, ".csv.gz", gzipped(t, rows.text(","))), 2, 1 << 30},
		{tables, rowFiles(t, ".arrow", rows.arrow(t, 4000)), 2, 1 << 30},
		{tables, rowFiles(t, ".arrow", halves[0].arrow(t, 10), halves[1].arrow(t, 700)), 3, 1 << 30},
		{tables, rowFiles(t, ".parquet", rows.parquet(t, 1000)), 1, 1 << 30},
		{tables, rowFiles(t, ".parquet", halves[0].parquet(t, 30), halves[1].parquet(t, 77)), 3, 1 << 30},
	} {
		out := filepath.Join(t.TempDir(), "x")
		config := RawConfig{Format: c.format, Files: c.files, MinCount: 1, Seed: 5, Workers: c.workers, Memory: c.memory, Out: out}
		if _, err := ImportRaw(t.Context(), config); err != nil {
			t.Fatalf("import %d: %v", k, err)
		}
		if k == 0 {
			first = contents(t, out)
			checkDense(t, open(t, out), rows)
		} else if contents(t, out) != first {
			t.Errorf("import %d gives a different dataset", k)
		}
	}
}

// checkDense checks a dataset of TestImportDense.
func checkDense(t *testing.T, d *dataset.Dataset, rows *numbered) {
	t.Helper()
	r, err := parseRatio("8:1:1", 5)
	if err != nil {
		t.Fatal(err)
	}
	var splits [3][]int
	for i := range rows.label {
		k := r.draw(uint64(i))
		splits[k] = append(splits[k], i)
	}
	sum, square, price, present, missing := 0., 0., 0., 0., int64(0)
	for _, i := range splits[0] {
		x := float64(rows.dwell[i]) - 1e6
		sum, square = sum+x, square+x*x
		if !math.IsNaN(rows.price[i]) {
			price, present = price+rows.price[i], present+1
		}
	}
	for _, x := range rows.price {
		if math.IsNaN(x) {
			missing++
		}
	}
	train := float64(len(splits[0]))
	mean, deviation, fill := 1e6+sum/train, math.Sqrt(square/train-sum/train*sum/train), price/present
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(b) }
	dwell, paid := &d.Dense[0], &d.Dense[1]
	if !near(*dwell.Mean, mean) || !near(*dwell.Deviation, deviation) || !near(*paid.Missing, fill) || paid.Filled != missing || dwell.Filled != 0 || d.Version != dataset.DenseVersion {
		t.Errorf("statistics %v, %v and %v, want %v, %v and %v", *dwell.Mean, *dwell.Deviation, *paid.Missing, mean, deviation, fill)
	}
	if got, want := paid.Values.Max, slices.MaxFunc(rows.price, func(a, b float64) int {
		switch {
		case math.IsNaN(a) || a < b:
			return -1
		}
		return 1
	}); got != want {
		t.Errorf("largest price %v, want %v", got, want)
	}
	for k, name := range dataset.SplitNames[:3] {
		got := rowsWith(t, d, name)
		if got.Len() != len(splits[k]) {
			t.Fatalf("split %s has %d rows, want %d", name, got.Len(), len(splits[k]))
		}
		for at, i := range splits[k] {
			x := rows.price[i]
			if math.IsNaN(x) {
				x = *paid.Missing
			}
			want := []float32{float32((float64(rows.dwell[i]) - *dwell.Mean) / *dwell.Deviation), float32(math.Log1p(x)), float32(math.Log1p(float64(max(rows.age[i], 0)))), float32(rows.user[i])}
			if !slices.Equal(got.DenseRow(at), want) {
				t.Fatalf("split %s, row %d: %v, want %v", name, at, got.DenseRow(at), want)
			}
		}
	}
}

// Numbers of a float32 column are exact, although their texts are not.
func TestImportDenseSingle(t *testing.T) {
	rows := numberedRows(100)
	for i := range rows.dwell {
		rows.dwell[i] = 1e6 + float32(i)/16 // the shortest text of 1000000.0625 is 1000000.06
	}
	for end, text := range map[string]string{".arrow": rows.arrow(t, 30), ".parquet": rows.parquet(t, 30)} {
		mean, deviation := 1e6, 1.
		format := Format{tables: true, Columns: []Column{{Name: "user"}}, Dense: Dense{Columns: []DenseColumn{{Name: "dwell", Input: dense.Input{Rule: dense.ZScore, Mean: &mean, Deviation: &deviation}}}}}
		out := filepath.Join(t.TempDir(), "x")
		if _, err := ImportRaw(t.Context(), RawConfig{Format: format, Files: rowFiles(t, end, text), Split: "1:0:0", Out: out}); err != nil {
			t.Fatal(err)
		}
		for i, x := range rowsWith(t, open(t, out)).Dense {
			if x != float32(i)/16 {
				t.Fatalf("%s: row %d is %v, want %v", end, i, x, float32(i)/16)
			}
		}
	}
}

// A dataset without dense inputs has the first version.
func TestImportWithoutDense(t *testing.T) {
	d := open(t, smallDataset(t))
	if d.Version != dataset.Version || bytes.Contains(d.Marshal(), []byte("dense")) {
		t.Errorf("the manifest is %s", d.Marshal())
	}
}

// Encoded rows have dense inputs in any columns and splits. Their statistics are those of
// train.
func TestImportEncodedDense(t *testing.T) {
	train := write(t, "label,x,a,y,b\n0,1.5,0,7,2\n1,2.5,1.0,-3,1\n0,0.5,3,,0\n")
	test := write(t, "label,x,a,y,b\n1,100,3,8,1\n")
	for _, sizes := range [][]int{nil, {4, 3}} {
		out := filepath.Join(t.TempDir(), "x")
		_, err := ImportEncoded(t.Context(), EncodedConfig{Train: []string{train}, Test: []string{test}, Sizes: sizes,
			Dense: Dense{Columns: denseColumns("y:none", "x:zscore"), Missing: "4"}, Out: out})
		if err != nil {
			t.Fatal(err)
		}
		d := open(t, out)
		if !slices.Equal(d.Fields(), []string{"a", "b"}) || !slices.Equal(d.FieldDims(), []int{4, 3}) {
			t.Errorf("fields %q of sizes %v", d.Fields(), d.FieldDims())
		}
		deviation := math.Sqrt(2. / 3)
		z := func(x float64) float32 { return float32((x - 1.5) / deviation) }
		rows := rowsWith(t, d)
		if want := []float32{7, z(1.5), -3, z(2.5), 4, z(.5), 8, z(100)}; !slices.Equal(rows.Dense, want) {
			t.Errorf("dense inputs %v, want %v", rows.Dense, want)
		}
		if want := []int32{0, 6, 1, 5, 3, 4, 3, 5}; !slices.Equal(rows.Features, want) {
			t.Errorf("features %v, want %v", rows.Features, want)
		}
		if y := d.Dense[0]; *y.Missing != 4 || y.Filled != 1 || y.Values != (dense.Values{Min: -3, Mean: 4, Max: 8}) {
			t.Errorf("y is %+v", y)
		}
	}
}

// The mean for missing numbers is that of the rule if the rule gives it, so no rows of train are needed.
func TestImportMeanOfRule(t *testing.T) {
	mean, deviation := 36.5, 11.25
	columns := []DenseColumn{{Name: "x", Input: dense.Input{Rule: dense.ZScore, Mean: &mean, Deviation: &deviation}}}
	out := filepath.Join(t.TempDir(), "x")
	if _, err := ImportEncoded(t.Context(), EncodedConfig{
		Train: []string{write(t, "label,a,x\n0,0,\n1,1,40\n")}, Split: "0:0:1", Dense: Dense{Columns: columns, Missing: MissingMean}, Out: out,
	}); err != nil {
		t.Fatal(err)
	}
	if in := open(t, out).Dense[0]; *in.Missing != mean || in.Filled != 1 {
		t.Errorf("x is %+v, missing is %v", in, *in.Missing)
	}
}

// A drawn train split of encoded rows gives the statistics too.
func TestImportEncodedDenseDrawn(t *testing.T) {
	rows := numberedRows(500)
	out, other := filepath.Join(t.TempDir(), "x"), filepath.Join(t.TempDir(), "y")
	config := EncodedConfig{Train: rowFiles(t, ".csv", rows.text(",")), Split: "8:1:1", Seed: 5, Dense: Dense{Columns: denseColumns("dwell:zscore", "price:log1p", "age:none"), Missing: MissingMean}, Out: out}
	if _, err := ImportEncoded(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	raw := RawConfig{Format: Format{Dense: config.Dense}, Files: config.Train, MinCount: 1, Seed: 5, Out: other}
	if _, err := ImportRaw(t.Context(), raw); err != nil {
		t.Fatal(err)
	}
	a, b := open(t, out), open(t, other)
	if fmt.Sprint(*a.Dense[0].Mean, *a.Dense[0].Deviation, *a.Dense[1].Missing) != fmt.Sprint(*b.Dense[0].Mean, *b.Dense[0].Deviation, *b.Dense[1].Missing) ||
		!slices.Equal(rowsWith(t, a).Dense, rowsWith(t, b).Dense) {
		t.Error("the dense inputs of encoded rows differ from those of raw rows")
	}
}

// With a vocabulary, the statistics are given, or an extra scan computes them.
func TestDenseWithVocabulary(t *testing.T) {
	rows := numberedRows(600)
	paths := rowFiles(t, ".csv", rows.text(","))
	format := Format{Columns: []Column{{Name: "user"}}, Dense: Dense{Columns: denseColumns("dwell:zscore"), Missing: "0"}}
	first := filepath.Join(t.TempDir(), "x")
	if _, err := ImportRaw(t.Context(), RawConfig{Format: format, Files: paths, Out: first}); err != nil {
		t.Fatal(err)
	}
	mapper := func() RawConfig {
		m, err := ReadVocabulary(first, 1<<30, "")
		if err != nil {
			t.Fatal(err)
		}
		return RawConfig{Format: format, Files: paths, Vocabulary: m, Workers: 3, Out: filepath.Join(t.TempDir(), "y")}
	}
	config := mapper()
	summary, err := ImportRaw(t.Context(), config)
	if err != nil || len(summary.Scans) != 2 {
		t.Fatal(err)
	}
	d := open(t, first)
	if got := open(t, config.Out); *got.Dense[0].Mean != *d.Dense[0].Mean || !slices.Equal(rowsWith(t, got).Dense, rowsWith(t, d).Dense) {
		t.Error("the extra scan gives other dense inputs")
	}
	config = mapper()
	config.Files, config.Stdin = []string{Stdin}, strings.NewReader(rows.text(","))
	_, err = ImportRaw(t.Context(), config)
	wantUsage(t, err, "standard input can be read only once")
	config = mapper()
	mean, deviation := 1e6, 2.
	config.Files, config.Stdin = []string{Stdin}, strings.NewReader(rows.text(","))
	config.Format.Dense.Columns = []DenseColumn{{Name: "dwell", Input: dense.Input{Rule: dense.ZScore, Mean: &mean, Deviation: &deviation}}}
	if summary, err = ImportRaw(t.Context(), config); err != nil || len(summary.Scans) != 1 {
		t.Fatal(err)
	}
	if got := rowsWith(t, open(t, config.Out), dataset.Train).Dense[0]; got > 3 || *open(t, config.Out).Dense[0].Deviation != 2 {
		t.Errorf("the first dense input is %v", got)
	}
}

// An import that ended early continues with the statistics of the files that it has
// counted.
func TestDenseImportGoesOn(t *testing.T) {
	rows := numberedRows(1500)
	var texts []string
	for k := range 5 {
		texts = append(texts, rows.slice(300*k, 300*k+300).text(","))
	}
	paths := rowFiles(t, ".csv", texts...)
	whole, out := filepath.Join(t.TempDir(), "x"), filepath.Join(t.TempDir(), "x")
	config := RawConfig{Format: Format{Dense: Dense{Columns: denseColumns("dwell:zscore", "price:none"), Missing: MissingMean}}, Files: paths, KeepEvery: 1, Counted: CountAll, Out: whole}
	if _, err := ImportRaw(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	config.Out = out
	run := func(stop int64) (first int64) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first = -1
		config.Progress = func(_, read, _ int64) {
			if first < 0 {
				first = read
			}
			if read >= stop {
				cancel()
			}
		}
		if _, err := ImportRaw(ctx, config); stop < math.MaxInt64 && !errors.Is(err, context.Canceled) || stop == math.MaxInt64 && err != nil {
			t.Fatal(err)
		}
		return first
	}
	counted := int64(len(texts[0]) + len(texts[1]))
	run(counted + 1)
	// Without a rule that needs statistics, the counts would be others.
	config.Format.Dense.Columns[0].Input.Rule = dense.None
	config.Format.Dense.Missing = "0"
	other := KeptCounts(out)
	if other == "" {
		t.Fatal("the counts are not kept")
	}
	kept, err := os.ReadFile(filepath.Join(other, recordName))
	if err != nil || !bytes.Contains(kept, []byte(`"squares"`)) {
		t.Fatalf("the record is %s, %v", kept, err)
	}
	config.Format.Dense.Columns[0].Input.Rule, config.Format.Dense.Missing = dense.ZScore, MissingMean
	if first := run(math.MaxInt64); first <= counted {
		t.Errorf("the second run started at byte %d", first)
	}
	if folderBytes(t, whole) != folderBytes(t, out) {
		t.Error("the second run gives a different dataset")
	}
	// Another rule starts from the beginning.
	config.Out = filepath.Join(t.TempDir(), "y")
	run(counted + 1)
	config.Format.Dense.Columns = denseColumns("dwell:log1p", "price:none")
	if first := run(1); first > int64(len(texts[0])) {
		t.Errorf("with another rule, the second run started at byte %d", first)
	}
}

// With a rule for dense inputs, Criteo's integers are numbers.
func TestCriteoDense(t *testing.T) {
	s := shapes(t, 1500, "criteo")[0]
	format, err := Criteo(dense.ClippedLog1p)
	if err != nil {
		t.Fatal(err)
	}
	format.Dense.Missing = "0"
	out := filepath.Join(t.TempDir(), "x")
	if _, err := ImportRaw(t.Context(), RawConfig{Format: format, Files: s.files(t, 2, plain), MinCount: 10, Split: "1:0:0", Out: out}); err != nil {
		t.Fatal(err)
	}
	d := open(t, out)
	if len(d.Dense) != 13 || d.Dense[12].Name != "I13" || len(d.Fields()) != 26 || d.Fields()[0] != "C1" {
		t.Fatalf("fields %q, dense inputs %+v", d.Fields(), d.Dense)
	}
	rows := rowsWith(t, d)
	for i, line := range s.lines {
		for j, cell := range strings.Split(line, "\t")[1:14] {
			x, _ := strconv.Atoi(cell) // 0 if it is missing
			if want := float32(math.Log1p(float64(max(x, 0)))); rows.DenseRow(i)[j] != want {
				t.Fatalf("row %d, I%d: %q is %v, want %v", i, j+1, cell, rows.DenseRow(i)[j], want)
			}
		}
	}
}

// A malformed number is an error that names file, row and column, or its row is left out.
func TestDenseRefuses(t *testing.T) {
	for _, c := range []struct {
		rule, missing, cell, want string
	}{
		{"none", "", "", "column 1 (x): the number is missing"},
		{"none", "", "NaN", "column 1 (x): the number is missing"},
		{"none", "0", "inf", `column 1 (x): "inf" is not a finite number`},
		{"none", "0", "12abc", `column 1 (x): "12abc" is not a finite number`},
		{"none", "0", "1e39", "column 1 (x): 1e+39 is not a finite number in the range of float32"},
		{"log1p", "0", "-1", "column 1 (x): -1 has no logarithm"},
	} {
		path := write(t, "label,x,a\n0,1,u\n1,"+c.cell+",v\n1,2,u\n0,3,v\n")
		config := RawConfig{Format: Format{Dense: Dense{Columns: denseColumns("x:" + c.rule), Missing: c.missing}}, Files: []string{path}, Split: "1:0:0", Out: filepath.Join(t.TempDir(), "x")}
		_, err := ImportRaw(t.Context(), config)
		wantInput(t, err, path+":3: "+c.want)
		wantNothing(t, config.Out)
		config.OnBadRow = Skip
		if summary, err := ImportRaw(t.Context(), config); err != nil || summary.Skipped != 1 || summary.Splits[0].Rows != 3 {
			t.Errorf("%q: %v", c.cell, err)
		}
		path = write(t, "label,x,a\n0,1,0\n1,"+c.cell+",1\n1,2,0\n")
		encoded := EncodedConfig{Train: []string{path}, Dense: config.Format.Dense, Out: filepath.Join(t.TempDir(), "y")}
		_, err = ImportEncoded(t.Context(), encoded)
		wantInput(t, err, path+":3: "+strings.Replace(c.want, "column 1 (x)", "column x", 1))
		wantNothing(t, encoded.Out)
	}
	text := "label,x,a\n0,1,u\n1,1,v\n"
	for _, c := range []struct {
		columns []string
		missing string
		want    string
	}{
		{[]string{"y:none"}, "", `no column "y" for a dense input: the columns are ["label" "x" "a"]; NAME=y makes the dense input of column NAME`},
		{[]string{"label:none"}, "", `column "label" is the label`},
		{[]string{"x:none", "x:log1p"}, "", `dense input 0 and dense input 1 have the same name "x"`},
		{[]string{"x:none", "a:none"}, "", "no column is left for a field"},
		{[]string{"x:zscore"}, "", "column x: all numbers in train are equal"},
	} {
		config := RawConfig{Format: Format{Dense: Dense{Columns: denseColumns(c.columns...), Missing: c.missing}}, Files: []string{write(t, text)}, Split: "1:0:0", Out: filepath.Join(t.TempDir(), "x")}
		_, err := ImportRaw(t.Context(), config)
		wantInput(t, err, c.want)
	}
	for _, c := range []struct {
		columns []string
		missing string
		want    string
	}{
		{[]string{"x:log"}, "", `column "x" has the rule "log"`},
		{[]string{"x:none"}, "zero", `the replacement of missing numbers is "zero", expected a number or mean`},
		{[]string{"x:log1p"}, "-3", "missing numbers: -3 has no logarithm"},
		{nil, "0", "no column becomes a dense input"},
	} {
		d := Dense{Columns: denseColumns(c.columns...), Missing: c.missing}
		_, err := ImportRaw(t.Context(), RawConfig{Format: Format{Dense: d}, Files: []string{write(t, text)}, Out: filepath.Join(t.TempDir(), "x")})
		wantUsage(t, err, c.want)
		_, err = ImportEncoded(t.Context(), EncodedConfig{Train: []string{write(t, text)}, Dense: d, Out: filepath.Join(t.TempDir(), "x")})
		wantUsage(t, err, c.want)
	}
	for _, c := range []struct{ text, column, want string }{
		{"1,0,1\n0,1,0\n", "f0:none", "need a header"},
		{"label,x,a\n1,0,1\n", "y:none", `no column "y" for a dense input`},
		{"label,x,a\n1,0,1,5\n", "x:none", "4 columns, expected 3"},
		{"label,x,a\n1,0\n", "x:none", "2 columns, expected 3"},
		{"label,x,a\n1,0,1.5\n", "x:none", `field 0 (a): "1.5" is not an integer`},
	} {
		_, err := ImportEncoded(t.Context(), EncodedConfig{Train: []string{write(t, c.text)}, Dense: Dense{Columns: denseColumns(c.column)}, Out: filepath.Join(t.TempDir(), "x")})
		wantInput(t, err, c.want)
	}
}

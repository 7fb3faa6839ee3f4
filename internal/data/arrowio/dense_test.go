package arrowio

import (
	"bytes"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/ipc"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
)

var testDense = []string{"price", "age", "dwell"}

// withDense gives rows the first k of testDense.
func withDense(rows *model.Rows, k int) *model.Rows {
	random := rand.New(rand.NewPCG(2, uint64(rows.Len())))
	rows.Inputs = k
	for range rows.Len() * k {
		rows.Dense = append(rows.Dense, float32(random.NormFloat64()))
	}
	return rows
}

func encodeDense(t testing.TB, rows *model.Rows, numbered bool, step int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewRowWriter(&out, RowForm{Fields: testFields, Sizes: testSizes, Dense: testDense[:rows.Inputs], Numbered: numbered}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for from := 0; from < rows.Len(); from += step {
		part := rows.Slice(from, min(from+step, rows.Len()))
		if err := w.Append(&part); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestDenseRoundTrip(t *testing.T) {
	for _, n := range []int{1, 1000, RowsBatch + 17} {
		for _, numbered := range []bool{false, true} {
			rows := withDense(randomRows(n, 0), 3)
			data := encodeDense(t, rows, numbered, 997)
			if !bytes.Equal(data, encodeDense(t, rows, numbered, 70_001)) {
				t.Errorf("%d rows: the bytes depend on how the rows were appended", n)
			}
			r, got, err := decodeRows(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(r.Form().Fields, testFields) || !slices.Equal(r.Form().Dense, testDense) || !reflect.DeepEqual(got, rows) {
				t.Errorf("%d rows, numbered %t: the rows changed", n, numbered)
			}
		}
	}
}

// Rows that are given by column have the same bytes as rows that are given by row.
func TestDenseColumns(t *testing.T) {
	rows := withDense(randomRows(RowsBatch+5, 0), 2)
	ids, values := make([][]int32, len(testFields)), make([][]float32, 2)
	offsets := model.Offsets(testSizes)
	for i := range rows.Len() {
		for j, feature := range rows.Row(i) {
			ids[j] = append(ids[j], feature-offsets[j])
		}
		for j, x := range rows.DenseRow(i) {
			values[j] = append(values[j], x)
		}
	}
	var out bytes.Buffer
	w, err := NewRowWriter(&out, RowForm{Fields: testFields, Sizes: testSizes, Dense: testDense[:2]}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.AppendColumns(rows.Label, nil, ids, values); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), encodeDense(t, rows, false, 1000)) {
		t.Error("the bytes differ")
	}
	values[1][3] = float32(math.Inf(1))
	if w, err = NewRowWriter(io.Discard, RowForm{Fields: testFields, Sizes: testSizes, Dense: testDense[:2]}, 2); err != nil {
		t.Fatal(err)
	}
	if err := w.AppendColumns(rows.Label, nil, ids, values); !fault.IsInput(err) || !strings.Contains(err.Error(), "row 3: dense input age is +Inf") {
		t.Errorf("an infinite value: %v", err)
	}
}

// Choose selects dense inputs in any order.
func TestChooseDense(t *testing.T) {
	rows := withDense(randomRows(100, 0), 3)
	data := encodeDense(t, rows, false, 100)
	for _, names := range [][]string{nil, {"dwell"}, {"dwell", "price"}, {"age", "dwell", "price"}} {
		r, err := NewRowReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Choose(names); err != nil {
			t.Fatal(err)
		}
		var got model.Rows
		if err := r.Next(&got); err != nil {
			t.Fatal(err)
		}
		if got.Inputs != len(names) || len(got.Dense) != 100*len(names) || !slices.Equal(got.Features, rows.Features) {
			t.Fatalf("%q: %d dense inputs, %d values", names, got.Inputs, len(got.Dense))
		}
		for i := range got.Len() {
			for j, name := range names {
				if got.DenseRow(i)[j] != rows.DenseRow(i)[slices.Index(testDense, name)] {
					t.Fatalf("%q: row %d has another value of %s", names, i, name)
				}
			}
		}
		if err := r.Choose([]string{"x"}); !fault.IsInput(err) || !strings.Contains(err.Error(), `no dense input "x"`) {
			t.Errorf("a missing dense input: %v", err)
		}
		r.Close()
	}
}

func TestDenseRefuses(t *testing.T) {
	for _, c := range []struct {
		dense []string
		want  string
	}{
		{[]string{"a", "a"}, `dense input 0 and dense input 1 have the same name "a"`},
		{[]string{"date"}, `field 1 and dense input 0 have the same name "date"`},
		{[]string{"label"}, "reserved for another column: rename the dense input"},
		{[]string{""}, "dense input 0 has an empty name"},
		{make([]string, MaxColumns), "expected at most"},
	} {
		if _, err := NewRowWriter(io.Discard, RowForm{Fields: testFields, Sizes: testSizes, Dense: c.dense}, 1); !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
	w, err := NewRowWriter(io.Discard, RowForm{Fields: testFields, Sizes: testSizes, Dense: testDense[:1], Numbered: true}, 1)
	if err != nil {
		t.Fatal(err)
	}
	rows := withDense(randomRows(3, 8), 1)
	rows.Dense[1] = float32(math.NaN())
	if err := w.Append(rows); !fault.IsInput(err) || !strings.Contains(err.Error(), "row 9: dense input price is NaN, expected a finite number") {
		t.Errorf("NaN: %v", err)
	}
}

// Files that another program changed are refused.
func TestForeignDense(t *testing.T) {
	file := func(version string, columns []arrow.Field, data ...arrow.Array) []byte {
		metadata := arrow.NewMetadata([]string{keyVersion, keySizes}, []string{version, "[5]"})
		var out bytes.Buffer
		w := newStreamWriter(&out, arrow.NewSchema(columns, &metadata))
		if err := w.write(2, data...); err != nil {
			t.Fatal(err)
		}
		if err := w.close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	label := arrow.Field{Name: "label", Type: arrow.PrimitiveTypes.Uint8}
	field := arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int32}
	number := arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Float32}
	double := arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Float64}
	good := func() []arrow.Array { return []arrow.Array{uint8s([]uint8{0, 1}), int32s([]int32{0, 4})} }
	nan := float32(math.NaN())
	for _, c := range []struct {
		data []byte
		want string
	}{
		{file(DenseRowsVersion, []arrow.Field{label, field, number}, append(good(), float32s([]float32{1, 2}))...), ""},
		{file(DenseRowsVersion, []arrow.Field{label, field, number}, append(good(), float32s([]float32{1, nan}))...), "row 1: dense input x is NaN"},
		{file(DenseRowsVersion, []arrow.Field{label, field, double}, append(good(), float64s([]float64{1, 2}))...), "expected \"x\" of float32"},
		{file(DenseRowsVersion, []arrow.Field{label, field}, good()...), "it has no dense inputs"},
		{file(RowsVersion, []arrow.Field{label, field, number}, append(good(), float32s([]float32{1, 2}))...), "2 fields and 1 sizes"},
	} {
		_, rows, err := decodeRows(bytes.NewReader(c.data))
		switch {
		case c.want == "":
			if err != nil || !slices.Equal(rows.Dense, []float32{1, 2}) {
				t.Errorf("%v: %v", rows, err)
			}
		case !fault.IsInput(err) || !strings.Contains(err.Error(), c.want):
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

// Other programs find the dense inputs as ordinary columns.
func TestDenseIsOrdinaryArrow(t *testing.T) {
	rows := withDense(randomRows(10, 0), 3)
	file, err := ipc.NewFileReader(bytes.NewReader(encodeDense(t, rows, false, 10)))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var names []string
	for _, f := range file.Schema().Fields() {
		if f.Type.ID() == arrow.FLOAT32 {
			names = append(names, f.Name)
		}
	}
	if !slices.Equal(names, testDense) {
		t.Errorf("columns of float32: %q", names)
	}
}

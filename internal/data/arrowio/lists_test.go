package arrowio

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
)

// listForm has two lists, one of them of one position, among two other fields.
var listForm = RowForm{Fields: []string{"user", "items", "item", "tag"}, Sizes: []int{7, 300, 300, 2}, Lengths: []int{0, 5, 0, 1}}

func listRows(f *RowForm, n int) *model.Rows {
	random := rand.New(rand.NewPCG(2, uint64(n)))
	rows := &model.Rows{Width: f.width(), Inputs: len(f.inputs())}
	offsets := model.Offsets(f.Sizes)
	for i := range n {
		label := float32(random.IntN(2))
		if f.Numbers {
			label += .25
		}
		rows.Number, rows.Label = append(rows.Number, int64(i)), append(rows.Label, label)
		for j, size := range f.Sizes {
			for range f.positions(j) {
				rows.Features = append(rows.Features, offsets[j]+int32(random.IntN(size)))
			}
		}
		for range f.Dense {
			rows.Dense = append(rows.Dense, float32(random.NormFloat64()))
		}
		for range f.Labels {
			rows.Dense = append(rows.Dense, float32(random.IntN(3)-1))
		}
		if f.Weighted {
			rows.Weight = append(rows.Weight, 1+random.Int32N(math.MaxInt32))
		}
	}
	return rows
}

func encodeForm(t testing.TB, f RowForm, rows *model.Rows, step int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewRowWriter(&out, f, 2)
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

// Rows with lists come back, whatever the order of appending was. Wide rows come in smaller
// batches, which CountRows counts.
func TestListsRoundTrip(t *testing.T) {
	dense, numbers, wide := listForm, listForm, listForm
	dense.Dense, dense.Numbered = []string{"price"}, true
	numbers.Numbers = true
	wide.Lengths = []int{0, 9000, 0, 0}
	weighted, tasks, both := RowForm{Fields: listForm.Fields, Sizes: listForm.Sizes, Weighted: true}, listForm, dense
	tasks.Labels = []string{"buy", "like"}
	both.Labels, both.Weighted = tasks.Labels, true
	for name, f := range map[string]RowForm{"lists": listForm, "dense": dense, "numbers": numbers, "wide": wide, "weighted": weighted, "tasks": tasks, "both": both} {
		for _, n := range []int{0, 1, 1500} {
			rows := listRows(&f, n)
			data := encodeForm(t, f, rows, 997)
			if !bytes.Equal(data, encodeForm(t, f, rows, 70_000)) {
				t.Errorf("%s, %d rows: the bytes depend on how the rows were appended", name, n)
			}
			r, got, err := decodeRows(bytes.NewReader(data))
			if err != nil {
				t.Fatalf("%s, %d rows: %v", name, n, err)
			}
			if n > 0 && !reflect.DeepEqual(got, rows) || !reflect.DeepEqual(r.Form(), &f) {
				t.Errorf("%s, %d rows: the rows or the form %+v changed", name, n, r.Form())
			}
			if counted, err := CountRows(bytes.NewReader(data), int64(len(data))); err != nil || counted != int64(n) {
				t.Errorf("%s: %d rows counted, %v; want %d", name, counted, err, n)
			}
			for _, skip := range []int64{0, int64(n) / 2, int64(n)} {
				if err := sameAfterSkip(bytes.NewReader(data), rows, skip); err != nil {
					t.Errorf("%s: %d of %d rows skipped: %v", name, skip, n, err)
				}
			}
		}
	}
}

// Append and AppendColumns give the same bytes.
func TestAppendListColumns(t *testing.T) {
	rows := listRows(&listForm, 3000)
	columns, offsets := make([][]int32, len(listForm.Fields)), model.Offsets(listForm.Sizes)
	for i := range rows.Len() {
		row := rows.Row(i)
		for j := range columns {
			for _, f := range row[:listForm.positions(j)] {
				columns[j] = append(columns[j], f-offsets[j])
			}
			row = row[listForm.positions(j):]
		}
	}
	var out bytes.Buffer
	w, err := NewRowWriter(&out, listForm, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.AppendColumns(rows.Label, nil, columns, nil), w.Close()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), encodeForm(t, listForm, rows, 100)) {
		t.Error("the bytes differ")
	}
	columns[1][7] = 300
	w, err = NewRowWriter(io.Discard, listForm, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.AppendColumns(rows.Label, nil, columns, nil); !fault.IsInput(err) || !strings.Contains(err.Error(), "row 1: field 1 (items), position 2: local id 300 is outside [0,300)") {
		t.Errorf("error %v", err)
	}
}

func TestListsRefused(t *testing.T) {
	f := RowForm{Fields: []string{"a", "b"}, Sizes: []int{2, 3}, Lengths: []int{0, model.MaxLength + 1}}
	if _, err := NewRowWriter(io.Discard, f, 1); !fault.IsInput(err) || !strings.Contains(err.Error(), "field 1 (b) is a list of 16385 positions, expected at most 16384") {
		t.Errorf("a long list: error %v", err)
	}
	f.Lengths = []int{0, 2}
	for name, c := range map[string]struct {
		version string
		list    arrow.Array
		want    string
	}{
		"an id":             {ListRowsVersion, lists(int32s([]int32{0, 1, 2, 3}), 2, nil), "row 1: field 1 (b), position 1: local id 3 is outside [0,3)"},
		"another version":   {RowsVersion, lists(int32s([]int32{0, 1, 2, 0}), 2, nil), "expected"},
		"lists of any size": {ListRowsVersion, lists(int32s([]int32{0, 1, 2, 0}), 0, []int32{0, 2, 4}), "neither lists nor numbers"},
		"no list":           {ListRowsVersion, int32s([]int32{0, 1}), "neither lists nor numbers"},
		"lists of labels":   {ListRowsVersion, lists(float32s([]float32{0, 1, 2, 0}), 2, nil), "expected"},
	} {
		meta := arrow.NewMetadata([]string{keyVersion, keySizes}, []string{c.version, "[2,3]"})
		schema := arrow.NewSchema([]arrow.Field{{Name: "label", Type: arrow.PrimitiveTypes.Uint8}, {Name: "a", Type: arrow.PrimitiveTypes.Int32}, {Name: "b", Type: c.list.DataType()}}, &meta)
		var out bytes.Buffer
		w, err := newFileWriter(&out, schema)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.write(2, uint8s([]uint8{0, 1}), int32s([]int32{0, 1}), c.list), w.close()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := decodeRows(&out); !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// The writer and the reader refuse weights below 1, labels that are neither 0, 1 nor missing, and the
// name of the column of weights for another column.
func TestWeightedRowsRefuse(t *testing.T) {
	form := RowForm{Fields: []string{"a"}, Sizes: []int{3}, Labels: []string{"buy"}, Weighted: true}
	meta := map[string]string{"version": WeightedRowsVersion, "sizes": "[3]"}
	int8s := func(values ...uint8) arrow.Array { return column(arrow.PrimitiveTypes.Int8, len(values), values) }
	for want, c := range map[string]struct {
		weight int32
		label  float32
	}{"row 0: weight is 0, expected at least 1": {0, 1}, "row 0: label buy is 2, expected 0, 1 or -1": {1, 2}} {
		for columns := range 2 {
			w, err := NewRowWriter(io.Discard, form, 1)
			if err != nil {
				t.Fatal(err)
			}
			if columns == 1 {
				err = w.AppendColumns([]float32{1}, []int32{c.weight}, [][]int32{{1}}, [][]float32{{c.label}})
			} else {
				err = w.Append(&model.Rows{Width: 1, Inputs: 1, Number: []int64{0}, Label: []float32{1}, Features: []int32{1}, Dense: []float32{c.label}, Weight: []int32{c.weight}})
			}
			wantInput(t, err, want)
		}
		_, _, err := decodeRows(bytes.NewReader(foreignRows(t, meta, nil, []string{"label", "weight", "a", "buy"}, uint8s([]uint8{1}), int32s([]int32{c.weight}), int32s([]int32{0}), int8s(uint8(c.label)))))
		wantInput(t, err, want)
	}
	_, _, err := decodeRows(bytes.NewReader(foreignRows(t, meta, nil, []string{"label", "a"}, uint8s([]uint8{1}), int32s([]int32{0}))))
	wantInput(t, err, "neither weights nor several labels")
	_, _, err = decodeRows(bytes.NewReader(foreignRows(t, meta, nil, []string{"label", "a", "buy", "x"}, uint8s([]uint8{1}), int32s([]int32{0}), int8s(1), float32s([]float32{1}))))
	wantInput(t, err, `expected "x" of float32`)
	form.Fields[0] = "weight"
	_, err = NewRowWriter(io.Discard, form, 1)
	wantInput(t, err, `field 0 has the name "weight", which is reserved`)
	if _, err := NewRowWriter(io.Discard, RowForm{Fields: form.Fields, Sizes: form.Sizes}, 1); err != nil {
		t.Error(err) // a field may have the name without weights
	}
}

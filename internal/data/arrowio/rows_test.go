package arrowio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
)

var (
	testFields = []string{"carrier", "date", "été"}
	testSizes  = []int{5, 1, 70_000}
)

func randomRows(n int, first int64) *model.Rows {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	rows := &model.Rows{Width: len(testSizes)}
	offsets := model.Offsets(testSizes)
	for i := range n {
		rows.Number = append(rows.Number, first+int64(i))
		rows.Label = append(rows.Label, float32(random.IntN(2)))
		for j, size := range testSizes {
			rows.Features = append(rows.Features, offsets[j]+int32(random.IntN(size)))
		}
	}
	return rows
}

func encodeRows(t testing.TB, rows *model.Rows, numbered bool, step int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewRowWriter(&out, RowForm{Fields: testFields, Sizes: testSizes, Numbered: numbered}, 1)
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

// decodeRows reads everything and checks what every reader guarantees.
func decodeRows(r io.Reader) (*RowReader, *model.Rows, error) {
	rr, err := NewRowReader(r)
	if err != nil {
		return nil, nil, err
	}
	defer rr.Close()
	all, batch := &model.Rows{Width: rr.width}, &model.Rows{}
	for {
		err := rr.Next(batch)
		if err == io.EOF {
			if used := rr.r.messages.allocator.used; used != 0 {
				return nil, nil, fmt.Errorf("%d bytes were not freed", used)
			}
			return rr, all, nil
		}
		if err != nil {
			return nil, nil, err
		}
		all.AppendAll(batch)
	}
}

func TestRowsRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 1000, RowsBatch - 1, RowsBatch, 2*RowsBatch + 17} {
		for _, numbered := range []bool{false, true} {
			first := int64(0)
			if numbered {
				first = 1 << 40
			}
			rows := randomRows(n, first)
			data := encodeRows(t, rows, numbered, 997)
			if again := encodeRows(t, rows, numbered, 70_001); !bytes.Equal(data, again) {
				t.Errorf("%d rows: the bytes depend on how the rows were appended", n)
			}
			r, got, err := decodeRows(bytes.NewReader(data))
			if err != nil {
				t.Fatalf("%d rows, numbered %t: %v", n, numbered, err)
			}
			if !slices.Equal(r.Form().Fields, testFields) || !slices.Equal(r.Form().Sizes, testSizes) || r.Form().Numbered != numbered {
				t.Errorf("%d rows: fields %v, sizes %v, numbered %t", n, r.Form().Fields, r.Form().Sizes, r.Form().Numbered)
			}
			if n > 0 && !reflect.DeepEqual(got, rows) {
				t.Errorf("%d rows, numbered %t: the rows changed", n, numbered)
			}
		}
	}
}

// The digest of a dataset does not depend on how many cores compressed it.
func TestRowsBytesDoNotDependOnCores(t *testing.T) {
	rows := randomRows(RowsBatch+5, 0)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	want := encodeRows(t, rows, true, 4096)
	for _, cores := range []int{2, 8} {
		runtime.GOMAXPROCS(cores)
		if !bytes.Equal(encodeRows(t, rows, true, 4096), want) {
			t.Errorf("the bytes are different with %d cores", cores)
		}
	}
}

// Ordinary Arrow readers read our files, and we read the streams of ordinary writers.
func TestRowsAreOrdinaryArrow(t *testing.T) {
	rows := randomRows(RowsBatch+5, 0)
	file, err := ipc.NewFileReader(bytes.NewReader(encodeRows(t, rows, false, 4096)))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var stream bytes.Buffer
	w := ipc.NewWriter(&stream, ipc.WithSchema(file.Schema()))
	for i := range file.NumRecords() {
		record, err := file.Record(i)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(record); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_, got, err := decodeRows(&stream)
	if err != nil || !reflect.DeepEqual(got, rows) {
		t.Errorf("the uncompressed stream gives other rows: %v", err)
	}
}

func TestRowWriterRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*model.Rows)
		want   string
	}{
		{"label", func(r *model.Rows) { r.Label[2] = 2 }, "row 12: label is 2"},
		{"id", func(r *model.Rows) { r.Features[2*3+1] = 6 }, "row 12: field 1 (date): global id 6 is outside [5,6)"},
		{"negative id", func(r *model.Rows) { r.Features[0] = -1 }, "row 10: field 0 (carrier): global id -1 is outside [0,5)"},
		{"order", func(r *model.Rows) { r.Number[2] = 11 }, "row 11 comes after row 11"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows := randomRows(4, 10)
			c.change(rows)
			w, err := NewRowWriter(io.Discard, RowForm{Fields: testFields, Sizes: testSizes, Numbered: true}, 1)
			if err != nil {
				t.Fatal(err)
			}
			wantInput(t, w.Append(rows), c.want)
		})
	}
	for _, c := range []struct {
		fields []string
		sizes  []int
		want   string
	}{
		{nil, nil, "at least one field"},
		{[]string{"a"}, []int{0}, "field 0 (a) has size 0"},
		{[]string{"a", "b"}, []int{1 << 30, 1 << 30}, "field 1 (b) has size 1073741824"},
		{[]string{"a", "a"}, []int{1, 1}, `fields 0 and 1 have the same name "a"`},
		{[]string{"label"}, []int{1}, "rename the field"},
		{[]string{""}, []int{1}, "empty name"},
		{[]string{"\xff"}, []int{1}, "not UTF-8"},
	} {
		_, err := NewRowWriter(io.Discard, RowForm{Fields: c.fields, Sizes: c.sizes}, 1)
		wantInput(t, err, c.want)
	}
}

func wantInput(t *testing.T, err error, text string) {
	t.Helper()
	if !fault.IsInput(err) || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, want bad input with %q", err, text)
	}
}

// foreignRows writes columns under our schema version without any checks.
func foreignRows(t *testing.T, metadata map[string]string, options []ipc.Option, names []string, columns ...arrow.Array) []byte {
	t.Helper()
	var out bytes.Buffer
	fields := make([]arrow.Field, len(names))
	for i := range fields {
		fields[i] = arrow.Field{Name: names[i], Type: columns[i].DataType(), Nullable: true}
	}
	meta := arrow.MetadataFrom(metadata)
	w, err := newFileWriter(&out, arrow.NewSchema(fields, &meta), options...)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.write(columns[0].Len(), columns...), w.close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestRowReaderRefuses(t *testing.T) {
	meta := map[string]string{"version": RowsVersion, "sizes": "[3]"}
	builder := array.NewInt32Builder(memory.DefaultAllocator)
	builder.AppendValues([]int32{0, 1}, []bool{true, false})
	nulls := builder.NewArray()
	names := []string{"row", "label", "f"}
	for _, c := range []struct {
		name    string
		meta    map[string]string
		options []ipc.Option
		names   []string
		columns []arrow.Array
		want    string
	}{
		{"version", map[string]string{"version": "shaver.rows/2", "sizes": "[3]"}, nil, names[1:], []arrow.Array{uint8s([]uint8{0}), int32s([]int32{0})}, `version is "shaver.rows/2"`},
		{"sizes", map[string]string{"version": RowsVersion, "sizes": "3"}, nil, names[1:], []arrow.Array{uint8s([]uint8{0}), int32s([]int32{0})}, `"sizes" is not an array`},
		{"number of sizes", map[string]string{"version": RowsVersion, "sizes": "[3,4]"}, nil, names[1:], []arrow.Array{uint8s([]uint8{0}), int32s([]int32{0})}, "1 fields and 2 sizes"},
		{"label", meta, nil, names[1:], []arrow.Array{uint8s([]uint8{0, 2}), int32s([]int32{0, 1})}, "row 1: label is 2"},
		{"id", meta, nil, names[1:], []arrow.Array{uint8s([]uint8{0, 1}), int32s([]int32{0, 3})}, "row 1: field 0 (f): local id 3 is outside [0,3)"},
		{"negative", meta, nil, names[1:], []arrow.Array{uint8s([]uint8{0, 1}), int32s([]int32{0, -3})}, "local id -3 is outside [0,3)"},
		{"row", meta, nil, names, []arrow.Array{int64s([]int64{5, 5}), uint8s([]uint8{0, 1}), int32s([]int32{0, 1})}, "row 5 comes after row 5"},
		{"type", meta, nil, names[1:], []arrow.Array{uint8s([]uint8{0, 1}), int64s([]int64{0, 1})}, `column 1 is "f" of int64, expected "f" of int32`},
		{"nulls", meta, nil, names[1:], []arrow.Array{uint8s([]uint8{0, 1}), nulls}, `column "f": has nulls`},
		{"lz4", meta, []ipc.Option{ipc.WithLZ4()}, names[1:], []arrow.Array{uint8s([]uint8{0, 1}), int32s([]int32{0, 1})}, "codec 0, expected 1"},
		{"batch", meta, nil, names[1:], []arrow.Array{uint8s(make([]uint8, RowsBatch+1)), int32s(make([]int32, RowsBatch+1))}, "a batch has 65537 rows"},
		{"bomb", meta, []ipc.Option{ipc.WithZstd()}, names[1:], []arrow.Array{uint8s(make([]uint8, 1<<26)), int32s(make([]int32, 1<<26))}, "a batch needs more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := decodeRows(bytes.NewReader(foreignRows(t, c.meta, c.options, c.names, c.columns...)))
			wantInput(t, err, c.want)
		})
	}
}

// Every truncated file is bad input. An error of the underlying reader is returned as it
// is.
func TestRowReaderOnTruncatedData(t *testing.T) {
	data := encodeRows(t, randomRows(20, 0), true, 20)
	for n := range data {
		if _, _, err := decodeRows(bytes.NewReader(data[:n])); !fault.IsInput(err) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(data), err)
		}
	}
	failure := errors.New("the disk is gone")
	for n := range data {
		broken := io.MultiReader(bytes.NewReader(data[:n]), failing{failure})
		if _, _, err := decodeRows(broken); !errors.Is(err, failure) || fault.IsInput(err) {
			t.Fatalf("a reader that fails after %d bytes: %v", n, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// A file that parses satisfies the reader's guarantees and does not change when it is
// written again.
func FuzzRows(f *testing.F) {
	f.Add(encodeRows(f, randomRows(3, 0), false, 3))
	f.Add(encodeRows(f, randomRows(40, 7), true, 40))
	f.Add(encodeDense(f, withDense(randomRows(40, 7), 2), true, 40))
	numbers := listForm
	numbers.Numbers, numbers.Numbered = true, true
	weighted, tasks := RowForm{Fields: testFields, Sizes: testSizes, Weighted: true}, numbers
	tasks.Dense, tasks.Labels, tasks.Weighted = testDense[:1], testDense[1:], true
	for _, form := range []RowForm{listForm, numbers, weighted, tasks} {
		f.Add(encodeForm(f, form, listRows(&form, 30), 30))
	}
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, rows, err := decodeRows(bytes.NewReader(data))
		if err != nil {
			if !fault.IsInput(err) {
				t.Fatalf("not bad input: %v", err)
			}
			return
		}
		for _, skip := range []int64{1, int64(rows.Len()) / 2, int64(rows.Len())} {
			for _, in := range []io.Reader{bytes.NewReader(data), onlyReader{bytes.NewReader(data)}} {
				if err := sameAfterSkip(in, rows, skip); err != nil {
					t.Fatalf("%d rows skipped: %v", skip, err)
				}
			}
		}
		var out bytes.Buffer
		w, err := NewRowWriter(&out, *r.Form(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Append(rows), w.Close()); err != nil {
			t.Fatal(err)
		}
		_, again, err := decodeRows(&out)
		if err != nil || rows.Len() > 0 && !reflect.DeepEqual(again, rows) {
			t.Fatalf("the rows changed when they were written and read again: %v", err)
		}
	})
}

func BenchmarkRows(b *testing.B) {
	rows := randomRows(4*RowsBatch, 0)
	data := encodeRows(b, rows, false, 4096)
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			encodeRows(b, rows, false, 4096)
		}
		b.ReportMetric(float64(b.N*rows.Len())/b.Elapsed().Seconds(), "rows/s")
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := decodeRows(bytes.NewReader(data)); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N*rows.Len())/b.Elapsed().Seconds(), "rows/s")
	})
}

// onlyReader hides all methods of a reader except Read, so that it is not an io.Seeker.
type onlyReader struct{ io.Reader }

// sameAfterSkip checks that the rows after Skip are the last ones of all.
func sameAfterSkip(in io.Reader, all *model.Rows, rows int64) error {
	r, err := NewRowReader(in)
	if err != nil {
		return err
	}
	defer r.Close()
	skipped, err := r.Skip(rows)
	if err != nil || skipped > rows {
		return fmt.Errorf("%d skipped of %d: %w", skipped, rows, err)
	}
	var batch model.Rows
	for at := int(skipped); ; at += batch.Len() {
		err := r.Next(&batch)
		if err == io.EOF && at == all.Len() {
			return nil
		}
		if err != nil {
			return err
		}
		want := all.Slice(at, min(at+batch.Len(), all.Len()))
		if !slices.Equal(batch.Number, want.Number) || !slices.Equal(batch.Label, want.Label) || !slices.Equal(batch.Features, want.Features) || !slices.Equal(batch.Weight, want.Weight) {
			return fmt.Errorf("different rows from %d on", at)
		}
	}
}

// Skip skips whole batches only, and seeks if the reader can.
func TestSkip(t *testing.T) {
	const n = 2*RowsBatch + 100
	all := randomRows(n, 0)
	data := encodeRows(t, all, false, n)
	for rows, want := range map[int64]int64{0: 0, RowsBatch - 1: 0, RowsBatch: RowsBatch, RowsBatch + 1: RowsBatch, 2 * RowsBatch: 2 * RowsBatch, n: n, n + 1: n} {
		r, err := NewRowReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.Skip(rows); got != want || err != nil {
			t.Errorf("skip %d rows: %d %v, expected %d", rows, got, err, want)
		}
		if err := sameAfterSkip(bytes.NewReader(data), all, rows); err != nil {
			t.Errorf("skip %d rows: %v", rows, err)
		}
	}
	// A skipped body is not checked, but a file that ends in it is an error.
	broken := slices.Clone(data)
	for i := 40_000; i < 60_000; i++ {
		broken[i] ^= 0x55
	}
	if err := sameAfterSkip(bytes.NewReader(broken), all, RowsBatch); err != nil {
		t.Errorf("damage in a skipped batch: %v", err)
	}
	if err := sameAfterSkip(bytes.NewReader(broken), all, RowsBatch-1); !fault.IsInput(err) {
		t.Errorf("damage in a batch that is read: %v", err)
	}
	for _, in := range []io.Reader{bytes.NewReader(data[:60_000]), onlyReader{bytes.NewReader(data[:60_000])}} {
		if err := sameAfterSkip(in, all, n); !fault.IsInput(err) {
			t.Errorf("a file that ends in a skipped batch: %v", err)
		}
	}
}

// Rows that are appended column by column are encoded to the same bytes as rows that are
// appended one after the other. Neither the number of rows appended at once nor the number
// of cores and compressors changes the bytes.
func TestAppendColumns(t *testing.T) {
	rows := randomRows(2*RowsBatch+1000, 0)
	want := encodeRows(t, rows, false, rows.Len())
	ids := make([][]int32, len(testSizes))
	for i := range rows.Len() {
		for j, offset := range model.Offsets(testSizes) {
			ids[j] = append(ids[j], rows.Row(i)[j]-offset)
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for k, step := range []int{rows.Len(), 1000, RowsBatch} {
		var out bytes.Buffer
		w, err := NewRowWriter(&out, RowForm{Fields: testFields, Sizes: testSizes}, k+1)
		if err != nil {
			t.Fatal(err)
		}
		for from := 0; from < rows.Len(); from += step {
			to := min(from+step, rows.Len())
			if err := w.AppendColumns(rows.Label[from:to], nil, [][]int32{ids[0][from:to], ids[1][from:to], ids[2][from:to]}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil || !bytes.Equal(out.Bytes(), want) {
			t.Errorf("in steps of %d: other bytes, %v", step, err)
		}
		runtime.GOMAXPROCS(4)
	}
}

func TestAppendColumnsRefuses(t *testing.T) {
	for _, c := range []struct {
		label []float32
		ids   [][]int32
		want  string
	}{
		{[]float32{0, 2}, [][]int32{{0, 0}, {0, 0}, {0, 0}}, "row 4: label is 2"},
		{[]float32{0, 1}, [][]int32{{0, 0}, {0, 1}, {0, 0}}, "row 4: field 1 (date): local id 1 is outside [0,1)"},
		{[]float32{0, 1}, [][]int32{{-1, 0}, {0, 0}, {0, 0}}, "row 3: field 0 (carrier): local id -1 is outside [0,5)"},
	} {
		w, err := NewRowWriter(io.Discard, RowForm{Fields: testFields, Sizes: testSizes}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.AppendColumns([]float32{1, 1, 1}, nil, [][]int32{{0, 1, 4}, {0, 0, 0}, {1, 2, 3}}, nil); err != nil {
			t.Fatal(err)
		}
		if err := w.AppendColumns(c.label, nil, c.ids, nil); !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

package columnfile_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"

	"shaver/internal/data/columnfile"
)

// parquetColumn reads all values of a column, and with lists the number of the first value of
// each line.
func parquetColumn[T any](t *testing.T, r *file.Reader, column int) (values []T, starts []int) {
	t.Helper()
	for g := range r.NumRowGroups() {
		chunk, err := r.RowGroup(g).Column(column)
		if err != nil {
			t.Fatal(err)
		}
		reader := chunk.(interface {
			ReadBatch(int64, []T, []int16, []int16) (int64, int, error)
		})
		size := 1 << 20
		batch, defined, repeated := make([]T, size), make([]int16, size), make([]int16, size)
		for chunk.HasNext() {
			total, _, err := reader.ReadBatch(int64(size), batch, defined, repeated)
			if err != nil {
				t.Fatal(err)
			}
			for i := range int(total) {
				if repeated[i] == 0 {
					starts = append(starts, len(values))
				}
				values = append(values, batch[i])
			}
		}
	}
	return values, starts
}

// The three files give the tables to the last bit, also if they have several row groups.
func TestDelta(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	minusZero := float32(math.Copysign(0, -1))
	tables := map[string][]float32{}
	d := columnfile.Delta{Model: "digest"}
	add := func(name string, first, rows int, baseline ...float32) {
		p := columnfile.DeltaPart{Table: name, Field: "of " + name, First: first, Words: [][]float32{baseline}}
		for range rows {
			kept := r.IntN(3)
			for c, b := range baseline {
				switch {
				case c < kept && c == 0:
					b = minusZero // which is not 0
				case c < kept:
					b = r.Float32()
				}
				p.Values = append(p.Values, b)
			}
		}
		tables[name] = append(tables[name], p.Values...)
		d.Parts = append(d.Parts, p)
	}
	add("users", 0, 100_000, 0, 0, 0)
	add("joint", 0, 50, 0, 0.25)
	add("joint", 50, 30, 0, -1)
	var kept, dropped, baseline, again bytes.Buffer
	var count columnfile.DeltaCount
	write := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write(d.WriteKept(&kept, &count))
	write(d.WriteDropped(&dropped, &count))
	write(d.WriteBaseline(&baseline))
	write(d.WriteKept(&again, new(columnfile.DeltaCount)))
	if !bytes.Equal(kept.Bytes(), again.Bytes()) {
		t.Error("two files of the same delta differ")
	}
	open := func(b *bytes.Buffer) *file.Reader {
		t.Helper()
		r, err := file.NewParquetReader(bytes.NewReader(b.Bytes()))
		write(err)
		if v := r.MetaData().KeyValueMetadata().FindValue("shaver.model"); v == nil || *v != "digest" {
			t.Errorf("the digest of the model is %v", v)
		}
		return r
	}
	got := map[string][]float32{}
	for name, values := range tables {
		got[name] = slices.Repeat([]float32{float32(math.NaN())}, len(values))
	}
	dim := map[string]int{"users": 3, "joint": 2}
	f := open(&baseline)
	names, _ := parquetColumn[parquet.ByteArray](t, f, 0)
	fields, _ := parquetColumn[parquet.ByteArray](t, f, 1)
	firsts, _ := parquetColumn[int64](t, f, 2)
	rows, _ := parquetColumn[int64](t, f, 3)
	values, starts := parquetColumn[float32](t, f, 4)
	if len(names) != 3 || string(fields[1]) != "of joint" || len(starts) != 3 {
		t.Fatalf("the baselines are of %q, fields %q, %d lists", names, fields, len(starts))
	}
	unseen := map[string]int{"users": 100_000, "joint": 80} // rows that neither file has
	for i, name := range names {
		d := dim[string(name)]
		for row := range int(rows[i]) {
			copy(got[string(name)][(int(firsts[i])+row)*d:], values[starts[i]:starts[i]+d])
		}
	}
	f = open(&kept)
	names, _ = parquetColumn[parquet.ByteArray](t, f, 0)
	ids, _ := parquetColumn[int64](t, f, 1)
	columns, starts := parquetColumn[int32](t, f, 2)
	values, other := parquetColumn[float32](t, f, 3)
	if !slices.Equal(starts, other) || f.NumRowGroups() < 2 || len(ids) != count.Kept || len(values) != count.Entries {
		t.Fatalf("%d row groups, %d ids, %d entries, %+v", f.NumRowGroups(), len(ids), len(values), count)
	}
	starts = append(starts, len(values))
	for i, name := range names {
		unseen[string(name)]--
		for k := starts[i]; k < starts[i+1]; k++ {
			got[string(name)][int(ids[i])*dim[string(name)]+int(columns[k])] = values[k]
		}
	}
	f = open(&dropped)
	names, _ = parquetColumn[parquet.ByteArray](t, f, 0)
	for _, name := range names {
		unseen[string(name)]--
	}
	if unseen["users"] != 0 || unseen["joint"] != 0 || len(names) != count.Dropped {
		t.Errorf("%v rows are in no file or in two, %+v", unseen, count)
	}
	for name, want := range tables {
		if !slices.EqualFunc(got[name], want, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
			t.Errorf("table %s is not restored", name)
		}
	}
}

package columnfile

import (
	"bytes"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/data/arrowio"
	"shaver/internal/num/layout"
	"shaver/internal/value/tally"
)

var testFields = []string{"carrier", "date", "été"}

var testMeta = map[string]string{"seed": "1", "kernel": "portable", "job": `{"a":1}`}

func randomScores(sizes []int, dim int) *tally.Scores {
	n := 0
	for _, size := range sizes {
		n += size
	}
	return randomScoresOf(layout.Of(n, dim))
}

// randomPairedScoresOf returns the scores of a paired job.
func randomPairedScoresOf(shape layout.Shape) *tally.Scores {
	s := randomScoresOf(shape)
	values := tally.NewPairedValues(shape.Entries())
	copy(values.Phi, s.Phi)
	for i, column := range arrowio.Narrow(&values, arrowio.PairedScoresVersion) {
		for c := range *column {
			(*column)[c] = float32(i) + s.Abs[c]
		}
	}
	s.Values = values
	return s
}

// randomRanksOf returns the scores of a path.
func randomRanksOf(shape layout.Shape) *tally.Scores {
	s := &tally.Scores{Shape: shape, Count: randomScoresOf(shape).Count, Values: tally.NewRanks(shape.Entries())}
	for i, rank := range rand.New(rand.NewPCG(4, 4)).Perm(shape.Entries()) {
		s.Rank[i] = int32(rank)
	}
	return s
}

func randomScoresOf(shape layout.Shape) *tally.Scores {
	random := rand.New(rand.NewPCG(3, uint64(shape.Rows())))
	s := &tally.Scores{Shape: shape, Count: make([]int64, shape.Rows()), Values: tally.NewValues(shape.Entries())}
	for i := range s.Count {
		s.Count[i] = random.Int64N(100)
	}
	for i := range s.Phi {
		s.Phi[i], s.Abs[i], s.RMS[i], s.SE[i], s.PopulationSE[i] = random.NormFloat64(), random.Float32(), random.Float32(), random.Float32(), random.Float32()
	}
	return s
}

// In Parquet, the scores of a path have a column of ranks for each column of the table, and no
// other values.
func TestPathScoresParquet(t *testing.T) {
	s := randomRanksOf(layout.Of(5, 2))
	var out bytes.Buffer
	if err := WriteScoresParquet(&out, []string{"a", "b"}, plain([]int{2, 3}, 2), s, interval, nil); err != nil {
		t.Fatal(err)
	}
	if !IsScoresParquet(bytes.NewReader(out.Bytes()), int64(out.Len())) {
		t.Error("the file is not recognized")
	}
	r, err := file.NewParquetReader(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if root := r.MetaData().Schema; root.NumColumns() != 5 || root.Column(4).Name() != "rank_1" {
		t.Fatalf("columns %v", root)
	}
	for c := range 2 {
		column, err := r.RowGroup(0).Column(3 + c)
		if err != nil {
			t.Fatal(err)
		}
		ranks := make([]int32, 5)
		if _, _, err := column.(*file.Int32ColumnChunkReader).ReadBatch(5, ranks, nil, nil); err != nil {
			t.Fatal(err)
		}
		for feature, rank := range ranks {
			if want := s.Rank[2*feature+c]; rank != want {
				t.Errorf("feature %d has the rank %d, expected %d", feature, rank, want)
			}
		}
	}
	a := modeltest.LookUps()
	if err := WriteScoresParquet(&bytes.Buffer{}, testFields, &a, randomRanksOf(a.Shape()), interval, nil); err != nil {
		t.Error(err)
	}
}

// interval returns NaN for every third feature.
func interval(feature int) (dataset, population float64) {
	if feature%3 == 2 {
		return math.NaN(), math.NaN()
	}
	return float64(feature), 2 * float64(feature)
}

func TestScoresParquet(t *testing.T) {
	sizes := []int{5, parquetGroup, 3}
	s := randomScores(sizes, 2)
	var out, again bytes.Buffer
	for _, w := range []*bytes.Buffer{&out, &again} {
		if err := WriteScoresParquet(w, testFields, plain(sizes, 2), s, interval, testMeta); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Error("two encodings of the same scores differ")
	}
	r, err := file.NewParquetReader(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if v := r.MetaData().KeyValueMetadata().FindValue("kernel"); v == nil || *v != "portable" {
		t.Errorf("metadata %v", r.MetaData().KeyValueMetadata())
	}
	got := &tally.Scores{Shape: s.Shape, Values: tally.NewValues(len(s.Phi))}
	row := 0
	for g := range r.NumRowGroups() {
		group := r.RowGroup(g)
		n := int(group.NumRows())
		column := func(i int) file.ColumnChunkReader {
			c, err := group.Column(i)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		counts := make([]int64, n)
		if _, _, err := column(2).(*file.Int64ColumnChunkReader).ReadBatch(int64(n), counts, nil, nil); err != nil {
			t.Fatal(err)
		}
		got.Count = append(got.Count, counts...)
		ids := make([]int32, n)
		if _, _, err := column(1).(*file.Int32ColumnChunkReader).ReadBatch(int64(n), ids, nil, nil); err != nil {
			t.Fatal(err)
		}
		if g == 0 && !slices.Equal(ids[3:7], []int32{3, 4, 0, 1}) {
			t.Errorf("ids start with %v", ids[:8])
		}
		values := make([]float64, n)
		for c := range 4 {
			if _, _, err := column(3+c).(*file.Float64ColumnChunkReader).ReadBatch(int64(n), values, nil, nil); err != nil {
				t.Fatal(err)
			}
			for i, v := range values {
				dataset, population := interval(row + i)
				if want := []float64{dataset, population}; c >= 2 {
					got.Phi[(row+i)*2+c-2] = v
				} else if v != want[c] && !(math.IsNaN(v) && math.IsNaN(want[c])) {
					t.Fatalf("t is %v for feature %d, expected %v", v, row+i, want)
				}
			}
		}
		small := make([]float32, n)
		for c := range 8 {
			if _, _, err := column(7+c).(*file.Float32ColumnChunkReader).ReadBatch(int64(n), small, nil, nil); err != nil {
				t.Fatal(err)
			}
			into := *arrowio.Narrow(&got.Values, arrowio.ScoresVersion)[c/2]
			for i, v := range small {
				into[(row+i)*2+c%2] = v
			}
		}
		row += n
	}
	if !reflect.DeepEqual(got, s) {
		t.Error("the scores changed")
	}
}

// The scores of a paired job have three more columns for each entry, after the others.
func TestPairedScoresParquet(t *testing.T) {
	s := randomPairedScoresOf(layout.Of(5, 2))
	var out bytes.Buffer
	if err := WriteScoresParquet(&out, []string{"a", "b"}, plain([]int{2, 3}, 2), s, interval, nil); err != nil {
		t.Fatal(err)
	}
	r, err := file.NewParquetReader(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if root := r.MetaData().Schema; root.NumColumns() != 5+8*2 || root.Column(5+7*2+1).Name() != "rms_se_paired_1" {
		t.Fatalf("columns %v", root)
	}
	column, err := r.RowGroup(0).Column(5 + 7*2 + 1)
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float32, 5)
	if _, _, err := column.(*file.Float32ColumnChunkReader).ReadBatch(5, values, nil, nil); err != nil {
		t.Fatal(err)
	}
	for feature, v := range values {
		if want := s.RMSPairedSE[2*feature+1]; v != want {
			t.Errorf("feature %d has the error %v, expected %v", feature, v, want)
		}
	}
}

// In Parquet, the columns that a table lacks are null, and the last column names the table.
func TestScoresParquetOfTables(t *testing.T) {
	a := modeltest.LookUps()
	s := randomScoresOf(a.Shape())
	var out bytes.Buffer
	if err := WriteScoresParquet(&out, testFields, &a, s, interval, nil); err != nil {
		t.Fatal(err)
	}
	r, err := file.NewParquetReader(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	group, rows := r.RowGroup(0), s.Shape.Rows()
	if n := group.NumColumns(); n != 5+5*4+1 {
		t.Fatalf("%d columns, expected 26", n)
	}
	column := func(i int) file.ColumnChunkReader {
		c, err := group.Column(i)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for c := range 4 {
		values, narrow, defined := make([]float64, rows), make([]float32, rows), make([]int16, rows)
		if _, _, err := column(5+c).(*file.Float64ColumnChunkReader).ReadBatch(int64(rows), values, defined, nil); err != nil {
			t.Fatal(err)
		}
		if _, _, err := column(5+3*4+c).(*file.Float32ColumnChunkReader).ReadBatch(int64(rows), narrow, defined, nil); err != nil {
			t.Fatal(err)
		}
		at := 0
		for row := range rows {
			from, to := s.Shape.Row(row)
			if has := from+c < to; has != (defined[row] == 1) {
				t.Errorf("column %d of row %d is there: %t, expected %t", c, row, !has, has)
			} else if has {
				if values[at] != s.Phi[from+c] || narrow[at] != s.SE[from+c] {
					t.Errorf("column %d of row %d is %v and %v, expected %v and %v", c, row, values[at], narrow[at], s.Phi[from+c], s.SE[from+c])
				}
				at++
			}
		}
	}
	names := make([]parquet.ByteArray, rows)
	if _, _, err := column(25).(*file.ByteArrayColumnChunkReader).ReadBatch(int64(rows), names, nil, nil); err != nil {
		t.Fatal(err)
	}
	if string(names[2]) != "narrow" || string(names[3]) != "joint" || string(names[8]) != "joint" || string(names[9]) != "wide" {
		t.Errorf("tables %s", names)
	}
}

// The scores of a model with lists are written too, and invalid scores are bad input.
func TestScoresParquetChecks(t *testing.T) {
	a := modeltest.Lists()
	s := randomScoresOf(a.Shape())
	fields := []string{"item", "user", "history", "tags"}
	if err := WriteScoresParquet(&bytes.Buffer{}, fields, &a, s, interval, nil); err != nil {
		t.Error(err)
	}
	s.Phi[0] = math.NaN()
	if err := WriteScoresParquet(&bytes.Buffer{}, fields, &a, s, interval, nil); !fault.IsInput(err) || !strings.Contains(err.Error(), "phi is NaN") {
		t.Errorf("error %v", err)
	}
}

func plain(sizes []int, dim int) *model.Architecture {
	return &model.Architecture{FieldDims: sizes, Dim: dim}
}

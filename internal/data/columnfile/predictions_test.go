package columnfile

import (
	"bytes"
	"testing"

	"github.com/apache/arrow/go/v17/parquet/file"
)

// Every row is in the file, in order, across row groups.
func TestPredictionsParquet(t *testing.T) {
	n := parquetGroup + 3
	labels, logits := make([]float32, n), make([]float64, n)
	for i := range labels {
		labels[i], logits[i] = float32(i/3%2), float64(i)/7-1
	}
	half := func(logit float64) float64 { return logit / 2 }
	var out bytes.Buffer
	if err := WritePredictionsParquet(&out, labels, logits, half); err != nil {
		t.Fatal(err)
	}
	r, err := file.NewParquetReader(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	row := 0
	for g := range r.NumRowGroups() {
		group := r.RowGroup(g)
		size := group.NumRows()
		rows, wide, read, probabilities := make([]int64, size), make([]int32, size), make([]float64, size), make([]float64, size)
		for i, read := range []func(file.ColumnChunkReader) error{
			func(c file.ColumnChunkReader) error {
				_, _, err := c.(*file.Int64ColumnChunkReader).ReadBatch(size, rows, nil, nil)
				return err
			},
			func(c file.ColumnChunkReader) error {
				_, _, err := c.(*file.Int32ColumnChunkReader).ReadBatch(size, wide, nil, nil)
				return err
			},
			func(c file.ColumnChunkReader) error {
				_, _, err := c.(*file.Float64ColumnChunkReader).ReadBatch(size, read, nil, nil)
				return err
			},
			func(c file.ColumnChunkReader) error {
				_, _, err := c.(*file.Float64ColumnChunkReader).ReadBatch(size, probabilities, nil, nil)
				return err
			},
		} {
			c, err := group.Column(i)
			if err != nil {
				t.Fatal(err)
			}
			if err := read(c); err != nil {
				t.Fatal(err)
			}
		}
		for i := range rows {
			if rows[i] != int64(row) || wide[i] != int32(labels[row]) || read[i] != logits[row] || probabilities[i] != half(logits[row]) {
				t.Fatalf("row %d is %d, %d, %v, %v", row, rows[i], wide[i], read[i], probabilities[i])
			}
			row++
		}
	}
	if row != n || r.NumRowGroups() != 2 {
		t.Errorf("%d rows in %d groups, expected %d in 2", row, r.NumRowGroups(), n)
	}
}

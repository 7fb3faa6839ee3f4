package scores

import (
	"bytes"
	"encoding/csv"
	"io"
	"math"
	"strconv"

	"shaver/internal/base/files"
)

// IsCSV reports whether WriteCSV wrote the file at path.
func IsCSV(path string) bool {
	text := files.Beginning(path, 64)
	return bytes.HasPrefix(text, []byte("field,id,count,t,t_population,phi_0,")) || bytes.HasPrefix(text, []byte("field,id,count,rank_0"))
}

// WriteCSV writes one line for each feature, as the help of "shaver scores export" describes.
func WriteCSV(to io.Writer, f *File) error {
	w := csv.NewWriter(to)
	widest := f.Shape.Widest()
	record := []string{"field", "id", "count"}
	names := []string{"rank_"}
	if !f.Ranks() {
		record, names = append(record, "t", "t_population"), []string{"phi_", "abs_", "rms_", "se_", "se_population_"}
	}
	if f.Lineage != nil {
		names = append(names, "se_paired_", "abs_se_paired_", "rms_se_paired_")
	}
	for _, name := range names {
		for c := range widest {
			record = append(record, name+strconv.Itoa(c))
		}
	}
	if !f.Layout.Plain() {
		record = append(record, "table")
	}
	_ = w.Write(record) // the writer keeps its first error
	intervals := f.Intervals()
	for _, span := range f.Layout.Spans() {
		none := make([]string, widest-span.Dim) // cells for the columns that the table lacks
		for id := range span.Rows {
			count := f.Count[span.Row+id]
			record = append(record[:0], f.Fields[span.Field], strconv.Itoa(id), strconv.FormatInt(count, 10))
			v := f.Part(f.Shape.Row(span.Row + id))
			for _, rank := range v.Rank {
				record = append(record, strconv.Itoa(int(rank)))
			}
			if !f.Ranks() {
				dataset, population := intervals(span.Row + id)
				for _, t := range []float64{dataset, population} {
					text := ""
					if !math.IsNaN(t) {
						text = strconv.FormatFloat(t, 'g', 6, 64)
					}
					record = append(record, text)
				}
			}
			for _, phi := range v.Phi {
				record = append(record, strconv.FormatFloat(phi, 'g', -1, 64))
			}
			record = append(record, none...)
			for _, values := range [][]float32{v.Abs, v.RMS, v.SE, v.PopulationSE, v.PairedSE, v.AbsPairedSE, v.RMSPairedSE} {
				if values == nil { // the scores do not have it
					continue
				}
				for _, x := range values {
					record = append(record, strconv.FormatFloat(float64(x), 'g', -1, 32))
				}
				record = append(record, none...)
			}
			if !f.Layout.Plain() {
				record = append(record, f.Layout.Tables[span.Table].Name)
			}
			_ = w.Write(record)
		}
	}
	w.Flush()
	return w.Error()
}

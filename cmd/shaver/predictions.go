package main

import (
	"bufio"
	"io"
	"path/filepath"
	"strconv"

	"shaver/internal/arrowio"
	"shaver/internal/atomicfile"
	"shaver/internal/evaluate"
)

// predictionFormats are the extensions of files with predictions.
var predictionFormats = []string{".csv", ".parquet"}

// predictionColumns is the first line of a CSV file with predictions.
const predictionColumns = "row,label,logit,probability\n"

// writePredictions writes one line for each row, as the help of "evaluate" describes. The
// extension of the path, which is one of predictionFormats, is the format.
func writePredictions(path string, p *evaluate.Predictions) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		if filepath.Ext(path) == ".parquet" {
			return arrowio.WritePredictionsParquet(w, p.Labels, p.Logits, evaluate.Probability)
		}
		return writePredictionsCSV(w, p)
	})
}

func writePredictionsCSV(to io.Writer, p *evaluate.Predictions) error {
	w := bufio.NewWriter(to)
	line := []byte(predictionColumns)
	for i, logit := range p.Logits {
		_, _ = w.Write(line) // the writer keeps its first error
		line = append(strconv.AppendInt(line[:0], int64(i), 10), ',')
		line = append(strconv.AppendUint(line, uint64(p.Labels[i]), 10), ',')
		line = append(strconv.AppendFloat(line, logit, 'g', -1, 64), ',')
		line = append(strconv.AppendFloat(line, evaluate.Probability(logit), 'g', -1, 64), '\n')
	}
	_, _ = w.Write(line)
	return w.Flush()
}

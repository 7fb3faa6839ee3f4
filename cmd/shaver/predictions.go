package main

import (
	"bufio"
	"io"
	"path/filepath"
	"strconv"

	"shaver/internal/base/atomicfile"
	"shaver/internal/click/evaluate"
	"shaver/internal/data/arrowio"
	"shaver/internal/num/loss"
)

// predictionFormats are the extensions of files with predictions.
var predictionFormats = []string{".csv", ".parquet"}

// predictionColumns is the first line of a CSV file with predictions, and
// numberColumns that with the squared loss.
const (
	predictionColumns = "row,label,logit,probability\n"
	numberColumns     = "row,label,logit\n"
)

// writePredictions writes one line for each row, as the help of "evaluate" describes. The
// extension of the path, which is one of predictionFormats, is the format.
func writePredictions(path string, p *evaluate.Predictions) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		if filepath.Ext(path) == ".parquet" {
			probability := evaluate.Probability
			if p.Loss == loss.Squared {
				probability = nil
			}
			return arrowio.WritePredictionsParquet(w, p.Labels, p.Logits, probability)
		}
		return writePredictionsCSV(w, p)
	})
}

func writePredictionsCSV(to io.Writer, p *evaluate.Predictions) error {
	w := bufio.NewWriter(to)
	line, squared := []byte(predictionColumns), p.Loss == loss.Squared
	if squared {
		line = []byte(numberColumns)
	}
	for i, logit := range p.Logits {
		_, _ = w.Write(line) // the writer keeps its first error
		line = append(strconv.AppendInt(line[:0], int64(i), 10), ',')
		if squared {
			line = append(strconv.AppendFloat(line, float64(p.Labels[i]), 'g', -1, 32), ',')
			line = append(strconv.AppendFloat(line, logit, 'g', -1, 64), '\n')
			continue
		}
		line = append(strconv.AppendUint(line, uint64(p.Labels[i]), 10), ',')
		line = append(strconv.AppendFloat(line, logit, 'g', -1, 64), ',')
		line = append(strconv.AppendFloat(line, evaluate.Probability(logit), 'g', -1, 64), '\n')
	}
	_, _ = w.Write(line)
	return w.Flush()
}

package measure

import (
	"bufio"
	"bytes"
	"io"
	"path/filepath"
	"strconv"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/files"
	"shaver/internal/click/evaluate"
	"shaver/internal/data/columnfile"
	"shaver/internal/num/loss"
)

// PredictionFormats are the extensions of files with predictions.
var PredictionFormats = []string{".csv", ".parquet"}

// predictionColumns is the first line of a CSV file with predictions, and
// numberColumns that with the squared loss.
const (
	predictionColumns = "row,label,logit,probability\n"
	numberColumns     = "row,label,logit\n"
)

// WritePredictions writes one line for each row, as the help of "shaver evaluate" describes. The
// extension of the path, which is one of PredictionFormats, is the format.
func WritePredictions(path string, p *evaluate.Predictions) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		if filepath.Ext(path) == ".parquet" {
			probability := evaluate.Probability
			if p.Loss == loss.Squared {
				probability = nil
			}
			return columnfile.WritePredictionsParquet(w, p.Labels, p.Logits, probability)
		}
		return writeCSV(w, p)
	})
}

func writeCSV(to io.Writer, p *evaluate.Predictions) error {
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

// IsPredictions reports whether the file at path was written by WritePredictions.
func IsPredictions(path string) bool {
	head := files.Beginning(path, 64)
	return bytes.HasPrefix(head, []byte(predictionColumns)) || bytes.HasPrefix(head, []byte(numberColumns)) || files.Is(path, columnfile.IsPredictionsParquet)
}

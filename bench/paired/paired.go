// Package paired compares models on the same rows, and averages the differences over repeats with
// several seeds.
package paired

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/num/loss"
)

// The metrics of a cell.
const (
	AUC = iota
	LogLoss
	GAUC // 0 without groups
	metrics
)

// Cell is a model on the rows of a split. Its differences are those from another model on the same
// rows. Each has the standard error that the choice of rows causes.
type Cell [metrics]struct{ Value, Difference, SE float64 }

// Predicted holds the predictions of a model for the rows of a split, and the calibration with
// which their LogLoss is measured.
type Predicted struct {
	Rows        *evaluate.Ranking
	Calibration loss.Calibration
}

// Predict returns the predictions of m for a split of d.
func Predict(m *model.Model, d *dataset.Dataset, split string) (*evaluate.Predictions, error) {
	return evaluate.Predict(context.Background(), m, loss.Logistic, func(ctx context.Context, each func(*model.Rows) error) error {
		return d.Scan(ctx, []string{split}, 4096, each)
	}, runtime.GOMAXPROCS(0))
}

// Minus returns the metrics of p and their differences from those of to.
func (p *Predicted) Minus(to *Predicted) (c Cell) {
	off := p.Rows.Minus(to.Rows)
	c[AUC].Value, c[AUC].Difference, c[AUC].SE = p.Rows.AUC(), off.AUC.Value, off.AUC.SE
	if w := p.Rows.Within(); w != nil {
		c[GAUC].Value, c[GAUC].Difference, c[GAUC].SE = w.GAUC, off.GAUC.Value, off.GAUC.SE
	}
	loss := evaluate.CompareLoss(to.Rows.Predictions, p.Rows.Predictions, to.Calibration, p.Calibration)
	c[LogLoss].Value, c[LogLoss].Difference, c[LogLoss].SE = p.Rows.MeanLoss(p.Calibration), loss.Value, loss.SE
	return c
}

// Value returns the mean of a metric over the seeds.
func Value(cells []Cell, metric int) (mean float64) {
	for i := range cells {
		mean += cells[i][metric].Value / float64(len(cells))
	}
	return mean
}

// Difference returns the mean difference over the seeds, and half of its 95% interval. Its variance
// has two parts. The first is that of the rows. If all seeds are measured on the same rows, the
// errors that the choice of rows causes are taken to be equal for all seeds, and their variance is
// the mean of the seeds' variances. Otherwise it is this mean divided by the number of seeds. The
// second is the sample variance of the seeds, divided by their number. It is independent of the first
// if the seeds share their rows, and otherwise contains it, so that the interval is too wide rather
// than too narrow. The interval uses Student's t with the degrees of freedom of Welch and
// Satterthwaite, which are unlimited for the rows.
func Difference(cells []Cell, metric int, sameRows bool) (mean, half float64) {
	n := float64(len(cells))
	var rows, between float64
	for i := range cells {
		c := &cells[i][metric]
		mean += c.Difference / n
		rows += c.SE * c.SE / n
	}
	if !sameRows {
		rows /= n
	}
	for i := range cells {
		off := cells[i][metric].Difference - mean
		between += off * off / (n * max(n-1, 1))
	}
	degrees := math.Inf(1)
	if between > 0 {
		degrees = (n - 1) * (rows + between) / between * (rows + between) / between
	}
	t := distuv.StudentsT{Sigma: 1, Nu: min(degrees, 1e6)}.Quantile(.975)
	return mean, t * math.Sqrt(rows+between)
}

// Number formats a number without the zero before the point.
func Number(format string, v float64) string {
	return strings.Replace(fmt.Sprintf(format, v), "0.", ".", 1)
}

// Spread formats a difference with half of its interval.
func Spread(mean, half float64) string {
	return Number("%+.4f", mean) + " ± " + Number("%.4f", half)
}

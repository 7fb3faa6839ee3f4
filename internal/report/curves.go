package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"shaver/internal/picture"
	"shaver/internal/prune"
	"shaver/internal/sweep"
)

// sweepSection shows what pruning costs.
type sweepSection struct {
	Figure     figure
	Split      string
	Rows       int64
	Settings   string
	Repeats    bool // some points are the mean of several repeats
	Tables     []metricTable
	Calibrated bool
	Points     []pointRow
}

// metricTable has a row for each method and a column for each sparsity.
type metricTable struct {
	Name, Unpruned string
	Sparsities     []float64
	Rows           []metricRow
}

type metricRow struct {
	Label string
	Cells []metricCell
}

type metricCell struct {
	Text, Off string
	Best      bool
}

type pointRow struct {
	Label string
	sweep.Mean
}

// metric is a metric of the sweep.
type metric struct {
	name     string
	sign     float64  // 1 if more is better, -1 if less
	unpruned *float64 // nil = the sweep does not have this metric
	of       func(*sweep.Mean) sweep.Spread
}

// sweepOf returns the section of a sweep.
func sweepOf(d *sweep.Document, show addPicture) *sweepSection {
	series := d.Series()
	s := &sweepSection{Figure: show(picture.Sweep(d)), Split: d.Split, Rows: d.Rows, Settings: settings(d.Settings), Calibrated: d.Unpruned.CalibratedLogLoss != nil}
	for _, m := range []metric{
		{"AUC", 1, d.Unpruned.AUC, func(m *sweep.Mean) sweep.Spread { return m.AUC }},
		{"LogLoss, nat", -1, &d.Unpruned.LogLoss, func(m *sweep.Mean) sweep.Spread { return m.LogLoss }},
		{"LogLoss, calibrated, nat", -1, d.Unpruned.CalibratedLogLoss, func(m *sweep.Mean) sweep.Spread { return m.Calibrated }},
	} {
		if m.unpruned != nil {
			s.Tables = append(s.Tables, m.table(series))
		}
	}
	for _, one := range series {
		for _, mean := range one.Points {
			s.Points = append(s.Points, pointRow{one.Label, mean})
			s.Repeats = s.Repeats || mean.AUC.Off > 0 || mean.LogLoss.Off > 0
		}
	}
	return s
}

// settings returns sentences about the settings that all methods share.
func settings(s *sweep.Settings) string {
	if s == nil {
		return ""
	}
	text := "Entries are ranked by the magnitude of their scores."
	if s.Rank == prune.Signed {
		text = "Entries are ranked by their signed scores."
	}
	if len(s.Protect) > 0 {
		text += " These fields keep all entries: " + strings.Join(s.Protect, ", ") + "."
	}
	if s.FieldMinimum > 0 {
		text += " Each field keeps at least " + number(100*s.FieldMinimum) + "% of its entries."
	}
	return text
}

// table returns the table of the metric.
func (m *metric) table(series []sweep.Series) metricTable {
	t := metricTable{Name: m.name, Unpruned: fmt.Sprintf("%.4f", *m.unpruned)}
	for _, s := range series {
		for _, p := range s.Points {
			t.Sparsities = append(t.Sparsities, p.Sparsity)
		}
	}
	slices.Sort(t.Sparsities)
	t.Sparsities = slices.Compact(t.Sparsities)
	best, measured := make([]float64, len(t.Sparsities)), make([]int, len(t.Sparsities))
	for k := range best {
		best[k] = math.Inf(-1)
	}
	each := func(s *sweep.Series, visit func(k int, v sweep.Spread)) {
		for i := range s.Points {
			if v := m.of(&s.Points[i]); !math.IsNaN(v.Mean) {
				k, _ := slices.BinarySearch(t.Sparsities, s.Points[i].Sparsity)
				visit(k, v)
			}
		}
	}
	for i := range series {
		each(&series[i], func(k int, v sweep.Spread) {
			best[k] = max(best[k], m.sign*v.Mean)
			measured[k]++
		})
	}
	for i := range series {
		row := metricRow{series[i].Label, make([]metricCell, len(best))}
		each(&series[i], func(k int, v sweep.Spread) {
			cell := metricCell{Text: fmt.Sprintf("%.4f", v.Mean), Best: measured[k] > 1 && m.sign*v.Mean == best[k]}
			if v.Off > 0 {
				cell.Off = fmt.Sprintf("±%.4f", v.Off)
			}
			row.Cells[k] = cell
		})
		t.Rows = append(t.Rows, row)
	}
	return t
}

package picture

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/base/chart"
	"shaver/internal/prune/sweep"
)

// Sweep shows AUC on the left and LogLoss on the right against sparsity, with one curve
// per series. LogLoss is calibrated if the document has calibrated values. With the squared
// loss it shows RMSE alone.
func Sweep(d *sweep.Document) *chart.Figure {
	orders := *d // the floor has no place on the axis
	orders.Points = slices.DeleteFunc(slices.Clone(d.Points), func(p sweep.Point) bool { return p.Method == sweep.Nothing })
	d = &orders
	calibrated := d.Unpruned.CalibratedLoss() != nil
	full, name, unit, squared := d.Unpruned.Loss(), d.LossName(), ", nat", d.Unpruned.RMSE != nil
	name = strings.ToUpper(name[:1]) + name[1:]
	if calibrated {
		full = *d.Unpruned.CalibratedLoss()
	}
	if squared {
		unit = ""
	}
	most := 0.0
	for i := range d.Points {
		most = max(most, d.Points[i].Sparsity)
	}
	axis, against, at := sparsityAxis(most), "sparsity", func(m *sweep.Mean) float64 { return m.Sparsity }
	if d.InBytes() {
		axis = chart.Axis{Label: "bytes of the table in its file", Scale: math.Log10, Ticks: chart.Log(bytesText), Room: room}
		against, at = "the bytes of the table", tableBytes
	}
	of := " of " + d.Kind + " on the " + d.Split + " split"
	auc := &chart.Chart{Title: d.AUCName() + of, About: d.AUCName() + " against " + against + ", by method", X: axis, Y: chart.Axis{Room: room}}
	loss := &chart.Chart{Title: name + of + unit, About: name + strings.Replace(unit, ",", " in", 1) + " against " + against + ", by method", X: axis, Y: chart.Axis{Room: room}}
	f := &chart.Figure{Name: "sweep", Height: high, Charts: []*chart.Chart{auc, loss}}
	if squared {
		f.Charts = f.Charts[1:]
	}
	loss.Marks = append(loss.Marks, &chart.Rule{At: full})
	f.Keys = append(f.Keys, chart.Key{Label: "unpruned", Of: loss.Marks[0]})
	if full := d.Unpruned.JudgedAUC(); full != nil {
		auc.Marks = append(auc.Marks, &chart.Rule{At: *full})
	}
	all := d.Series()
	var names []string
	for _, s := range all {
		names = append(names, s.Points[0].Point.Method)
	}
	for i, style := range Styles(names) {
		s := &all[i]
		curve := spreads(s, style, at, func(m *sweep.Mean) sweep.Spread { return m.AUC })
		auc.Marks = append(auc.Marks, curve)
		loss.Marks = append(loss.Marks, spreads(s, style, at, func(m *sweep.Mean) sweep.Spread {
			if calibrated {
				return m.Calibrated
			}
			return m.Loss
		}))
		f.Keys = append(f.Keys, chart.Key{Label: s.Label, Of: curve})
	}
	return f
}

// spreads returns those points of a series whose value is defined, by ascending x, which is NaN for the points
// that have none.
func spreads(s *sweep.Series, style int, at func(*sweep.Mean) float64, of func(*sweep.Mean) sweep.Spread) *chart.Series {
	var points []*sweep.Mean
	for k := range s.Points {
		if p := &s.Points[k]; !math.IsNaN(of(p).Mean) && !math.IsNaN(at(p)) {
			points = append(points, p)
		}
	}
	slices.SortStableFunc(points, func(a, b *sweep.Mean) int { return cmp.Compare(at(a), at(b)) })
	c := &chart.Series{Style: style, Bars: true}
	for _, p := range points {
		add(c, at(p), of(p))
	}
	return c
}

// add adds a point with its deviation.
func add(c *chart.Series, x float64, v sweep.Spread) {
	c.X, c.Y, c.Low, c.High = append(c.X, x), append(c.Y, v.Mean), append(c.Low, v.Mean-v.Off), append(c.High, v.Mean+v.Off)
}

// tableBytes returns the bytes of the table of a point, or NaN without a file.
func tableBytes(m *sweep.Mean) float64 {
	if b := m.Point.TableBytes; b != nil && *b >= 1 {
		return float64(*b)
	}
	return math.NaN()
}

// bytesText returns a number of bytes as text for an axis.
func bytesText(v float64) string {
	units := []string{" B", " kB", " MB", " GB"}
	for v >= 1000 && len(units) > 1 {
		v, units = v/1000, units[1:]
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + units[0]
}

package picture

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"

	"shaver/internal/prune/sweep"
)

// Sweep shows AUC on the left and LogLoss on the right against sparsity, with one curve
// per series. LogLoss is calibrated if the document has calibrated values. With the squared
// loss it shows RMSE alone.
func Sweep(d *sweep.Document) *Picture {
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
	of := plain(" of " + d.Kind + " on the " + d.Split + " split")
	auc, loss := grid("AUC"+of, "", ""), grid(name+of+unit, "", "")
	most := 0.0
	for i := range d.Points {
		most = max(most, d.Points[i].Sparsity)
	}
	against, at := "sparsity", func(m *sweep.Mean) (float64, bool) { return position(m.Sparsity), true }
	if d.InBytes() {
		against, at = "the bytes of the table", tableBytes
		bytesAxis(auc, d)
		bytesAxis(loss, d)
	} else {
		sparsityAxis(auc, most)
		sparsityAxis(loss, most)
	}
	p := &Picture{Name: "sweep", height: panelHeight, panels: []panel{{auc, "AUC against " + against + ", by method"}, {loss, name + strings.Replace(unit, ",", " in", 1) + " against " + against + ", by method"}}}
	if squared {
		p.panels = p.panels[1:]
	}
	p.keys = append(p.keys, key{"unpruned", []plot.Thumbnailer{horizontal(loss, full)}})
	if d.Unpruned.AUC != nil {
		horizontal(auc, *d.Unpruned.AUC)
	}
	all := d.Series()
	var names []string
	for _, s := range all {
		names = append(names, s.Points[0].Point.Method)
	}
	for i, style := range Styles(names) {
		s := &all[i]
		drawn := curve(auc, style, spreads(s, at, func(m *sweep.Mean) sweep.Spread { return m.AUC }), true)
		also := curve(loss, style, spreads(s, at, func(m *sweep.Mean) sweep.Spread {
			if calibrated {
				return m.Calibrated
			}
			return m.Loss
		}), true)
		if drawn == nil {
			drawn = also
		}
		p.keys = append(p.keys, key{plain(s.Label), drawn})
	}
	for _, panel := range p.panels { // keep marks off the edge
		room := (panel.Y.Max - panel.Y.Min) / 30
		panel.Y.Min, panel.Y.Max = panel.Y.Min-room, panel.Y.Max+room
	}
	return p
}

// spreads returns those points of a series whose value is defined, by ascending x, which at returns
// for the points that have one.
func spreads(s *sweep.Series, at func(*sweep.Mean) (float64, bool), of func(*sweep.Mean) sweep.Spread) *points {
	type place struct {
		x float64
		v sweep.Spread
	}
	var all []place
	for k := range s.Points {
		x, ok := at(&s.Points[k])
		if v := of(&s.Points[k]); ok && !math.IsNaN(v.Mean) {
			all = append(all, place{x, v})
		}
	}
	slices.SortStableFunc(all, func(a, b place) int { return cmp.Compare(a.x, b.x) })
	var list points
	for _, p := range all {
		list.add(p.x, p.v.Mean, p.v.Off)
	}
	return &list
}

// tableBytes returns the x of a point on an axis of bytes: their logarithm. Tables without a file
// have none.
func tableBytes(m *sweep.Mean) (float64, bool) {
	b := m.Point.TableBytes
	if b == nil || *b < 1 {
		return 0, false
	}
	return math.Log10(float64(*b)), true
}

// bytesAxis makes the x axis an axis of the bytes of a table, in steps of 1, 2 and 5.
func bytesAxis(p *plot.Plot, d *sweep.Document) {
	p.X.Label.Text = "bytes of the table in its file"
	least, most := math.Inf(1), math.Inf(-1)
	for i := range d.Points {
		if x, ok := tableBytes(&sweep.Mean{Point: &d.Points[i]}); ok {
			least, most = min(least, x), max(most, x)
		}
	}
	p.X.Min, p.X.Max = least-.05, most+.05
	var ticks []plot.Tick
	for power := math.Floor(least); power <= most; power++ {
		for _, digit := range []float64{1, 2, 5} {
			v := digit * math.Pow(10, power)
			ticks = append(ticks, plot.Tick{Value: math.Log10(v), Label: bytesText(v)})
		}
	}
	ticks = slices.DeleteFunc(ticks, func(t plot.Tick) bool { return t.Value < p.X.Min || t.Value > p.X.Max })
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
}

// bytesText returns a number of bytes as text for an axis.
func bytesText(v float64) string {
	for _, unit := range []string{"B", "kB", "MB", "GB"} {
		if v < 1000 || unit == "GB" {
			return strconv.FormatFloat(v, 'g', 3, 64) + " " + unit
		}
		v /= 1000
	}
	panic("unreachable")
}

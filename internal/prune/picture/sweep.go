package picture

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"

	"shaver/internal/prune/sweep"
)

// Sweep shows AUC on the left and LogLoss on the right against sparsity, with one curve
// per series. LogLoss is calibrated if the document has calibrated values. With the squared
// loss it shows RMSE alone.
func Sweep(d *sweep.Document) *Picture {
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
	sparsityAxis(auc, most)
	sparsityAxis(loss, most)
	p := &Picture{Name: "sweep", height: panelHeight, panels: []panel{{auc, "AUC against sparsity, by method"}, {loss, name + strings.Replace(unit, ",", " in", 1) + " against sparsity, by method"}}}
	if squared {
		p.panels = p.panels[1:]
	}
	p.keys = append(p.keys, key{"unpruned", []plot.Thumbnailer{horizontal(loss, full)}})
	if d.Unpruned.AUC != nil {
		horizontal(auc, *d.Unpruned.AUC)
	}
	for i, s := range d.Series() {
		drawn := curve(auc, i, spreads(&s, func(m *sweep.Mean) sweep.Spread { return m.AUC }), true)
		also := curve(loss, i, spreads(&s, func(m *sweep.Mean) sweep.Spread {
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

// spreads returns those points of a series whose value is defined, by ascending sparsity.
func spreads(s *sweep.Series, of func(*sweep.Mean) sweep.Spread) *points {
	sorted := slices.Clone(s.Points)
	slices.SortStableFunc(sorted, func(a, b sweep.Mean) int { return cmp.Compare(a.Sparsity, b.Sparsity) })
	var list points
	for k := range sorted {
		if v := of(&sorted[k]); !math.IsNaN(v.Mean) {
			list.add(position(sorted[k].Sparsity), v.Mean, v.Off)
		}
	}
	return &list
}

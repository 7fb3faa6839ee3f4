package scores

import (
	"fmt"
	"io"
	"math"

	"shaver/internal/base/fault"
)

// Path says how the order of a path came about.
type Path struct {
	Rounds []Round `json:"rounds"` // in order, at least one
	// Reach is the largest sparsity to which entries were dropped in rounds, (0, 1]. Beyond it
	// the order is that of the last round that dropped. It is 1 if a small table was dropped whole.
	Reach float64 `json:"reach"`
}

// Round is a round of a path.
type Round struct {
	Rows   int64   `json:"rows"`   // number of rows that were measured; 0 if none could be computed
	Kept   int64   `json:"kept"`   // number of entries that the measured table keeps
	Loss   float64 `json:"loss"`   // mean loss of these rows with this table, before calibration
	Scale  float64 `json:"scale"`  // calibration of the table: factor of the logit
	Offset float64 `json:"offset"` // calibration of the table: what is added to the product
}

// Ranks reports whether f has the order of a path and no values. Values then has only Rank, and
// LossEmpty, EfficiencyError and EfficiencySE are 0.
func (f *File) Ranks() bool { return f.Spec.Options.Traits().Ranks }

// CheckValues returns bad input if f has the order of a path and no values. name is the name of
// the file, and what names that which needs values.
func (f *File) CheckValues(name, what string) error {
	if !f.Ranks() {
		return nil
	}
	return fault.Inputf("%s has the order of a path and no values: %s needs scores of an estimator of values, such as debiased", name, what)
}

// Deeper reports whether a number of dropped entries exceeds that which p dropped in rounds. p
// may be nil, and entries is the number of all entries.
func (p *Path) Deeper(dropped, entries int) bool {
	return p != nil && float64(dropped) > math.Round(p.Reach*float64(entries))
}

// Sparsity returns the sparsity of the table that the round measured. entries is the number of
// all entries.
func (r *Round) Sparsity(entries int) float64 { return 1 - float64(r.Kept)/float64(entries) }

// Uncalibrated says that the model is not calibrated on the scored rows, and what to do. A path drops by the
// loss of logits that are calibrated, scale * logit + offset, so the loss of the others may rise.
func Uncalibrated(scale, offset float64) string {
	return fmt.Sprintf("the path orders entries by the loss after a calibration, which for the whole model is logit * %.4f %+.4f: prune with --calibrate, or the loss may rise", scale, offset)
}

// Uncalibrated is the function Uncalibrated for the first round. It is "" unless that is Scaled. p may be nil.
func (p *Path) Uncalibrated() string {
	if p == nil || !p.Rounds[0].Scaled() {
		return ""
	}
	return Uncalibrated(p.Rounds[0].Scale, p.Rounds[0].Offset)
}

// Scaled reports whether the round scales logits by more than a half up or a third down, which chance does not
// if there are 4096 rows.
func (r *Round) Scaled() bool { return r.Rows >= 4096 && (r.Scale >= 1.5 || r.Scale <= 1/1.5) }

// Text says in words what p is, as two cells of a table.
func (p *Path) Text() string {
	return counted(len(p.Rounds), "round", "rounds") + fmt.Sprintf("\tto sparsity %.6g; an order for pruning, not Shapley values", p.Reach)
}

// WriteTable writes the rounds as lines of a table. Tabs separate the cells. entries is the
// number of all entries.
func (p *Path) WriteTable(w io.Writer, entries int) {
	fmt.Fprintln(w, "ROUND\tSPARSITY\tKEPT\tROWS\tMEAN LOSS\tSCALE\tOFFSET")
	for i := range p.Rounds {
		r := &p.Rounds[i]
		fmt.Fprintf(w, "%d\t%.4f\t%d\t%d\t%.6f\t%.4f\t%+.4f\n", i+1, r.Sparsity(entries), r.Kept, r.Rows, r.Loss, r.Scale, r.Offset)
	}
}

// validate returns an error unless p fits f: it must exist if and only if the estimator gives
// ranks.
func (p *Path) validate(f *File) error {
	switch {
	case p == nil && !f.Ranks():
		return nil
	case p == nil:
		return fmt.Errorf("the metadata %s is missing, but the estimator is %s", keyPath, f.Spec.Estimator)
	case !f.Ranks():
		return fmt.Errorf("the metadata %s is set, but the estimator is %s, which gives values", keyPath, f.Spec.Estimator)
	case f.Lineage != nil || f.Audit != nil:
		return fmt.Errorf("the metadata %s and %s need values, but the estimator is %s", keyLineage, keyAudit, f.Spec.Estimator)
	case len(p.Rounds) == 0:
		return fmt.Errorf("metadata %s: no rounds, expected at least 1", keyPath)
	case !(p.Reach > 0 && p.Reach <= 1):
		return fmt.Errorf("metadata %s: the reach is %v, expected a number in (0, 1]", keyPath, p.Reach)
	}
	before, adds := int64(f.Layout.Prunable())+1, false
	for i, r := range p.Rounds {
		most, least := before-1, int64(1)
		if adds {
			least = before + 1
		}
		if adds = adds || f.Spec.Adds && i > 0 && r.Kept >= before; adds { // the first round that adds may keep as many as the one before
			most = int64(f.Layout.Prunable())
		}
		switch {
		case r.Rows < 0:
			return fmt.Errorf("metadata %s, round %d: %d rows, expected at least 0", keyPath, i+1, r.Rows)
		case r.Kept < least || r.Kept > most:
			return fmt.Errorf("metadata %s, round %d: %d kept entries, expected %d to %d: fewer in each round and, from one on, more", keyPath, i+1, r.Kept, least, most)
		case !(r.Loss >= 0 && r.Loss <= math.MaxFloat64):
			return fmt.Errorf("metadata %s, round %d: the loss is %v, expected a finite number of at least 0", keyPath, i+1, r.Loss)
		case !finite(r.Scale) || !finite(r.Offset):
			return fmt.Errorf("metadata %s, round %d: the scale is %v and the offset %v, expected finite numbers", keyPath, i+1, r.Scale, r.Offset)
		}
		before = r.Kept
	}
	return nil
}

func finite(v float64) bool { return math.Abs(v) <= math.MaxFloat64 }

package sweep

import "fmt"

// Tolerance is how much worse than the unpruned table a table may be.
type Tolerance struct{ AUC, LogLoss float64 }

// DefaultTolerance is 0.001 of AUC and of LogLoss. Papers about click models commonly call a
// difference of this size significant.
var DefaultTolerance = Tolerance{AUC: .001, LogLoss: .001}

// Holds reports whether differences are within the tolerance: whether the whole 95% intervals
// are. It returns false if d or an interval is nil.
func (t Tolerance) Holds(d *Differences) bool { return t.HoldsAUC(d) && t.HoldsLogLoss(d) }

// HoldsAUC is Holds for AUC alone.
func (t Tolerance) HoldsAUC(d *Differences) bool {
	return d != nil && d.AUC != nil && d.AUC.Low != nil && *d.AUC.Low >= -t.AUC
}

// HoldsLogLoss is Holds for LogLoss alone. It judges the calibrated LogLoss if there is one,
// because calibration is free.
func (t Tolerance) HoldsLogLoss(d *Differences) bool {
	if d == nil {
		return false
	}
	loss := &d.LogLoss
	if d.CalibratedLogLoss != nil {
		loss = d.CalibratedLogLoss
	}
	return loss.High != nil && *loss.High <= t.LogLoss
}

// Decide returns the point with the smallest table whose differences are within the
// tolerance. It considers only tables that have a file. The size of a table is the number
// of bits of its parameters, so that it does not depend on the positions of the kept
// entries. Of tables with equal sizes, Decide chooses the one with the highest AUC. Repeats
// count as one point, the first of them, and their combined intervals must be within the
// tolerance. If no point is within it, Decide returns nil.
//
// An interval does not account for a choice among points. The best of many points is a
// little worse on other rows than on these.
func (d *Document) Decide(t Tolerance) *Point {
	var best *Point
	for _, s := range d.Series() {
		for i := range s.Points {
			p := s.Points[i].Point
			if p.Bytes == nil || p.AUC == nil || !t.Holds(s.Points[i].Difference) {
				continue
			}
			if best == nil || p.size() < best.size() || p.size() == best.size() && *p.AUC > *best.AUC {
				best = p
			}
		}
	}
	return best
}

// decision returns the result of Decide as a sentence.
func (d *Document) decision(t Tolerance) string {
	loss := "LogLoss"
	if d.Unpruned.CalibratedLogLoss != nil {
		loss = "calibrated LogLoss"
	}
	within := fmt.Sprintf("whose whole 95%% intervals are within %g AUC and %g %s of the unpruned table", t.AUC, t.LogLoss, loss)
	p := d.Decide(t)
	if p == nil {
		return "There is no table " + within + "."
	}
	return fmt.Sprintf("The smallest table %s: %s at sparsity %s, %d parameters, %d bytes.", within, d.Label(p), SparsityText(p.Sparsity), p.Parameters, *p.TableBytes)
}

// size returns the number of bits of the parameters.
func (p *Point) size() int64 { return int64(p.Parameters) * int64(p.Bits) }

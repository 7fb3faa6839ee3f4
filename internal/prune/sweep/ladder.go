package sweep

import (
	"fmt"
	"io"
	"math"
)

// Rungs are the bounds of a ladder. A table is within a bound if its AUC is at most that much lower, and its loss at most that much
// higher, than those of the unpruned table.
var Rungs = []float64{.001, .002, .005}

// Rung says what is known about the tables within a bound.
type Rung struct {
	Within  float64
	Certain *Point // the smallest table whose whole intervals are within the bound; nil = none
	// Guess is the smallest table whose differences on these rows are within the bound, and Rows the number of rows on which its
	// intervals would be, too, if the differences stayed. Guess is nil if no such table is smaller than Certain, and Rows is 0
	// if no number is known.
	Guess *Point
	Rows  float64
}

// Ladder returns a rung for each bound. Tables and intervals are those of Decide.
func (d *Document) Ladder(bounds ...float64) []Rung {
	rungs := make([]Rung, len(bounds))
	for i, b := range bounds {
		rungs[i] = d.Rung(Tolerance{AUC: b, LogLoss: b})
		rungs[i].Within = b
	}
	return rungs
}

// Rung returns the rung of a tolerance, whose Within is not set.
func (d *Document) Rung(t Tolerance) Rung {
	r := Rung{Certain: d.Decide(t)}
	point, m := d.smallest(t.seems)
	if stored := d.InBytes(); point != nil && (r.Certain == nil || point.size(stored) < r.Certain.size(stored)) {
		r.Guess, r.Rows = point, t.rows(m.Judged, d.Rows)
	}
	return r
}

// seems reports whether the differences, without their intervals, are within the tolerance.
func (t Tolerance) seems(d *Differences) bool {
	return d != nil && (d.AUC != nil && d.AUC.Value >= -t.AUC || d.RMSE != nil) && d.judgedLoss() != nil && d.judgedLoss().Value <= t.LogLoss
}

// rows returns the number of rows on which the intervals of d would be within t. The width of an interval falls with the square
// root of the number of rows, and those of d are of n. rows returns 0 if no number is known.
func (t Tolerance) rows(d *Differences, n int64) float64 {
	most := 0.0
	need := func(value, worst *float64, bound float64) {
		if worst == nil || *value == bound {
			most = math.Inf(1)
			return
		}
		most = max(most, float64(n)*math.Pow((*worst-*value)/(bound-*value), 2))
	}
	if d.AUC != nil {
		worse, worst := -d.AUC.Value, d.AUC.Low
		if worst != nil {
			worst = new(-*worst)
		}
		need(&worse, worst, t.AUC)
	}
	loss := d.judgedLoss()
	need(&loss.Value, loss.High, t.LogLoss)
	if most > 1e12 {
		return 0
	}
	return most
}

// Text describes the table of a point: the method, the sparsity, and the size of the table in its file.
func (d *Document) Text(p *Point) string {
	return fmt.Sprintf("%s, sparsity %s, %d parameters, %d bytes", d.Label(p), SparsityText(p.Sparsity), p.Parameters, *p.TableBytes)
}

// writeLadder writes the ladder, a line for each rung.
func (d *Document) writeLadder(w io.Writer) {
	rungs := d.Ladder(Rungs...)
	fmt.Fprintf(w, "Smallest table whose %s at most so much worse:\n", d.judged())
	for _, r := range rungs {
		text := "nothing smaller than the whole table"
		if r.Certain != nil {
			text = d.Text(r.Certain)
		}
		fmt.Fprintf(w, "certain within %g: %s\n", r.Within, text)
	}
	for _, r := range rungs {
		if r.Guess == nil {
			continue
		}
		fmt.Fprintf(w, "best guess within %g: %s%s\n", r.Within, d.Text(r.Guess), r.Would())
		break
	}
}

// Would says how many rows would make the guess certain, as the end of a sentence, or "" if it is not known.
func (r *Rung) Would() string {
	if r.Rows == 0 {
		return ""
	}
	return fmt.Sprintf("; about %s rows would make it certain", Round(r.Rows))
}

// Round returns v, which is above 0, rounded up to two digits.
func Round(v float64) string {
	unit := math.Pow(10, max(math.Floor(math.Log10(v))-1, 0))
	return fmt.Sprintf("%.0f", math.Ceil(v/unit)*unit)
}

// judged names the metrics that Decide compares, with their verb.
func (d *Document) judged() string {
	if d.Unpruned.RMSE != nil {
		return d.LossName() + " is"
	}
	return "AUC and " + d.LossName() + " are"
}

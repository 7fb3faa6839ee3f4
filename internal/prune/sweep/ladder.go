package sweep

import (
	"fmt"
	"math"
	"slices"

	"shaver/internal/num/layout"
	"shaver/internal/num/loss"
)

// Rungs are the bounds of every ladder. A table is within a bound if its AUC is at most that much lower, and its loss at most that
// much higher, than those of the unpruned table.
var Rungs = []float64{.001, .002, .005}

// CheckBounds returns an error that says what was expected if a bound of a ladder is impossible.
func CheckBounds(bounds ...float64) error {
	for _, b := range bounds {
		if !(b > 0 && b <= 1) {
			return fmt.Errorf("%v: expected numbers above 0, at most 1", b)
		}
	}
	return nil
}

// tooMany is how many times the rows of a sweep nobody waits for.
const tooMany = 100

// Rung says what is known about the tables within a bound.
type Rung struct {
	Within  float64 `json:"within"`
	Certain *Table  `json:"certain"` // the smallest table whose whole intervals are within the bound, by Decide; nil = none
	// Guess is the smallest table whose differences on these rows are within the bound, and Rows the number of rows on which its
	// intervals would be, too, if the differences stayed: at most tooMany times the rows of the document. Guess is nil if no such
	// table is smaller than Certain, and Rows is 0 if no number is known.
	Guess *Table  `json:"guess,omitempty"`
	Rows  float64 `json:"rows,omitempty"`
}

// Table is a table of a ladder.
type Table struct {
	Order      string  `json:"order,omitempty"` // label of its series; empty if the document has no other
	Sparsity   float64 `json:"sparsity"`
	Parameters int     `json:"parameters"`
	TableBytes int64   `json:"table_bytes"`
	Bytes      int64   `json:"bytes"` // of the file
	Point      *Point  `json:"-"`
}

// Answer is a ladder and the sentences that say it. Every program shows these sentences.
type Answer struct {
	Rungs []Rung   `json:"rungs"`
	Text  []string `json:"text"`
}

// Ladder returns the rungs of Rungs and of other bounds, ascending.
func (d *Document) Ladder(others ...float64) *Answer {
	bounds := slices.Concat(Rungs, others)
	slices.Sort(bounds)
	a := &Answer{Text: []string{"Smallest table whose " + d.judged() + " at most so much worse:"}}
	guessed := ""
	for _, b := range slices.Compact(bounds) {
		r := d.Rung(Bound(b))
		r.Within = b
		a.Rungs = append(a.Rungs, r)
		text := "nothing smaller than the whole table"
		if r.Certain != nil {
			text = r.Certain.Text()
		}
		a.Text = append(a.Text, fmt.Sprintf("certain within %g: %s", b, text))
		if r.Guess != nil && guessed == "" {
			guessed = fmt.Sprintf("best guess within %g: %s%s", b, r.Guess.Text(), r.Would())
		}
	}
	if guessed != "" {
		a.Text = append(a.Text, guessed)
	}
	return a
}

// Rung returns the rung of a bound, whose Within is not set.
func (d *Document) Rung(t Bound) Rung {
	var r Rung
	certain, _ := d.smallest(t.Holds, true)
	if certain != nil {
		r.Certain = d.table(certain)
	}
	point, m := d.smallest(func(of *Differences) bool { return t.seems(of) && !(t.rows(of, d.Rows) > tooMany*float64(d.Rows)) }, false)
	if stored := d.InBytes(); point != nil && (certain == nil || point.size(stored) < certain.size(stored)) {
		r.Guess, r.Rows = d.table(point), t.rows(m.Along, d.Rows)
		if !(r.Rows > float64(d.Rows)) { // not known, or a larger table ended its order
			r.Rows = 0
		}
	}
	return r
}

// table describes the table of a point that has a file.
func (d *Document) table(p *Point) *Table {
	t := &Table{Sparsity: d.shortest(p.Sparsity), Parameters: p.Parameters, TableBytes: *p.TableBytes, Bytes: *p.Bytes, Point: p}
	if series := d.Series(); len(orders(series)) > 1 {
		t.Order = d.Label(p)
	}
	return t
}

// shortest returns the shortest sparsity that drops as many entries. A sweep names a sparsity, and the file of its table has
// a number of entries.
func (d *Document) shortest(sparsity float64) float64 {
	drop, err := layout.Dropped(d.Entries, sparsity)
	if err != nil || d.Entries == 0 {
		return sparsity
	}
	for unit := 10.; unit < 1e9; unit *= 10 {
		short := math.Round(sparsity*unit) / unit
		if n, err := layout.Dropped(d.Entries, short); err == nil && n == drop {
			return short
		}
	}
	return sparsity
}

// Text describes the table: the sparsity, the size in its file, and the order.
func (t *Table) Text() string {
	text := fmt.Sprintf("sparsity %s, %d parameters, %d bytes", SparsityText(t.Sparsity), t.Parameters, t.TableBytes)
	if t.Order != "" {
		text += ", by " + t.Order
	}
	return text
}

// Would says how many rows would make the guess certain, as the end of a sentence, or "" if it is not known.
func (r *Rung) Would() string {
	if r.Rows == 0 {
		return ""
	}
	return fmt.Sprintf("; about %s rows would make it certain", Round(r.Rows))
}

// seems reports whether the differences, without their intervals, are within the bound.
func (t Bound) seems(d *Differences) bool {
	return d != nil && (d.JudgedAUC() != nil && d.JudgedAUC().Value >= -float64(t) || d.RMSE != nil) && d.judgedLoss() != nil && d.judgedLoss().Value <= float64(t)
}

// Needed returns the number of rows on which the interval of a value would end at a bound, if it ends at worst on n rows. The width
// of an interval falls with the square root of the number of rows.
func Needed(n int64, value, worst, bound float64) float64 {
	return float64(n) * math.Pow((worst-value)/(bound-value), 2)
}

// rows returns the number of rows on which the intervals of d, which are of n rows, would be within t. It is infinite if a difference
// is the bound, and NaN if an interval is not known.
func (t Bound) rows(d *Differences, n int64) float64 {
	loss, auc := d.judgedLoss(), d.JudgedAUC()
	if loss.High == nil || auc != nil && auc.Low == nil {
		return math.NaN()
	}
	most := Needed(n, loss.Value, *loss.High, float64(t))
	if auc != nil {
		most = max(most, Needed(n, -auc.Value, -*auc.Low, float64(t)))
	}
	return most
}

// Round returns v, which is above 0, rounded up to two digits.
func Round(v float64) string {
	unit := math.Pow(10, max(math.Floor(math.Log10(v))-1, 0))
	return fmt.Sprintf("%.0f", math.Ceil(v/unit)*unit)
}

// judged names the metrics that Decide compares, with their verb.
func (d *Document) judged() string {
	if d.Loss == loss.Squared {
		return d.LossName() + " is"
	}
	return d.AUCName() + " and " + d.LossName() + " are"
}

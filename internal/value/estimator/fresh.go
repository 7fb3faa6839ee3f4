package estimator

import (
	"fmt"
	"math/bits"
)

// Fresh says which rows the model was not trained on, and how often each of them counts. A row that the model was trained
// on counts once. What an entry is worth on such a row is partly what the model remembers of its label.
type Fresh struct {
	Weight int64      `json:"weight"` // how often a fresh row counts, 1 to MaxWeight
	Rows   [][2]int64 `json:"rows"`   // numbers of the fresh rows: ranges [from, to), at least one
}

// MaxWeight is the largest weight of fresh rows. With a larger one, squares of contributions would often overflow.
const MaxWeight = 16

// Weights says how often the rows of a job count. A row counts as often as its own weight says, times Fresh if it is fresh.
type Weights struct {
	Fresh int64 // how often a fresh row counts; 0 = once
	Rows  int64 // largest weight that a row has itself; 0 = rows have no weights
}

// MostWeight is the largest Fresh*Rows. With a larger one, losses would often overflow.
const MostWeight = 1 << 16

// Shift returns the least s at which 2^s times MaxWeight is at least Fresh*Rows. Sums of weights and of squares have a unit
// that grows with it.
func (w Weights) Shift() int {
	return bits.Len64(uint64(max(1, w.Fresh)*max(1, w.Rows)-1) / MaxWeight)
}

// Validate returns an error if the sums of the given number of rows with the weights w may overflow.
func (w Weights) Validate(rows int64) error {
	most := w.Rows * max(1, w.Fresh)
	switch {
	case most > MostWeight:
		return fmt.Errorf("the largest weight of a row is %d times the common divisor of all weights, expected at most %d divided by %d, how often a fresh row counts: import the weights with fewer digits, or cut off large ones",
			w.Rows, MostWeight, max(1, w.Fresh))
	case float64(rows)*float64(most)*float64(most) >= 1<<63:
		return fmt.Errorf("the squares of the weights of %d rows may add up to more than 2^63, because the largest weight is %d: score a sample, or import the weights with fewer digits", rows, most)
	}
	return nil
}

// Times returns how often the row with the given number counts. All rows count once if f is nil.
func (f *Fresh) Times(number int64) int64 {
	if f.Has(number) {
		return f.Weight
	}
	return 1
}

// Has reports whether the row with the given number is fresh. No row is if f is nil.
func (f *Fresh) Has(number int64) bool {
	if f == nil {
		return false
	}
	for _, r := range f.Rows {
		if number >= r[0] && number < r[1] {
			return true
		}
	}
	return false
}

// Count returns the number of fresh rows.
func (f *Fresh) Count() (rows int64) {
	for _, r := range f.Rows {
		rows += r[1] - r[0]
	}
	return rows
}

// Validate returns an error if f is neither nil nor complete.
func (f *Fresh) Validate() error {
	switch {
	case f == nil:
		return nil
	case f.Weight < 1 || f.Weight > MaxWeight:
		return fmt.Errorf("the weight of fresh rows is %d, expected 1 to %d", f.Weight, MaxWeight)
	case len(f.Rows) == 0:
		return fmt.Errorf("no fresh rows, expected at least one range")
	}
	for _, r := range f.Rows {
		if r[0] < 0 || r[1] <= r[0] {
			return fmt.Errorf("fresh rows %d to %d, expected a range", r[0], r[1])
		}
	}
	return nil
}

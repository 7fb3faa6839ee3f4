// Package dense turns numbers of raw rows into dense inputs: the float32 values that a
// model reads next to the embeddings of a row's features. Dense inputs are constants of a
// row and not players.
//
// Each dense input has a rule, which standardises its numbers when they are imported. The
// statistics of a rule are those of the split train. They are computed exactly, so they
// do not depend on the order of the rows.
package dense

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"

	"shaver/internal/click/model"
)

// Rules that standardise a number x.
const (
	None         = "none"          // x
	Log1p        = "log1p"         // ln(1 + x), for x above -1
	ClippedLog1p = "log1p-clipped" // ln(1 + max(x, 0)), as in the code of DLRM
	ZScore       = "zscore"        // (x - mean) / deviation, both of the split train
)

// Rules lists all rules.
var Rules = []string{None, Log1p, ClippedLog1p, ZScore}

// Input describes a dense input of a dataset.
type Input struct {
	Name      string   `json:"name"`
	Rule      string   `json:"rule"`                // one of Rules
	Mean      *float64 `json:"mean,omitempty"`      // ZScore only
	Deviation *float64 `json:"deviation,omitempty"` // ZScore only: standard deviation (divided by n), above 0
	Missing   *float64 `json:"missing,omitempty"`   // number that replaces a missing one, before the rule; nil: a row without the number is malformed
	Filled    int64    `json:"filled"`              // number of rows in which the number was missing
	Values    Values   `json:"values"`
}

// Values describes the numbers of an input over all rows, before the rule and after
// missing numbers are replaced.
type Values struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	Max  float64 `json:"max"`
}

// Measured reports whether the rule has its statistics.
func (in *Input) Measured() bool { return in.Rule != ZScore || in.Mean != nil && in.Deviation != nil }

// Standard says what turns a number into what the model reads.
func (in *Input) Standard() model.Standard {
	return model.Standard{Name: in.Name, Rule: in.Rule, Mean: in.Mean, Deviation: in.Deviation, Missing: in.Missing}
}

// Validate returns an error unless the rule exists and has the parameters that it needs.
func (in *Input) Validate() error {
	switch in.Rule {
	case None, Log1p, ClippedLog1p:
		if in.Mean != nil || in.Deviation != nil {
			return fmt.Errorf("the rule %s has a mean or a deviation: only %s has these", in.Rule, ZScore)
		}
	case ZScore:
		if !in.Measured() {
			return fmt.Errorf("the rule %s has no mean or no deviation", in.Rule)
		}
		if !finite(*in.Mean) || !finite(*in.Deviation) || *in.Deviation <= 0 {
			return fmt.Errorf("the mean is %v and the deviation %v: expected numbers, and a deviation above 0", *in.Mean, *in.Deviation)
		}
	default:
		return fmt.Errorf("the rule is %q: expected one of %q", in.Rule, Rules)
	}
	if in.Missing != nil {
		if err := in.Check(*in.Missing); err != nil {
			return fmt.Errorf("missing numbers: %w", err)
		}
	}
	if v := in.Values; in.Filled < 0 || !finite(v.Min) || !finite(v.Max) || !(v.Min <= v.Mean && v.Mean <= v.Max) {
		return fmt.Errorf("the smallest number is %v, the mean %v and the largest %v, with %d missing: expected numbers in ascending order", v.Min, v.Mean, v.Max, in.Filled)
	}
	return nil
}

func finite(x float64) bool { return x-x == 0 }

// Check returns an error if the rule is not defined for the number x. It needs no
// statistics.
func (in *Input) Check(x float64) error {
	switch {
	case math.IsNaN(x) || math.Abs(x) > math.MaxFloat32:
		return fmt.Errorf("%v is not a finite number in the range of float32", x)
	case in.Rule == Log1p && x <= -1:
		return fmt.Errorf("%v has no logarithm by the rule %s, expected a number above -1: the rule %s replaces negative numbers with 0", x, Log1p, ClippedLog1p)
	}
	return nil
}

// Value returns what the model reads for the number x, which must have passed Check. The
// rule must be measured. Value returns an error if the result exceeds float32.
func (in *Input) Value(x float64) (float32, error) {
	raw := x
	switch in.Rule {
	case Log1p:
		x = math.Log1p(x)
	case ClippedLog1p:
		x = math.Log1p(max(x, 0))
	case ZScore:
		x = (x - *in.Mean) / *in.Deviation
	}
	if value := float32(x); finite(float64(value)) {
		return value, nil
	}
	return 0, fmt.Errorf("%v becomes %v by the rule %s, which is outside the range of float32", raw, x, in.Rule)
}

// errMissing is returned by Parse.
var errMissing = errors.New("missing number")

// IsMissing reports whether err says that a cell has no number.
func IsMissing(err error) bool { return err == errMissing }

// Parse returns the number in a cell. An empty cell and NaN are missing numbers, for which
// IsMissing reports true. The number must be written in decimal digits.
func Parse(cell []byte) (float64, error) {
	if len(cell) == 0 {
		return 0, errMissing
	}
	if x, ok := small(cell); ok {
		return x, nil
	}
	if c := cell[len(cell)-1]; c == 'n' || c == 'N' { // no number ends so
		switch string(cell) {
		case "nan", "NaN", "NAN", "-nan", "-NaN":
			return 0, errMissing
		}
	}
	for _, c := range cell {
		if (c < '0' || c > '9') && c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E' {
			return 0, notNumber(cell)
		}
	}
	x, err := strconv.ParseFloat(string(cell), 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%s is outside the range of float32", clip(cell))
	}
	if err != nil {
		return 0, notNumber(cell)
	}
	return x + 0, nil // -0 becomes 0
}

// small parses a natural number of a few digits.
func small(cell []byte) (float64, bool) {
	if len(cell) > 9 {
		return 0, false
	}
	n := 0
	for _, c := range cell {
		digit := int(c) - '0'
		if digit < 0 || digit > 9 {
			return 0, false
		}
		n = 10*n + digit
	}
	return float64(n), true
}

func notNumber(cell []byte) error {
	if bytes.ContainsAny(cell, "0123456789") {
		return fmt.Errorf("%q is not a finite number: leave units out, and derive a number from a date before the import", clip(cell))
	}
	return fmt.Errorf("%q is not a finite number", clip(cell))
}

func clip(cell []byte) string {
	const most = 40
	if len(cell) <= most {
		return string(cell)
	}
	return string(cell[:most]) + "..."
}

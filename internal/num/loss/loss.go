// Package loss declares the losses of a row. A loss compares the output of a model, its
// logit, with the label of the row.
package loss

import (
	"fmt"
	"math"
	"strings"
)

// Kind is a loss. Specifications and other JSON documents contain it as text. The zero value
// is Logistic, so documents without a loss have that one.
type Kind string

const (
	// Logistic is the log loss softplus(logit) - label*logit, in nat. Labels are 0 or 1.
	Logistic Kind = ""
	// Squared is the squared error (logit - label)^2. Labels are finite numbers. Values that
	// other packages document in nat are then in squared units of the label.
	Squared Kind = "squared"
)

// logistic is the name of Logistic.
const logistic = "logistic"

// Names lists the names of all losses.
func Names() []string { return []string{logistic, string(Squared)} }

// Parse returns the loss with a name.
func Parse(name string) (Kind, error) {
	switch name {
	case logistic:
		return Logistic, nil
	case string(Squared):
		return Squared, nil
	}
	return "", fmt.Errorf("loss %q: expected %s", name, strings.Join(Names(), " or "))
}

// Check returns an error unless k is one of the losses.
func (k Kind) Check() error {
	if k != Logistic && k != Squared {
		return fmt.Errorf("loss %q: expected %q or nothing", string(k), string(Squared))
	}
	return nil
}

// Name returns the name of the loss, which is one of Names.
func (k Kind) Name() string {
	if k == Logistic {
		return logistic
	}
	return string(k)
}

// Of returns the loss of a logit.
func (k Kind) Of(logit float64, label float32) float64 {
	if k == Squared {
		off := logit - float64(label)
		return off * off
	}
	return max(logit, 0) + math.Log1p(math.Exp(-math.Abs(logit))) - float64(label)*logit
}

// Calibration maps a logit z to Scale*z + Offset. Scale is above 0, so calibration
// changes neither the order of rows nor the AUC.
type Calibration struct {
	Scale  float64 `json:"scale"`
	Offset float64 `json:"offset"`
}

// Uncalibrated leaves logits as they are.
var Uncalibrated = Calibration{Scale: 1}

// Apply returns the calibrated logit.
func (c Calibration) Apply(logit float64) float64 { return float64(c.Scale*logit) + c.Offset }

package dataset

import (
	"shaver/internal/base/fault"
	"shaver/internal/num/loss"
)

// Loss returns the usual loss for the labels of d: squared for numbers, and logistic for 0
// and 1.
func (d *Dataset) Loss() loss.Kind {
	if d.Labels == NumberLabels {
		return loss.Squared
	}
	return loss.Logistic
}

// ChooseLoss returns the loss with the given name, or d.Loss if the name is empty. An unknown
// name is wrong usage. The logistic loss for labels that are numbers is bad input.
func (d *Dataset) ChooseLoss(name string) (loss.Kind, error) {
	if name == "" {
		return d.Loss(), nil
	}
	kind, err := loss.Parse(name)
	if err != nil {
		return "", fault.Usagef("%w", err)
	}
	if kind == loss.Logistic && d.Labels == NumberLabels {
		return "", fault.Inputf("the loss is %s, but the labels of the dataset are numbers: expected the loss %s, or labels 0 and 1", kind.Name(), loss.Squared.Name())
	}
	return kind, nil
}

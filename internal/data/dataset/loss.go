package dataset

import (
	"shaver/internal/base/fault"
	"shaver/internal/click/model"
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

// ChooseLoss returns the loss with the given name, or d.Loss if the name is empty. k is what the model knows, or nil. An unknown
// name is wrong usage. The logistic loss for labels that are numbers is bad input, and so is the squared loss of a
// logit that is not the output of the model.
func (d *Dataset) ChooseLoss(name string, k *model.Known) (loss.Kind, error) {
	kind := d.Loss()
	if name != "" {
		var err error
		if kind, err = loss.Parse(name); err != nil {
			return "", fault.Usagef("%w", err)
		}
	}
	switch {
	case kind == loss.Logistic && d.Labels == NumberLabels:
		return "", fault.Inputf("the loss is %s, but the labels of the dataset are numbers: expected the loss %s, or labels 0 and 1", kind.Name(), loss.Squared.Name())
	case kind == loss.Squared && k != nil && k.Logit != "":
		return "", fault.Inputf("the loss is %s, but what shaver computes of %s is %s: if the output of the model predicts the labels, shaver model convert --logit writes a model that computes it", kind.Name(), k.File, k.Logit)
	}
	return kind, nil
}

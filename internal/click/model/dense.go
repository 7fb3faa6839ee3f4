package model

import (
	"errors"
	"fmt"
	"slices"
)

// Columns returns the number of values of a row besides its label, which are the ids of
// its fields and the dense inputs of the model.
func (a *Architecture) Columns() int { return a.Width() + len(a.Dense) }

// validateDense checks the names of the dense inputs.
func (a *Architecture) validateDense() error {
	if len(a.Dense) > 0 && a.Kind != Graph {
		return fmt.Errorf("kind is %s, which reads no dense inputs, but dense is %q", a.Kind, a.Dense)
	}
	for i, name := range a.Dense {
		if name == "" {
			return errors.New("dense has an empty name")
		}
		if slices.Contains(a.Dense[:i], name) {
			return fmt.Errorf("dense has the name %q twice", name)
		}
	}
	return nil
}

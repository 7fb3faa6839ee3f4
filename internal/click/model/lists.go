package model

import (
	"errors"
	"fmt"
	"math"
)

// List states that a field is a list. A row has Length ids of the field, one for each
// position. An id equal to Pad fills a position that has no value.
type List struct {
	Field  int `json:"field"`  // index into Architecture.FieldDims
	Length int `json:"length"` // number of positions, 1 to MaxLength
	Pad    int `json:"pad"`    // local id of positions without a value, or -1 if no id stands for them
}

// MaxLength is the largest number of positions of a list.
const MaxLength = 1 << 14

// Lengths returns the number of ids of each field in a row, [m]. It is 1 for fields that
// are not lists.
func (a *Architecture) Lengths() []int {
	lengths := make([]int, len(a.FieldDims))
	for j := range lengths {
		lengths[j] = 1
	}
	for _, l := range a.Lists {
		lengths[l.Field] = l.Length
	}
	return lengths
}

// lists returns a list for each field, [m]. Fields that are not lists have one position
// and no pad id.
func (a *Architecture) lists() []List {
	all := make([]List, len(a.FieldDims))
	for j := range all {
		all[j] = List{Field: j, Length: 1, Pad: -1}
	}
	for _, l := range a.Lists {
		all[l.Field] = l
	}
	return all
}

// Width returns the number of ids of a row. It is m in a model without lists.
func (a *Architecture) Width() int {
	width := len(a.FieldDims)
	for _, l := range a.Lists {
		width += l.Length - 1
	}
	return width
}

// validateLists checks Lists. The fields must be valid.
func (a *Architecture) validateLists() error {
	if len(a.Lists) == 0 {
		return nil
	}
	if a.Plain() {
		return errors.New("a model with lists needs tables and look_ups")
	}
	width, previous := len(a.FieldDims), -1
	for i, l := range a.Lists {
		switch {
		case l.Field <= previous || l.Field >= len(a.FieldDims):
			return fmt.Errorf("list %d is field %d after field %d: expected ascending numbers below %d", i, l.Field, previous, len(a.FieldDims))
		case l.Length < 1 || l.Length > MaxLength:
			return fmt.Errorf("list %d (field %d) has %d positions: expected 1 to %d", i, l.Field, l.Length, MaxLength)
		case l.Pad < -1 || l.Pad >= a.FieldDims[l.Field]:
			return fmt.Errorf("list %d (field %d) has the pad id %d: expected -1 to %d", i, l.Field, l.Pad, a.FieldDims[l.Field]-1)
		}
		if previous = l.Field; width > math.MaxInt32-l.Length {
			return errors.New("lists have too many positions")
		}
		width += l.Length - 1
	}
	return nil
}

package cut

import (
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/value/mask"
)

// Stability says how a mask differs from that of a previous night.
type Stability struct {
	File       string       `json:"file"`
	Hysteresis float64      `json:"hysteresis"` // in standard errors, or in rounds of a path
	Churn      Churn        `json:"churn"`
	Plain      Churn        `json:"plain_churn"` // churn of the mask without hysteresis
	Fields     []FieldChurn `json:"fields"`
}

// FieldChurn is the churn of a field.
type FieldChurn struct {
	Field string `json:"field"`
	Churn Churn  `json:"churn"`
	Plain Churn  `json:"plain_churn"`
}

// Churn is mask.Churn with its portion.
type Churn struct {
	mask.Churn
	Portion float64 `json:"portion"` // see mask.Churn.Portion
}

func newChurn(c mask.Churn) Churn { return Churn{c, c.Portion()} }

// choices returns the choices of the previous file for the entries of s, or nil without one.
func (o *Options) choices(s *Source) ([]mask.Choice, error) {
	if o.Previous == "" {
		return nil, nil
	}
	return s.Choices(o.Previous)
}

// Choices returns which entries of s a compact file keeps and drops. Its fields may be smaller than those of s.
func (s *Source) Choices(file string) ([]mask.Choice, error) {
	before, err := checkpoint.Read(file)
	if err != nil {
		return nil, err
	}
	return choicesOf(s.Checkpoint, before, file)
}

// choicesOf returns the choices of the compact file before for the entries of ck. name is
// the name of the file.
func choicesOf(ck, before *checkpoint.Checkpoint, name string) ([]mask.Choice, error) {
	if before.Compact == nil {
		return nil, errDense(name)
	}
	if ck.Fields != nil && before.Fields != nil && !slices.Equal(ck.Fields, before.Fields) {
		return nil, fault.Inputf("%s has the fields %q, expected %q as in the model", name, before.Fields, ck.Fields)
	}
	if err := before.Known().Precedes(ck.Known()); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	dropped, _, err := before.Pruned()
	if err != nil {
		return nil, err
	}
	choices, err := mask.Previous(&ck.Architecture, &before.Architecture, dropped)
	if err != nil {
		return nil, fault.Inputf("%s does not fit the model: %w", name, err)
	}
	return choices, nil
}

func errDense(name string) error {
	return fault.Inputf("%s is dense, so it does not say which entries were dropped: expected a compact file of shaver prune", name)
}

// stability compares a mask, and the mask that the scores alone would give, with the choices
// of the previous mask.
func (o *Options) stability(source *Source, choices []mask.Choice, dropped, plain []bool) *Stability {
	a := &source.Checkpoint.Architecture
	all, fields := mask.ChurnOf(a, choices, dropped)
	allPlain, fieldsPlain := mask.ChurnOf(a, choices, plain)
	s := &Stability{File: o.Previous, Hysteresis: o.Hysteresis, Churn: newChurn(all), Plain: newChurn(allPlain)}
	for j, name := range source.Scores[0].Fields {
		s.Fields = append(s.Fields, FieldChurn{name, newChurn(fields[j]), newChurn(fieldsPlain[j])})
	}
	return s
}

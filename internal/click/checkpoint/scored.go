package checkpoint

import (
	"cmp"
	"slices"

	"shaver/internal/base/fault"
)

// Scored says what the labels of rows did for a model.
type Scored struct {
	Dataset string   `json:"dataset"` // digest
	Splits  []string `json:"splits"`
	Did     Use      `json:"did,omitempty"` // "" = scores were computed on the rows
}

// Use is what rows are used for, besides scoring.
type Use string

// The uses of rows. Only the first two are recorded.
const (
	Choose    Use = "chose"      // they choose fields, columns, entries, bits, a method or an epoch by the loss
	Calibrate Use = "calibrated" // they calibrate the model
	Judge     Use = "judged"     // they decide whether the model is good enough, or compare it with others
)

const validation = "val" // split that chooses and calibrates

// Apart returns wrong usage if the rows of a split of the dataset with the given digest did what excludes a use. Rows that were
// scored neither choose nor calibrate, and rows that did any of these do not judge, because they favor the model.
func (c *Checkpoint) Apart(dataset, split string, to Use) error {
	for _, s := range c.Scored {
		if s.Dataset != dataset || !slices.Contains(s.Splits, split) || s.Did != "" && to != Judge {
			continue
		}
		did := cmp.Or(map[Use]string{"": "was scored", Calibrate: "calibrated the model"}[s.Did], "chose what is pruned")
		if to == Judge {
			return fault.Usagef("the split %s %s, so the model looks better on it than on other rows: judge by another --split, such as test, or a --dataset of other rows", split, did)
		}
		return fault.Usagef("the split %s %s, so it neither chooses nor calibrates: score with other --splits, such as train,fresh, or give a --dataset of other rows", split, did)
	}
	return nil
}

// Chosen records that the validation rows of a dataset choose or calibrate. It returns wrong usage if they were scored.
func (c *Checkpoint) Chosen(dataset string, did Use) error {
	c.AddScored(Scored{dataset, []string{validation}, did})
	return c.Apart(dataset, validation, did)
}

// AddScored adds rows to Scored, unless they are there.
func (c *Checkpoint) AddScored(all ...Scored) {
	c.Scored = slices.Clip(c.Scored) // which another checkpoint may share
	for _, s := range all {
		if !slices.ContainsFunc(c.Scored, func(there Scored) bool {
			return there.Dataset == s.Dataset && slices.Equal(there.Splits, s.Splits) && there.Did == s.Did
		}) {
			c.Scored = append(c.Scored, s)
		}
	}
}

package checkpoint

import (
	"fmt"
	"slices"
)

// Scored says of which rows the labels chose what was pruned: rows on which scores were computed, or by whose loss
// fields, columns or entries were removed.
type Scored struct {
	Dataset string   `json:"dataset"` // digest
	Splits  []string `json:"splits"`
}

// Seen returns a warning if the rows of a split of the dataset with the given digest are among those of
// s, or "". The loss of the pruned model on such rows is better than on others.
func (s Scored) Seen(dataset, split string) string {
	if s.Dataset != dataset || !slices.Contains(s.Splits, split) {
		return ""
	}
	return fmt.Sprintf("the labels of the split %s, on which the pruned model is measured, chose what is pruned, so the result favors it: measure another --split, or score with other --splits", split)
}

// Seen returns the warning of the first of c.Scored that has one, or "".
func (c *Checkpoint) Seen(dataset, split string) string {
	for _, s := range c.Scored {
		if text := s.Seen(dataset, split); text != "" {
			return text
		}
	}
	return ""
}

// AddScored adds rows to Scored, unless they are there.
func (c *Checkpoint) AddScored(all ...Scored) {
	c.Scored = slices.Clip(c.Scored) // which another checkpoint may share
	for _, s := range all {
		if !slices.ContainsFunc(c.Scored, func(there Scored) bool {
			return there.Dataset == s.Dataset && slices.Equal(there.Splits, s.Splits)
		}) {
			c.Scored = append(c.Scored, s)
		}
	}
}

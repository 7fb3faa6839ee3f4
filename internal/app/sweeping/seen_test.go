package sweeping

import (
	"strings"
	"testing"

	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
)

// A sweep warns about scores that were computed with the labels of the rows that it measures.
func TestSeenRows(t *testing.T) {
	of := func(dataset string, splits ...string) *scores.File {
		return &scores.File{Spec: job.Spec{Dataset: dataset, Splits: splits}}
	}
	o := &Input{Split: "test"}
	if text := o.seen([]*scores.File{of("d", "train"), of("other", "test")}, []string{"a", "b"}, "d"); text != "" {
		t.Error(text)
	}
	if text := o.seen([]*scores.File{of("d", "train"), of("d", "val", "test")}, []string{"a", "b"}, "d"); !strings.HasPrefix(text, "b: the scores were computed with the labels of the split test") {
		t.Errorf("%q", text)
	}
}

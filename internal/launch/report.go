package launch

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"shaver/internal/atomicfile"
	"shaver/internal/coordinator"
	"shaver/internal/job"
	"shaver/internal/scores"
)

// JobReport is what a job came to. It is printed, and written beside the scores.
type JobReport struct {
	Job        string  `json:"job"`
	Rows       int64   `json:"rows"`
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"` // of this process and of the workers elsewhere
	// An earlier run of the job was cut off: what that took is not in Seconds, nor in
	// CPUSeconds but for workers elsewhere.
	Resumed         bool    `json:"resumed,omitempty"`
	Kernel          string  `json:"kernel"`
	LossFull        float64 `json:"loss_full"`        // mean loss with nothing dropped, nat
	LossEmpty       float64 `json:"loss_empty"`       // mean loss with everything dropped, nat
	EfficiencyError float64 `json:"efficiency_error"` // how far the scores sum off their difference, nat
	// Its standard error, of estimators without the efficiency identity: what is
	// beyond two of it is bias.
	EfficiencySE    float64        `json:"efficiency_se,omitempty"`
	Digests         Digests        `json:"digests"`
	Shards          int            `json:"shards"` // 0, and no workers: an earlier run wrote the scores, and was cut off before it told
	RowsPerShard    int64          `json:"rows_per_shard"`
	Workers         map[string]int `json:"workers"`          // shards computed by each
	QuarantinedRows int64          `json:"quarantined_rows"` // missing, in shards that cannot be computed
	// How a job with a rule to stop by, or with a time, ended.
	Stopped *scores.Stopped `json:"stopped,omitempty"`
	// What the audit found.
	Audit *scores.Audit `json:"audit,omitempty"`
}

// Digests are SHA-256, in hexadecimal.
type Digests struct {
	Model   string `json:"model"`
	Dataset string `json:"dataset"`
	Scores  string `json:"scores"`
}

// ReportPath returns where the report stands of a run that wrote the scores at path.
func ReportPath(path string) string {
	return strings.TrimSuffix(path, filepath.Ext(path)) + ".job.json"
}

// former returns the report of an earlier run of the same scores, nil if it is not
// there: that run was cut off before it wrote it.
func (r *JobReport) former(path string) *JobReport {
	text, err := os.ReadFile(path)
	var former JobReport
	if err != nil || json.Unmarshal(text, &former) != nil || former.Digests != r.Digests {
		return nil
	}
	return &former
}

// newReport returns the report of a job whose scores are at path, without what it
// took.
func newReport(o *coordinator.Outcome, path string) (*JobReport, error) {
	digest, err := scores.Digest(path)
	if err != nil {
		return nil, err
	}
	s := &o.Scores
	r := &JobReport{
		Job: s.Spec.ID(), Rows: s.Rows, Kernel: s.Spec.Kernel,
		LossFull: s.LossFull, LossEmpty: s.LossEmpty, EfficiencyError: s.EfficiencyError, EfficiencySE: s.EfficiencySE,
		Digests:      Digests{s.Spec.Model, s.Spec.Dataset, digest},
		RowsPerShard: o.Plan.RowsPerShard, Workers: o.Workers, QuarantinedRows: s.QuarantinedRows, Resumed: o.Resumed, Stopped: s.Stopped, Audit: s.Audit,
	}
	if !o.Existing {
		r.Shards = o.Plan.Shards()
	}
	return r, nil
}

func (r *JobReport) write(path string) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	})
}

// table writes the report for people.
func (r *JobReport) table(w io.Writer, path string, until *job.Until) {
	fmt.Fprintf(w, "scores\t%s\n", path)
	fmt.Fprintf(w, "job\t%s\n", r.Job)
	switch {
	case r.Shards == 0: // of another run, which told nothing
		fmt.Fprintf(w, "rows\t%d\n", r.Rows)
	case r.Resumed: // some rows are another run's
		fmt.Fprintf(w, "rows\t%d\n", r.Rows)
		fmt.Fprintf(w, "seconds\t%.1f\t%.1f of CPU, and what an earlier run took that was cut off\n", r.Seconds, r.CPUSeconds)
	default:
		fmt.Fprintf(w, "rows\t%d\t%.0f/s\n", r.Rows, float64(r.Rows)/r.Seconds)
		fmt.Fprintf(w, "seconds\t%.1f\t%.1f of CPU\n", r.Seconds, r.CPUSeconds)
	}
	if r.QuarantinedRows > 0 {
		fmt.Fprintf(w, "quarantined\t%d rows\n", r.QuarantinedRows)
	}
	if r.Stopped != nil {
		fmt.Fprintf(w, "stopped\t%s\n", r.Stopped.Text(until))
	}
	if r.Audit != nil {
		r.Audit.WriteTable(w)
	}
	fmt.Fprintf(w, "kernel\t%s\n", r.Kernel)
	fmt.Fprintf(w, "mean loss\t%.6f\t%.6f with everything dropped\n", r.LossFull, r.LossEmpty)
	fmt.Fprintf(w, "efficiency error\t%s\n", scores.EfficiencyText(r.EfficiencyError, r.EfficiencySE))
}

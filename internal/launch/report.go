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

// JobReport describes a finished job. It is printed, and written next to the scores.
type JobReport struct {
	Job        string  `json:"job"`
	Rows       int64   `json:"rows"`
	Program    string  `json:"program,omitempty"`  // version of the program that ran the job; older programs did not store it
	Finished   string  `json:"finished,omitempty"` // time at which the run ended, RFC 3339, UTC; older programs did not store it
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"` // time of this process and of workers elsewhere
	// Resumed says that an earlier run of the job was interrupted. Seconds and
	// CPUSeconds lack the time of that run, except the CPU time of workers elsewhere.
	Resumed         bool    `json:"resumed,omitempty"`
	Kernel          string  `json:"kernel"`
	LossFull        float64 `json:"loss_full"`        // mean loss with nothing dropped, nat
	LossEmpty       float64 `json:"loss_empty"`       // mean loss with everything dropped, nat
	EfficiencyError float64 `json:"efficiency_error"` // difference between the sum of the scores and LossEmpty - LossFull, nat
	// EfficiencySE is the standard error of EfficiencyError, for estimators without the
	// efficiency identity. An error above twice this value is bias.
	EfficiencySE    float64        `json:"efficiency_se,omitempty"`
	Digests         Digests        `json:"digests"`
	Shards          int            `json:"shards"` // 0 if an earlier run wrote the scores but no report; Workers is empty then
	RowsPerShard    int64          `json:"rows_per_shard"`
	Workers         map[string]int `json:"workers"`          // number of shards by the worker that computed them
	QuarantinedRows int64          `json:"quarantined_rows"` // rows that are missing because their shards cannot be computed
	// Stopped says how a job with Until ended.
	Stopped *scores.Stopped `json:"stopped,omitempty"`
	// Audit is the result of the job's audit.
	Audit *scores.Audit `json:"audit,omitempty"`
}

// Digests are SHA-256 digests in hexadecimal.
type Digests struct {
	Model   string `json:"model"`
	Dataset string `json:"dataset"`
	Scores  string `json:"scores"`
}

// ReportPath returns the path of the report for the scores at path.
func ReportPath(path string) string {
	return strings.TrimSuffix(path, filepath.Ext(path)) + ".job.json"
}

// former returns the report that an earlier run wrote for the same scores. It returns nil
// if there is no report, because that run was interrupted before it wrote one.
func (r *JobReport) former(path string) *JobReport {
	text, err := os.ReadFile(path)
	var former JobReport
	if err != nil || json.Unmarshal(text, &former) != nil || former.Digests != r.Digests {
		return nil
	}
	return &former
}

// newReport returns the report of a job whose scores are at path, without Seconds and
// CPUSeconds.
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

// table prints the report for people.
func (r *JobReport) table(w io.Writer, path string, until *job.Until) {
	fmt.Fprintf(w, "scores\t%s\n", path)
	fmt.Fprintf(w, "job\t%s\n", r.Job)
	switch {
	case r.Shards == 0: // an earlier run wrote the scores, but no report
		fmt.Fprintf(w, "rows\t%d\n", r.Rows)
	case r.Resumed: // an earlier run scored some of the rows
		fmt.Fprintf(w, "rows\t%d\n", r.Rows)
		fmt.Fprintf(w, "seconds\t%.1f\t%.1f of CPU, and the time of an earlier run that was interrupted\n", r.Seconds, r.CPUSeconds)
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

package launch

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"

	"shaver/internal/app/cli"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/files"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/jobs/window"
)

// JobReport describes a finished job. It is printed, and written next to the scores.
type JobReport struct {
	Job        string  `json:"job"`
	Rows       int64   `json:"rows"`               // number of rows that the job computed
	Program    string  `json:"program,omitempty"`  // version of the program that ran the job; older programs did not store it
	Finished   string  `json:"finished,omitempty"` // time at which the run ended, RFC 3339, UTC; older programs did not store it
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"` // time of this process and of workers elsewhere
	// Resumed says that an earlier run of the job was interrupted. Seconds and
	// CPUSeconds lack the time of that run, except the CPU time of workers elsewhere.
	Resumed  bool    `json:"resumed,omitempty"`
	Kernel   string  `json:"kernel"`
	LossFull float64 `json:"loss_full"` // mean loss with nothing dropped, nat
	// LossEmpty is the mean loss with everything dropped, nat. EfficiencyError is the difference
	// between the sum of the scores and LossEmpty - LossFull, nat. Both are nil for a path.
	LossEmpty       *float64 `json:"loss_empty,omitempty"`
	EfficiencyError *float64 `json:"efficiency_error,omitempty"`
	// EfficiencySE is the standard error of EfficiencyError, for estimators without the
	// efficiency identity. An error above twice this value is bias.
	EfficiencySE float64 `json:"efficiency_se,omitempty"`
	// Bias says that EfficiencySE does not cover the bias of the estimator; see scores.Bias.
	Bias string `json:"bias,omitempty"`
	// Warning says that the values mean little, and what to do; see scores.File.Warning.
	Warning      string         `json:"warning,omitempty"`
	Digests      Digests        `json:"digests"`
	Shards       int            `json:"shards"` // 0 if an earlier run wrote the scores but no report; Workers is empty then
	RowsPerShard int64          `json:"rows_per_shard"`
	Workers      map[string]int `json:"workers"` // number of shards by the worker that computed them
	// VerifiedShards is the number of shards that were computed twice, with the same result.
	VerifiedShards int `json:"verified_shards,omitempty"`
	// WrongWorkers names workers that have computed wrong. Nothing of theirs is in the scores.
	WrongWorkers    []string `json:"wrong_workers,omitempty"`
	QuarantinedRows int64    `json:"quarantined_rows"` // rows that are missing because their shards cannot be computed
	// WalkedRows is the number of rows that have the values of walks; see tally.Result.Walked.
	WalkedRows int64 `json:"walked_rows,omitempty"`
	// Stopped says how a job with Until ended.
	Stopped *scores.Stopped `json:"stopped,omitempty"`
	// Audit is the result of the job's audit.
	Audit *scores.Audit `json:"audit,omitempty"`
	// Lineage says how the values of a paired job follow from earlier ones.
	Lineage *scores.Lineage `json:"lineage,omitempty"`
	// FieldValues are the values of fields, the most valuable one first, in a job of fields.
	FieldValues []scores.FieldValue `json:"field_values,omitempty"`
	// FieldPairs are the values of pairs of fields, in a job of pairs; see scores.File.FieldPairs.
	FieldPairs []scores.FieldPair `json:"field_pairs,omitempty"`
	// Path says how the order of a path came about, which has no values.
	Path *scores.Path `json:"path,omitempty"`
	// DatasetRows is the number of rows of the splits. It is set only for a path, a paired job and
	// a window with a state.
	DatasetRows int64 `json:"dataset_rows,omitempty"`
	// Note says that pairing did not pay, or in which fields, or that few rows made the order of a path; see
	// scores.File.Noise.
	Note string `json:"note,omitempty"`
	// Full says why the job scored all rows although it was given previous scores.
	Full string `json:"full,omitempty"`
	// Days says what was done with each day of a window with a state, the oldest first. Rows is
	// then the number of rows that the night computed.
	Days []window.Step `json:"days,omitempty"`
	// Evaluations is the number of rows that were computed for Days, each counted once for
	// each model.
	Evaluations int64 `json:"evaluations,omitempty"`
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

// wrongAtMost says which part of the shards may be wrong, although all that were verified are right. If the part q
// of the shards is wrong, none of v that are drawn at random is with the probability (1-q)^v, which is .05 for the q
// that is returned.
func (r *JobReport) wrongAtMost() string {
	if r.VerifiedShards == r.Shards {
		return "none"
	}
	return fmt.Sprintf("at most 1 shard in %d", int(1/(1-math.Pow(.05, 1/float64(r.VerifiedShards)))))
}

// former returns the report that an earlier run wrote for the same scores. It returns nil
// if there is no report, because that run was interrupted before it wrote one.
func (r *JobReport) former(path string) *JobReport {
	text, err := files.Small(path, mostReport, "the report of a job")
	var former JobReport
	if err != nil || json.Unmarshal(text, &former) != nil || former.Digests != r.Digests {
		return nil
	}
	return &former
}

// newReport returns the report of a job whose scores are at path, without Seconds and
// CPUSeconds.
func newReport(o *coordinator.Outcome, path string) (*JobReport, error) {
	digest, err := files.Digest(path)
	if err != nil {
		return nil, err
	}
	s := &o.Scores
	r := &JobReport{
		Job: s.Spec.ID(), Rows: s.Rows, Kernel: s.Spec.Kernel,
		LossFull: s.LossFull, EfficiencySE: s.EfficiencySE, Path: s.Path,
		Digests:      Digests{s.Spec.Model, s.Spec.Dataset, digest},
		RowsPerShard: o.Plan.RowsPerShard, Workers: o.Workers, VerifiedShards: o.Verified, WrongWorkers: o.Wrong, QuarantinedRows: s.QuarantinedRows, WalkedRows: s.Walked, Resumed: o.Resumed, Stopped: s.Stopped, Audit: s.Audit, Lineage: s.Lineage,
	}
	if !s.Ranks() {
		r.LossEmpty, r.EfficiencyError, r.Warning, r.Bias = &s.LossEmpty, &s.EfficiencyError, s.Warning(), scores.Bias(&s.Spec.Options)
	}
	r.Note = s.Noise()
	if s.Ranks() {
		r.DatasetRows = s.DatasetRows
	}
	if s.Spec.OfFields() {
		f, err := scores.Read(path) // the outcome does not have the values
		if err != nil {
			return nil, err
		}
		r.FieldValues, r.FieldPairs = f.FieldValues(), f.FieldPairs()
	}
	if l := s.Lineage; l != nil {
		r.Rows, r.DatasetRows, r.Note = l.Rows, s.DatasetRows, l.Doubt(s.DatasetRows)
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

// writeLineage prints the lineage of a paired job and what the previous values were worth in
// each field.
func (r *JobReport) writeLineage(w io.Writer) {
	r.Lineage.WriteTable(w, r.DatasetRows)
	for i := range r.Lineage.Fields {
		f := &r.Lineage.Fields[i]
		fmt.Fprintf(w, "  field %s\t%s\tcoefficients %.3f for sum, %.3f for abs, %.3f for rms\n", f.Field, scores.ReductionText(f.Reduction), f.Sum, f.Abs, f.RMS)
	}
}

// deref returns *v, or 0 if v is nil.
func deref(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

// rate returns the rows per second as text. The rounds of a path measure a row many times, so it
// then also has the rows of all rounds.
func (r *JobReport) rate() string {
	if r.Path == nil {
		return fmt.Sprintf("%.0f/s", float64(r.Rows)/r.Seconds)
	}
	measured := int64(0)
	for _, round := range r.Path.Rounds {
		measured += round.Rows
	}
	return fmt.Sprintf("in the first round\t%d in all rounds, %.0f/s", measured, float64(measured)/r.Seconds)
}

// Table prints the report for people.
func (r *JobReport) Table(w io.Writer, path string, until *job.Until) {
	fmt.Fprintf(w, "scores\t%s\n", path)
	fmt.Fprintf(w, "job\t%s\n", r.Job)
	switch {
	case len(r.Days) > 0:
		fmt.Fprintf(w, "seconds\t%.1f\t%.1f of CPU\n", r.Seconds, r.CPUSeconds)
	case r.Shards == 0: // an earlier run wrote the scores, but no report
		fmt.Fprintf(w, "rows\t%d\n", r.Rows)
	case r.Resumed: // an earlier run scored some of the rows
		fmt.Fprintf(w, "rows\t%d\n", r.Rows)
		fmt.Fprintf(w, "seconds\t%.1f\t%.1f of CPU, and the time of an earlier run that was interrupted\n", r.Seconds, r.CPUSeconds)
	default:
		fmt.Fprintf(w, "rows\t%d\t%s\n", r.Rows, r.rate())
		fmt.Fprintf(w, "seconds\t%.1f\t%.1f of CPU\n", r.Seconds, r.CPUSeconds)
	}
	if len(r.Days) > 0 {
		r.writeDays(w)
	}
	if r.VerifiedShards > 0 {
		fmt.Fprintf(w, "verified\t%d of %d shards\tcomputed twice with the same result; with 95%% confidence, %s is wrong\n", r.VerifiedShards, r.Shards, r.wrongAtMost())
	}
	if len(r.WrongWorkers) > 0 {
		fmt.Fprintf(w, "wrong\t%s\tcomputed wrong; nothing of theirs is in the scores, and their machines may be faulty\n", strings.Join(r.WrongWorkers, ", "))
	}
	if r.QuarantinedRows > 0 {
		fmt.Fprintf(w, "quarantined\t%d rows\n", r.QuarantinedRows)
	}
	if r.WalkedRows > 0 {
		fmt.Fprintf(w, "walks\t%d rows\t%s\n", r.WalkedRows, scores.WalkedNote)
	}
	if r.Full != "" {
		fmt.Fprintf(w, "all rows\t%s\n", r.Full)
	}
	if r.Lineage != nil {
		r.writeLineage(w)
	}
	if r.Stopped != nil {
		fmt.Fprintf(w, "stopped\t%s\n", r.Stopped.Text(until))
	}
	if r.Audit != nil {
		r.Audit.WriteTable(w)
	}
	fmt.Fprintf(w, "kernel\t%s\n", r.Kernel)
	if r.Path != nil {
		fmt.Fprintf(w, "mean loss\t%.6f\n", r.LossFull)
		fmt.Fprintf(w, "path\t%s\n", r.Path.Text())
		return
	}
	fmt.Fprintf(w, "mean loss\t%.6f\t%.6f with everything dropped\n", r.LossFull, deref(r.LossEmpty))
	scores.WriteEfficiency(w, deref(r.EfficiencyError), r.EfficiencySE, r.Bias, r.Warning)
	if r.FieldValues != nil {
		scores.WriteFieldValues(w, r.FieldValues, r.FieldPairs, cli.Printable)
	}
}

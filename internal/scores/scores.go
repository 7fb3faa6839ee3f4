// Package scores is the scores file: what a job found, and the facts that tell
// which job it was. Nothing that varies between two runs of the same job is in
// it, so that it has the same bytes.
package scores

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/arrowio"
	"shaver/internal/atomicfile"
	"shaver/internal/fault"
	"shaver/internal/job"
	"shaver/internal/model"
	"shaver/internal/tally"
)

// File is a scores file.
type File struct {
	Fields    []string // names, [m]
	FieldDims []int    // [m]
	Spec      job.Spec
	Baseline  []float32 // what a dropped entry reads, [m, d]
	// DatasetRows is how many rows the splits have: those scored are all of them, or
	// a sample.
	DatasetRows int64
	// QuarantinedRows is how many rows are missing, because they could not be
	// computed and the job was allowed to finish without them.
	QuarantinedRows int64
	Audit           *Audit   // how the values compare with those of walks; nil = not known (yet)
	Stopped         *Stopped // how the job ended, if it had Until in its specification; else nil
	tally.Result
}

// Stopped says how a job ended that was to end when a rule is met, or a time is over.
type Stopped struct {
	Rounds    int      `json:"rounds"`           // that were computed
	Passes    int      `json:"passes"`           // over the rows that are scored
	Converged bool     `json:"converged"`        // the rule is met; without one, all was done in time
	Reason    string   `json:"reason"`           // RuleMet, TimeOver or AllDone
	Figure    *float64 `json:"figure,omitempty"` // what the rule looks at, if it did so in the last round
}

// Why a job ended.
const (
	RuleMet  = "rule" // the rule is met
	TimeOver = "time" // the next round would have ended too late
	AllDone  = "all"  // all rows and passes are done
)

// Metadata keys, beside those that arrowio writes.
const (
	keySpec            = "shaver.spec"
	keyBaseline        = "shaver.baseline"
	keyRows            = "shaver.rows"
	keyDatasetRows     = "shaver.dataset_rows"
	keyLossFull        = "shaver.loss_full"
	keyLossEmpty       = "shaver.loss_empty"
	keyEfficiencyError = "shaver.efficiency_error"
	keyEfficiencySE    = "shaver.efficiency_se"
	keyStandardError   = "shaver.standard_error"
	keyQuarantined     = "shaver.quarantined_rows"
	keyStopped         = "shaver.stopped"
	keyAudit           = "shaver.audit"
)

// What a file's standard errors of the dataset's own values are.
const (
	Estimated  = "estimate"
	UpperBound = "upper bound" // as no variance within rows is told
)

// The aggregates. Each makes one value of an entry's contributions over the rows,
// to rank by. Sum is a mean too: it is the paper's sum over rows, divided by their
// number. Its name is older and stays, because it is part of names and files.
const (
	Sum = "sum" // the mean of the contributions, phi
	Abs = "abs" // the mean of their absolute values
	RMS = "rms" // the root of the mean of their squares
)

// Aggregates returns the names of all aggregates.
func Aggregates() []string { return []string{Sum, Abs, RMS} }

// AggregateHelp lists all aggregates, for the help text of a flag.
func AggregateHelp() string {
	return Sum + " (the mean over rows, the paper's ranking), " + Abs + " (the mean absolute value) or " + RMS + " (the root mean square)"
}

// Aggregate returns the entries' values of the named aggregate, [n, d]. Those of
// Sum are f's own.
func (f *File) Aggregate(name string) ([]float64, error) {
	var narrow []float32
	switch name {
	case Sum:
		return f.Phi, nil
	case Abs:
		narrow = f.Abs
	case RMS:
		narrow = f.RMS
	default:
		return nil, fmt.Errorf("aggregate %q: the aggregates are %s", name, strings.Join(Aggregates(), ", "))
	}
	values := make([]float64, len(narrow))
	for i, v := range narrow {
		values[i] = float64(v)
	}
	return values, nil
}

// Estimate says what f's values are estimates of.
func (f *File) Estimate() tally.Sampling {
	return tally.NewSampling(f.Spec.TaskOptions(), f.DatasetRows)
}

// Interval is tally.Sampling.Interval, for a feature that occurs in count rows.
func (f *File) Interval(count int64) (dataset, population float64) {
	return f.Estimate().Interval(count, f.Rows)
}

// StandardError says what the standard errors of the dataset's own values are.
func (f *File) StandardError() string {
	if f.Estimate().Bound() {
		return UpperBound
	}
	return Estimated
}

// Write writes f to path.
func Write(path string, f *File) error {
	return WriteFrom(path, f, f.Feature)
}

// WriteFrom is Write for an f without Values: it calls values with each feature, in
// order, and with d entries to fill.
func WriteFrom(path string, f *File, values func(feature int, into tally.Values)) error {
	spec, err := json.Marshal(f.Spec)
	if err != nil {
		return err
	}
	baseline, err := json.Marshal(f.Baseline)
	if err != nil {
		return err
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	meta := map[string]string{
		keySpec: string(spec), keyBaseline: string(baseline), keyRows: strconv.FormatInt(f.Rows, 10),
		keyLossFull: number(f.LossFull), keyLossEmpty: number(f.LossEmpty),
		keyEfficiencyError: number(f.EfficiencyError), keyStandardError: f.StandardError(),
		keyQuarantined: strconv.FormatInt(f.QuarantinedRows, 10), keyDatasetRows: strconv.FormatInt(f.DatasetRows, 10),
	}
	if f.EfficiencySE != 0 {
		meta[keyEfficiencySE] = number(f.EfficiencySE)
	}
	for key, value := range map[string]any{keyStopped: f.Stopped, keyAudit: f.Audit} {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if string(text) != "null" {
			meta[key] = string(text)
		}
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		return arrowio.WriteScores(w, f.Fields, f.FieldDims, f.Dim, f.Count, values, meta)
	})
}

// Read reads the scores file at path. An error that the bytes are to blame for
// is bad input and names the file.
func Read(path string) (*File, error) { return read(path, decode) }

// ReadHead is Read without Count and Values, which are not looked at: for a file
// of any size at no cost.
func ReadHead(path string) (*File, error) {
	return read(path, func(r io.Reader) (*File, error) {
		fields, sizes, dim, meta, err := arrowio.ReadScoresHead(r)
		if err != nil {
			return nil, err
		}
		return fileOf(fields, sizes, &tally.Scores{Dim: dim}, meta)
	})
}

func read(path string, decode func(io.Reader) (*File, error)) (*File, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, fault.Inputf("scores: %w", err)
	}
	defer in.Close()
	f, err := decode(in)
	if err != nil {
		return nil, fault.Inputf("%s is not a scores file: %w", path, err)
	}
	return f, nil
}

// Digest returns the SHA-256 of the scores file at path, in hexadecimal.
func Digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, f); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}

func decode(r io.Reader) (*File, error) {
	fields, sizes, s, meta, err := arrowio.ReadScores(r)
	if err != nil {
		return nil, err
	}
	return fileOf(fields, sizes, s, meta)
}

func fileOf(fields []string, sizes []int, s *tally.Scores, meta map[string]string) (f *File, err error) {
	f = &File{Fields: fields, FieldDims: sizes, Result: tally.Result{Scores: *s}}
	if err := json.Unmarshal([]byte(meta[keySpec]), &f.Spec); err != nil {
		return nil, fmt.Errorf("metadata %s: %w", keySpec, err)
	}
	if f.Spec.Version != job.SpecVersion {
		return nil, fmt.Errorf("its specification has version %d, this program reads %d", f.Spec.Version, job.SpecVersion)
	}
	if err := json.Unmarshal([]byte(meta[keyBaseline]), &f.Baseline); err != nil {
		return nil, fmt.Errorf("metadata %s: %w", keyBaseline, err)
	}
	if len(f.Baseline) != len(sizes)*s.Dim {
		return nil, fmt.Errorf("its baseline has %d values, %d fields of %d columns need %d", len(f.Baseline), len(sizes), s.Dim, len(sizes)*s.Dim)
	}
	if f.Rows, err = strconv.ParseInt(meta[keyRows], 10, 64); err != nil {
		return nil, fmt.Errorf("metadata %s: %w", keyRows, err)
	}
	if f.QuarantinedRows, err = strconv.ParseInt(meta[keyQuarantined], 10, 64); err != nil || f.QuarantinedRows < 0 {
		return nil, fmt.Errorf("metadata %s is %q, expected a number of rows", keyQuarantined, meta[keyQuarantined])
	}
	if f.DatasetRows, err = strconv.ParseInt(meta[keyDatasetRows], 10, 64); err != nil || f.DatasetRows < f.Rows {
		return nil, fmt.Errorf("metadata %s is %q, expected a number of rows, at least %d", keyDatasetRows, meta[keyDatasetRows], f.Rows)
	}
	if found, want := meta[keyStandardError], f.StandardError(); found != want {
		return nil, fmt.Errorf("metadata %s is %q, its job has %q", keyStandardError, found, want)
	}
	for key, to := range map[string]*float64{keyLossFull: &f.LossFull, keyLossEmpty: &f.LossEmpty, keyEfficiencyError: &f.EfficiencyError} {
		if *to, err = strconv.ParseFloat(meta[key], 64); err != nil {
			return nil, fmt.Errorf("metadata %s: %w", key, err)
		}
	}
	if text := meta[keyEfficiencySE]; text != "" {
		if f.EfficiencySE, err = strconv.ParseFloat(text, 64); err != nil {
			return nil, fmt.Errorf("metadata %s: %w", keyEfficiencySE, err)
		}
	}
	for key, into := range map[string]any{keyStopped: &f.Stopped, keyAudit: &f.Audit} {
		if text := meta[key]; text != "" {
			if err := json.Unmarshal([]byte(text), into); err != nil {
				return nil, fmt.Errorf("metadata %s: %w", key, err)
			}
		}
	}
	if (f.Stopped != nil) != (f.Spec.Until != nil) || f.Stopped != nil && f.Stopped.Passes < 1 {
		return nil, fmt.Errorf("metadata %s is %q, which does not fit its specification", keyStopped, meta[keyStopped])
	}
	return f, nil
}

// CheckDataset returns bad input unless f was computed from the dataset with the
// given digest: one with fields of the same sizes may mean other values by its ids.
func (f *File) CheckDataset(digest string) error {
	if f.Spec.Dataset != digest {
		return fault.Inputf("the scores were computed from another dataset: its digest is %.12s, this one's %.12s", f.Spec.Dataset, digest)
	}
	return nil
}

// CheckModel returns bad input unless f was computed for the model with the
// given architecture and digest.
func (f *File) CheckModel(a *model.Architecture, digest string) error {
	if !slices.Equal(f.FieldDims, a.FieldDims) || f.Dim != a.Dim {
		return fault.Inputf("the scores are of a table of %d features x %d, the model has %d x %d", len(f.Count), f.Dim, a.Features(), a.Dim)
	}
	if f.Spec.Model != digest {
		return fault.Inputf("the scores were computed for another model: its digest is %.12s, this one's %.12s", f.Spec.Model, digest)
	}
	return nil
}

// Package scores reads and writes scores files. A scores file holds the result of a job and
// the job's specification. It holds nothing that varies between two runs of the same job, so
// both runs write the same bytes.
package scores

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"sort"
	"strconv"
	"strings"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/base/seal"
	"shaver/internal/click/model"
	"shaver/internal/data/arrowio"
	"shaver/internal/jobs/job"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// File is the content of a scores file.
type File struct {
	Fields   []string           // names of the fields, [m]
	Layout   model.Architecture // FieldDims, Dim, Tables, LookUps and Lists of the model; nothing else is set
	Spec     job.Spec
	Baseline model.Baseline // what dropped entries read
	// DatasetRows is the number of rows of the splits. The job scored all of them or a
	// sample.
	DatasetRows int64
	// QuarantinedRows is the number of rows that are missing because they could not be
	// computed. The job was allowed to finish without them. Of a path, it is the largest number
	// that one round lacks.
	QuarantinedRows int64
	Audit           *Audit   // comparison of the values with those of walks; nil without an audit
	Stopped         *Stopped // how the job ended; nil if its specification has no Until
	Lineage         *Lineage // how the values follow from those of earlier jobs; nil unless the job was paired
	Path            *Path    // how the order came about; nil unless the estimator has the trait Ranks
	tally.Result
}

// Stopped says how a job with a stopping rule or a time limit ended.
type Stopped struct {
	Rounds    int      `json:"rounds"`           // number of rounds that were computed
	Passes    int      `json:"passes"`           // number of passes over the scored rows
	Converged bool     `json:"converged"`        // the rule was met; without a rule, all work was done in time
	Reason    string   `json:"reason"`           // RuleMet, TimeOver or AllDone
	Figure    *float64 `json:"figure,omitempty"` // figure that the rule compares with its bound; nil if the last round did not compute it
}

// The reasons for which a job ends.
const (
	RuleMet  = "rule" // the rule was met
	TimeOver = "time" // the next round would have exceeded the time limit
	AllDone  = "all"  // all rows and passes were computed
)

// Metadata keys, in addition to those of arrowio.
const (
	keySpec            = "shaver.spec"
	keyBaseline        = "shaver.baseline"
	keyWords           = "shaver.words" // only if the baseline has several words for a range of rows
	keyRows            = "shaver.rows"
	keyDatasetRows     = "shaver.dataset_rows"
	keyLossFull        = "shaver.loss_full"
	keyLossEmpty       = "shaver.loss_empty"
	keyEfficiencyError = "shaver.efficiency_error"
	keyEfficiencySE    = "shaver.efficiency_se"
	keyStandardError   = "shaver.standard_error"
	keyWalked          = "shaver.walked_rows" // only if it is not 0
	keyWeight          = "shaver.weight"      // only if rows have weights
	keyQuarantined     = "shaver.quarantined_rows"
	keyStopped         = "shaver.stopped"
	keyAudit           = "shaver.audit"
	keyLineage         = "shaver.lineage"
	keyPath            = "shaver.path"
	keyDigest          = "shaver.digest" // digest of the file; see package seal
	keyVersion         = "version"       // version of the form; arrowio writes it
)

// The kinds of standard errors of the dataset's own values.
const (
	Estimated  = "estimate"
	UpperBound = "upper bound" // the variance within rows is unknown; see tally.Sampling
)

// The aggregates. Each combines an entry's contributions over all scored rows into one
// value, by which entries are ranked. Sum is a mean, too: the paper's sum over rows, divided
// by the number of rows. It is still called sum because files and method names have this
// name.
const (
	Sum = "sum" // the mean of the contributions, phi
	Abs = "abs" // the mean of the absolute contributions
	RMS = "rms" // the root mean square of the contributions
)

// ByPath is the only aggregate of the scores of a path, which have no values. It is the rank:
// the position of an entry in the order of drops, from 0.
const ByPath = "path"

// DefaultAggregate is the aggregate by which all commands rank unless they are given another.
// Scores of a path have ByPath instead.
const DefaultAggregate = RMS

// Aggregates returns the names of all aggregates of values, DefaultAggregate first.
func Aggregates() []string { return []string{RMS, Sum, Abs} }

// AggregatesOf returns the aggregates that scores with these options have, the default first.
func AggregatesOf(o *estimator.Options) []string {
	if o.Traits().Ranks {
		return []string{ByPath}
	}
	return Aggregates()
}

// Aggregates returns the aggregates that f has, the default first.
func (f *File) Aggregates() []string { return AggregatesOf(&f.Spec.Options) }

// DefaultAggregate returns the aggregate by which commands rank the entries of f unless they
// are given another.
func (f *File) DefaultAggregate() string { return f.Aggregates()[0] }

// AggregateHelp lists all aggregates, for the help text of a flag.
func AggregateHelp() string {
	return RMS + " (the root mean square over rows), " + Sum + " (the mean, which is the paper's ranking) or " + Abs + " (the mean absolute value); scores of " + estimator.Path + " have only their order"
}

// LayoutOf returns the part of an architecture that a scores file has.
func LayoutOf(a *model.Architecture) model.Architecture {
	return model.Architecture{FieldDims: a.FieldDims, Dim: a.Dim, Tables: a.Tables, LookUps: a.LookUps, Lists: a.Lists, Frozen: a.Frozen}
}

// Aggregate returns the named aggregate of all entries. For Sum the result shares
// memory with f.
func (f *File) Aggregate(name string) ([]float64, error) {
	if f.Ranks() {
		if name != ByPath {
			return nil, fmt.Errorf("aggregate %q: the scores have the order of a path and no values; it needs scores of an estimator of values, such as debiased", name)
		}
		values := make([]float64, len(f.Rank))
		for i, rank := range f.Rank {
			values[i] = float64(rank)
		}
		return values, nil
	}
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

// Sampling describes how the job sampled rows and passes.
func (f *File) Sampling() tally.Sampling {
	e := tally.NewSampling(f.Spec.TaskOptions(), f.DatasetRows)
	e.Weights, e.Tasks = f.Spec.Weights(), len(f.Spec.Tasks)
	return e
}

// PositionRows is the number of rows for each position of a row of data that may read a feature of several
// fields. See Intervals.
const PositionRows = 10

// leastRows returns a function that returns the least number of scored rows in which a feature must occur for its
// entries to have intervals. It is tally.LeastRows, except for features that several fields read, for example the
// films of a row and of its history. What such a feature contributes depends on which field reads it, so few rows may not show it.
// These features need PositionRows for each position that reads them, which are as many as the values of the fields in a row.
func (f *File) leastRows() func(feature int) int64 {
	type part struct {
		from, to int // features
		least    int64
	}
	var shared []part // in ascending order
	if !f.Spec.OfFields() {
		lengths := f.Layout.Lengths()
		for _, span := range f.Layout.Spans() {
			fields := map[int]bool{}
			positions := 0
			for _, r := range span.Readers() {
				if !fields[r.Field] {
					fields[r.Field] = true
					positions += lengths[r.Field]
				}
			}
			if len(fields) > 1 {
				shared = append(shared, part{span.Row, span.Row + span.Rows, int64(PositionRows * positions)})
			}
		}
	}
	return func(feature int) int64 {
		at := sort.Search(len(shared), func(k int) bool { return shared[k].to > feature })
		if at < len(shared) && feature >= shared[at].from {
			return shared[at].least
		}
		return tally.LeastRows
	}
}

// Intervals returns a function that returns tally.Sampling.Interval for a feature, and NaN if it occurs in fewer
// rows than leastRows, or if an entry has a value although the squares of all its contributions were rounded to 0, so
// that they do not show how far it may be off. Only one goroutine may call the function.
//
// In a paired job, a feature has no interval if it is expected in fewer than these rows of
// the sampled ones, unless the job found no difference between the models
// and inherits no error. The number of sampled rows has no other effect. The differences
// between the models have means near 0, so an entry's error divided by its standard error is
// a self-normalised sum. Its tails are no heavier than those of the normal distribution, even
// for few rows. docs/evidence/nightly.md has measurements.
func (f *File) Intervals() func(feature int) (dataset, population float64) {
	sampling, least := f.Sampling(), f.leastRows()
	known := map[int64][2]float64{} // by count
	return func(feature int) (dataset, population float64) {
		count := f.Count[feature]
		from, to := f.Shape.Row(feature)
		for i := from; i < to; i++ {
			if !f.Spec.OfFields() && !f.Ranks() && f.Phi[i] != 0 && (f.RMS[i] == 0 || f.Spec.LargestWeight != 0 && f.PopulationSE[i] == 0) {
				return math.NaN(), math.NaN()
			}
		}
		if count < least(feature) {
			return math.NaN(), math.NaN()
		}
		found, ok := known[count]
		if !ok {
			found[0], found[1] = sampling.Interval(count, f.Rows)
			known[count] = found
		}
		if l := f.Lineage; l == nil || l.Error == 0 {
			return found[0], found[1]
		} else if float64(count)*float64(l.Rows) < float64(least(feature))*float64(f.Rows) {
			return math.NaN(), math.NaN()
		}
		return found[1], found[1]
	}
}

// StandardError returns the kind of the standard errors of the dataset's own values:
// Estimated or UpperBound. It is "" for a path, which has no values.
func (f *File) StandardError() string {
	if f.Ranks() {
		return ""
	}
	if f.Sampling().Bound() {
		return UpperBound
	}
	return Estimated
}

// Write writes f to path.
func Write(path string, f *File) error {
	return WriteFrom(path, f, f.Feature)
}

// words is the part of a baseline that the metadata keyWords has.
type words struct {
	Words   []int  `json:"words"`   // by range of rows
	Numbers []byte `json:"numbers"` // of the word of each row, in base64
}

// WriteFrom is like Write, but does not use f.Values. It calls values for each feature in
// ascending order. Each call fills into, which has an element for each of the feature's
// entries. The columns of a paired job are nil unless f has a Lineage. If f has a Path, into has
// only Rank, and all ranks together must be a permutation of the entries. All of this happens
// twice, because the digest of the file precedes the values.
func WriteFrom(path string, f *File, values func(feature int, into tally.Values)) error {
	spec, err := json.Marshal(f.Spec)
	if err != nil {
		return err
	}
	baseline, err := json.Marshal(f.Baseline.Values)
	if err != nil {
		return err
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	meta := map[string]string{
		keySpec: string(spec), keyBaseline: string(baseline), keyRows: strconv.FormatInt(f.Rows, 10), keyLossFull: number(f.LossFull),
		keyQuarantined: strconv.FormatInt(f.QuarantinedRows, 10), keyDatasetRows: strconv.FormatInt(f.DatasetRows, 10),
	}
	version := arrowio.ScoresVersion
	switch {
	case f.Path != nil:
		version = arrowio.PathScoresVersion
	case f.Lineage != nil:
		version = arrowio.PairedScoresVersion
	}
	if f.Path == nil {
		meta[keyLossEmpty], meta[keyEfficiencyError], meta[keyStandardError] = number(f.LossEmpty), number(f.EfficiencyError), f.StandardError()
	}
	if f.EfficiencySE != 0 {
		meta[keyEfficiencySE] = number(f.EfficiencySE)
	}
	if f.Walked != 0 {
		meta[keyWalked] = strconv.FormatInt(f.Walked, 10)
	}
	if f.Spec.LargestWeight != 0 {
		meta[keyWeight] = strconv.FormatInt(f.Weight, 10)
	}
	var own *words
	if f.Baseline.Words != nil {
		own = &words{f.Baseline.Words, f.Baseline.Numbers}
	}
	for key, value := range map[string]any{keyWords: own, keyStopped: f.Stopped, keyAudit: f.Audit, keyLineage: f.Lineage, keyPath: f.Path} {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if string(text) != "null" {
			meta[key] = string(text)
		}
	}
	write := func(w io.Writer) error {
		return arrowio.WriteScores(w, f.Fields, &f.Layout, version, f.Count, values, meta)
	}
	meta[keyDigest] = seal.Blank
	if meta[keyDigest], err = seal.Of(write); err != nil {
		return err
	}
	return atomicfile.Write(path, write)
}

// Read reads the scores file at path and checks its digest. A file that is missing,
// malformed or damaged is bad input; the error names it.
func Read(path string) (*File, error) {
	var f *File
	err := open(path, func(in *os.File) (err error) {
		if err := verify(path, in); err != nil {
			return err
		}
		f, err = decode(path, in)
		return err
	})
	return f, err
}

// ReadHead is like Read, but leaves Count and Values empty. It reads neither them nor the
// rest of the file, so it is fast for a file of any size and does not check the digest.
func ReadHead(path string) (*File, error) {
	var f *File
	err := open(path, func(in *os.File) (err error) {
		f, err = readHead(path, in)
		return err
	})
	return f, err
}

func readHead(path string, in *os.File) (f *File, err error) {
	fields, a, meta, err := arrowio.ReadScoresHead(in)
	if err == nil {
		f, err = fileOf(fields, a, &tally.Scores{Shape: a.Shape()}, meta)
	}
	return f, malformed(path, err)
}

// Verify returns bad input if the scores file at path is malformed or its content does not
// match its digest.
func Verify(path string) error {
	return open(path, func(in *os.File) error { return verify(path, in) })
}

// Copy writes the scores file at path to w. If check accepts the head of the file and the content
// matches its digest, the bytes are those that were checked, even if another file gets the name
// meanwhile.
func Copy(w io.Writer, path string, check func(head *File) error) error {
	return open(path, func(in *os.File) error {
		head, err := readHead(path, in)
		if err != nil {
			return err
		}
		if err := check(head); err != nil {
			return err
		}
		if _, err := in.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if err := verify(path, in); err != nil {
			return err
		}
		_, err = io.Copy(w, in)
		return err
	})
}

func open(path string, use func(*os.File) error) error {
	in, err := files.Open(path, "a scores file")
	if err != nil {
		return fault.Inputf("scores: %w", err)
	}
	defer in.Close()
	return use(in)
}

func malformed(path string, err error) error {
	if err == nil {
		return nil
	}
	return fault.Inputf("%s is not a scores file: %w", path, err)
}

// verify checks the digest of the file, and returns to its beginning. Files of the version
// that has no digest are not checked.
func verify(path string, in *os.File) error {
	_, _, meta, err := arrowio.ReadScoresHead(in)
	if err != nil {
		return malformed(path, err)
	}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return err
	}
	digest, sealed := meta[keyDigest]
	if meta[keyVersion] == arrowio.UnsealedScoresVersion {
		if sealed {
			return fault.Inputf("%s is damaged: files of version %s have no digest", path, arrowio.UnsealedScoresVersion)
		}
		return nil
	}
	if err := seal.Check(path, in, digest); err != nil {
		return err
	}
	_, err = in.Seek(0, io.SeekStart)
	return err
}

func decode(path string, in io.Reader) (f *File, err error) {
	fields, a, s, meta, err := arrowio.ReadScores(in)
	if err == nil {
		f, err = fileOf(fields, a, s, meta)
	}
	return f, malformed(path, err)
}

// fileOf returns the file with the given content. It returns an error if the metadata is
// invalid.
func fileOf(fields []string, a *model.Architecture, s *tally.Scores, meta map[string]string) (f *File, err error) {
	f = &File{Fields: fields, Layout: *a, Result: tally.Result{Scores: *s}}
	if err := json.Unmarshal([]byte(meta[keySpec]), &f.Spec); err != nil {
		return nil, fmt.Errorf("metadata %s: %w", keySpec, err)
	}
	if f.Spec.Version != job.SpecVersion {
		return nil, fmt.Errorf("the specification has version %d, this program reads %d", f.Spec.Version, job.SpecVersion)
	}
	if err := f.Spec.Loss.Check(); err != nil {
		return nil, err
	}
	if err := f.checkPlayers(); err != nil {
		return nil, err
	}
	if err := f.Layout.Freeze(f.Spec.Freeze); err != nil {
		return nil, fmt.Errorf("metadata %s: freeze: %w", keySpec, err)
	}
	if err := json.Unmarshal([]byte(meta[keyBaseline]), &f.Baseline.Values); err != nil {
		return nil, fmt.Errorf("metadata %s: %w", keyBaseline, err)
	}
	if text := meta[keyWords]; text != "" {
		var own words
		if err := json.Unmarshal([]byte(text), &own); err != nil {
			return nil, fmt.Errorf("metadata %s: %w", keyWords, err)
		}
		f.Baseline.Words, f.Baseline.Numbers = own.Words, own.Numbers
	}
	if err := a.CheckBaseline(&f.Baseline); err != nil {
		return nil, err
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
		return nil, fmt.Errorf("metadata %s is %q, expected %q", keyStandardError, found, want)
	}
	if f.Spec.LargestWeight != 0 {
		if f.Weight, err = strconv.ParseInt(meta[keyWeight], 10, 64); err != nil || f.Weight < f.Rows {
			return nil, fmt.Errorf("metadata %s is %q, expected the weight of %d rows", keyWeight, meta[keyWeight], f.Rows)
		}
	}
	if text, found := meta[keyWalked]; found {
		if f.Walked, err = strconv.ParseInt(text, 10, 64); err != nil || f.Walked < 1 || f.Walked > f.Rows {
			return nil, fmt.Errorf("metadata %s is %q, expected a number of rows, 1 to %d", keyWalked, text, f.Rows)
		}
	}
	numbers := map[string]*float64{keyLossFull: &f.LossFull}
	if !f.Ranks() {
		numbers[keyLossEmpty], numbers[keyEfficiencyError] = &f.LossEmpty, &f.EfficiencyError
	}
	for key, to := range numbers {
		if *to, err = strconv.ParseFloat(meta[key], 64); err != nil {
			return nil, fmt.Errorf("metadata %s: %w", key, err)
		}
	}
	for key, loss := range map[string]float64{keyLossFull: f.LossFull, keyLossEmpty: f.LossEmpty} {
		if !(loss >= 0 && loss <= math.MaxFloat64) {
			return nil, fmt.Errorf("metadata %s is %v, expected a finite number of at least 0", key, loss)
		}
	}
	if text := meta[keyEfficiencySE]; text != "" {
		if f.EfficiencySE, err = strconv.ParseFloat(text, 64); err != nil {
			return nil, fmt.Errorf("metadata %s: %w", keyEfficiencySE, err)
		}
	}
	for key, into := range map[string]any{keyStopped: &f.Stopped, keyAudit: &f.Audit, keyLineage: &f.Lineage, keyPath: &f.Path} {
		if text := meta[key]; text != "" {
			if err := json.Unmarshal([]byte(text), into); err != nil {
				return nil, fmt.Errorf("metadata %s: %w", key, err)
			}
		}
	}
	if (f.Stopped != nil) != (f.Spec.Until != nil) || f.Stopped != nil && f.Stopped.Passes < 1 {
		return nil, fmt.Errorf("metadata %s is %q, which does not match the specification", keyStopped, meta[keyStopped])
	}
	if version, paired := meta[keyVersion], f.Lineage != nil; (version == arrowio.PairedScoresVersion) != paired {
		return nil, fmt.Errorf("the version is %s; expected %s if and only if the metadata %s is set", version, arrowio.PairedScoresVersion, keyLineage)
	}
	if version, path := meta[keyVersion], f.Path != nil; (version == arrowio.PathScoresVersion) != path {
		return nil, fmt.Errorf("the version is %s; expected %s if and only if the metadata %s is set", version, arrowio.PathScoresVersion, keyPath)
	}
	if err := f.Path.validate(f); err != nil {
		return nil, err
	}
	if err := f.Lineage.validate(f); err != nil {
		return nil, err
	}
	return f, nil
}

// CheckDataset returns bad input unless f was computed from the dataset with the given
// digest. In another dataset with fields of the same sizes, the ids may stand for other
// values.
func (f *File) CheckDataset(digest string) error {
	if f.Spec.Dataset != digest {
		return fault.Inputf("the scores were computed from another dataset, with digest %.12s; the digest of this dataset is %.12s", f.Spec.Dataset, digest)
	}
	return nil
}

// CheckEntries returns bad input if f has the values of fields.
func (f *File) CheckEntries() error {
	if f.Spec.OfFields() {
		return fault.Inputf("the scores are the values of fields, expected those of embedding entries: score without --players %s", f.Spec.Players)
	}
	return nil
}

// CheckLayout returns bad input unless f has scores for tables of the layout of a.
func (f *File) CheckLayout(a *model.Architecture) error {
	if err := f.CheckEntries(); err != nil {
		return err
	}
	if !f.Layout.SameLayout(a) {
		return fault.Inputf("the scores are for %s, the model has %s", f.Layout.Size(), a.Size())
	}
	return nil
}

// CheckModel returns bad input unless f was computed for the model with the given
// architecture and digest.
func (f *File) CheckModel(a *model.Architecture, digest string) error {
	if err := f.CheckLayout(a); err != nil {
		return err
	}
	if f.Spec.Model != digest {
		return fault.Inputf("the scores were computed for another model, with digest %.12s; the digest of this model is %.12s", f.Spec.Model, digest)
	}
	return nil
}

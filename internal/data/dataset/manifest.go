// Package dataset reads encoded rows from a folder that package ingest wrote.
//
// The folder contains dataset.json (the Manifest), frequencies.arrow, and one Arrow file
// for each split that exists: train.arrow, val.arrow, test.arrow. If the ids were made
// from strings, it also contains vocabulary/. blocks.json (Blocks) may be missing. The files record neither paths nor times, so
// the same input and seed give the same bytes.
package dataset

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/click/model"
	"shaver/internal/data/arrowio"
	"shaver/internal/data/dense"
)

// The versions of the manifest's format.
const (
	Version      = "shaver.dataset/1"
	DenseVersion = "shaver.dataset/2" // the dataset has dense inputs, but neither lists nor numbers as labels
	ListVersion  = "shaver.dataset/3" // the dataset has lists, or labels that are numbers, but neither weights nor several labels

	WeightVersion = "shaver.dataset/4" // the rows have weights, or several labels
)

// ManifestName is the manifest's file name in the folder.
const ManifestName = "dataset.json"

// The splits, in the order in which their rows are numbered.
const (
	Train = "train"
	Val   = "val"
	Test  = "test"
	Fresh = "fresh" // rows that no model was trained on, by which entries are scored
)

// SplitNames lists all splits in that order.
var SplitNames = []string{Train, Val, Test, Fresh}

// Kinds of ids in the imported files.
const (
	LocalIDs   = "local"  // integers that count from 0 in each field
	GlobalIDs  = "global" // integers that count from 0 over all fields
	RawStrings = "raw"    // strings, for which the import made the ids
)

// NumberLabels is the value of Manifest.Labels if labels are finite float32 numbers, such as
// ratings.
const NumberLabels = "numbers"

// Manifest describes a dataset. The SHA-256 of its JSON is the dataset's identity,
// because the JSON contains the digest of every file.
type Manifest struct {
	Version     string        `json:"version"`
	Fields      []Field       `json:"fields"`
	Dense       []dense.Input `json:"dense,omitempty"` // dense inputs, in the order of the columns; only with DenseVersion
	Splits      []Split       `json:"splits"`          // in the order of SplitNames
	Frequencies File          `json:"frequencies"`
	Vocabulary  []File        `json:"vocabulary,omitempty"` // one file per field, with RawStrings
	Sources     []File        `json:"sources"`              // imported files by base name, in the order of reading
	Tables      []Table       `json:"tables,omitempty"`     // snapshots whose files Sources has, if rows were imported from tables with a log
	IDs         string        `json:"ids"`                  // LocalIDs, GlobalIDs or RawStrings
	Division    *Division     `json:"division,omitempty"`   // if the import drew the splits
	MinCount    int64         `json:"min_count,omitempty"`  // if the import made or grew the vocabulary: new values in fewer rows have the id of unseen values
	Labels      string        `json:"labels,omitempty"`     // NumberLabels, or empty if labels are 0 or 1
	Tasks       []string      `json:"tasks,omitempty"`      // names of all labels, if there are several
	Weights     *Weights      `json:"weights,omitempty"`    // nil if all rows count once
	Skipped     int64         `json:"skipped"`              // number of lines left out because they were not valid rows
}

// Field is a field and the number of its features.
type Field struct {
	Name string `json:"name"`
	Size int    `json:"size"`
	// Length is the number of ids of the field in each row if the field is a list; 0 if it is
	// not. Pad is the local id of positions without a value, and nil if there is no such id or
	// the field is no list.
	Length int    `json:"length,omitempty"`
	Pad    *int   `json:"pad,omitempty"`
	Pads   string `json:"pads,omitempty"` // side on which a list is filled: model.Front, or empty for model.End
	OOV    *int   `json:"oov,omitempty"`  // with a vocabulary: id of unseen values if it is not the last, or -1 if they have no id
}

// form describes how many ids the field has in each row, in words.
func (f Field) form() string {
	switch {
	case f.Length == 0:
		return "one id"
	case f.Pad == nil:
		return fmt.Sprintf("a list of %d ids without a pad id", f.Length)
	}
	text := fmt.Sprintf("a list of %d ids with the pad id %d", f.Length, *f.Pad)
	if f.Pads != "" {
		text += " at its " + f.Pads
	}
	return text
}

// OOVID returns the id that stands for all values without an id of their own, or -1 if no
// id does. Without a vocabulary the result is meaningless.
func (f Field) OOVID() int {
	if f.OOV == nil {
		return f.Size - 1
	}
	return *f.OOV
}

// Split is one split and its file.
type Split struct {
	Name      string  `json:"name"`
	Rows      int64   `json:"rows"`
	Positives *int64  `json:"positives,omitempty"` // number of rows with label 1; nil if labels are numbers
	Labels    *Labels `json:"labels,omitempty"`    // nil if labels are 0 or 1
	Weight    float64 `json:"weight,omitempty"`    // sum of the weights; 0 if all rows count once

	Tasks []TaskFacts `json:"tasks,omitempty"` // the labels after the first
	File
}

// WeightUnits is the denominator of weights.
const WeightUnits = 1000

// Weights describes the weights of rows. Files have them as whole numbers.
type Weights struct {
	Denominator int64 `json:"denominator"` // WeightUnits
	Divisor     int64 `json:"divisor"`     // greatest common divisor of all weights
	Largest     int64 `json:"largest"`     // largest weight
}

// Join adds weights with the given divisor, of which largest is the largest.
func (w *Weights) Join(divisor, largest int64) {
	w.Denominator, w.Largest = WeightUnits, max(w.Largest, largest)
	w.Divisor = commonDivisor(w.Divisor, divisor)
}

// divisor returns what readers divide weights in files by, or 0 if all rows count once.
func (w *Weights) divisor() int64 {
	if w == nil || w.Divisor == w.Largest {
		return 0
	}
	return w.Divisor
}

// commonDivisor returns the greatest common divisor of a and b, of which a may be 0.
func commonDivisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// TaskFacts counts a label after the first in the rows of a split.
type TaskFacts struct {
	Label     string `json:"label"`
	Missing   int64  `json:"missing"`
	Positives int64  `json:"positives"` // number of rows where it is 1
}

// Labels describes the labels of rows, if they are numbers.
type Labels struct {
	Min       float64 `json:"min"`
	Mean      float64 `json:"mean"`
	Max       float64 `json:"max"`
	Deviation float64 `json:"deviation"` // standard deviation, divided by n
}

func (l *Labels) validate() error {
	finite := l.Min-l.Min == 0 && l.Max-l.Max == 0
	if !finite || !(l.Min <= l.Mean && l.Mean <= l.Max) || !(l.Deviation >= 0 && l.Deviation <= l.Max-l.Min) {
		return fmt.Errorf("the smallest label is %v, the mean %v, the largest %v and the deviation %v: expected finite numbers in ascending order, and a deviation of at most their range", l.Min, l.Mean, l.Max, l.Deviation)
	}
	return nil
}

// Table is a snapshot of a table with a log from which rows were imported.
type Table struct {
	Format   string `json:"format"`          // "delta" or "iceberg"
	Table    string `json:"table"`           // URL without settings, name in a catalogue, or base name of a local folder
	ID       string `json:"id"`              // UUID of the table
	Snapshot string `json:"snapshot"`        // version or id
	Where    string `json:"where,omitempty"` // conditions for the rows
	Files    string `json:"files"`           // digest of the names of the snapshot's files that may have such rows, and of what is deleted in them
}

// String returns what the table is, in a few words.
func (t *Table) String() string {
	text := fmt.Sprintf("the %s table %s, snapshot %s", map[string]string{"delta": "Delta", "iceberg": "Iceberg"}[t.Format], t.Table, t.Snapshot)
	if t.Where != "" {
		text += ", where " + t.Where
	}
	return text
}

// File identifies a file by its name, size and digest. The name is relative to the folder
// and separated by slashes.
type File struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"` // hexadecimal
	Bytes  int64  `json:"bytes"`
}

// Division records how the rows were drawn into splits.
type Division struct {
	Ratio string `json:"ratio"` // train:val:test, such as 8:1:1
	Seed  uint64 `json:"seed"`
}

// maxManifest is the largest size of a manifest in MiB.
const maxManifest = 16

// MaxRows is the largest number of rows of a dataset. The rows of all passes of a job then
// fit into an int64.
const MaxRows = model.RowsPerDay

// readManifest reads and checks the manifest of a folder. It also returns its bytes.
func readManifest(f folder) (*Manifest, []byte, error) {
	path := f.path(ManifestName)
	file, err := f.open(ManifestName)
	if os.IsNotExist(err) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil, fault.Inputf("%s is not a dataset: it has no %s", filepath.Dir(path), ManifestName)
	}
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	data, err := files.Read(file, path, maxManifest, "the manifest of a dataset")
	if err != nil {
		return nil, nil, err
	}
	m, err := Parse(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, data, nil
}

// Parse reads and checks the bytes of a manifest.
func Parse(data []byte) (*Manifest, error) {
	var version struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, fault.Inputf("not JSON: %w", err)
	}
	if !slices.Contains([]string{Version, DenseVersion, ListVersion, WeightVersion}, version.Version) {
		return nil, fault.Inputf("version is %q, this program reads %q, %q, %q and %q", version.Version, Version, DenseVersion, ListVersion, WeightVersion)
	}
	m := &Manifest{}
	var mismatch *json.UnmarshalTypeError
	if err := files.Strict(data, m); errors.As(err, &mismatch) {
		return nil, fault.Inputf("%s is a %s, expected a value of type %s", mismatch.Field, mismatch.Value, mismatch.Type)
	} else if err != nil {
		return nil, fault.Inputf("%w", err)
	}
	if err := m.validate(); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	return m, nil
}

// Marshal returns the manifest as JSON, with the same bytes as in the folder.
func (m *Manifest) Marshal() []byte {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		panic("dataset: manifest does not marshal: " + err.Error())
	}
	return append(text, '\n')
}

// Files returns every file that m names in the folder.
func (m *Manifest) Files() []File {
	files := slices.Concat([]File{m.Frequencies}, m.Vocabulary)
	for _, s := range m.Splits {
		files = append(files, s.File)
	}
	return files
}

func (m *Manifest) fieldNames() []string {
	names := make([]string, len(m.Fields))
	for j, f := range m.Fields {
		names[j] = f.Name
	}
	return names
}

func (m *Manifest) fieldSizes() []int {
	sizes := make([]int, len(m.Fields))
	for j, f := range m.Fields {
		sizes[j] = f.Size
	}
	return sizes
}

// lengths returns the number of positions of each list, and 0 for other fields. It is nil
// without lists.
func (m *Manifest) lengths() []int {
	if !slices.ContainsFunc(m.Fields, func(f Field) bool { return f.Length > 0 }) {
		return nil
	}
	lengths := make([]int, len(m.Fields))
	for j, f := range m.Fields {
		lengths[j] = f.Length
	}
	return lengths
}

// RowForm returns the form of the files of the splits.
func (m *Manifest) RowForm() arrowio.RowForm {
	f := arrowio.RowForm{Fields: m.fieldNames(), Sizes: m.fieldSizes(), Lengths: m.lengths(), Numbers: m.Labels == NumberLabels, Weighted: m.Weights != nil}
	if m.Tasks != nil {
		f.Labels = m.Tasks[1:]
	}
	for _, in := range m.Dense {
		f.Dense = append(f.Dense, in.Name)
	}
	return f
}

// splitAt returns the position of a split in m.Splits, or -1 if no split has this name.
func (m *Manifest) splitAt(name string) int {
	return slices.IndexFunc(m.Splits, func(s Split) bool { return s.Name == name })
}

// rows returns the number of rows in all splits.
func (m *Manifest) rows() int64 {
	rows := int64(0)
	for _, s := range m.Splits {
		rows += s.Rows
	}
	return rows
}

// FormVersion returns the oldest version that can describe m.
func (m *Manifest) FormVersion() string {
	switch {
	case m.Weights != nil || m.Tasks != nil:
		return WeightVersion
	case m.Labels != "" || slices.ContainsFunc(m.Fields, func(f Field) bool { return f.Length > 0 }):
		return ListVersion
	case len(m.Dense) > 0:
		return DenseVersion
	}
	return Version
}

// check checks the number of rows and the description of the labels. numbers says that
// labels are numbers.
func (s *Split) check(numbers bool) error {
	switch {
	case numbers && (s.Labels == nil || s.Positives != nil):
		return fmt.Errorf("split %s has no labels, or positives: expected labels and no positives, because labels are numbers", s.Name)
	case !numbers && (s.Positives == nil || s.Labels != nil):
		return fmt.Errorf("split %s has no positives, or labels: expected positives and no labels, because labels are 0 or 1", s.Name)
	case numbers && s.Rows < 1:
		return fmt.Errorf("split %s has %d rows: expected at least one", s.Name, s.Rows)
	case !numbers && (s.Rows < 1 || *s.Positives < 0 || *s.Positives > s.Rows):
		return fmt.Errorf("split %s has %d rows and %d rows with label 1: expected at least one row, and no more with label 1", s.Name, s.Rows, *s.Positives)
	case numbers:
		if err := s.Labels.validate(); err != nil {
			return fmt.Errorf("split %s: %w", s.Name, err)
		}
	}
	return nil
}

func (m *Manifest) validate() error {
	names, sizes := make([]string, len(m.Fields)), make([]int, len(m.Fields))
	for j, f := range m.Fields {
		names[j], sizes[j] = f.Name, f.Size
		if f.Length < 0 || f.Length > model.MaxLength {
			return fmt.Errorf("field %d (%s) is a list of %d positions, expected 1 to %d", j, f.Name, f.Length, model.MaxLength)
		}
		if f.Pad != nil && (f.Length == 0 || *f.Pad < 0 || *f.Pad >= f.Size) {
			return fmt.Errorf("field %d (%s) has the pad id %d, expected one of the %d ids of a list", j, f.Name, *f.Pad, f.Size)
		}
		if f.Pads != "" && (f.Pad == nil || f.Pads != model.Front) {
			return fmt.Errorf("field %d (%s) has pads at %q, expected %q or nothing in a list with a pad id", j, f.Name, f.Pads, model.Front)
		}
		if f.OOV != nil && (len(m.Vocabulary) == 0 || *f.OOV < -1 || *f.OOV >= f.Size-1) {
			return fmt.Errorf("field %d (%s) has the id %d for unseen values, expected -1 to %d in a dataset with a vocabulary", j, f.Name, *f.OOV, f.Size-2)
		}
	}
	if len(m.Fields) == 0 {
		return fmt.Errorf("no fields")
	}
	if err := model.CheckSizes(names, sizes); err != nil {
		return err
	}
	for i, in := range m.Dense {
		if err := in.Validate(); err != nil {
			return fmt.Errorf("dense input %d (%s): %w", i, in.Name, err)
		}
	}
	if m.Tasks != nil && (len(m.Tasks) < 2 || m.Labels != "" || m.Tasks[0] == "" || slices.Contains(m.Tasks[1:], m.Tasks[0])) {
		return fmt.Errorf("the labels are %q, expected several names, and labels that are 0 or 1", m.Tasks)
	}
	form := m.RowForm()
	if err := form.CheckColumns(); err != nil {
		return err
	}
	if want := m.FormVersion(); m.Version != want {
		return fmt.Errorf("version is %q, but the fields, dense inputs, labels and weights need %q", m.Version, want)
	}
	if m.Labels != "" && m.Labels != NumberLabels {
		return fmt.Errorf("labels are %q, expected %q or nothing", m.Labels, NumberLabels)
	}
	if len(m.Splits) == 0 {
		return fmt.Errorf("no splits")
	}
	previous, rows := -1, int64(0)
	for _, s := range m.Splits {
		at := slices.Index(SplitNames, s.Name)
		if at <= previous {
			return fmt.Errorf("split %q: expected some of train, val and test, in this order", s.Name)
		}
		previous = at
		if err := s.check(m.Labels == NumberLabels); err != nil {
			return err
		}
		if len(s.Tasks) != len(form.Labels) || (s.Weight > 0) != form.Weighted {
			return fmt.Errorf("split %s counts %d labels after the first and has the weight %v, expected %d labels, and a weight if rows have weights: %v", s.Name, len(s.Tasks), s.Weight, len(form.Labels), form.Weighted)
		}
		for k, t := range s.Tasks {
			if t.Label != form.Labels[k] || t.Missing < 0 || t.Positives < 0 || t.Positives > s.Rows-t.Missing {
				return fmt.Errorf("split %s has %d rows, %d without the label %q and %d where it is 1: expected no more, and the label %q", s.Name, s.Rows, t.Missing, t.Label, t.Positives, form.Labels[k])
			}
		}
		if s.Rows > MaxRows-rows {
			return fmt.Errorf("split %s has %d rows after %d rows in other splits: expected at most %d in all", s.Name, s.Rows, rows, int64(MaxRows))
		}
		rows += s.Rows
	}
	if w := m.Weights; w != nil && (w.Denominator != WeightUnits || w.Divisor < 1 || w.Largest < 1 || w.Largest > math.MaxInt32 || w.Largest%w.Divisor != 0) {
		return fmt.Errorf("the weights have the denominator %d, the divisor %d and the largest weight %d: expected the denominator %d, and a largest weight up to %d that is a multiple of the divisor",
			w.Denominator, w.Divisor, w.Largest, WeightUnits, math.MaxInt32)
	}
	if n := len(m.Vocabulary); m.Vocabulary != nil && n != len(m.Fields) {
		return fmt.Errorf("the vocabulary has %d fields, but the dataset has %d", n, len(m.Fields))
	}
	for _, f := range m.Files() {
		if !filepath.IsLocal(filepath.FromSlash(f.File)) || strings.Contains(f.File, `\`) || f.Bytes < 0 {
			return fmt.Errorf("file %q of %d bytes: expected a path inside the folder and a size of at least 0", f.File, f.Bytes)
		}
	}
	return nil
}

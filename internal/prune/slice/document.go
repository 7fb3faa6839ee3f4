// Package slice has the steps by which a model gets smaller, with their prices, and the file that keeps those that remove
// whole fields and columns.
package slice

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/num/loss"
	"shaver/internal/prune/sweep"
)

// Version is the version of the format of a Path.
const Version = "shaver.removals/1"

// Path is a path over the fields and columns of a model, as far as it is measured. Each step removes what raises the loss
// least among all that is left, so a beginning of the steps serves each budget. Figures are those of the validation rows on which candidates are not compared.
type Path struct {
	Version  string    `json:"version"`
	Model    string    `json:"model"`             // SHA-256 of the whole model
	Dataset  string    `json:"dataset"`           // SHA-256 of the dataset's manifest
	Kind     loss.Kind `json:"loss,omitempty"`    // loss that is measured
	Rows     int64     `json:"rows"`              // number of validation rows
	Compared int64     `json:"compared"`          // number of these rows on which candidates are compared; the figures are those of the others
	Removed  []string  `json:"removed,omitempty"` // fields that were removed by name before the first step
	Whole    Figures   `json:"whole"`             // of the whole model
	Fields   []Step    `json:"fields"`            // steps that remove fields
	Columns  []Branch  `json:"columns,omitempty"` // steps that remove columns, from different numbers of fields
}

// Branch is the part of a path that removes columns of the model that a number of fields is left of.
type Branch struct {
	Fields int    `json:"fields"` // number of fields that are left
	Steps  []Step `json:"steps"`
}

// Cost is what a row costs in a model.
type Cost struct {
	Fields          int   `json:"fields"`
	Columns         int   `json:"columns"`         // of the table, or of each table; 0 if tables have different numbers
	LookUps         int   `json:"look_ups"`        // rows of tables that a row of data reads, one for each position of a list
	Entries         int   `json:"entries"`         // of all tables
	Multiplications int   `json:"multiplications"` // in the layers that read the embedding, and in the cross layers; of a graph, in all products of matrices
	Bytes           int64 `json:"bytes"`           // of the dense file
}

// ColumnsText returns the number of columns, or "-" if tables have different numbers.
func (c *Cost) ColumnsText() string {
	if c.Columns == 0 {
		return "-"
	}
	return strconv.Itoa(c.Columns)
}

// Figures are what a model costs, and how well it predicts.
type Figures struct {
	Loss float64  `json:"loss"`          // mean loss, nat; RMSE of a squared loss
	AUC  *float64 `json:"auc,omitempty"` // nil if all labels are the same, or with the squared loss
	Cost
}

// Step is one step by which a model gets smaller: what went, and the figures of what is left.
type Step struct {
	Field   string          `json:"field,omitempty"`   // name of the field
	Gone    []int           `json:"gone,omitempty"`    // numbers of the columns in the whole table
	Without string          `json:"without,omitempty"` // Entries or Bits, which no path has
	Rise    *sweep.Interval `json:"rise"`              // difference to the loss of the whole model, with its 95% interval
	Figures
}

// What a step removes besides fields and columns.
const (
	Entries = "entries"
	Bits    = "bits"
)

// Text returns what the step removes.
func (s *Step) Text() string {
	switch {
	case s.Field != "":
		return s.Field
	case s.Gone == nil:
		return s.Without
	}
	return "column " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(s.Gone)), " and "), "[]")
}

// mostBytes is the size of the largest document that is read, in MiB.
const mostBytes = 64

// errPath is what a file should be.
const errPath = "a path that shaver prune wrote"

// Written reports whether the file at path is one of shaver prune with a path.
func Written(path string) bool {
	return bytes.HasPrefix(files.Beginning(path, 64), []byte("{\n  \"version\": \"shaver.removals/"))
}

// ReadPath reads a path of at most 64 MiB from a file; see ParsePath. Errors name the file.
func ReadPath(file string) (*Path, error) {
	data, err := files.Small(file, mostBytes, errPath)
	if err != nil {
		return nil, err
	}
	p, err := ParsePath(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// ParsePath decodes a path of the format Version. All numbers are finite and in their ranges, each step removes one field
// that no other step removes, or columns that no other step of its branch removes, and each step leaves as much as it
// says. Any other document is bad input.
func ParsePath(data []byte) (*Path, error) {
	var head struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fault.Inputf("expected %s: %w", errPath, err)
	}
	if head.Version != Version {
		return nil, fault.Inputf("the version of the path is %q, this program reads %s", head.Version, Version)
	}
	p := &Path{}
	if err := files.Strict(data, p); err != nil {
		return nil, fault.Inputf("expected %s: %w", errPath, err)
	}
	return p, p.check()
}

// check returns bad input unless p is as ParsePath says.
func (p *Path) check() error {
	switch {
	case p.Kind != loss.Logistic && p.Kind != loss.Squared:
		return fault.Inputf("the loss of the path is %q: expected none or %q", p.Kind, loss.Squared)
	case p.Compared < 1 || p.Compared >= p.Rows:
		return fault.Inputf("the path compared on %d of %d rows: expected 1 or more, and not all", p.Compared, p.Rows)
	case p.Fields == nil:
		return fault.Inputf("the path has no list of fields")
	}
	if err := p.Whole.check(); err != nil {
		return fault.Inputf("the whole model: %w", err)
	}
	fields, gone, from := p.Whole.Fields-len(p.Removed), map[string]bool{}, map[int]bool{}
	for _, name := range p.Removed {
		gone[name] = true
	}
	if err := follow(p.Fields, fields, p.Whole.Columns, gone); err != nil {
		return fault.Inputf("fields: %w", err)
	}
	for _, b := range p.Columns {
		if b.Fields < fields-len(p.Fields) || b.Fields > fields || from[b.Fields] || len(b.Steps) == 0 {
			return fault.Inputf("no columns or those of other steps are removed from %d fields, or the path does not lead to %d fields", b.Fields, b.Fields)
		}
		from[b.Fields] = true
		if err := follow(b.Steps, b.Fields, p.Whole.Columns, nil); err != nil {
			return fault.Inputf("columns of %d fields: %w", b.Fields, err)
		}
	}
	return nil
}

// follow returns bad input unless each step removes what is left, which is a field that is not gone, or columns if gone is
// nil, and leaves as much as it says.
func follow(steps []Step, fields, columns int, gone map[string]bool) error {
	all, byField, what := columns, gone != nil, "a field"
	if !byField {
		gone, what = map[string]bool{}, "columns"
	}
	for i := range steps {
		s, names := &steps[i], []string{}
		ok := s.Without == "" && (s.Field != "") == byField && (len(s.Gone) == 0) == byField
		if byField {
			names = append(names, s.Field)
			fields--
		}
		for _, c := range s.Gone {
			names, ok = append(names, strconv.Itoa(c)), ok && c >= 0 && c < all
			columns--
		}
		for _, name := range names {
			ok, gone[name] = ok && !gone[name], true
		}
		if !ok {
			return fault.Inputf("step %d removes the field %q and the columns %v: expected %s that it has left", i+1, s.Field, s.Gone, what)
		}
		if err := s.check(fields, columns); err != nil {
			return fault.Inputf("step %d: %w", i+1, err)
		}
	}
	return nil
}

// check returns bad input unless s leaves the given numbers, which are at least 1.
func (s *Step) check(fields, columns int) error {
	if err := s.Figures.check(); err != nil {
		return err
	}
	// Tables of different widths may have the same one when fields are gone.
	if s.Fields != fields || s.Columns != columns && columns > 0 {
		return fault.Inputf("%d fields and %d columns are left: expected %d and %d", s.Fields, s.Columns, fields, columns)
	}
	if r := s.Rise; r != nil && (!(math.Abs(r.Value) <= mostLoss) || (r.Low == nil) != (r.High == nil) || r.Low != nil && !(-mostLoss <= *r.Low && *r.Low <= r.Value && r.Value <= *r.High && *r.High <= mostLoss)) {
		return fault.Inputf("the rise of the loss is not a number in its interval")
	}
	return nil
}

// mostLoss is larger than any loss with float32 weights. A picture needs a bound for its axis.
const mostLoss = 1e100

// mostCost is the largest number of what a model may have.
const mostCost = 1 << 52

func (f *Figures) check() error {
	if !(f.Loss >= 0 && f.Loss <= mostLoss) || f.AUC != nil && !(*f.AUC >= 0 && *f.AUC <= 1) {
		return fault.Inputf("the loss is %v: expected a finite number of at least 0, and an AUC in [0, 1]", f.Loss)
	}
	for i, n := range []int64{int64(f.Columns), int64(f.Multiplications), int64(f.Fields), int64(f.LookUps), int64(f.Entries), f.Bytes} {
		if n < int64(min(i/2, 1)) || n > mostCost {
			return fault.Inputf("it costs %+v: expected numbers of at least 1, and columns and multiplications of at least 0", f.Cost)
		}
	}
	return nil
}

// Branch returns the steps that remove columns once a number of fields is left.
func (p *Path) Branch(fields int) *[]Step {
	for i := range p.Columns {
		if p.Columns[i].Fields == fields {
			return &p.Columns[i].Steps
		}
	}
	p.Columns = append(p.Columns, Branch{Fields: fields})
	return &p.Columns[len(p.Columns)-1].Steps
}

// Continues reports whether p is the path that begins as the given one, which has no steps.
func (p *Path) Continues(begun *Path) bool {
	return p.Model == begun.Model && p.Dataset == begun.Dataset && p.Kind == begun.Kind && p.Rows == begun.Rows && p.Compared == begun.Compared &&
		slices.Equal(p.Removed, begun.Removed) && p.Whole.Cost == begun.Whole.Cost
}

// Write writes p to a file.
func (p *Path) Write(file string) error {
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(file, func(w io.Writer) error {
		_, err := w.Write(append(data, '\n'))
		return err
	})
}

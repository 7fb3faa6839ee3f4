package scores

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Lineage says how the values of a paired job follow from those of earlier jobs, and what
// the pairing was worth.
type Lineage struct {
	Generation int      `json:"generation"` // number of paired jobs since the last full one, this job included, at least 1
	Models     []string `json:"models"`     // digests of the models, from that of the full job to that of this job
	Rows       int64    `json:"rows"`       // number of rows on which this job computed both models

	// Errors relative to the values: the root mean square of the standard errors against a
	// full job, divided by the root mean square of phi.
	Error float64 `json:"error"` // of this job, including what it inherits from earlier paired jobs
	Plain float64 `json:"plain"` // of a plain sample of the same cost, which has twice as many rows

	// Previous is the error of the previous values as those of the new model, like Error. It is nil
	// unless it is less than Error.
	Previous *float64 `json:"previous,omitempty"`

	// Reduction is the variance of the contributions divided by the variance that is left
	// after the previous contributions, times their coefficients, are subtracted. It covers
	// all fields. It is at most MaxReduction. Pairing pays if it is above 2, because a plain
	// sample of the same cost halves the variance.
	Reduction    float64       `json:"reduction"`
	RMSReduction float64       `json:"rms_reduction"` // as Reduction, of the squares of the contributions
	Fields       []PairedField `json:"fields"`        // [m]
}

// MaxReduction is the largest reduction that is reported. It stands for any larger one too,
// and for that of two equal models.
const MaxReduction = 1e6

// PairedField is what pairing was worth in one field. The coefficients multiply the previous
// values of the field's entries. They are at least 0. A coefficient of 0 means that the
// previous values are not used.
type PairedField struct {
	Field     string  `json:"field"`
	Reduction float64 `json:"reduction"` // as Lineage.Reduction, in this field
	Sum       float64 `json:"sum"`       // coefficient of phi
	Abs       float64 `json:"abs"`       // coefficient of the mean absolute contribution
	RMS       float64 `json:"rms"`       // coefficient of the mean square
}

// Doubt returns a sentence that says that pairing did not pay, or that some fields do not
// use the previous values. It returns "" if neither is true. rows is the number of rows of
// the dataset.
func (l *Lineage) Doubt(rows int64) string {
	var unused []string
	for i := range l.Fields {
		if f := &l.Fields[i]; f.Sum == 0 {
			unused = append(unused, strconv.Quote(f.Field))
		}
	}
	switch {
	case l.Rows >= rows:
		return "the job scored all rows, so it did not need the previous values"
	case l.Previous != nil:
		return fmt.Sprintf("the previous values are closer to those of a full job: their relative error is about %.2g, and that of the paired ones %.3g; keep using the previous scores, or score all rows or a larger --sample", *l.Previous, l.Error)
	case l.Error > 0 && (l.Reduction <= 2 || l.Error >= l.Plain):
		return fmt.Sprintf("pairing did not pay: the relative error is %.3g, and a plain sample of the same cost would have %.3g", l.Error, l.Plain)
	case l.Error > 0 && l.RMSReduction <= 2:
		return "pairing did not pay for the aggregate rms: a plain sample of the same cost would give it with a smaller error"
	case len(unused) == 1:
		return fmt.Sprintf("the previous values of field %s are of no use to this model, so its values come from the sample alone", unused[0])
	case len(unused) > 1:
		return fmt.Sprintf("the previous values of %d fields are of no use to this model, so their values come from the sample alone: %s", len(unused), strings.Join(unused, ", "))
	}
	return ""
}

// WriteTable writes the lineage as lines of a table. Tabs separate the cells. rows is the
// number of rows of the dataset. The figures of the fields are not part of the table.
func (l *Lineage) WriteTable(w io.Writer, rows int64) {
	models := make([]string, len(l.Models))
	for i, m := range l.Models {
		models[i] = fmt.Sprintf("%.12s", m)
	}
	fmt.Fprintf(w, "lineage\tgeneration %d\t%s since the last full one\n", l.Generation, counted(l.Generation, "paired job", "paired jobs"))
	fmt.Fprintf(w, "  models\t%s\n", strings.Join(models, ", "))
	fmt.Fprintf(w, "  both models\t%d rows\t%.3g%% of the dataset\n", l.Rows, 100*float64(l.Rows)/float64(max(1, rows)))
	fmt.Fprintf(w, "  error\t%.3g\trelative to a full job; a plain sample of the same cost: %.3g\n", l.Error, l.Plain)
	fmt.Fprintf(w, "  reduction\t%s\tof the variance; for rms: %s\n", ReductionText(l.Reduction), ReductionText(l.RMSReduction))
	if doubt := l.Doubt(rows); doubt != "" {
		fmt.Fprintf(w, "  note\t%s\n", doubt)
	}
}

// ReductionText returns a reduction as a cell of a table.
func ReductionText(v float64) string {
	if v >= MaxReduction {
		return "all"
	}
	return fmt.Sprintf("%.3g times", v)
}

// validate returns an error unless the lineage fits the file.
func (l *Lineage) validate(f *File) error {
	p := f.Spec.Previous
	switch {
	case l == nil && p == nil:
		return nil
	case l == nil:
		return fmt.Errorf("the job is paired, but the metadata %s is missing", keyLineage)
	case p == nil:
		return fmt.Errorf("the metadata %s is set, but the job is not paired", keyLineage)
	case l.Generation < 1:
		return fmt.Errorf("metadata %s: the generation is %d, expected at least 1", keyLineage, l.Generation)
	case l.Generation != p.Generation:
		return fmt.Errorf("metadata %s: the generation is %d, expected %d as in the specification", keyLineage, l.Generation, p.Generation)
	case len(l.Models) != l.Generation+1:
		return fmt.Errorf("metadata %s: %d models, expected %d for generation %d", keyLineage, len(l.Models), l.Generation+1, l.Generation)
	case l.Models[l.Generation] != f.Spec.Model || l.Models[l.Generation-1] != p.Model:
		return fmt.Errorf("metadata %s: the models do not end with %.12s and %.12s, as in the specification", keyLineage, p.Model, f.Spec.Model)
	case l.Rows < 1 || l.Rows > f.DatasetRows:
		return fmt.Errorf("metadata %s: %d rows, expected 1 to %d", keyLineage, l.Rows, f.DatasetRows)
	case !slices.EqualFunc(l.Fields, f.Fields, func(p PairedField, name string) bool { return p.Field == name }):
		return fmt.Errorf("metadata %s: the fields are not those of the file", keyLineage)
	}
	for _, m := range l.Models {
		if strings.Trim(m, "0123456789abcdefghijklmnopqrstuvwxyz") != "" { // it is printed
			return fmt.Errorf("metadata %s has the model %q, expected a digest", keyLineage, m)
		}
	}
	figures := []float64{l.Error, l.Plain, l.Reduction, l.RMSReduction}
	if l.Previous != nil {
		figures = append(figures, *l.Previous)
	}
	for _, p := range l.Fields {
		figures = append(figures, p.Reduction, p.Sum, p.Abs, p.RMS)
	}
	for _, v := range figures {
		if v < 0 {
			return fmt.Errorf("metadata %s has the figure %v, expected at least 0", keyLineage, v)
		}
	}
	return nil
}

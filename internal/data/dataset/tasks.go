package dataset

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/arrowio"
	"shaver/internal/data/dense"
)

// ForTasks returns a dataset whose readers deliver for each row of d one row for each task whose label is not missing, in the
// order of the tasks. It has the label of the task, and its weight is the product of those of the row and the task. Of T
// tasks, the row of task t and row number r of a day has the number r*T+t. Several tasks have T more dense inputs, named by
// Selector, of which that of the row's task is 1 and the others are 0. Choose must name them last or not at all.
//
// Frequencies and the digest are those of d. If the only task is that of the first label, ForTasks returns d. It returns bad input if d does not have the labels.
func (d *Dataset) ForTasks(tasks []model.Task) (*Dataset, error) {
	if d.tasks != nil || len(tasks) == 0 {
		panic("dataset: tasks of a dataset that has tasks, or none")
	}
	other, n, common := *d, int64(len(tasks)), int64(0)
	for i, t := range tasks {
		switch {
		case d.Tasks == nil:
			return nil, fault.Inputf("the dataset has one label without a name: import the rows with several, as in --label click,%s", t.Label)
		case !slices.Contains(d.Tasks, t.Label):
			return nil, fault.Inputf("the dataset has the labels %q: import the rows with --label %s,%s", d.Tasks, strings.Join(d.Tasks, ","), t.Label)
		case slices.ContainsFunc(tasks[:i], func(o model.Task) bool { return o.Label == t.Label }):
			return nil, fault.Usagef("the label %q is named twice", t.Label)
		case t.Weight < 1:
			return nil, fault.Usagef("the task %s has the weight %d, expected at least 1", t.Label, t.Weight)
		}
		common = commonDivisor(common, t.Weight)
	}
	if n == 1 && tasks[0].Label == d.Tasks[0] {
		return d, nil
	}
	largest := int64(1)
	if divisor := d.Weights.divisor(); divisor > 0 {
		largest = d.Weights.Largest / divisor
	}
	for _, t := range tasks {
		t.Weight /= common
		if t.Weight > math.MaxInt32/largest {
			return nil, fault.Usagef("the task %s has the weight %d, which makes a row count more than %d times: choose weights with a larger common divisor", t.Label, t.Weight, math.MaxInt32)
		}
		other.tasks = append(other.tasks, t)
	}
	if rows := d.Manifest.rows(); rows > MaxRows/n {
		return nil, fault.Inputf("the dataset has %d rows, expected at most %d for %d tasks", rows, MaxRows/n, n)
	}
	other.Splits = slices.Clone(d.Splits)
	for k := range other.Splits {
		s, all := &other.Splits[k], &d.Splits[k]
		positives := int64(0)
		*s = Split{Name: s.Name, Positives: &positives}
		for _, t := range other.tasks {
			facts := TaskFacts{Positives: *all.Positives}
			if at := d.label(t); at > 0 {
				facts = all.Tasks[at-1]
			}
			s.Rows += all.Rows - facts.Missing
			positives += facts.Positives
		}
	}
	other.Dense = slices.Clone(d.Dense)
	for t := range tasks {
		if n > 1 {
			other.Dense = append(other.Dense, dense.Input{Name: Selector(t), Rule: dense.None})
		}
	}
	form := other.RowForm()
	if err := form.CheckColumns(); err != nil {
		return nil, fault.Inputf("with the selectors of tasks: %w", err)
	}
	return &other, nil
}

// Selector returns the name of the dense input that is 1 in the rows of task t and 0 in the others.
func Selector(t int) string { return fmt.Sprintf("task.%d", t) }

// label returns the position of the label of a task among all labels.
func (d *Dataset) label(t model.Task) int { return slices.Index(d.Tasks, t.Label) }

// numbers returns how many dense inputs that readers deliver are no selectors of tasks.
func (d *Dataset) numbers() int {
	if at := slices.Index(d.inputs, Selector(0)); at >= 0 && len(d.tasks) > 1 {
		return at
	}
	return len(d.inputs)
}

// columns returns the names of the columns of numbers that readers read: the dense inputs that they deliver and, with tasks, the labels
// after the first.
func (d *Dataset) columns() []string {
	if d.tasks == nil {
		return d.inputs
	}
	return slices.Concat(d.inputs[:d.numbers()], d.Tasks[1:])
}

// weighted reports whether rows have weights.
func (d *Dataset) weighted() bool {
	return d.Weights.divisor() > 0 || slices.ContainsFunc(d.tasks, func(t model.Task) bool { return t.Weight > 1 })
}

// weigh divides the weights of rows of the file in by the divisor of d. It returns an error if the
// manifest of the file does not describe them.
func (r *Reader) weigh(in *source, rows *model.Rows) error {
	divisor := r.d.Weights.divisor()
	for i, weight := range rows.Weight {
		w := int64(weight)
		if w > in.Weights.Largest || w%in.Weights.Divisor != 0 {
			return fault.Inputf("%s: the weight is %d, expected a multiple of %d and at most %d, as %s states", model.RowName(rows.Number[i]), w, in.Weights.Divisor, in.Weights.Largest, ManifestName)
		}
		if divisor > 0 {
			rows.Weight[i] = int32(w / divisor)
		}
	}
	if divisor == 0 {
		rows.Weight = nil
	} else if in.Weights == nil {
		rows.Weight = slices.Repeat([]int32{int32(WeightUnits / divisor)}, rows.Len())
	}
	return nil
}

// expand fills rows with those of the tasks, made from rows of the folders with the columns that columns names.
func (r *Reader) expand(rows *model.Rows) {
	d, from := r.d, &r.batch
	n, numbers := int64(len(d.tasks)), r.d.numbers()
	rows.Reset()
	rows.Width, rows.Inputs = from.Width, len(d.inputs)
	if !d.weighted() {
		rows.Weight = nil
	}
	for i, first := range from.Label {
		dense, within := from.DenseRow(i), from.Number[i]%model.RowsPerDay
		for t, task := range d.tasks {
			label := first
			if at := d.label(task); at > 0 {
				label = dense[numbers+at-1]
			}
			if label == arrowio.Missing {
				continue
			}
			rows.Number = append(rows.Number, from.Number[i]-within+within*n+int64(t))
			rows.Label = append(rows.Label, label)
			rows.Features = append(rows.Features, from.Row(i)...)
			rows.Dense = append(rows.Dense, dense[:numbers]...)
			for s := range rows.Inputs - numbers {
				rows.Dense = append(rows.Dense, 0)
				if s == t {
					rows.Dense[len(rows.Dense)-1] = 1
				}
			}
			if d.weighted() {
				rows.Weight = append(rows.Weight, int32(from.Times(i)*task.Weight))
			}
		}
	}
}

// derived returns the digest of a dataset that differs from the one with the given digest as text says.
func derived(digest, text string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "shaver.view/1\n%s\n%s\n", digest, text))
	return hex.EncodeToString(sum[:])
}

// Package gap measures how much of what fields are worth on the rows of a training comes back on rows that the model has not seen.
package gap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/job"
	"shaver/internal/num/loss"
)

// Gap compares the two kinds of rows.
type Gap struct {
	Rows   [2]int     // number of rows of each kind that were measured
	Loss   [2]float64 // mean loss of the whole model on them, not calibrated
	Fields []Field    // those with players
	Total  Field      // sum of Fields
}

// The kinds of rows, as indices.
const (
	Train  = iota // rows that the model was trained on
	Unseen        // rows that it was not trained on
)

// Field says what the entries of a field are worth together: how much the mean loss rises if the baseline replaces all of
// them. A table that several fields read counts as that of the first one. Worth below 0 means that the field does harm.
type Field struct {
	Name  string
	Worth [2]evaluate.Difference // on each kind of rows
}

// Back returns the portion, 0 to 1, of the worth on train rows that comes back on unseen rows. It is NaN unless the 95%
// interval of the worth on train rows is above 0.
func (f *Field) Back() float64 {
	if w := &f.Worth; w[Train].Low > 0 {
		return min(max(0, w[Unseen].Value/w[Train].Value), 1)
	}
	return math.NaN()
}

// Memorises reports whether of the worth of all fields on train rows less than two thirds comes back: the 95% interval on unseen rows
// is below two thirds of the interval on train rows. A single field is no reason, because most models have one that does
// not come back. The gap nil does not memorise.
func (g *Gap) Memorises() bool {
	return g != nil && g.Total.Worth[Train].Low > 0 && g.Total.Worth[Unseen].High < 2./3*g.Total.Worth[Train].Low
}

// Text says whether the model memorises, and how much of the worth comes back, of all fields and of the one of which least does
// if that is less. It is a sentence without a full stop.
func (g *Gap) Text() string {
	text := ""
	if g.Memorises() {
		text = "the model memorises: "
	}
	text += fmt.Sprintf("of what the fields are worth on rows of the training, %.0f%% comes back on rows that the model has not seen", 100*g.Total.Back())
	least := slices.MaxFunc(append([]Field{g.Total}, g.Fields...), func(a, b Field) int { return cmp.Compare(-a.Back(), -b.Back()) }) // which is never NaN
	if least.Back() < g.Total.Back() {
		text += fmt.Sprintf(", and %.0f%% of %s", 100*least.Back(), least.Name)
	}
	return text
}

// Warning returns Text and what to do if the model memorises and the job scores rows of the training alone, and otherwise "".
func (g *Gap) Warning(spec *job.Spec) string {
	if !g.Memorises() || spec.Fresh != nil || !slices.Equal(spec.Splits, []string{dataset.Train}) {
		return ""
	}
	return g.Text() + "; an order by rows of the training alone is not to be trusted: score rows of a split fresh as well (dataset import --fresh or --split 7:1:1:1)"
}

const (
	mostRows  = 1 << 14 // largest number of rows of each kind
	leastRows = 256     // smallest number of rows of each kind
	places    = 64      // number of places of a split at which rows are read
)

// Measure measures the model m of a job, which has its tables in Weights. d has the fields of m, in its order, and b is
// its baseline. The unseen rows are those of the split fresh, or else val. Measure reads few rows. It computes at most half as
// many states as train has rows, times the sample of the job, even if the job does not score train. It returns nil if there are too few rows, if a logit is not finite, or if
// the interval of the worth of all fields on train rows is not above 0.
func Measure(ctx context.Context, m *model.Model, d *dataset.Dataset, spec *job.Spec, b model.Baseline) (*Gap, error) {
	unseen, rows := dataset.Val, [2]*model.Rows{}
	if d.Rows(dataset.Fresh) > 0 {
		unseen = dataset.Fresh
	}
	for kind, split := range []string{dataset.Train, unseen} {
		most := min(mostRows, int64(spec.Sample*float64(d.Rows(dataset.Train)))/int64(4*(m.Fields()+1)))
		var err error
		if rows[kind], err = Draw(ctx, m, d, spec, split, most); err != nil || rows[kind].Len() < leastRows {
			return nil, err
		}
	}
	whole, err := losses(ctx, m, spec.Loss, rows)
	if whole == nil {
		return nil, err
	}
	g, total := &Gap{Total: Field{Name: "all fields"}}, [2][]float64{}
	for kind, each := range whole {
		g.Rows[kind], g.Loss[kind], total[kind] = len(each), mean(each, rows[kind], spec).Value, make([]float64, len(each))
	}
	table, fixed, book := slices.Clone(m.Weights.Embedding), m.FixedRows(), m.Book(b)
	for field, name := range d.Fields() {
		changed := false
		for j, s := range book.Spans {
			if s.Field != field {
				continue
			}
			for row := range s.Rows {
				if _, is := slices.BinarySearch(fixed, s.Row+row); !is {
					entries, dropped := table[s.Entry+row*s.Dim:][:s.Dim], book.Of(j, row)
					changed = changed || !slices.Equal(entries, dropped)
					copy(entries, dropped)
				}
			}
		}
		if !changed {
			continue
		}
		rises, err := losses(ctx, m.WithEmbedding(table), spec.Loss, rows)
		if rises == nil {
			return nil, err
		}
		for _, s := range book.Spans {
			if s.Field == field {
				copy(table[s.Entry:][:s.Rows*s.Dim], m.Weights.Embedding[s.Entry:])
			}
		}
		f := Field{Name: name}
		for kind := range rises {
			floats.Sub(rises[kind], whole[kind])
			floats.Add(total[kind], rises[kind])
			f.Worth[kind], g.Total.Worth[kind] = mean(rises[kind], rows[kind], spec), mean(total[kind], rows[kind], spec)
		}
		g.Fields = append(g.Fields, f)
	}
	if g.Total.Worth[Train].Low <= 0 {
		return nil, nil
	}
	return g, nil
}

// mean returns the mean over rows, as often as each of them counts, of what its loss rises by.
// The rows of the tasks of one row of data depend on each other, so the standard error is the largest that it can be.
func mean(rises []float64, rows *model.Rows, spec *job.Spec) evaluate.Difference {
	n := float64(len(rises))
	value, deviation := stat.MeanStdDev(rises, nil)
	if rows.Weight != nil {
		weights := make([]float64, len(rises))
		for i := range weights {
			weights[i] = float64(rows.Times(i))
		}
		value = stat.Mean(rises, weights)
		apart := make([]float64, len(rises))
		for i, rise := range rises {
			apart[i] = weights[i] * (rise - value)
		}
		deviation = floats.Norm(apart, 2) / math.Sqrt(n-1) * n / floats.Sum(weights)
	}
	se := stat.StdErr(deviation, n) * math.Sqrt(float64(max(1, len(spec.Tasks))))
	return evaluate.Difference{Value: value, SE: se, Low: value - 1.96*se, High: value + 1.96*se}
}

// losses returns the loss of each row of both kinds, or nil if a logit is not finite.
func losses(ctx context.Context, m *model.Model, kind loss.Kind, rows [2]*model.Rows) (both [][]float64, err error) {
	for _, all := range rows {
		p, err := evaluate.PredictFinite(ctx, m, kind, func(_ context.Context, each func(*model.Rows) error) error { return each(all) }, runtime.GOMAXPROCS(0))
		if err = errors.Join(err, ctx.Err()); err != nil || len(p.Labels) < all.Len() {
			return nil, err
		}
		for i, label := range p.Labels {
			p.Logits[i] = kind.Of(p.Logits[i], label)
		}
		both = append(both, p.Logits)
	}
	return both, nil
}

// Draw returns at most n rows of a split, from places at equal distances. It leaves out rows that do not fit m, and the fresh
// days of train that spec has.
func Draw(ctx context.Context, m *model.Model, d *dataset.Dataset, spec *job.Spec, split string, n int64) (*model.Rows, error) {
	all, enough := &model.Rows{}, errors.New("enough rows")
	share := min(n, d.Rows(split)) / places
	for k := range min(share, 1) * places {
		left := share
		err := d.ScanFrom(ctx, []string{split}, d.Rows(split)*k/places, int(share), func(rows *model.Rows) error {
			for i := range rows.Len() {
				if left--; left < 0 {
					return enough
				}
				if m.CheckRow(rows.Row(i)) == nil && (split != dataset.Train || !spec.Fresh.Has(rows.Number[i])) {
					all.Append(rows, i)
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, enough) {
			return nil, err
		}
	}
	return all, nil
}

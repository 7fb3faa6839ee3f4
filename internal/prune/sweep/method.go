package sweep

import (
	"fmt"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/keep"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
)

// Method makes a table smaller in a single shot.
type Method interface {
	// Own returns the only budgets that the method supports, or nil if it supports any.
	Own() []mask.Budget
	// Cut returns the point of a budget, without Measure, and the tables, one after another.
	Cut(mask.Budget) (Point, []float32, error)
	// Dropped returns the entries that Cut drops. It returns nil if the method drops none, but
	// stores all of them in fewer bits.
	Dropped(mask.Budget) ([]bool, error)
}

// Unpruned is the table that methods make smaller, with other data that they need.
type Unpruned struct {
	Architecture *model.Architecture
	Names        []string                // names of the fields, [m]
	Entries      []float32               // the tables, one after another
	Counts       func() ([]int64, error) // occurrences of features in train and val, [n]
	// Fit returns the least number of entries, at least least, from the front of order, that must be
	// dropped so that the compact file has at most the given number of bytes.
	Fit func(order []int32, least int, baseline model.Baseline, bytes int64) (drop int, err error)
	// Footprint returns the bytes of the compact file without the given entries, of the part
	// of it that stores the table, and of the memory that the table takes when it is served.
	// It is nil if the model cannot be stored in a compact file.
	Footprint func(dropped []bool, baseline model.Baseline) (file, table, memory int64)
	// Round rounds the tables without the given entries, in place of which readers get the
	// baseline. It is set if Values is compact.Mixed, and Footprint is then not used.
	Round  func(dropped []bool, baseline model.Baseline) (*Stored, error)
	Keep   keep.Rules       // entries that no method drops
	Values compact.Encoding // number format of kept entries
}

// Stored are tables as a file with compact.Mixed has them.
type Stored struct {
	Entries             []float32 // what readers get
	Baseline            model.Baseline
	Bits                int   // mean of the kept entries, rounded up
	File, Table, Memory int64 // as Footprint returns them
}

// ByShapley is the name of the method that ranks by Shapley values from any estimator. The
// method for other scores is named after their estimator. An aggregate other than
// scores.Sum is part of the name, as in shapley-abs. Sum, which is the paper's ranking, is
// not, whatever the default aggregate is. The method for the order of a path is path.
const ByShapley = "shapley"

// The rivals, which need no scores.
const (
	Magnitude = "magnitude" // |weight| (MagPrune)
	Random    = "random"    // random scores
	Frequency = "frequency" // scores of prune.Frequency
)

// Nothing is the method that drops all entries, the floor of every order. It is in every sweep, so it is not one of Rivals.
const Nothing = "nothing-kept"

const ptqPrefix = "ptq"

var ptqBits = []int{4, 8, 16}

// Rivals returns the names of the methods that need no scores: three orders, and PTQ with
// one grid for the table (ptq8), for each field (ptq8-field) or for each row (ptq8-row).
func Rivals() []string {
	all := []string{Magnitude, Random, Frequency}
	for _, per := range []string{"", "-" + mask.PerField, "-" + mask.PerRow} {
		for _, bits := range ptqBits {
			all = append(all, fmt.Sprintf("%s%d%s", ptqPrefix, bits, per))
		}
	}
	return all
}

// ByScores returns the method that ranks by an aggregate of the scores f. source is the
// index of f in Document.Sources.
func (t *Unpruned) ByScores(f *scores.File, source int, aggregate, rank string) (Method, error) {
	order, err := Order(f, aggregate, rank, t.Entries)
	if err != nil {
		return nil, err
	}
	return t.ordered(Point{Method: Name(&f.Spec.Options, aggregate), Source: &source, Baseline: f.Spec.Baseline}, f.Baseline, order)
}

// Name returns the name of the method that ranks by an aggregate of scores by o.
func Name(o *estimator.Options, aggregate string) string {
	name := o.Estimator
	if o.Traits().Shapley {
		name = ByShapley
	}
	if aggregate != scores.Sum && aggregate != scores.ByPath {
		name += "-" + aggregate
	}
	return name
}

// AggregateOf returns the aggregate by which p ranks, or "" if it does not rank the entries by an
// aggregate of their scores.
func (d *Document) AggregateOf(p *Point) (string, error) {
	if p.Source == nil {
		return "", nil
	}
	source := &d.Sources[*p.Source]
	o := &source.Options
	switch {
	case p.Method == SNIP && source.Model == "":
		return "", fault.Inputf("method %q ranks by scores of the pruned model: expected those of the model before its training", SNIP)
	case p.Method != SNIP && source.Model != "":
		return "", fault.Inputf("method %q ranks by scores of another model: expected %s", p.Method, SNIP)
	case p.Method == SSEDS || p.Method == SNIP:
		return "", checkDerivatives(p.Method, o, source.Baseline)
	}
	var names []string
	for _, aggregate := range scores.AggregatesOf(o) {
		name := Name(o, aggregate)
		if name == p.Method {
			return aggregate, nil
		}
		names = append(names, name)
	}
	return "", fault.Inputf("method %q ranks by scores of the estimator %s: expected one of %s", p.Method, o.Estimator, strings.Join(names, ", "))
}

// Order returns the entries in the order in which they are dropped, ranked by an aggregate
// of their scores. entries are the tables, whose magnitudes break ties. The entries of pad
// rows come last.
func Order(f *scores.File, aggregate, rank string, entries []float32) ([]int32, error) {
	values, err := ranked(f, aggregate, rank)
	if err != nil {
		return nil, err
	}
	order, err := mask.Order(rank, values, entries)
	if err != nil {
		return nil, fault.Usagef("%w", err)
	}
	order, _ = mask.PadsLast(&f.Layout, order)
	return order, nil
}

// StableOrder is like Order, but keeps the choices of a previous mask unless the evidence
// against them exceeds z standard errors of the aggregate; see prune.Stable,
// scores.File.AggregateSE and RaiseUnseen. For the order of a path, which has no standard errors,
// z counts rounds; see prune.Outlasted. If z is 0, the result is that of Order.
func StableOrder(f *scores.File, aggregate, rank string, entries []float32, choices []mask.Choice, z float64) ([]int32, error) {
	if z == 0 {
		return Order(f, aggregate, rank, entries)
	}
	values, err := ranked(f, aggregate, rank)
	if err != nil {
		return nil, err
	}
	var deviations []float64
	if f.Ranks() {
		values, deviations = mask.Outlasted(values)
	} else {
		if deviations, err = f.AggregateSE(aggregate); err != nil {
			return nil, fault.Usagef("%w", err)
		}
		f.RaiseUnseen(aggregate, deviations)
	}
	order, err := mask.Stable(rank, values, entries, deviations, choices, z)
	if err != nil {
		return nil, fault.Usagef("%w", err)
	}
	order, _ = mask.PadsLast(&f.Layout, order)
	return order, nil
}

// ranked returns the aggregate of f. It returns wrong usage if the rank does not apply to it.
func ranked(f *scores.File, aggregate, rank string) ([]float64, error) {
	if rank == mask.Signed && aggregate != scores.Sum {
		return nil, fault.Usagef("the rank %s needs the aggregate %s: the values of %s have no sign", rank, scores.Sum, aggregate)
	}
	values, err := f.Aggregate(aggregate)
	if err != nil {
		return nil, fault.Usagef("%w", err)
	}
	return values, nil
}

// Rival returns the named method. baselineName is the name of baseline, which
// dropped entries read. Only Random uses seed.
func (t *Unpruned) Rival(name, baselineName string, baseline model.Baseline, seed uint64) (Method, error) {
	if strings.HasPrefix(name, ptqPrefix) {
		return t.ptq(name)
	}
	order, err := t.RivalOrder(name, baseline, seed)
	if err != nil {
		return nil, err
	}
	return t.ordered(Point{Method: name, Baseline: baselineName}, baseline, order)
}

// RivalOrder returns the entries in the order in which the named method, which is not
// PTQ, drops them. baseline is what dropped entries read. Only Random uses seed.
func (t *Unpruned) RivalOrder(name string, baseline model.Baseline, seed uint64) ([]int32, error) {
	var values []float64
	switch name {
	case Nothing:
		values = make([]float64, len(t.Entries))
	case Magnitude:
		values = mask.Magnitude(t.Entries)
	case Random:
		values = mask.Random(len(t.Entries), seed)
	case Frequency:
		counts, err := t.Counts()
		if err != nil {
			return nil, err
		}
		values = mask.Frequency(t.Architecture, t.Entries, baseline, counts)
	default:
		return nil, unknownRival(name)
	}
	return mask.Order(mask.Abs, values, t.Entries)
}

func unknownRival(name string) error {
	return fault.Usagef("method %q: the methods are %s", name, strings.Join(Rivals(), ", "))
}

// ordered is a method that drops entries in a fixed order.
type ordered struct {
	table    *Unpruned
	template Point // method, source, baseline, values and bits of all points
	baseline model.Baseline
	order    []int32
	// numbers of entries that may be dropped
	least, most int
}

// columns reports whether the method drops whole columns, or all of them that may be dropped.
func (o *ordered) columns() bool { return o.template.Method == SSEDS }

func (t *Unpruned) ordered(template Point, baseline model.Baseline, order []int32) (Method, error) {
	order, least, most, err := t.Keep.Apply(t.Architecture, t.Names, t.Values, order)
	if err != nil {
		return nil, fault.Usagef("%w", err)
	}
	template.Values, template.Bits = string(t.Values), 8*t.Values.Size()
	return &ordered{t, template, baseline, order, least, most}, nil
}

func (o *ordered) Own() []mask.Budget {
	if o.template.Method != Nothing {
		return nil
	}
	_, most := o.reach()
	return mask.Budgets(mask.Sparsity, most)
}

// reach is the least and the largest sparsity.
func (o *ordered) reach() (least, most float64) {
	n := float64(o.table.Architecture.Prunable())
	return float64(o.least) / n, float64(o.most) / n
}

func (o *ordered) Cut(b mask.Budget) (Point, []float32, error) {
	dropped, err := o.Dropped(b)
	if err != nil {
		return Point{}, nil, err
	}
	a, p, baseline := o.table.Architecture, o.template, o.baseline
	var table []float32
	if o.table.Round != nil {
		r, err := o.table.Round(dropped, o.baseline)
		if err != nil {
			return Point{}, nil, err
		}
		table, baseline, p.Bits, p.Bytes, p.TableBytes, p.MemoryBytes = r.Entries, r.Baseline, r.Bits, &r.File, &r.Table, &r.Memory
	} else if table, err = Pruned(a, o.table.Entries, dropped, o.baseline, o.table.Values); err != nil {
		return Point{}, nil, err
	}
	drop := 0
	for _, gone := range dropped {
		if gone {
			drop++
		}
	}
	p.Sparsity = float64(drop) / float64(a.Prunable())
	if b.Unit == mask.Sparsity && !o.columns() && drop > o.least {
		p.Sparsity = b.Amount
	}
	if o.table.Footprint != nil && o.table.Round == nil {
		file, stored, memory := o.table.Footprint(dropped, o.baseline)
		p.Bytes, p.TableBytes, p.MemoryBytes = &file, &stored, &memory
	}
	p.Parameters, p.EmptyFeatures = mask.Parameters(a, drop, &baseline), mask.EmptyFeatures(a, dropped)
	return p, table, nil
}

// Pruned returns the tables with the values that a reader of the compact file gets. Dropped
// entries have their baseline. Kept entries are rounded to the number
// format values.
func Pruned(a *model.Architecture, entries []float32, dropped []bool, baseline model.Baseline, values compact.Encoding) ([]float32, error) {
	table := mask.Apply(a, entries, dropped, baseline)
	if values == compact.Float32 {
		return table, nil
	}
	parts, err := compact.Encode(a, table, dropped, baseline, values)
	if err != nil { // a value is out of range for this number format
		return nil, fault.Inputf("entries stored as %s: %w", values, err)
	}
	file, err := compact.New(a, values, parts)
	if err != nil {
		return nil, err
	}
	table = table[:0]
	file.Rows(func(row []float32, _ []bool) { table = append(table, row...) })
	return table, nil
}

func (o *ordered) Dropped(b mask.Budget) ([]bool, error) {
	fit := func(bytes int64) (int, error) { return o.table.Fit(o.order, o.least, o.baseline, bytes) }
	drop, err := b.Drop(o.table.Architecture, &o.baseline, fit)
	if err != nil {
		return nil, fault.Usagef("budget: %w", err)
	}
	if drop = max(drop, o.least); drop > o.most {
		return nil, fault.Usagef("%s %v drops %d entries, but only %d of %d may be dropped", b.Unit, b.Amount, drop, o.most, len(o.order))
	}
	if o.columns() {
		return o.wholeColumns(b, drop)
	}
	return mask.Of(o.order, drop), nil
}

// wholeColumns returns the mask of the least number of whole columns that have at least drop
// entries and meet the budget. A file with more dropped entries may be larger; see Fit.
func (o *ordered) wholeColumns(b mask.Budget, drop int) ([]bool, error) {
	for {
		drop = mask.WholeColumns(o.table.Architecture, o.order[:o.most], drop)
		dropped := mask.Of(o.order, drop)
		if b.Unit != mask.Bytes {
			return dropped, nil
		}
		if file, _, _ := o.table.Footprint(dropped, o.baseline); float64(file) <= b.Amount {
			return dropped, nil
		}
		if drop == o.most {
			return nil, fault.Usagef("budget: %s %.0f: no number of whole columns fits", b.Unit, b.Amount)
		}
		drop++
	}
}

// rounded is the method PTQ, which keeps all entries in fewer bits.
type rounded struct {
	table *Unpruned
	name  string
	bits  int
	per   string // which entries share a grid, see prune.Quantize
}

func (t *Unpruned) ptq(name string) (Method, error) {
	if !slices.Contains(Rivals(), name) {
		return nil, unknownRival(name)
	}
	r := &rounded{table: t, name: name, per: mask.PerTable}
	if _, per, ok := strings.Cut(name, "-"); ok {
		r.per = per
	}
	if _, err := fmt.Sscanf(name, ptqPrefix+"%d", &r.bits); err != nil {
		panic("sweep: rival " + name)
	}
	return r, nil
}

// Own returns the sparsity that saves as many bits as PTQ, 1 - bits/32.
func (r *rounded) Own() []mask.Budget {
	return []mask.Budget{{Unit: mask.Sparsity, Amount: 1 - float64(r.bits)/32}}
}

func (r *rounded) Dropped(mask.Budget) ([]bool, error) { return nil, nil }

func (r *rounded) Cut(b mask.Budget) (Point, []float32, error) {
	t := r.table
	p := Point{Method: r.name, Baseline: baseline.Zero, Values: fmt.Sprintf("int%d", r.bits), Bits: r.bits, Sparsity: b.Amount, Parameters: t.Architecture.Prunable()}
	return p, mask.Quantize(t.Architecture, t.Entries, r.bits, r.per), nil
}

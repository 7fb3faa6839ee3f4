package cut

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/num/layout"
	"shaver/internal/num/loss"
	"shaver/internal/prune/rate"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
	"shaver/internal/value/shapley"
)

// DefaultRounding is the default of Options.Rounding, a fifth of the difference that papers about
// click models commonly call significant.
const DefaultRounding = .0002

// CurvatureRows is the largest number of training rows on which the curvature of the loss is
// measured. Values are rounded to a few bits, which needs no more precision.
const CurvatureRows = 1 << 16

// Rounding says how the values of a model are rounded, and by how much that raises the loss, in
// nat or, with the squared loss, as the root of the mean square. It is the loss after a calibration or, if none
// follows, that of the logits as they are if it rises by more.
type Rounding struct {
	Rows        []Width         `json:"rows"`         // numbers of rows of the tables, by their bits, ascending
	TableRise   *sweep.Interval `json:"table_rise"`   // rise by rounding the tables, on the validation split with the unrounded network
	SecondOrder float64         `json:"second_order"` // the same rise to second order, on training rows
	NetworkRise *sweep.Interval `json:"network_rise"` // rise by rounding the network, on the validation split with the unpruned tables
	Tensors     []Width         `json:"tensors"`      // numbers of tensors of the network, by their bits, ascending
}

// Width is a number of rows or tensors that have the same number of bits.
type Width struct {
	Bits   int `json:"bits"`
	Number int `json:"number"`
}

// rounded is a choice of dropped entries and of the bits of everything that is kept.
type rounded struct {
	*rate.Found
	types          map[string]checkpoint.DType // of tensors of the network
	table, network *sweep.Interval             // rises by rounding
}

// rounder chooses the bits of the pruned tables and of the network of a source.
type rounder struct {
	*bench    // of the source; its whole model is the source
	source    *Source
	baseline  model.Baseline
	model     *model.Model
	train     *model.Rows           // sample of the training rows
	calibrate bool                  // whether the pruned model is calibrated
	onnx      bool                  // whether an .onnx file is written
	plain     bool                  // whether the bits are chosen by the curvature of the loss as it is, and not after a calibration
	dropped   []bool                // entries that were dropped when before was predicted
	before    *evaluate.Predictions // the last of predictWithout
}

// newRounder returns a rounder that reads the sample. It lacks the baseline.
func newRounder(ctx context.Context, b *bench, s *Source, calibrate bool) (*rounder, error) {
	m, err := s.Checkpoint.Model()
	if err != nil {
		return nil, err
	}
	if err := m.Differentiable(); err != nil {
		return nil, err
	}
	r := &rounder{bench: b, source: s, model: m, train: &model.Rows{}, calibrate: calibrate}
	all := b.Dataset.Rows(dataset.Train)
	if all == 0 {
		return nil, fault.Inputf("the dataset has no split %q: it has %v", dataset.Train, b.Dataset.SplitNames())
	}
	seen, rows := int64(0), min(all, CurvatureRows)
	return r, b.Dataset.Scan(ctx, []string{dataset.Train}, 4096, func(part *model.Rows) error {
		r.train.Width, r.train.Inputs = part.Width, part.Inputs
		for i := range part.Len() {
			if (seen+1)*rows/all > seen*rows/all { // evenly many
				r.train.Append(part, i)
			}
			seen++
		}
		return nil
	})
}

// without returns the model without the given entries.
func (b *rounder) without(dropped []bool) *model.Model {
	return b.model.WithEmbedding(mask.Apply(&b.model.Architecture, b.source.Table, dropped, b.baseline))
}

// predictWithout returns what the model without the given entries predicts. It keeps the last predictions.
func (b *rounder) predictWithout(ctx context.Context, dropped []bool) (*evaluate.Predictions, error) {
	if b.before != nil && slices.Equal(b.dropped, dropped) {
		return b.before, nil
	}
	p, err := b.Predict(ctx, b.without(dropped), nil)
	if err == nil && p.OneKind() {
		err = fault.Inputf("the labels of the validation split are all the same: choosing bits by the loss needs both")
	}
	if err == nil {
		b.dropped, b.before = dropped, p
	}
	return p, err
}

// rise returns by how much the calibrated loss rises from one set of predictions to another. If the model is not
// calibrated afterwards, it returns the rise of the loss as it is if that is more.
func (b *rounder) rise(before, after *evaluate.Predictions) *sweep.Interval {
	calibrated := rise(before, after, true)
	if plain := rise(before, after, false); !b.calibrate && plain.Value > calibrated.Value {
		return plain
	}
	return calibrated
}

// measure measures the tables without the given entries.
func (b *rounder) measure(ctx context.Context, dropped []bool) (*rate.Measured, error) {
	before, err := b.predictWithout(ctx, dropped)
	if err != nil {
		return nil, err
	}
	calibration := evaluate.Calibrate(before)
	found := before.MeanLoss(calibration)
	if b.plain {
		calibration = loss.Uncalibrated
	}
	gone := layout.NewMask(len(dropped))
	for i, drop := range dropped {
		if drop {
			gone.Drop(i)
		}
	}
	h, err := shapley.MeasureCurvature(ctx, shapley.Game{Model: b.without(dropped), Baseline: b.baseline, Loss: b.Loss}, gone, calibration, b.train)
	if err != nil {
		return nil, err
	}
	if b.Loss == loss.Squared { // the loss is the root of the mean square, whose derivative is 1/(2*root)
		for _, list := range [][]float64{h.Entries, h.Baseline} {
			for i := range list {
				list[i] /= 2 * max(found, math.SmallestNonzeroFloat32)
			}
		}
	}
	return &rate.Measured{Loss: found, Curvature: h.Entries, BaselineCurvature: h.Baseline}, nil
}

// risen returns the rise of the loss by rounding tables, on the validation split.
func (b *rounder) risen(ctx context.Context, f *rate.Found) (*sweep.Interval, error) {
	table, _, err := values(b.source, f)
	if err != nil {
		return nil, err
	}
	before, err := b.predictWithout(ctx, f.Dropped)
	if err != nil {
		return nil, err
	}
	after, err := b.Predict(ctx, b.model.WithEmbedding(table), nil)
	if err != nil {
		return nil, err
	}
	return b.rise(before, after), nil
}

// network returns the types of the tensors of the network for which the loss rises by at most the
// given bound on the validation split, and by how much it rises over that without rounding. int8 is tried for all of them. If that is too much, those that cost the most alone have float16, and if even that is
// too much, none is rounded.
func (b *rounder) network(ctx context.Context, bound float64) (types map[string]checkpoint.DType, rise *sweep.Interval, err error) {
	ck := b.source.Checkpoint
	keys := ck.Packable()
	if b.onnx {
		if keys, err = ck.Weights8(); err != nil {
			return nil, nil, err
		}
	}
	risen := func(types map[string]checkpoint.DType) (*sweep.Interval, error) {
		c, err := packed(ck, types, b.onnx)
		if err != nil {
			return &sweep.Interval{Value: math.Inf(1)}, nil // a value is out of range of float16
		}
		after, err := b.predict(ctx, c, nil)
		if err != nil {
			return nil, err
		}
		return b.rise(b.whole, after), nil
	}
	types = map[string]checkpoint.DType{}
	for _, key := range keys {
		types[key] = checkpoint.I8
	}
	if rise, err = risen(types); err != nil || rise.Value <= bound {
		return types, rise, err
	}
	alone := map[string]float64{}
	for _, key := range keys {
		if rise, err = risen(map[string]checkpoint.DType{key: checkpoint.I8}); err != nil {
			return nil, nil, err
		}
		alone[key] = rise.Value
	}
	slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(alone[b], alone[a]) })
	for at, n := 0, max(1, len(keys)/8); at < len(keys); at += n {
		for _, key := range keys[at:min(at+n, len(keys))] {
			types[key] = checkpoint.F16
		}
		if rise, err = risen(types); err != nil || rise.Value <= bound {
			return types, rise, err
		}
	}
	return map[string]checkpoint.DType{}, b.rise(b.whole, b.whole), nil
}

// packed returns ck with tensors of the network rounded to the given types. An .onnx file has float32 in place of float16.
func packed(ck *checkpoint.Checkpoint, types map[string]checkpoint.DType, onnx bool) (*checkpoint.Checkpoint, error) {
	if onnx {
		return ck.Round8(weights8(types))
	}
	return ck.Pack(types)
}

// weights8 returns the keys of the tensors in 8 bits.
func weights8(types map[string]checkpoint.DType) (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(types)) {
		if types[key] == checkpoint.I8 {
			keys = append(keys, key)
		}
	}
	return keys
}

// round chooses the entries to drop and the bits of everything else. measured says whether the whole model was measured
// before. within is nil without a bound.
func (o *Options) round(ctx context.Context, s *Source, measured bool, within *bounded) (*rounded, error) {
	order, err := o.order(s)
	if err != nil {
		return nil, err
	}
	if order, err = o.limited(s, order); err != nil {
		return nil, err
	}
	b, err := openBench(o.Dataset, s.loss(), s.Checkpoint)
	if err != nil {
		return nil, err
	}
	if b.whole, err = b.predict(ctx, s.Checkpoint, nil); err != nil {
		return nil, err
	}
	if !measured {
		o.doubt(b.whole)
	}
	f, err := newRounder(ctx, b, s, o.Calibrate)
	if err != nil {
		return nil, err
	}
	f.baseline = s.Scores[0].Baseline
	r := &rounded{}
	f.onnx = o.Form.CompactONNX
	if r.types, r.network, err = f.network(ctx, o.rounding()); err != nil {
		return nil, err
	}
	f.plain = !o.Calibrate && (within != nil || o.Budget.Unit != mask.Bytes) // then the rise is bounded
	search := f.search(order, o.least, o.most)
	if search.Size, err = o.tableSize(s); err != nil {
		return nil, err
	}
	if err := o.find(ctx, s, r, search, within); err != nil {
		return nil, err
	}
	r.table, err = f.risen(ctx, r.Found)
	return r, err
}

// find sets Found of r. The order of search is limited. within is nil without a bound.
func (o *Options) find(ctx context.Context, s *Source, r *rounded, search *rate.Search, within *bounded) error {
	if within != nil {
		return within.round(ctx, r, search)
	}
	if o.Budget.Unit != mask.Bytes {
		drop, err := o.drop(s, search.Order)
		if err == nil {
			r.Found, err = search.Kept(ctx, drop, o.rounding())
		}
		return err
	}
	fixed, err := o.fixedBytes(s, r.types)
	if err != nil {
		return err
	}
	r.Found, err = search.Bytes(ctx, int(min(int64(o.Budget.Amount)-fixed, math.MaxInt32)))
	if err == nil && r.Found == nil {
		err = fault.Usagef("budget: %s %.0f: the model without any embedding entry takes %d, and the smallest tables do not fit in the rest", o.name(mask.Bytes), o.Budget.Amount, fixed)
	}
	return err
}

// tableSize returns the function rate.Search.Size for an .onnx file, and nil for any other.
func (o *Options) tableSize(s *Source) (func(dropped []bool, baseline model.Baseline, p *compact.Palette) (int, error), error) {
	if !o.Form.CompactONNX {
		return nil, nil
	}
	size, err := s.Checkpoint.ONNXBytes(o.Calibrate)
	return func(dropped []bool, baseline model.Baseline, p *compact.Palette) (int, error) {
		_, tables, err := size(&checkpoint.Kept{Dropped: dropped, Baseline: baseline, Values: compact.Mixed, Palette: p})
		return int(tables), err
	}, err
}

// digits is the largest number of bytes by which the header of another choice is longer than that of fixedBytes. In files below 10 GB two
// shapes and two offsets have at most 9 digits more, and the other numbers together 8.
const digits = 48

// fixedBytes returns the largest number of bytes of the file besides those of the tables.
func (o *Options) fixedBytes(s *Source, types map[string]checkpoint.DType) (int64, error) {
	if o.Form.CompactONNX {
		size, err := s.Checkpoint.ONNXBytes(o.Calibrate)
		if err != nil {
			return 0, err
		}
		file, tables, err := size(&checkpoint.Kept{Dropped: make([]bool, s.Checkpoint.Architecture.Parameters()), Baseline: s.Scores[0].Baseline, Values: compact.Float32, Weights8: weights8(types)})
		return file - tables, err
	}
	ck, err := o.written(s)
	if err != nil {
		return 0, err
	}
	if ck, err = ck.Pack(types); err != nil {
		return 0, err
	}
	rows := 0
	for _, span := range ck.Architecture.Spans() {
		rows += span.Rows
	}
	whole := &compact.Palette{Quantizers: []compact.Quantizer{{Bits: 32}}, Rows: make([]uint8, rows)}
	size, err := ck.MixedFootprint(make([]bool, ck.Architecture.Parameters()), s.Scores[0].Baseline, whole)
	return size.File - size.Table + digits, err
}

// values returns the tables that a reader of the file gets, in both forms. Dropped entries have the
// baseline.
func values(s *Source, f *rate.Found) (table []float32, t *compact.Table, err error) {
	a := &s.Checkpoint.Architecture
	parts, err := compact.EncodeMixed(a, s.Table, f.Dropped, f.Baseline, f.Palette)
	if err != nil {
		return nil, nil, err
	}
	if t, err = compact.New(a, compact.Mixed, parts); err != nil {
		return nil, nil, err
	}
	t.Rows(func(x []float32, _ []bool) { table = append(table, x...) })
	return table, t, nil
}

// search returns a search along an order of the entries, of which most may be dropped.
func (b *rounder) search(order []int32, least, most int) *rate.Search {
	risen := func(ctx context.Context, f *rate.Found) (float64, error) {
		rise, err := b.risen(ctx, f)
		if err != nil {
			return 0, err
		}
		return rise.Value, nil
	}
	return &rate.Search{Architecture: &b.model.Architecture, Entries: b.source.Table, Baseline: b.baseline, Order: order, Least: least, Most: most, Measure: b.measure, Risen: risen}
}

// Round returns the function Round of sweep.Unpruned. It rounds tables so that the loss of the given
// name rises by at most DefaultRounding on the validation split of a dataset, with calibrate after a calibration only. The
// network is not rounded.
func (s *Source) Round(ctx context.Context, folders []string, name string, calibrate bool) (func(dropped []bool, baseline model.Baseline) (*sweep.Stored, error), error) {
	split, err := openBench(folders, name, s.Checkpoint)
	if err != nil {
		return nil, err
	}
	opened, err := newRounder(ctx, split, s, calibrate)
	if err != nil {
		return nil, err
	}
	opened.plain = !calibrate
	return func(dropped []bool, baseline model.Baseline) (*sweep.Stored, error) {
		b := *opened
		b.baseline = baseline
		var order, kept []int32
		for i, gone := range dropped {
			if gone {
				order = append(order, int32(i))
			} else {
				kept = append(kept, int32(i))
			}
		}
		drop := len(order)
		found, err := b.search(append(order, kept...), 0, drop).Kept(ctx, drop, DefaultRounding)
		if err != nil {
			return nil, err
		}
		table, t, err := values(s, found)
		if err != nil {
			return nil, err
		}
		size, err := s.Checkpoint.MixedFootprint(dropped, found.Baseline, found.Palette)
		return &sweep.Stored{Entries: table, Baseline: found.Baseline, Bits: t.MeanBits(), File: size.File, Table: size.Table, Memory: size.Memory}, err
	}, nil
}

// scaled returns the palette of tables that are multiplied by a factor above 0.
func (r *rounded) scaled(factor float32) *compact.Palette {
	if factor == 1 {
		return r.Palette
	}
	p := *r.Palette
	p.Quantizers = slices.Clone(p.Quantizers)
	for i := range p.Quantizers {
		p.Quantizers[i].Origin *= factor
		p.Quantizers[i].Step *= factor
	}
	return &p
}

// rounding describes r.
func (r *rounded) rounding(a *model.Architecture, onnx bool) *Rounding {
	shown := &Rounding{TableRise: r.table, SecondOrder: r.Rise, NetworkRise: r.network}
	rows, tensors, at := map[int]int{}, map[int]int{}, 0
	for _, s := range a.Spans() {
		for i := range s.Rows {
			from := s.Entry + i*s.Dim
			if slices.Contains(r.Dropped[from:from+s.Dim], false) {
				rows[r.Palette.Quantizers[r.Palette.Rows[at]].Bits]++
			}
			at++
		}
	}
	for _, dtype := range r.types {
		if dtype == checkpoint.I8 || !onnx {
			tensors[8*dtype.Size()]++
		}
	}
	shown.Rows, shown.Tensors = widths(rows), widths(tensors)
	return shown
}

func widths(numbers map[int]int) []Width {
	all := []Width{}
	for bits, n := range numbers {
		all = append(all, Width{bits, n})
	}
	slices.SortFunc(all, func(a, b Width) int { return a.Bits - b.Bits })
	return all
}

// Text returns the widths as a sentence without a full stop, such as "3 in 2 bits, 1 in 8".
func Text(all []Width) string {
	var parts []string
	for i, w := range all {
		unit := ""
		if i == 0 {
			unit = " bits"
		}
		parts = append(parts, fmt.Sprintf("%d in %d%s", w.Number, w.Bits, unit))
	}
	if parts == nil {
		return "none"
	}
	return strings.Join(parts, ", ")
}

package window

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math"
	"slices"

	"shaver/internal/click/model"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/paired"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/baseline"
	"shaver/internal/value/tally"
)

// newValues returns memory for the values of n entries, with the errors of paired jobs if a
// day has them.
func (t *total) newValues(n int) tally.Values {
	if t.variance[0] == nil {
		return tally.NewValues(n)
	}
	return tally.NewPairedValues(n)
}

// values writes the values of a feature into those slices of v that are not nil. Their
// errors include those of paired jobs.
func (t *total) values(feature int, e tally.Sampling, v tally.Values) {
	t.accumulator.Values(feature, e, v)
	if t.variance[0] == nil {
		return
	}
	shape := t.architecture.Shape()
	from, to := shape.Row(feature)
	rows := float64(t.accumulator.Rows())
	root := v.RMS
	if root == nil && v.RMSPairedSE != nil {
		root = make([]float32, to-from)
		t.accumulator.Values(feature, e, tally.Values{RMS: root})
	}
	for c := range to - from {
		sum, abs, square := t.variance[0][from+c]/(rows*rows), t.variance[1][from+c]/(rows*rows), t.variance[2][from+c]/(rows*rows)
		for _, se := range [][]float32{v.SE, v.PopulationSE} {
			if se != nil {
				se[c] = float32(math.Sqrt(float64(se[c])*float64(se[c]) + sum))
			}
		}
		if v.PairedSE != nil {
			v.PairedSE[c] = float32(math.Sqrt(sum))
		}
		if v.AbsPairedSE != nil {
			v.AbsPairedSE[c] = float32(math.Sqrt(abs))
		}
		if v.RMSPairedSE != nil {
			v.RMSPairedSE[c] = float32(paired.RootError(square, float64(root[c])))
		}
		if v.Phi != nil && v.Abs != nil && v.RMS != nil { // integers are rounded, so the order may be lost in the last bit
			if !e.Corrected {
				v.Abs[c] = max(v.Abs[c], float32(math.Abs(v.Phi[c])))
			}
			v.RMS[c] = max(v.RMS[c], v.Abs[c])
		}
	}
}

// correct replaces the sums of a day in t by those that follow from the scores of a paired
// job. Means become integers again. The variances within rows, and the squares of the
// residuals, stay as they are. The squares of corrected contributions change as those of the
// base. correct returns the variances of the means. walks is tally.Sampling.Walks.
func (t *total) correct(walks int, f *scores.File, values func(feature int, into tally.Values)) (variances, error) {
	shape := t.architecture.Shape()
	rows, scale, lists := float64(f.Rows), float64(walks), tally.Lists(t.state.Form)
	if f.PairedSE != nil || len(f.Count) != shape.Rows() {
		return variances{}, errors.New("window: the scores have another form than expected")
	}
	v, part := newVariances(shape.Entries()), tally.NewPairedValues(shape.Widest())
	for feature := range shape.Rows() {
		from, to := shape.Row(feature)
		d := to - from
		p := part.Part(0, d)
		values(feature, p)
		for c := range d {
			root := float64(p.RMS[c])
			at := lists*from + c
			if list := t.state.Form.CorrectionList(); list >= 0 {
				ratio := 1.0
				if before := t.value(at + 2*d); before > 0 {
					ratio = t.value(at+(list+1)*d) / before
				}
				t.set(at+list*d, 0) // the sum below has the corrections
				t.set(at+(list+1)*d, ratio*root*root*rows/tally.SquareUnit)
			}
			t.set(at, p.Phi[c]*rows*scale/tally.LossUnit)
			t.set(at+d, float64(p.Abs[c])*rows*scale/tally.LossUnit)
			t.set(at+2*d, root*root*rows/tally.SquareUnit)
			sum, abs := float64(p.PairedSE[c]), float64(p.AbsPairedSE[c])
			v[0][from+c], v[1][from+c], v[2][from+c] = sum*sum, abs*abs, paired.RootVariance(float64(p.RMSPairedSE[c]), root)
		}
	}
	g := &t.state.Current
	for sum, mean := range map[*[2]int64]float64{&g.LossFull: f.LossFull, &g.LossEmpty: f.LossEmpty} {
		sum[0], sum[1] = split(mean * rows / tally.LossUnit)
	}
	return v, nil
}

// value returns the sum in a cell.
func (t *total) value(at int) float64 {
	return math.Ldexp(float64(t.state.Carries[at]), 64) + float64(t.state.Cells[at])
}

// set sets a cell to x, rounded to an integer.
func (t *total) set(at int, x float64) {
	carry, low := split(x)
	t.state.Cells[at] = low
	delete(t.state.Carries, at)
	if carry != 0 {
		t.state.Carries[at] = carry
	}
}

// combine returns the scores of the window from the sums of its days.
func (n *night) combine() (*Outcome, error) {
	j, t := n.job, newTotal(&n.job.Architecture, n.form)
	days := make([]*Day, len(n.digests))
	for i, digest := range n.digests {
		days[i] = n.index.day(digest)
		if err := t.addDay(n.State, days[i]); err != nil {
			return nil, err
		}
	}
	sums, err := t.finish()
	if err != nil {
		return nil, err
	}
	f := scores.File{Fields: j.Dataset.Fields(), Layout: scores.LayoutOf(&j.Architecture), Spec: j.Spec, Baseline: model.Baseline{Values: n.game.Baseline}, DatasetRows: j.Sample.Rows}
	if n.Baseline != baseline.Zero && !slices.Equal(n.game.Baseline, j.Baseline.Values) {
		f.Spec.BaselineValues = prepare.Digest(&f.Baseline)
	}
	e := tally.NewSampling(n.Options, j.Sample.Rows)
	var result *tally.Result
	if lead := leader(days); lead == nil {
		result, err = sums.Check(e)
	} else {
		f.Spec.Sample, f.Spec.Previous = lead.Sample, previousOf(days, lead)
		if result, err = check(sums, e); err == nil {
			result.EfficiencyError, result.EfficiencySE = efficiency(days)
			f.Lineage = n.lineage(days, lead, t)
		}
	}
	if err != nil {
		return nil, err
	}
	f.Result = *result
	return &Outcome{Scores: f, Values: func(feature int, into tally.Values) { t.values(feature, e, into) }}, nil
}

// leader returns the day with the largest generation, the newest of several, or nil if all
// days were scored in full.
func leader(days []*Day) (lead *Day) {
	for _, d := range days {
		if d.Generation > 0 && (lead == nil || d.Generation >= lead.Generation) {
			lead = d
		}
	}
	return lead
}

// previousOf returns Previous of the scores of the window. It is that of the day lead, except
// that Values is the digest of the Values of all days.
func previousOf(days []*Day, lead *Day) *job.Previous {
	previous, digest := *lead.Previous, sha256.New()
	for _, d := range days {
		if d.Previous != nil {
			digest.Write([]byte(d.Previous.Values + "\n"))
		}
	}
	previous.Values = hex.EncodeToString(digest.Sum(nil))
	return &previous
}

// efficiency returns the efficiency error of the window and its standard error. The error is
// the mean over the rows of the errors of the days, which are independent.
func efficiency(days []*Day) (off, se float64) {
	rows, square := 0.0, 0.0
	for _, d := range days {
		rows += float64(d.Rows)
		off += float64(float64(d.Rows) * d.EfficiencyError)
		square += float64(float64(d.Rows)*d.EfficiencySE) * float64(float64(d.Rows)*d.EfficiencySE)
	}
	return off / rows, math.Sqrt(square) / rows
}

// lineage returns the lineage of the window. Its generation and models are those of the day
// lead. Error follows from the errors of all entries. Plain, the reductions and the
// coefficients combine those of the paired days. A reduction is a ratio of two variances.
// Each of the two is summed over the days, up to a factor that the days share.
func (n *night) lineage(days []*Day, lead *Day, t *total) *scores.Lineage {
	l := &scores.Lineage{Generation: lead.Generation, Models: lead.Lineage.Models, Fields: make([]scores.PairedField, len(n.settings.Fields))}
	rows := float64(t.accumulator.Rows())
	e := tally.NewSampling(n.Options, t.accumulator.Rows())
	phi := rootMeanSquare(t.architecture.Shape(), func(f int, into tally.Values) { t.accumulator.Values(f, e, into) })
	var variance, plain, left, squaresLeft, corrected float64
	for _, v := range t.variance[0] {
		variance += v
	}
	lefts := make([]float64, len(l.Fields))
	for _, d := range days {
		if d.Lineage == nil {
			continue
		}
		l.Rows += d.Lineage.Rows
		error := d.Lineage.Plain * d.Phi * float64(d.Rows) / rows
		weight := error * error // of a plain sample in this day
		plain += weight
		left += weight / d.Lineage.Reduction
		squaresLeft += weight / d.Lineage.RMSReduction
		corrected += float64(d.Rows)
		for i, field := range d.Lineage.Fields {
			into := &l.Fields[i]
			lefts[i] += weight / field.Reduction
			into.Sum += float64(field.Sum * float64(d.Rows))
			into.Abs += float64(field.Abs * float64(d.Rows))
			into.RMS += float64(field.RMS * float64(d.Rows))
		}
	}
	ratio := func(a, b float64) float64 {
		if b > 0 {
			return a / b
		}
		return 0
	}
	shape := t.architecture.Shape()
	l.Error = ratio(math.Sqrt(variance/float64(shape.Entries()))/rows, phi)
	l.Plain, l.Reduction, l.RMSReduction = ratio(math.Sqrt(plain), phi), ratio(plain, left), ratio(plain, squaresLeft)
	for i := range l.Fields {
		f := &l.Fields[i]
		f.Field, f.Reduction = n.settings.Fields[i], ratio(plain, lefts[i])
		f.Sum, f.Abs, f.RMS = f.Sum/corrected, f.Abs/corrected, f.RMS/corrected
	}
	return l
}

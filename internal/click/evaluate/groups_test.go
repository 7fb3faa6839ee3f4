package evaluate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"shaver/internal/base/long"
	"shaver/internal/num/loss"
)

// grouped draws predictions of few rows with ties, weights, groups and rows in no group.
func grouped(t *rapid.T) *Predictions {
	n := rapid.IntRange(1, 40).Draw(t, "n")
	p := &Predictions{Top: rapid.IntRange(1, 6).Draw(t, "top")}
	weights := rapid.Bool().Draw(t, "weights")
	for range n {
		p.Logits = append(p.Logits, float64(rapid.IntRange(0, 5).Draw(t, "logit")))
		p.Labels = append(p.Labels, float32(rapid.IntRange(0, 1).Draw(t, "label")))
		p.Groups = append(p.Groups, int32(rapid.IntRange(-1, min(4, n-1)).Draw(t, "group")))
		if weights {
			p.Weights = append(p.Weights, int32(rapid.IntRange(1, 5).Draw(t, "weight")))
		}
	}
	return p
}

// pairs is the AUC of the chosen rows by its definition: the weighted portion of pairs of a positive and a negative row that are in the right order.
func pairs(p *Predictions, chosen func(i int) bool) float64 {
	won, all := 0.0, 0.0
	for i := range p.Logits {
		for j := range p.Logits {
			if chosen(i) && chosen(j) && p.Labels[i] == 1 && p.Labels[j] == 0 {
				weight := p.times(i) * p.times(j)
				all += weight
				switch {
				case p.Logits[i] > p.Logits[j]:
					won += weight
				case p.Logits[i] == p.Logits[j]:
					won += weight / 2
				}
			}
		}
	}
	return won / all
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-12 || math.IsNaN(a) && math.IsNaN(b) }

// The GAUC is the mean of the AUCs of the groups with both labels, each weighted by its rows. The NDCG and the recall of a group are
// the means over all orders of rows with equal logits, by their definitions for an order.
func TestWithinIsItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := grouped(t)
		var want Within
		var gauc, weight, ndcg, recall float64
		for g := range int32(5) {
			in := func(i int) bool { return p.Groups[i] == g }
			var rows []int
			sum := 0.0
			for i := range p.Logits {
				if in(i) {
					rows, sum = append(rows, i), sum+p.times(i)
				}
			}
			if rows != nil {
				want.Groups++
			}
			if auc := pairs(p, in); !math.IsNaN(auc) {
				want.Mixed++
				gauc, weight = gauc+sum*auc, weight+sum
			}
			positives := 0
			for _, i := range rows {
				positives += int(p.Labels[i])
			}
			if positives == 0 {
				continue
			}
			want.Found++
			gain, ideal, found := 0.0, 0.0, 0.0
			for place := range min(p.Top, positives) {
				ideal += 1 / math.Log2(float64(place)+2)
			}
			for _, i := range rows { // the means over the places that row i may take among those with its logit
				above, equal := 0, 0
				for _, j := range rows {
					if p.Logits[j] > p.Logits[i] {
						above++
					} else if p.Logits[j] == p.Logits[i] {
						equal++
					}
				}
				for place := above; place < min(p.Top, above+equal); place++ {
					gain += float64(p.Labels[i]) / math.Log2(float64(place)+2) / float64(equal)
					found += float64(p.Labels[i]) / float64(equal)
				}
			}
			ndcg, recall = ndcg+gain/ideal, recall+found/float64(positives)
		}
		for _, g := range p.Groups {
			if g < 0 {
				want.Out++
			}
		}
		r := Rank(p)
		got := r.Within()
		if got.Groups != want.Groups || got.Mixed != want.Mixed || got.Found != want.Found || got.Out != want.Out {
			t.Fatalf("%+v, expected %+v", got, want)
		}
		if !near(got.GAUC, gauc/weight) || !near(r.AUC(), pairs(p, func(int) bool { return true })) {
			t.Fatalf("GAUC %v and AUC %v, expected %v and %v", got.GAUC, r.AUC(), gauc/weight, pairs(p, func(int) bool { return true }))
		}
		if n := float64(want.Found); n > 0 && (!near(got.NDCG, ndcg/n) || !near(got.Recall, recall/n)) {
			t.Fatalf("NDCG %v and recall %v, expected %v and %v", got.NDCG, got.Recall, ndcg/n, recall/n)
		}
	})
}

// Rows with weights have the metrics, the calibration and the differences of as many equal rows.
func TestWeightsAreRepeatedRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := grouped(t)
		b := &Predictions{Labels: a.Labels, Weights: a.Weights, Groups: a.Groups, Top: 1}
		for range a.Labels {
			b.Logits = append(b.Logits, float64(rapid.IntRange(0, 5).Draw(t, "other")))
		}
		repeated := func(p *Predictions) *Predictions {
			all := &Predictions{}
			for i := range p.Logits {
				for range int(p.times(i)) {
					all.Logits, all.Labels, all.Groups = append(all.Logits, p.Logits[i]), append(all.Labels, p.Labels[i]), append(all.Groups, p.Groups[i])
				}
			}
			return all
		}
		for kind, groups := range map[loss.Kind]bool{loss.Logistic: true, loss.Squared: false} {
			was, is := repeated(a), repeated(b)
			a.Loss, b.Loss, was.Loss, is.Loss = kind, kind, kind, kind
			m, n := b.Metrics(), is.Metrics()
			for _, pair := range [][2]float64{{m.AUC, n.AUC}, {m.Loss, n.Loss}, {m.MAE, n.MAE}, {m.R2, n.R2}} {
				if !near(pair[0], pair[1]) {
					t.Fatalf("%+v, expected %+v", m, n)
				}
			}
			c, d := Compare(a, b), Compare(was, is)
			if !near(c.AUC.Value, d.AUC.Value) || !near(c.Loss.Value, d.Loss.Value) {
				t.Fatalf("%+v, expected %+v", c, d)
			}
			if groups && slices.Min(a.Groups) >= 0 && (!near(c.GAUC.SE, d.GAUC.SE) || !near(c.Loss.SE, d.Loss.SE) || !near(c.AUC.SE, d.AUC.SE)) { // the groups are the sample
				t.Fatalf("%+v, expected %+v", c, d)
			}
		}
	})
	// Without smoothing the minimum is the same. Smoothing adds a row of each label, which moves it by one part in the number of rows.
	p, repeated := drawn(3000, .5, -1), &Predictions{}
	for i := range p.Logits {
		p.Weights = append(p.Weights, int32(i%7+1))
		for range i%7 + 1 {
			repeated.Logits, repeated.Labels = append(repeated.Logits, p.Logits[i]), append(repeated.Labels, p.Labels[i])
		}
	}
	if c, d := Calibrate(p), Calibrate(repeated); math.Abs(c.Scale-d.Scale) > 2e-3 || math.Abs(c.Offset-d.Offset) > 2e-3 {
		t.Errorf("%+v, expected %+v", c, d)
	}
	p.Loss, repeated.Loss = loss.Squared, loss.Squared
	if c, d := Calibrate(p), Calibrate(repeated); !near(c.Scale, d.Scale) || !near(c.Offset, d.Offset) {
		t.Errorf("%+v, expected %+v", c, d)
	}
}

// The variance of a difference of GAUCs is that of the jackknife, about the difference of all groups. If each group has copies of one row, the losses
// have the errors of independent rows.
func TestGroupErrorsAreTheirDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := grouped(t)
		b := &Predictions{Labels: a.Labels, Weights: a.Weights, Groups: a.Groups, Top: a.Top}
		for range a.Labels {
			b.Logits = append(b.Logits, float64(rapid.IntRange(0, 5).Draw(t, "other")))
		}
		without := func(p *Predictions, g int32) *Predictions {
			left := &Predictions{Top: p.Top}
			for i, of := range p.Groups {
				if of == g {
					continue
				}
				left.Logits, left.Labels, left.Groups = append(left.Logits, p.Logits[i]), append(left.Labels, p.Labels[i]), append(left.Groups, of)
				if p.Weights != nil {
					left.Weights = append(left.Weights, p.Weights[i])
				}
			}
			left.Groups = numbered(left.Groups)
			return left
		}
		all := Compare(a, b)
		n, square := 0.0, 0.0
		for g := range int32(5) {
			if auc := pairs(a, func(i int) bool { return a.Groups[i] == g }); math.IsNaN(auc) {
				continue
			}
			off := Compare(without(a, g), without(b, g)).GAUC.Value - all.GAUC.Value
			n, square = n+1, square+off*off
		}
		if n >= 2 && math.Abs(all.GAUC.SE-math.Sqrt((n-1)/n*square)) > 1e-9 {
			t.Fatalf("%d groups: the standard error is %v, expected %v", int(n), all.GAUC.SE, math.Sqrt((n-1)/n*square))
		}
		if a.Weights == nil && len(a.Labels) > 1 {
			plain := Compare(&Predictions{Logits: a.Logits, Labels: a.Labels}, &Predictions{Logits: b.Logits, Labels: a.Labels})
			a.Groups, b.Groups = nil, nil
			for i := range a.Labels {
				a.Groups, b.Groups = append(a.Groups, int32(i)), append(b.Groups, int32(i))
			}
			// Copies of a row in its group say nothing more.
			for _, p := range []*Predictions{a, b} {
				p.Logits, p.Labels, p.Groups = slices.Repeat(p.Logits, 3), slices.Repeat(p.Labels, 3), slices.Repeat(p.Groups, 3)
			}
			if own := Compare(a, b); !near(own.Loss.SE, plain.Loss.SE) {
				t.Fatalf("the standard error is %v, expected %v", own.Loss.SE, plain.Loss.SE)
			}
		}
	})
}

// numbered numbers groups from 0 on, in the order of their first rows.
func numbered(groups []int32) (by []int32) {
	number := map[int32]int32{-1: -1}
	for _, g := range groups {
		if _, known := number[g]; !known {
			number[g] = int32(len(number) - 1)
		}
		by = append(by, number[g])
	}
	return by
}

// users draws two models' predictions for users, each with an own number of rows, an own rate of clicks, and own tastes that each model knows
// in part. Hence the rows of a user depend on each other.
func users(r *rand.Rand, n int) (a, b *Predictions) {
	a, b = &Predictions{Top: 3}, &Predictions{Top: 3}
	for g := range n {
		rows := min(200, 2+int(2*math.Exp(1.2*r.NormFloat64())))
		known, rate := [2]float64{.6 + .5*r.NormFloat64(), .8 + .5*r.NormFloat64()}, r.NormFloat64()-.5
		weight := int32(1 + r.IntN(3))
		for range rows {
			taste := r.NormFloat64()
			label := float32(0)
			if r.Float64() < Probability(rate+taste) {
				label = 1
			}
			shared := r.NormFloat64()
			for k, p := range []*Predictions{a, b} {
				p.Logits = append(p.Logits, known[k]*taste+.7*shared+.3*r.NormFloat64())
				p.Labels, p.Groups, p.Weights = append(p.Labels, label), append(p.Groups, int32(g)), append(p.Weights, weight)
			}
		}
	}
	return a, b
}

// In 500 simulations of 200 and of 5,000 users, the 95% intervals contain the difference in 93% to 97% of the samples. The differences are those of
// very many users. An interval that takes rows for independent ones would not hold, which the last check shows.
func TestGroupIntervalsHold(t *testing.T) {
	long.Heavy(t)
	of := func(c Comparison) [5]Difference { return [5]Difference{c.AUC, c.Loss, c.GAUC, c.NDCG, c.Recall} }
	names := [5]string{"AUC", "LogLoss", "GAUC", "NDCG", "recall"}
	truth := of(Compare(users(rand.New(rand.NewPCG(3, 4)), 200_000)))
	const repeats = 500
	for _, n := range []int{200, 5000} {
		var held [5]int
		independent := 0
		for k := range uint64(repeats) {
			a, b := users(rand.New(rand.NewPCG(uint64(n), k)), n)
			for i, d := range of(Compare(a, b)) {
				if d.Low <= truth[i].Value && truth[i].Value <= d.High {
					held[i]++
				}
			}
			a.Groups, b.Groups = nil, nil
			if d := Compare(a, b).Loss; d.Low <= truth[1].Value && truth[1].Value <= d.High {
				independent++
			}
		}
		t.Logf("%d users: %v of %d, %d with rows that are independent", n, held, repeats, independent)
		for i, name := range names {
			if held[i] < repeats*93/100 || held[i] > repeats*97/100 {
				t.Errorf("%d users: %d of %d intervals of %s contain the difference", n, held[i], repeats, name)
			}
		}
		if independent >= repeats*93/100 {
			t.Errorf("%d users: %d of %d intervals without groups contain the difference, expected fewer", n, independent, repeats)
		}
	}
}

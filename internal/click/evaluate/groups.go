package evaluate

import (
	"math"
	"slices"
)

// DefaultTop is the usual number of rows at the top of a group by which NDCG and recall judge.
const DefaultTop = 10

// Within holds what Predictions.Groups say about predictions. The rows of a group are ranked among themselves.
type Within struct {
	Groups int64   // number of groups
	Mixed  int64   // number of those with both labels, which have an AUC
	Found  int64   // number of those with label 1, which have NDCG and recall
	Out    int64   // number of rows in no group
	GAUC   float64 // mean of the AUCs of the groups, each counted as often as its rows; NaN without any
	NDCG   float64 // mean of the NDCG at Predictions.Top of the groups; NaN without any
	Recall float64 // mean over groups of the portion of the rows with label 1 that are among the first Predictions.Top; NaN without any

	auc, ndcg, recall []float64 // by group; NaN if the group has none
	weight            []float64 // by group: how often its rows count
}

// within ranks the rows of each group.
func (r *Ranking) within() *Within {
	n := int(slices.Max(append([]int32{-1}, r.Groups...))) + 1
	w := &Within{auc: make([]float64, n), ndcg: make([]float64, n), recall: make([]float64, n), weight: make([]float64, n)}
	ends := make([]int, n+1)
	for i, g := range r.Groups {
		if g < 0 {
			w.Out++
			continue
		}
		ends[g+1]++
		w.weight[g] += r.times(i)
	}
	for g := range n {
		ends[g+1] += ends[g]
	}
	rows, next := make([]int32, ends[n]), slices.Clone(ends)
	for _, i := range r.order { // the rows of each group, by ascending logit
		if g := r.Groups[i]; g >= 0 {
			rows[next[g]] = i
			next[g]++
		}
	}
	var gauc, ndcg, recall, weight float64
	for g := range n {
		of := &Ranking{Predictions: r.Predictions, order: rows[ends[g]:ends[g+1]]}
		if len(of.order) > 0 {
			w.Groups++
		}
		if w.auc[g] = of.area(nil); !math.IsNaN(w.auc[g]) {
			w.Mixed++
			gauc, weight = gauc+float64(w.auc[g]*w.weight[g]), weight+w.weight[g]
		}
		if w.ndcg[g], w.recall[g] = of.top(); !math.IsNaN(w.ndcg[g]) {
			w.Found++
			ndcg, recall = ndcg+w.ndcg[g], recall+w.recall[g]
		}
	}
	w.GAUC, w.NDCG, w.Recall = gauc/weight, ndcg/float64(w.Found), recall/float64(w.Found)
	return w
}

// top returns the NDCG (Järvelin and Kekäläinen, 2002) of the first Top rows of r, with the labels as gains, and the portion of
// the rows with label 1 that are among them. Rows with equal logits share their places. Both are NaN if no row has label 1.
func (r *Ranking) top() (ndcg, recall float64) {
	discount := func(place int) float64 { return 1 / math.Log2(float64(place+2)) }
	positives, gain, ideal := 0.0, 0.0, 0.0
	place := len(r.order) // place 0 is that of the highest logit
	for tied := range r.ties() {
		equal, discounts, among := 0.0, 0.0, 0.0
		for _, i := range tied {
			if place--; place < r.Top {
				discounts += discount(place)
				among++
			}
			equal += float64(r.Labels[i])
		}
		share := equal / float64(len(tied))
		positives, gain, recall = positives+equal, gain+float64(share*discounts), recall+float64(share*among)
	}
	for place := range min(r.Top, int(positives)) {
		ideal += discount(place)
	}
	return gain / ideal, recall / positives
}

// minus returns the differences of w and a. The groups are a random sample (Taylor linearisation of a mean over clusters). The terms of the
// variance are those of the jackknife, which leaves out one group at a time, so that a group with many rows counts for what it moves.
func (w *Within) minus(a *Within) (gauc, ndcg, recall Difference) {
	of := func(was, is, weight []float64) Difference {
		var sum, whole, n float64
		for g, x := range is {
			if !math.IsNaN(x) {
				sum, whole, n = sum+float64(weight[g]*(x-was[g])), whole+weight[g], n+1
			}
		}
		mean, variance := sum/whole, 0.0
		for g, x := range is {
			if !math.IsNaN(x) {
				off := weight[g] * (x - was[g] - mean) / (whole - weight[g])
				variance += float64(off * off)
			}
		}
		if n < 2 {
			variance = math.NaN()
		}
		return difference(mean, variance*(n-1)/n, n-1)
	}
	once := make([]float64, len(w.weight))
	for g := range once {
		once[g] = 1
	}
	return of(a.auc, w.auc, w.weight), of(a.ndcg, w.ndcg, once), of(a.recall, w.recall, once)
}

// clustered returns the variance of a sum over rows, and its degrees of freedom. influence returns by how much a row moves
// the sum. Rows of one group depend on each other, and a row in no group is a group of its own.
func (p *Predictions) clustered(influence func(i int) float64) (variance, degrees float64) {
	n, sums, members := 0.0, make([]float64, len(p.Groups)), make([]bool, len(p.Groups)) // by group
	for i := range p.Logits {
		x := influence(i)
		if p.Groups != nil && p.Groups[i] >= 0 {
			sums[p.Groups[i]] += x
			members[p.Groups[i]] = true
			continue
		}
		variance, n = variance+float64(x*x), n+1
	}
	for g, x := range sums {
		if members[g] {
			variance, n = variance+float64(x*x), n+1
		}
	}
	if n < 2 {
		return math.NaN(), 0
	}
	return variance * n / (n - 1), n - 1
}

package composed

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Table is a composed table.
type Table struct {
	Shape   Shape
	Tensors []Tensor // those of Shape.Tensors, with values
	// Kept says which entries of CERP's P and Q are kept, [Buckets, Dim] each. The others are 0. It
	// has nil slices if all are kept, and for other schemes.
	Kept [2][]bool
	// Cache has the features with rows of their own, ascending. It is nil if the rows are not in use
	// yet, and for other schemes.
	Cache []int32
}

// New returns a table whose values are all 0. s must be valid.
func New(s Shape) *Table {
	t := &Table{Shape: s, Tensors: s.Tensors()}
	for i := range t.Tensors {
		t.Tensors[i].Values = make([]float32, t.Tensors[i].Elements())
	}
	return t
}

// Check returns an error that names the first part of t that does not fit its shape, or that is not
// a finite number.
func (t *Table) Check() error {
	if err := t.Shape.Validate(); err != nil {
		return err
	}
	want := t.Shape.Tensors()
	if len(t.Tensors) != len(want) {
		return fmt.Errorf("the table has %d tensors, expected %d", len(t.Tensors), len(want))
	}
	for i, w := range want {
		got := &t.Tensors[i]
		if got.Name != w.Name || !slices.Equal(got.Shape, w.Shape) || len(got.Values) != w.Elements() {
			return fmt.Errorf("tensor %d is %s %v with %d values, expected %s %v", i, got.Name, got.Shape, len(got.Values), w.Name, w.Shape)
		}
		for k, v := range got.Values {
			if x := float64(v); math.IsNaN(x) || math.IsInf(x, 0) {
				return fmt.Errorf("tensor %s has the value %v at %d, expected finite numbers", w.Name, v, k)
			}
		}
	}
	if err := t.checkKept(); err != nil {
		return err
	}
	return t.checkCache()
}

func (t *Table) checkKept() error {
	for k, kept := range t.Kept {
		if kept == nil && t.Kept[0] == nil {
			continue
		}
		if t.Shape.Scheme != CERP || len(kept) != len(t.Tensors[k].Values) {
			return fmt.Errorf("mask %d has %d entries, expected those of %s's table", k, len(kept), CERP)
		}
		for i, in := range kept {
			if !in && t.Tensors[k].Values[i] != 0 {
				return fmt.Errorf("tensor %s has the value %v at %d, which is not kept: expected 0", t.Tensors[k].Name, t.Tensors[k].Values[i], i)
			}
		}
	}
	return nil
}

func (t *Table) checkCache() error {
	if t.Cache == nil {
		return nil
	}
	if len(t.Cache) != t.Shape.Cached {
		return fmt.Errorf("the cache has %d features, expected %d", len(t.Cache), t.Shape.Cached)
	}
	last := int32(-1)
	for _, f := range t.Cache {
		if f <= last || int(f) >= t.Shape.Features {
			return fmt.Errorf("the cache has feature %d after %d: expected ascending features below %d", f, last, t.Shape.Features)
		}
		last = f
	}
	return nil
}

// Parameters returns the number of values that are stored: those of all tensors, and of CERP's
// tables only the kept ones.
func (t *Table) Parameters() (n int) {
	for k := range t.Tensors {
		if t.Shape.Scheme != CERP || t.Kept[k] == nil {
			n += len(t.Tensors[k].Values)
			continue
		}
		for _, in := range t.Kept[k] {
			if in {
				n++
			}
		}
	}
	return n
}

// Keep keeps the entries of CERP's tables for which mask, [2, Buckets, Dim], is true, and sets the others to
// 0.
func (t *Table) Keep(mask []bool) {
	for k := range t.Kept {
		values := t.Tensors[k].Values
		t.Kept[k] = slices.Clone(mask[k*len(values):][:len(values)])
		for i, in := range t.Kept[k] {
			if !in {
				values[i] = 0
			}
		}
	}
}

// FillCache gives features rows of their own, with the values that the cores give them. features
// are ascending, and there are Shape.Cached of them.
func (t *Table) FillCache(features []int32) {
	t.Cache = nil
	t.Embed(t.Tensors[len(t.Tensors)-1].Values, features)
	t.Cache = features
}

// Embed writes the embeddings of features to e, [len(features), Dim]. Ascending features are the
// fastest.
func (t *Table) Embed(e []float32, features []int32) {
	d := t.Shape.Dim
	if t.Shape.Scheme == TT {
		t.embedTrain(e, features)
		return
	}
	for k, f := range features {
		at := t.rows(int(f))
		row, a, b := e[k*d:(k+1)*d], t.Tensors[0].Values[at[0]:at[0]+d], t.Tensors[1].Values[at[1]:at[1]+d]
		if t.Shape.Scheme == QR {
			for c := range row {
				row[c] = float32(a[c] * b[c])
			}
		} else {
			for c := range row {
				row[c] = a[c] + b[c]
			}
		}
	}
}

// rows returns the positions of the rows of a feature in the tensors of QR and CERP.
func (t *Table) rows(feature int) [2]int {
	s := &t.Shape
	if s.Scheme == QR {
		return [2]int{feature % s.Divider * s.Dim, feature / s.Divider * s.Dim}
	}
	return [2]int{feature % s.Buckets * s.Dim, feature / quotient(s.Features, s.Buckets) * s.Dim}
}

// chunk is the number of features whose embeddings one core computes at a time.
const chunk = 1 << 10

// All writes the embeddings of all features to e, [Features, Dim], on all cores.
func (t *Table) All(e []float32) {
	n, d := t.Shape.Features, t.Shape.Dim
	each(quotient(n, chunk), func(i int) {
		from, to := i*chunk, min((i+1)*chunk, n)
		features := make([]int32, to-from)
		for k := range features {
			features[k] = int32(from + k)
		}
		t.Embed(e[from*d:to*d], features)
	})
}

// Gradients are the gradients of the embeddings of ascending features.
type Gradients struct {
	Features  []int32
	Embedding []float32 // [len(Features), Dim]
}

// AddGradients adds the gradients of the tensors to into, which has slices as long as their values.
// The features of all lists ascend. AddGradients uses all cores. It adds the gradients of a value in
// the order of the features, or in an order that follows from the shape.
func (t *Table) AddGradients(into [][]float32, lists []Gradients) {
	if t.Shape.Scheme == TT {
		t.addTrain(into, lists)
		return
	}
	d := t.Shape.Dim
	each(2, func(k int) {
		for _, list := range lists {
			for i, f := range list.Features {
				at, g := t.rows(int(f)), list.Embedding[i*d:(i+1)*d]
				sum := into[k][at[k]:][:d]
				if t.Shape.Scheme == CERP {
					for c, x := range g {
						sum[c] += x
					}
					continue
				}
				other := t.Tensors[1-k].Values[at[1-k]:][:d]
				for c, x := range g {
					sum[c] += float32(x * other[c])
				}
			}
		}
	})
}

// each calls f for 0 ... n-1 on all cores and waits for the calls.
func each(n int, f func(i int)) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	group.Wait()
}

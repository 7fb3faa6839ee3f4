package shapley

import (
	"context"
	"fmt"
	"sync"

	"shaver/internal/click/model"
	"shaver/internal/num/random"
	"shaver/internal/value/estimator"
)

// proofs are the checks of the partial of Prove, by the name of the kernel. TestProve says how to renew them.
var proofs = map[string]uint64{
	"avx2": 10251597590346832727, "neon": 10251597590346832727,
	"portable-amd64": 9536418467197389504, "portable-arm64": 9536418467197389504,
}

// proved has the first check of each kernel without a record.
var proved sync.Map

// Prove computes two rows of a small model with the kernel in use, whose name the caller gives, and returns an
// error if a bit differs from what is recorded for this kernel. The machine then computes wrong. Prove takes less
// than 5 ms. It compares a kernel without a record with the first call in this process.
func Prove(kernel string) error {
	got, err := prove()
	if err != nil {
		return err
	}
	want, recorded := proofs[kernel]
	if !recorded {
		first, _ := proved.LoadOrStore(kernel, got)
		want = first.(uint64)
	}
	if got != want {
		return fmt.Errorf("a known row has the check %d, expected %d", got, want)
	}
	return nil
}

// prove returns the check of the partial of Prove.
func prove() (uint64, error) {
	stream := random.At(1, random.Initial, 0, 0)
	draw := func(n int, scale float32) []float32 { // exact on all processors
		values := make([]float32, n)
		for i := range values {
			values[i] = scale * (float32(stream.Uint64()>>40)/(1<<23) - 1)
		}
		return values
	}
	a := model.Architecture{Kind: model.DeepFM, FieldDims: []int{3, 4, 5, 2, 6, 3, 4, 5}, Dim: 5, Hidden: []int{48, 16}}
	layer := func(in, out int) model.Linear {
		return model.Linear{In: in, Out: out, Weight: draw(in*out, .3), Bias: draw(out, .1)}
	}
	w := model.Weights{Embedding: draw(a.Parameters(), 1), FirstOrder: draw(a.Features(), 1), Hidden: []model.Linear{layer(a.Players(), 48), layer(48, 16)}, Output: layer(16, 1)}
	m, err := model.New(a, w)
	if err != nil {
		return 0, err
	}
	rows := &model.Rows{Width: a.Fields(), Number: []int64{0, 1}, Label: []float32{0, 1}}
	for r := range 2 {
		for j, offset := range a.Offsets() {
			rows.Features = append(rows.Features, offset+int32((r+j)%a.FieldDims[j]))
		}
	}
	options := Options{Options: estimator.Options{Estimator: estimator.Permutation, Passes: 2}, Seed: 1}
	p, err := Estimate(context.Background(), Game{Model: m, Baseline: model.Baseline{Values: draw(a.BaselineSize(), 1)}}, options, rows, 1, nil)
	if err != nil {
		return 0, err
	}
	shape := a.Shape()
	return p.Check, p.Validate(&shape, p.Form())
}

// Package deltatest makes the pruned models of consecutive nights for tests.
package deltatest

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/train"
)

// Churn is the portion of the rows of a model that change in a night.
const Churn = .1

// Nights writes n pruned DeepFMs to compact files in a new folder, and returns their paths. Each is a little
// different from the one before: the field items has three more ids, a portion Churn of the rows has other
// values or keeps other entries, and the head and the baseline are others.
func Nights(t testing.TB, n int, v compact.Encoding) []string {
	t.Helper()
	r := rand.New(rand.NewPCG(11, 12))
	a := model.Architecture{Kind: model.DeepFM, FieldDims: []int{40, 25, 300}, Dim: 4, Hidden: []int{6}}
	p := train.Initial(&a, false, 1)
	dropped := Mask(r, a.Parameters())
	var paths []string
	for night := range n {
		if night > 0 {
			a, p, dropped = grow(a, p, dropped, 1, 3, r)
			Change(r, p.Embedding, dropped, a.Dim)
			for i := range p.FirstOrder {
				p.FirstOrder[i] += float32(r.NormFloat64()) / 100
			}
			p.Output.Weight[0] += .01
		}
		ck := checkpoint.New(a, p)
		ck.Fields = []string{"user", "items", "site"}
		paths = append(paths, Write(t, ck, dropped, r, v, night))
	}
	return paths
}

// Mask drops about three of four entries.
func Mask(r *rand.Rand, n int) []bool {
	dropped := make([]bool, n)
	for i := range dropped {
		dropped[i] = r.IntN(4) > 0
	}
	return dropped
}

// Change changes a portion Churn of the rows of a table: their values, or which entries they keep.
func Change(r *rand.Rand, table []float32, dropped []bool, dim int) {
	for row := range len(table) / dim {
		if r.Float64() >= Churn {
			continue
		}
		for i := row * dim; i < (row+1)*dim; i++ {
			switch r.IntN(3) {
			case 0:
				table[i] += float32(r.NormFloat64()) / 10
			case 1:
				dropped[i] = r.IntN(4) > 0
			case 2:
				dropped[i] = true
			}
		}
	}
}

// Write writes a night's model to a compact file in a new folder, and returns its path. The baseline differs
// from night to night.
func Write(t testing.TB, ck *checkpoint.Checkpoint, dropped []bool, r *rand.Rand, v compact.Encoding, night int) string {
	t.Helper()
	baseline := make([]float32, ck.Architecture.BaselineSize())
	spans := ck.Architecture.Spans()
	for i := range spans {
		for c := range spans[i].Dim {
			b := float32(r.IntN(256)) / 512
			for _, reader := range spans[i].Readers() {
				baseline[reader.Baseline+c] = b
			}
		}
	}
	path := filepath.Join(t.TempDir(), fmt.Sprintf("night%02d.safetensors", night))
	if _, err := checkpoint.WriteCompact(path, ck, dropped, baseline, v); err != nil {
		t.Fatal(err)
	}
	return path
}

// grow adds ids to a field of a model with one table.
func grow(a model.Architecture, p *model.Parameters, dropped []bool, field, ids int, r *rand.Rand) (model.Architecture, *model.Parameters, []bool) {
	a.FieldDims = slices.Clone(a.FieldDims)
	at := 0
	for _, n := range a.FieldDims[:field+1] {
		at += n
	}
	a.FieldDims[field] += ids
	values, mask := make([]float32, ids*a.Dim), make([]bool, ids*a.Dim)
	for i := range values {
		values[i], mask[i] = float32(r.NormFloat64()), r.IntN(2) == 0
	}
	other := *p
	other.Embedding = slices.Insert(slices.Clone(p.Embedding), at*a.Dim, values...)
	other.FirstOrder = slices.Insert(slices.Clone(p.FirstOrder), at, make([]float32, ids)...)
	return a, &other, slices.Insert(slices.Clone(dropped), at*a.Dim, mask...)
}

package model_test

import (
	"os"
	"path/filepath"
	"testing"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
)

// trained returns a DCN-Mix trained on the flights data. Its cross layers have collapsed
// to weights of 1e-14. Products with them must not become subnormal.
func trained(t testing.TB) (*model.Model, *model.Rows) {
	t.Helper()
	path := filepath.Join("..", "..", "..", "..", "shared", "data", "flights", "dcn-mix.pth")
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("missing on CI: %v", err)
		}
		t.Skip(err)
	}
	c, err := checkpoint.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Model()
	if err != nil {
		t.Fatal(err)
	}
	return m, modeltest.Rows(m.Architecture, 64, 1)
}

// fieldMeans returns the mean row of each field's embedding.
func fieldMeans(m *model.Model) []float32 {
	baseline := make([]float32, m.Players())
	at := 0
	for j, size := range m.FieldDims {
		for range size {
			for c := range m.Dim {
				baseline[j*m.Dim+c] += m.Weights.Embedding[at] / float32(size)
				at++
			}
		}
	}
	return baseline
}

func TestTrainedWeights(t *testing.T) {
	m, rows := trained(t)
	checkWalk(t, m, rows, fieldMeans(m), 2, 10)
	checkWalk(t, m, rows, make([]float32, m.Players()), 2, 10)
}

func BenchmarkTrainedWalk(b *testing.B) {
	m, rows := trained(b)
	b.Run("mean", func(b *testing.B) { benchWalk(b, m, rows, fieldMeans(m)) })
	b.Run("zero", func(b *testing.B) { benchWalk(b, m, rows, make([]float32, m.Players())) })
}

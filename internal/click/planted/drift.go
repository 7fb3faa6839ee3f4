package planted

import (
	"encoding/binary"
	"math"

	"shaver/internal/click/checkpoint"
	"shaver/internal/num/random"
)

// Drifted returns the planted model after a change: p's parameters, turned by the portion
// amount towards other random ones. The parameters have the same distribution, and those that
// are 0 stay 0. step selects the other parameters. Its rows differ from those of p. amount
// is from 0 to 1; with 0 the model is the same.
func (p *Planted) Drifted(amount float64, step uint64) (*Planted, error) {
	c := p.Config
	c.Seed = mix(p.Seed, step)
	other, err := New(c)
	if err != nil {
		return nil, err
	}
	old := math.Sqrt(1 - amount*amount)
	other.Checkpoint = p.blend(func(own, other float32) float32 {
		return float32(old*float64(own) + amount*float64(other))
	}, other)
	other.Model, err = other.Checkpoint.Model()
	return other, err
}

// Retrained returns a checkpoint like that of p after a training on rows of truth: p's
// parameters, moved by the portion rate towards those of truth, with noise relative to the
// size of each parameter. step selects the noise.
func (p *Planted) Retrained(truth *Planted, rate, noise float64, step uint64) (*Planted, error) {
	stream := random.At(p.Seed, random.Quickstart, 2, step)
	trained := *p
	trained.Checkpoint = p.blend(func(own, ideal float32) float32 {
		x := float64(own) + rate*float64(ideal-own)
		return float32(x * (1 + float64(noise*stream.Normal())))
	}, truth)
	var err error
	trained.Model, err = trained.Checkpoint.Model()
	return &trained, err
}

// blend returns p's checkpoint with each parameter replaced by a function of it and that of
// other, in the order of the keys. The bias of the output stays.
func (p *Planted) blend(of func(own, other float32) float32, other *Planted) *checkpoint.Checkpoint {
	made := *p.Checkpoint
	made.Tensors = map[string]checkpoint.Tensor{}
	for _, key := range made.Keys {
		t, from := p.Checkpoint.Tensors[key], other.Checkpoint.Tensors[key]
		if key != outputBias {
			values := make([]float32, len(t.Data)/4)
			for i := range values {
				values[i] = of(float32At(t.Data, i), float32At(from.Data, i))
			}
			t.Data = littleEndian(values)
		}
		made.Tensors[key] = t
	}
	return &made
}

func float32At(data []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
}

// mix returns a seed that depends on both numbers.
func mix(seed, step uint64) uint64 {
	stream := random.At(seed, random.Quickstart, 3, step)
	return stream.Uint64()
}

package match

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"shaver/internal/onnx/graph"
)

// maxFuzzed bounds the elements of a constant in FuzzFind.
const maxFuzzed = 1 << 12

// FuzzFind checks that Find ends without a panic for any graph, and that what it recognises
// is a valid model.
func FuzzFind(f *testing.F) {
	for _, s := range styles {
		b := newBuilt(&testing.T{}, s.style)
		if err := b.build(); err != nil {
			f.Fatal(err)
		}
		b.g.Trim()
		text, _ := graph.Encode(&b.g)
		f.Add(text, uint64(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		var d graph.Description
		if json.Unmarshal(text, &d) != nil {
			return
		}
		shapes := map[string][]int{}
		for _, c := range d.Constants {
			shapes[c.Name] = c.Shape
		}
		g, err := graph.Decode(text, func(name string) (*graph.Tensor, error) {
			shape := shapes[name]
			n, err := graph.Count(shape)
			if err != nil || n > maxFuzzed {
				return nil, errLarge
			}
			values := make([]float32, n)
			for i := range values {
				if values[i] = float32(r.NormFloat64()); n == 1 {
					values[i] = 0.5 // as in an FM
				}
			}
			return graph.NewFloats(values, shape...), nil
		})
		if err != nil {
			return
		}
		var lookUps []LookUp
		players := 0
		for _, v := range g.Inputs {
			dim, err := graph.Count(g.Values[v].Shape)
			if err != nil || dim < 1 || dim > maxFuzzed {
				return
			}
			l := LookUp{Field: max(players-1, 0), Player: dim > 1, Value: v, Sample: make([]float32, Samples*dim)}
			if l.Player {
				l.Field = players
				players++
			}
			lookUps = append(lookUps, l)
		}
		n, err := Find(g, max(players, 1), lookUps)
		if err != nil {
			return
		}
		dims := make([]int, players)
		for j := range dims {
			dims[j] = 1
		}
		a := n.Architecture(dims)
		if err := a.Validate(); err != nil {
			t.Errorf("it recognizes an invalid model: %v", err)
		}
	})
}

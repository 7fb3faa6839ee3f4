package train

import (
	"math"

	"shaver/internal/click/composed"
	"shaver/internal/click/model"
	"shaver/internal/num/random"
)

// Initial returns the weights with which a training of a model starts. They have the
// distributions of the paper's reference models, except that the first-order weights are 0
// and not standard normal. norm states whether each hidden layer has a BatchNorm. Each
// tensor has random numbers of its own, so the same seed gives the same table to all kinds. The
// four tables of a NeuMF start as the columns of this one table.
func Initial(a *model.Architecture, norm bool, seed uint64) *model.Parameters {
	return initial(a, norm, seed, 0)
}

// InitialReference is like Initial, with standard normal first-order weights as in the
// reference models. Their logits start with the standard deviation sqrt(m).
func InitialReference(a *model.Architecture, norm bool, seed uint64) *model.Parameters {
	return initial(a, norm, seed, 1)
}

// The numbers of the tensors, by which their random numbers differ. Layer l of a kind of
// layers has the number of its kind plus l.
const (
	embeddingTensor = iota
	firstTensor
	gatesTensor
	outputTensor
	hiddenTensor = 1 << 8 << iota
	crossTensor
	expandTensor
	middleTensor
	reduceTensor
	composedTensor
	productTensor = outputTensor + 1
)

// InitialTable returns the composed table of the given shape with which a training starts. The
// tensors have the distributions of the reference: those of QR are uniform between sqrt(1/n) and 1,
// where n is the number of features. The entries of the cores of TT are standard normal numbers of
// at least 2 in magnitude, times (3n)^(-1/6). The tables of CERP are uniform as an ordinary table with
// their number of rows. The cache of TT is 0 and not in use.
func InitialTable(s composed.Shape, seed uint64) *composed.Table {
	t := composed.New(s)
	n := float64(s.Features)
	for k, w := range t.Tensors {
		stream := random.At(seed, random.Initial, composedTensor+uint64(k), 0)
		switch {
		case s.Scheme == composed.QR:
			low := math.Sqrt(1 / n)
			for i := range w.Values {
				w.Values[i] = float32(low + (1-low)*stream.Float64())
			}
		case s.Scheme == composed.CERP:
			fill(w.Values, xavier(s.Buckets, s.Dim), seed, composedTensor+k)
		case k < len(s.Rows):
			scale := math.Pow(3*n, -1./6)
			for i := range w.Values {
				w.Values[i] = float32(scale * tail(&stream, 2))
			}
		}
	}
	return t
}

// tail returns a normal number whose magnitude is at least a, above 0 (Marsaglia, "Generating a
// variable from the tail of the normal distribution", 1964).
func tail(stream *random.Stream, a float64) float64 {
	for {
		x := math.Sqrt(a*a - 2*math.Log(1-stream.Float64()))
		if u := 2*stream.Float64() - 1; math.Abs(u)*x < a {
			return math.Copysign(x, u)
		}
	}
}

// xavier returns the limit of the initial values of a table, which are uniform (Glorot and
// Bengio, 2010).
func xavier(rows, columns int) float64 { return math.Sqrt(6 / float64(rows+columns)) }

// fill sets values to uniform numbers from -limit to limit.
func fill(values []float32, limit float64, seed uint64, tensor int) {
	stream := random.At(seed, random.Initial, uint64(tensor), 0)
	for i := range values {
		values[i] = float32(limit * (2*stream.Float64() - 1))
	}
}

func initial(a *model.Architecture, norm bool, seed uint64, first float64) *model.Parameters {
	uniform := func(values []float32, limit float64, tensor int) { fill(values, limit, seed, tensor) }
	normal := func(n int, deviation float64, tensor int) []float32 {
		stream := random.At(seed, random.Initial, uint64(tensor), 0)
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(deviation * stream.Normal())
		}
		return values
	}
	linear := func(in, out, tensor int) model.Linear { // as nn.Linear
		values := make([]float32, in*out+out)
		uniform(values, 1/math.Sqrt(float64(in)), tensor)
		return model.Linear{In: in, Out: out, Weight: values[:in*out], Bias: values[in*out:]}
	}
	width := a.Players()
	p := &model.Parameters{Embedding: make([]float32, a.Parameters())}
	uniform(p.Embedding, xavier(a.Features(), a.Dim), embeddingTensor)
	if a.Wide() {
		p.FirstOrder, p.Bias = normal(a.Features(), first, firstTensor), make([]float32, 1)
	}
	in := width
	if a.Kind == model.NeuMF {
		in = a.Dim // the columns of the MLP
		products := linear(a.Dim/2, 1, productTensor)
		p.Product, p.Bias = products.Weight, products.Bias
	}
	for l, out := range a.Hidden {
		layer := linear(in, out, hiddenTensor+l)
		if a.Kind == model.NeuMF { // the weights have the limit of a table
			for i, v := range layer.Weight {
				layer.Weight[i] = float32(float64(v) * xavier(in, out) * math.Sqrt(float64(in)))
			}
		}
		p.Hidden = append(p.Hidden, layer)
		var n *model.Norm
		if norm {
			n = &model.Norm{Gamma: make([]float32, out), Beta: make([]float32, out), Mean: make([]float32, out), Variance: make([]float32, out)}
			for o := range out {
				n.Gamma[o], n.Variance[o] = 1, 1
			}
		}
		p.Norms = append(p.Norms, n)
		in = out
	}
	for l := range a.CrossLayers {
		if a.Kind == model.DCNv2 {
			p.Cross = append(p.Cross, linear(width, width, crossTensor+l))
			continue
		}
		wide := math.Sqrt(2 / float64(a.Rank*width))
		p.Mix = append(p.Mix, model.MixLayer{
			U:    normal(a.Experts*a.Rank*width, wide, expandTensor+l),
			C:    normal(a.Experts*a.Rank*a.Rank, math.Sqrt(2)/float64(a.Rank), middleTensor+l),
			V:    normal(a.Experts*width*a.Rank, wide, reduceTensor+l),
			Bias: make([]float32, width),
		})
	}
	if a.Kind == model.DCNMix {
		p.Gates = normal(a.Experts*width, math.Sqrt(2/float64(width)), gatesTensor)
	}
	if a.Kind != model.FM {
		if a.Structure == model.Parallel {
			in += width
		}
		p.Output = linear(in, 1, outputTensor)
	}
	return p
}

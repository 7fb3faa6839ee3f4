package train

import (
	"math"
	"runtime"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/num/random"
)

// reference computes in float64 the mean loss of rows in training mode, from the formulas
// and not from the code that is tested. values holds the weights of a Trainer by the names
// of its tensors.
type reference struct {
	a      *model.Architecture
	norms  []bool
	values map[string][]float64
}

func newReference(t *Trainer) *reference {
	r := &reference{a: &t.a, values: map[string][]float64{}}
	for _, n := range t.p.Norms {
		r.norms = append(r.norms, n != nil)
	}
	for _, v := range t.State() {
		for _, x := range v.Values {
			r.values[v.Name] = append(r.values[v.Name], float64(x))
		}
	}
	return r
}

// affine returns x W' + b, where W has the given number of outputs.
func affine(x [][]float64, weight, bias []float64) [][]float64 {
	in := len(x[0])
	y := make([][]float64, len(x))
	for t := range x {
		for o := range len(weight) / in {
			sum := 0.0
			if bias != nil {
				sum = bias[o]
			}
			for i, v := range x[t] {
				sum += weight[o*in+i] * v
			}
			y[t] = append(y[t], sum)
		}
	}
	return y
}

func (r *reference) loss(rows *model.Rows) float64 {
	width := r.a.Players()
	logits := make([]float64, rows.Len())
	x0 := make([][]float64, rows.Len())
	for t := range x0 {
		if bias := r.values["bias"]; bias != nil {
			logits[t] = bias[0]
		}
		for _, f := range rows.Row(t) {
			x0[t] = append(x0[t], r.values["embedding"][int(f)*r.a.Dim:int(f+1)*r.a.Dim]...)
			if first := r.values["first"]; first != nil {
				logits[t] += first[f]
			}
		}
		if r.a.Kind == model.FM || r.a.Kind == model.DeepFM {
			for i, a := range x0[t] {
				for j, b := range x0[t][:i] {
					if (i-j)%r.a.Dim == 0 {
						logits[t] += a * b
					}
				}
			}
		}
		for c, w := range r.values["product"] {
			column := r.a.Dim/2 + c
			logits[t] += w * x0[t][column] * x0[t][r.a.Dim+column]
		}
	}
	if r.a.Kind != model.FM {
		x := x0
		if r.a.Kind == model.NeuMF {
			x = nil
			for _, e := range x0 {
				x = append(x, append(append([]float64{}, e[:r.a.Dim/2]...), e[r.a.Dim:r.a.Dim*3/2]...))
			}
		}
		for l := range r.a.CrossLayers {
			x = r.cross(x, x0, l)
		}
		h := x
		if r.a.Structure == model.Parallel {
			h = x0
		}
		for l := range r.a.Hidden {
			h = r.hidden(h, l)
		}
		w := r.values["output.weight"]
		for t := range h {
			last := h[t]
			if r.a.Structure == model.Parallel {
				last = append(append([]float64{}, x[t][:width]...), h[t]...)
			}
			logits[t] += affine([][]float64{last}, w, r.values["output.bias"])[0][0]
		}
	}
	sum, total := 0.0, 0.0
	for t, z := range logits {
		sum += float64(rows.Times(t)) * (math.Log1p(math.Exp(z)) - float64(rows.Label[t])*z)
		total += float64(rows.Times(t))
	}
	return sum / total
}

func (r *reference) cross(x, x0 [][]float64, l int) [][]float64 {
	name := map[model.Kind]string{model.DCNMix: "mix.", model.DCNv2: "cross."}[r.a.Kind] + string(rune('0'+l))
	z := make([][]float64, len(x))
	if r.a.Kind == model.DCNv2 {
		z = affine(x, r.values[name+".weight"], r.values[name+".bias"])
	} else {
		const wide = 16
		gates := affine(x, r.values["gates.weight"], nil)
		low := affine(x, r.values[name+".v.weight"], nil)
		for t := range x {
			mid := make([]float64, len(low[t]))
			sum := 0.0
			for k, g := range gates[t] {
				var state []float64
				for _, v := range low[t][k*wide : k*wide+r.a.Rank] {
					state = append(state, math.Tanh(v))
				}
				for i, v := range affine([][]float64{state}, r.values[name+".c."+string(rune('0'+k))+".weight"], nil)[0] {
					mid[k*wide+i] = g * math.Tanh(v)
				}
				sum += g
			}
			z[t] = affine([][]float64{mid}, r.values[name+".u.weight"], nil)[0]
			for i, b := range r.values[name+".bias"] {
				z[t][i] += sum * b
			}
		}
	}
	next := make([][]float64, len(x))
	for t := range x {
		for i := range x[t] {
			next[t] = append(next[t], x[t][i]+x0[t][i]*z[t][i])
		}
	}
	return next
}

func (r *reference) hidden(x [][]float64, l int) [][]float64 {
	name := "hidden." + string(rune('0'+l))
	y := affine(x, r.values[name+".weight"], r.values[name+".bias"])
	for o := range y[0] {
		scale, offset := 1.0, 0.0
		if r.norms[l] {
			mean, variance := 0.0, 0.0
			for t := range y {
				mean += y[t][o] / float64(len(y))
			}
			for t := range y {
				variance += (y[t][o] - mean) * (y[t][o] - mean) / float64(len(y))
			}
			scale = r.values[name+".gamma"][o] / math.Sqrt(variance+1e-5)
			offset = r.values[name+".beta"][o] - mean*scale
		}
		for t := range y {
			y[t][o] = max(0, y[t][o]*scale+offset)
		}
	}
	return y
}

// gradientOf returns the gradient of tensor w as a dense array.
func gradientOf(t *Trainer, w *tensor) []float64 {
	all := make([]float64, len(w.values))
	switch w {
	case t.table.Tensors()[0]:
		for _, g := range t.grouped.fields {
			for k, f := range g.Features {
				for c, v := range g.Embedding[k*t.a.Dim:][:t.a.Dim] {
					all[int(f)*t.a.Dim+c] = float64(v)
				}
			}
		}
	case t.first:
		for _, g := range t.grouped.fields {
			for k, f := range g.Features {
				all[f] = float64(g.weights[k])
			}
		}
	default:
		for i := range all {
			all[i] = float64(w.gradient[i/w.width*w.stride+i%w.width])
		}
	}
	return all
}

// The gradients of all weights agree with central differences in float64.
func TestGradients(t *testing.T) {
	for _, name := range []string{"fm", "deepfm", "deepfm-plain", "widedeep", "dcn-mix", "dcnv2-stacked", "dcnv2-parallel", "neumf"} {
		t.Run(name, func(t *testing.T) {
			trainer := newTrainer(t, goldenModel(t, name, 10), Options{Optimizer: Adam, LearningRate: 1e-2, Batch: 24})
			rows := rowsFor(t, &trainer.a).Slice(0, 24)
			for i := range rows.Len() {
				rows.Weight = append(rows.Weight, int32(1+i%3))
			}
			trainer.gradients(&rows, 0)
			r := newReference(trainer)
			for _, w := range append(trainer.tensors(), trainer.small()...) {
				got := gradientOf(trainer, w)
				scale, worst := 0.0, 0.0
				for i := range got {
					const step = 1e-5
					x := r.values[w.name]
					before := x[i]
					x[i] = before + step
					up := r.loss(&rows)
					x[i] = before - step
					down := r.loss(&rows)
					x[i] = before
					want := (up - down) / (2 * step)
					scale, worst = max(scale, math.Abs(want)), max(worst, math.Abs(want-got[i]))
				}
				if worst > 1e-5*scale+1e-7 {
					t.Errorf("the gradient of %s is off by %.2g, of at most %.2g", w.name, worst, scale)
				}
			}
		})
	}
}

// Adam's steps do not depend on the number of cores, with dropout too. An epoch has other
// draws of dropout than the next.
func TestSameBytes(t *testing.T) {
	for _, name := range []string{"deepfm", "dcn-mix", "dcnv2-parallel", "neumf"} {
		t.Run(name, func(t *testing.T) {
			var first *Trainer
			for _, cores := range []int{1, 2, 7} {
				setCores(t, cores)
				trainer := newTrainer(t, goldenModel(t, name, 0), Options{Optimizer: Adam, LearningRate: 1e-2, WeightDecay: 1e-3, Dropout: .3, Batch: 200, Seed: 5})
				rows := rowsFor(t, &trainer.a)
				part := rows.Slice(0, 201)
				for epoch := range 3 {
					trainer.Step(&part, epoch)
				}
				if first == nil {
					first = trainer
				}
				for i, v := range trainer.State() {
					for k, x := range v.Values {
						if want := first.State()[i].Values[k]; math.Float32bits(x) != math.Float32bits(want) {
							t.Fatalf("with %d cores %s[%d] is %v, with one core %v", cores, v.Name, k, x, want)
						}
					}
				}
			}
			rows := rowsFor(t, &first.a).Slice(0, 100)
			first.gradients(&rows, 1)
			one := gradientOf(first, first.hidden[1].weight)
			first.gradients(&rows, 2)
			two := gradientOf(first, first.hidden[1].weight)
			same := true
			for i := range one {
				same = same && one[i] == two[i]
			}
			if same {
				t.Error("two epochs have the same draws of dropout")
			}
		})
	}
}

// Dropout keeps the given portion of the units and scales them up.
func TestDropout(t *testing.T) {
	trainer := newTrainer(t, goldenModel(t, "deepfm", 0), Options{Optimizer: Adam, LearningRate: 1e-2, Dropout: .3, Batch: 239, Seed: 5})
	rows := goldenRows(t)
	trainer.gradients(rows, 0)
	h := trainer.hidden[0]
	active, kept := 0, 0
	for i := range rows.Len() {
		for o, y := range h.h.Row(i)[:h.out] {
			normal := float64(h.scale[o])*float64(h.y.Row(i)[o]) + float64(h.offset[o])
			if normal <= 1e-6 {
				continue
			}
			active++
			if y != 0 {
				kept++
				if math.Abs(float64(y)-normal/.7) > 1e-5*normal {
					t.Fatalf("unit %d of row %d is %v, expected %v", o, i, y, normal/.7)
				}
			}
		}
	}
	if sd := math.Sqrt(.21 * float64(active)); math.Abs(float64(kept)-.7*float64(active)) > 4*sd {
		t.Errorf("kept %d of %d units, expected a portion of .7", kept, active)
	}
}

// Dropped entries keep their values, and the others move as without a mask as long as the
// dropped ones do not count.
func TestDroppedStay(t *testing.T) {
	c := goldenModel(t, "deepfm", 0)
	dropped := make([]bool, c.Architecture.Parameters())
	stream := random.At(1, random.Initial, 0, 0)
	for i := range dropped {
		dropped[i] = stream.Below(3) == 0
	}
	for _, optimizer := range []Optimizer{Adam, SparseAdam} {
		before, err := c.Parameters()
		if err != nil {
			t.Fatal(err)
		}
		trainer := newTrainer(t, c, Options{Optimizer: optimizer, LearningRate: 1e-2, WeightDecay: 1e-3, Batch: 240, Dropped: dropped})
		rows := goldenRows(t)
		trainer.Step(rows, 0)
		kept := 0
		for _, gone := range dropped {
			if !gone {
				kept++
			}
		}
		for _, v := range trainer.State() {
			if strings.HasPrefix(v.Name, "embedding.") && len(v.Values) != kept {
				t.Errorf("%s: %s has %d values, expected those of %d kept entries", optimizer, v.Name, len(v.Values), kept)
			}
		}
		whole := newTrainer(t, c, Options{Optimizer: optimizer, LearningRate: 1e-2, WeightDecay: 1e-3, Batch: 240})
		whole.Step(rows, 0)
		for i, v := range whole.Parameters().Embedding {
			if got := trainer.Parameters().Embedding[i]; !dropped[i] && got != v {
				t.Errorf("%s: entry %d is %v after a step, expected %v as without dropped entries", optimizer, i, got, v)
			}
		}
		for i, v := range trainer.Parameters().Embedding {
			last := i/c.Architecture.Dim == c.Architecture.Features()-1 // never occurs, so SparseAdam leaves it
			if moved := v != before.Embedding[i]; moved == dropped[i] && !(last && optimizer == SparseAdam) {
				t.Errorf("%s: entry %d, dropped = %v, moved = %v", optimizer, i, dropped[i], moved)
			}
		}
	}
}

// setCores sets GOMAXPROCS until the test ends.
func setCores(t *testing.T, n int) {
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

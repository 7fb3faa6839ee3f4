package gates

import (
	"context"
	"math"
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/click/planted"
	"shaver/internal/num/loss"
	"shaver/internal/num/random"
)

// models returns a small model of each kind, and models whose fields are lists and share a table.
func models(t *testing.T) map[string]*model.Model {
	all := map[string]*model.Model{"list-mean": modeltest.ListModel("mean", 2), "list-attention": modeltest.ListModel("attention", 3)}
	for name, a := range modeltest.Architectures() {
		all[name] = modeltest.Random(t, a, 1)
	}
	return all
}

// slopesOf returns the trainer of m after one batch, and the loss of the batch with the given gates.
func slopesOf(m *model.Model, rows *model.Rows, ids []int32, gates []float64) (*trainer, float64) {
	t := newTrainer(m)
	copy(t.gates, gates)
	return t, t.add(rows, ids)
}

// The slope of a gate is the derivative of the loss by this gate, for every entry of the tables.
func TestSlopes(t *testing.T) {
	for name, m := range models(t) {
		rows, stream := modeltest.Rows(m.Architecture, 150, 5), random.At(1, random.Shuffle, 0, 1)
		ids, gates := permuted(&m.Architecture, rows, &stream), make([]float64, m.Parameters())
		for i := range gates {
			gates[i] = .2 + .6*stream.Float64()
		}
		exact, _ := slopesOf(m, rows, ids, gates)
		off, size := 0.0, 0.0
		for i := range gates {
			const h = 1. / 4096
			at := func(g float64) float64 {
				moved := slices.Clone(gates)
				moved[i] = g
				_, sum := slopesOf(m, rows, ids, moved)
				return sum
			}
			off = max(off, math.Abs((at(gates[i]+h)-at(gates[i]-h))/(2*h)-exact.slopes[i]))
			size = max(size, math.Abs(exact.slopes[i]))
		}
		if size == 0 || off > .01*size { // units may cross the kinks of ReLU
			t.Errorf("%s: a slope is off by %g, of at most %g", name, off, size)
		}
	}
}

// If all gates are 1, the network gets the entries of the rows. If all are 0, it gets those of the permuted ids.
// Pads keep their entries in both cases.
func TestEnds(t *testing.T) {
	for name, m := range models(t) {
		rows, stream := modeltest.Rows(m.Architecture, 60, 5), random.At(1, random.Shuffle, 0, 1)
		ids := permuted(&m.Architecture, rows, &stream)
		for gate, read := range [][]int32{ids, rows.Features} {
			_, got := slopesOf(m, rows, ids, slices.Repeat([]float64{float64(gate)}, m.Parameters()))
			want, g := 0.0, m.NewGradient()
			for r := range rows.Len() {
				x, logit := g.Set(0, rows, r), make([]float64, 1)
				m.Embed(x, read[r*rows.Width:][:rows.Width])
				roster, own := model.NewRoster(&m.Architecture), make([]float32, len(x))
				roster.Set(rows.Row(r))
				m.Embed(own, rows.Row(r))
				for i, player := range roster.ByElement() {
					if player < 0 {
						x[i] = own[i]
					}
				}
				g.Logits(logit)
				want += loss.Logistic.Of(logit[0], rows.Label[r])
			}
			if math.Abs(got-want) > 1e-4*want {
				t.Errorf("%s with gates %d: the loss is %v, expected %v", name, gate, got, want)
			}
		}
	}
}

// Each field, with all positions of a list, keeps its ids over the batch, and pads stay in place.
func TestPermuted(t *testing.T) {
	a := modeltest.Lists()
	rows, stream := modeltest.Rows(a, 80, 1), random.At(1, random.Shuffle, 0, 1)
	ids, pad := permuted(&a, rows, &stream), a.Offsets()[2]
	for i, id := range rows.Features {
		if at := i % rows.Width; at >= 2 && at < 5 && (id == pad) != (ids[i] == pad) {
			t.Errorf("position %d has the id %d instead of %d, of which one is a pad", i, ids[i], id)
		}
	}
	if slices.Equal(ids, rows.Features) {
		t.Error("the ids are not permuted")
	}
	slices.Sort(ids)
	all := slices.Clone(rows.Features)
	slices.Sort(all)
	if !slices.Equal(ids, all) { // the global ids of fields are disjoint
		t.Error("a field has other ids than before")
	}
}

// If all ids have the same value in a column, the loss does not move the gates of the column.
func TestEqualColumn(t *testing.T) {
	for name, m := range models(t) {
		table := slices.Clone(m.Weights.Embedding)
		equal := map[int]bool{}
		for _, s := range m.Spans() {
			for row := range s.Rows {
				table[s.Entry+row*s.Dim] = .5
				equal[s.Entry+row*s.Dim] = true
			}
		}
		rows, stream := modeltest.Rows(m.Architecture, 100, 5), random.At(1, random.Shuffle, 0, 1)
		got, _ := slopesOf(m.WithEmbedding(table), rows, permuted(&m.Architecture, rows, &stream), slices.Repeat([]float64{.5}, len(table)))
		for i, slope := range got.slopes {
			if equal[i] && slope != 0 {
				t.Errorf("%s: entry %d has the slope %v, expected 0", name, i, slope)
			}
		}
	}
}

// The columns that the network does not read get lower gates than the others. Without lambda their gates stay. With
// it, the first step of Adam moves theta by the learning rate. The training is repeatable.
func TestPlanted(t *testing.T) {
	c := planted.Default
	c.FieldDims = []int{30, 20, 10, 20, 6, 8, 12, 20, 10, 14}
	p, err := planted.New(c)
	if err != nil {
		t.Fatal(err)
	}
	var rows model.Rows
	p.Rows(&rows, 0, 6000)
	source := func(_ context.Context, each func(*model.Rows) error) error { return each(&rows) }
	run := func(o Options) []float64 {
		gates, err := Train(context.Background(), p.Model, source, o)
		if err != nil {
			t.Fatal(err)
		}
		return gates
	}
	o := Options{Lambda: 1, LearningRate: .1, Epochs: 3, Batch: 250, Seed: 1}
	gates := run(o)
	if !slices.Equal(gates, run(o)) {
		t.Error("a second training has other gates")
	}
	if o.Seed = 2; slices.Equal(gates, run(o)) {
		t.Error("another seed has the same gates")
	}
	var highest, mean float64 // of the columns that the network does not read, and of the others
	for i, g := range gates {
		if i%p.Model.Dim >= c.Informative {
			highest = max(highest, g)
		} else {
			mean += g * 2 / float64(len(gates))
		}
	}
	if mean < 10*highest {
		t.Errorf("the highest gate of an unread column is %v, and the mean of the others %v", highest, mean)
	}
	for lambda, want := range []float64{sigmoid(start), sigmoid(start - .1)} {
		for i, g := range run(Options{Lambda: float64(lambda), LearningRate: .1, Epochs: 1, Batch: rows.Len(), Seed: 1}) {
			if i%p.Model.Dim >= c.Informative && math.Abs(g-want) > 1e-3 {
				t.Fatalf("after one step with lambda %d, the gate of entry %d is %v, expected %v", lambda, i, g, want)
			}
		}
	}
	order, err := Order(p.Model, gates, p.Model.Zero())
	if err != nil {
		t.Fatal(err)
	}
	unread := 0
	for _, i := range order[:len(order)/2] {
		if int(i)%p.Model.Dim >= c.Informative {
			unread++
		}
	}
	if unread*100 < 95*len(order)/2 {
		t.Errorf("%d of the first %d entries are of columns that the network does not read, expected nearly all", unread, len(order)/2)
	}
}

// Order breaks ties by the distance from the baseline and then by position. Entries of pad rows come last.
func TestOrder(t *testing.T) {
	m := modeltest.ListModel("sum", 1)
	table, gates, base := make([]float32, m.Parameters()), slices.Repeat([]float64{.5}, m.Parameters()), m.Zero()
	for i := range base.Values {
		base.Values[i] = 2
	}
	gates[0], gates[7] = .1, .2 // entry 0 is of a pad row
	table[9] = 1.5              // the others are 2 from the baseline, without entry 9
	order, err := Order(m.WithEmbedding(table), gates, base)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(order); order[0] != 7 || order[1] != 9 || order[2] != 2 || order[3] != 3 || order[n-2] != 0 || order[n-1] != 1 {
		t.Errorf("the order is %v", order)
	}
}

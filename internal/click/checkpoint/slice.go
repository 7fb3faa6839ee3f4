package checkpoint

import (
	"maps"
	"slices"
	"strings"

	"shaver/internal/click/checkpoint/family"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

// Slice says which part of a model stays.
type Slice struct {
	Fields  []int // fields that stay, in ascending order
	Columns []int // columns that stay of the table, or of each table, in ascending order; none if Architecture.TableColumns is 0
}

// Sliced returns a smaller checkpoint that computes what c computes if everything that goes reads 0: the
// elements of the embedding, and the first-order weights of the fields. Its logits are those of c up to
// rounding. The table has fewer rows and columns, and the layers that read the embedding have fewer inputs. It
// is an ordinary checkpoint. A graph that reads the ids of a field that goes as numbers reads 0, or 1 if 0 is the pad id.
//
// A NeuMF that loses a field, and a graph whose logit is then the same for every row, are input errors.
func (c *Checkpoint) Sliced(s Slice) (*Checkpoint, error) {
	if a := &c.Architecture; !ascending(s.Fields, a.Fields(), 1) || !ascending(s.Columns, a.TableColumns(), min(a.TableColumns(), 1)) {
		panic("checkpoint: Sliced: invalid slice")
	}
	if c.graph != nil {
		return c.slicedGraph(&s)
	}
	l, err := c.state().Roles()
	if err != nil {
		return nil, err
	}
	if err := c.checkSlice(l, &s); err != nil {
		return nil, err
	}
	changed := *c
	changed.Tensors, changed.Keys = maps.Clone(c.Tensors), slices.Clone(c.Keys)
	changed.Compact, changed.Composed, changed.packed, changed.origin = nil, nil, nil, nil
	changed.Architecture.FieldDims, changed.Architecture.Dim = at(l.FieldDims, s.Fields), len(s.Columns)
	changed.Training = ""
	if c.Fields != nil {
		changed.Fields = at(c.Fields, s.Fields)
	}
	if c.Identities != nil {
		changed.Identities = at(c.Identities, s.Fields)
	}
	newKnife(&changed, l, &s).cut()
	changed.keepKeys()
	tensors := changed.state().Split()
	changed.aliases = maps.Clone(c.aliases)
	maps.DeleteFunc(changed.aliases, func(_, key string) bool { return tensors[key].Shape == nil })
	_, err = changed.state().Roles() // every tensor has the shape of the new architecture
	return &changed, err
}

// at returns the values at the given positions.
func at[T any](values []T, positions []int) []T {
	taken := make([]T, len(positions))
	for i, p := range positions {
		taken[i] = values[p]
	}
	return taken
}

// ascending reports whether positions are ascending numbers below n, and at least the given number of them.
func ascending(positions []int, n, least int) bool {
	for i, p := range positions {
		if p < 0 || p >= n || i > 0 && p <= positions[i-1] {
			return false
		}
	}
	return len(positions) >= least
}

// checkSlice returns an error if a model with the roles l cannot be cut to s.
func (c *Checkpoint) checkSlice(l *family.Roles, s *Slice) error {
	if l.Kind == model.NeuMF {
		if len(s.Fields) < l.Fields() {
			return c.inputf("a neumf multiplies its two fields, so it needs both: drop columns, or train a model of another kind")
		}
		half := 0
		for _, column := range s.Columns {
			if column < l.Dim/2 {
				half++
			}
		}
		if 2*half != len(s.Columns) {
			return c.inputf("a neumf keeps as many columns of its MLP as of its product, got %d and %d", half, len(s.Columns)-half)
		}
	}
	return nil
}

// knife cuts the tensors of a checkpoint.
type knife struct {
	to       *Checkpoint
	l        *family.Roles
	s        *Slice
	elements []int // elements of the embedding that stay
}

func newKnife(changed *Checkpoint, l *family.Roles, s *Slice) *knife {
	k := &knife{to: changed, l: l, s: s}
	for _, j := range s.Fields {
		for _, column := range s.Columns {
			k.elements = append(k.elements, j*l.Dim+column)
		}
	}
	return k
}

// take keeps the given positions of an axis of a tensor. A negative axis counts from the last one.
// The key is "" for a tensor that the model does not have.
func (k *knife) take(key string, axis int, positions []int) {
	if key == "" {
		return
	}
	t := k.to.Tensors[key]
	if axis < 0 {
		axis += len(t.Shape)
	}
	k.to.Tensors[key] = t.Take(axis, positions)
}

// cut removes what reads the elements that go.
func (k *knife) cut() {
	l := k.l
	rows := k.rows()
	k.take(l.Embedding, 0, rows)
	k.take(l.Embedding, 1, k.s.Columns)
	known := map[string]bool{l.Embedding: true}
	for j, key := range l.FirstOrder {
		known[key] = true
		if len(l.FirstOrder) == 1 {
			k.take(key, 0, rows)
		} else if !slices.Contains(k.s.Fields, j) {
			delete(k.to.Tensors, key)
		}
	}
	for key, t := range k.to.Tensors { // first-order weights that the model does not use
		if len(t.Shape) == 2 && t.Shape[0] == l.Features() && t.Shape[1] == 1 && !known[key] {
			k.take(key, 0, rows)
		}
	}
	for key, t := range k.to.Tensors {
		if key == "offsets" || strings.HasSuffix(key, ".offsets") { // behind the prefix of a wrapper
			var offsets []int64
			for _, first := range k.to.Architecture.Offsets() {
				offsets = append(offsets, int64(first))
			}
			shape := slices.Clone(t.Shape)
			shape[len(shape)-1] = len(offsets)
			k.to.Tensors[key] = tensor.FromInt64s(shape, offsets...)
		}
	}
	k.take(l.Linear, -1, k.elements)
	if l.Kind == model.NeuMF {
		k.take(l.Product, -1, k.half(l.Dim/2, l.Dim))
	}
	k.take(l.Gates, 1, k.elements)
	for i := range l.Mix {
		k.take(l.Mix[i].U, 2, k.elements)
		k.take(l.Mix[i].V, 1, k.elements)
		k.take(l.Mix[i].Bias, 1, k.elements)
	}
	for i := range l.Cross {
		if keys := &l.Cross[i]; !keys.Stacked || i == 0 {
			k.take(keys.Weight, -1, k.elements)
			k.take(keys.Weight, -2, k.elements)
			axis := 0 // of a bias [D] or [D, 1]
			if keys.Stacked {
				axis = 1 // [layers, D, 1]
			}
			k.take(keys.Bias, axis, k.elements)
		}
	}
	if len(l.Layers) > 0 {
		k.take(l.Layers[0].Weight, -1, k.inputs(k.elements))
	}
	if l.Structure == model.Parallel {
		positions := slices.Clone(k.elements) // the cross layers come first
		for i := l.Players(); i < k.to.Tensors[l.Output.Weight].Shape[1]; i++ {
			positions = append(positions, i)
		}
		k.take(l.Output.Weight, 1, positions)
	}
}

// rows returns the rows of the table that stay.
func (k *knife) rows() (rows []int) {
	offsets := k.l.Offsets()
	for _, j := range k.s.Fields {
		for i := range k.l.FieldDims[j] {
			rows = append(rows, int(offsets[j])+i)
		}
	}
	return rows
}

// half returns the positions, counted from the first one, of the columns in [from, to) that stay.
func (k *knife) half(from, to int) (positions []int) {
	for _, column := range k.s.Columns {
		if column >= from && column < to {
			positions = append(positions, column-from)
		}
	}
	return positions
}

// inputs returns the inputs of the first layer that read the given elements. The MLP of a NeuMF
// reads the first half of the columns only.
func (k *knife) inputs(elements []int) []int {
	if k.l.Kind != model.NeuMF {
		return elements
	}
	var inputs []int
	for _, element := range elements {
		if j, column := element/k.l.Dim, element%k.l.Dim; column < k.l.Dim/2 {
			inputs = append(inputs, j*k.l.Dim/2+column)
		}
	}
	return inputs
}

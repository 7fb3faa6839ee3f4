package family

import (
	"slices"
	"strconv"
	"strings"

	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

// familyRoles assigns roles to the tensors of a family's model, whose table is joined.
func (s *seeker) familyRoles(f *family, l *Roles) {
	l.Embedding = s.take(f.table, tensor.AnySize, tensor.AnySize)
	if s.err == nil {
		shape := s.shape(f.table)
		l.Dim = shape[1]
		s.checkRows(l.FieldDims, f.table, shape[0])
	}
	if s.err != nil {
		return
	}
	cross := f.hasCross(s)
	s.familyWide(f, l, cross)
	var mlp *mlpNames
	for i := range f.mlps {
		if m := &f.mlps[i]; s.hasGroup(m.linear) {
			if mlp != nil {
				s.fail("tensors %s* and %s* are two networks, expected one: %s", mlp.linear, m.linear, f.advice())
			}
			mlp = m
		}
	}
	if mlp == nil && cross {
		s.fail("there are cross layers, but no hidden layers: %s", f.advice())
	}
	if mlp == nil || s.err != nil {
		return
	}
	if cross {
		s.familyCross(f, l)
	}
	last := s.familyMLP(f, l, mlp, cross)
	if mlp.logit && !cross || s.err != nil {
		return
	}
	output := f.output
	if cross {
		output = f.crossOutput
	}
	if !s.has(output + "weight") {
		s.fail("tensor %sweight is missing: %s", output, f.advice())
		return
	}
	shape, in := s.shape(output+"weight"), last
	if cross {
		l.Structure = model.Stacked
		if len(shape) == 2 && shape[1] == last+l.Players() {
			l.Structure, in = model.Parallel, last+l.Players()
		}
		if mlp.structure != "" && l.Structure != mlp.structure {
			s.fail("tensor %s has shape %s, which does not fit a %s model: %s", s.keys[output+"weight"], tensor.ShapeText(shape), mlp.structure, f.advice())
		}
	}
	l.Output = LinearKeys{Weight: s.take(output+"weight", 1, in)}
	if s.has(output + "bias") {
		l.Output.Bias = s.take(output+"bias", 1)
	}
}

// familyWide takes the first-order weights and the bias, and sets the kind.
func (s *seeker) familyWide(f *family, l *Roles, cross bool) {
	deep := slices.ContainsFunc(f.mlps, func(m mlpNames) bool { return s.hasGroup(m.linear) })
	if cross {
		l.Kind = model.DCNv2
	}
	for i := range f.wide {
		w := &f.wide[i]
		if !s.hasAny(w.name()) && (!cross || !s.has(w.bias)) {
			continue
		}
		if cross && f.crossIsNotWide {
			s.ignore(w.firstOrder, w.bias)
			continue
		}
		if !cross {
			kinds := w.possible(deep)
			switch {
			case slices.Contains(kinds, s.kind):
				l.Kind = s.kind
			case len(kinds) == 1:
				l.Kind = kinds[0]
			default:
				s.fail("the kind must be given; %s", s.help())
			}
		}
		switch {
		case w.linear != "":
			l.Linear = s.take(w.linear, 1, l.Players())
		case strings.Contains(w.firstOrder, "*"):
			for j, field := range s.state.Fields {
				name := forField(w.firstOrder, field)
				if w.partial && !s.has(name) {
					l.FirstOrder = append(l.FirstOrder, "")
					continue
				}
				l.FirstOrder = append(l.FirstOrder, s.take(name, l.FieldDims[j], 1))
			}
		default:
			l.FirstOrder = []string{s.take(w.firstOrder, l.Features(), 1)}
		}
		if s.has(w.bias) {
			l.Bias = s.take(w.bias, 1)
		}
		return
	}
	if !cross {
		s.fail("tensor %s is missing; %s", f.wide[0].name(), s.help())
	}
}

// familyCross takes the cross layers.
func (s *seeker) familyCross(f *family, l *Roles) {
	players := l.Players()
	if f.cross.stacked {
		shape := s.shape(f.cross.weight)
		if len(shape) != 3 || shape[2] != players {
			s.fail("tensor %s has shape %s, expected [layers, %d, %d]: the cross layers have other weights, or other inputs than the tables; %s",
				s.keys[f.cross.weight], tensor.ShapeText(shape), players, players, f.advice())
			return
		}
		weight, bias := s.take(f.cross.weight, shape[0], players, players), s.take(f.cross.bias, shape[0], players, 1)
		for i := range shape[0] {
			l.Cross = append(l.Cross, LinearKeys{Weight: weight, Bias: bias, Stacked: true, Layer: i})
		}
		l.CrossLayers = shape[0]
		return
	}
	for ; s.err == nil && s.has(forLayer(f.cross.weight, l.CrossLayers)); l.CrossLayers++ {
		weight, bias := forLayer(f.cross.weight, l.CrossLayers), forLayer(f.cross.bias, l.CrossLayers)
		keys := LinearKeys{Weight: s.take(weight, players, players)}
		if len(s.shape(bias)) == 2 {
			keys.Bias = s.take(bias, players, 1)
		} else {
			keys.Bias = s.take(bias, players)
		}
		l.Cross = append(l.Cross, keys)
	}
}

// familyMLP takes the hidden layers and returns the width of the last one. If m.logit is
// set and the model has no cross layers, it also takes the output layer.
func (s *seeker) familyMLP(f *family, l *Roles, m *mlpNames, cross bool) int {
	in := l.Players()
	layers := s.linears(f, m)
	for i, layer := range layers {
		if s.err != nil {
			return in
		}
		shape := s.shape(layer.name + "weight")
		if i == 0 && len(shape) == 2 && shape[1] != in {
			s.fail("tensor %s reads %d values, but the tables of %d fields with %d columns give %d: the model has dense inputs, or tables that fields share, or another number of fields; %s",
				s.keys[layer.name+"weight"], shape[1], l.Fields(), l.Dim, in, f.advice())
			return in
		}
		if m.logit && !cross && i == len(layers)-1 {
			if i == 0 {
				s.fail("tensors %s* have no hidden layer: %s", m.linear, f.advice())
			}
			l.Output = s.linear(layer.name, in, 1)
			return in
		}
		in = s.hidden(l, layer.name, layer.norm, in)
	}
	return in
}

// linearNames are the beginnings of the names of a linear layer and its BatchNorm.
type linearNames struct{ name, norm string }

// linears returns the linear layers of an MLP. The positions in an nn.Sequential say
// whether something may stand between two layers.
func (s *seeker) linears(f *family, m *mlpNames) (all []linearNames) {
	if m.norm != "" {
		for i := 0; s.has(forLayer(m.linear+"#.weight", i)); i++ {
			layer := linearNames{name: forLayer(m.linear+"#.", i)}
			if norm := forLayer(m.norm+"#.", i); s.hasGroup(norm) {
				layer.norm = norm
			}
			all = append(all, layer)
		}
		return all
	}
	last := -2 // position of the last linear layer or BatchNorm
	for _, i := range s.positions(m.linear) {
		name := m.linear + strconv.Itoa(i) + "."
		switch {
		case s.has(name + "running_mean"):
			if len(all) == 0 || last != i-1 || all[len(all)-1].norm != "" {
				s.fail("tensor %s belongs to a BatchNorm that does not follow a linear layer: %s", s.keys[name+"running_mean"], f.advice())
				return nil
			}
			all[len(all)-1].norm = name
		case len(s.shape(name+"weight")) == 2:
			if last == i-1 {
				s.fail("tensor %s follows another layer without an activation: %s", s.keys[name+"weight"], f.advice())
				return nil
			}
			all = append(all, linearNames{name: name})
		default:
			s.fail("tensors %s* belong neither to a linear layer nor to a BatchNorm, perhaps to an activation with parameters: %s", name, f.advice())
			return nil
		}
		last = i
	}
	return all
}

// positions returns the numbers that follow prefix in the names of tensors, in ascending
// order.
func (s *seeker) positions(prefix string) (all []int) {
	seen := map[int]bool{}
	for _, name := range s.names {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		number, _, _ := strings.Cut(rest, ".")
		if i, err := strconv.Atoi(number); err == nil && i >= 0 && strconv.Itoa(i) == number && !seen[i] {
			seen[i] = true
			all = append(all, i)
		}
	}
	slices.Sort(all)
	return all
}

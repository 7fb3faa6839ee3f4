package family

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

// seeker looks up tensors by their names without prefixes. Its first failure stays in
// err, and after that it finds nothing.
type seeker struct {
	state *State
	names []string          // in the order of c.Keys
	keys  map[string]string // by name
	// groups are the beginnings of the names, up to and including each of the first
	// groupDepth dots.
	groups map[string]bool
	used   map[string]bool // names that were understood
	module bool            // the tensors are those of a pickled module
	trial  bool            // the names are a guess, so errors need no help
	kind   model.Kind      // kind that a source states; "" if none does
	// aliases are the keys of tensors that are other names of understood ones.
	aliases map[string]string
	parts   map[*byte]keyed // tables that were joined, by their first byte
	err     error
}

// keyed is a tensor with its key.
type keyed struct {
	key string
	tensor.Tensor
}

// groupDepth is the number of dots in the longest group that is looked up.
const groupDepth = 3

// seek starts the recognition of c.
func (st *State) seek() (*seeker, error) {
	s := &seeker{state: st, names: shortNames(st.Keys), keys: make(map[string]string, len(st.Keys)), groups: map[string]bool{}, used: map[string]bool{}, kind: st.Architecture.Kind}
	for i, key := range st.Keys {
		name := s.names[i]
		if other, ok := s.keys[name]; ok {
			return nil, st.inputf("tensors %s and %s have the same name without their prefixes", other, key)
		}
		s.keys[name] = key
		for end, dots := 0, 0; dots < groupDepth; dots++ {
			dot := strings.IndexByte(name[end:], '.')
			if dot < 0 {
				break
			}
			end += dot + 1
			s.groups[name[:end]] = true
		}
	}
	return s, nil
}

// ofTraining matches tensors that only a training uses: the number of averaged models, and the weights of a loss.
var ofTraining = regexp.MustCompile(`^n_averaged$|^(\w+\.)*(loss|loss_fn|loss_func|loss_function|criterion)\.\w+$|(^|\.)pos_weight$`)

// shortNames returns the keys without the prefixes that wrappers add. module. and
// _orig_mod. are removed from any key, and model. and net. only if all keys have them, except those of the training.
func shortNames(keys []string) []string {
	names := slices.Clone(keys)
	for again := len(names) > 0; again; {
		for i, name := range names {
			for {
				short := strings.TrimPrefix(strings.TrimPrefix(name, "_orig_mod."), "module.")
				if short == name {
					break
				}
				name = short
			}
			names[i] = name
		}
		again = false
		for _, prefix := range []string{"model.", "net."} {
			without := slices.ContainsFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) && !ofTraining.MatchString(name) })
			for i, name := range names {
				if !without && strings.HasPrefix(name, prefix) {
					names[i], again = name[len(prefix):], true
				}
			}
		}
	}
	return names
}

func (s *seeker) fail(format string, args ...any) {
	if s.err == nil {
		s.err = s.state.inputf(format, args...)
	}
}

func (s *seeker) has(name string) bool {
	_, ok := s.keys[name]
	return ok
}

// hasGroup reports whether a name begins with group, which ends with a dot.
func (s *seeker) hasGroup(group string) bool { return s.groups[group] }

// shape returns the shape of a tensor, or nil.
func (s *seeker) shape(name string) []int { return s.state.Tensors[s.keys[name]].Shape }

// take marks a tensor as understood and returns its key. The tensor must have floating-point numbers and the given
// shape, in which tensor.AnySize matches any size of at least 1.
func (s *seeker) take(name string, shape ...int) string {
	if s.err != nil {
		return ""
	}
	key, ok := s.keys[name]
	if !ok {
		dot := strings.LastIndexByte(name, '.') + 1
		original := name[:dot] + "parametrizations." + name[dot:] + ".original"
		for part, undo := range map[string]string{name + "_orig": "prune.remove", name + "_g": "remove_weight_norm", original: "parametrize.remove_parametrizations", original + "0": "parametrize.remove_parametrizations"} {
			if s.has(part) {
				s.fail("tensor %s is missing, because a parametrization or a mask computes it from %s: call torch.nn.utils.%s(module, %q) before you save the model", name, s.keys[part], undo, name[dot:])
			}
		}
		s.fail("tensor %s is missing, expected shape %s; %s", name, tensor.ShapeText(shape), s.help())
		return ""
	}
	s.used[name] = true
	found := s.state.Tensors[key].Shape
	if d := s.state.Tensors[key].DType; !d.Float() {
		s.fail("tensor %s has elements of type %s, expected floating-point numbers: if it is quantised or packed, dequantise it before you save the model", key, d)
	}
	fits := len(found) == len(shape)
	for i := 0; fits && i < len(shape); i++ {
		fits = shape[i] == found[i] || shape[i] == tensor.AnySize && found[i] > 0
	}
	if !fits {
		end := ""
		if f := s.state.familyOf(); f != nil {
			end = "; " + f.advice()
		}
		s.fail("tensor %s has shape %s, expected %s%s", key, tensor.ShapeText(found), tensor.ShapeText(shape), end)
		return ""
	}
	return key
}

// ignore marks tensors as understood and without effect on the logit.
func (s *seeker) ignore(names ...string) {
	for _, name := range names {
		if s.has(name) {
			s.used[name] = true
		}
	}
}

// embeddingName returns the name of the table's tensor.
func (s *seeker) embeddingName() string {
	const wrapped = "embedding._emb_module.weight"
	if s.has(wrapped) {
		return wrapped
	}
	return "embedding.weight"
}

// roles assigns a role to every tensor of a model whose fields have the given sizes.
func (s *seeker) roles(dims []int) (*Roles, error) {
	l := &Roles{Architecture: model.Architecture{FieldDims: dims}}
	if f := s.state.familyOf(); f != nil {
		s.familyRoles(f, l)
		return s.complete(l)
	}
	if s.hasTowers() {
		s.neuMF(l)
		return s.complete(l)
	}
	l.Embedding = s.take(s.embeddingName(), tensor.AnySize, tensor.AnySize)
	if s.err == nil {
		shape := s.shape(s.embeddingName())
		l.Dim = shape[1]
		s.checkRows(dims, s.embeddingName(), shape[0])
	}
	if s.err != nil {
		return nil, s.err
	}
	switch {
	case s.hasGroup("cross_head.U."), s.has("cross_head.gates"):
		l.Kind = model.DCNMix
		s.dcnMix(l)
	case s.hasGroup("cross_head.layers."):
		l.Kind = model.DCNv2
		s.dcnV2(l)
	case s.has("fc.weight"), s.hasGroup("_deep_branch."):
		l.Kind = model.FM
		s.wide(l)
		l.Bias = s.take("_bias", 1)
		s.ignore("linear_layer.weight", "linear_layer.bias") // in the reference model's state dict, but never used
		if s.hasGroup("_deep_branch.") {
			l.Kind = model.DeepFM
			if s.kind == model.WideDeep { // which has the same names
				l.Kind = s.kind
			}
			s.mlp(l, "_deep_branch.", true)
		}
	default:
		s.fail("not a known model; expected the tensors of an FM or DeepFM (fc.weight), DCN-Mix (cross_head.U.0), DCNv2 (cross_head.layers.0.weight) or NeuMF (_gmf.gmf_fc.weight); %s", s.help())
	}
	return s.complete(l)
}

// wide takes the first-order weights, which only a model with weights of the entries may
// lack, and the weights of the entries.
func (s *seeker) wide(l *Roles) {
	const entries = "_linear.weight"
	if s.has(entries) {
		l.Linear = s.take(entries, 1, l.Players())
	}
	if s.has("fc.weight") || l.Linear == "" && l.Kind != model.DCNv2 {
		l.FirstOrder = []string{s.take("fc.weight", l.Features(), 1)}
	}
}

// complete checks that every tensor has a role and that the architecture is valid.
func (s *seeker) complete(l *Roles) (*Roles, error) {
	s.checkOffsets(l)
	s.ignore(slices.DeleteFunc(slices.Clone(s.names), func(name string) bool { return !ofTraining.MatchString(name) })...)
	s.checkLeft()
	if s.err != nil {
		return nil, s.err
	}
	if err := l.Validate(); err != nil {
		return nil, s.state.inputf("recognised as %s: %w", l.Kind, err)
	}
	return l, nil
}

// checkRows checks the sizes of the fields against the rows of the named table.
func (s *seeker) checkRows(dims []int, table string, rows int) {
	sum := 0
	for j, size := range dims {
		if size < 1 || size > rows-sum {
			s.fail("field_dims[%d] is %d and the fields before it have %d features: expected sizes of at least 1 that sum to the %d rows of tensor %s",
				j, size, sum, rows, s.keys[table])
			return
		}
		sum += size
	}
	if sum != rows {
		s.fail("field_dims sum to %d, but tensor %s has %d rows", sum, s.keys[table], rows)
	}
}

func (s *seeker) dcnMix(l *Roles) {
	players := l.Players()
	shape := s.shape("cross_head.U.0")
	if len(shape) != 3 {
		s.take("cross_head.U.0", tensor.AnySize, tensor.AnySize, players)
		return
	}
	l.Experts, l.Rank = shape[0], shape[1]
	for ; s.err == nil && s.hasMix(l.CrossLayers); l.CrossLayers++ {
		layer := "." + strconv.Itoa(l.CrossLayers)
		l.Mix = append(l.Mix, MixKeys{
			U:    s.take("cross_head.U"+layer, l.Experts, l.Rank, players),
			C:    s.take("cross_head.C"+layer, l.Experts, l.Rank, l.Rank),
			V:    s.take("cross_head.V"+layer, l.Experts, players, l.Rank),
			Bias: s.take("cross_head.biases"+layer, 1, players),
		})
	}
	l.Gates = s.take("cross_head.gates", l.Experts, players, 1)
	s.mlp(l, "_dnn.", true)
}

// hasMix reports whether DCN-Mix layer i has any tensor.
func (s *seeker) hasMix(i int) bool {
	for _, part := range []string{"U", "C", "V", "biases"} {
		if s.has(fmt.Sprintf("cross_head.%s.%d", part, i)) {
			return true
		}
	}
	return false
}

func (s *seeker) dcnV2(l *Roles) {
	players := l.Players()
	if s.wide(l); s.has("_bias") {
		l.Bias = s.take("_bias", 1)
	}
	for ; s.err == nil && s.hasGroup(fmt.Sprintf("cross_head.layers.%d.", l.CrossLayers)); l.CrossLayers++ {
		l.Cross = append(l.Cross, s.linear(fmt.Sprintf("cross_head.layers.%d.", l.CrossLayers), players, players))
	}
	s.mlp(l, "_dnn.", false)
	if s.err != nil || len(l.Hidden) == 0 {
		return // Validate reports the missing hidden layers
	}
	last := l.Hidden[len(l.Hidden)-1]
	shape := s.shape("_last_fc.weight")
	l.Structure = model.Stacked
	if len(shape) == 2 && shape[1] == players+last {
		l.Structure = model.Parallel
		last += players
	} else if len(shape) == 2 && shape[1] != last {
		s.fail("tensor %s has shape %s, expected [1, %d] (stacked) or [1, %d] (parallel)", s.keys["_last_fc.weight"], tensor.ShapeText(shape), last, players+last)
	}
	l.Output = s.linear("_last_fc.", last, 1)
}

func (s *seeker) linear(prefix string, in, out int) LinearKeys {
	return LinearKeys{Weight: s.take(prefix+"weight", out, in), Bias: s.take(prefix+"bias", out)}
}

// mlp takes the layers of an nn.Sequential under prefix. They are Linear, optionally
// BatchNorm, ReLU, optionally Dropout, and so on. If toLogit is set, the last Linear
// gives the logit. Otherwise all layers are hidden.
func (s *seeker) mlp(l *Roles, prefix string, toLogit bool) {
	in := l.inputs()
	for i := 0; s.err == nil; {
		name := prefix + strconv.Itoa(i) + "."
		norm := prefix + strconv.Itoa(i+1) + "."
		if i += 2; s.hasGroup(norm) {
			i++
		} else {
			norm = ""
		}
		if !s.hasGroup(prefix + strconv.Itoa(i) + ".") {
			i++ // skip a Dropout, which has no tensors, or reach the end
		}
		more := s.hasGroup(prefix + strconv.Itoa(i) + ".")
		if toLogit && !more {
			l.Output = s.linear(name, in, 1)
			return
		}
		if !s.hasGroup(name) && !toLogit {
			return // only in the first iteration: there is no hidden layer
		}
		if in = s.hidden(l, name, norm, in); !more {
			return
		}
	}
}

// hidden takes a hidden layer with in inputs and, unless norm is empty, its BatchNorm. It returns the width of the layer.
func (s *seeker) hidden(l *Roles, name, norm string, in int) int {
	out := tensor.AnySize
	if shape := s.shape(name + "weight"); len(shape) == 2 {
		out = shape[0]
	}
	keys := s.linear(name, in, out)
	if norm != "" {
		keys.Norm = true
		keys.Gamma, keys.Beta = s.take(norm+"weight", out), s.take(norm+"bias", out)
		keys.Mean, keys.Variance = s.take(norm+"running_mean", out), s.take(norm+"running_var", out)
		s.ignore(norm + "num_batches_tracked")
	}
	l.Hidden, l.Layers = append(l.Hidden, out), append(l.Layers, keys)
	return out
}

// offsets returns the buffer with the first global id of each field, or nil.
func (s *seeker) offsets() []int {
	key, ok := s.keys["offsets"]
	if !ok {
		return nil
	}
	t := s.state.Tensors[key]
	if len(t.Shape) != 1 && (len(t.Shape) != 2 || t.Shape[0] != 1) || t.Elements() == 0 {
		s.fail("tensor %s has shape %s, expected [1, fields]", key, tensor.ShapeText(t.Shape))
		return nil
	}
	values, err := t.Ints()
	if err != nil {
		s.fail("tensor %s %w", key, err)
	}
	return values
}

// offsetDims returns the field sizes that follow from the offsets and the table's rows,
// or nil. The sizes may be wrong, which roles checks.
func (s *seeker) offsetDims() []int {
	offsets, shape := s.offsets(), s.shape(s.embeddingName())
	if s.err != nil || offsets == nil || len(shape) != 2 || offsets[0] != 0 {
		return nil
	}
	dims := make([]int, len(offsets))
	for j := range offsets {
		next := shape[0]
		if j+1 < len(offsets) {
			next = offsets[j+1]
		}
		dims[j] = next - offsets[j]
	}
	return dims
}

func (s *seeker) checkOffsets(l *Roles) {
	offsets := s.offsets()
	if s.err != nil || offsets == nil {
		return
	}
	s.ignore("offsets")
	want := l.Offsets()
	for j := range max(len(offsets), len(want)) {
		if j >= len(offsets) || j >= len(want) || offsets[j] != int(want[j]) {
			s.fail("tensor %s is %s, but field_dims %s give other offsets", s.keys["offsets"], sizesText(offsets), sizesText(l.FieldDims))
			return
		}
	}
}

// checkLeft fails at the first tensor that has no role.
func (s *seeker) checkLeft() {
	if s.err != nil || len(s.used) == len(s.keys) {
		return
	}
	names := make(map[string]string, len(s.keys))
	for name, key := range s.keys {
		names[key] = name
	}
	memory := map[*byte]keyed{} // understood tensors, by their first byte
	maps.Copy(memory, s.parts)
	for _, key := range s.state.Keys {
		if t := s.state.Tensors[key]; s.used[names[key]] && len(t.Data) > 0 {
			memory[&t.Data[0]] = keyed{key, t}
		}
	}
	for _, key := range s.state.Keys {
		if !s.used[names[key]] {
			if t := s.state.Tensors[key]; len(t.Data) > 0 && t.Same(memory[&t.Data[0]].Tensor) {
				if s.aliases == nil {
					s.aliases = map[string]string{}
				}
				s.aliases[key] = memory[&t.Data[0]].key
				continue
			}
			s.fail("tensor %s of shape %s belongs to no known layer and may change what the model computes: %s", key, tensor.ShapeText(s.state.Tensors[key].Shape), s.help())
			return
		}
	}
}

// dimsMissing returns the error for a file without field sizes.
func (s *seeker) dimsMissing() error {
	if s.err != nil {
		return s.err
	}
	table := s.embeddingName()
	shape := s.shape(table)
	if len(shape) != 2 {
		s.take(table, tensor.AnySize, tensor.AnySize)
		return s.err
	}
	return fault.Inputf("%s does not say its field sizes: write %s with a line like {\"field_dims\": [1000, 20, 7]}, one size per field, summing to the %d rows of tensor %s",
		s.state.Name, s.state.Sidecar, shape[0], s.keys[table])
}

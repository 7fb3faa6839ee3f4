package checkpoint

import (
	"cmp"
	"fmt"
	"io"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint/family"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

// readPTH reads a file of torch.save. The file holds a state dict or a whole module, alone
// or in a dict (see chooseStates). The dict may also hold model_config and field_dims.
// Lightning stores field_dims under "hyper_parameters". key chooses the state dict of a file
// with several; "" chooses none.
func readPTH(name string, r io.ReaderAt, size int64, key string, sidecar family.Lookup) (*Checkpoint, error) {
	c, said, config, err := parsePTH(name, r, size, key)
	if err != nil {
		return nil, err
	}
	return c, c.recognise(said, config, sidecar)
}

// parsePTH is readPTH without the recognition of the model. It also returns what the file says
// about the architecture.
func parsePTH(name string, r io.ReaderAt, size int64, key string) (c *Checkpoint, said []family.Statement, config family.Configuration, err error) {
	a, err := openArchive(name, r, size)
	if err != nil {
		return nil, nil, nil, err
	}
	if a.weights != nil {
		states, err := a.exported()
		if err != nil {
			return nil, nil, nil, err
		}
		return chooseParsed(a, states, key)
	}
	pickle, err := a.read(a.entries[a.root+"/data.pkl"], maxPickle)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	object, err := unpickle(name+": data.pkl", pickle)
	if err != nil {
		return nil, nil, nil, err
	}
	return chooseParsed(a, object, key)
}

// chooseParsed is parsePTH for a file whose object is unpickled.
func chooseParsed(a *archive, object any, key string) (c *Checkpoint, said []family.Statement, config family.Configuration, err error) {
	name := a.name
	all, err := candidates(object)
	if err != nil {
		return nil, nil, nil, fault.Inputf("%s %w", name, err)
	}
	chosen, found, err := chooseStates(name, all, key)
	if err != nil {
		return nil, nil, nil, err
	}
	top, _ := object.(*dict)
	if !found {
		if chosen, err = unlikely(name, object); err != nil {
			return nil, nil, nil, err
		}
	}
	states, module, err := chosen.states(name)
	if err != nil {
		return nil, nil, nil, err
	}
	if chosen.key != "" && top != nil {
		if said, config, err = a.statements(top); err != nil {
			return nil, nil, nil, err
		}
	}
	c = &Checkpoint{Tensors: map[string]Tensor{}, name: name, module: module != nil}
	if c.module {
		said, c.forward = append(said, *module), module.Forward
	}
	if err := a.fill(c, states); err != nil {
		return nil, nil, nil, err
	}
	return c, said, config, nil
}

// unlikely returns the dict that was probably meant as the state dict in a file without
// one. The error for this dict then says what is wrong.
func unlikely(name string, v any) (candidate, error) {
	top, ok := v.(*dict)
	if !ok {
		return candidate{}, fault.Inputf("%s holds %s, expected a state dict, or a dict with one under \"state_dict\"", name, describe(v))
	}
	for _, key := range stateKeys {
		inner, wrapped := top.get(key)
		if d, ok := inner.(*dict); ok {
			return candidate{key: key, value: d}, nil
		}
		if wrapped && key == "state_dict" {
			return candidate{}, fault.Inputf("%s: state_dict is %s, expected a dict of tensors", name, describe(inner))
		}
	}
	return candidate{value: top}, nil
}

// statements returns what the dict around a state dict says about the architecture. config is
// nil if the dict has no model_config.
func (a *archive) statements(top *dict) (said []family.Statement, config family.Configuration, err error) {
	v, _ := top.get("hyper_parameters")
	for i, in := range []*dict{top, cmp.Or(asDict(v), &dict{})} {
		name := []string{"", "hyper_parameters."}[i]
		more, err := a.fieldDims(in, name+"field_dims")
		if err != nil {
			return nil, nil, err
		}
		if key, activation := activationIn(in); key != "" {
			more = append(more, family.Statement{From: name + key, Activation: &activation})
		}
		said = append(said, more...)
	}
	if v, _ := top.get("model_config"); v != nil {
		d := asDict(v)
		if d == nil {
			return nil, nil, fault.Inputf("%s: model_config is %s, expected a dict", a.name, describe(v))
		}
		config = func(kind model.Kind) (*family.Statement, error) { return configStatement(d, kind) }
	}
	return said, config, nil
}

// rebuilt are the functions of torch that rebuild tensors of forms that are not read, and what to do about them.
var rebuilt = map[string]string{
	"torch._utils._rebuild_tensor_v3":              "its type, such as float8, is not read: save {k: v.float() for k, v in model.state_dict().items()}",
	"torch._utils._rebuild_sparse_tensor":          "it is sparse: save {k: v.to_dense() for k, v in model.state_dict().items()}",
	"torch._utils._rebuild_meta_tensor_no_storage": "it is on the device meta and has no values: load the weights before you save the model",
	"torch._utils._rebuild_qtensor":                "it is quantised: save v.dequantize() in its place",
}

// fill adds the tensors of a state dict to c.
func (a *archive) fill(c *Checkpoint, states *dict) error {
	latest := make(map[string]any, len(states.keys)) // a key that is set again keeps its place
	var keys []string
	for i, k := range states.keys {
		key, ok := k.(string)
		if !ok {
			return fault.Inputf("%s: the state dict has %s for a key", a.name, describe(k))
		}
		if _, ok := latest[key]; !ok {
			keys = append(keys, key)
		}
		latest[key] = states.values[i]
	}
	for _, key := range keys {
		if err := tensor.CheckKey(key); err != nil {
			return fault.Inputf("%s: %w", a.name, err)
		}
		ref, ok := latest[key].(*tensorRef)
		if !ok {
			advice := `save model.state_dict(), bare or in a dict under "state_dict"`
			if o, ok := latest[key].(*object); ok && rebuilt[o.class] != "" {
				advice = rebuilt[o.class]
			}
			return fault.Inputf("%s: %s is %s, expected a tensor with dense storage: %s", a.name, key, describe(latest[key]), advice)
		}
		t, err := a.tensor(ref)
		if err != nil {
			return fmt.Errorf("%s: tensor %s %w", a.name, key, err)
		}
		c.add(key, t)
	}
	return nil
}

// fieldDims returns the field sizes that a dict of the file gives, if any. Errors call them
// by the given name.
func (a *archive) fieldDims(in *dict, name string) ([]family.Statement, error) {
	v, _ := in.get("field_dims")
	if v == nil {
		return nil, nil
	}
	var dims []int
	var err error
	if ref, ok := v.(*tensorRef); ok {
		var t Tensor
		if t, err = a.tensor(ref); err == nil && len(t.Shape) != 1 {
			err = fault.Inputf("is a tensor of shape %s, expected one dimension", tensor.ShapeText(t.Shape))
		}
		if n := t.Elements(); err == nil && n > maxFields {
			err = tooMany(n)
		}
		if err == nil {
			dims, err = t.Ints()
		}
	} else {
		dims, err = intList(v)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s %w", a.name, name, err)
	}
	return []family.Statement{{From: name, FieldDims: dims}}, nil
}

package checkpoint

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint/family"
	"shaver/internal/click/tensor"
)

// object is an instance of a class that this package does not know. It is inert: its class
// is only a name, no code of the class runs, and its attributes are plain data.
type object struct {
	class string // "module.Class", or "" if the pickle does not name it
	state dict   // its attributes
	pairs dict   // its items, if it is a kind of dict
	list  list   // its items, if it is a kind of list or set
	form  tuple  // its state, if it is a tuple that only the class could read
}

// newObject returns the inert object that stands for function(*args). Nothing is called.
func newObject(function any, args tuple) *object {
	name, _ := function.(global)
	switch name {
	case "copyreg._reconstructor", "copy_reg._reconstructor", "copyreg.__newobj__", "copyreg.__newobj_ex__":
		if len(args) > 0 {
			if class, ok := args[0].(global); ok {
				name = class
			}
		}
	}
	o := &object{class: string(name)}
	switch name {
	case "__builtin__.set", "builtins.set", "__builtin__.frozenset", "builtins.frozenset": // as protocol 2 writes them
		if len(args) == 1 {
			if items, ok := args[0].(*list); ok {
				o.list.items = items.items
			}
		}
	}
	return o
}

// String names the object for an error.
func (o *object) String() string {
	switch {
	case o.class == "":
		return "an object"
	case isIdentifier(o.class):
		return "an object of " + o.class
	}
	return "an object of " + tensor.Quote(o.class)
}

func isIdentifier(name string) bool {
	return len(name) <= 120 && strings.IndexFunc(name, func(r rune) bool {
		return r != '.' && r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) < 0
}

// restore adds the attributes of a state in Python's default form, which is a dict or two
// of them. It keeps a tuple as it is, and ignores any other state, because only the class could
// read it.
func (u *unpickler) restore(o *object, state any) {
	parts := []any{state}
	if items, ok := state.(tuple); ok {
		if o.form = items; len(items) == 2 {
			parts = items
		}
	}
	for _, part := range parts {
		if d, ok := part.(*dict); ok && u.hold(2*len(d.keys)) {
			o.state.keys = append(o.state.keys, d.keys...)
			o.state.values = append(o.state.values, d.values...)
		}
	}
}

// asDict returns v if it is a dict. If v is an object, such as a Namespace, asDict
// returns its items, or its attributes if it has no items. Otherwise it returns nil.
func asDict(v any) *dict {
	switch v := v.(type) {
	case *dict:
		return v
	case *object:
		if len(v.pairs.keys) > 0 {
			return &v.pairs
		}
		return &v.state
	}
	return nil
}

// isModule reports whether o has the attributes of a torch.nn.Module.
func (o *object) isModule() bool {
	for _, attribute := range []string{"_modules", "_parameters", "_buffers"} {
		if v, _ := o.state.get(attribute); asDict(v) == nil {
			return false
		}
	}
	return true
}

var (
	// known matches the classes of torch and of frameworks. Any other class may compute anything.
	known = regexp.MustCompile(`^(torch|torchmetrics|deepctr_torch|fuxictr|recbole|torchfm|torch_rechub)\.`)
	// setting matches what describe says about a value that may change what a class computes. A sigmoid may be that of the output.
	setting = regexp.MustCompile(`(?i)^(a bool|the float .*|a tensor|a numpy array|.*\b([cgs]?elu|[gs]i?lu|r?relu6|[pr]relu|leaky_?relu|tanh\w*|hard\w+|soft(plus|sign|shrink)|mish|swish|dice)\W*)$`)
	// harmless matches attributes that change nothing in a trained model, or that its tensors show.
	harmless = regexp.MustCompile(`^(training|_is_full_backward_hook|\w*dropout\w*|lr|learning_rate|weight_decay|l[12]_\w+|init_std|(use_)?(bn|batch_?norm)|reduce_sum|(field_)?(offsets|dims|sizes)|` +
		`prepare_data_per_node|allow_zero_\w+|_log_hyperparams|_automatic_optimization|_strict_loading)$`) // of Lightning
)

// differs describes an attribute of a module that changes what a layer of its class usually computes, or that may do so in a class
// of the author's own. It returns "" without one.
func (o *object) differs() string {
	_, isNorm := o.state.get("track_running_stats")
	usual := map[string]any{"max_norm": nil, "track_running_stats": true, "eps": 1e-5}
	for _, attribute := range slices.Sorted(maps.Keys(usual)) {
		if v, ok := o.state.get(attribute); ok && v != usual[attribute] && (isNorm || attribute == "max_norm") {
			return fmt.Sprintf("%s %s, expected %s", attribute, describe(v), describe(usual[attribute]))
		}
	}
	named, activation := activationIn(&o.state)
	own := !known.MatchString(o.class)
	for i, key := range o.state.keys {
		name, _ := key.(string)
		if v := describe(o.state.values[i]); own && (name != "" && name == named && activation != "relu" || setting.MatchString(v) && !(isIdentifier(name) && harmless.MatchString(name))) {
			return fmt.Sprintf("the attribute %s, %s, which may change what it computes: save its state_dict() if it does not", tensor.Quote(name), v)
		}
	}
	for _, attribute := range []string{"_forward_hooks", "_forward_pre_hooks"} {
		if v, _ := o.state.get(attribute); v != nil && (asDict(v) == nil || len(asDict(v).keys) > 0) {
			return attribute + ", whose code is not read"
		}
	}
	return ""
}

// maxModuleDepth bounds the nesting of modules. A hostile module may contain itself.
const maxModuleDepth = 64

// flattening collects the state dict of a module.
type flattening struct {
	into    dict
	said    family.Statement // the classes of the modules
	modules int              // number of modules visited
	text    int              // bytes of all names
	items   int              // attributes and items of all modules, as often as they are visited
}

// add does what state_dict() of a module does. It appends the parameters and the
// persistent buffers of o and of the modules in it, in the order of PyTorch.
func (f *flattening) add(o *object, prefix string, depth int) error {
	if depth > maxModuleDepth {
		return fault.Inputf("holds modules that are nested more than %d deep", maxModuleDepth)
	}
	f.modules++
	f.text += len(prefix)
	f.items += len(o.state.keys)
	if f.modules > maxValues || len(f.into.keys) > maxValues || f.text > maxPickle || f.items > maxItems {
		return fault.Inputf("holds more than %d modules or tensors, names of more than %d bytes, or the same modules too often", maxValues, maxPickle)
	}
	path := strings.TrimSuffix(prefix, ".")
	f.said.Classes[path], f.said.Differs[path] = o.class, o.differs()
	if f.said.Forward == "" && !known.MatchString(o.class) {
		f.said.Forward = o.class
	}
	parts := map[string]*dict{}
	for _, attribute := range []string{"_modules", "_parameters", "_buffers"} {
		v, _ := o.state.get(attribute)
		if parts[attribute] = asDict(v); parts[attribute] == nil {
			return fault.Inputf("has a module %s whose %s is %s, expected a dict", tensor.Quote(prefix), attribute, describe(v))
		}
		f.items += len(parts[attribute].keys)
	}
	transient := map[string]bool{}
	v, _ := o.state.get("_non_persistent_buffers_set")
	if set, ok := v.(*object); ok {
		f.items += len(set.list.items)
		for _, item := range set.list.items {
			if name, ok := item.(string); ok {
				transient[name] = true
			}
		}
	}
	for _, attribute := range []string{"_parameters", "_buffers"} {
		for i, key := range parts[attribute].keys {
			name, ok := key.(string)
			if !ok {
				return fault.Inputf("has a module %s with %s for the name of a tensor", tensor.Quote(prefix), describe(key))
			}
			if v := parts[attribute].values[i]; v != nil && !transient[name] {
				f.text += len(prefix) + len(name)
				f.into.keys, f.into.values = append(f.into.keys, prefix+name), append(f.into.values, v)
			}
		}
	}
	for i, key := range parts["_modules"].keys {
		name, ok := key.(string)
		if !ok {
			return fault.Inputf("has a module %s with %s for the name of a module", tensor.Quote(prefix), describe(key))
		}
		switch child := parts["_modules"].values[i].(type) {
		case nil:
		case *object:
			if err := f.add(child, prefix+name+".", depth+1); err != nil {
				return err
			}
		default:
			return fault.Inputf("has a module %s that is %s", tensor.Quote(prefix+name), describe(child))
		}
	}
	return nil
}

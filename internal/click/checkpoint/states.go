package checkpoint

import (
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint/family"
	"shaver/internal/click/tensor"
)

// stateKeys are the keys under which training scripts usually store a state dict or a
// whole module.
var stateKeys = []string{"state_dict", "model_state_dict", "model_state", "state", "model"}

// candidate is a dict of tensors, or a whole module, that may be the model of a file.
type candidate struct {
	key   string // path of keys to it, joined by dots; "" = the file itself
	value any    // *dict or *object
	usual bool   // whether its key is one of stateKeys
}

func (c candidate) String() string {
	if c.key == "" {
		return "the file itself"
	}
	return tensor.Quote(c.key)
}

// maxCandidates bounds the candidates of a file. A hostile file may hold one dict under any
// number of keys.
const maxCandidates = 1 << 12

// candidates returns what may be the model's state dict in a file whose object is v.
func candidates(v any) (all []candidate, err error) {
	items := 0 // of all dicts, as often as they are visited
	var visit func(v any, key string, usual bool, depth int)
	visit = func(v any, key string, usual bool, depth int) {
		if o, ok := v.(*object); ok {
			if o.isModule() {
				all = append(all, candidate{key, o, usual})
			}
			return
		}
		d, ok := v.(*dict)
		if !ok {
			return
		}
		if items += len(d.keys); items > maxItems || len(all) > maxCandidates {
			err = fault.Inputf("holds the same dicts too often, or more than %d state dicts", maxCandidates)
			return
		}
		tensors := 0
		for _, value := range d.values {
			if _, ok := value.(*tensorRef); ok {
				tensors++
			}
		}
		if tensors > 0 && (tensors == len(d.values) || usual) {
			all = append(all, candidate{key, d, usual})
			return
		}
		if depth == 2 {
			return
		}
		seen := map[string]bool{}
		for i, k := range slices.Backward(d.keys) { // the last value of a key counts
			name, ok := k.(string)
			if !ok || seen[name] || err != nil {
				continue
			}
			seen[name] = true
			path := name
			if key != "" {
				path = key + "." + name
			}
			visit(d.values[i], path, slices.Contains(stateKeys, name), depth+1)
		}
	}
	visit(v, "", false, 0)
	slices.SortStableFunc(all, func(a, b candidate) int { return strings.Compare(a.key, b.key) })
	return all, err
}

// chooseStates returns the candidate with the given key. If key is "", it returns the
// only candidate under a usual key, or else the only candidate. It returns false if no
// candidate fits, and an error if the choice is not clear.
func chooseStates(name string, all []candidate, key string) (candidate, bool, error) {
	if key != "" {
		for _, c := range all {
			if c.key == key {
				return c, true, nil
			}
		}
		return candidate{}, false, fault.Inputf("%s holds no state dict under %s, but %s", name, tensor.Quote(key), listed(all))
	}
	likely := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return !c.usual })
	if len(likely) == 0 {
		likely = all
	}
	if len(likely) == 0 {
		return candidate{}, false, nil
	}
	for _, c := range all {
		if c.key != likely[0].key && (slices.Contains(likely, c) || sameKeys(c, likely[0])) {
			return candidate{}, false, fault.Inputf("%s holds %s: choose one with shaver model convert --state-dict KEY", name, listed(all))
		}
	}
	return likely[0], true, nil
}

// listed names the candidates for an error.
func listed(all []candidate) string {
	if len(all) == 0 {
		return "no state dict"
	}
	const most = 8
	var names []string
	for _, c := range all[:min(len(all), most)] {
		names = append(names, c.String())
	}
	if len(all) > most {
		names = append(names, "and more")
	}
	if len(all) == 1 {
		return "only " + names[0]
	}
	return "several state dicts: " + strings.Join(names, ", ")
}

// sameKeys reports whether two candidates are state dicts with the same keys, such as the
// weights of a model and their moving average.
func sameKeys(a, b candidate) bool {
	x, isDict := a.value.(*dict)
	y, alsoDict := b.value.(*dict)
	if !isDict || !alsoDict || x == y {
		return false
	}
	keys := map[any]bool{}
	for _, k := range x.keys {
		if name, ok := k.(string); ok {
			keys[name] = true
		}
	}
	for _, k := range y.keys {
		if name, ok := k.(string); !ok || !keys[name] {
			return false
		}
	}
	return len(x.keys) == len(y.keys)
}

// states returns the candidate as a state dict. For a whole module it also returns what the modules in it
// say.
func (c candidate) states(name string) (states *dict, module *family.Statement, err error) {
	o, ok := c.value.(*object)
	if !ok {
		return c.value.(*dict), nil, nil
	}
	f := flattening{said: family.Statement{From: "the pickled module", Classes: map[string]string{}, Differs: map[string]string{}}}
	if err := f.add(o, "", 0); err != nil {
		return nil, nil, fault.Inputf("%s %w", name, err)
	}
	return &f.into, &f.said, nil
}

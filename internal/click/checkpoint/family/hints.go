package family

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

// namesHelp is added to errors about models whose layers have other names.
const namesHelp = "shaver model inspect --help lists the tensor names of each model; a model with other layers is read from ONNX, so export it: shaver model export-help"

// Bounds of the help for a refused file.
const (
	listedTensors = 4    // tensors that are listed
	listedLetters = 80   // letters of a tensor's name
	triedTensors  = 4096 // a file with more tensors is not compared with the layouts
	triedFields   = 4096 // largest number of fields in such a comparison
)

// help lists the tensors of the file. If a renaming makes the file a known model, help also
// describes the renaming. Otherwise it says where to find the names.
func (s *seeker) help() string {
	if s.trial {
		return ""
	}
	if f := s.state.familyOf(); f != nil {
		return f.advice()
	}
	var listed []string
	for _, key := range s.state.Keys[:min(len(s.state.Keys), listedTensors)] {
		name := key
		if len(name) > listedLetters {
			name = strings.ToValidUTF8(name[:listedLetters], "") + "..."
		}
		listed = append(listed, name+" "+tensor.ShapeText(s.state.Tensors[key].Shape))
	}
	text := fmt.Sprintf("the file has %d tensors", len(s.state.Keys))
	if more := len(s.state.Keys) - len(listed); more > 0 {
		listed = append(listed, fmt.Sprintf("%d more", more))
	}
	if len(listed) > 0 {
		text += " (" + strings.Join(listed, ", ") + ")"
	}
	return text + "; " + s.advice()
}

// titles are the names of the models with their articles.
var titles = map[model.Kind]string{model.FM: "an FM", model.DeepFM: "a DeepFM", model.DCNMix: "a DCN-Mix", model.DCNv2: "a DCNv2", model.WideDeep: "a WideDeep", model.NeuMF: "a NeuMF"}

// advice returns the renaming that makes the tensors those of a known model. Without one
// it returns namesHelp.
func (s *seeker) advice() string {
	if len(s.keys) > triedTensors {
		return namesHelp
	}
	var models []string // what the prefixes have
	others := slices.Clone(s.state.Keys)
	for _, prefix := range s.prefixes() {
		if title := s.try(prefix, nil); title != "" {
			models = append(models, fmt.Sprintf("those with the prefix %s are those of %s", prefix, title))
			others = slices.DeleteFunc(others, func(key string) bool { return strings.HasPrefix(key, prefix) })
			if len(others) == 0 && len(models) == 1 {
				return fmt.Sprintf("without the prefix %s they are those of %s: save {k.removeprefix(%q): v for k, v in model.state_dict().items()}", prefix, title, prefix)
			}
		}
	}
	if title := (&State{Keys: others, Tensors: s.state.Tensors}).title(); title != "" && models != nil {
		models = append(models, "the others are those of "+title)
	}
	if len(models) > 1 {
		return strings.Join(models, ", and ") + ": save only those of the model to score, as in {k.removeprefix(p): v for k, v in model.state_dict().items() if k.startswith(p)} with its prefix p"
	} else if models != nil {
		return fmt.Sprintf("%s, but not %s: save only those with the prefix if the others do not change the logit", models[0], strings.Join(others[:min(len(others), listedTensors)], ", "))
	}
	for _, renamings := range s.renamings() {
		if title := s.try("", renamings); title != "" {
			var parts []string
			for _, r := range renamings {
				if r.from != r.to {
					parts = append(parts, r.String())
				}
			}
			return fmt.Sprintf("they are those of %s if you rename %s when you save the state dict", title, strings.Join(parts, ", "))
		}
	}
	return namesHelp
}

// renaming replaces the beginning of names, or a whole name.
type renaming struct{ from, to string }

func (r renaming) String() string {
	if strings.HasSuffix(r.from, ".") {
		return r.from + "* to " + r.to + "*"
	}
	return r.from + " to " + r.to
}

// try returns the title of the tensors whose keys begin with prefix, without it or, if it is empty, after the renamings.
func (s *seeker) try(prefix string, renamings []renaming) string {
	renamed := &State{Tensors: map[string]tensor.Tensor{}}
	for i, key := range s.state.Keys {
		to, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		} else if prefix == "" {
			to = s.names[i]
		}
		for _, r := range renamings {
			if rest, ok := strings.CutPrefix(to, r.from); ok && (rest == "" || strings.HasSuffix(r.from, ".")) {
				to = r.to + rest
				break
			}
		}
		renamed.Keys = append(renamed.Keys, to)
		renamed.Tensors[to] = s.state.Tensors[key]
	}
	return renamed.title()
}

// title names the model whose tensors are in st, or the framework that names them so. It returns "" for other tensors. It guesses
// the sizes of the fields.
func (st *State) title() string {
	s, err := st.seek()
	if err != nil {
		return ""
	}
	if f := s.seekFamily(); f != nil && (f.hasCross(s) || slices.ContainsFunc(f.wide, func(w wideNames) bool { return s.hasAny(w.name()) })) {
		return "a model of " + f.name
	} else if s.hasTowers() {
		return titles[model.NeuMF]
	}
	for _, dims := range st.guessDims() {
		t, _ := st.seek() // as before
		t.trial = true
		if l, err := t.roles(dims); err == nil {
			return titles[l.Kind]
		}
	}
	return ""
}

// guessDims returns field sizes that the table may have: those of the offsets, or else some
// for each number of fields that fits the width of another tensor.
func (st *State) guessDims() (all [][]int) {
	s, err := st.seek()
	if err != nil {
		return nil
	}
	s.trial = true
	if dims := s.offsetDims(); dims != nil {
		return [][]int{dims}
	}
	table := s.shape(s.embeddingName())
	if len(table) != 2 || table[1] < 1 {
		return nil
	}
	seen := map[int]bool{}
	add := func(fields int) {
		if fields < 1 || fields > min(table[0], triedFields) || seen[fields] || len(seen) == 8 {
			return
		}
		seen[fields] = true
		dims := slices.Repeat([]int{1}, fields)
		dims[0] = table[0] - fields + 1
		all = append(all, dims)
	}
	for _, key := range st.Keys {
		if shape := st.Tensors[key].Shape; len(shape) >= 2 && key != s.embeddingName() {
			for _, size := range shape[1:] {
				if size%table[1] == 0 {
					add(size / table[1])
				}
			}
		}
	}
	add(1)
	return all
}

// prefixes returns beginnings of keys that a wrapper may have added, such as "model.".
func (s *seeker) prefixes() (all []string) {
	tables := []string{"embedding.weight", "embedding._emb_module.weight", "_gmf.gmf_fc.weight"}
	for _, f := range families {
		tables = append(tables, f.table)
	}
	for _, key := range s.state.Keys {
		for at := range len(key) {
			isTable := func(table string) bool { return key[at+1:] == table || fieldOf(table, key[at+1:]) != "" }
			if key[at] == '.' && slices.ContainsFunc(tables, isTable) && !slices.Contains(all, key[:at+1]) {
				all = append(all, key[:at+1])
			}
		}
	}
	return all[:min(len(all), 4)]
}

// layer matches a tensor of an nn.Sequential or of an nn.ModuleList.
var layer = regexp.MustCompile(`^(.*\.)?\d+\.(weight|bias|running_mean|running_var|num_batches_tracked)$`)

// renamings returns the renamings that may turn the names into ours, guessed from the
// shapes of the tensors. It returns one list for each model whose parts may be in the file.
func (s *seeker) renamings() (all [][]renaming) {
	names := slices.Sorted(maps.Keys(s.keys))
	table, rows := "", 0
	for _, name := range names {
		if shape := s.shape(name); len(shape) == 2 && shape[1] > 1 && shape[0] > rows && !layer.MatchString(name) {
			table, rows = name, shape[0]
		}
	}
	if table == "" {
		return nil
	}
	common := []renaming{{table, "embedding.weight"}}
	var groups []string // groups of layers
	cross, head := "", ""
	for _, name := range names {
		shape := s.shape(name)
		group := ""
		if m := layer.FindStringSubmatch(name); m != nil {
			group = m[1]
		}
		switch {
		case name == table || strings.HasPrefix(name, "linear_layer."): // which roles ignores
		case strings.HasSuffix(name, ".offsets"):
			common = append(common, renaming{name, "offsets"})
		case group != "":
			if !slices.Contains(groups, group) {
				groups = append(groups, group)
			}
			if len(shape) == 2 && shape[0] == shape[1] && strings.Contains(group, "cross") {
				cross = group
			}
		case len(shape) == 2 && shape[0] == rows && shape[1] == 1:
			common = append(common, renaming{name, "fc.weight"})
		case len(shape) == 1 && shape[0] == 1 && !strings.HasSuffix(name, "fc.bias"):
			common = append(common, renaming{name, "_bias"})
		case len(shape) == 2 && shape[0] == 1 && strings.HasSuffix(name, ".weight"):
			head = strings.TrimSuffix(name, "weight")
		}
		for _, part := range []string{"U.", "C.", "V.", "biases."} { // layers of DCN-Mix
			if at := strings.LastIndex(name, "."+part); at > 0 && len(shape) >= 2 && !slices.Contains(common, renaming{name[:at+1], "cross_head."}) {
				common = append(common, renaming{name[:at+1], "cross_head."})
			}
		}
	}
	switch {
	case cross != "" && head != "":
		common = slices.DeleteFunc(common, func(r renaming) bool { return r.to == "_bias" })
		common = append(common, renaming{cross, "cross_head.layers."}, renaming{head, "_last_fc."})
		groups = slices.DeleteFunc(groups, func(group string) bool { return group == cross })
	case len(groups) == 0:
		return [][]renaming{common}
	}
	for _, group := range groups[:min(len(groups), 4)] {
		for _, own := range []string{"_deep_branch.", "_dnn."} {
			all = append(all, append(slices.Clone(common), renaming{group, own}))
		}
	}
	return all
}

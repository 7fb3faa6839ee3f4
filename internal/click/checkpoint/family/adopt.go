package family

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

// adopt makes the state one of family f. It joins the tables of the fields, and returns
// the sizes of the fields. The error asks for what neither the tensors nor said contain.
func (s *seeker) adopt(f *family, said []Statement) ([]int, error) {
	c := s.state
	c.Family = f.name
	a := &asked{s: s, f: f}
	for i := range said {
		a.take(&said[i])
	}
	if err := a.checkNames(); err != nil {
		return nil, err
	}
	for _, foreign := range f.foreign {
		for _, name := range s.names {
			if name == foreign.name || strings.HasSuffix(foreign.name, ".") && strings.HasPrefix(name, foreign.name) {
				return nil, c.inputf("tensor %s belongs to %s: %s", s.keys[name], foreign.what, f.advice())
			}
		}
	}
	dims, err := a.sizes()
	if err != nil {
		return nil, err
	}
	if a.kind(); s.err != nil {
		return nil, s.err
	}
	if !f.onlyReLU && !slices.ContainsFunc(said, func(s Statement) bool { return s.Activation != nil }) && slices.ContainsFunc(f.mlps, func(m mlpNames) bool { return s.hasGroup(m.linear) }) {
		a.ask("which activation its hidden layers have", `"activation": "relu"`)
	}
	if err := a.err(); err != nil {
		return nil, err
	}
	c.Fields, c.Mapped = a.fields, a.mappedAll
	if strings.Contains(f.table, "*") && !s.has(f.table) {
		return dims, s.join(f)
	}
	return dims, nil
}

// takeClasses adds to a statement what its classes say.
func (s *seeker) takeClasses(f *family, said *Statement) {
	prefix := "" // of wrappers
	if len(s.names) > 0 {
		prefix = strings.TrimSuffix(s.state.Keys[0], s.names[0])
	}
	own := make(map[string]string, len(said.Classes))
	for path, class := range said.Classes {
		if inner, ok := strings.CutPrefix(path+".", prefix); ok {
			own[strings.TrimSuffix(inner, ".")] = class
		}
	}
	kind, activation := f.classes(own)
	if kind != "" {
		said.Kind = &kind
	}
	if activation != "" {
		said.Activation = &activation
	}
	s.module = true
}

// asked collects what the file does not say about a model of family f.
type asked struct {
	s         *seeker
	f         *family
	fields    []string // names of the fields; nil if unknown
	dims      []int
	said      model.Kind
	kindFrom  string // source of said
	file      string // name of the JSON file next to the state dict; "" if it does not exist
	features  []Feature
	mappedAll bool     // whether features describe all fields
	missing   []string // what is not known
	lines     []string // what the JSON file has to hold
}

// take adds what one source says.
func (a *asked) take(s *Statement) {
	if a.said == "" && s.Kind != nil {
		a.said, a.kindFrom = model.Kind(normal(string(*s.Kind))), s.From
	}
	if s.File != "" {
		a.file = s.File
	}
	if a.fields == nil {
		a.fields = s.FieldNames
	}
	if a.dims == nil {
		a.dims = s.FieldDims
	}
	if a.features == nil {
		a.features = s.Features
	}
}

func (a *asked) ask(what, line string) {
	a.missing, a.lines = append(a.missing, what), append(a.lines, line)
}

// err returns an error that says what is missing and how to say it.
func (a *asked) err() error {
	if a.missing == nil {
		return nil
	}
	do := "write " + a.s.state.Sidecar + " with what is true"
	if a.file != "" {
		do = "add what is true to " + a.file
	}
	form := "state dict"
	if a.s.module {
		form = "module"
	}
	return fault.Inputf("%s is a %s of %s, which does not say %s: %s, for example {%s}; %s",
		a.s.state.Name, form, a.f.name, strings.Join(a.missing, ", nor "), do, strings.Join(a.lines, ", "), a.f.otherwise())
}

// sizes finds the fields, their order and their sizes.
func (a *asked) sizes() ([]int, error) {
	s, c := a.s, a.s.state
	if !strings.Contains(a.f.table, "*") {
		if a.dims == nil {
			shape := s.shape(a.f.table)
			if len(shape) != 2 {
				s.take(a.f.table, tensor.AnySize, tensor.AnySize)
				return nil, s.err
			}
			a.ask(fmt.Sprintf("the sizes of its fields, which sum to the %d rows of tensor %s", shape[0], s.keys[a.f.table]), `"field_dims": [1000, 20, 7]`)
		}
		if a.fields != nil && a.dims != nil && len(a.fields) != len(a.dims) {
			return nil, c.inputf("field_names has %d names, but field_dims has %d sizes", len(a.fields), len(a.dims))
		}
		return a.dims, nil
	}
	if s.has(a.f.table) {
		return a.dims, a.joined()
	}
	found := s.fieldsOf(a.f.table)
	switch {
	case a.fields != nil:
		if err := a.order(found); err != nil {
			return nil, err
		}
	case a.features != nil:
		if err := a.mapped(found); err != nil {
			return nil, err
		}
		a.mappedAll = true
	default:
		if a.fields = Numbered(found); a.fields != nil && a.f == &listed {
			break
		}
		a.fields = found
		if c.Unordered && len(found) > 1 {
			quoted, _ := json.Marshal(found) // strings do not fail
			a.ask("the order of its fields, because safetensors sorts them", `"field_names": `+string(quoted))
		}
	}
	dims := make([]int, len(a.fields))
	for j, field := range a.fields {
		name := forField(a.f.table, field)
		if shape := s.shape(name); len(shape) != 2 {
			s.take(name, tensor.AnySize, tensor.AnySize)
			return nil, s.err
		} else if dims[j] = shape[0]; dims[j] < 1 {
			return nil, c.inputf("tensor %s has no rows", s.keys[name])
		}
	}
	return dims, nil
}

// joined checks the fields of a compact file, in which the tables are joined.
func (a *asked) joined() error {
	c := a.s.state
	switch {
	case !c.Compact:
		return c.inputf("tensor %s has no field in its name", a.s.keys[a.f.table])
	case len(a.fields) != len(a.dims):
		return c.inputf("metadata %s has %d fields, but there are %d field sizes", MetadataKey, len(a.fields), len(a.dims))
	}
	for _, field := range a.fields {
		if strings.ContainsAny(field, ".*") {
			return c.inputf("metadata %s has the field %s, expected a name without a dot and without *", MetadataKey, tensor.Quote(field))
		}
	}
	return nil
}

// checkNames checks that the names of fields are printable and differ.
func (a *asked) checkNames() error {
	seen := make(map[string]bool, len(a.fields))
	for _, field := range a.fields {
		if tensor.CheckKey(field) != nil {
			return a.s.state.inputf("the fields' names have %s: expected printable text of 1 to 1024 bytes", tensor.Quote(field))
		}
		if seen[field] {
			return a.s.state.inputf("the fields' names have %s twice", tensor.Quote(field))
		}
		seen[field] = true
	}
	return nil
}

// order checks that the fields that a source names are those with tables.
func (a *asked) order(found []string) error {
	named := make(map[string]bool, len(a.fields))
	for _, field := range a.fields {
		name := forField(a.f.table, field)
		if !a.s.has(name) {
			return a.s.state.inputf("field_names has %s, but there is no tensor %s", tensor.Quote(field), name)
		}
		named[field] = true
	}
	for _, field := range found {
		if !named[field] {
			return a.s.state.inputf("field_names lacks %s, whose table is tensor %s", tensor.Quote(field), a.s.keys[forField(a.f.table, field)])
		}
	}
	return nil
}

// kind determines whether the user has to state the kind.
func (a *asked) kind() {
	s, f := a.s, a.f
	deep := slices.ContainsFunc(f.mlps, func(m mlpNames) bool { return s.hasGroup(m.linear) })
	for _, wide := range f.wide {
		if f.hasCross(s) || !s.hasAny(wide.name()) {
			continue
		}
		kinds := wide.possible(deep)
		if len(kinds) > 1 || len(kinds) == 1 && !deep && wide.unsure {
			if slices.Contains(kinds, a.said) {
				s.kind = a.said
				return
			}
			what := "whether it is an FM or a model without pairs"
			if deep {
				what = "whether it is a DeepFM or a WideDeep"
			}
			if a.said != "" {
				s.fail("%s says kind %s, but these tensors of %s are read only as %s: %s", a.kindFrom, tensor.Quote(string(a.said)), f.name, either(kinds), f.otherwise())
				return
			}
			a.ask(what, fmt.Sprintf("%q: %q", "kind", kinds[0]))
		}
	}
	if a.said != "" && titles[a.said] == "" {
		s.fail("%s says kind %s, which shaver does not read from a state dict of %s: %s", a.kindFrom, tensor.Quote(string(a.said)), f.name, f.advice())
	}
}

// either lists kinds.
func either(kinds []model.Kind) string {
	var names []string
	for _, kind := range kinds {
		names = append(names, tensor.Quote(string(kind)))
	}
	return strings.Join(names, " or ")
}

// join replaces the tables of the fields by one table, [n, d], under the key that has a *
// for the name of the field.
func (s *seeker) join(f *family) error {
	c := s.state
	var joined string // key of the joined table
	var first tensor.Tensor
	rows, size := 0, 0
	var tables []keyed
	for j, field := range c.Fields {
		name := forField(f.table, field)
		key := s.keys[name]
		t := c.Tensors[key]
		own := strings.TrimSuffix(key, name) + f.table
		if j == 0 {
			joined, first = own, t
		}
		switch {
		case own != joined:
			return c.inputf("tensors %s and %s have different prefixes", s.keys[forField(f.table, c.Fields[0])], key)
		case t.Shape[1] != first.Shape[1]:
			if f == &fuxiCTR && (t.Shape[1] == 1 || first.Shape[1] == 1) {
				return c.inputf("tensor %s has shape %s, and the table of field %s has %d columns: one of them is the projection of a numeric feature; %s",
					key, tensor.ShapeText(t.Shape), tensor.Quote(c.Fields[0]), first.Shape[1], f.advice())
			}
			return c.inputf("tensor %s has %d columns, and the table of field %s has %d: expected equal widths; %s", key, t.Shape[1], tensor.Quote(c.Fields[0]), first.Shape[1], f.advice())
		case f == &fuxiCTR && !c.Mapped && len(t.Data) == t.DType.Size(): // a categorical feature has two ids of FuxiCTR's own
			return c.inputf("tensor %s has one value, like the projection of a numeric feature: copy FuxiCTR's %s to the same folder if the feature is categorical, or %s", key, FeatureMap, f.advice())
		case t.DType != first.DType:
			return c.inputf("tensor %s has the type %s, and the table of field %s has %s: expected one type for all tables", key, t.DType, tensor.Quote(c.Fields[0]), first.DType)
		}
		tables = append(tables, keyed{key, t})
		rows += t.Shape[0]
		size += len(t.Data)
	}
	s.parts = make(map[*byte]keyed, len(tables))
	for _, e := range tables {
		if len(e.Data) > 0 {
			s.parts[&e.Data[0]] = e
		}
	}
	if err := c.checkApart(tables); err != nil {
		return err
	}
	data := make([]byte, 0, size) // at most the size of the file, because no two tables share memory
	for _, e := range tables {
		data = append(data, e.Data...)
	}
	for j, field := range c.Fields {
		key := s.keys[forField(f.table, field)]
		delete(c.Tensors, key)
		if j == 0 {
			c.Keys[slices.Index(c.Keys, key)] = joined
		}
	}
	c.Tensors[joined] = tensor.Tensor{DType: first.DType, Shape: []int{rows, first.Shape[1]}, Data: data}
	c.keepKeys()
	return nil
}

// checkApart returns an error if tables of two fields share memory. The tables of a hostile
// file could otherwise be much larger together than the file.
func (st *State) checkApart(tables []keyed) error {
	sorted := slices.SortedFunc(slices.Values(tables), func(a, b keyed) int { return cmp.Compare(a.Address(), b.Address()) })
	for i := 1; i < len(sorted); i++ {
		a, b := sorted[i-1], sorted[i]
		if len(b.Data) > 0 && a.Address()+uintptr(len(a.Data)) > b.Address() {
			return st.inputf("tensors %s and %s share memory, as if two fields had one table, which is not supported yet", min(a.key, b.key), max(a.key, b.key))
		}
	}
	return nil
}

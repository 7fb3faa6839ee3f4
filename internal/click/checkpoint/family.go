package checkpoint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint/tensor"
	"shaver/internal/click/model"
)

// family describes how one framework names the tensors of the kinds that shaver has. In
// the names of tables, * stands for the name of a field. In the names of layers, # stands
// for the number of a layer.
type family struct {
	name  string // name of the framework
	guide string // the framework's name for "shaver model export-help --for"
	// table is the name of the embedding table. If it has a *, each field has a table of
	// its own.
	table string
	wide  []wideNames
	cross crossNames // cross layers of DCNv2
	mlps  []mlpNames
	// output is the name of the layer that gives the logit, up to the last dot, if the MLP
	// does not contain that layer. crossOutput is the same for DCNv2.
	output, crossOutput string
	// onlyReLU is true if the framework has no other activation for these models.
	onlyReLU bool
	// crossIsNotWide is true if a DCNv2 has first-order weights that it does not use.
	crossIsNotWide bool
	// foreign names tensors that only other models have. A name that ends with a dot stands
	// for all names that begin with it.
	foreign []foreignName
}

// wideNames are the weights of the wide part of a model.
type wideNames struct {
	firstOrder string // first-order weights, like family.table; "" in a model without them
	linear     string // weights of the entries, [1, D]; "" in a model without them
	bias       string
	// kinds are the kinds of models that have such weights. If several of them fit the
	// network, or unsure is set, the user has to state the kind.
	kinds   []model.Kind
	unsure  bool // whether a model that looks like an FM may have no pairwise term
	partial bool // whether fields may lack first-order weights
}

// crossNames are cross layers. The shape of bias is [D] or [D, 1].
type crossNames struct {
	weight, bias string
	stacked      bool // whether the two tensors hold all layers, [layers, D, D] and [layers, D, 1]
}

// mlpNames are the hidden layers.
type mlpNames struct {
	linear string // beginning of the names of an nn.Sequential or, with norm, of its linear layers
	norm   string // beginning of the names of the BatchNorms; "" in an nn.Sequential
	// logit is true if the last linear layer gives the logit.
	logit bool
	// structure is that of a DCNv2 with these layers, or "" if the widths decide.
	structure string
}

type foreignName struct{ name, what string }

// families are the frameworks whose state dicts are recognised.
var families = []*family{&fuxiCTR, &deepCTRTorch, &recBole, &pytorchFM, &torchRechub}

// Families returns the names of the frameworks whose state dicts Read recognises.
func Families() []string {
	var names []string
	for _, f := range families {
		names = append(names, f.name)
	}
	return names
}

// seekFamily returns the framework of the tensors, or nil if the names are ours or unknown.
func (s *seeker) seekFamily() *family {
	if s.has(s.embeddingName()) {
		return nil
	}
	for _, f := range families {
		if s.has(f.table) || len(s.fieldsOf(f.table)) > 0 {
			return f
		}
	}
	return nil
}

// familyOf returns the framework of a recognised checkpoint, or nil.
func (c *State) familyOf() *family {
	for _, f := range families {
		if f.name == c.Family {
			return f
		}
	}
	return nil
}

// advice says what to do with a model of another kind.
func (f *family) advice() string {
	return fmt.Sprintf("export the model to ONNX (shaver model export-help --for %s)", f.guide)
}

// fieldOf returns the part of name that stands for the * of pattern. It returns "" if name
// does not match.
func fieldOf(pattern, name string) string {
	before, after, ok := strings.Cut(pattern, "*")
	if !ok || len(name) <= len(before)+len(after) || !strings.HasPrefix(name, before) || !strings.HasSuffix(name, after) {
		return ""
	}
	field := name[len(before) : len(name)-len(after)]
	if strings.ContainsAny(field, ".*") { // a module's name has no dot
		return ""
	}
	return field
}

// forField replaces the * of pattern.
func forField(pattern, field string) string { return strings.Replace(pattern, "*", field, 1) }

// forLayer replaces the # of a pattern.
func forLayer(pattern string, i int) string { return strings.Replace(pattern, "#", strconv.Itoa(i), 1) }

// fieldsOf returns the fields that have a tensor named by pattern, in the order of the
// file.
func (s *seeker) fieldsOf(pattern string) (fields []string) {
	for _, name := range s.names {
		if field := fieldOf(pattern, name); field != "" {
			fields = append(fields, field)
		}
	}
	return fields
}

// hasAny reports whether a tensor has the name pattern, which may have a *.
func (s *seeker) hasAny(pattern string) bool { return s.has(pattern) || len(s.fieldsOf(pattern)) > 0 }

// familyMetadata is the JSON value of the metadata shaver.family. It holds what the names
// and shapes of the tensors do not say.
type familyMetadata struct {
	Name       string   `json:"name"`
	Activation string   `json:"activation,omitempty"` // of the hidden layers
	Fields     []string `json:"fields,omitempty"`     // in the order of the fields
}

const relu = "relu"

// adopt makes c a checkpoint of family f. It joins the tables of the fields, and returns
// the sizes of the fields. The error asks for what neither the tensors nor said contain.
func (s *seeker) adopt(f *family, said []Statement) ([]int, error) {
	c := s.c
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
	a.kind()
	if a.relu(); s.err != nil {
		return nil, s.err
	}
	if err := a.err(); err != nil {
		return nil, err
	}
	c.Family, c.Fields, c.Mapped = f.name, a.fields, a.mappedAll
	if strings.Contains(f.table, "*") && !s.has(f.table) {
		return dims, s.join(f)
	}
	return dims, nil
}

// asked collects what the file does not say about a model of family f.
type asked struct {
	s          *seeker
	f          *family
	fields     []string // names of the fields; nil if unknown
	dims       []int
	said       model.Kind
	activation string
	from       string // source of activation
	file       string // the JSON file next to the state dict; "" if it does not exist
	features   []Feature
	mappedAll  bool     // whether features describe all fields
	missing    []string // what is not known
	lines      []string // what the JSON file has to hold
}

// take adds what one source says.
func (a *asked) take(s *Statement) {
	if a.said == "" && s.Kind != nil {
		a.said = model.Kind(normal(string(*s.Kind)))
	}
	if a.activation == "" && s.Activation != nil {
		a.activation, a.from = *s.Activation, s.From
	}
	if s.File {
		a.file = s.From
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
	do := "write " + a.s.c.Sidecar + " with what is true"
	if a.file != "" {
		do = "add what is true to " + filepath.Base(a.file)
	}
	return fault.Inputf("%s is a state dict of %s, which does not say %s: %s, for example {%s}",
		a.s.c.Name, a.f.name, strings.Join(a.missing, ", nor "), do, strings.Join(a.lines, ", "))
}

// sizes finds the fields, their order and their sizes.
func (a *asked) sizes() ([]int, error) {
	s, c := a.s, a.s.c
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
	c := a.s.c
	switch {
	case !c.Compact:
		return c.inputf("tensor %s has no field in its name", a.s.keys[a.f.table])
	case len(a.fields) != len(a.dims):
		return c.inputf("metadata %s has %d fields, but there are %d field sizes", metaFamily, len(a.fields), len(a.dims))
	}
	for _, field := range a.fields {
		if strings.ContainsAny(field, ".*") {
			return c.inputf("metadata %s has the field %s, expected a name without a dot and without *", metaFamily, tensor.Quote(field))
		}
	}
	return nil
}

// checkNames checks that the names of fields are printable and differ.
func (a *asked) checkNames() error {
	seen := make(map[string]bool, len(a.fields))
	for _, field := range a.fields {
		if tensor.CheckKey(field) != nil {
			return a.s.c.inputf("the fields' names have %s: expected printable text of 1 to 1024 bytes", tensor.Quote(field))
		}
		if seen[field] {
			return a.s.c.inputf("the fields' names have %s twice", tensor.Quote(field))
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
			return a.s.c.inputf("field_names has %s, but there is no tensor %s", tensor.Quote(field), name)
		}
		named[field] = true
	}
	for _, field := range found {
		if !named[field] {
			return a.s.c.inputf("field_names lacks %s, whose table is tensor %s", tensor.Quote(field), a.s.keys[forField(a.f.table, field)])
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
				s.fail("the stated kind is %s, but the tensors are those of %s: expected %s", tensor.Quote(string(a.said)), a.f.name, either(kinds))
				return
			}
			a.ask(what, fmt.Sprintf("%q: %q", "kind", kinds[0]))
		}
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

// name returns the name of the weights, or a pattern.
func (w *wideNames) name() string {
	if w.linear != "" {
		return w.linear
	}
	return w.firstOrder
}

// possible returns the kinds that fit a model with or without a network.
func (w *wideNames) possible(deep bool) (kinds []model.Kind) {
	for _, kind := range w.kinds {
		if deep == (kind != model.FM) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// hasCross reports whether there are cross layers.
func (f *family) hasCross(s *seeker) bool {
	return f.cross.weight != "" && (s.has(f.cross.weight) || s.has(forLayer(f.cross.weight, 0)))
}

// relu determines whether the user has to state the activation.
func (a *asked) relu() {
	deep := slices.ContainsFunc(a.f.mlps, func(m mlpNames) bool { return a.s.hasGroup(m.linear) })
	switch {
	case !deep || a.f.onlyReLU && a.activation == "":
	case a.activation == "":
		a.ask("which activation its hidden layers have", `"activation": "relu"`)
	case normal(a.activation) != relu:
		a.s.fail("%s says that the activation is %s, but only relu is supported in a state dict: %s", a.from, tensor.Quote(a.activation), a.f.advice())
	}
}

// join replaces the tables of the fields by one table, [n, d], under the key that has a *
// for the name of the field.
func (s *seeker) join(f *family) error {
	c := s.c
	var joined string // key of the joined table
	var first Tensor
	rows, size := 0, 0
	var tables []entry
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
		tables = append(tables, entry{key, t})
		rows += t.Shape[0]
		size += len(t.Data)
	}
	s.parts = make(map[*byte]entry, len(tables))
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
	c.Tensors[joined] = Tensor{DType: first.DType, Shape: []int{rows, first.Shape[1]}, Data: data}
	c.keepKeys()
	return nil
}

// checkApart returns an error if tables of two fields share memory. The tables of a hostile
// file could otherwise be much larger together than the file.
func (c *State) checkApart(tables []entry) error {
	first := func(e entry) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(e.Data))) }
	sorted := slices.SortedFunc(slices.Values(tables), func(a, b entry) int { return cmp.Compare(first(a), first(b)) })
	for i := 1; i < len(sorted); i++ {
		a, b := sorted[i-1], sorted[i]
		if len(b.Data) > 0 && first(a)+uintptr(len(a.Data)) > first(b) {
			return c.inputf("tensors %s and %s share memory, as if two fields had one table, which is not supported yet", min(a.key, b.key), max(a.key, b.key))
		}
	}
	return nil
}

// Split returns the tensors of c under their own keys. A joined table is split again. The
// result shares the memory of c's tensors, except that of a NeuMF's tables.
func (c *State) Split() map[string]Tensor {
	tensors := make(map[string]Tensor, len(c.Tensors)+len(c.Fields))
	for key, t := range c.Tensors {
		if key == c.EmbeddingKey && c.Architecture.Kind == model.NeuMF {
			c.splitTowers(tensors, key, t)
			continue
		}
		if key != c.EmbeddingKey || !c.joined() {
			tensors[key] = t
			continue
		}
		from := 0
		for j, field := range c.Fields {
			part := Tensor{DType: t.DType, Shape: []int{c.Architecture.FieldDims[j], t.Shape[1]}}
			to := from + part.Elements()*t.DType.Size()
			if t.Data != nil { // a table in compact form may have no data
				part.Data = t.Data[from:to]
			}
			tensors[forField(key, field)], from = part, to
		}
	}
	return tensors
}

// TableKeys returns the keys of the tables of a field that were joined to one. It returns nil
// if the file has one table.
func (c *State) TableKeys(field int) (keys []string) {
	switch {
	case c.Architecture.Kind == model.NeuMF:
		for _, tower := range towers[field] {
			keys = append(keys, forField(c.EmbeddingKey, tower))
		}
	case c.joined():
		keys = []string{forField(c.EmbeddingKey, c.Fields[field])}
	}
	return keys
}

// Metadata returns the metadata shaver.family, or "" for our own names.
func (c *State) Metadata() string {
	if c.Family == "" {
		return ""
	}
	m := familyMetadata{Name: c.Family, Fields: c.Fields}
	if len(c.Architecture.Hidden) > 0 {
		m.Activation = relu
	}
	return string(mustMarshal(m))
}

// joined reports whether the table was joined from several tables.
func (c *State) joined() bool { return c.Family != "" && strings.Contains(c.EmbeddingKey, "*") }

// takeFamily takes the metadata shaver.family.
func takeFamily(metadata map[string]string, s *Statement) error {
	text, ok := metadata[metaFamily]
	if !ok {
		return nil
	}
	var m familyMetadata
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return fault.Inputf("metadata %s: %w", metaFamily, err)
	}
	if !slices.Contains(Families(), m.Name) {
		return fault.Inputf("metadata %s names the framework %s, expected one of %s", metaFamily, tensor.Quote(m.Name), strings.Join(Families(), ", "))
	}
	if m.Activation != "" {
		s.Activation = &m.Activation
	}
	s.FieldNames = m.Fields
	return nil
}

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
			for j, field := range s.c.Fields {
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
		out := tensor.AnySize
		if len(shape) == 2 {
			out = shape[0]
		}
		keys := s.linear(layer.name, in, out)
		if layer.norm != "" {
			keys.Norm = true
			keys.Gamma, keys.Beta = s.take(layer.norm+"weight", out), s.take(layer.norm+"bias", out)
			keys.Mean, keys.Variance = s.take(layer.norm+"running_mean", out), s.take(layer.norm+"running_var", out)
			s.ignore(layer.norm + "num_batches_tracked")
		}
		l.Hidden, l.Layers = append(l.Hidden, out), append(l.Layers, keys)
		in = out
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

// Assumed returns what Recognise assumed about a model of another framework, because the file
// does not say it. It returns nil for other models.
func (c *State) Assumed() (all []string) {
	f := c.familyOf()
	if f == nil {
		return nil
	}
	if c.joined() && !c.Mapped {
		all = append(all, "each field has one id in a row")
	}
	if len(c.Architecture.Hidden) > 0 && !f.onlyReLU {
		all = append(all, "the activation of the hidden layers is relu, as stated")
	}
	if f == &torchRechub {
		all = append(all, "the wide and the deep features are the same, in the same order")
	}
	return all
}

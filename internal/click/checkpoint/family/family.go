// Package family recognises which model a state dict holds, from the names and shapes of its
// tensors. It opens no file. Package checkpoint reads the tensors into a State, and reads the
// values of those to which Recognise gave a role.
//
// How a framework names the tensors is a family, and each framework has a file with a table of
// type family. To add a framework:
//
//  1. Write NAME.go with its table, as in recbole.go, and put the table into families.
//  2. Let testdata/families/cases.py save small models of each kind with the real package, and
//     one that must be refused.
//  3. Add the kinds to TestFamilies, and the errors to TestForeignFamilies. What the file next to
//     a state dict must say is in familytest.
//
// The table also says what the tensors leave open: kinds with the same names (kinds, unsure), a
// fixed activation (onlyReLU), and tensors that only other models have (foreign). A model that is
// not certain to be understood must be refused, with the advice to export it to ONNX. Code is
// needed only if the layers have another form; see layers.go.
package family

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

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
	// classes returns what the classes of a pickled module say about the kind and the activation; each is ""
	// if they do not say it. classes is nil if they are not read.
	classes func(classes map[string]string) (kind model.Kind, activation string)
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
var families = []*family{&fuxiCTR, &deepCTRTorch, &recBole, &pytorchFM, &torchRechub, &listed}

// names returns the names of the frameworks whose state dicts are recognised.
func names() (all []string) {
	for _, f := range families {
		all = append(all, f.name)
	}
	return all
}

// seekFamily returns the framework of the tensors, or nil if the names are ours or unknown.
func (s *seeker) seekFamily() *family {
	if s.has(s.embeddingName()) {
		return nil
	}
	for _, f := range families {
		if n := len(s.fieldsOf(f.table)); s.has(f.table) || n > 1 || n == 1 && f != &listed { // whose only one may be a table in a module of its own
			return f
		}
	}
	return nil
}

// familyOf returns the framework of a recognised state, or nil.
func (st *State) familyOf() *family {
	if i := slices.IndexFunc(families, func(f *family) bool { return f.name == st.Family }); i >= 0 {
		return families[i]
	}
	return nil
}

// advice says what to do with a model of another kind. f is nil for our own names.
func (f *family) advice() string {
	guide := "pytorch"
	if f != nil {
		guide = f.guide
	}
	return fmt.Sprintf("export the model to ONNX (shaver model export-help --for %s)", guide)
}

// otherwise says what to do if what the file or the user says does not fit the model.
func (f *family) otherwise() string { return "if it is another model, " + f.advice() }

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

// name returns the name of the weights, or a pattern.
func (w *wideNames) name() string { return cmp.Or(w.linear, w.firstOrder) }

// possible returns the kinds that fit a model with or without a network.
func (w *wideNames) possible(deep bool) []model.Kind {
	return slices.DeleteFunc(slices.Clone(w.kinds), func(kind model.Kind) bool { return deep == (kind == model.FM) })
}

// hasCross reports whether there are cross layers.
func (f *family) hasCross(s *seeker) bool {
	return f.cross.weight != "" && (s.has(f.cross.weight) || s.has(forLayer(f.cross.weight, 0)))
}

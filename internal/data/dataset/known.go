package dataset

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/dense"
)

// Identities returns what the ids of each field stand for.
func (d *Dataset) Identities() []model.Identity {
	p := d.newest()
	list := make([]model.Identity, len(d.Manifest.Fields))
	for j, f := range d.Manifest.Fields {
		list[j] = model.Identity{Name: f.Name, Vocabulary: model.OwnIDs, Pads: f.Pads}
		if p.Vocabulary != nil {
			file := p.Vocabulary[d.position(j)]
			list[j].Vocabulary, list[j].Bytes = file.SHA256, file.Bytes
		}
	}
	return list
}

// Standards returns how the numbers of each dense input that readers of d deliver were standardised.
func (d *Dataset) Standards() []model.Standard {
	var list []model.Standard
	for _, name := range d.inputs {
		list = append(list, d.input(name).Standard())
	}
	return list
}

// input returns the dense input with a name, or nil.
func (d *Dataset) input(name string) *dense.Input {
	if i := slices.IndexFunc(d.Dense, func(in dense.Input) bool { return in.Name == name }); i >= 0 {
		return &d.Dense[i]
	}
	return nil
}

// CheckKnown returns bad input unless the fields of the dataset are those that a model knows:
// they have the same names in the same order, and their ids stand for the same values. A field
// of the dataset may have more features than that of the model if the additional ids follow
// those that the model knows. The numbers of the dense inputs must have been standardised as the model knows it.
// The error names the first field or dense input that differs.
//
// If the model does not know its fields, CheckKnown compares only the names with those in the
// model's graph, as far as some are the same.
func (d *Dataset) CheckKnown(k *model.Known) error {
	if err := d.checkNames(k); err != nil {
		return err
	}
	if k.Fields != nil {
		for j, own := range d.Identities() {
			if err := d.checkField(j, own, k); err != nil {
				return err
			}
		}
	}
	for i := range k.Standards {
		if err := d.checkInput(&k.Standards[i], k.File); err != nil {
			return err
		}
	}
	return nil
}

// checkInput compares a dense input with what the model in a file knows of it. What replaces missing numbers matters
// only if numbers are missing.
func (d *Dataset) checkInput(want *model.Standard, file string) error {
	in := d.input(want.Name)
	if in == nil {
		return nil // the model is not read with this dataset, or Choose refuses it
	}
	own, known := in.Standard(), *want
	if in.Filled == 0 || own.Missing == nil || known.Missing == nil {
		own.Missing, known.Missing = nil, nil
	}
	if own.String() == known.String() {
		return nil
	}
	return fault.Inputf("dense input %s: the dataset %s does not fit the model %s: the dataset has the rule %s, the model %s: import the rows with --vocabulary and the dataset of the training, or with the rule of the model",
		own.Name, d.newest().name(), file, &own, &known)
}

// checkField compares field j, with the identity own, with that of the model.
func (d *Dataset) checkField(j int, own model.Identity, k *model.Known) error {
	p, want, size := d.newest(), k.Fields[j], k.Sizes[j]
	differ := func(format string, values ...any) error {
		return fault.Inputf("field %d (%s): the dataset %s does not fit the model %s: %w", j, own.Name, p.name(), k.File, fmt.Errorf(format, values...))
	}
	ids := "ids that stand for themselves"
	switch {
	case own.Pads != want.Pads:
		side := cmp.Or(want.Pads, model.End)
		return differ("its lists are filled at the %s, those of the model at the %s: import the rows with --list-pads %s", cmp.Or(own.Pads, model.End), side, side)
	case own.Vocabulary == want.Vocabulary:
		return nil
	case own.Vocabulary == model.OwnIDs:
		return differ("the dataset has %s, the model a vocabulary with the SHA-256 %.12s: import the values of the rows with --vocabulary and the dataset of the training", ids, want.Vocabulary)
	case want.Vocabulary == model.OwnIDs:
		return differ("the dataset has a vocabulary with the SHA-256 %.12s, the model %s: import the ids that the model was trained with", own.Vocabulary, ids)
	}
	if j := d.position(j); p.Fields[j].Size > size && own.Bytes > want.Bytes {
		found, err := p.digestOf(p.Vocabulary[j], want.Bytes)
		if err != nil || found == want.Vocabulary {
			return err
		}
	}
	return differ("the vocabulary of the dataset has the SHA-256 %.12s, that of the model %.12s, so the same id stands for different values: import the rows with --vocabulary and the dataset of the training", own.Vocabulary, want.Vocabulary)
}

// DoubtPads returns a warning, without a full stop, if m reads nothing of a list of one value that is filled as those of d,
// or if the logit depends on the side and known does not say that it is that of the training. Otherwise it returns "".
func (d *Dataset) DoubtPads(m *model.Model, known bool) string {
	needs, moves := m.PadSides()
	for i, l := range m.Lists {
		f := d.Manifest.Fields[l.Field]
		if side := cmp.Or(f.Pads, model.End); needs[i] != "" && needs[i] != side {
			return fmt.Sprintf("field %s: the model reads nothing of a list of one value that is filled at its %s, as those of the dataset are: import the rows with --list-pads %s", f.Name, side, needs[i])
		}
	}
	if moves && !known {
		f := d.Manifest.Fields[m.Lists[0].Field]
		side := cmp.Or(f.Pads, model.End)
		return fmt.Sprintf("the logit depends on the side on which lists are filled, here their %s: if that is the side of the training, confirm it with --list-pads %s", side, side)
	}
	return ""
}

// digestOf returns the SHA-256 of the first bytes of a vocabulary file.
func (p *part) digestOf(f File, bytes int64) (string, error) {
	file, err := p.open(f.File)
	if err != nil {
		return "", err
	}
	defer file.Close()
	digest := sha256.New()
	if _, err := io.CopyN(digest, file, bytes); err != nil {
		return "", fmt.Errorf("%s: %w", p.path(f), err)
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}

// checkNames returns bad input if the fields of the dataset are not those that a model names, in the
// same order. A graph may name its fields otherwise than its dataset, so for a model that does not know its
// fields, checkNames compares the order if both have the same names, and the names if their number differs
// and some are the same.
func (d *Dataset) checkNames(k *model.Known) error {
	own, names, folder := d.Fields(), k.FieldNames(), d.newest().name()
	if names == nil || slices.Equal(own, names) {
		return nil
	}
	missing, more := without(names, own), without(own, names)
	switch {
	case k.Fields == nil && len(own) == len(names) && len(missing) > 0, k.Fields == nil && len(missing) == len(names):
		return nil
	case len(own) == len(names):
		for j := range own {
			if own[j] != names[j] {
				remedy := "import the dataset with the fields in the order of the model"
				if !slices.Contains(own, names[j]) {
					remedy = fmt.Sprintf("if they are the same, import the dataset with the model's name, as in %s=%s", own[j], names[j])
				}
				return fault.Inputf("field %d is %s in the dataset %s and %s in the model %s: %s", j, own[j], folder, names[j], k.File, remedy)
			}
		}
	}
	var differ []string
	if len(missing) > 0 {
		differ = append(differ, "the dataset lacks "+some(missing))
	}
	if len(more) > 0 {
		differ = append(differ, "the model does not read "+some(more))
	}
	if len(missing) == 0 {
		differ = append(differ, "the other fields have another order in the model")
	}
	return fault.Inputf("the dataset %s has %s and the model %s %d: %s: import the rows with the fields in the order of the model, which shaver model inspect prints",
		folder, fields(len(own)), k.File, len(names), strings.Join(differ, ", and "))
}

// fields returns a number of fields in words.
func fields(n int) string {
	if n == 1 {
		return "1 field"
	}
	return fmt.Sprintf("%d fields", n)
}

// some returns names in words, at most eleven of them.
func some(names []string) string {
	if more := len(names) - 10; more > 1 {
		return fmt.Sprintf("%s and %d others", strings.Join(names[:10], ", "), more)
	}
	return strings.Join(names, ", ")
}

// without returns the names that others does not have.
func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

// chooseFields returns a dataset that is like d, but whose readers deliver only the fields that a
// model reads, if the file of the model names its fields, and they are some of those of d in the
// same order. This is so for a model from which fields were removed. Otherwise it returns d.
func (d *Dataset) chooseFields(k *model.Known) *Dataset {
	names, own := k.FieldNames(), d.Fields()
	if len(names) == 0 || len(names) >= len(own) {
		return d
	}
	var chosen []int
	for j, name := range own {
		if len(chosen) < len(names) && name == names[len(chosen)] {
			chosen = append(chosen, d.position(j))
		}
	}
	if len(chosen) < len(names) {
		return d
	}
	return d.pick(chosen)
}

// pick returns a dataset that is like d, but whose readers deliver only the fields at positions in the folders.
func (d *Dataset) pick(positions []int) *Dataset {
	other := *d
	other.picked, other.Manifest.Fields = positions, make([]Field, len(positions))
	for k, position := range positions {
		other.Manifest.Fields[k] = d.Manifest.Fields[d.place(position)]
	}
	return &other
}

// Column returns a dataset that is like d, but whose readers deliver only the field, or else the dense input, with the given name.
func (d *Dataset) Column(name string) (*Dataset, error) {
	if j := slices.Index(d.Fields(), name); j >= 0 {
		return d.pick([]int{d.position(j)}), nil
	}
	if d.input(name) == nil {
		return nil, fault.Inputf("the dataset %s has no field and no dense input %q: it has the fields %s", d.newest().name(), name, some(d.Fields()))
	}
	other := *d.pick([]int{})
	other.inputs = []string{name}
	return &other, nil
}

// position returns the position in the folders of a field of d.
func (d *Dataset) position(field int) int {
	if d.picked == nil {
		return field
	}
	return d.picked[field]
}

// place returns which field of d is the one at a position in the folders, or -1.
func (d *Dataset) place(position int) int {
	if d.picked == nil {
		return position
	}
	return slices.Index(d.picked, position)
}

package dataset

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/arrowio"
)

// Dataset is an open dataset, which is a folder or a window of days (see OpenDays). It
// keeps no files open, and it is safe for concurrent use.
type Dataset struct {
	Manifest              // facts about all rows; that of a window names no files
	parts    []*part      // folders with the rows, at least one, the oldest first
	window   bool         // the dataset is a window, and parts has its days
	digest   string       // identity of the dataset
	inputs   []string     // names of the dense inputs that readers deliver
	picked   []int        // positions in the folders of the fields that readers deliver; nil = all
	tasks    []model.Task // whose rows readers deliver; nil = the rows of the folders
	fields   *part        // folder whose fields and vocabulary are those of the dataset; nil = the newest of parts
}

// Open reads the manifest of the dataset in dir, and checks that every file exists and
// has the size that the manifest states, and that the files of the splits have the stated
// numbers of rows. It reads no rows. The digest of a file is checked when it is read.
func Open(dir string) (*Dataset, error) { return openFolder(folder{dir: dir}) }

// OpenIn is like Open for a folder below root. It opens no file outside root, even if a
// symbolic link in the folder leads there. root must stay open while the dataset is used.
func OpenIn(root *os.Root, dir string) (*Dataset, error) { return openFolder(folder{root, dir}) }

func openFolder(in folder) (*Dataset, error) {
	p, err := openPart(in)
	if err != nil {
		return nil, err
	}
	return &Dataset{Manifest: p.Manifest, parts: []*part{p}, digest: p.digest}, nil
}

// Files returns the paths of all files that the datasets in dirs have or may have. If a
// manifest cannot be read, they are the usual paths.
func Files(dirs ...string) []string {
	var paths []string
	for _, dir := range dirs {
		in := folder{dir: dir}
		paths = append(paths, in.path(ManifestName), in.path("frequencies.arrow"), in.path(BlocksName))
		for _, name := range SplitNames {
			paths = append(paths, in.path(name+".arrow"))
		}
		if m, _, err := readManifest(in); err == nil {
			for _, f := range m.Files() {
				paths = append(paths, in.path(f.File))
			}
		}
	}
	return paths
}

// Digest returns the dataset's identity, which is the SHA-256 of its manifest in
// hexadecimal digits. For that of a window see OpenDays.
func (d *Dataset) Digest() string { return d.digest }

// Fields returns the names of the fields.
func (d *Dataset) Fields() []string { return d.Manifest.fieldNames() }

// FieldDims returns the number of features of each field.
func (d *Dataset) FieldDims() []int { return d.Manifest.fieldSizes() }

// Inputs returns the names of the dense inputs that readers of d deliver, in their order.
// A dataset that was just opened delivers none.
func (d *Dataset) Inputs() []string { return d.inputs }

// Form returns the form of the rows that readers of d deliver.
func (d *Dataset) Form() arrowio.RowForm {
	f := d.RowForm()
	f.Dense, f.Labels, f.Weighted = slices.Clone(d.inputs), nil, d.weighted()
	return f
}

// Choose returns a dataset that is like d, but whose readers deliver the named dense
// inputs in this order. It returns bad input if the dataset does not have them.
func (d *Dataset) Choose(inputs []string) (*Dataset, error) {
	names := make([]string, len(d.Dense))
	for i, in := range d.Dense {
		names[i] = in.Name
	}
	for i, name := range inputs {
		switch {
		case slices.Contains(inputs[:i], name):
			return nil, fault.Inputf("the dense input %q is named twice", name)
		case slices.Contains(names, name):
		default:
			has := "no dense inputs"
			if len(names) > 0 {
				has = fmt.Sprintf("only the dense inputs %q", names)
			}
			return nil, fault.Inputf("the model reads the dense input %q, but the dataset has %s: name its column in the import, as in COLUMN=%s", name, has, name)
		}
	}
	other := *d
	other.inputs = slices.Clone(inputs)
	selectors := inputs[other.numbers():]
	for t := range selectors {
		if len(selectors) != len(d.tasks) || selectors[t] != Selector(t) {
			return nil, fault.Inputf("the model reads the dense inputs %q, expected those of the %d tasks last, in their order", inputs, len(d.tasks))
		}
	}
	return &other, nil
}

// For returns a dataset that is like d, but whose readers deliver the fields and the dense inputs that
// the model a reads, in its order. k is what the model knows of its fields, or nil. It returns bad input if
// the fields are not those of the model, or if a dense input is missing. The error names the first difference.
func (d *Dataset) For(a *model.Architecture, k *model.Known) (*Dataset, error) {
	found, err := d.forModel(a, k)
	if err != nil && k != nil && k.Ignored != "" {
		err = fmt.Errorf("%w; in %s %s", err, k.File, k.Ignored)
	}
	return found, err
}

// forModel is For without what the model's file says about inputs that it ignores.
func (d *Dataset) forModel(a *model.Architecture, k *model.Known) (*Dataset, error) {
	if k != nil {
		if k.Tasks == nil && d.Tasks != nil && slices.Contains(d.Tasks[1:], k.Output) {
			return nil, fault.Inputf("the output %s has the name of a label, but without --task the label is %s: give --task %s in place of --model-output", k.Output, d.Tasks[0], k.Output)
		}
		if k.Tasks == nil && slices.Contains(a.Dense, Selector(0)) {
			return nil, fault.Inputf("%s is a model of several tasks: name their labels, as in --task click=1,buy=.5", k.File)
		}
		if k.Tasks != nil && d.tasks == nil {
			var err error
			if d, err = d.ForTasks(k.Tasks); err != nil {
				return nil, err
			}
		}
		d = d.chooseFields(k)
		if err := d.checkNames(k); err != nil {
			return nil, err // before sizes are compared, which differ for another reason then
		}
	}
	known, err := d.ForKnown(a)
	if err == nil {
		err = d.checkShared(a)
	}
	if err == nil && k != nil {
		err = known.CheckKnown(k)
	}
	if err != nil {
		return nil, err
	}
	return known, nil
}

// ForKnown is For for a dataset and a model that For has accepted before. It reads no vocabularies.
func (d *Dataset) ForKnown(a *model.Architecture) (*Dataset, error) {
	if err := d.checkFields(a); err != nil {
		return nil, err
	}
	return d.Choose(a.Dense)
}

// Features returns n, the number of features in all fields.
func (d *Dataset) Features() int {
	n := 0
	for _, f := range d.Manifest.Fields {
		n += f.Size
	}
	return n
}

// Numbers returns the numbers of the rows of a split as ranges [from, to), one for each day that has it.
func (d *Dataset) Numbers(split string) (ranges [][2]int64) {
	for _, p := range d.parts {
		first, each := p.first, int64(max(1, len(d.tasks)))
		for _, s := range p.Splits {
			if s.Name == split {
				ranges = append(ranges, [2]int64{first, first + s.Rows*each})
			}
			first += s.Rows * each
		}
	}
	return ranges
}

// SplitNames returns the names of the splits that exist, in the order of the variable of this name.
func (d *Dataset) SplitNames() []string {
	names := make([]string, len(d.Splits))
	for k, s := range d.Splits {
		names[k] = s.Name
	}
	return names
}

// chosen reports for each of d.Splits whether names contains it. Without names, all
// splits are chosen.
func (d *Dataset) chosen(names []string) ([]bool, error) {
	chosen := make([]bool, len(d.Splits))
	for _, name := range names {
		k := d.splitAt(name)
		if k < 0 {
			return nil, fault.Usagef("the dataset has no split %q: it has %v", name, d.SplitNames())
		}
		chosen[k] = true
	}
	for k := range chosen {
		chosen[k] = chosen[k] || len(names) == 0
	}
	return chosen, nil
}

// Rows returns the number of rows in a split, or 0 if no split has this name.
func (d *Dataset) Rows(split string) int64 {
	if k := d.splitAt(split); k >= 0 {
		return d.Splits[k].Rows
	}
	return 0
}

// Positives returns the number of rows with label 1 in splits that d has, and whether labels are 0 or 1.
func (d *Dataset) Positives(splits []string) (n int64, known bool) {
	for _, name := range splits {
		p := d.Splits[d.splitAt(name)].Positives
		if p == nil {
			return 0, false
		}
		n += *p
	}
	return n, true
}

// Occurrences returns the number of rows of all splits except test in which each feature occurs,
// [n] by global id; see Frequencies. It returns bad input if there is no such split.
func (d *Dataset) Occurrences() ([]int64, error) {
	var splits []string
	for _, name := range d.SplitNames() {
		if name != Test {
			splits = append(splits, name)
		}
	}
	if len(splits) == 0 {
		return nil, fault.Inputf("the dataset has neither a split %s nor %s: expected one to count occurrences in", Train, Val)
	}
	return d.Frequencies(splits...)
}

// Frequencies returns the number of rows of the given splits in which each feature
// occurs, [n] by global id. It is 0 for pad ids. Without names it counts all splits.
func (d *Dataset) Frequencies(splits ...string) ([]int64, error) {
	chosen, err := d.chosen(splits)
	if err != nil {
		return nil, err
	}
	sum := make([]int64, d.Features())
	offsets := model.Offsets(d.FieldDims())
	for _, p := range d.parts {
		if err := p.addFrequencies(sum, offsets, d.place, func(split string) bool { return chosen[d.splitAt(split)] }); err != nil {
			return nil, err
		}
	}
	return sum, nil
}

func (d *Dataset) checkFields(a *model.Architecture) error {
	if m := len(d.Manifest.Fields); m != len(a.FieldDims) {
		return fault.Inputf("the dataset has %s (%s) and the model %d: import the rows with the columns that the model was trained with, in its order", fields(m), some(d.Fields()), len(a.FieldDims))
	}
	for j, f := range d.Manifest.Fields {
		if f.Size != a.FieldDims[j] {
			advice := ""
			switch grown := f.Size > a.FieldDims[j]; {
			case d.newest().Vocabulary == nil:
			case !grown:
				advice = ": import the rows with --vocabulary and the dataset of the training"
			default:
				advice = ": if its vocabulary has grown since the training, train a new model with its ids, or import the rows with --vocabulary and the dataset of the training, without --grow"
			}
			return fault.Inputf("field %d (%s) has %d features in the dataset and %d in the model%s", j, f.Name, f.Size, a.FieldDims[j], advice)
		}
	}
	return d.checkLists(a)
}

// checkShared returns bad input if the model reads two fields from the same rows of a table, but an
// id stands for different values in these fields.
func (d *Dataset) checkShared(a *model.Architecture) error {
	p := d.newest()
	for i, l := range a.LookUps {
		for _, o := range a.LookUps[:i] {
			if l.Table != o.Table || l.Offset != o.Offset || p.Vocabulary == nil || p.Vocabulary[d.position(l.Field)].SHA256 == p.Vocabulary[d.position(o.Field)].SHA256 {
				continue
			}
			values, err := d.Vocabulary(l.Field)
			if err != nil {
				return err
			}
			others, err := d.Vocabulary(o.Field)
			if err != nil {
				return err
			}
			for id := range min(len(values), len(others)) {
				if values[id] == others[id] || values[id] == "" || others[id] == "" {
					continue
				}
				f, g := d.Manifest.Fields[o.Field].Name, d.Manifest.Fields[l.Field].Name
				return fault.Inputf("the model reads the fields %s and %s from one table, but in the dataset %s the id %d stands for %.100q in one and %.100q in the other: import the rows with --share %s=%s",
					f, g, p.name(), id, others[id], values[id], g, f)
			}
		}
	}
	return nil
}

// checkLists returns bad input unless the lists of d have the lengths and the pad ids of the
// model's.
func (d *Dataset) checkLists(a *model.Architecture) error {
	lists := make([]Field, len(a.FieldDims)) // Length and Pad of each field of the model
	for _, l := range a.Lists {
		if lists[l.Field].Length = l.Length; l.Pad >= 0 {
			lists[l.Field].Pad = &l.Pad
		}
	}
	for j, f := range d.Manifest.Fields {
		lists[j].Pads = f.Pads // the architecture does not say the side
		if own, want := f.form(), lists[j].form(); own != want {
			return fault.Inputf("field %d (%s) has %s in the dataset, and %s in the model", j, f.Name, own, want)
		}
	}
	return nil
}

// Scan calls visit with batches of at most batch rows, at least one, of the given splits.
// Without names it reads all splits. The rows come in the order train, val, test, whatever
// the order of the names, and within a split day by day. A row's number is its position in
// the whole folder, so it does not depend on the chosen splits; for that in a window see
// OpenDays. visit must not keep the batch. Scan returns the first
// error of visit, or the error of ctx if ctx ends.
func (d *Dataset) Scan(ctx context.Context, splits []string, batch int, visit func(rows *model.Rows) error) error {
	return d.ScanFrom(ctx, splits, 0, batch, visit)
}

// ScanFrom is like Scan, but it skips the given number of rows at the start of the chosen
// splits without reading them. It cannot check the digest of a file in which it skips
// rows, so the caller needs another way to verify that the file has the right rows.
func (d *Dataset) ScanFrom(ctx context.Context, splits []string, first int64, batch int, visit func(rows *model.Rows) error) error {
	return d.scan(ctx, splits, first, batch, false, visit)
}

// ScanBlocks is like ScanFrom, but it reads and checks only the blocks that it needs, each before visit
// gets rows of it. It returns bad input if a folder has no list of blocks.
func (d *Dataset) ScanBlocks(ctx context.Context, splits []string, first int64, batch int, visit func(rows *model.Rows) error) error {
	return d.scan(ctx, splits, first, batch, true, visit)
}

func (d *Dataset) scan(ctx context.Context, splits []string, first int64, batch int, blocks bool, visit func(rows *model.Rows) error) error {
	if batch < 1 || first < 0 {
		panic("dataset: batch must be at least 1 and first at least 0")
	}
	r, err := d.NewReader(splits...)
	if err != nil {
		return err
	}
	defer r.Close()
	r.blocks = blocks
	if d.tasks == nil {
		r.skip = first
	} else {
		r.drop = first
	}
	var rows model.Rows
	for {
		if err := r.Next(&rows); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		for from := 0; from < rows.Len(); from += batch {
			if err := ctx.Err(); err != nil {
				return err
			}
			part := rows.Slice(from, min(from+batch, rows.Len()))
			if err := visit(&part); err != nil {
				return err
			}
		}
	}
}

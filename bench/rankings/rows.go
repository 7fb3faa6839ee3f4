package main

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/base/atomicfile"
)

// logs are those of -real.
var logs = []struct {
	name, title, kind string
	sources           []string // of clicks.py
	users             int      // the rows of one user in this number are taken
}{
	{"sports", "Sports", "sequences", []string{"sports.txt.gz", "sports.attributes.json.gz"}, 1},
	{"beauty", "Beauty", "sequences", []string{"beauty.txt.gz", "beauty.attributes.json.gz"}, 1},
	{"gowalla", "Gowalla", "sets", []string{"gowalla.train.txt.gz", "gowalla.test.txt.gz"}, 4},
}

// kinds are the models that are trained on a log. The search over weight decays takes the one whose
// AUC on the val rows is highest with the seed 1.
var kinds = []struct {
	name, title string
	decays      []string
}{
	{"deepfm", "DeepFM", []string{"1e-4", "1e-3", "3e-3", "1e-2"}},
	{"dcn-mix", "DCN-Mix", []string{"1e-4", "1e-3", "3e-3", "1e-2"}},
	{din, "DIN", []string{"1e-4", "5e-4", "2e-3"}},
}

// din is the kind that din.py trains. It reads lists, and is an .onnx file.
const din = "din"

// realSets makes the rows and datasets of the logs, and trains models.
func (t *tool) realSets() (all []set) {
	for _, l := range logs {
		if !strings.HasPrefix(t.only, l.name) && t.only != "" {
			continue
		}
		t.importLog(l.name, l.kind, l.sources, l.users)
		for _, k := range kinds {
			if name := l.name + "-" + k.name; strings.HasPrefix(name, t.only) {
				data := t.work.Path(l.name)
				if k.name == din {
					data += "-lists"
				}
				s := set{name: name, title: l.title + ", " + k.title, dataset: data, real: true}
				s.kind, s.decay = k.name, t.search(&s, k.name, k.decays)
				s.model = func(seed int) string { return t.train(&s, k.name, s.decay, seed) }
				all = append(all, s)
			}
		}
	}
	return all
}

// importLog makes two datasets of a log: NAME-lists with the history and the attributes as lists, and NAME with
// the last item of the history and one attribute or, in a log without attributes, another item. One half
// of the val rows is fresh.
func (t *tool) importLog(name, kind string, sources []string, users int) {
	raw, args := name+".rows", []string{filepath.Join(t.real, "clicks.py"), kind}
	for _, source := range sources {
		args = append(args, filepath.Join(t.real, source))
	}
	t.run(raw, args, "")
	flat, lists := t.rows(name, "-flat-rows", users, flatten), t.rows(name, "-list-rows", users, nil)
	more := []string{"--list", "history=10", "--share", "history=item", "--long-lists", "last"}
	if len(sources) > 1 && strings.Contains(sources[1], "attributes") {
		more = append(more, "--list", "attributes=12")
	}
	t.importRows(name, flat, "--raw")
	t.importRows(name+"-lists", lists, "--raw", more...)
}

// importRows imports the rows of a folder as a dataset. train is the flag of the train rows.
func (t *tool) importRows(name, rows, train string, more ...string) {
	in := func(split string) string { return filepath.Join(rows, split+".csv") }
	check(t.work.Make(name, append([]string{"dataset", "import", "csv", train, in("train"), "--val", in("val"), "--test", in("test"), "--fresh", in("fresh"), "--out", t.work.Path(name)}, more...)...))
}

// run runs Python with args and the path of a result, and renames the result, with the given ending, when it is done.
func (t *tool) run(name string, args []string, ending string, after ...string) {
	if t.work.Has(name + ending) {
		return
	}
	unfinished := t.work.Path("unfinished-" + name)
	out, err := exec.Command(t.python, append(append(slices.Clone(args), unfinished), after...)...).CombinedOutput()
	if err != nil {
		check(fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out))
	}
	check(os.Rename(unfinished+ending, t.work.Path(name+ending)))
}

// rows writes the rows of a log, NAME.rows, to NAME and ending. It takes the rows of one user in the number users. Every second row of val becomes
// a row of fresh. edit changes the header and the rows, or is nil.
func (t *tool) rows(name, ending string, users int, edit func(header, row []string) []string) string {
	from, to := t.work.Path(name+".rows"), t.work.Path(name+ending)
	for _, split := range []string{"train", "val", "test"} {
		parts := []string{filepath.Join(to, split+".csv")}
		if split == "val" {
			parts = append(parts, filepath.Join(to, "fresh.csv"))
		}
		copyRows(filepath.Join(from, split+".csv.gz"), parts, users, edit)
	}
	return to
}

// copyRows copies a compressed CSV file. Its rows go to the files in turn. Files that exist are not written again.
func copyRows(from string, to []string, users int, edit func(header, row []string) []string) {
	if _, err := os.Stat(to[len(to)-1]); err == nil {
		return
	}
	f := must(os.Open(from))
	defer f.Close()
	all := must(csv.NewReader(bufio.NewReader(must(gzip.NewReader(f)))).ReadAll())
	if users > 1 {
		all = slices.DeleteFunc(all, func(row []string) bool {
			user, err := strconv.Atoi(row[1])
			return err == nil && user%users != 0 // the header has no number
		})
	}
	check(os.MkdirAll(filepath.Dir(to[0]), 0o777))
	for part, file := range to {
		check(atomicfile.Write(file, func(w io.Writer) error {
			out := csv.NewWriter(w)
			for i, row := range all {
				if i > 0 && i%len(to) != part {
					continue
				}
				if edit != nil {
					row = edit(all[0], row)
				}
				if err := out.Write(row); err != nil {
					return err
				}
			}
			out.Flush()
			return out.Error()
		}))
	}
}

// flatten returns a row with the last item of its history and its first attribute or, without attributes, the first item. The header becomes a header.
func flatten(header, row []string) []string {
	history := strings.Split(row[len(row)-1], "|")
	flat := append(slices.Clone(row[:3]), history[len(history)-1])
	other := history
	if len(header) == 5 {
		other = strings.Split(row[3], "|")
	}
	if slices.Equal(row, header) {
		return append(flat[:3], "last", "other")
	}
	return append(flat, other[0])
}

// search returns the weight decay whose model of seed 1 has the highest AUC on the val rows.
func (t *tool) search(s *set, kind string, decays []string) (best string) {
	most := 0.0
	for _, decay := range decays {
		var e struct{ AUC float64 }
		file := t.train(s, kind, decay, 1)
		check(t.work.Print(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))+"-val.json", &e, "evaluate", "--model", file, "--dataset", s.dataset, "--split", "val"))
		if e.AUC > most {
			best, most = decay, e.AUC
		}
	}
	return best
}

// seeded runs din.py with another seed than its own.
const seeded = "import runpy, sys, torch\nseed, manual = int(sys.argv[1]), torch.manual_seed\ntorch.manual_seed = lambda _: manual(seed)\nsys.argv = sys.argv[2:]\nrunpy.run_path(sys.argv[0], run_name='__main__')"

// train trains a model unless its file exists, and returns the file.
func (t *tool) train(s *set, kind, decay string, seed int) string {
	name, number := fmt.Sprintf("%s-%s-%d", s.name, decay, seed), strconv.Itoa(seed)
	if kind == din {
		t.run(name, []string{"-c", seeded, number, filepath.Join(t.real, "din.py"), s.dataset}, ".onnx", "6", decay)
		return t.work.Path(name + ".onnx")
	}
	name += ".safetensors"
	check(t.work.Train(name, append(training(kind, decay), "--dataset", s.dataset, "--seed", number)...))
	return t.work.Path(name)
}

// training returns the arguments with which a kind is trained, without the dataset and the seed.
func training(kind, decay string) []string {
	return []string{"train", "--kind", kind, "--hidden", "128,64", "--epochs", "12", "--patience", "2", "--weight-decay", decay}
}

// flightSets imports the rows of the flights and makes the model of the quickstart. One half of the val rows is fresh.
func (t *tool) flightSets() (all []set) {
	for _, from := range []struct{ name, title, folder string }{{"flights", "New York", t.flights}, {"hflights", "Houston", t.hflights}} {
		for _, split := range []string{"train", "val", "test"} {
			check(os.MkdirAll(t.work.Path(from.name+".rows"), 0o777))
			link := t.work.Path(filepath.Join(from.name+".rows", split+".csv.gz"))
			if _, err := os.Lstat(link); err != nil {
				check(os.Symlink(must(filepath.Abs(filepath.Join(from.folder, split+".csv.gz"))), link))
			}
		}
		in := func(name string) string { return filepath.Join(from.folder, name) }
		t.importRows(from.name, t.rows(from.name, "-flat-rows", 1, nil), "--train", "--ids", "local", "--model", in("deepfm.pth"))
		for _, k := range kinds[:2] {
			all = append(all, set{name: from.name + "-" + k.name, title: from.title + ", " + k.title, model: func(int) string { return in(k.name + ".pth") }, dataset: t.work.Path(from.name)})
		}
	}
	planted := t.work.Path("planted")
	check(t.work.Make("planted", "quickstart", "--rows", "200000", "--out", planted))
	model, data := filepath.Join(planted, "model.safetensors"), t.work.Path("planted-data")
	check(t.work.Make("planted-data", "dataset", "import", "csv", "--train", filepath.Join(planted, "rows.csv"), "--split", "7:1:1:1", "--model", model, "--out", data))
	return append(all, set{name: "planted", title: "planted", model: func(int) string { return model }, dataset: data})
}

package dataset

import (
	"bytes"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/data/dense"
)

// goodManifest returns a valid manifest.
func goodManifest() []byte {
	file := func(name string) File { return File{File: name, SHA256: strings.Repeat("ab", 32), Bytes: 7} }
	m := Manifest{Version: Version, Fields: []Field{{Name: "a", Size: 4}, {Name: "b", Size: 5}}, Frequencies: file("frequencies.arrow"),
		Vocabulary: []File{file("vocabulary/0-a.txt"), file("vocabulary/1-b.txt")}, Sources: []File{file("rows.csv")}, IDs: RawStrings,
		Division: &Division{Ratio: "8:1:1", Seed: 1}, MinCount: 1}
	for _, name := range SplitNames {
		m.Splits = append(m.Splits, Split{Name: name, Rows: 9, Positives: new(int64(3)), File: file(name + ".arrow")})
	}
	return m.Marshal()
}

// denseManifest returns a valid manifest with dense inputs.
func denseManifest() []byte {
	m, err := Parse(goodManifest())
	if err != nil {
		panic(err)
	}
	mean, deviation := 2., 3.
	m.Version = DenseVersion
	m.Dense = []dense.Input{{Name: "price", Rule: dense.ZScore, Mean: &mean, Deviation: &deviation, Values: dense.Values{Min: 0, Mean: 2, Max: 9}},
		{Name: "age", Rule: dense.Log1p, Missing: &mean, Filled: 4}}
	return m.Marshal()
}

// weightedManifest returns a valid manifest with weights and two labels.
func weightedManifest() []byte {
	m, err := Parse(goodManifest())
	if err != nil {
		panic(err)
	}
	m.Version, m.Tasks, m.Weights = WeightVersion, []string{"click", "buy"}, &Weights{WeightUnits, 250, 1000}
	for k := range m.Splits {
		m.Splits[k].Weight, m.Splits[k].Tasks = 5.25, []TaskFacts{{Label: "buy", Missing: 4, Positives: 5}}
	}
	return m.Marshal()
}

func TestWeightedManifestRefuses(t *testing.T) {
	good := string(weightedManifest())
	if _, err := Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`"shaver.dataset/4"`, `"shaver.dataset/3"`, `version is "shaver.dataset/3", but`},
		{`"denominator": 1000`, `"denominator": 100`, "the denominator 100"},
		{`"divisor": 250`, `"divisor": 0`, "the divisor 0"},
		{`"divisor": 250`, `"divisor": 300`, "the divisor 300"},
		{`"largest": 1000`, `"largest": 0`, "the largest weight 0"},
		{`"largest": 1000`, `"largest": 2147483750`, "the largest weight 2147483750"},
		{`"weight": 5.25,`, ``, "counts 1 labels after the first and has the weight 0"},
		{`"missing": 4`, `"missing": 5`, `split train has 9 rows, 5 without the label "buy" and 5 where it is 1`},
		{`"missing": 4`, `"missing": -1`, `-1 without the label "buy"`},
		{`"label": "buy"`, `"label": "like"`, `and the label "buy"`},
		{"\"buy\"\n", "\"click\"\n", `the labels are ["click" "click"]`},
		{"\"buy\"\n", "\"a\"\n", `field 0 and label 1 have the same name "a"`},
		{"\"buy\"\n", "\"buy\", \"like\"\n", "counts 1 labels after the first"},
		{`"name": "a"`, `"name": "weight"`, `field 0 has the name "weight", which is reserved`},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		if text == good {
			t.Fatalf("%q is not in %s", c.old, good)
		}
		if _, err := Parse([]byte(text)); !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v\nwant bad input with %q", err, c.want)
		}
	}
}

func TestDenseManifestRefuses(t *testing.T) {
	good := string(denseManifest())
	if _, err := Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`"shaver.dataset/2"`, `"shaver.dataset/1"`, `version is "shaver.dataset/1", but the fields, dense inputs, labels and weights need "shaver.dataset/2"`},
		{`"name": "price"`, `"name": "age"`, "dense input 0 and dense input 1 have the same name"},
		{`"name": "price"`, `"name": "b"`, `field 1 and dense input 0 have the same name "b"`},
		{`"rule": "log1p"`, `"rule": "ln"`, `dense input 1 (age): the rule is "ln"`},
		{`"deviation": 3`, `"deviation": 0`, "dense input 0 (price): the mean is 2 and the deviation 0"},
		{`"deviation": 3`, `"deviation": 1e999`, "expected a value of type float64"},
		{`"deviation": 3,`, ``, "no mean or no deviation"},
		{`"missing": 2`, `"missing": -1`, "dense input 1 (age): missing numbers: -1 has no logarithm"},
		{`"filled": 4`, `"filled": -4`, "with -4 missing"},
		{`"max": 9`, `"max": 1`, "in ascending order"},
		{`"max": 9`, `"max": 9, "more": 1`, "more"},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		if text == good {
			t.Fatalf("%q is not in %s", c.old, good)
		}
		if _, err := Parse([]byte(text)); !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v\nwant bad input with %q", err, c.want)
		}
	}
}

func TestManifestRefuses(t *testing.T) {
	good := goodManifest()
	for _, c := range []struct{ old, new, want string }{
		{`"shaver.dataset/1"`, `"shaver.dataset/2"`, `version is "shaver.dataset/2", but the fields, dense inputs, labels and weights need`},
		{`"shaver.dataset/1"`, `"shaver.dataset/5"`, `version is "shaver.dataset/5", this program reads "shaver.dataset/1", "shaver.dataset/2", "shaver.dataset/3" and "shaver.dataset/4"`},
		{`"size": 4`, `"size": 0`, "field 0 (a) has size 0"},
		{`"name": "b"`, `"name": "a"`, "fields 0 and 1 have the same name"},
		{`"name": "val"`, `"name": "train"`, `split "train"`},
		{`"name": "val"`, `"name": "dev"`, `split "dev"`},
		{`"file": "val.arrow"`, `"file": "../val.arrow"`, "expected a path inside the folder"},
		{`"file": "val.arrow"`, `"file": "/val.arrow"`, "expected a path inside the folder"},
		{`"skipped": 0`, `"skipped": 0, "more": 1`, "more"},
		{`"version"`, `version`, "not JSON"},
		{`"size": 4`, `"size": 4, "oov": 3`, "field 0 (a) has the id 3 for unseen values, expected -1 to 2 in a dataset with a vocabulary"},
		{`"size": 4`, `"size": 4, "oov": -2`, "field 0 (a) has the id -2 for unseen values"},
		{`"skipped"`, `"vocabulary": [], "skipped"`, "the vocabulary has 0 fields"},
	} {
		text := strings.Replace(string(good), c.old, c.new, 1)
		if text == string(good) {
			t.Fatalf("%q is not in %s", c.old, good)
		}
		_, err := Parse([]byte(text))
		if !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v\nwant bad input with %q", err, c.want)
		}
	}
	m, err := Parse([]byte(strings.Replace(string(good), `"size": 4`, `"size": 4, "oov": 0`, 1)))
	if err != nil || m.Fields[0].OOVID() != 0 || m.Fields[1].OOVID() != m.Fields[1].Size-1 {
		t.Fatalf("ids of unseen values: %v", err)
	}
	m.Vocabulary = nil
	if _, err = Parse(m.Marshal()); err == nil || !strings.Contains(err.Error(), "field 0 (a) has the id 0 for unseen values") {
		t.Errorf("an id of unseen values without a vocabulary: %v", err)
	}
}

// A manifest that parses is the same after it is written and parsed again.
func FuzzManifest(f *testing.F) {
	good := string(goodManifest())
	f.Add([]byte(good))
	f.Add(denseManifest())
	f.Add(weightedManifest())
	f.Add([]byte(strings.Replace(good, `"size": 4`, `"size": 4, "oov": -1`, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse(data)
		if err != nil {
			if !fault.IsInput(err) {
				t.Fatalf("not bad input: %v", err)
			}
			return
		}
		again, err := Parse(m.Marshal())
		if err != nil || !bytes.Equal(again.Marshal(), m.Marshal()) {
			t.Fatalf("the manifest changed when it was written and read: %v", err)
		}
	})
}

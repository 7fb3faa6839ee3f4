package dataset

import (
	"bytes"
	"strings"
	"testing"

	"shaver/internal/fault"
)

// goodManifest returns a valid manifest.
func goodManifest() []byte {
	file := func(name string) File { return File{File: name, SHA256: strings.Repeat("ab", 32), Bytes: 7} }
	m := Manifest{Version: Version, Fields: []Field{{Name: "a", Size: 4}, {Name: "b", Size: 5}}, Frequencies: file("frequencies.arrow"),
		Vocabulary: []File{file("vocabulary/0-a.txt"), file("vocabulary/1-b.txt")}, Sources: []File{file("rows.csv")}, IDs: RawStrings,
		Division: &Division{Ratio: "8:1:1", Seed: 1}, MinCount: 1}
	for _, name := range SplitNames {
		m.Splits = append(m.Splits, Split{Name: name, Rows: 9, Positives: 3, File: file(name + ".arrow")})
	}
	return m.Marshal()
}

func TestManifestRefuses(t *testing.T) {
	good := goodManifest()
	for _, c := range []struct{ old, new, want string }{
		{`"shaver.dataset/1"`, `"shaver.dataset/2"`, `version is "shaver.dataset/2"`},
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
		_, err := parseManifest([]byte(text))
		if !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v\nwant bad input with %q", err, c.want)
		}
	}
	m, err := parseManifest([]byte(strings.Replace(string(good), `"size": 4`, `"size": 4, "oov": 0`, 1)))
	if err != nil || m.Fields[0].OOVID() != 0 || m.Fields[1].OOVID() != m.Fields[1].Size-1 {
		t.Fatalf("ids of unseen values: %v", err)
	}
	m.Vocabulary = nil
	if _, err = parseManifest(m.Marshal()); err == nil || !strings.Contains(err.Error(), "field 0 (a) has the id 0 for unseen values") {
		t.Errorf("an id of unseen values without a vocabulary: %v", err)
	}
}

// A manifest that parses is the same after it is written and parsed again.
func FuzzManifest(f *testing.F) {
	good := string(goodManifest())
	f.Add([]byte(good))
	f.Add([]byte(strings.Replace(good, `"size": 4`, `"size": 4, "oov": -1`, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseManifest(data)
		if err != nil {
			if !fault.IsInput(err) {
				t.Fatalf("not bad input: %v", err)
			}
			return
		}
		again, err := parseManifest(m.Marshal())
		if err != nil || !bytes.Equal(again.Marshal(), m.Marshal()) {
			t.Fatalf("the manifest changed when it was written and read: %v", err)
		}
	})
}

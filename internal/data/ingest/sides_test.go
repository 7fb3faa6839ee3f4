package ingest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
)

// A list is filled on the side that the import names, and the ids keep their order. Full lists stay as they are.
// The dataset records the front, which gives it another identity, and has the same bytes as before with the end.
func TestListPads(t *testing.T) {
	const text = "label,items\n1,2|1\n0,3\n1,\n0,3|2|1\n1,0|0|2\n0,2|0|0\n"
	want := map[string]string{
		model.End:   "2 1 0 / 3 0 0 / 0 0 0 / 3 2 1 / 0 0 2 / 2 0 0 /",
		model.Front: "0 2 1 / 0 0 3 / 0 0 0 / 3 2 1 / 0 0 2 / 2 0 0 /",
	}
	digests := map[string]string{}
	for _, side := range []string{"", model.End, model.Front} {
		summary, d, err := importLists(t, text, func(c *EncodedConfig) { c.Lists.Pads = side })
		if err != nil {
			t.Fatal(err)
		}
		digests[side] = d.Digest()
		rows, recorded, other := want[side], side, "1 lists have the pad id 0 at their front"
		if side != model.Front {
			rows, recorded = want[model.End], ""
		} else {
			other = "1 lists have the pad id 0 at their end"
		}
		if got := localIDs(t, d); got != rows {
			t.Errorf("side %q: %s, expected %s", side, got, rows)
		}
		if f := d.Manifest.Fields[0]; f.Pads != recorded || d.Identities()[0].Pads != recorded {
			t.Errorf("side %q: recorded %q", side, f.Pads)
		}
		if !slices.ContainsFunc(summary.Warnings, func(w string) bool { return strings.Contains(w, other) }) || summary.Padded[0] != 5 {
			t.Errorf("side %q: warnings %q and %v lists with pads", side, summary.Warnings, summary.Padded)
		}
		known := &model.Known{File: "m", Fields: d.Identities(), Sizes: d.FieldDims()}
		known.Fields[0].Pads = map[string]string{"": model.Front}[recorded]
		if err := d.CheckKnown(known); err == nil || !strings.Contains(err.Error(), "import the rows with --list-pads") {
			t.Errorf("side %q: a model of the other side: %v", side, err)
		}
	}
	if digests[""] != digests[model.End] || digests[""] == digests[model.Front] {
		t.Errorf("digests %v", digests)
	}
}

// Lists without a pad id are full, so no side is recorded for them, and the dataset is the same for each.
func TestListPadsWithoutID(t *testing.T) {
	digests := map[string]bool{}
	for _, side := range []string{model.End, model.Front} {
		_, d, err := importLists(t, "label,items\n1,2|1|0\n0,3|3|1\n", func(c *EncodedConfig) { c.Lists.Pads, c.Lists.Columns[0].Pad = side, -1 })
		if err != nil {
			t.Fatalf("side %q: %v", side, err)
		}
		digests[d.Digest()] = true
	}
	if len(digests) != 1 {
		t.Errorf("%d different datasets", len(digests))
	}
}

// FuxiCTR's vocabulary fills lists at the front, as FuxiCTR does, and an earlier dataset as it did itself. What the import
// names prevails. Days that are filled on different sides are no window.
func TestListPadsOfVocabulary(t *testing.T) {
	vocabulary := filepath.Join(t.TempDir(), "feature_vocab.json")
	if err := os.WriteFile(vocabulary, []byte(`{"history":{"__PAD__":0,"film":1,"song":2,"__OOV__":3}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	first := ""
	imported := func(vocabulary, side, text string) *dataset.Dataset {
		t.Helper()
		_, d, err := importRawLists(t, text, func(c *RawConfig) {
			c.Lists.Pads, c.Share = side, nil
			var err error
			if vocabulary != "" {
				c.Vocabulary, err = ReadVocabulary(vocabulary, DefaultMemory, "")
			}
			if err != nil {
				t.Fatal(err)
			}
			first = c.Out
		})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	const text, front, end = "label,history\n1,film|song\n0,opera\n", "0 1 2 / 0 0 3 /", "1 2 0 / 3 0 0 /"
	day := imported(vocabulary, "", text)
	if got := localIDs(t, day); got != front {
		t.Errorf("FuxiCTR: %s, expected %s", got, front)
	}
	folder := first
	if got := localIDs(t, imported(folder, "", text)); got != front {
		t.Errorf("the next day: %s, expected %s", got, front)
	}
	other := imported(folder, model.End, text+"0,film\n")
	if got := localIDs(t, other); got != end+" 1 0 0 /" {
		t.Errorf("the end: %s, expected %s", got, end)
	}
	if _, err := dataset.Join([]*dataset.Dataset{day, other}); err == nil || !strings.Contains(err.Error(), "at its front") {
		t.Errorf("a window of two sides: %v", err)
	}
	if got := localIDs(t, imported("", model.Front, text)); got != "0 1 3 / 0 0 2 /" {
		t.Errorf("a new vocabulary: %s, expected film 1, opera 2 and song 3", got)
	}
}

// The unseen values of lists are counted on whichever side the lists are filled.
func TestUnseenOfSides(t *testing.T) {
	vocabulary := filepath.Join(t.TempDir(), "feature_vocab.json")
	if err := os.WriteFile(vocabulary, []byte(`{"history":{"__PAD__":0,"film":1,"__OOV__":2}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, side := range []string{model.End, model.Front} {
		summary, _, err := importRawLists(t, "label,history\n1,new\n0,film|newer\n0,film|film|newest\n1,film\n0,\n", func(c *RawConfig) {
			c.Lists.Pads, c.Share = side, nil
			var err error
			if c.Vocabulary, err = ReadVocabulary(vocabulary, DefaultMemory, ""); err != nil {
				t.Fatal(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if summary.Unseen[0] != 3 || summary.Missing[0] != 0 || summary.Examples[0] != "new" {
			t.Errorf("filled at the %s: %d rows with unseen values, %d missing, such as %q; want 3, 0, new", side, summary.Unseen[0], summary.Missing[0], summary.Examples[0])
		}
	}
}

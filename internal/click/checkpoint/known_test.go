package checkpoint

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
)

// identified returns a copy of c that knows its fields and dense inputs.
func identified(c *Checkpoint) *Checkpoint {
	changed := *c
	changed.Identities = nil
	for j := range c.Architecture.Fields() {
		f := model.Identity{Name: fmt.Sprintf("field %d", j), Vocabulary: model.OwnIDs}
		if j%2 == 1 {
			f.Vocabulary, f.Bytes = strings.Repeat("0a", 32), int64(j)
		}
		changed.Identities = append(changed.Identities, f)
	}
	changed.Standards = nil
	for i, name := range c.Architecture.Dense {
		s := model.Standard{Name: name, Rule: "none"}
		if i%2 == 0 {
			mean, deviation, missing := 1/3., 7e-9, -1.
			s.Rule, s.Mean, s.Deviation, s.Missing = "zscore", &mean, &deviation, &missing
		}
		changed.Standards = append(changed.Standards, s)
	}
	return &changed
}

// Each form in which a model is written keeps what the model knows about its fields and dense inputs, which
// does not change the model's digest. A file without it is read as unknown.
func TestIdentities(t *testing.T) {
	whole := func(write func(path string, c *Checkpoint) (int64, error)) func(string, *Checkpoint) error {
		return func(path string, c *Checkpoint) error {
			_, err := write(path, c)
			return err
		}
	}
	pruned := whole(func(path string, c *Checkpoint) (int64, error) {
		dropped := make([]bool, c.Architecture.Parameters())
		dropped[1] = true
		return WriteCompact(path, c, dropped, c.Architecture.Zero(), compact.Float32)
	})
	onnx := func(path string, c *Checkpoint) error {
		_, err := WriteONNX(path, c, ONNXOptions{})
		return err
	}
	own, err := Parse("m", fileBytes(append(sampleEntries("deepfm"), offsetsOf(0, 2, 5)), nil))
	if err != nil {
		t.Fatal(err)
	}
	graph, numeric := graphOf(t, "ncf.dynamo"), graphOf(t, "fuxictr-deepfm-numeric.dynamo")
	known, err := Read(filepath.Join(exports, "deepctr-torch-deepfm.dynamo.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	for name, form := range map[string]struct {
		c     *Checkpoint
		file  string
		write func(path string, c *Checkpoint) error
	}{
		"dense":         {own, "m.safetensors", whole(WriteDense)},
		"compact":       {own, "m.safetensors", pruned},
		"composed":      {composedSamples(t)["qr"], "m.safetensors", whole(WriteComposed)},
		"dense graph":   {graph, "m.safetensors", whole(WriteDense)},
		"compact graph": {graph, "m.safetensors", pruned},
		"onnx graph":    {graph, "m.onnx", onnx},
		"dense inputs":  {numeric, "m.safetensors", whole(WriteDense)},
		"pruned inputs": {numeric, "m.safetensors", pruned},
		"onnx inputs":   {numeric, "m.onnx", onnx},
		"onnx":          {known, "m.onnx", onnx},
	} {
		path := filepath.Join(t.TempDir(), form.file)
		if err := form.write(path, form.c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		without, err := Read(path)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		k := without.Known()
		if k.Fields != nil || !strings.HasPrefix(k.Unknown(), path+" does not say") {
			t.Errorf("%s: a file that does not say it knows %v, %q", name, k.Fields, k.Unknown())
		}
		c := identified(form.c)
		if err := form.write(path, c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		with, err := Read(path)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(with.Identities, c.Identities) || with.Known().Unknown() != "" {
			t.Errorf("%s: the file knows %v, expected %v", name, with.Identities, c.Identities)
		}
		if !reflect.DeepEqual(with.Standards, c.Standards) || len(c.Standards) != len(form.c.Architecture.Dense) {
			t.Errorf("%s: the file knows the dense inputs %v, expected %v", name, with.Standards, c.Standards)
		}
		if with.Digest() != without.Digest() {
			t.Errorf("%s: the digest depends on what the file knows", name)
		}
		if form.file == "m.onnx" { // which is then replaced, and not added once more
			with.Identities[0].Name = "other"
			again := filepath.Join(filepath.Dir(path), "again.onnx")
			if err := form.write(again, with); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if c, err := Read(again); err != nil || c.Identities[0].Name != "other" {
				t.Errorf("%s: a second name is lost: %v", name, err)
			}
		}
	}
}

// A file that says something impossible about its fields is refused.
func TestHostileIdentities(t *testing.T) {
	c, err := Parse("m", fileBytes(append(sampleEntries("deepfm"), offsetsOf(0, 2, 5)), nil))
	if err != nil {
		t.Fatal(err)
	}
	good := identified(c).Identities
	for want, change := range map[string]func(list []model.Identity) any{
		"it has 2 fields, expected 3":                    func(l []model.Identity) any { return l[:2] },
		"field 1 has no name":                            func(l []model.Identity) any { l[1].Name = ""; return l },
		`two fields are named "field 0"`:                 func(l []model.Identity) any { l[1].Name = l[0].Name; return l },
		`field 1 ("field 1"): expected the SHA-256`:      func(l []model.Identity) any { l[1].Vocabulary = "0A"; return l },
		`field 0 ("field 0"): it has 3 bytes`:            func(l []model.Identity) any { l[0].Bytes = 3; return l },
		"found a value of type object":                   func([]model.Identity) any { return map[string]int{} },
		`field 1 ("field 1"): expected the SHA-256 of a`: func(l []model.Identity) any { l[1].Bytes = -1; return l },
	} {
		text, err := json.Marshal(change(append([]model.Identity{}, good...)))
		if err != nil {
			t.Fatal(err)
		}
		f := c.canonical()
		f.Metadata[metaVocabulary] = string(text)
		_, err = Parse("m", fileBytes(f.Entries, f.Metadata))
		if !fault.IsInput(err) || !strings.Contains(err.Error(), "m: metadata shaver.vocabulary: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// A file that says something impossible about its dense inputs is refused, and one that says nothing says so.
func TestHostileStandards(t *testing.T) {
	c := graphOf(t, "fuxictr-deepfm-numeric.dynamo")
	good := identified(c)
	if names := c.Architecture.Dense; len(names) != 2 {
		t.Fatalf("dense inputs %q, expected 2", names)
	}
	for want, change := range map[string]func(list []model.Standard) any{
		`the dense input "price" is missing`:                       func(l []model.Standard) any { return l[:1] },
		`two dense inputs are named "age"`:                         func(l []model.Standard) any { l[1].Name = "age"; return l },
		`dense input 1 ("price") has the rule "": expected`:        func(l []model.Standard) any { l[1].Rule = ""; return l },
		`dense input 1 ("price") has the rule "\x1b[2J": expected`: func(l []model.Standard) any { l[1].Rule = "\x1b[2J"; return l },
		`dense input 0 ("age") has only one of mean and deviation`: func(l []model.Standard) any { l[0].Mean = nil; return l },
		"found a value of type object":                             func([]model.Standard) any { return map[string]int{} },
	} {
		text, err := json.Marshal(change(append([]model.Standard{}, good.Standards...)))
		if err != nil {
			t.Fatal(err)
		}
		f := c.canonical()
		f.Metadata[metaDense] = string(text)
		_, err = Parse("m", fileBytes(f.Entries, f.Metadata))
		if !fault.IsInput(err) || !strings.Contains(err.Error(), "m: metadata shaver.dense: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	// The file of a slice has those of its model, which may have more, and in another order.
	f := c.canonical()
	f.Metadata[metaDense] = string(mustMarshal([]model.Standard{good.Standards[1], {Name: "gone", Rule: "none"}, good.Standards[0]}))
	if read, err := Parse("m", fileBytes(f.Entries, f.Metadata)); err != nil || !reflect.DeepEqual(read.Standards, good.Standards) {
		t.Errorf("standards %v: %v", read.Standards, err)
	}
	good.Standards = nil
	if text := good.Known().Unknown(); !strings.Contains(text, "does not say by which rules its dense inputs were standardised") {
		t.Errorf("a file without rules says %q", text)
	}
}

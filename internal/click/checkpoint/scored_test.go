package checkpoint

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/compact"
)

// A file in either form keeps what rows did. Its digest does not depend on them. Rows that were scored neither choose nor judge,
// rows that chose or calibrated do not judge, and others may do all.
func TestScored(t *testing.T) {
	c := fmOf(t, 6, 2)
	before := c.Digest()
	train, other := Scored{"d", []string{"train", "val"}, ""}, Scored{"e", []string{"test"}, Calibrate}
	shared := *c
	c.AddScored(train)
	c.AddScored(train, other)
	shared.AddScored(other)
	all := []Scored{train, other}
	dense, small := filepath.Join(t.TempDir(), "dense"), filepath.Join(t.TempDir(), "compact")
	if _, err := WriteDense(dense, c); err != nil {
		t.Fatal(err)
	}
	if _, err := WriteCompact(small, c, make([]bool, c.Architecture.Parameters()), c.Architecture.Zero(), compact.Float32); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dense, small} {
		got, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.Scored, all) || got.Digest() != before {
			t.Errorf("%s: %v with the digest %s, expected %v and %s", path, got.Scored, got.Digest(), all, before)
		}
		for _, c := range []struct {
			dataset, split string
			choose, judge  bool
		}{{"d", "train", false, false}, {"d", "val", false, false}, {"e", "test", true, false}, {"d", "test", true, true}, {"e", "train", true, true}} {
			for use, may := range map[Use]bool{Choose: c.choose, Calibrate: c.choose, Judge: c.judge} {
				err := got.Apart(c.dataset, c.split, use)
				if (err == nil) != may || err != nil && (!fault.IsUsage(err) || !strings.HasPrefix(err.Error(), "the split "+c.split+" ") || strings.Contains(err.Error(), "\n")) {
					t.Errorf("%s of %s, %s: %v", c.split, c.dataset, use, err)
				}
			}
		}
	}
	text, err := os.ReadFile(dense)
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Replace(text, []byte(`[\"test\"]`), []byte(`{\"test\"}`), 1)
	if _, err := Parse("m", damaged); !fault.IsInput(err) || !strings.Contains(err.Error(), "shaver.scored") {
		t.Errorf("a malformed array: %v", err)
	}
}

// So does an .onnx file, which keeps the digests of the models from which it was pruned too.
func TestHistoryONNX(t *testing.T) {
	c, err := Read(filepath.Join("..", "..", "..", "testdata", "onnx", "ncf.dynamo.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	c.AddScored(Scored{"d", []string{"train"}, Choose})
	c.Origins = []string{"one", "two"}
	path := filepath.Join(t.TempDir(), "pruned.onnx")
	if _, err := WriteONNX(path, c, ONNXOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Scored, c.Scored) || !slices.Equal(got.Origins, c.Origins) || got.Digest() != c.Digest() {
		t.Errorf("%v from %v with the digest %s, expected %v from %v and %s", got.Scored, got.Origins, got.Digest(), c.Scored, c.Origins, c.Digest())
	}
}

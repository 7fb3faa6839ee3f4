package delta_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/prune/delta"
	"shaver/internal/prune/delta/deltatest"
)

// deltas writes the deltas of the nights, the first of which is whole, and returns their folders.
func deltas(t testing.TB, nights []string) (folders []string) {
	t.Helper()
	root := t.TempDir()
	for i, night := range nights {
		o := delta.Options{Generation: int64(i + 1)}
		if i > 0 {
			o.From = nights[i-1]
		}
		folder := filepath.Join(root, filepath.Base(night))
		if _, err := delta.Write(night, o, folder); err != nil {
			t.Fatal(err)
		}
		folders = append(folders, folder)
	}
	return folders
}

func contents(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The deltas of ten nights, applied to the model before them, give the file of the eleventh model bit
// for bit. So does a chain that begins with a whole delta. The number of words may change from night to night.
func TestTenNights(t *testing.T) {
	for v, words := range map[compact.Encoding][]int{compact.Float32: nil, compact.Float16: {1, 4, 4, 2}} {
		nights := deltatest.Nights(t, 11, v, words...)
		folders := deltas(t, nights)
		want := contents(t, nights[10])
		out := filepath.Join(t.TempDir(), "out.safetensors")
		applied, err := delta.Apply(nights[0], folders[1:], out)
		if err != nil {
			t.Fatal(err)
		}
		if applied.Generation != 11 || applied.Deltas != 10 || !bytes.Equal(contents(t, out), want) {
			t.Errorf("%s: %+v, or the file is another one", v, applied)
		}
		if _, err := delta.Apply("", folders, out); err != nil || !bytes.Equal(contents(t, out), want) {
			t.Errorf("%s: from a whole delta: %v, or the file is another one", v, err)
		}
	}
}

// A night that changes a tenth of the rows has a delta of about a tenth of their lines, and all rows that do
// not change are in none of its files.
func TestChurn(t *testing.T) {
	nights := deltatest.Nights(t, 2, compact.Float32)
	whole, err := delta.Write(nights[1], delta.Options{}, filepath.Join(t.TempDir(), "whole"))
	if err != nil {
		t.Fatal(err)
	}
	part, err := delta.Write(nights[1], delta.Options{From: nights[0], Generation: 2}, filepath.Join(t.TempDir(), "part"))
	if err != nil {
		t.Fatal(err)
	}
	changed := float64(part.Kept+part.Dropped) / float64(whole.Rows)
	if part.New != 3 || whole.New != 0 || changed < deltatest.Churn/2 || changed > deltatest.Churn*1.5 || part.Dropped == 0 {
		t.Errorf("%+v of %+v, %.3f of the rows", part, whole, changed)
	}
}

// A model of every kind, also with towers, with lists whose pads are not 0, with int8 and mixed values, and with several words, comes
// back with its digest.
func TestKinds(t *testing.T) {
	for _, name := range []string{"golden/neumf.pth", "golden/dcn-mix.pth", "onnx/fuxictr-din.dynamo.onnx"} {
		ck, err := checkpoint.Read(filepath.Join("..", "..", "..", "testdata", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range append(compact.Encodings(), compact.Mixed) {
			r := rand.New(rand.NewPCG(1, 2))
			a := &ck.Architecture
			dropped := deltatest.Mask(r, a.Parameters())
			protect(a, dropped)
			table, err := ck.Embedding()
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range a.FixedRows() {
				shape := a.Shape()
				for i, to := shape.Row(row); i < to; i++ {
					table[i] = float32(r.NormFloat64())
				}
			}
			ck := ck.WithEmbedding(table)
			before := deltatest.Write(t, ck, dropped, r, v, 0, 1, 3)
			deltatest.Change(r, table, dropped, 1)
			protect(a, dropped)
			after := deltatest.Write(t, ck.WithEmbedding(table), dropped, r, v, 1, 1, 3)
			out := filepath.Join(t.TempDir(), "out.safetensors")
			folders := deltas(t, []string{before, after})
			applied, err := delta.Apply("", folders, out)
			if err != nil {
				t.Fatalf("%s, %s: %v", name, v, err)
			}
			want, head := must(checkpoint.Read(after)), must(checkpoint.Read(filepath.Join(folders[1], delta.HeadFile)))
			whole, pads := must(want.Embedding()), must(head.Embedding())
			for _, row := range a.FixedRows() {
				shape := a.Shape()
				if from, to := shape.Row(row); !slices.Equal(pads[from:to], whole[from:to]) {
					t.Errorf("%s, %s: the head has the pad row %v, expected %v", name, v, pads[from:to], whole[from:to])
				}
			}
			if applied.Model != want.Digest() || v != compact.Int8 && v != compact.Mixed && !bytes.Equal(contents(t, out), contents(t, after)) {
				t.Errorf("%s, %s: another model", name, v)
			}
		}
	}
}

// Deltas that are missing, damaged or of other models are refused in one line that names them.
func TestRefusals(t *testing.T) {
	nights := deltatest.Nights(t, 4, compact.Float32)
	folders := deltas(t, nights)
	out := filepath.Join(t.TempDir(), "out.safetensors")
	other := deltatest.Write(t, must(checkpoint.Read(nights[0])), make([]bool, must(checkpoint.Read(nights[0])).Architecture.Parameters()), rand.New(rand.NewPCG(9, 9)), compact.Float32, 7)
	refuse := func(want, old string, folders ...string) {
		t.Helper()
		_, err := delta.Apply(old, folders, out)
		if !fault.IsInput(err) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", want, err)
		}
	}
	refuse("starts from generation 2", nights[0], folders[2])                        // a night is missing
	refuse("apply the deltas between them first", nights[0], folders[1], folders[3]) // one in the middle
	refuse("with other kept entries", other, folders[1])                             // a foreign model
	refuse("begin with a whole delta", "", folders[1])
	refuse("no such file", nights[0], t.TempDir())
	for _, name := range []string{"kept.parquet", "dropped.parquet", "baseline.parquet", "head.safetensors", "delta.json"} {
		path := filepath.Join(folders[1], name)
		whole := contents(t, path)
		damaged := bytes.Clone(whole)
		damaged[len(damaged)/2] ^= 1
		for what, data := range map[string][]byte{"damaged": damaged, "truncated": whole[:len(whole)/2], "empty": nil} {
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := delta.Apply(nights[0], folders[1:2], out); !fault.IsInput(err) || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s %s: %v", what, name, err)
			}
		}
		if err := os.WriteFile(path, whole, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("a refused delta has an output: %v", err)
	}
	for want, o := range map[string]delta.Options{
		"needs its generation":   {From: nights[0]},
		"from generation 5":      {From: nights[0], Generation: 3, FromGeneration: 5},
		"from 1 to 4294967295":   {Generation: math.MaxInt64},
		"has fewer ids in field": {From: nights[3], Generation: 2},
	} {
		if _, err := delta.Write(nights[1], o, filepath.Join(t.TempDir(), "x")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, expected %q", o, err, want)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

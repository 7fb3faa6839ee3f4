package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/value/mask"
)

// Two samples of the rows stand for two nights. For every budget and way to choose entries,
// hysteresis halves the churn or more, at exactly the budget of plain pruning. Without
// standard errors the file is that of plain pruning, bit for bit.
func TestHysteresis(t *testing.T) {
	long.Test(t)
	dir := t.TempDir()
	q := filepath.Join(dir, "q")
	shaver(t, nil, "quickstart", "--rows", "3000", "--out", q)
	modelFile, rows := filepath.Join(q, "model.safetensors"), filepath.Join(q, "dataset")
	night := func(seed string) string {
		out := filepath.Join(dir, seed+".arrow")
		shaver(t, nil, "score", "--model", modelFile, "--dataset", rows, "--splits", "train", "--baseline", "codebook", "--sample", "0.3", "--seed", seed, "--out", out)
		return out
	}
	monday, tuesday := night("1"), night("2")
	file := func(name string) string { return filepath.Join(dir, name+".safetensors") }
	run := func(name, scores string, args ...string) (p pruning) {
		shaver(t, &p, append([]string{"prune", "--model", modelFile, "--scores", scores, "--out", file(name)}, args...)...)
		return p
	}
	for name, args := range map[string][]string{
		"sparsity":   {"--sparsity", "0.8"},
		"parameters": {"--parameters", "2000"},
		"bytes":      {"--bytes", "50000", "--values", "float16"},
		"signed":     {"--sparsity", "0.8", "--aggregate", "signed"},
		"fields":     {"--sparsity", "0.85", "--protect", "category,hour", "--field-minimum", "0.05", "--dense"},
	} {
		t.Run(name, func(t *testing.T) {
			first := args
			if name == "fields" {
				first = args[:len(args)-1] // compact
			}
			before := run("before", monday, first...)
			plain := run("plain", tuesday, args...)
			if before.Previous != nil || plain.Previous != nil {
				t.Error("a churn without --previous")
			}
			follow := func(name, z string) pruning {
				return run(name, tuesday, append(args, "--previous", file("before"), "--hysteresis", z)...)
			}
			zero, one := follow("zero", "0"), follow("one", "2")
			if !bytes.Equal(readFile(t, file("zero")), readFile(t, file("plain"))) {
				t.Error("with --hysteresis 0 the file differs from that of plain pruning")
			}
			if name != "bytes" && (one.Dropped != plain.Dropped || one.Parameters != plain.Parameters) {
				t.Errorf("%d entries dropped, expected %d", one.Dropped, plain.Dropped)
			}
			if name == "bytes" && one.Bytes > 50000 {
				t.Errorf("%d bytes, expected at most 50000", one.Bytes)
			}
			with, without := one.Previous.Churn, zero.Previous.Churn
			t.Logf("churn %.4f, without hysteresis %.4f", with.Portion, without.Portion)
			if one.Previous.Plain != without || zero.Previous.Plain != without {
				t.Errorf("plain churn %+v and %+v, expected %+v", one.Previous.Plain, zero.Previous.Plain, without)
			}
			if !(with.Portion <= without.Portion/2) || !(without.Portion > .05) {
				t.Errorf("churn %v, expected at most half of %v", with.Portion, without.Portion)
			}
			if with.KeptBefore != before.Kept || with.Kept != one.Kept || with.Kept-with.KeptBefore != with.Added-with.Removed {
				t.Errorf("churn %+v, before %d of %d entries were kept", with, before.Kept, before.Entries)
			}
			// Churn is what the files say.
			var sum mask.Churn
			for _, f := range one.Previous.Fields {
				sum.Added, sum.Removed = sum.Added+f.Churn.Added, sum.Removed+f.Churn.Removed
			}
			if name != "fields" {
				was, is := droppedOf(t, file("before")), droppedOf(t, file("one"))
				added, removed := 0, 0
				for i := range is {
					if was[i] && !is[i] {
						added++
					} else if is[i] && !was[i] {
						removed++
					}
				}
				if with.Added != added || with.Removed != removed {
					t.Errorf("churn %+v, but %d entries were added and %d removed", with, added, removed)
				}
			}
			if sum.Added != with.Added || sum.Removed != with.Removed {
				t.Errorf("churn of the fields %+v, of all %+v", sum, with)
			}
		})
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// droppedOf returns the dropped entries of a compact file.
func droppedOf(t *testing.T, path string) []bool {
	t.Helper()
	ck, err := checkpoint.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	dropped, _, err := ck.Pruned()
	if err != nil {
		t.Fatal(err)
	}
	return dropped
}

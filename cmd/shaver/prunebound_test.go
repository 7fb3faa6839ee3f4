package main

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/long"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/slice"
	"shaver/internal/prune/sweep"
)

// A bound removes useless columns, and then as many entries and bits as it allows. The interval of the rise ends within the
// bound, on the half of the validation rows that did not choose columns, and the rise on all of them is close. A smaller bound
// keeps more.
func TestBound(t *testing.T) {
	long.Test(t)
	dir := t.TempDir()
	q := filepath.Join(dir, "q")
	shaver(t, nil, "quickstart", "--rows", "6000", "--out", q)
	modelFile, rows, out := filepath.Join(q, "model.safetensors"), filepath.Join(q, "dataset"), filepath.Join(dir, "out.safetensors")
	prune := func(bound string, args ...string) (p pruning) {
		shaver(t, &p, append([]string{"prune", "--model", modelFile, "--scores", filepath.Join(q, "order.arrow"), "--dataset", rows, "--max-rise", bound, "--out", out}, args...)...)
		return p
	}
	measured := func() *sweep.Interval {
		var found struct {
			Against struct {
				Difference *sweep.Interval `json:"log_loss_difference"`
			} `json:"against"`
		}
		shaver(t, &found, "evaluate", "--model", out, "--against", modelFile, "--dataset", rows, "--split", "val")
		return found.Against.Difference
	}
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"float32":    {want: []string{"columns", "entries"}},
		"auto":       {[]string{"--values", "auto"}, []string{"columns", "entries", "bits"}},
		"calibrated": {[]string{"--values", "float16", "--calibrate"}, []string{"columns", "entries"}},
		"protected":  {[]string{"--protect", "category", "--columns", "8"}, []string{"entries"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := prune("0.022", c.args...)
			var kinds []string
			before := p.Before.Bytes
			for i, s := range p.Path {
				kind := cmp.Or(s.Without, "columns")
				if kinds = append(kinds, kind); s.Bytes >= before || *s.Rise.High > .022 {
					t.Errorf("step %d: %+v after %d bytes", i, s, before)
				}
				before = s.Bytes
			}
			if kinds = slices.Compact(kinds); !slices.Equal(kinds, c.want) {
				t.Fatalf("the steps remove %q, expected %q", kinds, c.want)
			}
			last := p.Path[len(p.Path)-1]
			if last.Entries != p.Kept || p.Dropped == 0 || last.Bytes != p.Bytes {
				t.Errorf("last step %+v of %d kept entries and %d bytes", last, p.Kept, p.Bytes)
			}
			if p.DenseBytes < p.Before.Bytes {
				t.Errorf("%d bytes before, expected those of the whole model, %d", p.DenseBytes, p.Before.Bytes)
			}
			if found := measured(); found.Value > *last.Rise.High || found.Value < *last.Rise.Low {
				t.Errorf("the loss rises by %v, but the command says %v", found, last.Rise)
			}
		})
	}
	if less, more := prune("0.02"), prune("0.022"); less.Kept <= more.Kept || len(less.Path) != 5 {
		t.Errorf("%d entries are kept with the smaller bound, and %d with the larger one; path %+v", less.Kept, more.Kept, less.Path)
	}
}

// The table of the steps says which rises are after a calibration, and that of the sizes what is pruned.
func TestStepTable(t *testing.T) {
	var text strings.Builder
	stepTable(&text, &cut.Sliced{Loss: new(float64), Path: []slice.Step{{Gone: []int{1}}, {Without: slice.Entries}, {Without: slice.Bits}}}, true)
	for want, n := range map[string]int{"both calibrated": 2, "entries, both calibrated\t": 1, "bits, both calibrated\t": 1, "\ncolumn 1\t": 1} {
		if strings.Count(text.String(), want) != n {
			t.Errorf("%q is not %d times in\n%s", want, n, text.String())
		}
	}
	text.Reset()
	sizes(&text, false, 4096, 4096, 8192, 8192)
	if got := text.String(); got != "table\t4 KiB, unchanged\nfile\t8 KiB, unchanged\n" {
		t.Errorf("sizes %q", got)
	}
}

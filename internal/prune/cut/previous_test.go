package cut

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/value/mask"
)

// The previous model may have smaller fields, and its choices stay with their ids.
func TestChoicesOfASmallerModel(t *testing.T) {
	pruned := filepath.Join(t.TempDir(), "p.safetensors")
	ck, err := checkpoint.Read(filepath.Join("..", "..", "..", "testdata", "golden", "fm.pth"))
	if err != nil {
		t.Fatal(err)
	}
	a := &ck.Architecture // [3 4 3] x 3
	dropped := make([]bool, a.Parameters())
	for i := range dropped {
		dropped[i] = i*i%5 == 1
	}
	if _, err := checkpoint.WriteCompact(pruned, ck, dropped, a.Zero(), compact.Float32); err != nil {
		t.Fatal(err)
	}
	before, err := checkpoint.Read(pruned)
	if err != nil {
		t.Fatal(err)
	}
	grown := &checkpoint.Checkpoint{Architecture: model.Architecture{Kind: model.FM, FieldDims: []int{3, 6, 3}, Dim: 3}}
	choices, err := choicesOf(grown, before, pruned)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range choices {
		want := mask.WasAbsent
		if at := i - 6; i < 21 || at >= 21 {
			if i < 21 {
				at = i
			}
			want = mask.WasKept
			if dropped[at] {
				want = mask.WasDropped
			}
		}
		if c != want {
			t.Errorf("choice of entry %d is %d, expected %d", i, c, want)
		}
	}
	o := &Options{Previous: pruned}
	if _, err := o.kept(&Source{}, choices); !fault.IsInput(err) || !strings.Contains(err.Error(), "has 6 entries of features that "+pruned+" lacks") {
		t.Errorf("entries without a choice: %v", err)
	}
	if kept, err := o.kept(&Source{}, choices[:21]); err != nil || !slices.Equal(kept, dropped[:21]) {
		t.Errorf("kept %v, %v, expected %v", kept, err, dropped[:21])
	}
	if _, err := o.kept(&Source{}, choices[:22]); !fault.IsInput(err) {
		t.Errorf("one entry without a choice: %v", err)
	}
	before.Fields, grown.Fields = []string{"a", "b", "c"}, []string{"a", "c", "b"}
	if _, err := choicesOf(grown, before, pruned); err == nil {
		t.Error("fields of another order are accepted")
	}
	if _, err := choicesOf(grown, ck, "dense"); err == nil {
		t.Error("a dense file has choices")
	}
}

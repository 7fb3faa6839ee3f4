package picture

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/base/chart"
)

// The picture has a key for each number of entries that occurs, and names from outside
// cannot break it. Its size does not depend on the number of entries.
func TestAgreement(t *testing.T) {
	const n = 72
	draw := func(factor int) string {
		a := &Agreement{X: "<b>\x00.arrow", Y: "a.arrow", Unit: "rms, nat", Low: -6, High: 0, Overlap: chart.Series{X: []float64{0, .5, .999}, Y: []float64{1, .9, .8}}}
		for i := range n {
			a.Count = append(a.Count, make([]int, n))
			for j := range n {
				a.Count[i][j] = factor * (i * j % 200)
			}
		}
		path := filepath.Join(t.TempDir(), "a.svg")
		if err := a.Draw().Write(path); err != nil {
			t.Fatal(err)
		}
		svg, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := xml.Unmarshal(svg, new(struct{})); err != nil {
			t.Error(err)
		}
		return string(svg)
	}
	few, many := draw(1), draw(1e7)
	for _, want := range []string{">1 to 9 entries<", ">10 to 99 entries<", ">100 to 999 entries<", ">equal values<", ">kept by both<", ">by chance<", ">&lt;b&gt; .arrow<", ">a.arrow<", ">1e-6<", ">0.999<"} {
		if !strings.Contains(few, want) {
			t.Errorf("the picture does not contain %q", want)
		}
	}
	if strings.Contains(few, "1000 to") || !strings.Contains(many, ">1000000 entries or more<") || strings.Contains(many, ">1 to 9") {
		t.Error("wrong keys")
	}
	if len(few) > 400_000 || len(many) > 400_000 {
		t.Errorf("%d and %d bytes", len(few), len(many))
	}
}

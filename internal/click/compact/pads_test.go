package compact

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
)

// Every encoding stores a 0 in the row of a pad id exactly, and rounds the row's other values
// as those of other rows. A mask must not drop its entries.
func TestPadRows(t *testing.T) {
	a := modeltest.Lists()
	tables, dropped, baseline := make([]float32, a.Parameters()), make([]bool, a.Parameters()), a.Zero()
	for i := range tables {
		tables[i], dropped[i] = float32(math.Sin(float64(i)))+1.5, i%4 == 2
	}
	for _, pad := range []float32{0, .1} {
		tables[0], tables[1] = pad, 0
		testPadRow(t, &a, tables, dropped, baseline)
	}
	dropped[1] = true
	if _, err := Encode(&a, tables, dropped, baseline, Float32); err == nil || !strings.Contains(err.Error(), "the mask drops an entry of row 0") {
		t.Errorf("error %v for a mask that drops a pad row", err)
	}
}

func testPadRow(t *testing.T, a *model.Architecture, tables []float32, dropped []bool, baseline model.Baseline) {
	for _, v := range Encodings() {
		p, err := Encode(a, tables, dropped, baseline, v)
		if err != nil {
			t.Fatal(err)
		}
		file, err := New(a, v, p)
		if err != nil {
			t.Fatal(err)
		}
		var back []float32
		file.Rows(func(row []float32, _ []bool) { back = append(back, row...) })
		for i, e := range back {
			want, most := tables[i], 0.
			if dropped[i] {
				want = 0
			} else if tables[i] != 0 {
				most = map[Encoding]float64{Float32: 0, Float16: 1e-3, Int8: 2.5 / 254 / 2 * 1.01}[v]
			}
			if math.Abs(float64(e-want)) > most {
				t.Errorf("%s: entry %d is %v, expected %v within %v", v, i, e, want, most)
			}
		}
	}
}

// Find drops no pad row, and look-ups that share rows get the same codebook.
func TestFindWithPads(t *testing.T) {
	a := modeltest.Lists()
	dropped, baseline := Find(&a, slices.Repeat([]float32{.5}, a.Parameters()))
	if dropped[0] || dropped[1] || !dropped[2] || !slices.Equal(baseline.Values[:2], baseline.Values[2:4]) || baseline.Values[0] != .5 {
		t.Errorf("mask %v, baseline %v", dropped, baseline)
	}
}

// The 256 values of a field with a pad row reach from its least to its greatest value, and
// 0 is one of them.
func TestZeroSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.Float32Range(-10, 10), rapid.Float32Range(-1e38, 1e38), rapid.SampledFrom([]float32{0, 1, -1, math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32}))
		least, greatest := value.Draw(t, "least"), value.Draw(t, "greatest")
		if least > greatest {
			least, greatest = greatest, least
		}
		origin, step := zeroSteps(least, greatest)
		all := levels(origin, step)
		if !finite(origin) || !finite(step) || step < 0 || !slices.Contains(all[:], 0) || all[0] > least || all[255] < greatest {
			t.Fatalf("origin %v, step %v: the values reach from %v to %v, expected 0 and from %v to %v", origin, step, all[0], all[255], least, greatest)
		}
	})
}

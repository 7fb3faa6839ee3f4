package composed

import (
	"fmt"
	"strings"
	"testing"

	"shaver/internal/num/layout"
)

// The datasets of the paper, and the flights of the documentation.
const (
	criteo  = 1_086_810
	avazu   = 4_428_511
	kdd     = 6_019_761
	flights = 7_813
)

// The parameters of the configurations in the reference's repository are those of the paper.
func TestPublishedSizes(t *testing.T) {
	for _, c := range []struct {
		shape Shape
		want  int
	}{
		{ForDivider(criteo, 16, 2), 8_694_512}, {ForDivider(criteo, 16, 5), 3_477_872}, {ForDivider(criteo, 16, 20), 869_776},
		{ForDivider(avazu, 16, 2), 35_428_128}, {ForDivider(avazu, 16, 5), 14_171_328}, {ForDivider(avazu, 16, 20), 3_543_136},
		{ForDivider(kdd, 16, 2), 48_158_128}, {ForDivider(kdd, 16, 5), 19_263_328}, {ForDivider(kdd, 16, 20), 4_816_144},
		{ForDivider(flights, 16, 2), 62_544}, {ForDivider(flights, 16, 5), 25_088}, {ForDivider(flights, 16, 20), 6_576},
		{ForRanks(criteo, 16, []int{192, 192}, 0), 9_362_304}, {ForRanks(criteo, 16, []int{128, 96}, 0), 3_153_152},
		{ForRanks(criteo, 16, []int{64, 64, 64}, 12_780), 869_440},
		{ForRanks(avazu, 16, []int{320, 320}, 272_255), 35_428_080}, {ForRanks(avazu, 16, []int{192, 192}, 181_302), 14_171_232},
		{ForRanks(flights, 16, []int{38, 38}, 0), 62_320}, {ForRanks(flights, 16, []int{24, 23}, 0), 24_880}, {ForRanks(flights, 16, []int{11, 11}, 0), 6_160},
	} {
		if err := c.shape.Validate(); err != nil {
			t.Errorf("%+v: %v", c.shape, err)
		} else if got := c.shape.Entries(); got != c.want {
			t.Errorf("%+v has %d entries, expected %d", c.shape, got, c.want)
		}
	}
	table := New(ForRanks(flights, 16, []int{11, 11}, 3))
	if got := table.Parameters(); got != 6_160+3*16 {
		t.Errorf("a table with a cache of 3 rows has %d parameters", got)
	}
}

// The suggested shapes are those of TT-Rec's function.
func TestSuggestedShapes(t *testing.T) {
	for _, c := range []struct {
		n, cores      int
		rows, columns string
	}{
		{criteo, 3, "[125 125 128]", "[2 2 4]"}, {avazu, 3, "[150 150 200]", "[2 2 4]"}, {kdd, 3, "[177 179 190]", "[2 2 4]"}, {flights, 3, "[20 20 20]", "[2 2 4]"},
		{criteo, 4, "[25 40 40 50]", "[2 2 2 2]"}, {avazu, 4, "[40 50 45 50]", "[2 2 2 2]"}, {kdd, 4, "[50 50 50 56]", "[2 2 2 2]"}, {flights, 4, "[8 10 10 10]", "[2 2 2 2]"},
	} {
		rows, columns := SuggestedShapes(c.n, 16, c.cores)
		if fmt.Sprint(rows) != c.rows || fmt.Sprint(columns) != c.columns {
			t.Errorf("%d features with %d cores: %v and %v, expected %s and %s", c.n, c.cores, rows, columns, c.rows, c.columns)
		}
	}
	for n := 1; n < 300; n++ {
		for d := 1; d < 9; d++ {
			if s := ForRanks(n, d, []int{2, 1}, 0); s.Validate() != nil {
				t.Errorf("%d features of %d columns: %v", n, d, s.Validate())
			}
		}
	}
}

// Each sparsity gives the shape of the configurations, and every shape fits its budget.
func TestChoose(t *testing.T) {
	keep := func(n int, sparse float64) int {
		drop, err := layout.Dropped(n*16, sparse)
		if err != nil {
			t.Fatal(err)
		}
		return n*16 - drop
	}
	for _, c := range []struct {
		n        int
		sparsity float64
		divider  int
		ranks    string
		buckets  int
	}{
		{flights, .5, 2, "[38 38]", 2300}, {flights, .8, 5, "[24 23]", 1006}, {flights, .95, 20, "[11 11]", 1006},
		{criteo, .5, 2, "", 320_000}, {criteo, .8, 5, "", 140_000}, {criteo, .95, 20, "", 140_000},
	} {
		for _, scheme := range []Scheme{QR, TT, CERP} {
			s, err := Choose(scheme, c.n, 16, c.sparsity, keep(c.n, c.sparsity))
			if err != nil || s.Validate() != nil {
				t.Fatalf("%s at %v: %v, %v", scheme, c.sparsity, err, s.Validate())
			}
			switch {
			case scheme == QR && s.Divider != c.divider:
				t.Errorf("%d features at %v have the divider %d, expected %d", c.n, c.sparsity, s.Divider, c.divider)
			case scheme == TT && c.ranks != "" && fmt.Sprint(s.Ranks) != c.ranks:
				t.Errorf("%d features at %v have the ranks %v, expected %s", c.n, c.sparsity, s.Ranks, c.ranks)
			case scheme == CERP && s.Buckets != c.buckets:
				t.Errorf("%d features at %v have %d buckets, expected %d", c.n, c.sparsity, s.Buckets, c.buckets)
			}
		}
	}
	for n := 1; n < 400; n += 7 {
		for _, sparse := range []float64{.01, .16, .3, .5, .65, .8, .95, .99} {
			k := keep(n, sparse)
			if s, err := Choose(CERP, n, 16, sparse, k); err != nil || s.Validate() != nil || s.Entries() <= k {
				t.Errorf("%d features at %v: CERP starts with %d entries, expected more than %d (%v)", n, sparse, s.Entries(), k, err)
			}
			if s, err := Choose(TT, n, 16, sparse, k); err == nil {
				larger := s
				larger.Ranks = []int{s.Ranks[1] + 1, s.Ranks[0]}
				if s.Entries() > k || larger.Entries() <= k {
					t.Errorf("%d features at %v: ranks %v have %d entries and %v have %d, expected one of both to fit into %d", n, sparse, s.Ranks, s.Entries(), larger.Ranks, larger.Entries(), k)
				}
			} else if !strings.Contains(err.Error(), "ranks of 1") {
				t.Error(err)
			}
		}
	}
}

// A shape that no table can have is refused, and the error names the field.
func TestShapeIsValidated(t *testing.T) {
	train := func(change func(s *Shape)) Shape {
		s := ForRanks(100, 4, []int{3, 2}, 5)
		change(&s)
		return s
	}
	for want, s := range map[string]Shape{
		"features is 0":   ForDivider(0, 4, 1),
		"dim is 65537":    ForDivider(5, 65537, 1),
		"divider is 6":    ForDivider(5, 4, 6),
		"buckets is 0":    ForBuckets(5, 4, 0),
		"scheme is \"x\"": {Scheme: "x", Features: 5, Dim: 4},
		"another scheme":  {Scheme: QR, Features: 5, Dim: 4, Divider: 2, Buckets: 2},
		"cached is 101":   train(func(s *Shape) { s.Cached = 101 }),
		"expected 2 to 8": train(func(s *Shape) { s.Ranks = s.Ranks[:1] }),
		"rows and 4 columns: expected at least 100": train(func(s *Shape) { s.Rows = []int{2, 7, 7} }),
		"core 1 has 5 rows":                         train(func(s *Shape) { s.Ranks[1] = 0 }),
		"the product 8":                             train(func(s *Shape) { s.Columns = []int{2, 4, 4} }),
	} {
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, expected %q", s, err, want)
		}
	}
}

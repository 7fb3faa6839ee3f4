package synth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"shaver/internal/base/fault"
	"shaver/internal/num/random"
)

func write(t testing.TB, c Config) ([]byte, Facts) {
	t.Helper()
	c.Threads = max(c.Threads, 1)
	var out bytes.Buffer
	facts, err := Write(t.Context(), &out, c)
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), facts
}

// table splits a log into cells, without the header.
func table(t *testing.T, text []byte, shape string) [][]string {
	t.Helper()
	lines := strings.SplitAfter(string(text), "\n")
	if lines[len(lines)-1] != "" {
		t.Fatal("no line feed at the end")
	}
	lines = lines[:len(lines)-1]
	separator := "\t"
	if shape == "avazu" {
		const header = "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,device_ip,device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21\n"
		if lines[0] != header {
			t.Fatalf("header %q", lines[0])
		}
		separator, lines = ",", lines[1:]
	}
	if shape == "ratings" {
		if lines[0] != "label,user,item\n" {
			t.Fatalf("header %q", lines[0])
		}
		separator, lines = ",", lines[1:]
	}
	var rows [][]string
	for _, line := range lines {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), separator))
	}
	return rows
}

// The bytes do not depend on the number of goroutines, for any number of rows. Compressed
// logs contain the same bytes.
func TestSameBytes(t *testing.T) {
	for _, shape := range Shapes() {
		for _, rows := range []int64{1, chunkRows, 2*chunkRows + 17} {
			c := Config{Shape: shape, Rows: rows, Seed: 7}
			want, facts := write(t, c)
			if facts.Rows != rows || facts.Bytes != int64(len(want)) {
				t.Errorf("%s: facts %+v, expected %d rows and %d bytes", shape, facts, rows, len(want))
			}
			for _, c.Threads = range []int{2, 5} {
				if got, _ := write(t, c); !bytes.Equal(got, want) {
					t.Errorf("%s, %d rows: %d goroutines change the bytes", shape, rows, c.Threads)
				}
			}
			for _, c.Compression = range []string{Gzip, Zstd} {
				data, _ := write(t, c)
				if got := decompress(t, data, c.Compression); !bytes.Equal(got, want) {
					t.Errorf("%s, %d rows: %s changes the bytes", shape, rows, c.Compression)
				}
				if rows > 1 && len(data) > len(want)*3/4 {
					t.Errorf("%s: %s compresses to %d bytes from %d", shape, c.Compression, len(data), len(want))
				}
			}
			c.Compression, c.Seed = Plain, 8
			if got, _ := write(t, c); bytes.Equal(got, want) {
				t.Errorf("%s: another seed writes the same bytes", shape)
			}
		}
	}
}

func decompress(t *testing.T, data []byte, kind string) []byte {
	t.Helper()
	var r io.Reader
	var err error
	if kind == Gzip {
		r, err = gzip.NewReader(bytes.NewReader(data))
	} else {
		r, err = zstd.NewReader(bytes.NewReader(data))
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A longer log begins with the rows of a shorter one, except in Avazu's form.
func TestRowsByNumber(t *testing.T) {
	for _, shape := range []string{"criteo", "kdd", "ratings"} {
		few, _ := write(t, Config{Shape: shape, Rows: 100, Seed: 3})
		many, _ := write(t, Config{Shape: shape, Rows: 200, Seed: 3})
		// The intercept is found from trial rows, which both logs share.
		if !bytes.HasPrefix(many, few) {
			t.Errorf("%s: 200 rows do not begin with the 100 rows", shape)
		}
	}
}

// Each column has the same form as in the published file.
func TestForms(t *testing.T) {
	count, hexes, id := `\d+`, `[0-9a-f]{8}`, `\d{1,20}`
	forms := map[string][]string{"criteo": {"[01]", `\d*`, `\d+|-[123]`}, "kdd": {`\d+`, `[1-9]\d*`, id, count, count, "[123]", "[123]", count, count, count, count, count},
		"ratings": {"[01]", `[1-9]\d{0,2}`, `[1-9]\d{0,3}`},
		"avazu":   {id, "[01]", `1410(2[1-9]|30)([01]\d|2[0-3])`, count, count, hexes, hexes, hexes, hexes, hexes, hexes, hexes, hexes, hexes}}
	for range 11 {
		forms["criteo"] = append(forms["criteo"], `\d*`)
	}
	for range 26 {
		forms["criteo"] = append(forms["criteo"], `|`+hexes)
	}
	for range 10 {
		forms["avazu"] = append(forms["avazu"], `\d+`)
	}
	for _, shape := range Shapes() {
		var patterns []*regexp.Regexp
		for _, form := range forms[shape] {
			patterns = append(patterns, regexp.MustCompile(`^(`+form+`)$`))
		}
		text, _ := write(t, Config{Shape: shape, Rows: 3000, Seed: 1})
		rows := table(t, text, shape)
		if len(rows) != 3000 {
			t.Errorf("%s: %d rows", shape, len(rows))
		}
		ids, before := map[string]bool{}, ""
		for i, row := range rows {
			if len(row) != len(patterns) {
				t.Fatalf("%s: row %d has %d columns, expected %d", shape, i, len(row), len(patterns))
			}
			for j, cell := range row {
				if !patterns[j].MatchString(cell) {
					t.Fatalf("%s: row %d column %d is %q", shape, i, j, cell)
				}
			}
			switch shape {
			case "avazu":
				if ids[row[0]] || row[2] < before {
					t.Fatalf("avazu: row %d: id %s is repeated, or hour %s follows %s", i, row[0], row[2], before)
				}
				ids[row[0]], before = true, row[2]
			case "kdd":
				if atoi(t, row[0]) > atoi(t, row[1]) || atoi(t, row[6]) > atoi(t, row[5]) {
					t.Fatalf("kdd: row %d: more clicks than impressions, or a position below the depth: %q", i, row)
				}
			}
		}
	}
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The share of clicks is that of the shape. Labels have the probabilities of the planted
// logits. The AUC of the planted logits is similar to that of models of the real logs, and Write
// reports it.
func TestLabels(t *testing.T) {
	for _, shape := range Shapes() {
		for seed := range uint64(3) {
			const n = 20_000
			l := newLaw(shapes[shape], n, seed)
			var r row
			expected, clicks := 0.0, 0.0
			var yes, no []float64
			for i := range int64(n) {
				l.row(&r, i)
				logit, _ := l.draw(&r, i, random.At(seed, random.Synthetic, uint64(i), draws))
				expected += 1 / (1 + math.Exp(-float64(logit+l.intercept)/unit))
				clicks += float64(r.label)
				if r.label == 1 {
					yes = append(yes, float64(logit))
				} else {
					no = append(no, float64(logit))
				}
			}
			if math.Abs(clicks-expected) > 5*math.Sqrt(expected) {
				t.Errorf("%s, seed %d: %v clicks, expected %.0f", shape, seed, clicks, expected)
			}
			if rate := clicks / n; math.Abs(rate/l.shape.rate-1) > .12 {
				t.Errorf("%s, seed %d: click rate %.4f, expected %.4f", shape, seed, rate, l.shape.rate)
			}
			a := auc(yes, no)
			if a < .7 || a > .9 {
				t.Errorf("%s, seed %d: the planted logits have AUC %.3f", shape, seed, a)
			}
			if _, facts := write(t, Config{Shape: shape, Rows: n, Seed: seed, Threads: 2}); math.Abs(*facts.AUC-a) > 1e-4 { // logits beyond the table are tied
				t.Errorf("%s, seed %d: the AUC is %v, expected %v", shape, seed, *facts.AUC, a)
			}
		}
	}
}

func auc(yes, no []float64) float64 {
	slices.Sort(no)
	sum := 0.0
	for _, v := range yes {
		below, _ := slices.BinarySearch(no, v)
		upTo, _ := slices.BinarySearch(no, v+.5)
		sum += float64(below+upTo) / 2
	}
	return sum / float64(len(yes)) / float64(len(no))
}

// Without the scalar products of the latent factors, the planted logits of ratings have a much
// lower AUC. The scalar products have the deviation of the shape.
func TestFactors(t *testing.T) {
	const n = 50_000
	l := newLaw(ratings, n, 1)
	var r row
	var yes, no []float64
	mean, square := 0.0, 0.0
	for i := range int64(n) {
		l.row(&r, i)
		effects := float64(l.columns[0].effect(r.ranks[0]) + l.columns[1].effect(r.ranks[1]))
		if r.label == 1 {
			yes = append(yes, effects)
		} else {
			no = append(no, effects)
		}
		stream := random.At(9, random.Synthetic, uint64(i), draws)
		product := float64(l.pairs[0].effect(uint32(stream.Below(943)), uint32(stream.Below(1682)))) / unit
		mean, square = mean+product/n, square+product*product/n
	}
	if a := auc(yes, no); a < .55 || a > .75 {
		t.Errorf("without factors, the planted logits have AUC %.3f", a)
	}
	if sd := math.Sqrt(square - mean*mean); math.Abs(sd/ratings.pairSD-1) > .1 {
		t.Errorf("the scalar products have the deviation %.3f, expected %.3f", sd, ratings.pairSD)
	}
}

// Draws follow the weights k^-s of the ranks k in each octave, and the share of missing
// values. Every rank can be drawn, and no larger rank.
func TestDraws(t *testing.T) {
	for _, c := range []column{{values: 1, exponent: 1}, {values: 5, missing: .3, exponent: 1}, {values: 1000, exponent: 1.5}, {values: 8, exponent: .5}, {values: 24122076, missing: .1, exponent: 1}} {
		t.Run(fmt.Sprint(c.values), func(t *testing.T) {
			of := columnLaw{column: c}
			of.divide()
			const n = 200_000
			found := make([]float64, 34)
			largest := uint32(0)
			for i := range uint64(n) {
				rank := of.draw(mix(i))
				octave := 0
				for r := rank; r > 0; r /= 2 {
					octave++
				}
				found[octave]++
				largest = max(largest, rank)
			}
			want, total := make([]float64, 34), 0.0
			for k, octave, next := 1, 1, 2; k <= int(c.values); k++ {
				if k == next {
					octave, next = octave+1, 2*next
				}
				weight := math.Pow(float64(k), -c.exponent)
				want[octave] += weight
				total += weight
			}
			for o := range want {
				p := (1 - c.missing) * want[o] / total
				if o == 0 {
					p = c.missing
				}
				if math.Abs(found[o]-n*p) > 5*math.Sqrt(n*p)+1e-3 {
					t.Errorf("octave %d: %v draws, expected %.0f", o, found[o], n*p)
				}
			}
			if c.values <= 1000 && largest != c.values || largest > c.values {
				t.Errorf("the largest rank drawn is %d, expected at most %d", largest, c.values)
			}
			if top := of.draw(math.MaxUint64); top != c.values {
				t.Errorf("the highest draw has rank %d, expected %d", top, c.values)
			}
		})
	}
}

// A log of the real length has about as many features as the paper reports. Each value
// that is frequent enough is a feature, and one more feature per field stands for all
// other values.
func TestFeatures(t *testing.T) {
	for name, c := range map[string]struct {
		rows     float64
		minCount int
		features float64
	}{"criteo": {45_840_617, 10, 1_086_810}, "avazu": {40_428_967, 2, 4_428_511}, "kdd": {149_639_105, 10, 6_019_761}} {
		l := newLaw(shapes[name], 10, 1)
		total := 0.0
		for j := range l.columns {
			of := &l.columns[j]
			if of.counts {
				total += 50 // numbers are grouped by a rule, so they add few features
				continue
			}
			total++
			for octave, width := range of.widths {
				share := float64(of.bounds[octave+1]-of.bounds[octave]) / (1 << 32) / float64(width)
				total += float64(width) * atLeast(c.minCount, c.rows*share)
			}
		}
		if math.Abs(total/c.features-1) > .01 {
			t.Errorf("%s: %.0f features, expected %.0f", name, total, c.features)
		}
	}
}

// atLeast returns the probability that a Poisson variable is n or more.
func atLeast(n int, mean float64) float64 {
	term, below := math.Exp(-mean), 0.0
	for i := range n {
		below += term
		term *= mean / float64(i+1)
	}
	return 1 - below
}

// Different ranks of a column have different values.
func TestValuesAreDistinct(t *testing.T) {
	for _, name := range Shapes() {
		l := newLaw(shapes[name], 10, 1)
		for j := range l.columns {
			c, seen := &l.columns[j], map[string]bool{}
			for rank := range min(c.values, 3000) {
				seen[string(c.append(nil, 1+rank))] = true
			}
			if len(seen) != int(min(c.values, 3000)) {
				t.Errorf("%s %s: %d distinct values for %d ranks", name, c.name, len(seen), min(c.values, 3000))
			}
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []Config{{Shape: "movielens", Rows: 1}, {Shape: "kdd"}, {Shape: "kdd", Rows: -1}} {
		if _, err := Write(t.Context(), io.Discard, c); !fault.IsUsage(err) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

type failing struct{ after int }

var errFull = errors.New("no space")

func (f *failing) Write(p []byte) (int, error) {
	if f.after--; f.after < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// An error of the writer or the end of ctx ends all goroutines.
func TestEndsEarly(t *testing.T) {
	c := Config{Shape: "kdd", Rows: math.MaxInt64, Seed: 1, Threads: 3}
	if _, err := Write(t.Context(), &failing{after: 4}, c); !errors.Is(err, errFull) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.OnRows = func(int) { cancel() }
	if _, err := Write(ctx, io.Discard, c); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, shape := range Shapes() {
		for _, compression := range []string{Plain, Zstd, Gzip} {
			b.Run(shape+"/"+compression, func(b *testing.B) {
				const rows = 10 * chunkRows
				for b.Loop() {
					facts, err := Write(b.Context(), io.Discard, Config{Shape: shape, Rows: rows, Seed: 1, Compression: compression, Threads: 1})
					if err != nil {
						b.Fatal(err)
					}
					b.SetBytes(facts.Bytes)
				}
				b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}

// Equal labels have no AUC.
func TestEqualLabels(t *testing.T) {
	if _, facts := write(t, Config{Shape: "kdd", Rows: 1, Seed: 1}); facts.AUC != nil {
		t.Errorf("one row has the AUC %v", *facts.AUC)
	}
}

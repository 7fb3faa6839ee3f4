package arrowio

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/num/layout"
	"shaver/internal/value/tally"
)

func randomPartial(features, dim int, within bool) *tally.Partial {
	return randomPartialOf(layout.Of(2*features+1, dim), features, within)
}

// randomPartialOf returns a partial of the even rows of the tables, up to the given number.
func randomPartialOf(shape layout.Shape, features int, within bool) *tally.Partial {
	random := rand.New(rand.NewPCG(2, uint64(features)))
	p := &tally.Partial{Shape: shape, Rows: 1000, LossFull: 1, LossEmpty: math.MaxInt64, ResidualSquare: 7,
		Features: []int32{}, Count: []int64{}, Sum: []int64{}, Abs: []int64{}, Square: []int64{}}
	if within {
		p.Within = []int64{}
	}
	for f := range features {
		p.Features = append(p.Features, int32(2*f))
		p.Count = append(p.Count, random.Int64N(1000)+1)
		from, to := shape.Row(2 * f)
		for range to - from {
			p.Sum = append(p.Sum, int64(random.Uint64())>>random.IntN(60))
			p.Abs, p.Square = append(p.Abs, random.Int64()), append(p.Square, random.Int64())
			if within {
				p.Within = append(p.Within, random.Int64())
			}
		}
	}
	p.Check = p.Checksum()
	return p
}

func encodePartial(t testing.TB, p *tally.Partial) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := EncodePartial(&out, p); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestPartialRoundTrip(t *testing.T) {
	for _, c := range []struct {
		features, dim int
		within        bool
	}{{0, 3, false}, {0, 3, true}, {1, 1, true}, {100, 16, false}, {batchEntries/16 + 1, 16, true}, {3, batchEntries / 4, false}} {
		p := randomPartial(c.features, c.dim, c.within)
		p.Walked = int64(c.features) / 100
		p.Check += uint64(p.Walked)
		if (p.Walked > 0) != bytes.Contains(encodePartial(t, p), []byte("walked")) {
			t.Errorf("%v: the metadata of %d rows by walks", c, p.Walked)
		}
		data := encodePartial(t, p)
		if !bytes.Equal(data, encodePartial(t, p)) {
			t.Errorf("%v: two encodings of the same partial differ", c)
		}
		got, err := DecodePartial(data, layout.Of(2*c.features+1, c.dim), tally.Form{Within: c.within}, nil)
		if err != nil {
			if c.dim > 1<<16 && fault.IsInput(err) {
				continue
			}
			t.Fatalf("%v: %v", c, err)
		}
		if !reflect.DeepEqual(got, p) {
			t.Errorf("%v: the partial changed", c)
		}
	}
}

// tables has rows of different numbers of entries.
func tables() layout.Shape { return layout.Of(3, 4).And(5, 1).And(4, 2) }

func TestPartialOfTables(t *testing.T) {
	for _, features := range []int{0, 1, 2, 6} {
		p := randomPartialOf(tables(), features, features != 2)
		got, err := DecodePartial(encodePartial(t, p), tables(), tally.Form{Within: features != 2}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, p) {
			t.Errorf("%d features: the partial changed to %+v", features, got)
		}
	}
	data := encodePartial(t, randomPartialOf(tables(), 6, true))
	_, err := DecodePartial(data, layout.Of(12, 2), tally.Form{Within: true}, nil)
	wantInput(t, err, "the partial has 0 columns, expected 2")
	_, err = DecodePartial(data, layout.Of(2, 4).And(6, 1).And(4, 2), tally.Form{Within: true}, nil)
	wantInput(t, err, "a record of sums is malformed")
	_, err = DecodePartial(data, layout.Of(2, 4).And(2, 1).And(1, 4).And(3, 1).And(4, 2), tally.Form{Within: true}, nil)
	wantInput(t, err, "a record of sums is malformed")
	_, err = DecodePartial(data, layout.Of(3, 4).And(5, 1), tally.Form{Within: true}, nil)
	wantInput(t, err, "partial has feature 8 after 6: ids must ascend and be below 8")
	for n := range data {
		if _, err := DecodePartial(data[:n], tables(), tally.Form{Within: true}, nil); !fault.IsInput(err) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(data), err)
		}
	}
	shape := tables()
	for bit := range 8 * len(data) {
		data[bit/8] ^= 1 << (bit % 8)
		if p, err := DecodePartial(data, shape, tally.Form{Within: true}, nil); err != nil && !fault.IsInput(err) || err == nil && p.Validate(&shape, tally.Form{Within: true}) != nil {
			t.Fatalf("bit %d: %v", bit, err)
		}
		data[bit/8] ^= 1 << (bit % 8)
	}
}

var pairedForm = tally.Form{Paired: true, Fields: 2}

// pairedPartial returns a partial of a paired job, like randomPartialOf.
func pairedPartial(shape layout.Shape, features int) *tally.Partial {
	p, q, r := randomPartialOf(shape, features, false), randomPartialOf(shape, features, true), randomPartialOf(shape, features, true)
	p.PreviousLossFull, p.PreviousLossEmpty, p.PreviousResidualSquare = 11, 12, 13
	p.PreviousSum, p.PreviousAbs, p.PreviousSquare = q.Sum, q.Square, q.Within
	for i := range r.Within {
		p.PreviousSum[i] ^= 1 << 20 // not the same as Sum
		r.Within[i] ^= 1 << 20
	}
	p.DifferenceSquare, p.AbsDifferenceSquare = r.Within, r.Abs
	p.Fourths = []tally.Powers{{New: tally.Uint192{High: 1, Low: 2}, Previous: tally.Uint192{Low: 3}}, {New: tally.Uint192{High: math.MaxUint64, Low: math.MaxUint64}, Difference: tally.Uint192{High: 5}}}
	p.Check = p.Checksum()
	return p
}

// The partials of paired jobs have a form of their own, which ordinary jobs do not accept.
func TestPairedPartial(t *testing.T) {
	for _, shape := range []layout.Shape{layout.Of(12, 2), tables()} {
		for _, features := range []int{0, 1, 6} {
			p := pairedPartial(shape, features)
			data := encodePartial(t, p)
			got, err := DecodePartial(data, shape, pairedForm, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, p) {
				t.Errorf("%d features: the partial changed to %+v", features, got)
			}
		}
	}
	shape := layout.Of(12, 2)
	data := encodePartial(t, pairedPartial(shape, 6))
	_, err := DecodePartial(data, shape, tally.Form{}, nil)
	wantInput(t, err, `version is "shaver.partial/7", expected "shaver.partial/6"`)
	_, err = DecodePartial(encodePartial(t, randomPartialOf(shape, 6, false)), shape, pairedForm, nil)
	wantInput(t, err, `version is "shaver.partial/6", expected "shaver.partial/7"`)
	_, err = DecodePartial(data, shape, tally.Form{Paired: true, Fields: 3}, nil)
	wantInput(t, err, `the metadata "fourths" has 2 integers, expected one for each of 3 fields`)
	_, err = DecodePartial(bytes.Replace(data, []byte("18446744073709551618 "), []byte("18446744073709551618x"), 1), shape, pairedForm, nil)
	wantInput(t, err, `the metadata "fourths" has 1 integers`)
	_, err = DecodePartial(bytes.Replace(data, []byte("18446744073709551618 "), []byte("+8446744073709551618 "), 1), shape, pairedForm, nil)
	wantInput(t, err, `the metadata "fourths" of field 0: "+8446744073709551618" is not a decimal integer`)
	for n := range data {
		if _, err := DecodePartial(data[:n], shape, pairedForm, nil); !fault.IsInput(err) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(data), err)
		}
	}
	for bit := range 8 * len(data) {
		data[bit/8] ^= 1 << (bit % 8)
		if p, err := DecodePartial(data, shape, pairedForm, nil); err != nil && !fault.IsInput(err) || err == nil && p.Validate(&shape, pairedForm) != nil {
			t.Fatalf("bit %d: %v", bit, err)
		}
		data[bit/8] ^= 1 << (bit % 8)
	}
}

func TestDecodePartialRefuses(t *testing.T) {
	good := randomPartial(10, 4, true)
	data := encodePartial(t, good)
	change := func(f func(p *tally.Partial)) []byte {
		p := randomPartial(10, 4, true)
		f(p)
		return encodePartial(t, p)
	}
	for _, c := range []struct {
		name          string
		data          []byte
		features, dim int
		want          string
	}{
		{"dim", data, 20, 5, "the partial has 4 columns, expected 5 as in the model"},
		{"features", data, 10, 4, "partial has feature 10 after 8: ids must ascend and be below 10"},
		{"order", change(func(p *tally.Partial) { p.Features[3] = p.Features[2] }), 20, 4, "ids must ascend"},
		{"count", change(func(p *tally.Partial) { p.Count[3] = 1001 }), 20, 4, "feature 6 in 1001 of 1000 rows"},
		{"square", change(func(p *tally.Partial) { p.Square[5] = -1 }), 20, 4, "negative sum in list 2 at position 5"},
		{"residual", change(func(p *tally.Partial) { p.ResidualSquare = -1 }), 20, 4, "negative sum of squared residuals"},
		{"one pass", encodePartial(t, randomPartial(10, 4, false)), 20, 4, "the partial has 3 lists of sums, expected 4"},
		{"rows", change(func(p *tally.Partial) { p.Rows = 0 }), 20, 4, "partial has 0 rows"},
		{"form", encodeRows(t, randomRows(3, 0), true, 3), 20, 4, `version is "shaver.rows/1"`},
		{"trailing", append(bytes.Clone(data), 0), 20, 4, "bytes after the end"},
		{"empty", nil, 20, 4, "the data end too early"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := DecodePartial(c.data, layout.Of(c.features, c.dim), tally.Form{Within: true}, nil)
			wantInput(t, err, c.want)
		})
	}
	for n := range data {
		if _, err := DecodePartial(data[:n], layout.Of(20, 4), tally.Form{Within: true}, nil); !fault.IsInput(err) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(data), err)
		}
	}
}

// A change of any single bit gives bad input or a valid partial, but never a panic.
func TestDecodePartialOnChangedBits(t *testing.T) {
	shape := layout.Of(10, 2)
	p := randomPartial(3, 2, true)
	p.Shape = shape
	data := encodePartial(t, p)
	for bit := range 8 * len(data) {
		data[bit/8] ^= 1 << (bit % 8)
		if p, err := DecodePartial(data, shape, tally.Form{Within: true}, nil); err != nil && !fault.IsInput(err) || err == nil && p.Validate(&shape, tally.Form{Within: true}) != nil {
			t.Fatalf("bit %d: %v", bit, err)
		}
		data[bit/8] ^= 1 << (bit % 8)
	}
}

// The bytes of partials change only with their versions.
func TestPartialBytes(t *testing.T) {
	var all []byte
	for _, p := range []*tally.Partial{randomPartial(50, 4, true), randomPartialOf(tables(), 6, false), pairedPartial(layout.Of(12, 2), 6), pairedPartial(tables(), 4)} {
		all = append(all, encodePartial(t, p)...)
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(all)); got != "bd46d8e93024a9a2eb7e11c76e37f8b1889db101037f149841fed617fcafac4e" {
		t.Errorf("the partials have the digest %s", got)
	}
}

// high returns p with multiples of 2^63 in some sums, as if they had left int64.
func high(p *tally.Partial) *tally.Partial {
	p.High = &tally.Partial{LossFull: 3, Shared: -2}
	lists := p.AllLists()
	for l, list := range lists[len(lists)/2:] {
		*list = make([]int64, len(p.Sum))
		for i := l % 2; i < len(p.Sum); i += 3 {
			if p.Dropped == nil || !p.Dropped.Dropped(i) {
				(*list)[i] = int64(i % 7)
			}
		}
	}
	for i := range p.Sum {
		p.High.Sum[i] *= -1
	}
	p.Check = p.Checksum()
	return p
}

// pathPartial returns a partial of a path, of 4 features, of which one entry is dropped.
func pathPartial() *tally.Partial {
	p := &tally.Partial{Shape: layout.Of(4, 2), Dropped: layout.NewMask(8), Rows: 9, Features: []int32{0, 1, 2, 3}, Count: []int64{1, 2, 3, 4},
		Sum: []int64{5, 6, -7, 8, 9, 10, 0, 11}, Square: []int64{1, 2, 3, 4, 5, 6, 0, 8}}
	p.Dropped.Drop(6)
	p.Check = p.Checksum()
	return p
}

// Partials whose sums do not fit in int64 stay the same, and hostile ones are refused.
func TestPartialWithHigh(t *testing.T) {
	for name, p := range map[string]*tally.Partial{
		"plain": high(randomPartial(7, 3, false)), "within": high(randomPartial(7, 3, true)), "tables": high(randomPartialOf(tables(), 5, true)),
		"path": high(pathPartial()), "paired": high(pairedPartial(tables(), 6)), "empty": high(randomPartial(0, 2, false)),
	} {
		data := encodePartial(t, p)
		got, err := DecodePartial(data, p.Shape, p.Form(), p.Dropped)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got, p) {
			t.Errorf("%s: the partial became\n%+v, High %+v, expected\n%+v, High %+v", name, got, got.High, p, p.High)
		}
		for n := range data {
			if _, err := DecodePartial(data[:n], p.Shape, p.Form(), p.Dropped); !fault.IsInput(err) {
				t.Fatalf("%s: the first %d of %d bytes: %v", name, n, len(data), err)
			}
		}
		if name != "plain" && name != "path" { // the others take long
			continue
		}
		for bit := range 8 * len(data) {
			data[bit/8] ^= 1 << (bit % 8)
			if p, err := DecodePartial(data, p.Shape, p.Form(), p.Dropped); err != nil && !fault.IsInput(err) || err == nil && p.Validate(&p.Shape, p.Form()) != nil {
				t.Fatalf("%s: bit %d: %v", name, bit, err)
			}
			data[bit/8] ^= 1 << (bit % 8)
		}
	}
	shape := randomPartial(7, 3, false).Shape
	data := encodePartial(t, high(randomPartial(7, 3, false)))
	for _, c := range []struct{ from, to, want string }{
		{"3 0 0 -2", "3 0 0  2", `the metadata "high" is "3 0 0  2", expected 4 decimal integers`},
		{"3 0 0 -2", "3 0 00-2", `the metadata "high" is "3 0 00-2", expected 4 decimal integers`},
		{"3 0 0 -2", "3 0 0 +2", `the metadata "high" is "3 0 0 +2", expected 4 decimal integers`},
		{"3 0 0 -2", "3 0 -2 0", "partial has a negative loss or sum of squared residuals"},
		{"3 0 0 -2", "3001 0 0", `the metadata "high" is "3001 0 0", expected 4 decimal integers`},
		{"high", "hygh", "the partial has 6 lists of sums, expected 3"},
	} {
		changed := bytes.Replace(data, []byte(c.from), []byte(c.to), 1)
		if bytes.Equal(changed, data) {
			t.Fatalf("the partial does not have %q", c.from)
		}
		_, err := DecodePartial(changed, shape, tally.Form{}, nil)
		wantInput(t, err, c.want)
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q has more than one line", err)
		}
	}
	for _, c := range []struct {
		spoil func(p *tally.Partial)
		want  string
	}{
		{func(p *tally.Partial) { p.High.Abs[0] = -1 }, "partial has a negative sum in list 4 at position 0"},
		{func(p *tally.Partial) { p.High.Sum[2] = 2*p.Rows + 1 }, "partial has the sum of 2001 times 2^63 over 1000 rows in list 0 at position 2"},
		{func(p *tally.Partial) { p.High.ResidualSquare = math.MaxInt64 }, "partial has a sum of 9223372036854775807 times 2^63 over 1000 rows"},
	} {
		p := high(randomPartial(7, 3, false))
		c.spoil(p)
		_, err := DecodePartial(encodePartial(t, p), p.Shape, tally.Form{}, nil)
		wantInput(t, err, c.want)
	}
}

func FuzzPartial(f *testing.F) {
	f.Add(encodePartial(f, high(randomPartial(5, 2, true))))
	f.Add(encodePartial(f, high(randomPartialOf(tables(), 6, false))))
	f.Add(encodePartial(f, high(pairedPartial(tables(), 6))))
	f.Add(encodePartial(f, randomPartial(0, 2, true)))
	f.Add(encodePartial(f, randomPartial(5, 2, true)))
	f.Add(encodePartial(f, randomPartial(5, 2, false)))
	f.Add(encodePartial(f, randomPartialOf(tables(), 5, true)))
	f.Add(encodePartial(f, randomPartialOf(tables(), 6, false)))
	f.Add(encodePartial(f, pairedPartial(layout.Of(10, 2), 4)))
	f.Add(encodePartial(f, pairedPartial(tables(), 6)))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, shape := range []layout.Shape{layout.Of(10, 2), tables()} {
			for _, form := range []tally.Form{{}, {Within: true}, pairedForm} {
				p, err := DecodePartial(data, shape, form, nil)
				if err != nil {
					if !fault.IsInput(err) {
						t.Fatalf("not bad input: %v", err)
					}
					continue
				}
				again, err := DecodePartial(encodePartial(t, p), shape, form, nil)
				if err != nil || !reflect.DeepEqual(again, p) {
					t.Fatalf("the partial changed when it was written and read again: %v", err)
				}
			}
		}
	})
}

func BenchmarkPartial(b *testing.B) {
	p := randomPartial(200_000, 16, false)
	benchmarkPartial(b, p, int64(len(encodePartial(b, p))))
}

// BenchmarkPacking measures partials whose sums have as many bits as in a job at the shape of KDD.
// Speeds are in bytes of sums, which take 8 bytes each.
func BenchmarkPacking(b *testing.B) {
	const features, dim = 3600, 16
	random := rand.New(rand.NewPCG(1, 2))
	p := &tally.Partial{Shape: layout.Of(features, dim), Rows: 2}
	for f := range features {
		p.Features, p.Count = append(p.Features, int32(f)), append(p.Count, 2)
		for range dim {
			v := random.Int64N(1<<31) - 1<<30
			p.Sum, p.Abs, p.Square = append(p.Sum, v), append(p.Abs, max(v, -v)+2*random.Int64N(1<<30)), append(p.Square, random.Int64N(1<<31))
		}
	}
	p.Check = p.Checksum()
	benchmarkPartial(b, p, p.Bytes())
}

// benchmarkPartial writes and reads p. Speeds are for the given number of bytes.
func benchmarkPartial(b *testing.B, p *tally.Partial, size int64) {
	data := encodePartial(b, p)
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(size)
		var out bytes.Buffer
		for b.Loop() {
			out.Reset()
			if err := EncodePartial(&out, p); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			if _, err := DecodePartial(data, p.Shape, tally.Form{}, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

package compact

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// bell returns numbers that are rounded from a normal distribution, as weights are.
func bell(n int, deviation float64) []byte {
	r := rand.New(rand.NewPCG(3, uint64(n)))
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(int8(min(max(math.RoundToEven(r.NormFloat64()*deviation), -127), 127)))
	}
	return data
}

// entropy returns the entropy of the bytes of data, in bytes.
func entropy(data []byte) float64 {
	var counts [256]float64
	for _, b := range data {
		counts[b]++
	}
	bits := 0.0
	for _, c := range counts {
		if c > 0 {
			bits -= c * math.Log2(c/float64(len(data)))
		}
	}
	return bits / 8
}

func TestBytes(t *testing.T) {
	samples := map[string][]byte{"nothing": {}, "one": {200}, "zeros": make([]byte, 5000), "ones": bytes.Repeat([]byte{1}, 3)}
	for _, deviation := range []float64{.3, 5, 40, 400} {
		for _, n := range []int{70, 4096, 1 << 17} {
			data := bell(n, deviation)
			code := EncodeBytes(data)
			if most := entropy(data) + .005*float64(n) + 300; float64(len(code)) > most {
				t.Errorf("%d numbers of deviation %g take %d bytes, and their entropy %.0f", n, deviation, len(code), entropy(data))
			}
			samples[string(rune('a'+len(samples)))] = data
		}
	}
	for name, data := range samples {
		code := EncodeBytes(data)
		got, err := DecodeBytes(code, len(data))
		if err != nil || !slices.Equal(got, data) {
			t.Fatalf("%s: another content came back: %v", name, err)
		}
		if _, err := DecodeBytes(append(slices.Clone(code), 0), len(data)); err == nil {
			t.Errorf("%s: a byte after the code is not refused", name)
		}
	}
	for _, n := range []int{257, 1 << 40, math.MaxInt} { // no memory is allocated for them
		if _, err := DecodeBytes([]byte{1}, n); err == nil {
			t.Errorf("one byte of code for %d numbers is not refused", n)
		}
	}
}

// An interval of few numbers, whose first bytes differ, is divided after all.
func TestBytesMeet(t *testing.T) {
	w, f := newWriter(), newFrequencies()
	w.low, w.high = 0x7fffffff_fffffff0, 0x80000000_00000003
	if _, ok := w.codeByte(f, 9); !ok || w.low > w.high || w.high-w.low < leastRange {
		t.Errorf("the interval is [%x, %x]", w.low, w.high)
	}
	r := newDecoder(append(w.data, w.end()...))
	r.low, r.high = 0x7fffffff_fffffff0, 0x80000000_00000003
	if b, ok := r.codeByte(newFrequencies(), 0); !ok || b != 9 {
		t.Errorf("read %d %v, expected 9", b, ok)
	}
	r = newDecoder([]byte{0x80})
	r.low, r.high = 0x7fffffff_fffffff0, 0x80000000_00000003
	if _, ok := r.codeByte(newFrequencies(), 0); ok {
		t.Error("a number of the part that is lost is not refused")
	}
}

// What DecodeBytes accepts has this code and no other.
func FuzzDecodeBytes(f *testing.F) {
	for _, data := range [][]byte{{}, {7}, make([]byte, 600), bell(300, 3), bell(300, 60)} {
		f.Add(EncodeBytes(data), len(data))
	}
	f.Add([]byte{1, 2, 3}, 1<<40)
	f.Add([]byte{}, math.MaxInt)
	f.Fuzz(func(t *testing.T, code []byte, n int) {
		if n < 0 {
			return
		}
		data, err := DecodeBytes(code, n)
		if err == nil && !slices.Equal(EncodeBytes(data), code) {
			t.Fatalf("%d numbers have the code %x as well", n, code)
		}
	})
}

func BenchmarkDecodeBytes(b *testing.B) {
	data := bell(1<<17, 40)
	code := EncodeBytes(data)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := DecodeBytes(code, len(data)); err != nil {
			b.Fatal(err)
		}
	}
}

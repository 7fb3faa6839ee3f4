package kernel

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestDotIsItsDefinition(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(7, 8))
		for _, n := range append([]int{0, 400}, lengths...) {
			gx, x := fill(r, n)
			_, y := fill(r, n)
			want, size := 0.0, 0.0
			for i := range x {
				p := float64(x[i]) * float64(y[i])
				want, size = want+p, size+math.Abs(p)
			}
			near(t, float32(Dot(x, y)), want, size, 2)
			intact(t, gx)
		}
	})
}

func TestExpandIsItsDefinition(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(23, 24))
		for n := range 40 {
			gx, x := fill(r, 16*n)
			values := make([]byte, 4*8*n+3) // three more bytes than needed, read from an odd address
			for i := range values {
				values[i] = byte(r.IntN(256))
			}
			values = values[min(1, n):]
			want, parts, from := slices.Clone(x), []Part(nil), 0
			for i := range n {
				p := Part{To: 16 * i, From: from, Mask: uint16(r.Uint32() & r.Uint32())}
				for o := range 16 {
					if p.Mask>>o&1 == 1 && from < 8*n-1 {
						want[16*i+o] = math.Float32frombits(binary.LittleEndian.Uint32(values[4*from:]))
						from++
					} else {
						p.Mask &^= 1 << o
					}
				}
				parts = append(parts, p)
			}
			if n > 0 { // copy the last value to the last element
				parts = append(parts, Part{To: 16*n - 1, From: 8*n - 1, Mask: 1})
				want[16*n-1] = math.Float32frombits(binary.LittleEndian.Uint32(values[4*(8*n-1):]))
			}
			r.Shuffle(n, func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
			Expand(x, values, parts)
			for i := range x {
				if math.Float32bits(x[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%d parts: element %d is %v, want %v", n, i, x[i], want[i])
				}
			}
			intact(t, gx)
		}
	})
}

func TestUnpackIsItsDefinition(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(25, 26))
		for n := range 60 {
			gx, x := fill(r, 16*n)
			packed := make([]byte, 3+n*r.IntN(20))
			for i := range packed {
				packed[i] = byte(r.IntN(256))
			}
			packed = packed[1:] // read from an odd address
			want, parts := slices.Clone(x), []Packed(nil)
			for i := range n {
				p := Packed{To: 16 * i, Bit: r.IntN(8 * len(packed)), Mask: uint16(r.Uint32() & r.Uint32()), Bits: uint16(1 + r.IntN(8)), Origin: r.Float32() - .5, Step: r.Float32()}
				bit := p.Bit
				for o := range 16 {
					if p.Mask>>o&1 == 0 {
						continue
					}
					if bit+int(p.Bits) > 8*len(packed) {
						p.Mask &^= 1 << o
						continue
					}
					number := 0
					for k := range int(p.Bits) {
						number |= int(packed[(bit+k)/8]>>((bit+k)%8)&1) << k
					}
					want[16*i+o] = p.Origin + float32(p.Step*float32(number))
					bit += int(p.Bits)
				}
				parts = append(parts, p)
			}
			if n > 0 {
				parts = append(parts, Packed{To: 16*n - 1, Bit: 8*len(packed) - 3, Mask: 1, Bits: 3, Origin: 2, Step: 1})
				want[16*n-1] = 2 + float32(packed[len(packed)-1]>>5)
			}
			r.Shuffle(n, func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
			Unpack(x, packed, parts)
			for i := range x {
				if math.Float32bits(x[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%d parts: element %d is %v, want %v", n, i, x[i], want[i])
				}
			}
			intact(t, gx)
		}
	})
}

func TestListIsItsDefinition(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(9, 10))
		for words := range 9 {
			for _, room := range []int{0, 5, 64*words + 15, 64*words + 16, 64*words + 40} {
				mask := make(Mask, words)
				for i := range mask {
					mask[i] = r.Uint64() & r.Uint64()
				}
				want := []int32{-7}
				for i := range 64 * words {
					if mask[i/64]>>(i%64)&1 == 1 {
						want = append(want, int32(i))
					}
				}
				memory := slices.Repeat([]int32{-1}, room+11)
				memory[0] = -7
				if got := mask.List(memory[: 1 : room+1]); !slices.Equal(got, want) {
					t.Fatalf("List of mask %b is %v, want %v", mask, got, want)
				}
				for _, v := range memory[room+1:] {
					if v != -1 {
						t.Fatal("List wrote beyond the capacity")
					}
				}
			}
		}
	})
}

func TestSetIsItsDefinition(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(19, 20))
		for _, width := range lengths {
			for rows := 1; rows < 14; rows++ {
				x, _ := guarded(r, rows, width, .9)
				mask, want := NewMask(width), NewMask(width)
				mask[0] = math.MaxUint64
				for i := range rows {
					for o, v := range x.Row(i)[:width] {
						if v != 0 {
							want[o/64] |= 1 << (o % 64)
						}
					}
				}
				if mask.Set(x, rows, width); !slices.Equal(mask, want) {
					t.Fatalf("rows %d width %d: mask %b, want %b", rows, width, mask, want)
				}
			}
		}
	})
}

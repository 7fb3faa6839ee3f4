package redisrows

import (
	"bytes"
	"testing"
)

// A value that parses consists of versions that set columns of the row only. Any other value is refused.
func FuzzVersions(f *testing.F) {
	some := &Row{Width: 4, Columns: []int32{1, 3}, Values: []float32{.5, -1}}
	f.Add(newVersion(7, some), 4)
	f.Add(append(newVersion(8, some), newVersion(7, some)...), 4)
	f.Add(newVersion(7, &Row{Width: 2, Columns: []int32{0, 1}, Values: []float32{1, 2}}), 2)
	f.Add([]byte("garbage"), 4)
	f.Fuzz(func(t *testing.T, value []byte, width int) {
		if width < 1 || width > maxWidth {
			return
		}
		all, err := versions(value, width)
		if err != nil {
			return
		}
		var again []byte
		for _, v := range all {
			again = append(again, v.bytes...)
			v.set(make([]float32, width))
		}
		if !bytes.Equal(again, value) {
			t.Errorf("%x has the versions %x", value, again)
		}
	})
}

// A row comes back from its value.
func TestRow(t *testing.T) {
	for _, r := range []*Row{
		{Width: 3, Columns: []int32{0, 2}, Values: []float32{1, -2}},
		{Width: 3, Columns: []int32{0, 1, 2}, Values: []float32{1, -2, 3}},
		{Width: 3, Columns: []int32{1}, Values: []float32{4}},
	} {
		got := []float32{9, 9, 9}
		want := []float32{9, 9, 9}
		for k, c := range r.Columns {
			want[c] = r.Values[k]
		}
		all, err := versions(newVersion(5, r), 3)
		if err != nil || len(all) != 1 || all[0].generation() != 5 || all[0].kept() != len(r.Columns) {
			t.Fatalf("%+v: %v, %v", r, all, err)
		}
		if all[0].set(got); got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
			t.Errorf("%+v: %v", r, got)
		}
	}
}

// A value with another byte is refused, and so are the bits of the rows that keep an entry if bytes are missing.
func TestDamage(t *testing.T) {
	value := append(newVersion(8, &Row{Width: 3, Columns: []int32{0, 2}, Values: []float32{1, -2}}), newVersion(7, &Row{Width: 3, Columns: []int32{1}, Values: []float32{3}})...)
	if _, err := versions(value, 3); err != nil {
		t.Fatal(err)
	}
	for i := range value {
		for bit := range 8 {
			value[i] ^= 1 << bit
			if _, err := versions(value, 3); err == nil {
				t.Errorf("bit %d of byte %d is not noticed", bit, i)
			}
			value[i] ^= 1 << bit
		}
	}
	if _, err := versions(nil, 3); err == nil {
		t.Error("a value without a version is accepted")
	}
	var b bits
	for id := range 40 {
		b.set(2, id, id%3 == 0)
	}
	for id := range 50 {
		if b.has(2, id) != (id < 40 && id%3 == 0) || b.has(0, id) || b.has(5, id) {
			t.Errorf("row %d: %t, %t, %t", id, b.has(2, id), b.has(0, id), b.has(5, id))
		}
	}
	whole := b.encode()
	if again, ok := decodeBits(whole); !ok || !bytes.Equal(again.encode(), whole) {
		t.Errorf("%x becomes %x, %t", whole, again.encode(), ok)
	}
	for n := range whole {
		if _, ok := decodeBits(whole[:n]); ok && n != 0 && n != 4 && n != 8 {
			t.Errorf("%d of %d bytes are accepted", n, len(whole))
		}
	}
}

// Bits that are decoded take no more memory than their bytes.
func FuzzBits(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 5, 0, 0, 0, 0})
	f.Add([]byte{255, 255, 255, 255, 5})
	f.Fuzz(func(t *testing.T, value []byte) {
		if b, ok := decodeBits(value); ok && !bytes.Equal(b.encode(), value) {
			t.Errorf("%x becomes %x", value, b.encode())
		}
	})
}

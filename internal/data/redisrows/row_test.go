package redisrows

import (
	"bytes"
	"testing"
)

// A value that parses consists of versions that set columns of the row only. Any other value is refused.
func FuzzVersions(f *testing.F) {
	some := &Row{Width: 4, Columns: []int32{1, 3}, Values: []float32{.5, -1}}
	f.Add(appendVersion(nil, 7, some), 4)
	f.Add(appendVersion(appendVersion(nil, 8, &Row{Width: 4}), 7, some), 4)
	f.Add(appendVersion(nil, 7, &Row{Width: 2, Columns: []int32{0, 1}, Values: []float32{1, 2}}), 2)
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
		{Width: 3},
	} {
		got := []float32{9, 9, 9}
		want := []float32{9, 9, 9}
		for k, c := range r.Columns {
			want[c] = r.Values[k]
		}
		all, err := versions(appendVersion(nil, 5, r), 3)
		if err != nil || len(all) != 1 || all[0].generation() != 5 || all[0].kept() != len(r.Columns) {
			t.Fatalf("%+v: %v, %v", r, all, err)
		}
		if all[0].set(got); got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
			t.Errorf("%+v: %v", r, got)
		}
	}
}

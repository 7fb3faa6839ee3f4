package vocabulary

import (
	"slices"
	"testing"
)

func TestWholeNumber(t *testing.T) {
	for value, want := range map[string]string{
		"3.0": "3", "-7.0": "-7", "0.0": "0", "-0.0": "0", "12345678901234567890.0": "12345678901234567890",
		"3": "3", "3.00": "3.00", "03.0": "03.0", "1.0.0": "1.0.0", "v1.0": "v1.0", ".0": ".0", "-.0": "-.0", "--1.0": "--1.0", "+1.0": "+1.0", "1e3.0": "1e3.0", "": "", "0": "0", "2.5": "2.5",
	} {
		if got := string(WholeNumber([]byte(value))); got != want {
			t.Errorf("%q becomes %q, want %q", value, got, want)
		}
	}
}

// A whole number that is unseen gets the id of its other spelling, but a number that is
// known keeps its own id.
func TestLookupOfWholeNumbers(t *testing.T) {
	f := newField(8, 0)
	f.size, f.oov = 5, 4
	for id, value := range []string{"3", "7.0", "1", "1.0"} {
		f.add([]byte(value), int64(id))
	}
	for value, want := range map[string][2]int32{
		"3": {0, 0}, "3.0": {4, 0}, "7": {4, 1}, "7.0": {1, 1}, "1": {2, 2}, "1.0": {3, 3}, "": {4, 4}, "9": {4, 4}, "9.0": {4, 4}, "03": {4, 4}, "-3": {4, 4}, "x": {4, 4}, "3.": {4, 4},
	} {
		for k, whole := range []bool{false, true} {
			ids := [][]int32{nil}
			if NewLookup([]*Field{f}, whole).Append(ids, [][]byte{[]byte(value)}) >= 0 || !slices.Equal(ids[0], []int32{want[k]}) {
				t.Errorf("%q, whole numbers %t: ids %v, want %d", value, whole, ids[0], want[k])
			}
		}
	}
	ids := [][]int32{nil}
	if NewLookup([]*Field{{size: 1}}, true).Append(ids, [][]byte{[]byte("3")}); !slices.Equal(ids[0], []int32{0}) {
		t.Errorf("a field without values: ids %v", ids[0])
	}
}

package vocabulary

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/data/dataset"
)

// oddValues returns sorted values with all lengths around 15, the largest length that
// fits in a slot. Some have the same beginning or end, and some end with bytes that look
// like padding.
func oddValues() []string {
	values := []string{"", "\x00", "\x00\x00", "a", "a\x00"}
	for n := range 40 {
		values = append(values, strings.Repeat("x", n)+"a", strings.Repeat("x", n)+"b", "p"+strings.Repeat("\x00", n), "q"+strings.Repeat("\xff", n), strings.Repeat("y", 8)+strings.Repeat("z", n))
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// pack does not depend on the bytes after the value in memory.
func TestPackSeesTheValueOnly(t *testing.T) {
	for _, value := range oddValues() {
		a, b := pack([]byte(value)[:len(value):len(value)])
		for _, behind := range []string{strings.Repeat("\xff", 16), strings.Repeat("\x00", 16), "x"} {
			if a2, b2 := pack([]byte(value + behind)[:len(value)]); a2 != a || b2 != b {
				t.Errorf("pack(%q) = %x, %x, but with %q after it %x, %x", value, a, b, behind, a2, b2)
			}
		}
	}
}

func TestPackIsOrder(t *testing.T) {
	values := oddValues()
	table := &table{}
	var slots []slot
	for i, value := range values {
		a, b := pack([]byte(value))
		_, n := table.need([]byte(value))
		table.insert([]byte(value), a, b, int64(i+1), n)
		slots = append(slots, *table.find([]byte(value), a, b))
	}
	for i := range slots {
		a, b := pack([]byte(values[i]))
		if s := table.find([]byte(values[i]), a, b); s.number != int64(i+1) {
			t.Errorf("%q has number %d, want %d", values[i], s.number, i+1)
		}
		if got := table.append(nil, &slots[i]); string(got) != values[i] {
			t.Errorf("the slot of %q contains %q", values[i], got)
		}
		for j := range slots {
			if got, want := table.compare(&slots[i], &slots[j]), strings.Compare(values[i], values[j]); got != want {
				t.Errorf("compare(%q, %q) = %d, want %d", values[i], values[j], got, want)
			}
		}
	}
}

// With any memory, the merged counts of several Counters equal those of a map.
func TestCountersMerge(t *testing.T) {
	const rows, fields = 20_000, 3
	for _, c := range []struct {
		limit    int64
		counters int
		spills   int // least number of spills in all
	}{{1 << 30, 1, 1}, {1, 1, 5}, {1, 3, 6}} {
		folder := t.TempDir()
		counters := make([]*Counter, c.counters)
		for i := range counters {
			counters[i] = NewCounter(folder, fmt.Sprint(i), fields, c.limit)
		}
		r := rand.New(rand.NewPCG(1, 1))
		odd := oddValues()
		want := [fields]map[string]int64{{}, {}, {}}
		for range rows {
			values := make([][]byte, fields)
			for j := range values {
				values[j] = fmt.Appendf(nil, "%0*d", 5+8*j, r.IntN(1+r.IntN(9000)))
				if r.IntN(3) == 0 {
					values[j] = []byte(odd[r.IntN(len(odd))])
				}
				want[j][string(values[j])]++
			}
			if err := counters[r.IntN(len(counters))].Add(values); err != nil {
				t.Fatal(err)
			}
		}
		var spills []string
		for _, counter := range counters {
			if err := counter.Flush(); err != nil {
				t.Fatal(err)
			}
			spills = append(spills, counter.Spills()...)
		}
		if len(spills) < c.spills {
			t.Errorf("%d bytes: %d spills, expected at least %d", c.limit, len(spills), c.spills)
		}
		if err := joinSpills(filepath.Join(folder, "all"), spills, fields); err != nil {
			t.Fatal(err)
		}
		if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
			t.Errorf("files after joining: %v, %v", entries, err)
		}
		for j := range fields {
			for _, minCount := range []int64{1, 4} {
				var got []string
				err := Merge([]string{filepath.Join(folder, "all")}, j, fields, minCount, func(value []byte) error {
					got = append(got, string(value))
					return nil
				})
				wanted := maps.Clone(want[j])
				maps.DeleteFunc(wanted, func(_ string, n int64) bool { return n < minCount })
				if err != nil || !slices.Equal(got, slices.Sorted(maps.Keys(wanted))) {
					t.Errorf("field %d, minimum count %d: %d values, expected %d, %v", j, minCount, len(got), len(wanted), err)
				}
			}
		}
	}
}

// A Counter joins its spills before there are too many to open at once.
func TestCounterJoins(t *testing.T) {
	c := NewCounter(t.TempDir(), "c", 1, 1<<20)
	for i := range fanIn + 3 {
		if err := c.Add([][]byte{[]byte("always")}); err != nil {
			t.Fatal(err)
		}
		if err := c.Add([][]byte{fmt.Append(nil, i)}); err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.Spills()); n != 4 {
		t.Errorf("%d spills, expected 4", n)
	}
	counts := map[string]int64{}
	if err := merge(c.Spills(), 0, 1, func(value []byte, count int64) error { counts[string(value)] = count; return nil }); err != nil {
		t.Fatal(err)
	}
	if len(counts) != fanIn+4 || counts["always"] != fanIn+3 || counts["7"] != 1 {
		t.Errorf("%v", counts)
	}
}

// Gather reduces any number of spills to at most fanIn, and keeps the given ones.
func TestGather(t *testing.T) {
	for _, n := range []int{1, fanIn, fanIn + 1, 2*fanIn + 5, fanIn * fanIn} {
		folder := t.TempDir()
		var spills []string
		for i := range n {
			c := NewCounter(folder, fmt.Sprint("c", i), 2, 1<<20)
			if err := c.Add([][]byte{[]byte("always"), fmt.Append(nil, i%300)}); err != nil {
				t.Fatal(err)
			}
			if err := c.Flush(); err != nil {
				t.Fatal(err)
			}
			spills = append(spills, c.Spills()...)
		}
		few, err := Gather(folder, "few", spills, 2)
		if err != nil || len(few) > fanIn {
			t.Fatalf("%d spills of %d, %v", len(few), n, err)
		}
		for field, values := range []int{1, min(n, 300)} {
			counts, sum := map[string]int64{}, int64(0)
			err := merge(few, field, 2, func(value []byte, count int64) error { counts[string(value)] = count; sum += count; return nil })
			if err != nil || len(counts) != values || sum != int64(n) {
				t.Errorf("%d spills: %d values in %d rows, %v", n, len(counts), sum, err)
			}
		}
		files := slices.Clone(spills)
		for _, path := range few {
			if !slices.Contains(spills, path) {
				files = append(files, path)
			}
		}
		if entries, err := os.ReadDir(folder); err != nil || len(entries) != len(files) {
			t.Errorf("%d spills: %d files, expected %d, %v", n, len(entries), len(files), err)
		}
		for _, path := range files {
			if _, err := os.Stat(path); err != nil {
				t.Error(err)
			}
		}
	}
}

// A truncated spill is an error, and is not read as a short one.
func TestBrokenSpill(t *testing.T) {
	folder := t.TempDir()
	c := NewCounter(folder, "c", 2, 1<<20)
	for i := range 100 {
		if err := c.Add([][]byte{fmt.Append(nil, i), fmt.Append(nil, i*i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	path := c.Spills()[0]
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{0, 5, 23, 24, 100, len(data) - 1} {
		if err := os.WriteFile(path, data[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		if err := merge([]string{path}, 1, 2, func([]byte, int64) error { return nil }); err == nil {
			t.Errorf("a spill truncated to %d of %d bytes is accepted", cut, len(data))
		}
	}
}

// idOf returns the id of a value, or -1 if it has none.
func idOf(f *Field, value string) int32 {
	ids := make([][]int32, 1)
	if NewLookup([]*Field{f}, false).Append(ids, [][]byte{[]byte(value)}) == 0 {
		return -1
	}
	return ids[0][0]
}

// Looking up one row does not affect the ids of the next row, even if a field is empty.
func TestLookupOfRows(t *testing.T) {
	values := oddValues()
	a, b := &Field{}, &Field{}
	for i, value := range values {
		if i%2 == 0 {
			a.add([]byte(value), int64(i/2))
		} else {
			b.add([]byte(value), int64(i/2))
		}
	}
	a.size, a.oov = a.values.used+1, a.values.used
	b.size, b.oov = b.values.used+1, b.values.used
	l, ids := NewLookup([]*Field{a, {}, b}, false), make([][]int32, 3)
	for i, value := range values {
		l.Append(ids, [][]byte{[]byte(value), []byte(value), []byte(value)})
		want := []int32{int32(i / 2), 0, int32(b.Size() - 1)}
		if i%2 == 1 {
			want = []int32{int32(a.Size() - 1), 0, int32(i / 2)}
		}
		if got := []int32{ids[0][i], ids[1][i], ids[2][i]}; !slices.Equal(got, want) {
			t.Errorf("%q has the ids %v, want %v", value, got, want)
		}
	}
}

func TestField(t *testing.T) {
	values := []string{"b", "a", "", "tab\t", "line\nend\r", `back\slash`, strings.Repeat("long", 100), "é"}
	var text []byte
	for _, value := range values {
		text = dataset.AppendLine(text, []byte(value))
	}
	f, err := ReadField(bytes.NewReader(text), len(values)+1, len(values), int64(len(text)))
	if err != nil || f.Size() != len(values)+1 {
		t.Fatalf("size %d, %v", f.Size(), err)
	}
	for id, value := range values {
		if got := idOf(f, value); got != int32(id) {
			t.Errorf("%q has id %d, want %d", value, got, id)
		}
	}
	if got := idOf(f, "other"); got != int32(len(values)) {
		t.Errorf("an unknown value has id %d", got)
	}
	var back []string
	if err := f.Each(func(value []byte, _ bool) error { back = append(back, string(value)); return nil }); err != nil || !slices.Equal(back, values) {
		t.Errorf("values %q, %v", back, err)
	}
	if parsed, err := dataset.ParseVocabularyFile(text, len(values)+1, len(values)); err != nil || !slices.Equal(parsed, values) {
		t.Errorf("parsed %q, %v", parsed, err)
	}
	for text, want := range map[string]string{"a\na\n": `line 2: the value "a" occurs twice`, "a\nb": "line 2 has no line end", "a\\x\n": "line 1: expected \\, t, n or r after a backslash",
		"a\n": "1 lines, expected 2 for a field of size 3", "a\nb\nc\n": "more than the expected 2 lines for a field of size 3"} {
		if _, err := ReadField(strings.NewReader(text), 3, 2, 4); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := dataset.ParseVocabularyFile([]byte(text), 3, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A vocabulary file that is read and written again is unchanged, and ParseVocabularyFile and
// ReadField agree on it.
func FuzzText(f *testing.F) {
	f.Add([]byte("a\\\\\nb\\t\\n\\r\n"), -2)
	f.Add([]byte("\n"), -2)
	f.Add([]byte("\\-\na\n\\-\nb\n"), 0)
	f.Add([]byte("a\n"), -1)
	f.Fuzz(func(t *testing.T, data []byte, oov int) {
		size := bytes.Count(data, []byte("\n"))
		if oov < -1 || oov >= size-1 {
			size, oov = size+1, size
		}
		values, err := dataset.ParseVocabularyFile(data, size, oov)
		field, fieldErr := ReadField(bytes.NewReader(data), size, oov, 0)
		if (err == nil) != (fieldErr == nil) {
			t.Fatalf("%q: ParseVocabularyFile returns %v, ReadField returns %v", data, err, fieldErr)
		}
		if err != nil {
			return
		}
		var out []byte
		reserved, id := 0, 0
		field.Each(func(value []byte, has bool) error {
			switch {
			case !has:
				out = append(out, dataset.NoLine...)
				if id != oov {
					reserved++
				}
			case idOf(field, string(value)) != int32(id) || string(value) != values[id]:
				t.Errorf("%q has the id %d, want %d, values %q", value, idOf(field, string(value)), id, values)
			default:
				out = dataset.AppendLine(out, value)
			}
			id++
			return nil
		})
		if reserved != field.Reserved() {
			t.Errorf("%d ids are reserved, want %d", field.Reserved(), reserved)
		}
		if again, err := dataset.ParseVocabularyFile(out, size, oov); err != nil || !slices.Equal(again, values) {
			t.Errorf("%q became %q, %v", values, again, err)
		}
	})
}

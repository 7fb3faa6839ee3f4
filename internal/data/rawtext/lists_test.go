package rawtext

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// slowList does the same as the parser, in the simplest way, for a label, a list of 3 ids of 5
// and one id of 4.
func slowList(line, long string, pad int, front bool) (features []int32, ok bool) {
	cells := strings.Split(line, ",")
	if len(cells) != 3 || strings.TrimSuffix(cells[0], ".0") != "0" && strings.TrimSuffix(cells[0], ".0") != "1" {
		return nil, false
	}
	var ids []int
	parse := func(text string, size int) int {
		id, err := strconv.Atoi(strings.TrimSuffix(text, ".0"))
		if err != nil || strings.ContainsAny(text, "+-") || id >= size {
			return -1
		}
		return id
	}
	if cells[1] != "" {
		for _, text := range strings.Split(cells[1], "|") {
			ids = append(ids, parse(text, 5))
		}
	}
	if slices.Contains(ids, -1) || len(ids) > 3 && long == LongFail || len(ids) < 3 && pad < 0 {
		return nil, false
	}
	switch {
	case len(ids) > 3 && long == LongFirst:
		ids = ids[:3]
	case len(ids) > 3:
		ids = ids[len(ids)-3:]
	}
	for len(ids) < 3 {
		if front {
			ids = append([]int{pad}, ids...)
		} else {
			ids = append(ids, pad)
		}
	}
	last := parse(cells[2], 4)
	for _, id := range ids {
		features = append(features, int32(id))
	}
	return append(features, int32(5+last)), last >= 0 && !strings.Contains(line, "\x00")
}

// Parse gives the rows of slowList, and Explain returns an error for all other lines.
func FuzzLists(f *testing.F) {
	for _, line := range []string{"1,1|2|3,3", "0,,0", "1,4,1", "1,0|1|2|3,1", "1,0|1|2|3|4|0|1,1", "1,|,1", "1,1|,1", "1,|1,1", "1,5,1", "1,1 |2,1", "1,1.0|2.0,3.0", "1,1|2", "2,1,1", "1,-1,1", "1,1,1,1"} {
		for k := range 12 {
			f.Add(line, k)
		}
	}
	f.Fuzz(func(t *testing.T, line string, k int) {
		h := &Header{Columns: []string{"label", "items", "b"}, Separator: ','}
		long := []string{LongFail, LongFirst, LongLast}[(k%3+3)%3]
		pad := []int{2, -1}[(k%2+2)%2]
		front := k/6%2 != 0
		p := NewEncoded(h, nil, []int{5, 4}, false, []List{{3, pad, '|', long, front}, {}})
		_, ok := p.Parse([]byte(line))
		want, wantOK := slowList(line, long, pad, front)
		if ok != wantOK || ok && !slices.Equal(p.Features, want) {
			t.Errorf("parse(%q, %s, pad %d) = %v, %t, want %v, %t", line, long, pad, p.Features, ok, want, wantOK)
		}
		if why := p.Explain([]byte(line)); (why == nil) != ok {
			t.Errorf("parse(%q) returns %t, but explain returns %v", line, ok, why)
		}
	})
}

// Global ids of lists become global ids, and pads get those of their field.
func TestGlobalLists(t *testing.T) {
	h := &Header{Columns: []string{"label", "a", "items"}, Separator: '\t'}
	p := NewEncoded(h, nil, []int{3, 5}, true, []List{{}, {3, 1, ' ', LongFail, false}})
	if _, ok := p.Parse([]byte("1\t2\t3 7")); !ok || !slices.Equal(p.Features, []int32{2, 3, 7, 4}) {
		t.Errorf("features %v, %t", p.Features, ok)
	}
	if _, ok := p.Parse([]byte("1\t2\t2")); ok {
		t.Error("an id of another field passes")
	}
}

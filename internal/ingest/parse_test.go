package ingest

import (
	"strconv"
	"strings"
	"testing"
)

// slowParse does the same as parser.parse, in the simplest way, for local ids with sizes.
func slowParse(line string, separator string, sizes []int) (label uint8, features []int32, ok bool) {
	cells := strings.Split(line, separator)
	if len(cells) != len(sizes)+1 || cells[0] != "0" && cells[0] != "1" {
		return 0, nil, false
	}
	offset := 0
	for j, cell := range cells[1:] {
		id, err := strconv.Atoi(cell)
		if err != nil || strings.ContainsAny(cell, "+-") || id >= sizes[j] {
			return 0, nil, false
		}
		features = append(features, int32(offset+id))
		offset += sizes[j]
	}
	return cells[0][0] - '0', features, true
}

// parse accepts the same lines as slowParse and gives the same rows, and explain returns an
// error for all other lines.
func FuzzCSV(f *testing.F) {
	for _, line := range []string{"1,0,2", "0,3,1", "0,4,1", "1,,1", "", ",", "1", "1,", "1,2", "1,2,", "1,2,1,", "2,0,0", "00,0,0", "1,+1,1", "1,-1,1",
		"1,0000000000000000000001,2", "1,99999999999999999999999,2", "1,18446744073709551617,1", "1, 1,1", "1,1\t1", "1\t1\t1", "1,1,\x00", "1;1;1", "é,1,1"} {
		f.Add([]byte(line), false)
		f.Add([]byte(line), true)
	}
	sizes := []int{4, 3}
	f.Fuzz(func(t *testing.T, line []byte, tab bool) {
		h := &header{columns: []string{"label", "a", "b"}, separator: ','}
		if tab {
			h.separator = '\t'
		}
		p := newParser(h, sizes, false)
		label, ok := p.parse(line)
		wantLabel, want, wantOK := slowParse(string(line), string(rune(h.separator)), sizes)
		if ok != wantOK || ok && (label != wantLabel || p.features[0] != want[0] || p.features[1] != want[1]) {
			t.Errorf("parse(%q) = %d, %v, %t, want %d, %v, %t", line, label, p.features, ok, wantLabel, want, wantOK)
		}
		if why := p.explain(line); (why == nil) != ok {
			t.Errorf("parse(%q) returns %t, but explain returns %v", line, ok, why)
		}
		if h, err := readHeader(line, true); err == nil && len(h.columns) < 2 {
			t.Errorf("header %q has columns %q", line, h.columns)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	sizes := []int{13, 32, 8, 366, 20, 17, 3828, 3407, 4, 104, 14}
	h := &header{columns: make([]string, 12), separator: ','}
	p := newParser(h, sizes, false)
	line := []byte("1,0,0,1,0,15,9,2805,2249,2,32,5")
	for b.Loop() {
		if _, ok := p.parse(line); !ok {
			b.Fatal(p.explain(line))
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

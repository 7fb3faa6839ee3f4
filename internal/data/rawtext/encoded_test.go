package rawtext

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// slowParse does the same as Encoded.Parse, in the simplest way, for local ids with sizes.
func slowParse(line string, separator string, sizes []int) (label float32, features []int32, ok bool) {
	cells := strings.Split(line, separator)
	for j, cell := range cells {
		cells[j] = strings.TrimSuffix(cell, ".0")
	}
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
	return float32(cells[0][0] - '0'), features, true
}

// Parse accepts the same lines as slowParse and gives the same rows, and Explain returns an
// error for all other lines.
func FuzzCSV(f *testing.F) {
	for _, line := range []string{"1,0,2", "0,3,1", "0,4,1", "1,,1", "", ",", "1", "1,", "1,2", "1,2,", "1,2,1,", "2,0,0", "00,0,0", "1,+1,1", "1,-1,1",
		"1,0000000000000000000001,2", "1,99999999999999999999999,2", "1,18446744073709551617,1", "1, 1,1", "1,1\t1", "1\t1\t1", "1,1,\x00", "1;1;1", "1.0,1,2", "0,3.0,2.0", "0,.0,1", "0,1.0.0,1", "0,1.00,1", "0.,1,1", "1.0,1.5,1", "é,1,1"} {
		f.Add([]byte(line), false)
		f.Add([]byte(line), true)
	}
	sizes := []int{4, 3}
	f.Fuzz(func(t *testing.T, line []byte, tab bool) {
		h := &Header{Columns: []string{"label", "a", "b"}, Separator: ','}
		if tab {
			h.Separator = '\t'
		}
		p := NewEncoded(h, nil, sizes, false, nil)
		label, ok := p.Parse(line)
		wantLabel, want, wantOK := slowParse(string(line), string(rune(h.Separator)), sizes)
		if ok != wantOK || ok && (label != wantLabel || p.Features[0] != want[0] || p.Features[1] != want[1]) {
			t.Errorf("parse(%q) = %v, %v, %t, want %v, %v, %t", line, label, p.Features, ok, wantLabel, want, wantOK)
		}
		if why := p.Explain(line); (why == nil) != ok {
			t.Errorf("parse(%q) returns %t, but explain returns %v", line, ok, why)
		}
		if h, err := ReadHeader(line, true); err == nil && len(h.Columns) < 2 {
			t.Errorf("header %q has columns %q", line, h.Columns)
		}
	})
}

// With dense inputs, Parse accepts the lines whose other columns FuzzCSV's reference
// accepts, and returns the cells of the dense inputs as they are.
func FuzzMixed(f *testing.F) {
	for _, line := range []string{"1,0.5,0,2,x", "0,,3,1,", "1,1,1.0,2.0,1e5", "1,0,4,1,0", "1,0,1,1", "1,0,1,1,0,0", "1,\x00,1,1,0", "", "1", "2,0,0,0,0", ",,,,", "1,0,.0,1,0", "1,0,2147483648,1,0"} {
		f.Add([]byte(line), false)
		f.Add([]byte(line), true)
	}
	sizes := []int{4, 3}
	f.Fuzz(func(t *testing.T, line []byte, tab bool) {
		h := &Header{Columns: []string{"label", "x", "a", "b", "y"}, Separator: ','}
		if tab {
			h.Separator = '\t'
		}
		separator := string(rune(h.Separator))
		p := NewEncoded(h, []bool{true, false, false, true}, sizes, false, nil)
		label, ok := p.Parse(line)
		if why := p.Explain(line); (why == nil) != ok {
			t.Errorf("parse(%q) returns %t, but explain returns %v", line, ok, why)
		}
		cells := strings.Split(string(line), separator)
		if len(cells) != 5 {
			if ok {
				t.Errorf("parse(%q) accepts %d columns", line, len(cells))
			}
			return
		}
		wantLabel, want, wantOK := slowParse(strings.Join([]string{cells[0], cells[2], cells[3]}, separator), separator, sizes)
		wantOK = wantOK && !bytes.Contains(line, []byte{0})
		if ok != wantOK || ok && (label != wantLabel || !slices.Equal(p.Features, want) || string(p.Numbers[0]) != cells[1] || string(p.Numbers[1]) != cells[4]) {
			t.Errorf("parse(%q) = %v, %v, %q, %t, want %v, %v, %t", line, label, p.Features, p.Numbers, ok, wantLabel, want, wantOK)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	sizes := []int{13, 32, 8, 366, 20, 17, 3828, 3407, 4, 104, 14}
	h := &Header{Columns: make([]string, 12), Separator: ','}
	p := NewEncoded(h, nil, sizes, false, nil)
	line := []byte("1,0,0,1,0,15,9,2805,2249,2,32,5")
	for b.Loop() {
		if _, ok := p.Parse(line); !ok {
			b.Fatal(p.Explain(line))
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

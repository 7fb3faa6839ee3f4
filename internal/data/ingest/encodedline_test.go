package ingest

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"shaver/internal/click/model"
	"shaver/internal/data/dense"
	"shaver/internal/data/rawtext"
)

// encodedLine parses lines of encoded rows.
type encodedLine struct {
	where  *place
	parser *rowParser
	ids    *encodedIDs
	row    columns
	sizes  []int
}

func newEncodedLine(t testing.TB, columns string, separator byte, sizes []int, global bool, dense Dense, lists Lists) *encodedLine {
	t.Helper()
	r := &importer{config: RawConfig{Format: Format{encoded: true, Dense: dense}, Lists: lists, Sizes: sizes}, encoded: &encoded{global: global}}
	h := &rawtext.Header{Columns: strings.Split(columns, ","), Separator: separator, Named: true}
	if err := r.checkHeader(h); err != nil {
		t.Fatal(err)
	}
	where, err := r.setLayout(h.Columns, separator, "")
	if err != nil {
		t.Fatal(err)
	}
	l := &encodedLine{where: where, parser: newRowParser(r.layout, false), ids: r.newEncodedIDs(sizes, global, nil), sizes: sizes}
	l.row.ids = make([][]int32, len(r.layout.fields))
	return l
}

// parse returns the label and the global ids of a row.
func (l *encodedLine) parse(line string) (label float32, features []int32, err error) {
	odd := strings.Contains(line, "\x00") || !utf8.ValidString(line)
	label, _, err = l.parser.parse(bytes.Split([]byte(line), []byte{l.where.separator}), l.where, odd)
	l.row.reset()
	if err == nil {
		err = l.ids.append(l.row.ids, &block{}, l.parser)
	}
	offsets := model.Offsets(l.sizes)
	for j, ids := range l.row.ids {
		for _, id := range ids {
			features = append(features, offsets[j]+id)
		}
	}
	return label, features, err
}

// slowParse does the same as encodedLine.parse, in the simplest way, for local ids with sizes.
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

// Exactly the lines that slowParse accepts are rows, with the same label and ids.
func FuzzCSV(f *testing.F) {
	for _, line := range []string{"1,0,2", "0,3,1", "0,4,1", "1,,1", "", ",", "1", "1,", "1,2", "1,2,", "1,2,1,", "2,0,0", "00,0,0", "1,+1,1", "1,-1,1",
		"1,0000000000000000000001,2", "1,99999999999999999999999,2", "1,18446744073709551617,1", "1, 1,1", "1,1\t1", "1\t1\t1", "1,1,\x00", "1;1;1", "1.0,1,2", "0,3.0,2.0", "0,.0,1", "0,1.0.0,1", "0,1.00,1", "0.,1,1", "1.0,1.5,1", "é,1,1"} {
		f.Add([]byte(line), false)
		f.Add([]byte(line), true)
	}
	sizes := []int{4, 3}
	f.Fuzz(func(t *testing.T, line []byte, tab bool) {
		separator := byte(',')
		if tab {
			separator = '\t'
		}
		label, features, err := newEncodedLine(t, "label,a,b", separator, sizes, false, Dense{}, Lists{}).parse(string(line))
		wantLabel, want, wantOK := slowParse(string(line), string(rune(separator)), sizes)
		if (err == nil) != wantOK || wantOK && (label != wantLabel || !slices.Equal(features, want)) {
			t.Errorf("parse(%q) = %v, %v, %v, want %v, %v, %t", line, label, features, err, wantLabel, want, wantOK)
		}
		if h, err := rawtext.ReadHeader(line, true); err == nil && len(h.Columns) < 2 {
			t.Errorf("header %q has columns %q", line, h.Columns)
		}
	})
}

// With dense inputs, exactly the lines are rows whose other columns slowParse accepts, and whose dense inputs are numbers.
func FuzzMixed(f *testing.F) {
	for _, line := range []string{"1,0.5,0,2,x", "0,,3,1,", "1,1,1.0,2.0,1e5", "1,0,4,1,0", "1,0,1,1", "1,0,1,1,0,0", "1,\x00,1,1,0", "", "1", "2,0,0,0,0", ",,,,", "1,0,.0,1,0", "1,0,2147483648,1,0"} {
		f.Add([]byte(line), false)
		f.Add([]byte(line), true)
	}
	sizes := []int{4, 3}
	columns := denseColumns("x:none", "y:none")
	f.Fuzz(func(t *testing.T, line []byte, tab bool) {
		separator := byte(',')
		if tab {
			separator = '\t'
		}
		l := newEncodedLine(t, "label,x,a,b,y", separator, sizes, false, Dense{Columns: columns}, Lists{})
		label, features, err := l.parse(string(line))
		cells := strings.Split(string(line), string(rune(separator)))
		if len(cells) != 5 {
			if err == nil {
				t.Errorf("parse(%q) accepts %d columns", line, len(cells))
			}
			return
		}
		wantLabel, want, wantOK := slowParse(strings.Join([]string{cells[0], cells[2], cells[3]}, string(rune(separator))), string(rune(separator)), sizes)
		var numbers []float64
		for _, cell := range []string{cells[1], cells[4]} {
			x, bad := dense.Parse([]byte(cell))
			wantOK = wantOK && bad == nil && (&dense.Input{Rule: dense.None}).Check(x) == nil
			numbers = append(numbers, x)
		}
		if (err == nil) != wantOK || wantOK && (label != wantLabel || !slices.Equal(features, want) || !slices.Equal(l.parser.numbers, numbers)) {
			t.Errorf("parse(%q) = %v, %v, %v, %v, want %v, %v, %v, %t", line, label, features, l.parser.numbers, err, wantLabel, want, numbers, wantOK)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	sizes := []int{13, 32, 8, 366, 20, 17, 3828, 3407, 4, 104, 14}
	l := newEncodedLine(b, "label,a,b,c,d,e,f,g,h,i,j,k", ',', sizes, false, Dense{}, Lists{})
	cells := bytes.Split([]byte("1,0,0,1,0,15,9,2805,2249,2,32,5"), []byte{','})
	for b.Loop() {
		_, _, err := l.parser.parse(cells, l.where, false)
		if err == nil {
			l.row.reset()
			err = l.ids.append(l.row.ids, &block{local: true}, l.parser)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// slowList does the same as encodedLine.parse, in the simplest way, for a label, a list of 3 ids of 5
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

// Exactly the lines that slowList accepts are rows, with the same ids.
func FuzzLists(f *testing.F) {
	for _, line := range []string{"1,1|2|3,3", "0,,0", "1,4,1", "1,0|1|2|3,1", "1,0|1|2|3|4|0|1,1", "1,|,1", "1,1|,1", "1,|1,1", "1,5,1", "1,1 |2,1", "1,1.0|2.0,3.0", "1,1|2", "2,1,1", "1,-1,1", "1,1,1,1"} {
		for k := range 12 {
			f.Add(line, k)
		}
	}
	f.Fuzz(func(t *testing.T, line string, k int) {
		long := []string{LongFail, LongFirst, LongLast}[(k%3+3)%3]
		pad := []int{2, -1}[(k%2+2)%2]
		front := k/6%2 != 0
		lists := Lists{Columns: []ListColumn{{Name: "items", Length: 3, Pad: pad}}, Long: long}
		if front {
			lists.Pads = model.Front
		}
		_, features, err := newEncodedLine(t, "label,items,b", ',', []int{5, 4}, false, Dense{}, lists).parse(line)
		want, wantOK := slowList(line, long, pad, front)
		if (err == nil) != wantOK || wantOK && !slices.Equal(features, want) {
			t.Errorf("parse(%q, %s, pad %d) = %v, %v, want %v, %t", line, long, pad, features, err, want, wantOK)
		}
	})
}

// Global ids of lists become local ids, and pads are local ids.
func TestGlobalLists(t *testing.T) {
	lists := Lists{Columns: []ListColumn{{Name: "items", Length: 3, Pad: 1}}, Separator: ' '}
	l := newEncodedLine(t, "label,a,items", '\t', []int{3, 5}, true, Dense{}, lists)
	if _, features, err := l.parse("1\t2\t3 7"); err != nil || !slices.Equal(features, []int32{2, 3, 7, 4}) {
		t.Errorf("features %v, %v", features, err)
	}
	if _, _, err := l.parse("1\t2\t2"); err == nil {
		t.Error("an id of another field passes")
	}
}

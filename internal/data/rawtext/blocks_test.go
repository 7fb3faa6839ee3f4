package rawtext

import (
	"bytes"
	"encoding/csv"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
)

// records reads text in blocks, and returns the cells and the first line number of each
// record. A malformed record has one cell, which is "! " followed by the error.
func records(t testing.TB, text string, separator byte, quotes bool) (cells [][]string, lines []int, err error) {
	t.Helper()
	source, err := New("x", io.NopCloser(strings.NewReader(text)))
	if err != nil {
		return nil, nil, err
	}
	defer source.Close()
	blocks, err := NewBlocks(source)
	if err != nil {
		return nil, nil, err
	}
	blocks.Quotes = quotes
	r := &Records{Separator: separator, Quotes: quotes}
	var block Block
	for {
		if err := blocks.Next(&block); err == io.EOF {
			return cells, lines, nil
		} else if err != nil {
			return cells, lines, err
		}
		if block.Row != int64(len(cells)) {
			t.Fatalf("the block begins with record %d, expected %d", block.Row, len(cells))
		}
		r.Reset(&block)
		for {
			record, err := r.Next()
			if err == io.EOF {
				break
			}
			row := []string{}
			for _, cell := range record {
				row = append(row, string(cell))
			}
			if err != nil {
				row = []string{"! " + err.Error()}
			}
			cells, lines = append(cells, row), append(lines, r.Line)
		}
		if n := block.Row + int64(block.Rows); n != int64(len(cells)) {
			t.Fatalf("the blocks have %d records, but %d were read", n, len(cells))
		}
	}
}

func TestBlocksOfLongTexts(t *testing.T) {
	var text strings.Builder
	var want [][]string
	for i := range 60_000 {
		cell := strings.Repeat("x", i%97)
		text.WriteString(cell + "\ty\n")
		want = append(want, []string{cell, "y"})
	}
	for _, quotes := range []bool{false, true} {
		got, lines, err := records(t, text.String(), '\t', quotes)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("the records are not those of the text, %v", err)
		}
		for i, line := range lines {
			if line != i+1 {
				t.Fatalf("record %d is reported in line %d", i, line)
			}
		}
	}
}

func TestLongLines(t *testing.T) {
	fits, exceeds := strings.Repeat("a", MaxLine-1), strings.Repeat("a", MaxLine)
	long := "! the line is longer than 1048576 bytes"
	for _, c := range []struct {
		text string
		want []string
		line int // line of the last record
	}{
		{"b\n" + fits + "\nc\n", []string{"b", fits, "c"}, 3},
		{"b\n" + exceeds + "\nc\n", []string{"b", long, "c"}, 3},
		{exceeds + exceeds + exceeds + "\nc", []string{long, "c"}, 2},
		{"b\n" + fits, []string{"b", fits}, 2},
		{"b\n" + exceeds, []string{"b", long}, 2},
		{exceeds + "\n" + exceeds + exceeds + "\r\nc\r\n", []string{long, long, "c"}, 3},
	} {
		for _, quotes := range []bool{false, true} {
			got, lines, err := records(t, c.text, ',', quotes)
			var flat []string
			for _, row := range got {
				flat = append(flat, row...)
			}
			if err != nil || !slices.Equal(flat, c.want) || lines[len(lines)-1] != c.line {
				t.Errorf("%.20q (%d bytes): %.20q in lines %v, %v", c.text, len(c.text), flat, lines, err)
			}
		}
	}
}

func TestSplit(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 2000 {
		// Bytes close to a separator in value, and bytes that differ only in the highest bit.
		line := make([]byte, random.IntN(60))
		for i := range line {
			line[i] = "\t\t\x00\x01\x08\x0a\x89\xff\x80a"[random.IntN(10)]
		}
		if got, want := split(nil, line, '\t'), bytes.Split(line, []byte{'\t'}); !reflect.DeepEqual(got, want) {
			t.Fatalf("case %d: split(%q) = %q, want %q", n, line, got, want)
		}
	}
}

func TestQuotesOverBlocks(t *testing.T) {
	cell := strings.Repeat("line\n", blockSize/8) + "end"
	text := "a,b\n\"" + cell + "\",2\n" + "\"" + cell + "\",3\nc,d\n"
	got, lines, err := records(t, text, ',', true)
	last := 2 * (strings.Count(cell, "\n") + 1)
	if err != nil || !reflect.DeepEqual(got, [][]string{{"a", "b"}, {cell, "2"}, {cell, "3"}, {"c", "d"}}) || lines[3] != last+2 {
		t.Errorf("%d records in lines %v, %v", len(got), lines, err)
	}
	for _, text := range []string{"a,b\n\"x\ny", "a,b\n\"x", "a,b\n\"x\n" + strings.Repeat("y\n", MaxLine)} {
		if _, _, err := records(t, text, ',', true); !fault.IsInput(err) || !strings.Contains(err.Error(), "x:2: a quote is opened") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func TestHeader(t *testing.T) {
	source, err := New("x", io.NopCloser(strings.NewReader("\xef\xbb\xbfa,b\r\n1,2\n")))
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := NewBlocks(source)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := blocks.Header(); err != nil || string(line) != "a,b" {
		t.Errorf("header %q, %v", line, err)
	}
	var block Block
	if err := blocks.Next(&block); err != nil || block.Row != 0 || block.Rows != 1 {
		t.Errorf("%d rows from %d, %v", block.Rows, block.Row, err)
	}
}

// A value in quotes is what the file has between them, whatever its line ends. The lines of its record are counted.
func TestLineEndsInQuotes(t *testing.T) {
	for _, value := range []string{"a\nb", "a\r\nb", "a\r\r\nb", "\r\n", "\n\r\n\r", "a\r\n\n\r\nb\r", "a\rb"} {
		for _, end := range []string{"\n", "\r\n"} {
			got, lines, err := records(t, "x,\""+value+"\",y"+end+"c,d,e"+end, ',', true)
			want := [][]string{{"x", value, "y"}, {"c", "d", "e"}}
			if err != nil || !reflect.DeepEqual(got, want) || lines[1] != 2+strings.Count(value, "\n") {
				t.Errorf("%q and %q: %q in lines %v, %v", value, end, got, lines, err)
			}
		}
	}
}

// Comma-separated text gives the same records as encoding/csv, which reads a line end in quotes as a line feed.
func FuzzRecords(f *testing.F) {
	for _, text := range []string{"a,b\nc,d\n", "\"a\",b\n", "\"a\nb\",c\n", "a\"b\"\n", "\"a\"\"b\"", "\"", "a,\"\r\n\",b\r\n", "a,b\r", "\"a\" ,b\n", "a,\"\r\n\n\",?\r\r"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.HasPrefix(text, []byte("\x1f\x8b")) || len(text) >= 4 && isZstd(text[:4]) {
			return
		}
		got, _, err := records(t, string(text), ',', true)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "x:") && !strings.HasPrefix(err.Error(), "x is ") {
				t.Errorf("the error does not name the file: %v", err)
			}
			return
		}
		if slices.ContainsFunc(got, func(row []string) bool { return strings.HasPrefix(row[0], "! ") }) {
			return
		}
		reader := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))))
		reader.FieldsPerRecord = -1
		want, err := reader.ReadAll()
		// encoding/csv skips empty lines. Here they are records with one empty cell.
		empty := func(row []string) bool { return len(row) == 1 && row[0] == "" }
		for _, row := range got {
			for i := range row {
				row[i] = strings.ReplaceAll(row[i], "\r\n", "\n")
			}
		}
		got, want = slices.DeleteFunc(got, empty), slices.DeleteFunc(want, empty)
		if err != nil || !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
			t.Errorf("%q gives %q, but encoding/csv gives %q, %v", text, got, want, err)
		}
	})
}

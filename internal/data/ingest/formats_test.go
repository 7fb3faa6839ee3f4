package ingest

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"shaver/internal/data/dataset"
	"shaver/internal/data/rawtext"
)

// shape is a raw format with random rows, both as text and as values.
type shape struct {
	name     string
	format   Format
	minCount int
	header   string     // with its line end; "" without a header
	lines    []string   // rows, with their line ends
	records  [][]string // label and values of each row, after a row with the names
}

// shapes returns the shapes with the given names, or all shapes if no names are given.
func shapes(t testing.TB, rows int, names ...string) []shape {
	t.Helper()
	criteo, err := Criteo(LnSquared)
	if err != nil {
		t.Fatal(err)
	}
	paper, err := Criteo(Log2)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(7, 7))
	zipf := func(n int) int { return int(math.Pow(float64(n), r.Float64())) }
	all := []shape{
		{name: "criteo", format: criteo, minCount: 10},
		{name: "criteo by the paper", format: paper, minCount: 10},
		{name: "avazu", format: Avazu(), minCount: 2, header: strings.Join(Avazu().columns, ",") + "\n"},
		{name: "kdd", format: KDD(), minCount: 10},
	}
	if names != nil {
		all = slices.DeleteFunc(all, func(s shape) bool { return !slices.Contains(names, s.name) })
	}
	for k := range all {
		s := &all[k]
		f := s.format
		var columns, cells []string
		separator := "\t"
		if f.comma {
			separator = ","
		}
		for i, name := range f.columns {
			if i > 0 && name != "id" && name != f.Label {
				columns = append(columns, name)
			}
		}
		s.records = [][]string{append([]string{"label"}, columns...)}
		for i := range rows {
			cells = cells[:0]
			record := []string{strconv.Itoa(r.IntN(5) / 4)}
			for column, name := range f.columns {
				cell := strconv.Itoa(zipf(3000))
				switch {
				case name == "id":
					cells = append(cells, strconv.Itoa(i))
					continue
				case f.From > 0 && column == 0:
					clicks := r.IntN(4) / 2 * r.IntN(3)
					record[0] = strconv.Itoa(min(clicks, 1))
					cells = append(cells, strconv.Itoa(clicks))
					continue
				case name == f.label():
					cells = append(cells, record[0])
					continue
				case f.integer > 0 && column <= 13:
					x := zipf(100_000) - 3
					value := strconv.Itoa(x - 2)
					switch {
					case r.IntN(5) == 0:
						cell, value = "", "NULL"
					case x > 2 && s.name == "criteo":
						value = strconv.Itoa(int(math.Floor(math.Log(float64(x)) * math.Log(float64(x)))))
						cell = strconv.Itoa(x)
					case x > 2:
						value = strconv.Itoa(int(math.Ceil(math.Log2(float64(x)))))
						cell = strconv.Itoa(x)
					default:
						cell = strconv.Itoa(x)
					}
					cells, record = append(cells, cell), append(record, value)
					continue
				case r.IntN(20) == 0 && f.integer > 0:
					cell = ""
				case column%3 == 0:
					cell = fmt.Sprintf("%016x%d", zipf(9000), column) // more than 15 bytes
				}
				cells, record = append(cells, cell), append(record, cell)
			}
			s.lines = append(s.lines, strings.Join(cells, separator)+"\n")
			s.records = append(s.records, record)
		}
	}
	return all
}

// files writes the rows to n files, after pack has packed the text of each.
func (s *shape) files(t testing.TB, n int, pack func(testing.TB, string) string) []string {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for k := range n {
		from, to := k*len(s.lines)/n, (k+1)*len(s.lines)/n
		if n > 1 && k < 2 { // the first two files have very different sizes
			from, to = k*3, 3+k*(2*len(s.lines)/n-3)
		}
		path := filepath.Join(dir, "part-"+strconv.Itoa(k))
		if err := os.WriteFile(path, []byte(pack(t, s.header+strings.Join(s.lines[from:to], ""))), 0o644); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

func plain(_ testing.TB, text string) string { return text }

// contents returns the bytes of all files of a dataset, without the sources in the
// manifest.
func contents(t testing.TB, dir string) string {
	t.Helper()
	d := open(t, dir)
	d.Sources = nil
	all := folderBytes(t, dir)
	at := strings.Index(all, dataset.ManifestName+"\n")
	end := at + strings.Index(all[at:], "\n}\n")
	return all[:at] + string(d.Marshal()) + all[end:]
}

// In every shape the ids are those of the brute-force encoder. The bytes do not depend on
// the number of files and workers, the compression or the memory.
func TestImportShapes(t *testing.T) {
	for _, s := range shapes(t, 3000) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			first := ""
			for k, c := range []struct {
				files, workers int
				memory         int64
				pack           func(testing.TB, string) string
			}{
				{1, 1, 1 << 30, plain}, {1, 2, 1 << 30, plain}, {10, 1, 1 << 30, plain}, {10, 3, 700 << 10, plain}, {1, 2, 600 << 10, gzipped}, {10, 2, 800 << 10, zstded},
			} {
				out := filepath.Join(t.TempDir(), "x")
				config := RawConfig{Format: s.format, Files: s.files(t, c.files, c.pack), MinCount: int64(s.minCount), Counted: CountAll, Seed: 3,
					Memory: c.memory, Workers: c.workers, Out: out}
				if _, err := ImportRaw(t.Context(), config); err != nil {
					t.Fatalf("%d files, %d workers, %d bytes: %v", c.files, c.workers, c.memory, err)
				}
				if k == 0 {
					first = contents(t, out)
					checkBruteForce(t, open(t, out), s.records, "label", s.minCount, 3, true)
				} else if contents(t, out) != first {
					t.Errorf("%d files, %d workers, %d bytes give a different dataset", c.files, c.workers, c.memory)
				}
				if entries, err := os.ReadDir(filepath.Dir(out)); err != nil || len(entries) != 1 {
					t.Errorf("left behind: %v, %v", entries, err)
				}
			}
		})
	}
}

func TestCriteoNumbers(t *testing.T) {
	for _, c := range []struct {
		rule string
		want map[string]string
	}{
		{LnSquared, map[string]string{"": "NULL", "-2": "-4", "0": "-2", "2": "0", "3": "1", "4": "1", "5": "2", "999": "47", "1000": "47", "65535": "122", "+1": "!", "1.5": "!", "x": "!", "-": "!", "99999999999999999999": "!"}},
		{Log2, map[string]string{"": "NULL", "-1": "-3", "1": "-1", "2": "0", "3": "2", "4": "2", "5": "3", "8": "3", "9": "4", "1024": "10", "1025": "11"}},
	} {
		f, err := Criteo(c.rule)
		if err != nil {
			t.Fatal(err)
		}
		l, err := f.layout(f.columns)
		if err != nil {
			t.Fatal(err)
		}
		p := newRowParser(l, true)
		for cell, want := range c.want {
			got, err := p.number([]byte(cell))
			if want == "!" {
				if err == nil {
					t.Errorf("%q is accepted as %s", cell, got)
				}
			} else if err != nil || string(got) != want {
				t.Errorf("%s(%q) = %s, %v, want %s", c.rule, cell, got, err, want)
			}
		}
	}
	_, err := Criteo("log")
	wantUsage(t, err, "expected ln-squared, log2, or for dense inputs none, log1p")
}

// The error for a bad row names the line, the column and the expected value. If bad rows
// are skipped, they are counted and all other rows are imported.
func TestBadRows(t *testing.T) {
	for _, s := range shapes(t, 300, "criteo", "avazu", "kdd") {
		separator, row := "\t", strings.TrimSuffix(s.lines[7], "\n")
		if s.format.comma {
			separator = ","
		}
		cells := strings.Split(row, separator)
		m := len(cells)
		with := func(column int, cell string) string {
			changed := slices.Clone(cells)
			changed[column] = cell
			return strings.Join(changed, separator)
		}
		label := slices.Index(s.format.columns, s.format.label())
		last := s.format.columns[m-1]
		expected := "expected 0 or 1"
		if s.format.From > 0 {
			expected = "expected a count"
		}
		bad := 107
		if s.header != "" {
			bad++
		}
		for _, c := range []struct{ name, row, want string }{
			{"short", strings.Join(cells[:m-1], separator), fmt.Sprintf("%d columns, expected %d", m-1, m)},
			{"long", row + separator + "x", fmt.Sprintf("%d columns, expected %d", m+1, m)},
			{"label", with(label, "yes"), `label is "yes", ` + expected},
			{"negative label", with(label, "-1"), `label is "-1", ` + expected},
			{"UTF-8", with(m-1, "a\xff"), fmt.Sprintf("column %d (%s): \"a\\xff\" is not UTF-8", m-1, last)},
			{"NUL", with(m-1, "a\x00"), fmt.Sprintf("column %d (%s): NUL byte", m-1, last)},
			{"1 MiB", with(m-1, strings.Repeat("y", rawtext.MaxLine)), "the line is longer than 1048576 bytes"},
			{"empty", "", "the line is empty"},
		} {
			t.Run(s.name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				text := s.header + strings.Join(s.lines[:106], "") + c.row + "\n" + strings.Join(s.lines[106:], "")
				path, out := write(t, text), filepath.Join(t.TempDir(), "x")
				config := RawConfig{Format: s.format, Files: []string{path}, Workers: 2, Out: out}
				_, err := ImportRaw(t.Context(), config)
				wantInput(t, err, fmt.Sprintf("%s:%d: %s", path, bad, c.want))
				wantNothing(t, out)
				config.OnBadRow = Skip
				summary, err := ImportRaw(t.Context(), config)
				if err != nil || summary.Skipped != 1 || len(summary.Bad) != 1 || !strings.Contains(summary.Bad[0], c.want) {
					t.Fatalf("import that skips bad rows: %+v, %v", summary, err)
				}
				if rows := rowsOf(t, open(t, out), 1000); rows.Len() != 300 {
					t.Errorf("%d rows are imported, expected 300", rows.Len())
				}
			})
		}
	}
}

// Windows line ends, a missing last line end and a byte order mark do not change the
// dataset.
func TestLineEnds(t *testing.T) {
	for _, s := range shapes(t, 300, "criteo", "avazu", "kdd") {
		text := s.header + strings.Join(s.lines, "")
		first := ""
		for name, text := range map[string]string{
			"": text, "Windows": strings.ReplaceAll(text, "\n", "\r\n"), "no last end": strings.TrimSuffix(text, "\n"), "mark": "\xef\xbb\xbf" + text,
		} {
			out := filepath.Join(t.TempDir(), "x")
			if _, err := ImportRaw(t.Context(), RawConfig{Format: s.format, Files: []string{write(t, text)}, Out: out}); err != nil {
				t.Fatal(err)
			}
			if got := contents(t, out); first == "" {
				first = got
			} else if got != first {
				t.Errorf("%s, %q gives a different dataset", s.name, name)
			}
		}
	}
}

func TestBadFiles(t *testing.T) {
	for _, s := range shapes(t, 300, "criteo", "avazu", "kdd") {
		text := s.header + strings.Join(s.lines, "")
		cut := gzipped(t, text)
		cases := []struct{ text, want string }{
			{"", "the file is empty"},
			{cut[:len(cut)-20], "the compressed data are broken"},
			{zstded(t, text)[:100], "the compressed data are broken"},
		}
		if s.header != "" {
			cases = append(cases, []struct{ text, want string }{
				{s.header, "a header and no rows"},
				{strings.Replace(text, "banner_pos", "banner", 1), ":1: the header is"},
				{strings.Join(s.lines, ""), ":1: the header is"},
			}...)
		}
		for _, c := range cases {
			out := filepath.Join(t.TempDir(), "x")
			path := write(t, c.text)
			_, err := ImportRaw(t.Context(), RawConfig{Format: s.format, Files: s.files(t, 1, plain), Out: out})
			if err != nil {
				t.Fatal(err)
			}
			out = filepath.Join(t.TempDir(), "x")
			for _, policy := range []string{Fail, Skip} {
				_, err = ImportRaw(t.Context(), RawConfig{Format: s.format, Files: append(s.files(t, 1, plain), path), OnBadRow: policy, Out: out})
				wantInput(t, err, c.want)
				wantInput(t, err, path)
				wantNothing(t, out)
			}
		}
	}
}

// If there are several bad rows, the error is about the first, whichever worker finds it.
func TestFirstBadRowWins(t *testing.T) {
	s := shapes(t, 20_000, "kdd")[0]
	for _, line := range []int{19_990, 15_000, 9000} {
		s.lines[line] = "bad\n"
	}
	for range 3 {
		out := filepath.Join(t.TempDir(), "x")
		_, err := ImportRaw(t.Context(), RawConfig{Format: s.format, Files: s.files(t, 1, plain), Workers: 4, Out: out})
		wantInput(t, err, "part-0:9001: one column")
	}
}

func TestStandardInput(t *testing.T) {
	s := shapes(t, 500, "kdd")[0]
	text := strings.Join(s.lines, "")
	dir := t.TempDir()
	config := RawConfig{Format: s.format, Files: s.files(t, 1, plain), MinCount: 2, Out: filepath.Join(dir, "a")}
	if _, err := ImportRaw(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{text, gzipped(t, text)} {
		config.Files, config.Stdin, config.Out = []string{Stdin}, strings.NewReader(text), filepath.Join(t.TempDir(), "b")
		if _, err := ImportRaw(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		if contents(t, config.Out) != contents(t, filepath.Join(dir, "a")) {
			t.Error("standard input gives a different dataset")
		}
		if d := open(t, config.Out); d.Sources[0].File != "stdin" {
			t.Errorf("sources %+v", d.Sources)
		}
		config.Stdin, config.Out = strings.NewReader(text), filepath.Join(t.TempDir(), "c")
		var err error
		if config.Vocabulary, err = ReadVocabulary(filepath.Join(dir, "a"), DefaultMemory, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := ImportRaw(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(fileOf(t, config.Out, "train.arrow"), fileOf(t, dir, "a/train.arrow")) {
			t.Error("with a vocabulary, the rows are different")
		}
		config.Vocabulary = nil
	}
	config.Stdin, config.Out = strings.NewReader("1\t2\n"), filepath.Join(t.TempDir(), "d")
	_, err := ImportRaw(t.Context(), config)
	wantInput(t, err, "stdin:1: 2 columns")
	wantNothing(t, config.Out)
	// A bad row ends the import, even if standard input never ends.
	if config.Vocabulary, err = ReadVocabulary(filepath.Join(dir, "a"), DefaultMemory, ""); err != nil {
		t.Fatal(err)
	}
	stream, in := io.Pipe()
	go in.Write([]byte(strings.Repeat("1\t2\n", 1<<20)))
	defer stream.Close()
	config.Stdin = stream
	_, err = ImportRaw(t.Context(), config)
	wantInput(t, err, "stdin:1: 2 columns")
	config.Files = []string{Stdin, Stdin}
	_, err = ImportRaw(t.Context(), config)
	wantUsage(t, err, "standard input is named twice")
}

func fileOf(t testing.TB, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestMemoryTooSmall(t *testing.T) {
	s := shapes(t, 2000, "kdd")[0]
	out := filepath.Join(t.TempDir(), "x")
	_, err := ImportRaw(t.Context(), RawConfig{Format: s.format, Files: s.files(t, 1, plain), Memory: 100 << 10, Out: out})
	wantUsage(t, err, "kept values need")
	wantNothing(t, out)
}

// Many files give many spills, which are merged in several steps.
func TestManyFiles(t *testing.T) {
	s := shapes(t, 1000, "kdd")[0]
	var all []string
	for _, n := range []int{1, 70} {
		out := filepath.Join(t.TempDir(), "x")
		if _, err := ImportRaw(t.Context(), RawConfig{Format: s.format, Files: s.files(t, n, plain), KeepEvery: 1, Workers: 2, Out: out}); err != nil {
			t.Fatal(err)
		}
		all = append(all, contents(t, out))
		if entries, err := os.ReadDir(filepath.Dir(out)); err != nil || len(entries) != 1 {
			t.Errorf("files next to the dataset: %v, %v", entries, err)
		}
	}
	if all[0] != all[1] {
		t.Error("70 files give a different dataset than one file")
	}
}

package delta_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/data/columnfile"
	"shaver/internal/prune/delta"
	"shaver/internal/prune/delta/deltatest"
)

// Several words come with a delta, also if they change alone, and their number may change in both directions. Applied, each delta gives the
// next file bit for bit. The Parquet files alone bring a store to the same rows, and have only those that differ.
func TestWords(t *testing.T) {
	long.Test(t)
	for _, name := range []string{"golden/deepfm.pth", "golden/neumf.pth", "onnx/fuxictr-din.dynamo.onnx"} {
		ck := must(checkpoint.Read(filepath.Join("..", "..", "..", "testdata", filepath.FromSlash(name))))
		a := &ck.Architecture
		r := rand.New(rand.NewPCG(1, 2))
		dropped := deltatest.Mask(r, a.Parameters())
		protect(a, dropped)
		one, four := a.Zero(), modeltest.Words(a, 4, 3)
		renumbered := four
		renumbered.Numbers = slices.Clone(four.Numbers)
		for j, s := range a.Spans() {
			for i := 0; i < s.Rows; i += 5 {
				renumbered.Numbers[s.Row+i] = uint8((int(four.Numbers[s.Row+i]) + 1) % four.Words[j])
			}
		}
		table := must(ck.Embedding())
		retrained, fewer := slices.Clone(table), slices.Clone(dropped)
		deltatest.Change(r, retrained, fewer, 1)
		protect(a, fewer)
		var nights []string
		for i, n := range []struct {
			what     string
			table    []float32
			dropped  []bool
			baseline model.Baseline
		}{
			{"one word", table, dropped, one},
			{"from one word to several", table, dropped, four},
			{"other words", table, dropped, four.Scaled(-2)},
			{"other numbers", table, dropped, renumbered},
			{"other numbers of words", table, dropped, modeltest.Words(a, 9, 4)},
			{"other entries", retrained, fewer, modeltest.Words(a, 9, 4)},
			{"everything dropped", retrained, all(a), renumbered},
			{"back to one word", retrained, fewer, one},
			{"several again", table, dropped, four},
		} {
			nights = append(nights, filepath.Join(t.TempDir(), fmt.Sprintf("%d %s", i, n.what)))
			must(checkpoint.WriteCompact(nights[i], ck.WithEmbedding(n.table), n.dropped, n.baseline, compact.Float32))
		}
		store := map[string]*storedTable{}
		var before *decoded
		for i, folder := range deltas(t, nights) {
			what := name + ", " + filepath.Base(nights[i])
			now := decode(nights[i])
			old := ""
			if i > 0 {
				old = nights[i-1]
			}
			out := filepath.Join(t.TempDir(), "out.safetensors")
			if _, err := delta.Apply(old, []string{folder}, out); err != nil || !bytes.Equal(contents(t, out), contents(t, nights[i])) {
				t.Errorf("%s: %v, or another file", what, err)
			}
			several := now.baseline.Words != nil || before != nil && before.baseline.Words != nil
			if d := must(delta.Open(folder)); (d.Version == delta.WordsVersion) != several {
				t.Errorf("%s: version %s", what, d.Version)
			}
			lines := apply(t, store, folder, several)
			rows := 0
			for _, p := range now.pieces {
				for i := range p.Rows {
					got, want := store[p.Name].read(p.From+i), now.table[p.Entry+i*p.Dim+p.Column:][:p.Width]
					if !slices.EqualFunc(got, want, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }) {
						t.Fatalf("%s: table %s, row %d: the store has %v, expected %v", what, p.Name, p.From+i, got, want)
					}
					if before == nil || now.row(&p, i) != before.row(&p, i) {
						rows++
					}
				}
			}
			if lines != rows {
				t.Errorf("%s: %d lines, expected the %d rows that differ", what, lines, rows)
			}
			before = now
		}
		if _, err := delta.Apply("", deltas(t, nights), filepath.Join(t.TempDir(), "all.safetensors")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Two words in the other order make no other model, but numbers of rows that a delta does not fit.
func TestOtherNumbers(t *testing.T) {
	ck := must(checkpoint.Read(filepath.Join("..", "..", "..", "testdata", "golden", "fm.pth")))
	a := &ck.Architecture // fields of 3, 4 and 3 features, with 3 columns
	one := a.Zero()
	several := model.Baseline{Values: append(slices.Clone(one.Values), 1, 2, 3), Words: []int{2, 1, 1}, Numbers: []uint8{1, 1, 0, 0, 0, 0, 0, 0, 0, 0}}
	swapped := model.Baseline{Values: append([]float32{1, 2, 3}, one.Values...), Words: several.Words, Numbers: []uint8{0, 0, 1, 0, 0, 0, 0, 0, 0, 0}}
	var nights []string
	for i, b := range []model.Baseline{several, one, swapped} {
		nights = append(nights, filepath.Join(t.TempDir(), fmt.Sprint(i)))
		must(checkpoint.WriteCompact(nights[i], ck, all(a), b, compact.Float32))
	}
	if x, y := decode(nights[0]), decode(nights[2]); !slices.Equal(x.table, y.table) || must(checkpoint.Read(nights[0])).Digest() != must(checkpoint.Read(nights[2])).Digest() {
		t.Fatal("other models")
	}
	folders := deltas(t, nights)
	_, err := delta.Apply(nights[2], folders[1:2], filepath.Join(t.TempDir(), "out.safetensors"))
	if !fault.IsInput(err) || !strings.Contains(err.Error(), "with other kept entries or words") {
		t.Error(err)
	}
}

// all drops everything except pads.
func all(a *model.Architecture) []bool {
	dropped := slices.Repeat([]bool{true}, a.Parameters())
	protect(a, dropped)
	return dropped
}

// protect keeps the rows of pads.
func protect(a *model.Architecture, dropped []bool) {
	shape := a.Shape()
	for _, row := range a.FixedRows() {
		from, to := shape.Row(row)
		clear(dropped[from:to])
	}
}

// decoded is what a compact file has.
type decoded struct {
	pieces   []checkpoint.Piece
	table    []float32
	dropped  []bool
	baseline model.Baseline
}

func decode(path string) *decoded {
	ck := must(checkpoint.Read(path))
	dropped, baseline, err := ck.Pruned()
	return &decoded{ck.Pieces(), must(ck.Embedding()), must(dropped, err), baseline}
}

// row says what a delta says of a row: the kept entries and the number of the word.
func (d *decoded) row(p *checkpoint.Piece, i int) (text string) {
	for c := range p.Width {
		if at := p.Entry + i*p.Dim + p.Column + c; !d.dropped[at] {
			text += fmt.Sprint(c, math.Float32bits(d.table[at]), " ")
		}
	}
	if d.baseline.Numbers != nil {
		return text + fmt.Sprint(d.baseline.Numbers[p.Row+i])
	}
	return text + "0"
}

// storedTable is a table of a store that knows the Parquet files alone.
type storedTable struct {
	kept  map[int]map[int]float32
	words map[int]int
	parts []storedPart
}

type storedPart struct {
	first, rows int
	words       [][]float32
}

// read returns a row as the store serves it.
func (s *storedTable) read(row int) (x []float32) {
	for _, p := range s.parts {
		if row >= p.first && row < p.first+p.rows {
			x = slices.Clone(p.words[s.words[row]])
		}
	}
	for c, v := range s.kept[row] {
		x[c] = v
	}
	return x
}

// apply brings a store to the model of a delta as formats.md says, and returns the number of rows in the files.
func apply(t *testing.T, store map[string]*storedTable, folder string, several bool) (lines int) {
	t.Helper()
	read := func(name string, columns []string, each func(cells []string)) {
		f := must(columnfile.Open(filepath.Join(folder, name)))
		defer f.Close()
		if want := append([]string{"table"}, columns...); !slices.Equal(f.Columns(), want) {
			t.Fatalf("%s: columns %q, expected %q", name, f.Columns(), want)
		}
		if err := f.Choose(f.Columns(), []string{"columns", "values"}, ','); err != nil {
			t.Fatal(err)
		}
		for {
			block, err := f.Next()
			if err == io.EOF {
				return
			}
			if err == nil {
				err = block.Rows(func(_ int, cells [][]byte) error {
					var text []string
					for _, c := range cells {
						text = append(text, string(c))
					}
					each(text)
					return nil
				})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	with := func(last string, columns ...string) []string {
		if several {
			return append(columns, last)
		}
		return columns
	}
	floats := func(text string) (values []float32) {
		for cell := range strings.SplitSeq(text, ",") {
			values = append(values, float32(must(strconv.ParseFloat(cell, 32))))
		}
		return values
	}
	fresh := map[string]bool{}
	read(columnfile.DeltaBaseline, with("words", "field", "first", "rows", "values"), func(cells []string) {
		s := store[cells[0]]
		if s == nil {
			s = &storedTable{kept: map[int]map[int]float32{}, words: map[int]int{}}
			store[cells[0]] = s
		}
		if !fresh[cells[0]] {
			fresh[cells[0]], s.parts = true, nil
		}
		values, words := floats(cells[4]), 1
		if several {
			words = must(strconv.Atoi(cells[5]))
		}
		p := storedPart{must(strconv.Atoi(cells[2])), must(strconv.Atoi(cells[3])), nil}
		for word := range slices.Chunk(values, len(values)/words) {
			p.words = append(p.words, word)
		}
		s.parts = append(s.parts, p)
	})
	set := func(cells []string) (s *storedTable, id int) {
		lines++
		s, id = store[cells[0]], must(strconv.Atoi(cells[1]))
		delete(s.kept, id)
		if several {
			s.words[id] = must(strconv.Atoi(cells[len(cells)-1]))
		}
		return s, id
	}
	read(columnfile.DeltaDropped, with("word", "id"), func(cells []string) { set(cells) })
	read(columnfile.DeltaKept, with("word", "id", "columns", "values"), func(cells []string) {
		s, id := set(cells)
		s.kept[id] = map[int]float32{}
		values := floats(cells[3])
		for k, c := range strings.Split(cells[2], ",") {
			s.kept[id][must(strconv.Atoi(c))] = values[k]
		}
	})
	return lines
}

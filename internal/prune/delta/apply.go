package delta

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/data/columnfile"
	"shaver/internal/value/mask"
)

// Delta is an open delta. Its files have the digests of its manifest.
type Delta struct {
	*Manifest
	Folder string
	Head   *checkpoint.Checkpoint // the model without kept entries; Tensors has no values of the tables
	// HeadBytes is the file of the head.
	HeadBytes []byte
	Pieces    []checkpoint.Piece // of the head
	Baseline  model.Baseline     // of the head, and so of the model

	tables map[string][]*checkpoint.Piece // by the names of the tables, in the order of the rows
}

// mostHead bounds the size of a head in MiB.
const mostHead = 1 << 20

// Open opens the delta in a folder. If a file is missing or damaged, or does not fit the others, Open
// returns bad input. Open reads all files once, and keeps the head in memory.
func Open(folder string) (*Delta, error) {
	m, err := readManifest(filepath.Join(folder, ManifestFile))
	if err != nil {
		return nil, err
	}
	d := &Delta{Manifest: m, Folder: folder, tables: map[string][]*checkpoint.Piece{}}
	for _, f := range m.Files {
		path := filepath.Join(folder, f.Name)
		found, err := fileOf(path)
		if err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		if err != nil || found != f {
			return nil, fault.Inputf("%s is missing or damaged: expected %d bytes with the SHA-256 %.12s that %s states; copy the folder again", path, f.Bytes, f.SHA256, ManifestFile)
		}
	}
	path := filepath.Join(folder, HeadFile)
	if d.HeadBytes, err = files.Small(path, mostHead, "the head of a delta"); err != nil {
		return nil, err
	}
	if d.Head, err = checkpoint.ParseHead(path, d.HeadBytes); err != nil {
		return nil, err
	}
	a := &d.Head.Architecture
	if d.Head.Compact == nil || int64(a.Parameters()) > compact.MaxInflation/4*int64(len(d.HeadBytes)) {
		return nil, fault.Inputf("%s is not the head of a delta: expected a compact model", path)
	}
	if _, err := d.Head.Model(); err != nil {
		return nil, err
	}
	d.Pieces, d.Baseline = d.Head.Pieces(), d.Head.Compact.Baseline()
	for i := range d.Pieces {
		p := &d.Pieces[i]
		d.tables[p.Name] = append(d.tables[p.Name], p)
	}
	return d, nil
}

// Row is a row of a piece.
type Row struct {
	Piece *checkpoint.Piece
	ID    int // number of the row in the piece
	// Columns are the columns of the kept entries in the piece, ascending, and Values are the entries. They
	// are empty for a row that keeps none.
	Columns []int32
	Values  []float32
}

// Rows calls each for the rows that changed: those that keep an entry, in the order of the pieces and of the
// ids, and then those that keep none. The next call overwrites the row. A malformed file is bad input.
func (d *Delta) Rows(each func(*Row) error) error {
	for _, file := range []struct {
		name  string
		lists []string
		lines int
	}{{columnfile.DeltaKept, rowLists, d.Count.Kept}, {columnfile.DeltaDropped, nil, d.Count.Dropped}} {
		lines, err := d.lines(file.name, file.lists, each)
		if err != nil {
			return err
		}
		if lines != int64(file.lines) {
			return fault.Inputf("%s has %d lines, expected the %d that %s states", filepath.Join(d.Folder, file.name), lines, file.lines, ManifestFile)
		}
	}
	return nil
}

// rowLists are the lists of a row that keeps an entry.
var rowLists = []string{"columns", "values"}

// lines calls each for the lines of a Parquet file with the given lists, and returns their number.
func (d *Delta) lines(name string, lists []string, each func(*Row) error) (line int64, err error) {
	path := filepath.Join(d.Folder, name)
	t, err := columnfile.Open(path)
	if err != nil {
		return 0, err
	}
	defer t.Close()
	names := append([]string{"table", "id"}, lists...)
	if d.Version == WordsVersion {
		names = append(names, "word")
	}
	if err := t.Choose(names, lists, ','); err != nil {
		return 0, err
	}
	read := d.reader(path, each)
	for {
		block, err := t.Next()
		if err == io.EOF {
			return line, nil
		}
		if err != nil {
			return line, err
		}
		err = block.Rows(func(_ int, cells [][]byte) error {
			line++
			return read(line, cells)
		})
		if err != nil {
			return line, err
		}
	}
}

// reader returns a function that calls each for the row of a line. Each line has a row after that of the
// line before.
func (d *Delta) reader(path string, each func(*Row) error) func(line int64, cells [][]byte) error {
	row := &Row{}
	last := [2]int{-1, -1}
	return func(line int64, cells [][]byte) error {
		id, err := strconv.Atoi(string(cells[1]))
		pieces := d.tables[string(cells[0])]
		i := sort.Search(len(pieces), func(i int) bool { return pieces[i].From > id }) - 1
		if err != nil || i < 0 || id-pieces[i].From >= pieces[i].Rows {
			return fault.Inputf("%s, line %d: the head has no row %q in table %q", path, line, cells[1], cells[0])
		}
		row.Piece, row.ID = pieces[i], id-pieces[i].From
		if here := [2]int{row.Piece.Number, row.ID}; slices.Compare(here[:], last[:]) <= 0 {
			return fault.Inputf("%s, line %d: table %q, id %d: expected rows in ascending order", path, line, cells[0], id)
		} else {
			last = here
		}
		if d.Version == WordsVersion {
			word, last := 0, len(cells)-1
			if d.Baseline.Numbers != nil {
				word = int(d.Baseline.Numbers[row.Piece.Row+row.ID])
			}
			if string(cells[last]) != strconv.Itoa(word) {
				return fault.Inputf("%s, line %d: word %.20q, expected %d as in the head", path, line, cells[last], word)
			}
			cells = cells[:last]
		}
		row.Columns, row.Values = row.Columns[:0], row.Values[:0]
		if len(cells) == 2 {
			return each(row)
		}
		for cell := range bytes.SplitSeq(cells[2], []byte{','}) {
			c, err := strconv.Atoi(string(cell))
			if err != nil || c < 0 || c >= row.Piece.Width || len(row.Columns) > 0 && c <= int(row.Columns[len(row.Columns)-1]) {
				return fault.Inputf("%s, line %d: columns %.60q: expected ascending numbers from 0 to %d", path, line, cells[2], row.Piece.Width-1)
			}
			row.Columns = append(row.Columns, int32(c))
		}
		for cell := range bytes.SplitSeq(cells[3], []byte{','}) {
			v, err := strconv.ParseFloat(string(cell), 32)
			if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
				return fault.Inputf("%s, line %d: values %.60q: expected finite numbers", path, line, cells[3])
			}
			row.Values = append(row.Values, float32(v))
		}
		if len(row.Values) != len(row.Columns) {
			return fault.Inputf("%s, line %d: %d values for %d columns", path, line, len(row.Values), len(row.Columns))
		}
		return each(row)
	}
}

// Applied says what Apply wrote.
type Applied struct {
	Out        string `json:"out"`
	Generation int64  `json:"generation"`
	Model      string `json:"model"` // digest
	Deltas     int    `json:"deltas"`
	Rows       int    `json:"rows"` // of the deltas
	Bytes      int64  `json:"bytes"`
}

// Apply applies the deltas in the folders, in their order, to the compact file old, and writes the model of the
// last one to out. old is "" if the first delta is whole. The file is that from which the last delta was
// made, bit for bit, except that a file of int8 values is written with the same values as float32. A
// delta that is damaged, or does not start from the model before it, is bad input.
func Apply(old string, folders []string, out string) (*Applied, error) {
	s := &state{}
	if old != "" {
		if err := s.read(old); err != nil {
			return nil, err
		}
	}
	result := &Applied{Out: out, Deltas: len(folders)}
	for _, folder := range folders {
		d, err := Open(folder)
		if err != nil {
			return nil, err
		}
		if err := s.apply(d, result); err != nil {
			return nil, err
		}
	}
	return result, s.write(out, result)
}

// state is a model to which deltas are applied.
type state struct {
	name    string // of the file or the delta that the model is from, for errors
	side    Side   // the model; its generation is 0 if it is not known
	pieces  []checkpoint.Piece
	values  []float32 // [parameters]
	dropped []bool    // [parameters]
	last    *Delta
}

// read reads the model from a file.
func (s *state) read(path string) error {
	ck, err := checkpoint.Read(path)
	if err != nil {
		return err
	}
	if ck.Compact == nil {
		return fault.Inputf("%s is not a compact model: expected the file to which the delta belongs, as shaver prune wrote it", path)
	}
	s.name, s.pieces = path, ck.Pieces()
	if s.values, err = ck.Embedding(); err != nil {
		return err
	}
	if s.dropped, _, err = ck.Pruned(); err != nil {
		return err
	}
	s.side, err = sideOf(ck, 0)
	return err
}

// CheckFrom returns bad input unless the delta applies to a model, which is in the place of the given name. The
// generation of the model is 0 if it is not known, and its digests are "" if there is no model.
func (d *Delta) CheckFrom(name string, model Side) error {
	if d.From == nil {
		return nil
	}
	start := fmt.Sprintf("%s: this delta starts from generation %d, the model %.12s", d.Folder, d.From.Generation, d.From.Model)
	if model.Model == "" {
		return fault.Inputf("%s, but %s has no model: begin with a whole delta", start, name)
	}
	if d.From.Model == model.Model && d.From.Mask == model.Mask {
		return nil
	}
	has := fmt.Sprintf("the model %.12s", model.Model)
	if model.Generation > 0 {
		has = fmt.Sprintf("generation %d, %s", model.Generation, has)
	}
	if d.From.Model == model.Model {
		has += " with other kept entries or words"
	}
	return fault.Inputf("%s, but %s has %s: apply the deltas between them first, or a whole delta", start, name, has)
}

func (s *state) apply(d *Delta, result *Applied) error {
	if s.name == "" {
		s.name = result.Out
	}
	if err := d.CheckFrom(s.name, s.side); err != nil {
		return err
	}
	a := &d.Head.Architecture
	values, dropped := make([]float32, a.Parameters()), slices.Repeat([]bool{true}, a.Parameters())
	if d.From != nil {
		if err := s.carry(d, values, dropped); err != nil {
			return err
		}
	}
	err := d.Rows(func(r *Row) error {
		p := r.Piece
		at := p.Entry + r.ID*p.Dim + p.Column
		for c := range p.Width {
			dropped[at+c] = true
		}
		for k, c := range r.Columns {
			values[at+int(c)], dropped[at+int(c)] = r.Values[k], false
		}
		result.Rows++
		return nil
	})
	if err != nil {
		return err
	}
	*s = state{d.Folder, d.Side, d.Pieces, values, dropped, d}
	result.Generation, result.Model = d.Generation, d.Model
	return nil
}

// carry copies the rows of the model before a delta.
func (s *state) carry(d *Delta, values []float32, dropped []bool) error {
	fits := len(s.pieces) == len(d.Pieces)
	for i := 0; fits && i < len(s.pieces); i++ {
		p, b := &d.Pieces[i], &s.pieces[i]
		if fits = p.Name == b.Name && p.Label == b.Label && p.Dim == b.Dim && p.Rows >= b.Rows; fits {
			from, to := b.Entries()
			copy(values[p.Entry:], s.values[from:to])
			copy(dropped[p.Entry:], s.dropped[from:to])
		}
	}
	if !fits {
		return fault.Inputf("%s: the tables of its head are not those of %s", d.Folder, s.name)
	}
	return nil
}

// write checks the model, and writes it to out.
func (s *state) write(out string, result *Applied) error {
	d := s.last
	ck := d.Head.WithEmbedding(mask.Apply(&d.Head.Architecture, s.values, s.dropped, d.Baseline))
	if digest := ck.Digest(); digest != d.Model || maskDigest(s.dropped, d.Baseline.Numbers) != d.Mask {
		return fault.Inputf("%s: the result is the model %.12s, expected %.12s: a delta before it was not the one that this delta starts from", d.Folder, digest, d.Model)
	}
	values := repeatable(d.Values)
	var err error
	if result.Bytes, err = checkpoint.WriteCompact(out, ck, s.dropped, d.Baseline, values); err != nil {
		return err
	}
	if values != d.Values {
		return nil
	}
	if digest, err := files.Digest(out); err != nil || digest != d.File {
		if err == nil {
			err = fault.Inputf("%s has the model of %s, but its file is not the one from which the delta was made, whose SHA-256 is %.12s: another version of shaver wrote that file", out, d.Folder, d.File)
		}
		return err
	}
	return nil
}

// Package delta writes what an embedding store has to change so that it holds a pruned model,
// and applies such changes to a file. A delta is a folder that appears whole:
//
//	kept.parquet      rows that keep an entry, with their kept entries
//	dropped.parquet   rows that keep no entry
//	baseline.parquet  what the entries read that are not kept
//	head.safetensors  the model without its kept entries, a compact file
//	delta.json        Manifest: the generation, the digests of both models and of the files
//
// A whole delta has every row of a model. Any other delta has the rows that differ from an earlier
// model. The model of a file that is not compact has the Parquet files only, and cannot be applied.
package delta

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/data/columnfile"
)

// Options say what Write writes.
type Options struct {
	Part checkpoint.Options // of the file of the model
	// From is the compact file of the earlier model; "" = a whole delta.
	From string
	// Generation is the number of the model, and FromGeneration that of the earlier model. 0 stands for
	// 1 and for Generation - 1.
	Generation, FromGeneration int64
	// Whole writes a whole delta if the tables of the earlier model are others.
	Whole bool
	// Replace replaces a delta that is there.
	Replace bool
}

// Result says what Write wrote.
type Result struct {
	Out        string `json:"out"`
	Generation int64  `json:"generation,omitempty"` // 0 if the delta has no manifest
	Tables     int    `json:"tables"`
	Rows       int    `json:"rows"` // of all tables
	New        int    `json:"new"`  // rows that the earlier model does not have
	columnfile.DeltaCount
	Bytes int64 `json:"bytes"` // of all files

	// Guessed is whether the file does not say which entries were dropped, so that entries that
	// equal the baseline of their field count as dropped. Only a file in compact form says it.
	Guessed bool `json:"-"`
}

// Write writes the delta of the model in the file in to the folder out.
func Write(in string, o Options, out string) (*Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 && !o.Replace {
		return nil, fault.Usagef("%s already exists and is not empty: name a new folder", out)
	} else if err != nil && !os.IsNotExist(err) {
		return nil, fault.Usagef("%s already exists and is not a folder", out)
	}
	ck, err := checkpoint.ReadPart(in, o.Part)
	if err != nil {
		return nil, err
	}
	if _, err := ck.Model(); err != nil { // which checks that every tensor is present, fits and is finite
		return nil, err
	}
	all, err := parts(ck)
	if err != nil {
		return nil, err
	}
	result := &Result{Out: out, Guessed: ck.Compact == nil}
	m := &Manifest{Version: versionOf(all...)}
	if m.Side, err = sideOf(ck, max(o.Generation, 1)); err != nil {
		return nil, err
	}
	if o.From != "" {
		if err = compare(in, ck, all, &o, m, result); err != nil {
			return nil, err
		}
	}
	names := map[string]bool{}
	for _, p := range all {
		names[p.Table] = true
		result.Rows += p.Rows()
	}
	result.Tables = len(names)
	out = filepath.Clean(out) // "x/" has no base name
	folder, temporary, err := atomicfile.Folder(out)
	if err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", out, err)
	}
	defer temporary.Remove() // does nothing after the rename
	d := &columnfile.Delta{Model: m.Model, Parts: all, Several: m.Version == WordsVersion}
	parquet := func(write func(io.Writer) error) func(string) error {
		return func(path string) error { return atomicfile.Write(path, write) }
	}
	writers := map[string]func(path string) error{
		columnfile.DeltaKept:     parquet(func(w io.Writer) error { return d.WriteKept(w, &result.DeltaCount) }),
		columnfile.DeltaDropped:  parquet(func(w io.Writer) error { return d.WriteDropped(w, &result.DeltaCount) }),
		columnfile.DeltaBaseline: parquet(d.WriteBaseline),
		HeadFile:                 func(path string) error { return writeHead(path, ck) },
	}
	for _, name := range fileNames {
		if name == HeadFile && ck.Compact == nil {
			continue
		}
		path := filepath.Join(folder, name)
		if err := writers[name](path); err != nil {
			return nil, err
		}
		file, err := fileOf(path)
		if err != nil {
			return nil, err
		}
		m.Files = append(m.Files, file)
		result.Bytes += file.Bytes
	}
	if ck.Compact != nil {
		if m.File, err = files.Digest(in); err != nil {
			return nil, err
		}
		m.Values, m.Count, m.New, result.Generation = ck.Compact.Encoding(), result.DeltaCount, result.New, m.Generation
		size, err := m.write(filepath.Join(folder, ManifestFile))
		if err != nil {
			return nil, err
		}
		result.Bytes += size
	}
	if o.Replace {
		err = os.RemoveAll(out)
	} else {
		err = os.Remove(out) // removes an empty folder only
	}
	if err != nil && !os.IsNotExist(err) {
		return nil, fault.Usagef("%s already exists: %w", out, err)
	}
	if err := temporary.Rename(out); err != nil {
		return nil, err
	}
	return result, atomicfile.SyncFolder(filepath.Dir(out))
}

// Last returns the name of the file of a delta in a folder that is to be copied last.
func Last(folder string) string {
	if _, err := os.Stat(filepath.Join(folder, ManifestFile)); err != nil {
		return columnfile.DeltaBaseline
	}
	return ManifestFile
}

// check returns wrong usage unless the generations follow each other.
func (o *Options) check() error {
	if o.From == "" {
		return checkGeneration(max(o.Generation, 1))
	}
	if o.Generation < 2 {
		return fault.Usagef("a delta from an earlier model needs its generation: expected a number of at least 2, one more than that of the earlier model")
	}
	if o.FromGeneration == 0 {
		o.FromGeneration = o.Generation - 1
	}
	if o.FromGeneration < 1 || o.FromGeneration >= o.Generation {
		return fault.Usagef("generation %d from generation %d: expected a larger number than that of the earlier model, which is at least 1", o.Generation, o.FromGeneration)
	}
	return checkGeneration(o.Generation)
}

// mostGenerations is the largest generation.
const mostGenerations = math.MaxUint32

func checkGeneration(g int64) error {
	if g < 1 || g > mostGenerations {
		return fault.Usagef("generation %d: expected a number from 1 to %d", g, uint32(mostGenerations))
	}
	return nil
}

// writeHead writes the model of ck without its kept entries. The rows of pads stay, because no
// method drops them.
func writeHead(path string, ck *checkpoint.Checkpoint) error {
	_, baseline, err := ck.Pruned()
	if err != nil {
		return err
	}
	a := &ck.Architecture
	dropped := slices.Repeat([]bool{true}, a.Parameters())
	for _, s := range a.Spans() {
		for _, row := range a.FixedRows() {
			if i := row - s.Row; i >= 0 && i < s.Rows {
				clear(dropped[s.Entry+i*s.Dim:][:s.Dim])
			}
		}
	}
	_, err = checkpoint.WriteCompact(path, ck, dropped, baseline, repeatable(ck.Compact.Encoding()))
	return err
}

// repeatable returns the encoding in which a delta, and the file that it is applied to, hold the values of a model that stores
// them as v. It is float32 if the steps of v cannot be found again to the last bit, so that rounding the values once more could
// change them.
func repeatable(v compact.Encoding) compact.Encoding {
	if v == compact.Int8 || v == compact.Mixed {
		return compact.Float32
	}
	return v
}

// versionOf returns WordsVersion if some parts have several words, and Version otherwise.
func versionOf(parts ...columnfile.DeltaPart) string {
	if slices.ContainsFunc(parts, func(p columnfile.DeltaPart) bool { return len(p.Words) > 1 }) {
		return WordsVersion
	}
	return Version
}

// compare sets which rows of a model differ from those of the file From, and counts the new rows. It sets the version of m, and
// From unless the delta is whole.
func compare(in string, ck *checkpoint.Checkpoint, all []columnfile.DeltaPart, o *Options, m *Manifest, result *Result) error {
	old, err := checkpoint.Read(o.From)
	if err != nil {
		return err
	}
	for path, c := range map[string]*checkpoint.Checkpoint{in: ck, o.From: old} {
		if c.Compact == nil {
			return fault.Inputf("%s is not a compact model: a delta between two models needs the files of shaver prune, which say what was dropped", path)
		}
	}
	before, err := parts(old)
	if err != nil {
		return err
	}
	if err := sameForm(o.From, before, in, all); err != nil {
		if o.Whole {
			return nil
		}
		return err
	}
	for i := range all {
		p, b := &all[i], &before[i]
		d := p.Dim()
		p.Changed = make([]bool, p.Rows())
		for row := range p.Changed {
			p.Changed[row] = p.Number(row) != b.Number(row)
		}
		for e, dropped := range p.Dropped {
			if was := e >= len(b.Dropped) || b.Dropped[e]; dropped != was || !dropped && math.Float32bits(p.Values[e]) != math.Float32bits(b.Values[e]) {
				p.Changed[e/d] = true
			}
		}
		result.New += p.Rows() - b.Rows()
	}
	m.Version = versionOf(append(before, all...)...)
	side, err := sideOf(old, o.FromGeneration)
	m.From = &side
	return err
}

// sameForm returns bad input unless two models have the same tables, of which those of the second one may
// have more rows.
func sameForm(old string, before []columnfile.DeltaPart, in string, now []columnfile.DeltaPart) error {
	const hint = "write a whole delta, without the earlier model"
	if len(before) != len(now) {
		return fault.Inputf("%s has %d tables and fields, and %s has %d: %s", in, len(now), old, len(before), hint)
	}
	for i := range now {
		p, b := &now[i], &before[i]
		if p.Table != b.Table || p.Field != b.Field || p.Dim() != b.Dim() {
			return fault.Inputf("%s has the field %s in table %s of %d columns where %s has %s in %s of %d: %s", in, p.Field, p.Table, p.Dim(), old, b.Field, b.Table, b.Dim(), hint)
		}
		if len(p.Values) < len(b.Values) {
			return fault.Inputf("%s has fewer ids in field %s, table %s, than %s: ids may be added only; %s", in, p.Field, p.Table, old, hint)
		}
	}
	return nil
}

// parts returns the rows of all tables of a model, in the order of the pieces.
func parts(ck *checkpoint.Checkpoint) ([]columnfile.DeltaPart, error) {
	table, err := ck.Embedding()
	if err != nil {
		return nil, err
	}
	dropped, baseline, err := ck.Pruned()
	if err != nil {
		return nil, err
	}
	book := ck.Architecture.Book(baseline)
	var all []columnfile.DeltaPart
	for _, p := range ck.Pieces() {
		part := columnfile.DeltaPart{Table: p.Name, Field: p.Label, First: p.From, Values: columns(table, &p)}
		span := slices.IndexFunc(book.Spans, func(s model.Span) bool { return s.Row == p.Row })
		for n := range book.NumberOfWords(span) {
			part.Words = append(part.Words, book.Word(span, n)[p.Column:][:p.Width])
		}
		if book.Numbers != nil {
			part.Numbers = book.Numbers[p.Row:][:p.Rows]
		}
		if ck.Compact != nil {
			part.Dropped = columns(dropped, &p)
		}
		all = append(all, part)
	}
	return all, nil
}

// columns returns a piece of all entries. It may share their memory.
func columns[T any](entries []T, p *checkpoint.Piece) []T {
	from, to := p.Entries()
	entries = entries[from:to]
	if p.Width == p.Dim {
		return entries
	}
	var some []T
	for row := range slices.Chunk(entries, p.Dim) {
		some = append(some, row[p.Column:][:p.Width]...)
	}
	return some
}

package dataset_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/arrowio"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
)

// blocky returns the folder of a dataset of three blocks of train and one of val. Datasets of other kinds
// differ.
func blocky(t testing.TB, kind int) string {
	t.Helper()
	text := func(rows int) string {
		var b strings.Builder
		for i := range rows {
			fmt.Fprintf(&b, "%d,%d,%d\n", i%2, i%3, (i+kind)*7919%997)
		}
		return write(t, b.String())
	}
	out := filepath.Join(t.TempDir(), "dataset")
	config := ingest.EncodedConfig{Train: []string{text(2*arrowio.RowsBatch + 9)}, Val: []string{text(50)}, Sizes: []int{3, 997}, Out: out}
	if _, err := ingest.ImportEncoded(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	return out
}

// scanner is a method of a dataset.
type scanner = func(first int64, each func(rows *model.Rows) error) error

// from reads at most n rows, until scan returns an error.
func from(scan scanner, first int64, n int) (*model.Rows, error) {
	all, enough := &model.Rows{}, errors.New("enough")
	err := scan(first, func(rows *model.Rows) error {
		all.AppendAll(rows)
		if all.Len() >= n {
			return enough
		}
		return nil
	})
	if errors.Is(err, enough) {
		err = nil
	}
	return all, err
}

// scanners returns ScanFrom and ScanBlocks of all splits.
func scanners(t testing.TB, d *dataset.Dataset) (plain, checked scanner) {
	return func(first int64, each func(*model.Rows) error) error {
			return d.ScanFrom(t.Context(), nil, first, 4096, each)
		}, func(first int64, each func(*model.Rows) error) error {
			return d.ScanBlocks(t.Context(), nil, first, 4096, each)
		}
}

// Blocks give the rows of the dataset from any row on, also in a window. Its identity does not depend on them.
func TestBlocks(t *testing.T) {
	t.Parallel()
	dir := blocky(t, 0)
	d := open(t, dir)
	days, err := dataset.OpenDays([]string{blocky(t, 1), dir})
	if err != nil {
		t.Fatal(err)
	}
	const block, rows = arrowio.RowsBatch, 2*arrowio.RowsBatch + 59
	for what, c := range map[string]struct {
		d      *dataset.Dataset
		firsts []int64
	}{
		"a folder": {d, []int64{0, 1, block - 1, block, 2*block - 1, 2 * block, rows - 51, rows - 50, rows - 49, rows - 1, rows}},
		"a window": {days, []int64{0, block, 2 * block, 2*block + 9, 2*block + 10, 4*block + 17, 4*block + 18, 2*rows - 51, 2*rows - 50, 2*rows - 1}},
	} {
		if digest, err := c.d.Blocks(); err != nil || len(digest) != 64 {
			t.Fatalf("%s: digest %q, %v", what, digest, err)
		}
		plain, checked := scanners(t, c.d)
		for _, first := range c.firsts {
			want, err := from(plain, first, 5000)
			if err != nil {
				t.Fatal(err)
			}
			got, err := from(checked, first, 5000)
			if err != nil || !slices.Equal(got.Number, want.Number) || !slices.Equal(got.Label, want.Label) || !slices.Equal(got.Features, want.Features) {
				t.Errorf("%s: from row %d: %d rows, %v; expected %d", what, first, got.Len(), err, want.Len())
			}
		}
	}
	digest := d.Digest()
	if err := os.Remove(filepath.Join(dir, dataset.BlocksName)); err != nil {
		t.Fatal(err)
	}
	without := open(t, dir)
	if blocks, err := without.Blocks(); blocks != "" || err != nil || without.Digest() != digest {
		t.Errorf("without the list: blocks %q, digest %s, %v", blocks, without.Digest(), err)
	}
	_, checked := scanners(t, without)
	_, err = from(checked, 5, 1)
	wantInput(t, err, dataset.BlocksName+" is missing")
}

// A changed byte is found before a row of its block is used. Other blocks can be read.
func TestChangedBlock(t *testing.T) {
	t.Parallel()
	dir := blocky(t, 0)
	path := filepath.Join(dir, "train.arrow")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list := blocksOf(t, dir)
	ends := []int64{0}
	for _, b := range list.Splits[0].Blocks {
		ends = append(ends, b.End)
	}
	for k := range 3 {
		for _, at := range []int64{(ends[k] + ends[k+1]) / 2, ends[k+1] - 1} {
			changed := bytes.Clone(data)
			changed[at] ^= 1
			if err := os.WriteFile(path, changed, 0o600); err != nil {
				t.Fatal(err)
			}
			_, checked := scanners(t, open(t, dir))
			for block := range 3 {
				first := int64(block) * arrowio.RowsBatch
				rows, err := from(checked, first, 1)
				if block != k {
					if err != nil || rows.Len() == 0 || rows.Number[0] != first {
						t.Errorf("byte %d of block %d changed: block %d: %v", at, k, block, err)
					}
					continue
				}
				wantInput(t, err, fmt.Sprintf("%s is corrupt: block %d, with the rows %d to %d, is not that of blocks.json", path, k, first, min(first+arrowio.RowsBatch, 2*arrowio.RowsBatch+9)-1))
				if rows.Len() > 0 {
					t.Errorf("byte %d of block %d changed: %d rows", at, k, rows.Len())
				}
			}
		}
	}
	// What follows the blocks is checked when the list is read.
	changed := bytes.Clone(data)
	changed[ends[3]+1] ^= 1
	if err := os.WriteFile(path, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = open(t, dir).Blocks()
	wantInput(t, err, "does not lead to the SHA-256 of "+path+" in dataset.json")
}

// A row that is not valid is refused with the words of Scan, although its block is that of the list.
func TestInvalidRowInBlock(t *testing.T) {
	t.Parallel()
	const invalid = arrowio.RowsBatch + 7
	var text strings.Builder
	for i := range arrowio.RowsBatch + 20 {
		id := i % 3
		if i == invalid {
			id = 8
		}
		fmt.Fprintf(&text, "%d,%d\n", i%2, id)
	}
	dir := filepath.Join(t.TempDir(), "dataset")
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{write(t, text.String())}, Sizes: []int{9}, Out: dir}); err != nil {
		t.Fatal(err)
	}
	// The files now say that the field has 8 features.
	path := filepath.Join(dir, "train.arrow")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.ReplaceAll(data, []byte("[9]"), []byte("[8]"))
	m, list := open(t, dir).Manifest, blocksOf(t, dir)
	m.Fields[0].Size = 8
	m.Splits[0].SHA256 = fmt.Sprintf("%x", sha256.Sum256(data))
	blocks := dataset.Blocks{Version: list.Version, Splits: []dataset.SplitBlocks{{Name: "train"}}}
	for _, b := range list.Splits[0].Blocks {
		digest := sha256.New()
		digest.Write(data[:b.End])
		blocks.Splits[0].Add(b.End, digest)
	}
	for name, data := range map[string][]byte{"train.arrow": data, dataset.ManifestName: m.Marshal(), dataset.BlocksName: blocks.Marshal()} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	plain, checked := scanners(t, open(t, dir))
	_, want := from(plain, 0, 1<<20)
	wantInput(t, want, fmt.Sprintf("%s: row %d: field 0 (f0): local id 8 is outside [0,8)", path, invalid))
	for _, first := range []int64{0, arrowio.RowsBatch} {
		if _, err := from(checked, first, 1<<20); err == nil || err.Error() != want.Error() {
			t.Errorf("from row %d: %v, expected %v", first, err, want)
		}
	}
	if rows, err := from(checked, 5, 1); err != nil || rows.Len() == 0 {
		t.Errorf("a valid block: %d rows, %v", rows.Len(), err)
	}
}

func blocksOf(t testing.TB, dir string) *dataset.Blocks {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, dataset.BlocksName))
	if err != nil {
		t.Fatal(err)
	}
	b := &dataset.Blocks{}
	if err := json.Unmarshal(data, b); err != nil {
		t.Fatal(err)
	}
	if again := b.Marshal(); !bytes.Equal(again, data) {
		t.Errorf("marshals as\n%s\nnot\n%s", again, data)
	}
	return b
}

// A list that is malformed or of another dataset is refused. One that was changed in the middle gives an error, not rows.
func TestChangedBlocks(t *testing.T) {
	t.Parallel()
	dir, other := blocky(t, 0), blocky(t, 1)
	path := filepath.Join(dir, dataset.BlocksName)
	for what, c := range map[string]struct {
		change func(b *dataset.Blocks)
		err    string
	}{
		"version":         {func(b *dataset.Blocks) { b.Version = "shaver.blocks/9" }, `version is "shaver.blocks/9"`},
		"splits":          {func(b *dataset.Blocks) { b.Splits = b.Splits[:1] }, "1 splits, but dataset.json states 2"},
		"name":            {func(b *dataset.Blocks) { b.Splits[1].Name = "test" }, `split val: its name is "test"`},
		"a block less":    {func(b *dataset.Blocks) { b.Splits[0].Blocks = b.Splits[0].Blocks[1:] }, "split train: 2 blocks, expected 3 for 131081 rows"},
		"a block more":    {func(b *dataset.Blocks) { b.Splits[1].Blocks = append(b.Splits[1].Blocks, b.Splits[1].Blocks[0]) }, "split val: 2 blocks, expected 1"},
		"order":           {func(b *dataset.Blocks) { b.Splits[0].Blocks[1].End = b.Splits[0].Blocks[0].End }, "block 1 ends after"},
		"end of the file": {func(b *dataset.Blocks) { b.Splits[0].Blocks[2].End = 1 << 40 }, "block 2 ends after 1099511627776 bytes, expected"},
		"no state":        {func(b *dataset.Blocks) { b.Splits[0].Blocks[1].State = nil }, "block 1: the state is not one of SHA-256"},
		"last state":      {func(b *dataset.Blocks) { b.Splits[0].Blocks[2].State[9] ^= 1 }, "does not lead to the SHA-256 of"},
		"other dataset":   {func(b *dataset.Blocks) { *b = *blocksOf(t, other) }, "does not lead to the SHA-256 of"},
	} {
		b := blocksOf(t, dir)
		c.change(b)
		changed := t.TempDir()
		if err := os.CopyFS(changed, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(changed, dataset.BlocksName), b.Marshal(), 0o600); err != nil {
			t.Fatal(err)
		}
		digest, err := open(t, changed).Blocks()
		if digest != "" || !fault.IsInput(err) || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), dataset.BlocksName) {
			t.Errorf("%s: %q, %v", what, digest, err)
		}
		_, checked := scanners(t, open(t, changed))
		if rows, err := from(checked, arrowio.RowsBatch, 1); err == nil {
			t.Errorf("%s: read %d rows", what, rows.Len())
		}
	}
	b := blocksOf(t, dir)
	b.Splits[0].Blocks[0].End -= 8
	if err := os.WriteFile(path, b.Marshal(), 0o600); err != nil {
		t.Fatal(err)
	}
	d := open(t, dir)
	if _, err := d.Blocks(); err != nil {
		t.Fatal(err)
	}
	_, checked := scanners(t, d)
	for _, first := range []int64{0, arrowio.RowsBatch} {
		rows, err := from(checked, first, 1)
		wantInput(t, err, "is not that of blocks.json")
		if rows.Len() > 0 {
			t.Errorf("read %d rows", rows.Len())
		}
	}
	if rows, err := from(checked, 2*arrowio.RowsBatch, 1); err != nil || rows.Number[0] != 2*arrowio.RowsBatch {
		t.Errorf("after the changed blocks: %v", err)
	}
}

// Whatever the list is, reading gives the rows of the dataset or bad input.
func FuzzBlocks(f *testing.F) {
	dir, d := smallDataset(f)
	want := rowsOf(f, d, 4096)
	path := filepath.Join(dir, dataset.BlocksName)
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(bytes.Replace(good, []byte(`"end":`), []byte(`"end":1`), 1))
	f.Add(bytes.Replace(good, []byte(`"state":"`), []byte(`"state":"AAAA`), 1))
	f.Add(bytes.Replace(good, []byte("[{"), []byte("[{},{"), 1))
	f.Add(good[:len(good)/2])
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		d := open(t, dir)
		if _, err := d.Blocks(); err != nil && !fault.IsInput(err) {
			t.Errorf("not bad input: %v", err)
		}
		_, checked := scanners(t, d)
		for _, first := range []int64{0, 100} {
			rows, err := from(checked, first, want.Len())
			if err != nil && !fault.IsInput(err) {
				t.Errorf("not bad input: %v", err)
			}
			if n := rows.Len(); n > 0 && !slices.Equal(rows.Features, want.Slice(int(first), int(first)+n).Features) {
				t.Errorf("other rows from row %d", first)
			}
		}
	})
}

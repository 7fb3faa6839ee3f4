package iceberg

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strconv"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/data/columnfile"
	"shaver/internal/data/lake"
)

// Columns of position deletes.
var positionColumns = []columnfile.ViewColumn{
	{Name: "file_path", Source: "file_path", ID: 2147483546, Kind: columnfile.Strings},
	{Name: "pos", Source: "pos", ID: 2147483545, Kind: columnfile.Numbers},
}

// deletion finds the deleted rows of data files.
type deletion struct {
	metadata    *metadata
	rows        map[*file]*roaring64.Bitmap // positions of deleted rows
	data        []*file
	byPath      map[string][]*file // data files
	byPartition map[string][]*file // data files
	vectors     map[*file]bool     // data files with a deletion vector, for which position deletes do not count
	keys        map[string]*keys
}

// keys has the keys that equality deletes in a partition, or in all of them, delete.
type keys struct {
	partition string // "" = all
	columns   []int32
	sequence  int64            // the highest one of the deletes
	deleted   map[string]int64 // the highest sequence number of the deletes that have the key
}

// deleted returns the positions of the deleted rows of data files.
func (m *metadata) deleted(ctx context.Context, store lake.Store, data, deletes []*file) (map[*file]*roaring64.Bitmap, error) {
	d := &deletion{m, map[*file]*roaring64.Bitmap{}, data, map[string][]*file{}, map[string][]*file{}, map[*file]bool{}, map[string]*keys{}}
	if len(deletes) == 0 {
		return d.rows, nil
	}
	for _, f := range slices.Concat(data, deletes) {
		f.partition = fmt.Sprintf("%d %#v", f.spec.ID, f.values)
	}
	for _, f := range data {
		d.byPath[f.path] = append(d.byPath[f.path], f)
		d.byPartition[f.partition] = append(d.byPartition[f.partition], f)
	}
	for _, x := range deletes {
		if x.format != "PUFFIN" {
			continue
		}
		for _, f := range d.targets(x) {
			if d.vectors[f] {
				return nil, fault.Inputf("%s: the file has two deletion vectors, expected at most one", f.name)
			}
			d.vectors[f] = true
		}
	}
	deletes = slices.DeleteFunc(slices.Clone(deletes), func(x *file) bool { return len(d.targets(x)) == 0 })
	paths, err := store.Local(ctx, names(deletes))
	if err != nil {
		return nil, missing(err)
	}
	for i, x := range deletes {
		if err := d.read(ctx, x, paths[i]); err != nil {
			return nil, fmt.Errorf("deletes in %s: %w", x.name, err)
		}
	}
	return d.rows, d.match(ctx, store)
}

func names(files []*file) []string {
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.name
	}
	return names
}

// targets returns the data files to which deletes apply.
func (d *deletion) targets(x *file) []*file {
	candidates, younger := d.byPartition[x.partition], int64(0)
	switch {
	case x.content == equalityDeletes:
		if younger = 1; x.spec.unpartitioned() {
			candidates = d.data
		}
	case x.referenced != "":
		candidates = d.byPath[x.referenced]
	}
	var found []*file
	for _, f := range candidates {
		if f.sequence+younger <= x.sequence && (x.content == equalityDeletes || x.format == "PUFFIN" || !d.vectors[f]) {
			found = append(found, f)
		}
	}
	return found
}

// read reads deletes.
func (d *deletion) read(ctx context.Context, x *file, path string) error {
	switch {
	case x.format == "PUFFIN" && x.content == positionDeletes:
		rows, err := readVector(path, x.offset, x.size)
		if err != nil {
			return err
		}
		if n := rows.GetCardinality(); x.referenced == "" || n != uint64(x.rows) {
			return fault.Inputf("the deletion vector has %d rows, expected %d, and the path of its data file", n, x.rows)
		}
		for _, f := range d.targets(x) {
			d.rows[f] = rows.Clone()
		}
		return nil
	case x.format != "PARQUET":
		return fault.Inputf("the deletes have the format %s, expected PARQUET, or PUFFIN for a deletion vector", x.format)
	case x.content == equalityDeletes:
		return d.readKeys(ctx, x, path)
	}
	targets := map[string][]*file{}
	for _, f := range d.targets(x) {
		targets[f.path] = append(targets[f.path], f)
	}
	return visit(ctx, path, positionColumns, func(_ uint64, cells [][]byte) error {
		for _, f := range targets[string(cells[0])] {
			row, err := strconv.ParseUint(string(cells[1]), 10, 63)
			if err != nil {
				return fault.Inputf("%s: the position %q, expected a row of %s, counted from 0", path, cells[1], f.name)
			}
			d.delete(f, row)
		}
		return nil
	})
}

func (d *deletion) delete(f *file, row uint64) {
	if d.rows[f] == nil {
		d.rows[f] = roaring64.New()
	}
	d.rows[f].Add(row)
}

// readKeys reads equality deletes.
func (d *deletion) readKeys(ctx context.Context, x *file, path string) error {
	k := &keys{partition: x.partition, columns: slices.Sorted(slices.Values(x.equality)), deleted: map[string]int64{}}
	if x.spec.unpartitioned() {
		k.partition = ""
	}
	name := fmt.Sprint(k.columns, k.partition)
	if d.keys[name] == nil {
		d.keys[name] = k
	}
	k = d.keys[name]
	k.sequence = max(k.sequence, x.sequence)
	columns, err := d.columns(k.columns)
	if err != nil {
		return err
	}
	var key []byte
	return visit(ctx, path, x.view(columns), func(_ uint64, cells [][]byte) error {
		key = appendKey(key[:0], cells)
		k.deleted[string(key)] = max(k.deleted[string(key)], x.sequence)
		return nil
	})
}

// columns returns the columns with IDs. A column that was dropped since is one of an earlier schema.
func (d *deletion) columns(ids []int32) ([]columnfile.ViewColumn, error) {
	fields := make([]field, len(ids))
	for i, id := range ids {
		var newest *field
		for _, s := range d.metadata.Schemas {
			if c := s.columnByID(id); c != nil {
				newest = c
			}
		}
		if newest == nil {
			return nil, fault.Inputf("equality_ids has %d, expected the ID of a column that is not in a structure", id)
		}
		fields[i] = *newest
	}
	if len(ids) == 0 {
		return nil, fault.Inputf("no equality_ids, expected the IDs of columns")
	}
	columns, err := d.metadata.views(fields)
	for i := range columns {
		columns[i].Name = strconv.Itoa(int(ids[i])) // columns of different schemas may have one name
	}
	return columns, err
}

// match deletes the rows whose keys are deleted.
func (d *deletion) match(ctx context.Context, store lake.Store) error {
	matched := map[*file][]*keys{}
	var read []*file
	for _, f := range d.data {
		for _, k := range d.keys {
			if f.sequence < k.sequence && (k.partition == "" || k.partition == f.partition) {
				matched[f] = append(matched[f], k)
			}
		}
		if matched[f] != nil {
			read = append(read, f)
		}
	}
	paths, err := store.Local(ctx, names(read))
	if err != nil {
		return missing(err)
	}
	for i, f := range read {
		for _, k := range matched[f] {
			columns, err := d.columns(k.columns)
			if err != nil {
				return err
			}
			var key []byte
			err = visit(ctx, paths[i], f.view(columns), func(row uint64, cells [][]byte) error {
				if key = appendKey(key[:0], cells); k.deleted[string(key)] > f.sequence {
					d.delete(f, row)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// appendKey appends what identifies the values of a row. A missing value equals only itself.
func appendKey(key []byte, cells [][]byte) []byte {
	for _, c := range cells {
		if c == nil {
			key = append(key, 0)
			continue
		}
		key = append(key, 1)
		key = binary.AppendUvarint(key, uint64(len(c)))
		key = append(key, c...)
	}
	if len(key) >= sha256.Size {
		sum := sha256.Sum256(key)
		return append(key[:0], sum[:]...)
	}
	return key
}

// visit calls row for each row of a Parquet file, with its position and the cells of columns.
func visit(ctx context.Context, path string, columns []columnfile.ViewColumn, row func(position uint64, cells [][]byte) error) error {
	t, err := columnfile.OpenView(path, &columnfile.View{Columns: columns})
	if err != nil {
		return err
	}
	defer t.Close()
	if err := t.Choose(t.Columns(), nil, 0); err != nil {
		return err
	}
	for ctx.Err() == nil {
		b, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := b.Rows(func(i int, cells [][]byte) error { return row(uint64(b.Row)+uint64(i), cells) }); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// readVector reads a deletion vector of a number of bytes in a Puffin file.
func readVector(path string, offset, size int64) (*roaring64.Bitmap, error) {
	f, err := files.Open(path, "a Puffin file")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if offset < 0 || size < 0 || offset > info.Size()-size {
		return nil, fault.Inputf("the deletion vector has %d bytes from %d, but the file has %d", size, offset, info.Size())
	}
	data := make([]byte, size)
	if _, err := f.ReadAt(data, offset); err != nil {
		return nil, err
	}
	return parseVector(data)
}

// parseVector decodes the blob of a deletion vector.
func parseVector(data []byte) (*roaring64.Bitmap, error) {
	if len(data) < 12 || binary.BigEndian.Uint32(data) != uint32(len(data)-8) {
		return nil, fault.Inputf("malformed deletion vector: expected its length at its beginning")
	}
	content, sum := data[4:len(data)-4], binary.BigEndian.Uint32(data[len(data)-4:])
	if crc32.ChecksumIEEE(content) != sum {
		return nil, fault.Inputf("malformed deletion vector: its checksum is wrong")
	}
	rows, err := lake.ReadRows(content)
	if err != nil {
		return nil, fmt.Errorf("malformed deletion vector: %w", err)
	}
	return rows, nil
}

// digest identifies a set of rows.
func digest(rows *roaring64.Bitmap) (string, error) {
	rows.RunOptimize() // one form for each set
	sum := sha256.New()
	if _, err := rows.WriteTo(sum); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

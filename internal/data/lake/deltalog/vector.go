package deltalog

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/data/lake"
)

// vector describes a deletion vector, which says what rows of a file are deleted.
type vector struct {
	StorageType    string
	PathOrInlineDv string
	Offset         *json.Number
	SizeInBytes    json.Number
	Cardinality    json.Number
}

// id identifies the vector. It is "" for nil.
func (v *vector) id() string {
	switch {
	case v == nil:
		return ""
	case v.Offset == nil:
		return v.StorageType + v.PathOrInlineDv
	}
	return v.StorageType + v.PathOrInlineDv + "@" + v.Offset.String()
}

// maxVector bounds a deletion vector, in bytes. That of a file with n rows takes little more than n/8 bytes.
const maxVector = 64 << 20

// file returns the name of the file that has the vector, or "" if the vector itself does.
func (v *vector) file() (string, error) {
	switch v.StorageType {
	case "i":
		return "", nil
	case "p":
		return fileName(v.PathOrInlineDv)
	case "u":
		at := len(v.PathOrInlineDv) - 20
		if at < 0 {
			break
		}
		id, err := z85(v.PathOrInlineDv[at:])
		if err != nil {
			return "", err
		}
		name := fmt.Sprintf("deletion_vector_%x-%x-%x-%x-%x.bin", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
		if at > 0 {
			name = v.PathOrInlineDv[:at] + "/" + name
		}
		return fileName(name)
	}
	return "", fault.Inputf("deletion vector %q, expected one of the storage types u, i and p", v.id())
}

// z85 decodes the text of bytes in the base 85 of ZeroMQ's RFC 32.
func z85(text string) ([]byte, error) {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
	if len(text)%5 != 0 {
		return nil, fault.Inputf("%d characters of a deletion vector, expected a multiple of 5", len(text))
	}
	data := make([]byte, 0, len(text)/5*4)
	for group := range slices.Chunk([]byte(text), 5) {
		word := uint64(0)
		for _, c := range group {
			digit := strings.IndexByte(digits, c)
			if digit < 0 {
				return nil, fault.Inputf("the character %q in a deletion vector, expected Z85", c)
			}
			word = word*85 + uint64(digit)
		}
		if word > 1<<32-1 {
			return nil, fault.Inputf("%q in a deletion vector, expected Z85", group)
		}
		data = binary.BigEndian.AppendUint32(data, uint32(word))
	}
	return data, nil
}

// vectors returns the deleted rows of the files that have any.
func (t *table) vectors(ctx context.Context, store lake.Store) (map[string]*roaring64.Bitmap, error) {
	places := map[string]string{} // paths by the names of the files with vectors
	var names []string
	for name, f := range t.live {
		if f.vector == nil {
			continue
		}
		at, err := f.vector.file()
		if err != nil {
			return nil, fmt.Errorf("%s: file %s: %w", folder, name, err)
		}
		if _, there := places[at]; !there && at != "" {
			places[at] = ""
			names = append(names, at)
		}
	}
	if slices.Sort(names); len(names) > 0 {
		paths, err := store.Local(ctx, names)
		if err != nil {
			return nil, err
		}
		for i, name := range names {
			places[name] = paths[i]
		}
	}
	deleted := map[string]*roaring64.Bitmap{}
	for name, f := range t.live {
		if f.vector == nil {
			continue
		}
		at, err := f.vector.file()
		if err != nil {
			return nil, err
		}
		if deleted[name], err = f.vector.read(places[at]); err != nil {
			return nil, fmt.Errorf("%s: file %s: deletion vector %s: %w", folder, name, f.vector.id(), err)
		}
	}
	return deleted, nil
}

// read returns the deleted rows. path is that of the file that has the vector.
func (v *vector) read(path string) (*roaring64.Bitmap, error) {
	size, err := v.SizeInBytes.Int64()
	if err != nil || size < 4 || size > maxVector {
		return nil, fault.Inputf("its size is %q bytes, expected 4 to %d", v.SizeInBytes, maxVector)
	}
	var data []byte
	if v.StorageType == "i" {
		if data, err = z85(v.PathOrInlineDv); err == nil && int64(len(data)) < size {
			err = fault.Inputf("it has %d bytes, expected %d", len(data), size)
		}
		if err != nil {
			return nil, err
		}
		data = data[:size]
	} else if data, err = v.stored(path, size); err != nil {
		return nil, err
	}
	return v.decode(data)
}

// stored returns the bytes of a vector in a file. The file begins with the byte 1. A vector there has its size before it and
// a checksum after it.
func (v *vector) stored(path string, size int64) ([]byte, error) {
	offset := int64(1)
	var err error
	if v.Offset != nil {
		if offset, err = v.Offset.Int64(); err != nil || offset < 1 {
			return nil, fault.Inputf("its offset is %q, expected a number above 0", *v.Offset)
		}
	}
	f, err := files.Open(path, "a file of deletion vectors")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var version [1]byte
	if _, err := f.ReadAt(version[:], 0); err != nil && err != io.EOF {
		return nil, err
	}
	if version[0] != 1 {
		return nil, fault.Inputf("%s has the version %d, expected 1", path, version[0])
	}
	data := make([]byte, 4+size+4)
	if _, err := f.ReadAt(data, offset); err == io.EOF {
		return nil, fault.Inputf("%s ends before the byte %d", path, offset+int64(len(data)))
	} else if err != nil {
		return nil, err
	}
	if n := int64(binary.BigEndian.Uint32(data)); n != size {
		return nil, fault.Inputf("%s: it has %d bytes, expected %d", path, n, size)
	}
	bitmap, sum := data[4:4+size], binary.BigEndian.Uint32(data[4+size:])
	if crc32.ChecksumIEEE(bitmap) != sum {
		return nil, fault.Inputf("%s: its checksum is wrong", path)
	}
	return bitmap, nil
}

// decode returns the rows of a vector.
func (v *vector) decode(data []byte) (*roaring64.Bitmap, error) {
	rows, err := lake.ReadRows(data)
	if err != nil {
		return nil, err
	}
	if n := fmt.Sprint(rows.GetCardinality()); n != v.Cardinality.String() {
		return nil, fault.Inputf("it has %s rows, expected %q", n, v.Cardinality)
	}
	return rows, nil
}

package deltalog

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"shaver/internal/base/fault"
	"shaver/internal/data/lake"
)

// bitmap returns the bytes of a deletion vector.
func bitmap(t testing.TB, rows ...uint64) []byte {
	t.Helper()
	data, err := roaring64.BitmapOf(rows...).ToPortableBytes()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.LittleEndian.AppendUint32(nil, 1681511377), data...)
}

// vectorFile returns a file with a deletion vector at byte 1.
func vectorFile(data []byte) []byte {
	file := binary.BigEndian.AppendUint32([]byte{1}, uint32(len(data)))
	return binary.BigEndian.AppendUint32(append(file, data...), crc32.ChecksumIEEE(data))
}

// described returns what an action has as the description of a deletion vector.
func described(kind, where string, size, rows int, offset string) string {
	if offset != "" {
		offset = `,"offset":` + offset
	}
	return fmt.Sprintf(`,"deletionVector":{"storageType":%q,"pathOrInlineDv":%q%s,"sizeInBytes":%d,"cardinality":%d}`, kind, where, offset, size, rows)
}

// removeWith returns an action remove of a file with a deletion vector.
func removeWith(path, vector string) string {
	return fmt.Sprintf(`{"remove":{"path":%q,"dataChange":true%s}}`, path, vector)
}

// A vector of the library of Delta for Rust, and the example of the protocol for names.
func TestProtocolVectors(t *testing.T) {
	inline := vector{StorageType: "i", PathOrInlineDv: "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", SizeInBytes: "44", Cardinality: "6"}
	rows, err := inline.read("")
	if err != nil || !slices.Equal(rows.ToArray(), []uint64{3, 4, 7, 11, 18, 29}) {
		t.Errorf("%v, %v", rows, err)
	}
	stored := vector{StorageType: "u", PathOrInlineDv: "ab^-aqEH.-t@S}K{vb[*k^"}
	if name, err := stored.file(); err != nil || name != "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin" {
		t.Error(name, err)
	}
}

// A file is identified by its path and its deletion vector. Vectors are stored in three ways.
func TestVectors(t *testing.T) {
	s := store(t.TempDir())
	first, second := bitmap(t, 0, 5), bitmap(t, 0, 5, 1<<33)
	for name, data := range map[string][]byte{"ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin": first, "vectors 2.bin": second} {
		path := filepath.Join(string(s), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, vectorFile(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	one := described("u", "ab^-aqEH.-t@S}K{vb[*k^", len(first), 2, "1")
	two := described("p", "vectors%202.bin", len(second), 3, "1")
	s.commit(t, 0, protocol3(`"deletionVectors"`), meta(t, "x:long"), add("a", ""), add("b", ""))
	s.commit(t, 1, add("a", one), remove("a"))
	s.commit(t, 2, removeWith("a", one), add("a", two))
	s.commit(t, 3, removeWith("a", one), remove("a")) // other logical files
	for version, want := range []string{"", "u" + "ab^-aqEH.-t@S}K{vb[*k^@1", "pvectors%202.bin@1", "pvectors%202.bin@1"} {
		got, err := s.read(t, fmt.Sprint(version))
		if err != nil {
			t.Fatal(err)
		}
		if f := got.Files[0]; len(got.Files) != 2 || f.Name != "a" || f.Deletes != want {
			t.Errorf("version %d: %+v, expected the vector %q", version, f, want)
		} else if version > 0 && (!f.View.Deleted.Contains(5) || f.View.Deleted.Contains(4) || f.View.Deleted.Contains(1<<33) != (version > 1)) {
			t.Errorf("version %d: wrong rows", version)
		}
		if f := got.Files[1]; f.View.Deleted != nil || f.Deletes != "" {
			t.Errorf("%+v", f)
		}
	}
	s.commit(t, 4, removeWith("a", two))
	if got := s.names(t, ""); got != "b" {
		t.Error(got)
	}
}

// Damaged and malformed vectors are bad input.
func TestBadVectors(t *testing.T) {
	data := bitmap(t, 1, 2, 3)
	file := vectorFile(data)
	changed := func(at int) []byte { c := slices.Clone(file); c[at] ^= 1; return c }
	for _, test := range []struct {
		file          []byte
		action, error string
	}{
		{changed(0), described("p", "v", len(data), 3, "1"), "has the version 0"},
		{changed(4), described("p", "v", len(data), 3, "1"), "bytes, expected"},
		{changed(20), described("p", "v", len(data), 3, "1"), "its checksum is wrong"},
		{vectorFile(data[4:]), described("p", "v", len(data)-4, 3, "1"), "expected d1d33964"},
		{vectorFile(append(slices.Clone(data), 0)), described("p", "v", len(data)+1, 3, "1"), "1 bytes after its end"},
		{vectorFile(data[:len(data)-1]), described("p", "v", len(data)-1, 3, "1"), "deletion vector pv@1"},
		{file, described("p", "v", len(data), 4, "1"), `it has 3 rows, expected "4"`},
		{file, described("p", "v", len(data), 3, "9"), "ends before the byte"},
		{file, described("p", "v", len(data), 3, "-1"), "its offset is"},
		{file, described("p", "v", 1<<40, 3, "1"), "its size is"},
		{file, described("x", "v", len(data), 3, "1"), "expected one of the storage types"},
		{file, described("u", "short", len(data), 3, "1"), "expected one of the storage types"},
		{file, described("u", "../^-aqEH.-t@S}K{vb[*k^", len(data), 3, "1"), "leads out of the table"},
		{file, described("i", "1234", 4, 3, ""), "expected a multiple of 5"},
		{file, described("i", "~~~~~", 4, 3, ""), "expected Z85"},
		{file, described("i", "#####", 4, 3, ""), "expected Z85"},
		{file, described("i", "00000", 8, 3, ""), "it has 4 bytes, expected 8"},
	} {
		s := store(t.TempDir())
		if err := os.WriteFile(filepath.Join(string(s), "v"), test.file, 0o600); err != nil {
			t.Fatal(err)
		}
		s.commit(t, 0, protocol3(`"deletionVectors"`), meta(t, "x:long"), add("a", test.action))
		s.refused(t, "", test.error)
	}
}

// Bytes that are no deletion vector are bad input.
func FuzzVector(f *testing.F) {
	f.Add(bitmap(f, 1, 2, 3), 3)
	f.Add(bitmap(f, 1, 1<<40), 2)
	runs := roaring64.New()
	runs.AddRange(5, 90_000)
	runs.RunOptimize()
	data, err := runs.ToPortableBytes()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(bitmap(f)[:4], data...), 89_995)
	f.Fuzz(func(t *testing.T, data []byte, rows int) {
		if len(data) < 4 {
			return
		}
		v := vector{Cardinality: json.Number(fmt.Sprint(rows))}
		deleted, err := v.decode(data)
		if err != nil && !fault.IsInput(err) {
			t.Error(err)
		}
		if err == nil && (deleted.GetCardinality() != uint64(rows) || rows > 0 && !deleted.Contains(deleted.Maximum())) {
			t.Errorf("%d rows, expected %d", deleted.GetCardinality(), rows)
		}
	})
}

// The log of a table may have any bytes.
func FuzzLog(f *testing.F) {
	f.Add([]byte(strings.Join([]string{protocol3(`"deletionVectors"`), meta(f, "x:long", "*p:date"), add("a", "", "p=2026-11-29")}, "\n")))
	f.Add([]byte(strings.Join([]string{protocol1, meta(f, "x:string"), add("a%20b", withStats(`{"numRecords":2,"minValues":{"x":"a"},"maxValues":{"x":"b"},"nullCount":{"x":0}}`)), remove("b")}, "\n")))
	f.Add([]byte(protocol3(`"deletionVectors"`) + "\n" + meta(f, "x:timestamp") + "\n" + add("a", described("i", "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 44, 6, ""))))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := store(t.TempDir())
		s.commit(t, 0, string(data))
		for _, where := range [][]string{nil, {"x=a"}, {"p>=2026"}} {
			got, err := s.read(t, "", where...)
			if err != nil && !fault.IsInput(err) {
				t.Error(err)
			}
			if err == nil && !slices.IsSortedFunc(got.Files, func(a, b lake.File) int { return strings.Compare(a.Name, b.Name) }) {
				t.Error("the files are not sorted")
			}
		}
	})
}

package iceberg

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"shaver/internal/base/fault"
)

// vectorBlob returns the blob of a deletion vector.
func vectorBlob(t testing.TB, rows ...uint64) []byte {
	b := roaring64.BitmapOf(rows...)
	b.RunOptimize()
	content, err := b.ToBytes()
	if err != nil {
		t.Fatal(err)
	}
	return framed(content)
}

// framed returns the blob with a serialized bitmap.
func framed(content []byte) []byte {
	body := append([]byte{0xd1, 0xd3, 0x39, 0x64}, content...)
	out := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(body))
}

// A deletion vector has the rows that were written. A changed byte is noticed.
func TestVector(t *testing.T) {
	rows := []uint64{0, 1, 2, 3, 4, 5, 70000, 1 << 33, 1<<33 + 7}
	blob := vectorBlob(t, rows...)
	got, err := parseVector(blob)
	if err != nil || !got.Equals(roaring64.BitmapOf(rows...)) {
		t.Errorf("the rows are %v, %v", got, err)
	}
	if got, err := parseVector(vectorBlob(t)); err != nil || !got.IsEmpty() {
		t.Errorf("the empty vector is %v, %v", got, err)
	}
	for i := range blob {
		changed := append([]byte(nil), blob...)
		changed[i] ^= 1
		if _, err := parseVector(changed); !fault.IsInput(err) {
			t.Errorf("byte %d: the error is %v, expected bad input", i, err)
		}
		if _, err := parseVector(blob[:i]); !fault.IsInput(err) {
			t.Errorf("%d bytes: the error is %v, expected bad input", i, err)
		}
	}
	for _, content := range [][]byte{binary.LittleEndian.AppendUint64(nil, 1<<60), append(blob[8:len(blob)-4:len(blob)-4], 0)} {
		if _, err := parseVector(framed(content)); !fault.IsInput(err) {
			t.Errorf("the error is %v, expected bad input", err)
		}
	}
}

// Malformed vectors are bad input.
func FuzzVector(f *testing.F) {
	for _, rows := range [][]uint64{nil, {1}, {1, 2, 3, 4, 5, 6, 7, 8}, {3, 1 << 40}} {
		blob := vectorBlob(f, rows...)
		f.Add(blob[8 : len(blob)-4])
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		rows, err := parseVector(framed(content))
		if err == nil {
			rows.Contains(1)
			_, err = digest(rows)
		}
		if err != nil && !fault.IsInput(err) {
			t.Errorf("%v is not bad input", err)
		}
	})
}

package lake

import (
	"bytes"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"shaver/internal/base/fault"
)

// ReadRows decodes the form in which deletion vectors of Delta and Iceberg say which rows are deleted: four bytes that are always the
// same, and a bitmap in the portable form of Roaring with 64 bits.
func ReadRows(data []byte) (*roaring64.Bitmap, error) {
	const magic = "\xd1\xd3\x39\x64"
	content, ok := bytes.CutPrefix(data, []byte(magic))
	if !ok {
		return nil, fault.Inputf("it begins with %x, expected %x", data[:min(4, len(data))], magic)
	}
	rows := roaring64.New() // ReadFrom would allocate whatever a count says
	if n, err := rows.ReadPortableFrom(bytes.NewReader(content)); err != nil {
		return nil, fault.Inputf("%w", err)
	} else if int(n) != len(content) {
		return nil, fault.Inputf("%d bytes after its end", len(content)-int(n))
	}
	if err := rows.Validate(); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	return rows, nil
}

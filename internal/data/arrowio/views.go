package arrowio

import (
	"fmt"

	flatbuffers "github.com/google/flatbuffers/go"
)

// views returns the number of view columns in a batch, and in the batches of each dictionary by its
// id. The schema has passed checkSchema.
func views(schema flat) (columns int, dictionaries map[int64]int, err error) {
	dictionaries = map[int64]int{}
	for i := range schema.lengthAt(1) {
		field, err := schema.elementAt(1, i)
		if err == nil && field.lengthAt(5) == 1 {
			field, err = field.elementAt(5, 0)
		}
		if err != nil {
			return 0, nil, err
		}
		if kind := field.byteAt(2); kind != 23 && kind != 24 { // BinaryView, Utf8View
			continue
		}
		if encoding, ok := field.tableAt(4); ok {
			dictionaries[encoding.int64At(0)] = 1
		} else {
			columns++
		}
	}
	return columns, dictionaries, nil
}

// checkVariadic checks the numbers of buffers of view columns, for which Arrow's library
// allocates memory. The library also reads the numbers that are missing.
func checkVariadic(batch flat, views int) error {
	at, left := batch.Offset(slot(4)), int64(batch.lengthAt(2))
	if at == 0 {
		return nil
	}
	if n := batch.lengthAt(4); n < views {
		return fmt.Errorf("a batch has numbers of buffers for %d columns, expected %d", n, views)
	}
	start := batch.Vector(flatbuffers.UOffsetT(at))
	for i := range batch.lengthAt(4) {
		n := batch.GetInt64(start + flatbuffers.UOffsetT(i)*8)
		if n < 0 || n > left {
			return fmt.Errorf("a batch claims %d buffers for a column, expected at most %d", n, left)
		}
		left -= n
	}
	return nil
}

package arrowio

import (
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/arrow/ipc"
	flatbuffers "github.com/google/flatbuffers/go"

	"shaver/internal/base/fault"
)

// CountRows returns the number of rows in a file of RowWriter with the given size in
// bytes. It reads only the footer and the descriptions of the first and the last batch,
// because all batches except the last have the same number of rows. It does not check
// anything else. Malformed bytes are bad input.
func CountRows(r io.ReaderAt, size int64) (rows int64, err error) {
	f, err := readFooter(r, size)
	switch {
	case err != nil:
		return 0, err
	case f == nil:
		return 0, fault.Inputf("not an Arrow file")
	case len(f.messages) == 0:
		return 0, nil
	}
	last := int64(len(f.messages) - 1)
	if rows, err = rowsOf(f, int(last)); err != nil || last == 0 {
		return rows, err
	}
	first, err := rowsOf(f, 0)
	return last*first + rows, err
}

// rowsOf returns the number of rows of batch k.
func rowsOf(f *footer, k int) (rows int64, err error) {
	m := &messages{r: f.at(f.messages[k])}
	if err := m.describe(); m.failure != nil {
		return 0, m.failure
	} else if err != nil {
		return 0, fault.Inputf("batch %d: %w", k, err)
	}
	err = Guarded(func() error {
		root := table(m.meta, flatbuffers.GetUOffsetT(m.meta))
		batch, ok := root.tableAt(2)
		if !ok || ipc.MessageType(root.byteAt(1)) != ipc.MessageRecordBatch {
			return errors.New("the footer does not lead to a batch")
		}
		if rows = batch.int64At(0); rows < 0 || rows > RowsBatch {
			return fmt.Errorf("a batch has %d rows, expected at most %d", rows, RowsBatch)
		}
		return nil
	})
	return rows, err
}

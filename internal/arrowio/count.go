package arrowio

import (
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/arrow/ipc"
	flatbuffers "github.com/google/flatbuffers/go"

	"shaver/internal/fault"
)

// CountRows returns the number of rows in a file of RowWriter with the given size in
// bytes. It reads only the footer and the description of the last batch, because all
// earlier batches have RowsBatch rows. It does not check anything else. Malformed bytes
// are bad input.
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
	last := len(f.messages) - 1
	m := &messages{r: f.at(f.messages[last])}
	if err := m.describe(); m.failure != nil {
		return 0, m.failure
	} else if err != nil {
		return 0, fault.Inputf("its last batch: %w", err)
	}
	err = guarded(func() error {
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
	return int64(last)*RowsBatch + rows, err
}

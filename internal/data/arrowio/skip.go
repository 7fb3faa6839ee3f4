package arrowio

import (
	"io"

	"github.com/apache/arrow/go/v17/arrow/ipc"
	flatbuffers "github.com/google/flatbuffers/go"
)

// Skip skips whole batches, at most rows rows in all, and returns how many rows it
// skipped. It stops before the first batch that has more rows than remain, so that Next
// reads it. It does not check the bodies of skipped batches. If the underlying reader is
// an io.Seeker, Skip does not read these bodies either.
func (r *RowReader) Skip(rows int64) (skipped int64, err error) {
	err = r.r.try(func() error {
		for {
			n, ok, err := r.r.messages.skip(rows - skipped)
			if err == io.EOF || err == nil && !ok {
				return nil
			}
			if err != nil {
				return err
			}
			skipped += n
			r.rows += n
		}
	})
	return skipped, err
}

// Jump says that the next byte of the underlying reader is the first one of the batch that begins with the
// given row. The rows that follow are numbered from it. Next must not have failed before.
func (r *RowReader) Jump(row int64) {
	r.rows, r.r.messages.described = row, false
}

// skip skips the next message if it is a batch with no more than most rows. It returns
// the number of rows, and whether it skipped the batch. It checks nothing else.
func (m *messages) skip(most int64) (rows int64, ok bool, err error) {
	if err := m.describe(); err != nil {
		return 0, false, err
	}
	root := table(m.meta, flatbuffers.GetUOffsetT(m.meta))
	batch, ok := root.tableAt(2)
	if !ok || ipc.MessageType(root.byteAt(1)) != ipc.MessageRecordBatch {
		return 0, false, nil
	}
	rows, length := batch.int64At(0), root.int64At(3)
	if rows < 0 || rows > most || length < 0 {
		return 0, false, nil
	}
	m.described = false
	if s, ok := m.r.(io.Seeker); ok {
		if _, err := s.Seek(length, io.SeekCurrent); err != nil {
			m.failure = err
			return 0, false, err
		}
		return rows, true, nil // if the file ends here, the next read returns the error
	}
	if _, err := io.CopyN(io.Discard, m.r, length); err != nil {
		return 0, false, m.failed(err)
	}
	return rows, true, nil
}

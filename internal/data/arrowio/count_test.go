package arrowio

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"shaver/internal/base/fault"
)

func TestCountRows(t *testing.T) {
	for _, n := range []int{0, 1, 300, RowsBatch, RowsBatch + 1, 3*RowsBatch - 1} {
		data := encodeRows(t, randomRows(n, 0), false, 10_000)
		if rows, err := CountRows(bytes.NewReader(data), int64(len(data))); err != nil || rows != int64(n) {
			t.Errorf("%d rows in a file of %d: %v", rows, n, err)
		}
		for _, size := range []int{0, 9, 10, len(data) / 2, len(data) - 1} {
			if _, err := CountRows(bytes.NewReader(data[:size]), int64(size)); !fault.IsInput(err) {
				t.Errorf("%d of %d bytes: %v", size, len(data), err)
			}
		}
	}
}

// unreadable is a file whose reads at or after a position fail.
type unreadable struct {
	io.ReaderAt
	from int64
	err  error
}

func (f unreadable) ReadAt(p []byte, at int64) (int, error) {
	if at >= f.from {
		return 0, f.err
	}
	return f.ReaderAt.ReadAt(p, at)
}

// An error of the disk is not bad input, so that the caller may try again.
func TestCountRowsReadError(t *testing.T) {
	broken := errors.New("the disk is broken")
	data := encodeRows(t, randomRows(300, 0), false, RowsBatch)
	for _, from := range []int64{0, 1, int64(len(data)) / 2} {
		if _, err := CountRows(unreadable{bytes.NewReader(data), from, broken}, int64(len(data))); !errors.Is(err, broken) || fault.IsInput(err) {
			t.Errorf("reads from %d fail: %v", from, err)
		}
	}
	if _, err := CountRows(bytes.NewReader(data), int64(len(data))+100); !fault.IsInput(err) {
		t.Errorf("a file that became shorter: %v", err)
	}
}

// The number of rows is bad input or bounded by the size of the file, because a batch
// takes some of it.
func FuzzCountRows(f *testing.F) {
	for _, n := range []int{0, 5, 300} {
		f.Add(encodeRows(f, randomRows(n, 0), false, RowsBatch))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := CountRows(bytes.NewReader(data), int64(len(data)))
		if err != nil && !fault.IsInput(err) {
			t.Fatalf("not bad input: %v", err)
		}
		if err == nil && (rows < 0 || rows > int64(len(data)/24+1)*RowsBatch) {
			t.Fatalf("%d rows in %d bytes", rows, len(data))
		}
	})
}

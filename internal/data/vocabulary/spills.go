package vocabulary

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"shaver/internal/base/files"
	"shaver/internal/data/dataset"
)

// A spill contains the values of one field after another. The values of a field are in
// byte order. Each value is its length + 1, its bytes, and its count, with both numbers as
// varints. A 0 follows the last value of a field. The file ends with the position of each
// field's first value and the number of fields, as little-endian uint64. A spill is read by
// the process that wrote it, or by a later one that resumes the import.

// spillWriter writes a spill.
type spillWriter struct {
	path   string
	file   *os.File
	out    *bufio.Writer
	at     uint64   // bytes written so far
	starts []uint64 // position of each field's first value
	buffer []byte   // scratch space
}

func createSpill(path string, fields int) (*spillWriter, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &spillWriter{path: path, file: file, out: bufio.NewWriterSize(file, 1<<18), starts: make([]uint64, 0, fields)}, nil
}

// begin starts the next field.
func (w *spillWriter) begin() { w.starts = append(w.starts, w.at) }

// add writes a value of the current field.
func (w *spillWriter) add(value []byte, count int64) error {
	w.buffer = binary.AppendUvarint(w.buffer[:0], uint64(len(value))+1)
	w.buffer = append(w.buffer, value...)
	return w.write(binary.AppendUvarint(w.buffer, uint64(count)))
}

// end ends the current field.
func (w *spillWriter) end() error { return w.write([]byte{0}) }

func (w *spillWriter) write(data []byte) error {
	n, err := w.out.Write(data)
	w.at += uint64(n)
	return err
}

// table writes the field whose counts are in t. It destroys t.
func (w *spillWriter) table(t *table) error {
	w.begin()
	slots := slices.DeleteFunc(t.slots, func(s slot) bool { return s.number == 0 })
	if len(t.arena) == 0 {
		slices.SortFunc(slots, compareShort)
	} else {
		slices.SortFunc(slots, func(x, y slot) int { return t.compare(&x, &y) })
	}
	var value []byte
	for i := range slots {
		value = t.append(value[:0], &slots[i])
		if err := w.add(value, slots[i].number); err != nil {
			return err
		}
	}
	return w.end()
}

// close writes the end of the spill and closes the file.
func (w *spillWriter) close() error {
	for _, start := range w.starts {
		w.buffer = binary.LittleEndian.AppendUint64(w.buffer[:0], start)
		if _, err := w.out.Write(w.buffer); err != nil {
			w.abort()
			return err
		}
	}
	w.buffer = binary.LittleEndian.AppendUint64(w.buffer[:0], uint64(len(w.starts)))
	_, err := w.out.Write(w.buffer)
	if err = errors.Join(err, w.out.Flush(), w.file.Close()); err != nil {
		os.Remove(w.path)
	}
	return err
}

// abort closes and removes the file.
func (w *spillWriter) abort() {
	w.file.Close()
	os.Remove(w.path)
}

// cursor reads one field of a spill.
type cursor struct {
	path  string
	file  *os.File
	in    *bufio.Reader
	value []byte // current value
	count int64  // count of the current value
}

// cursorBuffer is the size in bytes of a cursor's read buffer.
const cursorBuffer = 1 << 16

// openCursor returns a cursor before the first value of a field. fields is the number of
// fields in the spill.
func openCursor(path string, field, fields int) (*cursor, error) {
	file, err := files.Open(path, "values of an import")
	if err != nil {
		return nil, err
	}
	c := &cursor{path: path, file: file}
	var foot [16]byte
	info, err := file.Stat()
	if err == nil {
		_, err = file.ReadAt(foot[:8], info.Size()-int64(fields+1-field)*8)
	}
	if err == nil {
		_, err = file.ReadAt(foot[8:], info.Size()-8)
	}
	if err == nil && binary.LittleEndian.Uint64(foot[8:]) != uint64(fields) {
		err = errors.New("the spill has a different number of fields")
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	start := int64(binary.LittleEndian.Uint64(foot[:]))
	c.in = bufio.NewReaderSize(io.NewSectionReader(file, start, info.Size()-start), cursorBuffer)
	return c, nil
}

// next moves to the next value. It returns false after the last value.
func (c *cursor) next() (bool, error) {
	n, err := binary.ReadUvarint(c.in)
	if err == nil && n == 0 {
		return false, nil
	}
	if err == nil && n > dataset.MaxValue {
		err = errors.New("a value is too long")
	}
	if err == nil {
		c.value = slices.Grow(c.value[:0], int(n)-1)[:n-1]
		_, err = io.ReadFull(c.in, c.value)
	}
	var count uint64
	if err == nil {
		count, err = binary.ReadUvarint(c.in)
	}
	if err != nil {
		return false, fmt.Errorf("%s is incomplete: %w", c.path, err)
	}
	c.count = int64(count)
	return true, nil
}

// merge calls visit with each value of a field in any of the spills and the sum of its
// counts, in byte order of the values. The value is valid until visit returns.
func merge(spills []string, field, fields int, visit func(value []byte, count int64) error) error {
	heap := make([]*cursor, 0, len(spills))
	defer func() {
		for _, c := range heap {
			c.file.Close()
		}
	}()
	for _, path := range spills {
		c, err := openCursor(path, field, fields)
		if err != nil {
			return err
		}
		heap = append(heap, c)
		more, err := c.next()
		if err != nil {
			return err
		}
		if !more {
			c.file.Close()
			heap = heap[:len(heap)-1]
		}
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		sift(heap, i)
	}
	var value []byte
	for len(heap) > 0 {
		value = append(value[:0], heap[0].value...)
		count := int64(0)
		for len(heap) > 0 && bytes.Equal(heap[0].value, value) {
			count += heap[0].count
			more, err := heap[0].next()
			if err != nil {
				return err
			}
			if !more {
				heap[0].file.Close()
				heap[0] = heap[len(heap)-1]
				heap = heap[:len(heap)-1]
			}
			sift(heap, 0)
		}
		if err := visit(value, count); err != nil {
			return err
		}
	}
	return nil
}

// sift moves heap[i] down until none of its children is less.
func sift(heap []*cursor, i int) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && bytes.Compare(heap[child+1].value, heap[child].value) < 0 {
			child++
		}
		if bytes.Compare(heap[i].value, heap[child].value) <= 0 {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}

// joinSpills merges spills into one at path, and removes the merged ones.
func joinSpills(path string, spills []string, fields int) error {
	if err := addSpills(path, spills, fields); err != nil {
		return err
	}
	for _, spill := range spills {
		if err := os.Remove(spill); err != nil {
			return err
		}
	}
	return nil
}

// addSpills merges spills into one at path.
func addSpills(path string, spills []string, fields int) error {
	w, err := createSpill(path, fields)
	if err != nil {
		return err
	}
	for j := range fields {
		w.begin()
		if err := errors.Join(merge(spills, j, fields, w.add), w.end()); err != nil {
			w.abort()
			return err
		}
	}
	return w.close()
}

// Gather merges spills until few enough are left to be merged at once, for several fields
// concurrently. It returns the spills that are left, whose counts add up to those of the
// given ones. New spills are called NAME-0, NAME-1, ... in folder. Gather does not remove
// the given spills.
func Gather(folder, name string, spills []string, fields int) ([]string, error) {
	given := len(spills)
	for made := 0; len(spills) > fanIn; made++ {
		n := min(fanIn, len(spills)-fanIn+1)
		path := filepath.Join(folder, fmt.Sprintf("%s-%d", name, made))
		if err := addSpills(path, spills[:n], fields); err != nil {
			return nil, err
		}
		for _, spill := range spills[min(n, given):n] {
			if err := os.Remove(spill); err != nil {
				return nil, err
			}
		}
		given -= min(n, given)
		spills = append(slices.Clone(spills[n:]), path)
	}
	return spills, nil
}

// Merge calls visit with each value of a field whose counts in all spills add up to at
// least minCount. The values come in byte order, and each is valid until visit returns.
// fields is the number of fields in the spills.
func Merge(spills []string, field, fields int, minCount int64, visit func(value []byte) error) error {
	return merge(spills, field, fields, func(value []byte, count int64) error {
		if count < minCount {
			return nil
		}
		return visit(value)
	})
}

// Package tallyio writes and reads the exact sums of a [tally.Accumulator].
//
// The bytes of an accumulator consist of
//   - the count of each feature;
//   - for each feature, its d values of each list (see [tally.Partial]);
//   - for each cell that left int64, its number and the multiple of 2^64 to add.
//
// They are little-endian int64. All other sums are in a [Header], which is stored in front
// of them. A file may hold several accumulators: its header then has a Header for each.
package tallyio

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/num/layout"
	"shaver/internal/value/tally"
)

// Header holds the sums of an accumulator that are not those of entries, and the number
// of bytes that follow.
type Header struct {
	Features       int           `json:"features"`
	Dim            int           `json:"dim"` // 0 = features have different numbers of entries
	Lists          int           `json:"lists"`
	Rows           int64         `json:"rows"`
	LossFull       [2]int64      `json:"loss_full"`        // a multiple of 2^64, and a number to add to it
	LossEmpty      [2]int64      `json:"loss_empty"`       // as LossFull
	ResidualSquare [2]int64      `json:"residual_square"`  // as LossFull
	Shared         [2]int64      `json:"shared,omitzero"`  // as LossFull
	Walked         int64         `json:"walked,omitzero"`  // number of rows with walks; see tally.Partial
	Fresh          int64         `json:"fresh,omitzero"`   // number of rows that the model was not trained on
	Weights        tally.Weights `json:"weights,omitzero"` // of the rows, if they have weights
	Carries        int           `json:"carries"`          // number of cells that left int64

	// Only in a paired job.
	Previous *Previous      `json:"previous,omitempty"`
	Fourths  []tally.Powers `json:"fourths,omitempty"` // [m], by field
}

// Previous holds the sums of the previous model of a paired job. Each is as
// Header.LossFull.
type Previous struct {
	LossFull       [2]int64 `json:"loss_full"`
	LossEmpty      [2]int64 `json:"loss_empty"`
	ResidualSquare [2]int64 `json:"residual_square"`
	Shared         [2]int64 `json:"shared,omitzero"`
}

// HeaderOf returns the header of a. It shares memory with a.
func HeaderOf(a *tally.Accumulator) Header {
	s := a.State()
	h := Header{
		Features: len(s.Count), Dim: s.Shape.Dim(), Lists: tally.Lists(s.Form), Rows: s.Rows,
		LossFull: s.Current.LossFull, LossEmpty: s.Current.LossEmpty, ResidualSquare: s.Current.ResidualSquare, Shared: s.Current.Shared,
		Walked: s.Walked, Fresh: s.Fresh, Weights: s.Weights, Carries: len(s.Carries), Fourths: s.Fourths,
	}
	if s.Form.Paired {
		previous := Previous(s.Previous)
		h.Previous = &previous
	}
	return h
}

// Check returns an error if h is not the header of sums of the given form for tables of
// the given shape.
func (h *Header) Check(shape *layout.Shape, form tally.Form) error {
	lists := tally.Lists(form)
	switch {
	case h.Features != shape.Rows() || h.Dim != shape.Dim():
		return fmt.Errorf("a table of %d x %d, expected %d x %d", h.Features, h.Dim, shape.Rows(), shape.Dim())
	case h.Lists != lists:
		return fmt.Errorf("%d lists of sums, expected %d", h.Lists, lists)
	case h.Carries < 0 || h.Carries > lists*shape.Entries():
		return fmt.Errorf("%d carries, expected at most %d", h.Carries, lists*shape.Entries())
	case form.Paired != (h.Previous != nil):
		return fmt.Errorf("sums of two models: %t, expected %t", h.Previous != nil, form.Paired)
	}
	return nil
}

// Write writes the bytes of a, without its header, to w. It does not copy the sums.
func Write(w io.Writer, a *tally.Accumulator) error {
	s := a.State()
	for _, values := range [][]int64{s.Count, s.Cells, pairs(s.Carries)} {
		if err := WriteInts(w, values); err != nil {
			return err
		}
	}
	return nil
}

func pairs(carries map[int]int64) (list []int64) {
	for _, at := range slices.Sorted(maps.Keys(carries)) {
		list = append(list, int64(at), carries[at])
	}
	return list
}

// Read reads the accumulator with the header h, which must be of the given form and shape.
// Malformed bytes are bad input. Read consumes only the bytes that Write wrote.
func Read(r io.Reader, h *Header, shape layout.Shape, form tally.Form) (*tally.Accumulator, error) {
	if err := h.Check(&shape, form); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	a := tally.NewAccumulator(shape, form)
	s := a.State()
	for _, into := range [][]int64{s.Count, s.Cells} {
		if err := ReadInts(r, into); err != nil {
			return nil, err
		}
	}
	if err := readCarries(r, h.Carries, s.Carries); err != nil {
		return nil, err
	}
	s.Rows, s.Walked, s.Fresh, s.Weights, s.Current, s.Fourths = h.Rows, h.Walked, h.Fresh, h.Weights, tally.GameSums{LossFull: h.LossFull, LossEmpty: h.LossEmpty, ResidualSquare: h.ResidualSquare, Shared: h.Shared}, h.Fourths
	if h.Previous != nil {
		s.Previous = tally.GameSums(*h.Previous)
	}
	if err := a.Restore(s); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	return a, nil
}

func readCarries(r io.Reader, n int, into map[int]int64) error {
	pair := make([]int64, 2)
	for range n {
		if err := ReadInts(r, pair); err != nil {
			return err
		}
		if _, twice := into[int(pair[0])]; twice {
			return fault.Inputf("two carries for cell %d", pair[0])
		}
		into[int(pair[0])] = pair[1]
	}
	return nil
}

const maxHeader = 16 << 20

// WriteHead writes the head of a file: magic, the length of the header as a uint32, and the
// header in JSON.
func WriteHead(w io.Writer, magic string, header any) error {
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	_, err = w.Write(slices.Concat([]byte(magic), binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text))
	return err
}

// ReadHead reads what WriteHead wrote into header, a pointer. Another magic, malformed
// JSON and unknown fields are bad input.
func ReadHead(r io.Reader, magic string, header any) error {
	head := make([]byte, len(magic)+4)
	if _, err := io.ReadFull(r, head); err != nil {
		return endsEarly(err)
	}
	length := binary.LittleEndian.Uint32(head[len(magic):])
	if string(head[:len(magic)]) != magic || length > maxHeader {
		return fault.Inputf("it does not begin with %q and the length of a header", magic)
	}
	var text bytes.Buffer
	if _, err := io.CopyN(&text, r, int64(length)); err != nil {
		return endsEarly(err)
	}
	if err := files.Strict(text.Bytes(), header); err != nil {
		return fault.Inputf("its header: %w", err)
	}
	return nil
}

// ReadEnd returns bad input if r has more bytes.
func ReadEnd(r io.Reader) error {
	n, err := io.ReadFull(r, make([]byte, 1))
	if n > 0 {
		return fault.Inputf("it has bytes after its end")
	}
	if err != io.EOF {
		return err
	}
	return nil
}

// chunkInts is the number of integers that are converted to bytes at a time.
const chunkInts = 1 << 16

// WriteInts writes values to w, 8 bytes each, little-endian.
func WriteInts(w io.Writer, values []int64) error {
	buffer := make([]byte, 0, 8*min(chunkInts, len(values)))
	for part := range slices.Chunk(values, chunkInts) {
		buffer = buffer[:8*len(part)]
		for i, v := range part {
			binary.LittleEndian.PutUint64(buffer[8*i:], uint64(v))
		}
		if _, err := w.Write(buffer); err != nil {
			return err
		}
	}
	return nil
}

// ReadInts fills into with what WriteInts wrote. If the bytes end early, the error is bad
// input.
func ReadInts(r io.Reader, into []int64) error {
	buffer := make([]byte, 8*min(chunkInts, len(into)))
	for part := range slices.Chunk(into, chunkInts) {
		buffer = buffer[:8*len(part)]
		if _, err := io.ReadFull(r, buffer); err != nil {
			return endsEarly(err)
		}
		for i := range part {
			part[i] = int64(binary.LittleEndian.Uint64(buffer[8*i:]))
		}
	}
	return nil
}

// WriteWords writes values to w, 4 bytes each, little-endian.
func WriteWords[T int32 | float32](w io.Writer, values []T) error {
	for part := range slices.Chunk(values, chunkInts) {
		if err := binary.Write(w, binary.LittleEndian, part); err != nil {
			return err
		}
	}
	return nil
}

// ReadWords fills into with what WriteWords wrote. If the bytes end early, the error is bad input.
func ReadWords[T int32 | float32](r io.Reader, into []T) error {
	for part := range slices.Chunk(into, chunkInts) {
		if err := binary.Read(r, binary.LittleEndian, part); err != nil {
			return endsEarly(err)
		}
	}
	return nil
}

// endsEarly returns bad input if err says that the bytes end early, and err otherwise.
func endsEarly(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fault.Inputf("it ends early")
	}
	return err
}

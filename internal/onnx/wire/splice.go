package wire

import (
	"cmp"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// content is a part of a file to write.
type content struct {
	size  int64
	write func(w io.Writer) error // writes size bytes
}

func contentOf(b []byte) content {
	return content{int64(len(b)), func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}}
}

// section returns the bytes of source from at on.
func section(source io.ReaderAt, at, size int64) content {
	return content{size, func(w io.Writer) error {
		n, err := io.Copy(w, io.NewSectionReader(source, at, size))
		if err == nil && n < size {
			err = cutShort(nil)
		}
		return err
	}}
}

// zeros returns bytes that are 0.
func zeros(size int64) content {
	return content{size, func(w io.Writer) error {
		block := make([]byte, min(size, chunk))
		for left := size; left > 0; {
			n, err := w.Write(block[:min(left, int64(len(block)))])
			if err != nil {
				return err
			}
			left -= int64(n)
		}
		return nil
	}}
}

// edit replaces the bytes [at, end) of the file by content. They are in the message in.
type edit struct {
	at, end int64
	in      *message // nil = the file
	with    []content
}

// growth returns the number of bytes by which the file grows.
func (e *edit) growth() int64 {
	n := e.at - e.end
	for _, c := range e.with {
		n += c.size
	}
	return n
}

// splices are the edits of a file.
type splices []edit

// replace replaces the bytes [at, end) of the file.
func (s *splices) replace(in *message, at, end int64, with ...content) {
	*s = append(*s, edit{at, end, in, with})
}

// insert inserts bytes before byte at of the file. Several insertions at one place keep
// their order.
func (s *splices) insert(in *message, at int64, b []byte) { s.replace(in, at, at, contentOf(b)) }

// apply returns the parts of the edited file, and their size together. The lengths of the
// messages around the edits are corrected.
func (s splices) apply(source io.ReaderAt, size int64) (parts []content, total int64) {
	growth := map[*message]int64{}
	depths := map[*message]int{}
	var depth func(m *message) int
	depth = func(m *message) int {
		if m == nil {
			return 0
		}
		d, ok := depths[m]
		if !ok {
			d = depth(m.outer) + 1
			depths[m] = d
		}
		return d
	}
	for i := range s {
		depth(s[i].in)
		growth[s[i].in] += s[i].growth()
	}
	var messages []*message
	for m := range depths {
		messages = append(messages, m)
	}
	slices.SortFunc(messages, func(a, b *message) int {
		return cmp.Or(cmp.Compare(depths[b], depths[a]), cmp.Compare(a.at, b.at))
	})
	edits := slices.Clone(s)
	for _, m := range messages {
		if growth[m] == 0 {
			continue
		}
		length := protowire.AppendVarint(nil, uint64(m.end-m.at+growth[m]))
		edits.replace(m.outer, m.length, m.at, contentOf(length))
		growth[m.outer] += growth[m] + edits[len(edits)-1].growth()
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.end, b.end)) })
	at := int64(0)
	for i := range edits {
		e := &edits[i]
		if e.at < at {
			panic("onnx: edits of a file overlap")
		}
		if e.at > at {
			parts = append(parts, section(source, at, e.at-at))
		}
		parts, at = append(parts, e.with...), e.end
	}
	if at < size {
		parts = append(parts, section(source, at, size-at))
	}
	for _, p := range parts {
		total += p.size
	}
	return parts, total
}

// writeAll writes parts one after another.
func writeAll(w io.Writer, parts []content) (written int64, err error) {
	for _, p := range parts {
		if err := p.write(w); err != nil {
			return written, err
		}
		written += p.size
	}
	return written, nil
}

// Package arrowio turns rows, partials, scores and frequencies into Arrow IPC
// bytes and back. It and package columnfile, which has the files of other programs, are the only
// importers of Arrow.
//
// Everything that is read here comes from a disk or a network and is not trusted. Each
// reader accepts only one schema, checks every message before Arrow's library sees it
// (see guard.go), gives that library an allocator with a limit, and turns its panics into
// errors. Malformed bytes are bad input (package fault). An error of the underlying
// reader is returned as it is.
//
// Everything that is written here is deterministic: the same values give the same bytes.
// Files are in Arrow's file format, with the end-of-stream marker before the footer, so
// that they can be read from front to back. Partials are in the stream format. Readers
// accept both.
package arrowio

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"unicode/utf8"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
)

// The versions of the forms, stored in the schema's metadata under "version".
const (
	RowsVersion        = "shaver.rows/1"
	PartialVersion     = "shaver.partial/6"
	PairedVersion      = "shaver.partial/7" // partials of paired jobs
	ScoresVersion      = "shaver.scores/3"
	FrequenciesVersion = "shaver.frequencies/1"

	// DenseRowsVersion is the version of rows with dense inputs.
	DenseRowsVersion = "shaver.rows/2"

	// ListRowsVersion is the version of rows with lists, or with labels that are numbers.
	ListRowsVersion = "shaver.rows/3"

	// WeightedRowsVersion is the version of rows with weights, or with several labels.
	WeightedRowsVersion = "shaver.rows/4"

	// PairedScoresVersion is the version of the scores of a paired job.
	PairedScoresVersion = "shaver.scores/4"

	// PathScoresVersion is the version of the scores of a path, which have ranks and no values.
	PathScoresVersion = "shaver.scores/5"

	// UnsealedScoresVersion is an older version, which is still read. Its files have no
	// digest.
	UnsealedScoresVersion = "shaver.scores/2"
)

const keyVersion = "version"

// writer writes record batches in Arrow's file or stream format.
type writer struct {
	sink   *sink
	schema *arrow.Schema
	file   *ipc.FileWriter // either this or stream is set
	stream *ipc.Writer
}

// sink counts the bytes written to w. Arrow's file writer asks a Seeker for its position.
type sink struct {
	w   io.Writer
	pos int64
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.pos += int64(n)
	return n, err
}

func (s *sink) Seek(offset int64, whence int) (int64, error) {
	if offset != 0 || whence != io.SeekCurrent {
		panic("arrowio: a sink does not seek")
	}
	return s.pos, nil
}

func newFileWriter(w io.Writer, schema *arrow.Schema, options ...ipc.Option) (*writer, error) {
	s := &sink{w: w}
	file, err := ipc.NewFileWriter(s, append(options, ipc.WithSchema(schema))...)
	if err != nil {
		return nil, err
	}
	return &writer{sink: s, schema: schema, file: file}, nil
}

func newStreamWriter(w io.Writer, schema *arrow.Schema) *writer {
	s := &sink{w: w}
	return &writer{sink: s, schema: schema, stream: ipc.NewWriter(s, ipc.WithSchema(schema))}
}

// write writes one record batch and releases the columns.
func (w *writer) write(rows int, columns ...arrow.Array) error {
	record := array.NewRecord(w.schema, columns, int64(rows))
	defer record.Release()
	for _, column := range columns {
		column.Release()
	}
	if w.file != nil {
		return w.file.Write(record)
	}
	return w.stream.Write(record)
}

// endOfStream is the marker that the format requires after the last message. This version
// of Arrow's file writer leaves it out.
var endOfStream = []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}

// close completes the format but does not close the underlying writer. At least one batch
// must have been written to a file.
func (w *writer) close() error {
	if w.file == nil {
		return w.stream.Close()
	}
	if _, err := w.sink.Write(endOfStream); err != nil {
		return err
	}
	return w.file.Close()
}

// int32s and the functions below return Arrow columns that share the memory of their
// arguments.
func int32s(values []int32) arrow.Array {
	return column(arrow.PrimitiveTypes.Int32, len(values), arrow.Int32Traits.CastToBytes(values))
}

func int64s(values []int64) arrow.Array {
	return column(arrow.PrimitiveTypes.Int64, len(values), arrow.Int64Traits.CastToBytes(values))
}

func float64s(values []float64) arrow.Array {
	return column(arrow.PrimitiveTypes.Float64, len(values), arrow.Float64Traits.CastToBytes(values))
}

func float32s(values []float32) arrow.Array {
	return column(arrow.PrimitiveTypes.Float32, len(values), arrow.Float32Traits.CastToBytes(values))
}

func uint8s(values []uint8) arrow.Array {
	return column(arrow.PrimitiveTypes.Uint8, len(values), values)
}

func column(kind arrow.DataType, n int, bytes []byte) arrow.Array {
	data := array.NewData(kind, n, []*memory.Buffer{nil, memory.NewBufferBytes(bytes)}, nil, 0, 0)
	defer data.Release()
	return array.MakeFromData(data)
}

// lists returns a column of lists, and releases values. Each list has dim values, or, if
// dim is 0, list i has the values from offsets[i] to offsets[i+1].
func lists(values arrow.Array, dim int, offsets []int32) arrow.Array {
	defer values.Release()
	buffers, n := []*memory.Buffer{nil}, len(offsets)-1
	if dim > 0 {
		n = values.Len() / dim
	} else {
		buffers = append(buffers, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets)))
	}
	data := array.NewData(listOf(values.DataType(), dim), n, buffers, []arrow.ArrayData{values.Data()}, 0, 0)
	defer data.Release()
	return array.MakeFromData(data)
}

// binaries returns a column of byte strings. String i is values[offsets[i]:offsets[i+1]].
func binaries(values []byte, offsets []int32) arrow.Array {
	buffers := []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets)), memory.NewBufferBytes(values)}
	data := array.NewData(arrow.BinaryTypes.Binary, len(offsets)-1, buffers, nil, 0, 0)
	defer data.Release()
	return array.MakeFromData(data)
}

// listOf returns the type of lists of dim values, or, if dim is 0, of any number of values.
func listOf(kind arrow.DataType, dim int) arrow.DataType {
	if dim == 0 {
		return arrow.ListOfNonNullable(kind)
	}
	return arrow.FixedSizeListOfNonNullable(int32(dim), kind)
}

// checkSizes reports the first invalid field. Names must be UTF-8, and sizes those that
// model.CheckSizes accepts.
func checkSizes(fields []string, sizes []int) error {
	if len(fields) == 0 || len(fields) != len(sizes) {
		return fmt.Errorf("%d fields and %d sizes: expected one size per field and at least one field", len(fields), len(sizes))
	}
	for j, name := range fields {
		if !utf8.ValidString(name) {
			return fmt.Errorf("field %d has the name %q, which is not UTF-8", j, name)
		}
	}
	return model.CheckSizes(fields, sizes)
}

// toJSON marshals metadata for which marshalling cannot fail.
func toJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("arrowio: metadata does not marshal: " + err.Error())
	}
	return string(text)
}

// reader reads the record batches of one form.
type reader struct {
	messages *messages
	ipc      *ipc.Reader
	meta     map[string]string
}

// newReader reads the schema and checks that it has one of the versions. compressed allows
// compressed batches. In that case the caller must set messages.allocator.limit, from the
// metadata, before it calls next.
func newReader(r io.Reader, compressed bool, versions ...string) (*reader, error) {
	m := &messages{r: r, compressed: compressed, allocator: &limited{}}
	rd := &reader{messages: m, meta: map[string]string{}}
	err := rd.try(func() (err error) {
		if err := m.start(); err != nil {
			return err
		}
		rd.ipc, err = ipc.NewReaderFromMessageReader(m, ipc.WithAllocator(m.allocator))
		return err
	})
	if err != nil {
		return nil, err
	}
	metadata := rd.ipc.Schema().Metadata()
	for i, key := range metadata.Keys() {
		if _, ok := rd.meta[key]; ok {
			return nil, fault.Inputf("the metadata has the key %q twice", key)
		}
		rd.meta[key] = metadata.Values()[i]
	}
	if got := rd.meta[keyVersion]; !slices.Contains(versions, got) {
		return nil, fault.Inputf("the schema's version is %q, expected %q", got, versions[0])
	}
	return rd, nil
}

// expect checks the columns' names and types.
func (r *reader) expect(columns ...arrow.Field) error {
	got := r.ipc.Schema().Fields()
	if len(got) != len(columns) {
		return fault.Inputf("the schema has %d columns, expected %d", len(got), len(columns))
	}
	for i, want := range columns {
		if got[i].Name != want.Name || !sameType(got[i].Type, want.Type) {
			return fault.Inputf("column %d is %q of %v, expected %q of %v", i, got[i].Name, got[i].Type, want.Name, want.Type)
		}
	}
	return nil
}

// sameType reports whether the types are equal. It ignores the name and nullability of a
// list's values, which differ between writers.
func sameType(a, b arrow.DataType) bool {
	switch la := a.(type) {
	case *arrow.FixedSizeListType:
		lb, ok := b.(*arrow.FixedSizeListType)
		return ok && la.Len() == lb.Len() && arrow.TypeEqual(la.Elem(), lb.Elem())
	case *arrow.ListType:
		lb, ok := b.(*arrow.ListType)
		return ok && arrow.TypeEqual(la.Elem(), lb.Elem())
	}
	return arrow.TypeEqual(a, b)
}

// next calls visit with the next batch, or returns io.EOF after the last one. The batch
// is released when visit returns.
func (r *reader) next(visit func(arrow.Record) error) error {
	return r.try(func() error {
		if !r.ipc.Next() {
			if err := r.ipc.Err(); err != nil {
				return err
			}
			return io.EOF
		}
		record := r.ipc.Record()
		for i, c := range record.Columns() {
			if n := int(record.NumRows()); c.Len() != n { // Arrow accepts longer ones
				return fault.Inputf("column %q has %d rows in a batch of %d", record.ColumnName(i), c.Len(), n)
			}
			if err := complete(c); err != nil {
				return fault.Inputf("column %q: %w", record.ColumnName(i), err)
			}
		}
		return visit(record)
	})
}

// complete checks that a column has no nulls. If it is a column of lists, it also checks
// that all their values are there, one list after another.
func complete(c arrow.Array) error {
	if c.NullN() != 0 {
		return errors.New("has nulls, expected none")
	}
	var values arrow.Array
	want := 0
	switch list := c.(type) {
	case *array.FixedSizeList:
		values, want = list.ListValues(), c.Len()*int(list.DataType().(*arrow.FixedSizeListType).Len())
	case *array.List:
		values = list.ListValues()
		for i, end := range list.Offsets()[:c.Len()+1] {
			if int(end) < want || i == 0 && end != 0 {
				return fmt.Errorf("has lists that begin at %d and end at %d, expected lists one after another", want, end)
			}
			want = int(end)
		}
	default:
		return nil
	}
	if values.Len() != want || values.NullN() != 0 {
		return fmt.Errorf("has %d values, %d of them null; expected %d and no nulls", values.Len(), values.NullN(), want)
	}
	return nil
}

// try runs f. It turns panics, and all errors except those of the underlying reader, into
// bad input.
func (r *reader) try(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
		switch {
		case err == nil || err == io.EOF || fault.IsInput(err):
		case r.messages.failure != nil:
			err = r.messages.failure
		default:
			err = malformed(err)
		}
	}()
	return f()
}

// Guarded calls f, which reads bytes that are not trusted. It turns f's panics and errors into bad input,
// except errors of the file system, which may be temporary.
func Guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = malformed(panicked(p))
		}
	}()
	err = f()
	if err == nil || err == io.EOF || fault.IsInput(err) || errors.As(err, new(*fs.PathError)) {
		return err
	}
	return malformed(err)
}

// panicked returns the value of a panic as an error.
func panicked(p any) error {
	if err, ok := p.(error); ok {
		return err
	}
	return fmt.Errorf("malformed data: %v", p)
}

// malformed returns err as bad input. The text of an index out of range, which the Arrow
// and Parquet libraries recover from, means nothing to users and is left out.
func malformed(err error) error {
	if errors.As(err, new(runtime.Error)) {
		return fault.Inputf("the data are malformed")
	}
	return fault.Inputf("%w", err)
}

func (r *reader) close() {
	if r.ipc != nil {
		r.ipc.Release()
		r.ipc = nil
	}
}

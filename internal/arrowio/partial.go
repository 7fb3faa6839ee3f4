package arrowio

import (
	"bytes"
	"io"
	"strconv"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"

	"shaver/internal/fault"
	"shaver/internal/tally"
)

// batchEntries is how many entries (features times columns) of a partial or of
// scores a record batch holds: 2 MiB for each of the two lists.
const batchEntries = 1 << 18

// Metadata of a partial, decimal integers.
const (
	keyRows      = "rows"
	keyLossFull  = "loss_full"
	keyLossEmpty = "loss_empty"
	keyDim       = "dim"
)

func partialColumns(dim int) []arrow.Field {
	int64s := arrow.PrimitiveTypes.Int64
	return []arrow.Field{
		{Name: "feature", Type: arrow.PrimitiveTypes.Int32},
		{Name: "count", Type: int64s},
		{Name: "sum", Type: listOf(int64s, dim)},
		{Name: "square", Type: listOf(int64s, dim)},
	}
}

// EncodePartial writes p, which must be valid, to w in Arrow's stream format,
// uncompressed.
func EncodePartial(w io.Writer, p *tally.Partial) error {
	metadata := arrow.NewMetadata(
		[]string{keyVersion, keyRows, keyLossFull, keyLossEmpty, keyDim},
		[]string{PartialVersion, decimal(p.Rows), decimal(p.LossFull), decimal(p.LossEmpty), decimal(int64(p.Dim))})
	out := newStreamWriter(w, arrow.NewSchema(partialColumns(p.Dim), &metadata))
	step := max(1, batchEntries/p.Dim)
	for from := 0; from < len(p.Features); from += step {
		to := min(from+step, len(p.Features))
		err := out.write(to-from, int32s(p.Features[from:to]), int64s(p.Count[from:to]),
			lists(int64s(p.Sum[from*p.Dim:to*p.Dim]), p.Dim), lists(int64s(p.Square[from*p.Dim:to*p.Dim]), p.Dim))
		if err != nil {
			return err
		}
	}
	return out.close()
}

// DecodePartial reads a partial of a table of features x dim, and validates it.
func DecodePartial(data []byte, features, dim int) (*tally.Partial, error) {
	r, err := newReader(bytes.NewReader(data), PartialVersion, false)
	if err != nil {
		return nil, err
	}
	defer r.close()
	p := &tally.Partial{Dim: dim}
	var got int64
	for key, into := range map[string]*int64{keyRows: &p.Rows, keyLossFull: &p.LossFull, keyLossEmpty: &p.LossEmpty, keyDim: &got} {
		if *into, err = r.integer(key); err != nil {
			return nil, err
		}
	}
	if got != int64(dim) {
		return nil, fault.Inputf("partial has %d columns, the model has %d", got, dim)
	}
	if err := r.expect(partialColumns(dim)...); err != nil {
		return nil, err
	}
	room := min(len(data)/(12+16*dim), features) // nothing is compressed
	p.Features, p.Count = make([]int32, 0, room), make([]int64, 0, room)
	p.Sum, p.Square = make([]int64, 0, room*dim), make([]int64, 0, room*dim)
	for {
		err := r.next(func(record arrow.Record) error {
			p.Features = append(p.Features, record.Column(0).(*array.Int32).Int32Values()...)
			p.Count = append(p.Count, record.Column(1).(*array.Int64).Int64Values()...)
			p.Sum = append(p.Sum, listValues[*array.Int64](record.Column(2)).Int64Values()...)
			p.Square = append(p.Square, listValues[*array.Int64](record.Column(3)).Int64Values()...)
			return nil
		})
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if err := p.Validate(features, dim); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	return p, nil
}

func listValues[A arrow.Array](lists arrow.Array) A {
	return lists.(*array.FixedSizeList).ListValues().(A)
}

func decimal(v int64) string { return strconv.FormatInt(v, 10) }

// integer returns the metadata of key, in the one form that decimal gives.
func (r *reader) integer(key string) (int64, error) {
	text := r.meta[key]
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || decimal(v) != text {
		return 0, fault.Inputf("the metadata %q is %q, expected a decimal integer", key, text)
	}
	return v, nil
}

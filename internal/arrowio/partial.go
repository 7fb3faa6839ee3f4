package arrowio

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	flatbuffers "github.com/google/flatbuffers/go"

	"shaver/internal/fault"
	"shaver/internal/layout"
	"shaver/internal/tally"
)

// batchEntries is the number of entries (features times columns) in a record batch of a
// partial or of scores. A list of 8-byte values then takes 2 MiB.
const batchEntries = 1 << 18

// The metadata keys of a partial. The values are decimal integers. Those of fourth powers
// have an integer for each field, with spaces between them.
const (
	keyRows           = "rows"
	keyLossFull       = "loss_full"
	keyLossEmpty      = "loss_empty"
	keyResidualSquare = "residual_square"
	keyShared         = "shared"
	keyDim            = "dim"

	// Only in the partials of paired jobs.
	keyPreviousLossFull       = "previous_loss_full"
	keyPreviousLossEmpty      = "previous_loss_empty"
	keyPreviousResidualSquare = "previous_residual_square"
	keyPreviousShared         = "previous_shared"
	keyFourths                = "fourths"
	keyPreviousFourths        = "previous_fourths"
	keyDifferenceFourths      = "difference_fourths"
)

// partialIntegers returns the integers in the metadata of p by their keys.
func partialIntegers(p *tally.Partial, paired bool) []keyed[int64] {
	integers := []keyed[int64]{{keyRows, &p.Rows}, {keyLossFull, &p.LossFull}, {keyLossEmpty, &p.LossEmpty}, {keyResidualSquare, &p.ResidualSquare}, {keyShared, &p.Shared}}
	if paired {
		integers = append(integers, []keyed[int64]{{keyPreviousLossFull, &p.PreviousLossFull}, {keyPreviousLossEmpty, &p.PreviousLossEmpty}, {keyPreviousResidualSquare, &p.PreviousResidualSquare}, {keyPreviousShared, &p.PreviousShared}}...)
	}
	return integers
}

// partialFourths returns the fourth powers of a field by their keys.
func partialFourths(p *tally.Powers) []keyed[tally.Uint128] {
	return []keyed[tally.Uint128]{{keyFourths, &p.New}, {keyPreviousFourths, &p.Previous}, {keyDifferenceFourths, &p.Difference}}
}

// keyed is a value in the metadata.
type keyed[T any] struct {
	key   string
	value *T
}

// partialMetadata returns the metadata of p.
func partialMetadata(p *tally.Partial) arrow.Metadata {
	paired := p.Fourths != nil
	keys, values := []string{keyVersion}, []string{PartialVersion}
	if paired {
		values[0] = PairedVersion
	}
	for _, integer := range partialIntegers(p, paired) {
		keys, values = append(keys, integer.key), append(values, decimal(*integer.value))
	}
	keys, values = append(keys, keyDim), append(values, decimal(int64(p.Shape.Dim())))
	if paired {
		var fourths [3][]string
		for field := range p.Fourths {
			for k, power := range partialFourths(&p.Fourths[field]) {
				fourths[k] = append(fourths[k], power.value.String())
			}
		}
		for k, power := range partialFourths(&tally.Powers{}) {
			keys, values = append(keys, power.key), append(values, strings.Join(fourths[k], " "))
		}
	}
	return arrow.NewMetadata(keys, values)
}

// partialColumns returns the columns of a partial. Their lists have dim values, or any
// number of values if dim is 0.
func partialColumns(dim int, form tally.Form) []arrow.Field {
	int64s := arrow.PrimitiveTypes.Int64
	columns := []arrow.Field{{Name: "feature", Type: arrow.PrimitiveTypes.Int32}, {Name: "count", Type: int64s}}
	names := []string{"sum", "abs", "square"}
	if form.Paired {
		names = append(names, "previous_sum", "previous_abs", "previous_square", "difference_square", "abs_difference_square")
	}
	if form.Within {
		names = append(names, "within")
	}
	switch {
	case form.Corrected && form.Paired:
		names = append(names, "corrected_square", "previous_corrected_square")
	case form.Corrected:
		names = append(names, "correction", "corrected_square")
	}
	for _, name := range names {
		columns = append(columns, arrow.Field{Name: name, Type: listOf(int64s, dim)})
	}
	return columns
}

// EncodePartial writes p, which must be valid, to w in Arrow's stream format. It writes a
// single uncompressed batch, so that the reader need not copy it.
func EncodePartial(w io.Writer, p *tally.Partial) error {
	metadata := partialMetadata(p)
	dim := p.Shape.Dim()
	form := p.Form()
	out := newStreamWriter(w, arrow.NewSchema(partialColumns(dim, form), &metadata))
	if len(p.Features) > 0 {
		offsets, err := partialOffsets(p)
		if err != nil {
			return err
		}
		columns := []arrow.Array{int32s(p.Features), int64s(p.Count)}
		for _, list := range p.AllLists() {
			columns = append(columns, lists(int64s(*list), dim, offsets))
		}
		if err := out.write(len(p.Features), columns...); err != nil {
			return err
		}
	}
	return out.close()
}

// partialOffsets returns the offsets of the lists of p, or nil if the lists have the same
// length. The features of p must be rows of its shape.
func partialOffsets(p *tally.Partial) ([]int32, error) {
	if p.Shape.Dim() > 0 {
		return nil, nil
	}
	offsets := make([]int32, 1, len(p.Features)+1)
	end := 0
	for _, f := range p.Features {
		from, to := p.Shape.Row(int(f))
		if end += to - from; end > math.MaxInt32 {
			return nil, fmt.Errorf("a partial has more than %d entries: choose fewer rows per shard", math.MaxInt32)
		}
		offsets = append(offsets, int32(end))
	}
	return offsets, nil
}

// DecodePartial reads and validates a partial of the given form, of tables of the given
// shape. The partial may share the memory of data.
func DecodePartial(data []byte, shape layout.Shape, form tally.Form) (*tally.Partial, error) {
	version := PartialVersion
	if form.Paired {
		version = PairedVersion
	}
	r, err := newReader(&held{data: data}, false, version)
	if err != nil {
		return nil, err
	}
	defer r.close()
	dim := shape.Dim()
	p := &tally.Partial{Shape: shape, Features: []int32{}, Count: []int64{}}
	if form.Within {
		p.Within = []int64{}
	}
	if form.Corrected {
		p.CorrectedSquare = []int64{}
	}
	if form.Paired {
		p.Fourths = make([]tally.Powers, form.Fields)
	}
	for _, list := range p.AllLists() {
		*list = []int64{}
	}
	var got int64
	for _, integer := range append(partialIntegers(p, form.Paired), keyed[int64]{keyDim, &got}) {
		if *integer.value, err = r.integer(integer.key); err != nil {
			return nil, err
		}
	}
	if form.Paired {
		if err := r.fourths(p.Fourths); err != nil {
			return nil, err
		}
	}
	if got != int64(dim) {
		return nil, fault.Inputf("the partial has %d columns, expected %d as in the model", got, dim)
	}
	if err := r.expect(partialColumns(dim, form)...); err != nil {
		return nil, err
	}
	for {
		err := r.try(func() error { return r.messages.partialBatch(p) })
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if err := p.Validate(&shape, form); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	return p, nil
}

// partialBatch appends the next batch to p. Arrow's library would copy the batch once
// more, and that copy takes a third of the time of merging.
func (m *messages) partialBatch(p *tally.Partial) error {
	if _, err := m.Message(); err != nil {
		return err
	}
	batch, ok := table(m.meta, flatbuffers.GetUOffsetT(m.meta)).tableAt(2)
	if !ok {
		return errTruncated
	}
	rows := batch.int64At(0)
	if rows > int64(len(m.body)) { // prevents an overflow below
		return errTruncated
	}
	values := func(buffer int, bytes int64) ([]byte, error) {
		offset, length, err := batch.pairAt(2, buffer)
		if err != nil || offset < 0 || offset%8 != 0 || length < bytes || offset > int64(len(m.body)) || bytes > int64(len(m.body))-offset {
			return nil, fmt.Errorf("buffer %d of a batch extends beyond the batch", buffer)
		}
		return m.body[offset : offset+bytes : offset+bytes], nil
	}
	features, err := values(1, 4*rows)
	if err != nil {
		return err
	}
	part := &tally.Partial{Shape: p.Shape, Features: arrow.Int32Traits.CastFromBytes(features)}
	entries, offsets, err := partialEntries(part)
	if err != nil {
		return err
	}
	lists := p.AllLists()
	// A batch has a node for each column, and one more for the values of each list. A
	// node holds the number of values and the number of nulls.
	nodes := 2 + 2*len(lists)
	for i := range nodes {
		want := rows
		if i >= 2 && i%2 == 1 {
			want = entries
		}
		length, nulls, err := batch.pairAt(1, i)
		if err != nil || length != want || nulls != 0 {
			return fmt.Errorf("a column has %d values, %d of them null; expected %d and no nulls (%v)", length, nulls, want, err)
		}
	}
	if n := batch.lengthAt(1); n != nodes {
		return fmt.Errorf("a batch has %d columns and lists, expected %d", n, nodes)
	}
	p.Features = join(p.Features, part.Features)
	count, err := values(3, 8*rows)
	if err != nil {
		return err
	}
	p.Count = join(p.Count, arrow.Int64Traits.CastFromBytes(count))
	buffer := 4
	for _, into := range lists {
		// A list has a null bitmap, offsets unless all lists have the same length, and the
		// null bitmap and the values of its elements.
		buffer++
		if offsets != nil {
			found, err := values(buffer, int64(4*len(offsets)))
			if err != nil {
				return err
			}
			if !slices.Equal(arrow.Int32Traits.CastFromBytes(found), offsets) {
				return fmt.Errorf("buffer %d of a batch has lists of other lengths than the rows of the tables", buffer)
			}
			buffer++
		}
		data, err := values(buffer+1, 8*entries)
		if err != nil {
			return err
		}
		*into = join(*into, arrow.Int64Traits.CastFromBytes(data))
		buffer += 2
	}
	return nil
}

// partialEntries returns the number of entries of the features of p, and the offsets of
// their lists, which are nil if the lists have the same length.
func partialEntries(p *tally.Partial) (entries int64, offsets []int32, err error) {
	if dim := p.Shape.Dim(); dim > 0 {
		return int64(len(p.Features)) * int64(dim), nil, nil
	}
	for _, f := range p.Features {
		if f < 0 || int(f) >= p.Shape.Rows() {
			return 0, nil, fmt.Errorf("partial has feature %d: ids must be below %d", f, p.Shape.Rows())
		}
	}
	if offsets, err = partialOffsets(p); err != nil {
		return 0, nil, err
	}
	return int64(offsets[len(offsets)-1]), offsets, nil
}

// join appends b to a. If a is empty it returns b without a copy, so the values stay in
// the bytes that were read.
func join[T any](a, b []T) []T {
	if len(a) == 0 {
		return b
	}
	return append(a, b...)
}

func listValues[A arrow.Array](lists arrow.Array) A {
	return lists.(array.ListLike).ListValues().(A)
}

func decimal(v int64) string { return strconv.FormatInt(v, 10) }

// integer returns the metadata of key, which must have exactly the form that decimal
// gives.
func (r *reader) integer(key string) (int64, error) {
	text := r.meta[key]
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || decimal(v) != text {
		return 0, fault.Inputf("the metadata %q is %q, expected a decimal integer", key, text)
	}
	return v, nil
}

// fourths sets into to the fourth powers of each field in the metadata.
func (r *reader) fourths(into []tally.Powers) error {
	for k, power := range partialFourths(&tally.Powers{}) {
		texts := strings.Split(r.meta[power.key], " ")
		if len(texts) != len(into) {
			return fault.Inputf("the metadata %q has %d integers, expected one for each of %d fields", power.key, len(texts), len(into))
		}
		for field, text := range texts {
			if err := partialFourths(&into[field])[k].value.UnmarshalText([]byte(text)); err != nil {
				return fault.Inputf("the metadata %q of field %d: %w", power.key, field, err)
			}
		}
	}
	return nil
}

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

	"shaver/internal/base/fault"
	"shaver/internal/num/layout"
	"shaver/internal/value/tally"
)

// batchEntries is the number of entries (features times columns) in a record batch of a
// partial or of scores. A list of 8-byte values then takes 2 MiB.
const batchEntries = 1 << 18

// The metadata keys of a partial. The values are decimal integers. Those of fourth powers
// have an integer for each field, with spaces between them. That of High has one for each loss,
// residual and shared part, in the order of partialIntegers.
const (
	keyRows           = "rows"
	keyLossFull       = "loss_full"
	keyLossEmpty      = "loss_empty"
	keyResidualSquare = "residual_square"
	keyShared         = "shared"
	keyWalked         = "walked"          // only if it is not 0
	keyFresh          = "fresh"           // only if it is not 0
	keyWeight         = "weight"          // only if rows have weights
	keySquaredWeights = "squared_weights" // as keyWeight
	keyCheck          = "check"
	keyHigh           = "high" // only with tally.Partial.High
	keyDim            = "dim"
	keySumLists       = "lists"

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

// partialRows returns numbers and weights of rows by the keys that are left out if the number is 0.
func partialRows(p *tally.Partial) []keyed[int64] {
	return []keyed[int64]{{keyWalked, &p.Walked}, {keyFresh, &p.Fresh}, {keyWeight, &p.Weights.Sum}, {keySquaredWeights, &p.Weights.Squares}}
}

// partialFourths returns the fourth powers of a field by their keys.
func partialFourths(p *tally.Powers) []keyed[tally.Uint192] {
	return []keyed[tally.Uint192]{{keyFourths, &p.New}, {keyPreviousFourths, &p.Previous}, {keyDifferenceFourths, &p.Difference}}
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
	for _, rows := range partialRows(p) {
		if *rows.value > 0 {
			keys, values = append(keys, rows.key), append(values, decimal(*rows.value))
		}
	}
	if p.High != nil {
		var high []string
		for _, integer := range partialIntegers(p.High, paired)[1:] {
			high = append(high, decimal(*integer.value))
		}
		keys, values = append(keys, keyHigh), append(values, strings.Join(high, " "))
	}
	keys, values = append(keys, keyDim, keySumLists, keyCheck), append(values, decimal(int64(p.Shape.Dim())), decimal(int64(len(p.AllLists()))), decimal(int64(p.Check)))
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

// partialColumns are the columns of a partial. A record has the sums of a feature (see packer).
func partialColumns() []arrow.Field {
	return []arrow.Field{
		{Name: "feature", Type: arrow.PrimitiveTypes.Int32},
		{Name: "count", Type: arrow.PrimitiveTypes.Int64},
		{Name: "sums", Type: arrow.BinaryTypes.Binary},
	}
}

// EncodePartial writes p, which must be valid, to w in Arrow's stream format, as a single batch.
func EncodePartial(w io.Writer, p *tally.Partial) error {
	metadata := partialMetadata(p)
	out := newStreamWriter(w, arrow.NewSchema(partialColumns(), &metadata))
	if len(p.Features) > 0 {
		records, ends, err := packPartial(p)
		if err != nil {
			return err
		}
		if err := out.write(len(p.Features), int32s(p.Features), int64s(p.Count), binaries(records, ends)); err != nil {
			return err
		}
	}
	return out.close()
}

// maxRecords bounds the bytes of the records of a partial. A test lowers it.
var maxRecords = math.MaxInt32

// packPartial returns the records of p, and their offsets.
func packPartial(p *tally.Partial) (records []byte, offsets []int32, err error) {
	packer := packer{lists: packings(p.Form(), p.High != nil)}
	offsets = make([]int32, 1, len(p.Features)+1)
	lists := p.AllLists()
	sums := make([][]int64, len(lists))
	from := 0
	for i, f := range p.Features {
		first, end := p.Shape.Row(int(f))
		to := from + end - first
		for l, list := range lists {
			sums[l] = undropped(sums[l], (*list)[from:to], p.Dropped, first)
		}
		packer.pack(sums, p.Count[i])
		if len(packer.out) > maxRecords {
			return nil, nil, fmt.Errorf("the sums of a partial take more than %d bytes: choose fewer rows per shard", maxRecords)
		}
		offsets = append(offsets, int32(len(packer.out)))
		from = to
	}
	return packer.out, offsets, nil
}

// undropped returns the sums of a record, which are those of the entries that are not dropped. sums
// are those of all entries from the given one on. With a mask, undropped uses the memory of buffer.
func undropped(buffer, sums []int64, dropped layout.Mask, first int) []int64 {
	if dropped == nil {
		return sums
	}
	buffer = buffer[:0]
	for c, v := range sums {
		if !dropped.Dropped(first + c) {
			buffer = append(buffer, v)
		}
	}
	return buffer
}

// spread moves the sums at the beginning of list, which undropped returned, to their entries. It sets those of
// dropped entries to 0.
func spread(list []int64, dropped layout.Mask, first int) {
	left := len(list) - dropped.Count(first, first+len(list))
	for c := len(list) - 1; c >= 0; c-- {
		if dropped.Dropped(first + c) {
			list[c] = 0
			continue
		}
		left--
		list[c] = list[left]
	}
}

// DecodePartial reads and validates a partial of the given form, of tables of the given
// shape. dropped is that of the partial if it is one of a path, and otherwise nil. The partial may share the memory of data. It takes up to the memory of an
// accumulator of these tables, or twice as much with High, even if data is small.
func DecodePartial(data []byte, shape layout.Shape, form tally.Form, dropped layout.Mask) (*tally.Partial, error) {
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
	p := &tally.Partial{Shape: shape, Dropped: dropped, Features: []int32{}, Count: []int64{}}
	if form.Within {
		p.Within = []int64{}
	}
	if form.Corrected {
		p.CorrectedSquare = []int64{}
	}
	if form.Paired {
		p.Fourths = make([]tally.Powers, form.Fields)
	}
	if _, found := r.meta[keyHigh]; found {
		p.High = &tally.Partial{}
	}
	var got, lists, check int64
	for _, integer := range append(partialIntegers(p, form.Paired), keyed[int64]{keyDim, &got}, keyed[int64]{keySumLists, &lists}, keyed[int64]{keyCheck, &check}) {
		if *integer.value, err = r.integer(integer.key); err != nil {
			return nil, err
		}
	}
	p.Check = uint64(check)
	for _, rows := range partialRows(p) {
		if _, found := r.meta[rows.key]; !found {
			continue
		}
		if *rows.value, err = r.integer(rows.key); err != nil {
			return nil, err
		}
		if *rows.value < 1 {
			return nil, fault.Inputf("the metadata %q is %d, expected at least 1, or no such key", rows.key, *rows.value)
		}
	}
	if form.Weighted != (p.Weights != tally.Weights{}) {
		return nil, fault.Inputf("the partial has weights of rows: %t, expected %t", !form.Weighted, form.Weighted)
	}
	for _, list := range p.AllLists() {
		*list = []int64{}
	}
	if p.High != nil {
		if err := r.high(p.High, form.Paired); err != nil {
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
	if want := len(p.AllLists()); lists != int64(want) {
		return nil, fault.Inputf("the partial has %d lists of sums, expected %d", lists, want)
	}
	if err := r.expect(partialColumns()...); err != nil {
		return nil, err
	}
	for {
		err := r.try(func() error { return r.messages.partialBatch(p, form) })
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

// partialBatch appends the next batch to p, which has the given form. Arrow's library would
// copy the batch once more.
func (m *messages) partialBatch(p *tally.Partial, form tally.Form) error {
	if _, err := m.Message(); err != nil {
		return err
	}
	batch, ok := table(m.meta, flatbuffers.GetUOffsetT(m.meta)).tableAt(2)
	if !ok {
		return ErrTruncated
	}
	rows := batch.int64At(0)
	if rows > int64(len(m.body)) { // prevents an overflow below
		return ErrTruncated
	}
	values := func(buffer int, bytes int64) ([]byte, error) {
		offset, length, err := batch.pairAt(2, buffer)
		if err != nil || offset < 0 || offset%8 != 0 || length < bytes || offset > int64(len(m.body)) || bytes > int64(len(m.body))-offset {
			return nil, fmt.Errorf("buffer %d of a batch extends beyond the batch", buffer)
		}
		return m.body[offset : offset+bytes : offset+bytes], nil
	}
	// A batch has a node for each column, with the number of values and the number of nulls.
	columns := len(partialColumns())
	for i := range columns {
		length, nulls, err := batch.pairAt(1, i)
		if err != nil || length != rows || nulls != 0 {
			return fmt.Errorf("a column has %d values, %d of them null; expected %d and no nulls (%v)", length, nulls, rows, err)
		}
	}
	if n := batch.lengthAt(1); n != columns {
		return fmt.Errorf("a batch has %d columns, expected %d", n, columns)
	}
	// The null bitmaps are buffers 0, 2 and 4.
	features, err := values(1, 4*rows)
	if err != nil {
		return err
	}
	count, err := values(3, 8*rows)
	if err != nil {
		return err
	}
	found, err := values(5, 4*(rows+1))
	if err != nil {
		return err
	}
	offsets := arrow.Int32Traits.CastFromBytes(found)
	records, err := values(6, int64(max(0, offsets[rows])))
	if err != nil {
		return err
	}
	before := len(p.Features)
	p.Features = join(p.Features, arrow.Int32Traits.CastFromBytes(features))
	p.Count = join(p.Count, arrow.Int64Traits.CastFromBytes(count))
	return appendRecords(p, before, offsets, records, packings(form, p.High != nil))
}

// appendRecords appends the sums of the features from the given one on to the lists of p. It
// allocates no memory unless the features are valid, because a small record may have many sums.
func appendRecords(p *tally.Partial, before int, offsets []int32, records []byte, packings []packing) error {
	previous, entries := int32(-1), 0
	if before > 0 {
		previous = p.Features[before-1]
	}
	for i, f := range p.Features[before:] {
		if f <= previous || int(f) >= p.Shape.Rows() {
			return fmt.Errorf("partial has feature %d after %d: ids must ascend and be below %d", f, previous, p.Shape.Rows())
		}
		if offsets[i] < 0 || offsets[i+1] < offsets[i] || int(offsets[i+1]) > len(records) {
			return fmt.Errorf("feature %d: %w", f, errRecord)
		}
		from, to := p.Shape.Row(int(f))
		previous, entries = f, entries+to-from
	}
	lists := p.AllLists()
	for _, list := range lists {
		*list = slices.Grow(*list, entries)[:len(*list)+entries]
	}
	sums, at := make([][]int64, len(lists)), len(*lists[0])-entries
	for i, f := range p.Features[before:] {
		first, end := p.Shape.Row(int(f))
		left := end - first
		if p.Dropped != nil {
			left -= p.Dropped.Count(first, end)
		}
		for l, list := range lists {
			sums[l] = (*list)[at : at+left]
		}
		if err := unpack(records[offsets[i]:offsets[i+1]], packings, sums); err != nil {
			return fmt.Errorf("feature %d: %w", f, err)
		}
		if p.Dropped != nil {
			for _, list := range lists {
				spread((*list)[at:at+end-first], p.Dropped, first)
			}
		}
		at += end - first
	}
	return nil
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
	v, ok := parseDecimal(r.meta[key])
	if !ok {
		return 0, fault.Inputf("the metadata %q is %q, expected a decimal integer", key, r.meta[key])
	}
	return v, nil
}

// parseDecimal is the inverse of decimal. It returns false for all other texts.
func parseDecimal(text string) (v int64, ok bool) {
	v, err := strconv.ParseInt(text, 10, 64)
	return v, err == nil && decimal(v) == text
}

// high sets the losses, residuals and shared parts of tally.Partial.High to those in the metadata.
func (r *reader) high(into *tally.Partial, paired bool) error {
	integers := partialIntegers(into, paired)[1:]
	texts := strings.Split(r.meta[keyHigh], " ")
	for k, integer := range integers {
		var ok bool
		if len(texts) == len(integers) {
			*integer.value, ok = parseDecimal(texts[k])
		}
		if !ok {
			return fault.Inputf("the metadata %q is %q, expected %d decimal integers", keyHigh, r.meta[keyHigh], len(integers))
		}
	}
	return nil
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

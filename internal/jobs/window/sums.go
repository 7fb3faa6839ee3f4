package window

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"math"
	"math/big"
	"slices"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/click/model"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/tally"
	"shaver/internal/value/tallyio"
)

// The sums of a day consist of
//   - sumsMagic;
//   - the length of the header as a uint32, and the header in JSON;
//   - the sums, as package tallyio writes them;
//   - if the header says so, the variances of the means of c, |c| and c^2 about those of a
//     full job, one list of float64 after the other, each with a value for each entry.
//
// Everything is little-endian.
const sumsMagic = "shaver.sums/1\n"

// sumsHeader describes the sums of a day.
type sumsHeader struct {
	Dataset    string `json:"dataset"` // digest of the day
	Model      string `json:"model"`   // digest of the model
	Generation int    `json:"generation"`

	FieldDims  []int          `json:"field_dims"`
	Dim        int            `json:"table_dim"` // 0 if there are tables
	Tables     []model.Table  `json:"tables,omitempty"`
	LookUps    []model.LookUp `json:"look_ups,omitempty"`
	ListFields []model.List   `json:"list_fields,omitempty"` // Architecture.Lists

	Variances bool `json:"variances"` // whether the variances follow the sums

	tallyio.Header
}

// layout returns the layout of the tables.
func (h *sumsHeader) layout() *model.Architecture {
	return &model.Architecture{FieldDims: h.FieldDims, Dim: h.Dim, Tables: h.Tables, LookUps: h.LookUps, Lists: h.ListFields}
}

// variances are the variances of the means of c, |c| and c^2 over a day's rows about those
// of a full job. Each list has a value for each entry, nat^2 or nat^4. The lists are nil
// after a full job.
type variances [3][]float64

// newVariances returns variances of 0 for n entries.
func newVariances(n int) variances {
	return variances{make([]float64, n), make([]float64, n), make([]float64, n)}
}

// writeSums writes the sums of the day d, for tables with the layout of a, to w. It does not
// copy them.
func writeSums(w io.Writer, d *Day, a *model.Architecture, sums *tally.Accumulator, v variances) error {
	header := sumsHeader{
		Dataset: d.Dataset, Model: d.Model, Generation: d.Generation, FieldDims: a.FieldDims, Dim: a.Dim, Tables: a.Tables, LookUps: a.LookUps, ListFields: a.Lists,
		Variances: v[0] != nil, Header: tallyio.HeaderOf(sums),
	}
	if err := tallyio.WriteHead(w, sumsMagic, header); err != nil {
		return err
	}
	if err := tallyio.Write(w, sums); err != nil {
		return err
	}
	bits := make([]int64, 0, chunk)
	for _, values := range v {
		for part := range slices.Chunk(values, chunk) {
			bits = bits[:0]
			for _, x := range part {
				bits = append(bits, int64(math.Float64bits(x)))
			}
			if err := tallyio.WriteInts(w, bits); err != nil {
				return err
			}
		}
	}
	return nil
}

// chunk is the number of integers or values that are held in memory at a time.
const chunk = 1 << 16

// storeSums writes the sums of the day d to a new file, and sets d.Sums to this file. No
// index names the file yet.
func (s *State) storeSums(d *Day, a *model.Architecture, sums *tally.Accumulator, v variances) error {
	d.Sums = File{Name: dayFile(d.Dataset, d.Model, d.Generation)}
	if err := operation("write", d.Sums.Name); err != nil {
		return err
	}
	digest := &counter{Hash: sha256.New()}
	err := atomicfile.Write(s.path(d.Sums.Name), func(w io.Writer) error {
		return writeSums(io.MultiWriter(w, digest), d, a, sums, v)
	})
	d.Sums.Bytes, d.Sums.SHA256 = digest.bytes, hex.EncodeToString(digest.Sum(nil))
	return err
}

// counter is a digest that counts its bytes.
type counter struct {
	hash.Hash
	bytes int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	return c.Hash.Write(p)
}

// total adds up the sums of days, for tables of one layout.
type total struct {
	architecture *model.Architecture
	spans        []model.Span // by their look-up; those of other look-ups are zero
	accumulator  *tally.Accumulator
	state        tally.State // shares memory with accumulator; its rows and losses are set by finish
	// variance holds the variances of the sums of c, |c| and c^2. Its lists are nil until a
	// day with variances is added.
	variance variances
}

// newTotal returns a total without days, for tables with the layout of a.
func newTotal(a *model.Architecture, form tally.Form) *total {
	t := &total{architecture: a, spans: byLookUp(a), accumulator: tally.NewAccumulator(a.Shape(), form)}
	t.state = t.accumulator.State()
	return t
}

// byLookUp returns each span of a at the index of its look-up. Other elements are zero.
func byLookUp(a *model.Architecture) []model.Span {
	spans := make([]model.Span, max(a.Fields(), len(a.LookUps)))
	for _, s := range a.Spans() {
		spans[s.LookUp] = s
	}
	return spans
}

// addDay adds the sums of a day of the state. After an error the total must not be used.
// Damaged sums, and those of another day or of tables that do not fit, are bad input.
func (t *total) addDay(s *State, d *Day) error {
	file, err := files.Open(s.path(d.Sums.Name), "the sums of a day")
	if err != nil {
		return err
	}
	defer file.Close()
	digest := &counter{Hash: sha256.New()}
	err = t.add(io.TeeReader(file, digest), d)
	if err == nil && (digest.bytes != d.Sums.Bytes || hex.EncodeToString(digest.Sum(nil)) != d.Sums.SHA256) {
		err = fault.Inputf("its content does not match its digest in %s", indexName)
	}
	if other, ok := errors.AsType[*misfit](err); ok {
		return fault.Inputf("the sums in %s are for another model: %w: name another --state", s.dir, other.error)
	}
	if fault.IsInput(err) {
		return s.damaged(d.Sums, fullInstead, err)
	}
	return err
}

// add adds the sums that writeSums wrote for the day d. It needs little memory besides that
// of the total, whatever the bytes are. Malformed bytes, and sums of another day, are bad
// input. Sums of tables that do not fit are a misfit.
func (t *total) add(r io.Reader, d *Day) error {
	h := &sumsHeader{}
	if err := tallyio.ReadHead(r, sumsMagic, h); err != nil {
		return err
	}
	if err := t.check(h, d); err != nil {
		return err
	}
	if err := t.addBody(r, h); err != nil {
		return err
	}
	return tallyio.ReadEnd(r)
}

// check returns bad input unless h describes the sums of the day d, and they fit the total.
func (t *total) check(h *sumsHeader, d *Day) error {
	own := h.layout()
	if err := own.ValidateLayout(); err != nil {
		return fault.Inputf("its header: %w", err)
	}
	shape := own.Shape()
	if err := h.Check(&shape, t.state.Form); err != nil {
		return fault.Inputf("it has %w", err)
	}
	switch {
	case h.Dataset != d.Dataset || h.Model != d.Model || h.Generation != d.Generation:
		return fault.Inputf("it has the sums of dataset %.12s, model %.12s, generation %d, expected %.12s, %.12s, %d", h.Dataset, h.Model, h.Generation, d.Dataset, d.Model, d.Generation)
	case h.Rows != d.Rows:
		return fault.Inputf("it has the sums of %d rows, expected %d", h.Rows, d.Rows)
	case h.LossFull[0] < 0 || h.LossEmpty[0] < 0 || h.ResidualSquare[0] < 0:
		return fault.Inputf("it has a negative sum of losses or squares")
	case h.Variances != (d.Generation > 0):
		return fault.Inputf("it has variances: %t, expected %t", h.Variances, d.Generation > 0)
	}
	layout := scores.LayoutOf(t.architecture)
	if _, err := model.NewTranslator(&layout, own); err != nil {
		return &misfit{err}
	}
	return nil
}

// misfit is the error for sums of tables that cannot have grown to those of the model.
type misfit struct{ error }

// addBody adds what follows the header.
func (t *total) addBody(r io.Reader, h *sumsHeader) error {
	own := h.layout()
	spans, into := own.Spans(), t.spans
	buffer := make([]int64, chunk)
	// visit calls add with the integers of a list that has per integers for each row of the
	// tables, or for each entry if entries is set. at is the position of a chunk in the total.
	visit := func(per int, entries bool, add func(at int, values []int64) error) error {
		for _, span := range spans { // in the order of the rows, as in the file
			n, at := span.Rows*per, into[span.LookUp].Row*per
			if entries {
				n, at = n*span.Dim, into[span.LookUp].Entry*per
			}
			for n > 0 {
				part := buffer[:min(n, len(buffer))]
				if err := tallyio.ReadInts(r, part); err != nil {
					return err
				}
				if err := add(at, part); err != nil {
					return err
				}
				n, at = n-len(part), at+len(part)
			}
		}
		return nil
	}
	if err := visit(1, false, func(at int, values []int64) error {
		for i, count := range values {
			if count < 0 || count > h.Rows {
				return fault.Inputf("a feature occurs in %d of %d rows", count, h.Rows)
			}
			t.state.Count[at+i] += count
		}
		return nil
	}); err != nil {
		return err
	}
	if err := visit(h.Lists, true, func(at int, values []int64) error {
		for i, v := range values {
			t.addCell(at+i, v)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := t.addCarries(r, h.Carries, h.Lists, own, spans); err != nil {
		return err
	}
	t.state.Rows += h.Rows
	t.state.Walked += h.Walked
	c := &t.state.Current
	c.LossFull, c.LossEmpty, c.ResidualSquare, c.Shared = wide(c.LossFull, h.LossFull), wide(c.LossEmpty, h.LossEmpty), wide(c.ResidualSquare, h.ResidualSquare), wide(c.Shared, h.Shared)
	if !h.Variances {
		return nil
	}
	if t.variance[0] == nil {
		shape := t.architecture.Shape()
		t.variance = newVariances(shape.Entries())
	}
	rows := float64(h.Rows)
	for _, list := range t.variance {
		if err := visit(1, true, func(at int, values []int64) error {
			for i, bits := range values {
				v := math.Float64frombits(uint64(bits))
				if !(v >= 0 && v <= math.MaxFloat64) {
					return fault.Inputf("a variance is %v, expected a finite value of at least 0", v)
				}
				list[at+i] += float64(v * rows * rows)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// addCell adds v to a cell of the total.
func (t *total) addCell(at int, v int64) {
	before := t.state.Cells[at]
	sum := before + v
	t.state.Cells[at] = sum
	if (before^sum)&(v^sum) < 0 {
		t.carry(at, 1|v>>63)
	}
}

// carry adds multiples of 2^64 to a cell of the total.
func (t *total) carry(at int, multiples int64) {
	if t.state.Carries[at] += multiples; t.state.Carries[at] == 0 {
		delete(t.state.Carries, at)
	}
}

// addCarries adds n carries of sums with the given layout and its spans.
func (t *total) addCarries(r io.Reader, n, lists int, own *model.Architecture, spans []model.Span) error {
	shape := own.Shape()
	pair := make([]int64, 2)
	for previous := int64(-1); n > 0; n-- {
		if err := tallyio.ReadInts(r, pair); err != nil {
			return err
		}
		cell, multiples := pair[0], pair[1]
		if cell <= previous || cell >= int64(lists*shape.Entries()) {
			return fault.Inputf("it has a carry for cell %d after %d, expected ascending numbers below %d", cell, previous, lists*shape.Entries())
		}
		if multiples > math.MaxInt32 || multiples < math.MinInt32 {
			return fault.Inputf("it has a carry of %d for cell %d, expected a number of 32 bits", multiples, cell)
		}
		previous = cell
		i := slices.IndexFunc(spans, func(s model.Span) bool { _, end := s.Entries(); return int(cell) < lists*end })
		t.carry(int(cell)+lists*(t.spans[spans[i].LookUp].Entry-spans[i].Entry), multiples)
	}
	return nil
}

// wide returns the sum of two integers of the form carry*2^64 + low.
func wide(a, b [2]int64) [2]int64 {
	sum := [2]int64{a[0] + b[0], a[1] + b[1]}
	if (a[1]^sum[1])&(b[1]^sum[1]) < 0 {
		sum[0] += 1 | a[1]>>63
	}
	return sum
}

// split returns x, rounded to an integer, in the form carry*2^64 + low.
func split(x float64) (carry, low int64) {
	x = math.RoundToEven(x)
	if x >= -1<<63 && x < 1<<63 {
		return 0, int64(x)
	}
	whole, _ := big.NewFloat(x).Int(nil)
	low = int64(new(big.Int).And(whole, new(big.Int).SetUint64(math.MaxUint64)).Uint64())
	return whole.Rsh(whole.Sub(whole, big.NewInt(low)), 64).Int64(), low
}

// finish returns the accumulator with the sums of all days.
func (t *total) finish() (*tally.Accumulator, error) {
	if err := t.accumulator.Restore(t.state); err != nil {
		return nil, fault.Inputf("the sums of the days: %w", err)
	}
	return t.accumulator, nil
}

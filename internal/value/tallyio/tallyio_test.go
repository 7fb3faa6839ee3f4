package tallyio

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/num/layout"
	"shaver/internal/value/tally"
)

var shape = layout.Of(3, 2).And(4, 1)

var forms = []tally.Form{{}, {Within: true}, {Paired: true, Fields: 2}}

// example returns sums of which some have left int64.
func example(t testing.TB, form tally.Form) *tally.Accumulator {
	p := &tally.Partial{Shape: shape, Walked: 1, Rows: 3, LossFull: math.MaxInt64, LossEmpty: 5, ResidualSquare: math.MaxInt64, Features: []int32{1, 5}, Count: []int64{3, 1}}
	if form.Within {
		p.Within = []int64{}
	}
	if form.Paired {
		p.PreviousLossFull, p.PreviousLossEmpty, p.PreviousResidualSquare = 6, math.MaxInt64, 7
		p.Fourths = []tally.Powers{{New: tally.Uint192{Top: 4, High: 1, Low: 2}, Previous: tally.Uint192{Low: 3}}, {Difference: tally.Uint192{Low: math.MaxUint64}}}
	}
	for i, list := range p.AllLists() {
		*list = []int64{int64(i), math.MaxInt64, int64(2 * i)}
	}
	a := tally.NewAccumulator(shape, form)
	for range 2 {
		if err := a.Merge(p); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

const magic = "shaver.test/1\n"

// encode returns a file with the given sums.
func encode(t testing.TB, all ...*tally.Accumulator) []byte {
	var headers []Header
	for _, a := range all {
		headers = append(headers, HeaderOf(a))
	}
	var out bytes.Buffer
	if err := WriteHead(&out, magic, headers); err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if err := Write(&out, a); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// decode returns the sums of a file.
func decode(data []byte, form tally.Form) (all []*tally.Accumulator, err error) {
	r := bytes.NewReader(data)
	var headers []Header
	if err := ReadHead(r, magic, &headers); err != nil {
		return nil, err
	}
	for i := range headers[:min(2, len(headers))] {
		a, err := Read(r, &headers[i], shape, form)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, ReadEnd(r)
}

// A file may hold several accumulators. They are the same after they are written and read.
func TestRoundTrip(t *testing.T) {
	for _, form := range forms {
		all := []*tally.Accumulator{example(t, form), tally.NewAccumulator(shape, form)}
		data := encode(t, all...)
		back, err := decode(data, form)
		if err != nil || !reflect.DeepEqual(back, all) {
			t.Fatalf("%+v: %+v, %v", form, back, err)
		}
		if len(back[0].State().Carries) == 0 {
			t.Error("no sum has left int64, so no carry is tested")
		}
		for n := range data {
			if _, err := decode(data[:n], form); !fault.IsInput(err) {
				t.Fatalf("the first %d bytes: %v", n, err)
			}
		}
		for _, other := range forms {
			if _, err := decode(data, other); other != form && !fault.IsInput(err) {
				t.Errorf("sums of the form %+v, read as %+v: %v", form, other, err)
			}
		}
	}
}

// Numbers are read as they were written, however many there are. All bytes are needed, and none beyond them.
func TestManyNumbers(t *testing.T) {
	for _, n := range []int{0, 1, chunkInts - 1, chunkInts, chunkInts + 1, 2*chunkInts + 3} {
		ints, words := make([]int64, n), make([]float32, n)
		for i := range ints {
			ints[i], words[i] = int64(i+1)*-0x123456789abcdf1, float32(i+1)/3
		}
		var out bytes.Buffer
		if err := errors.Join(WriteInts(&out, ints), WriteWords(&out, words)); err != nil || out.Len() != 12*n {
			t.Fatalf("%d numbers have %d bytes, %v", n, out.Len(), err)
		}
		data, gotInts, gotWords := out.Bytes(), make([]int64, n), make([]float32, n)
		in := bytes.NewReader(data)
		if err := errors.Join(ReadInts(in, gotInts), ReadWords(in, gotWords), ReadEnd(in)); err != nil || !slices.Equal(gotInts, ints) || !slices.Equal(gotWords, words) {
			t.Fatalf("%d numbers are others after they are written and read: %v", n, err)
		}
		if n > 0 {
			short, shorter := bytes.NewReader(data[:8*n-1]), bytes.NewReader(data[:4*n-1])
			if !fault.IsInput(ReadInts(short, gotInts)) || !fault.IsInput(ReadWords(shorter, gotWords)) {
				t.Errorf("%d numbers without the last byte are no bad input", n)
			}
		}
	}
}

func TestReadRefuses(t *testing.T) {
	form := forms[2]
	a := example(t, form)
	var body bytes.Buffer
	if err := Write(&body, a); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(h *Header){
		"a table of 8 x 0":              func(h *Header) { h.Features++ },
		"7 lists of sums":               func(h *Header) { h.Lists-- },
		"feature 1 occurs in 6 of 5":    func(h *Header) { h.Rows-- },
		"-1 carries, expected at most":  func(h *Header) { h.Carries = -1 },
		"it ends early":                 func(h *Header) { h.Carries++ },
		"sums of two models: false":     func(h *Header) { h.Previous = nil },
		"negative sum":                  func(h *Header) { h.Previous.LossFull[0] = -1 },
		"fourth powers of 1 fields":     func(h *Header) { h.Fourths = h.Fourths[1:] },
		"fourth powers of 0 fields":     func(h *Header) { h.Fourths = nil },
		"81 carries, expected at most ": func(h *Header) { h.Carries = 81 },
	} {
		h := HeaderOf(a)
		change(&h)
		if _, err := Read(bytes.NewReader(body.Bytes()), &h, shape, form); !fault.IsInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected bad input that contains %q", err, want)
		}
	}
	good := encode(t, a)
	for want, data := range map[string][]byte{
		"bytes after its end": append(bytes.Clone(good), 0),
		"does not begin with": bytes.Replace(good, []byte("test/1"), []byte("test/2"), 1),
		"its header: invalid": bytes.Replace(good, []byte(`[{"features"`), []byte(`[["features"`), 1),
		"unknown field":       bytes.Replace(good, []byte(`"rows"`), []byte(`"ruws"`), 1),
		"in [0, 2^192)":       bytes.Replace(good, []byte(`"previous":"6"`), []byte(`"previous":"x"`), 1),
	} {
		if _, err := decode(data, form); !fault.IsInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected bad input that contains %q", err, want)
		}
	}
}

// Sums that Read accepts are the same after they are written and read again.
func FuzzRead(f *testing.F) {
	for _, form := range forms {
		f.Add(encode(f, example(f, form), tally.NewAccumulator(shape, form)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, form := range forms {
			all, err := decode(data, form)
			if err != nil {
				if !fault.IsInput(err) {
					t.Fatal(err)
				}
				continue
			}
			if back, err := decode(encode(t, all...), form); err != nil || !reflect.DeepEqual(back, all) {
				t.Fatalf("%+v and %+v, %v", back, all, err)
			}
		}
	})
}

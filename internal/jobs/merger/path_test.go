package merger

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/num/layout"
	"shaver/internal/value/path"
	"shaver/internal/value/tally"
)

// newPathRange returns a range of a path with the terms of a few rows.
func newPathRange(t testing.TB) *kept {
	t.Helper()
	k := &kept{offer: offer{Job: "0123456789abcdef0123"}, begin: &begin{Range: 1, Ranges: 3, Form: form{Path: true}, Fixed: []span{{2, 3}}}, shape: layout.Of(6, 2)}
	k.empty()
	r, b := rand.New(rand.NewPCG(1, 2)), tally.NewTermsBuilder(k.shape, layout.NewMask(12))
	for range 5 {
		change := make([]float64, 4)
		for i := range change {
			change[i] = r.NormFloat64()
		}
		if err := b.AddTerms([]int32{1, 4}, &tally.Terms{LossFull: 1, Change: change, First: 1, Second: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.sums.Merge(b.Partial()); err != nil {
		t.Fatal(err)
	}
	return k
}

// A merger orders the entries of its range that are measured and not fixed, and what does not fit its range is refused.
func TestRangeOfPath(t *testing.T) {
	k := newPathRange(t)
	must := func(q question) *answer {
		t.Helper()
		a, err := k.work(&q)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	unmeasured := layout.NewMask(12)
	unmeasured.Drop(3)
	must(question{Bytes: &piece{Mask: true, Data: unmeasured}})
	must(question{Bytes: &piece{At: 4, Data: []byte{0, 0, 128, 63}}}) // the weight of entry 1 is 1
	must(question{Round: &round{Fade: path.Fade{Unit: 1}}})
	must(question{Passes: 2})
	by := path.Rank{Steep: 1, Sign: -1}
	entries, keys, err := decodeOrder(must(question{Order: &order{by, span{0, 100}}}).body)
	if err != nil {
		t.Fatal(err)
	}
	var want []int32
	for i := range int32(12) {
		if i != 3 && i != 4 && i != 5 {
			want = append(want, i)
		}
	}
	key := func(i int32) float64 {
		g, d := k.sums.Term(int(i))
		return (d - g) / 2
	}
	slices.SortStableFunc(want, func(i, j int32) int {
		switch {
		case key(i) < key(j) || key(i) == key(j) && j == 1:
			return -1
		case key(i) > key(j) || key(i) == key(j) && i == 1:
			return 1
		}
		return 0
	})
	if !slices.Equal(entries, want) {
		t.Errorf("the order is %v, expected %v", entries, want)
	}
	for n, i := range entries {
		if keys[n] != key(i) {
			t.Errorf("entry %d has the key %v, expected %v", i, keys[n], key(i))
		}
	}
	for what, q := range map[string]question{
		"a mask of 16 entries": {Bytes: &piece{Mask: true, Data: make([]byte, 3)}},
		"half a weight":        {Bytes: &piece{At: 2, Data: make([]byte, 4)}},
		"weights after all":    {Bytes: &piece{At: 48, Data: make([]byte, 4)}},
		"a negative position":  {Order: &order{by, span{-1, 2}}},
		"too many entries":     {Order: &order{by, span{0, 1 << 20}}},
	} {
		if _, err := k.work(&q); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if _, err := newRange(t).work(&question{Passes: 1}); err == nil {
		t.Error("a range of values ends a round of a path")
	}
}

// The checkpoint of a range of a path is read as it was written. Malformed ones are bad input.
func FuzzPathCheckpoint(f *testing.F) {
	k := newPathRange(f)
	k.terms.End(1)
	var written bytes.Buffer
	if err := k.write(&written); err != nil {
		f.Fatal(err)
	}
	f.Add(written.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		k := newPathRange(t)
		if err := k.read(bytes.NewReader(data)); err != nil {
			if !fault.IsInput(err) {
				t.Errorf("error %v is not bad input", err)
			}
			return
		}
		var again bytes.Buffer
		if err := k.write(&again); err != nil || !bytes.HasSuffix(data, again.Bytes()[again.Len()-12*(2*8+4):]) {
			t.Errorf("the terms that are written differ from those that were read: %v", err)
		}
	})
}

package merger

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/num/layout"
	"shaver/internal/value/tally"
)

// newRange returns a range of a small table with the sums of a few rows.
func newRange(t testing.TB) *kept {
	t.Helper()
	shape := layout.Of(6, 2)
	k := &kept{offer: offer{Job: "0123456789abcdef0123"}, begin: &begin{Range: 1, Ranges: 3}, shape: shape, sums: tally.NewAccumulator(shape, tally.Form{})}
	if err := k.sums.Merge(simulated(rand.New(rand.NewPCG(1, 2)), shape, []int32{0, 3, 5})); err != nil {
		t.Fatal(err)
	}
	return k
}

// The checkpoint of a range is read as it was written. That of another range or job is bad input.
func TestRangeCheckpoint(t *testing.T) {
	k := newRange(t)
	var written bytes.Buffer
	if err := k.write(&written); err != nil {
		t.Fatal(err)
	}
	want := k.sums.Summary()
	k.sums = nil
	if err := k.read(bytes.NewReader(written.Bytes())); err != nil || *k.sums.Summary() != *want {
		t.Fatalf("read %+v, expected %+v: %v", k.sums, want, err)
	}
	for what, change := range map[string]func(){
		"another range":         func() { k.begin = &begin{Range: 2, Ranges: 3} },
		"another number of":     func() { k.begin = &begin{Range: 1, Ranges: 4} },
		"another job":           func() { k.offer.Job = "3210fedcba9876543210" },
		"another table's shape": func() { k.shape = layout.Of(7, 2) },
	} {
		k = newRange(t)
		change()
		if err := k.read(bytes.NewReader(written.Bytes())); !fault.IsInput(err) {
			t.Errorf("the checkpoint of %s is read: %v", what, err)
		}
	}
}

// Malformed checkpoints of a range are bad input.
func FuzzRangeCheckpoint(f *testing.F) {
	var written bytes.Buffer
	if err := newRange(f).write(&written); err != nil {
		f.Fatal(err)
	}
	f.Add(written.Bytes())
	f.Add([]byte(rangeMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		k := newRange(t)
		k.sums = nil
		if err := k.read(bytes.NewReader(data)); err != nil && !fault.IsInput(err) {
			t.Errorf("error %v is not bad input", err)
		}
	})
}

// Malformed answers are errors, and a well-formed answer is read as it was written.
func FuzzAnswer(f *testing.F) {
	f.Add((&answer{Number: 3, Busy: true}).encode())
	f.Add((&answer{Number: 4, Summary: newRange(f).sums.Summary(), body: []byte{1, '\n', 2}}).encode())
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := decodeAnswer(data)
		if err != nil {
			return
		}
		again, err := decodeAnswer(a.encode())
		if err != nil || again.Number != a.Number || !bytes.Equal(again.body, a.body) {
			t.Errorf("answer %+v is read again as %+v: %v", a, again, err)
		}
		if _, err := decodeValues(a.body, len(a.body)/entryBytes); err != nil && len(a.body)%entryBytes == 0 {
			t.Error(errors.Join(errors.New("values of the right size are refused"), err))
		}
	})
}

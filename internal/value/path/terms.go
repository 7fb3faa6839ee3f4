package path

import (
	"io"
	"math"

	"shaver/internal/base/fault"
	"shaver/internal/num/layout"
	"shaver/internal/value/mask"
	"shaver/internal/value/tally"
	"shaver/internal/value/tallyio"
)

// Terms are G, D and T of the entries of a range of the tables, whose rows and entries are numbered from 0. They take 28 bytes for each entry. A round begins
// with those of the rounds before, which are faded, and its partials are added to them. Only one goroutine may use Terms at a time.
type Terms struct {
	Sums   *tally.Accumulator // G and D
	passes []float32          // T of each entry
	faded  int                // number of rounds after which the terms were faded
	fixed  layout.Mask        // rows whose entries are never dropped
	tables []float32          // weights of the entries, whose magnitudes break ties
	left   []int32            // entries that this round measures and that may be dropped or added, ascending
	lowest []int32            // the first of them in the order of rank
	rank   Rank               // Steep = 0: lowest has no order
}

// Rank says by what a round ranks entries: by (Steep*D + Sign*G) / T. Those with the lowest keys are dropped, or added, first. Ties are broken by the
// magnitude of the weight and then by the position.
type Rank struct {
	Steep float64 `json:"steep"`
	Sign  float64 `json:"sign"`
}

// leastPasses takes the place of T if no row of the first round could be computed.
const leastPasses = 1e-300

// NewTerms returns the terms of a range before the first round. fixed are the rows whose entries are never dropped. tables has the weights of all entries of
// the range, and is kept.
func NewTerms(shape layout.Shape, form tally.Form, fixed []int, tables []float32) *Terms {
	t := &Terms{Sums: tally.NewAccumulator(shape, form), passes: make([]float32, shape.Entries()), fixed: layout.NewMask(shape.Rows()), tables: tables}
	for _, row := range fixed {
		t.fixed.Drop(row)
	}
	return t
}

// Fade says what a round keeps of the earlier terms: Memory / (Memory + D), or nothing if Memory is 0. Unit is that of D.
type Fade struct {
	Memory float64 `json:"memory"`
	Unit   float64 `json:"unit"`
}

// Begin begins a round, the first of which is 0. unmeasured are the entries that the round does not measure. If the round has begun before, nothing else
// changes. If it begins as the second, fall is by how much the loss falls without these, in nat times the weight of the rows, as their terms predict it: the sum of G - D/2. Otherwise fall is NaN.
func (t *Terms) Begin(round int, unmeasured layout.Mask, f Fade) (fall float64) {
	shape := t.Sums.Shape()
	fade := round > t.faded
	if fall = math.NaN(); fade && round == 1 {
		fall = 0
	}
	t.left, t.lowest, t.rank = t.left[:0], nil, Rank{}
	first, second := make([]float64, shape.Widest()), make([]float64, shape.Widest())
	for row := range shape.Rows() {
		from, to := shape.Row(row)
		fixed := t.fixed.Dropped(row)
		if fade {
			t.Sums.Terms(row, first[:to-from], second[:to-from])
		}
		for i := from; i < to; i++ {
			c := i - from
			switch {
			case fixed:
			case !unmeasured.Dropped(i):
				t.left = append(t.left, int32(i))
			default:
				fall += first[c] - float64(f.Unit*second[c]/2)
			}
			if fade {
				keep := 0.0
				if f.Memory > 0 {
					keep = f.Memory / (f.Memory + float64(f.Unit*second[c]))
				}
				first[c] *= keep
				second[c] *= keep
				t.passes[i] = float32(keep * float64(t.passes[i]))
			}
		}
		if fade {
			t.Sums.SetTerms(row, first[:to-from], second[:to-from])
		}
	}
	if fade {
		t.faded = round
	}
	return fall
}

// End ends the measurement of a round. passes is the number of passes over the rows that its partials have. Sums then have no rows.
func (t *Terms) End(passes float64) {
	t.Sums.ClearRows()
	for i, x := range t.passes {
		t.passes[i] = x + float32(passes)
	}
	t.rank = Rank{}
}

// Lowest returns the entries from one position to another, or to the last, in the order of r of those that the round measures and that may be dropped or added.
// It is fast if few come before to. The result shares memory with t.
func (t *Terms) Lowest(r Rank, from, to int) []int32 {
	if r != t.rank {
		t.lowest, t.rank = nil, r
	}
	if to = min(to, len(t.left)); to > len(t.lowest) {
		n := min(max(to, len(t.left)/4, 2*len(t.lowest)), len(t.left))
		t.lowest = nil // frees its memory
		t.lowest = mask.Lowest(t.left, n, t.tables, t.Key(r))
	}
	return t.lowest[min(from, to):to]
}

// Key returns the keys of the order of r.
func (t *Terms) Key(r Rank) func(i int32) float64 {
	return func(i int32) float64 {
		first, second := t.Sums.Term(int(i))
		return (float64(r.Steep*second) + r.Sign*first) / max(float64(t.passes[i]), leastPasses)
	}
}

// Order returns the order of r of the entries that the round measures and that may be dropped or added.
func (t *Terms) Order(r Rank) Next {
	at, key := 0, t.Key(r)
	return func() (int32, float64, error) {
		if at >= len(t.left) {
			return 0, 0, io.EOF
		}
		i := t.Lowest(r, at, at+1)[0]
		at++
		return i, key(i), nil
	}
}

// Write writes the state of t, except for the header of Sums and [Terms.Faded], as package tallyio does.
func (t *Terms) Write(w io.Writer) error {
	if err := tallyio.Write(w, t.Sums); err != nil {
		return err
	}
	return tallyio.WriteWords(w, t.passes)
}

// Faded returns the number of rounds after which the terms were faded.
func (t *Terms) Faded() int { return t.faded }

// Read sets the state of t, which must be new, to what Write wrote after the given number of fades. h is the header of Sums. Malformed bytes are bad input.
func (t *Terms) Read(r io.Reader, h *tallyio.Header, faded int) (err error) {
	if t.Sums, err = tallyio.Read(r, h, t.Sums.Shape(), t.Sums.Form()); err != nil {
		return err
	}
	if err := tallyio.ReadWords(r, t.passes); err != nil {
		return err
	}
	for i, x := range t.passes {
		if _, second := t.Sums.Term(i); !(x >= 0 && x <= math.MaxFloat32 && second >= 0) {
			return fault.Inputf("entry %d has second-order terms of %v nat over %v passes", i, second, x)
		}
	}
	if t.faded = faded; faded < 0 {
		return fault.Inputf("the terms were faded %d times", faded)
	}
	return nil
}

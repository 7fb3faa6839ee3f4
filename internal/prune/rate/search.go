package rate

import (
	"context"
	"math"
	"slices"

	"shaver/internal/click/compact"
	"shaver/internal/click/model"
)

// Measured is what Search needs to know about pruned tables.
type Measured struct {
	Loss                         float64   // calibrated loss of validation rows before rounding, in nat
	Curvature, BaselineCurvature []float64 // as in Tables
}

// Search finds, along an order of the entries, the tables whose loss is least.
type Search struct {
	Architecture *model.Architecture
	Entries      []float32 // the unpruned tables
	Baseline     model.Baseline
	Order        []int32 // entries in the order in which they are dropped
	Least, Most  int     // numbers of entries that may be dropped
	Size         Size    // as in Tables
	// Measure measures tables of which the given entries are dropped, [Parameters].
	Measure func(ctx context.Context, dropped []bool) (*Measured, error)
	// Risen returns the rise of the loss of validation rows by rounding as a choice says, in nat.
	Risen func(ctx context.Context, f *Found) (float64, error)
}

// Found is a choice of what to drop and how to round what is kept.
type Found struct {
	*Choice
	Dropped []bool
	Loss    float64 // of Measured
	Risen   float64 // rise of the loss by rounding, measured
}

// shrink is the ratio between the numbers of kept entries of a ladder, and patience is how many of them in a row may be
// refused before Climb stops. Where nearly everything fits, dropping begins by costing positions, so the loss may rise before
// it falls.
const (
	shrink   = .75
	patience = 3
)

// Ladder returns numbers of dropped entries of n, ascending from least to most.
func Ladder(n, least, most int) (all []int) {
	for kept := float64(n); ; kept *= shrink {
		drop := max(least, min(n-int(kept), most))
		if all = append(all, drop); drop == most {
			return slices.Compact(all)
		}
	}
}

// Climb tries the numbers of a ladder until some in a row are refused after one was accepted. It returns the place of the last
// one that was accepted, or -1.
func Climb(ladder []int, accept func(drop int) (bool, error)) (at int, err error) {
	at = -1
	for i, drop := range ladder {
		ok, err := accept(drop)
		switch {
		case err != nil:
			return at, err
		case ok:
			at = i
		case at >= 0 && i-at == patience:
			return at, nil
		}
	}
	return at, nil
}

// attempts is the number of choices that Kept measures.
const attempts = 12

// Kept returns the choice for tables of which the first drop entries of the order are dropped. Its
// rise of the loss is at most rise, in nat, both to second order and as measured, and its bytes are
// fewest. The second order is too low where the tables are pruned so far that rounding moves the
// logits a lot, so Kept lowers the bound on it until the measured rise is low enough. Of choices that
// all rise by more it returns the one that rises least.
func (s *Search) Kept(ctx context.Context, drop int, rise float64) (best *Found, err error) {
	c, start, err := s.chooser(ctx, drop)
	if err != nil {
		return nil, err
	}
	bound := rise
	for range attempts {
		found := *start
		if found.Choice, err = c.Rise(bound); err != nil {
			return nil, err
		}
		if found.Risen, err = s.Risen(ctx, &found); err != nil {
			return nil, err
		}
		if best == nil || found.Risen < best.Risen {
			best = &found
		}
		if best.Risen <= rise {
			break
		}
		bound = min(bound/2, bound*.9*rise/found.Risen)
	}
	return best, nil
}

// Bytes returns the choice whose tables take at most the given number of bytes. It compares several numbers of kept entries by the measured
// loss, because the second order is too low by more where the tables are smaller. Bytes returns nil if even the smallest tables are larger.
//
// It begins with the most entries that fit if all have the fewest bits, and keeps fewer until
// that is worse. Then it tries the numbers between the best one and its neighbours.
func (s *Search) Bytes(ctx context.Context, bytes int) (best *Found, err error) {
	drops := Ladder(len(s.Order), s.Least, s.Most)
	for len(drops) > 0 && s.least(drops[0]) > bytes {
		drops = drops[1:]
	}
	try := func(drop int) (better bool, err error) {
		c, found, err := s.chooser(ctx, drop)
		if err != nil {
			return false, err
		}
		found.Choice, err = c.Bytes(bytes)
		if err != nil || found.Choice == nil { // the codebook may need more bits than drops expects
			return false, err
		}
		if found.Risen, err = s.Risen(ctx, found); err != nil {
			return false, err
		}
		if better = best == nil || found.Loss+found.Risen < best.Loss+best.Risen; better {
			best = found
		}
		return better, nil
	}
	at, err := Climb(drops, try)
	if err != nil || best == nil {
		return nil, err
	}
	for _, next := range []int{at - 1, at + 1} {
		if next < 0 || next >= len(drops) {
			continue
		}
		n := float64(len(s.Order))
		middle := len(s.Order) - int(math.Sqrt((n-float64(drops[at]))*(n-float64(drops[next]))))
		if middle == drops[at] || middle == drops[next] {
			continue
		}
		if _, err := try(middle); err != nil {
			return nil, err
		}
	}
	return best, nil
}

// chooser measures the tables without the first drop entries of the order.
func (s *Search) chooser(ctx context.Context, drop int) (*Chooser, *Found, error) {
	found := &Found{Dropped: s.dropped(drop)}
	m, err := s.Measure(ctx, found.Dropped)
	if err != nil {
		return nil, nil, err
	}
	found.Loss = m.Loss
	return NewChooser(&Tables{s.Architecture, s.Entries, found.Dropped, s.Baseline, m.Curvature, m.BaselineCurvature, s.Size}), found, nil
}

// dropped returns the first drop entries of the order as a mask.
func (s *Search) dropped(drop int) []bool {
	dropped := make([]bool, len(s.Order))
	for _, i := range s.Order[:drop] {
		dropped[i] = true
	}
	return dropped
}

// least returns the bytes of tables without the first drop entries of the order, if all values
// have the fewest bits and each span has one word.
func (s *Search) least(drop int) int {
	spans := s.Architecture.Spans()
	last := &spans[len(spans)-1]
	p := &compact.Palette{Quantizers: []compact.Quantizer{{Bits: seeds[0], Step: 1}}, Rows: make([]uint8, last.Row+last.Rows), Codebook: make([]uint8, len(spans))}
	for _, row := range s.Architecture.FixedRows() {
		if p.Rows[row] = 1; len(p.Quantizers) == 1 {
			p.Quantizers = append(p.Quantizers, compact.Quantizer{Bits: 32})
		}
	}
	t := &Tables{Architecture: s.Architecture, Entries: s.Entries, Dropped: s.dropped(drop), Size: s.Size}
	bytes, err := t.bytes(model.Baseline{Values: s.Baseline.Values[:s.Architecture.BaselineSize()]}, p)
	if err != nil {
		return 0 // Choose reports it
	}
	return bytes
}

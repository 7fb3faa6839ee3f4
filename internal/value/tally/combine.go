package tally

// Combine returns the partial of the rows of a and b together. Both must be valid partials of the
// same form, for the same tables, of a job that is not paired. Combine returns ErrOverflow if a
// sum does not fit. It changes neither of them, but the result may share their memory.
func Combine(a, b *Partial) (*Partial, error) {
	if a.paired() || b.paired() {
		panic("tally: Combine: partials of a paired job")
	}
	whole := true
	plus := func(x, y int64) int64 {
		sum, ok := add(x, y)
		whole = whole && ok
		return sum
	}
	p := &Partial{
		Shape: a.Shape, Rows: plus(a.Rows, b.Rows), LossFull: plus(a.LossFull, b.LossFull), LossEmpty: plus(a.LossEmpty, b.LossEmpty),
		ResidualSquare: plus(a.ResidualSquare, b.ResidualSquare), Shared: plus(a.Shared, b.Shared), Walked: a.Walked + b.Walked,
	}
	form := a.Form()
	from, more, into := a.listsOf(form), b.listsOf(form), p.listsOf(form)
	n := Lists(form)
	features := merged(a.Features, b.Features)
	entries := 0
	for _, f := range features {
		first, end := p.Shape.Row(int(f))
		entries += end - first
	}
	p.Features, p.Count = features, make([]int64, len(features))
	for l := range n {
		*into[l] = make([]int64, entries)
	}
	for _, part := range []struct {
		*Partial
		lists [maxLists]*[]int64
	}{{a, from}, {b, more}} {
		i, k, at := 0, 0, 0 // position in the part's features, its first entry there, and that in p
		for j, f := range features {
			first, end := p.Shape.Row(int(f))
			d := end - first
			if i < len(part.Features) && part.Features[i] == f {
				p.Count[j] += part.Count[i]
				for l := range n {
					if addAll((*into[l])[at:at+d], (*part.lists[l])[k:k+d]) {
						whole = false
					}
				}
				i, k = i+1, k+d
			}
			at += d
		}
	}
	if !whole {
		return nil, ErrOverflow
	}
	return p, nil
}

// merged returns the numbers of two ascending lists in ascending order, each once.
func merged(a, b []int32) []int32 {
	all := make([]int32, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			all, a = append(all, a[0]), a[1:]
		case a[0] > b[0]:
			all, b = append(all, b[0]), b[1:]
		default:
			all, a, b = append(all, a[0]), a[1:], b[1:]
		}
	}
	return append(append(all, a...), b...)
}

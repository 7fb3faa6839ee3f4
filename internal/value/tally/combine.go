package tally

// Combine returns the partial of the rows of a and b together. Both must be valid partials of the
// same form, for the same tables, of a job that is not paired. It changes neither of them, but the
// result may share their memory.
func Combine(a, b *Partial) *Partial {
	if a.paired() || b.paired() {
		panic("tally: Combine: partials of a paired job")
	}
	p := &Partial{Shape: a.Shape, Dropped: a.Dropped, Rows: a.Rows + b.Rows, Walked: a.Walked + b.Walked, Fresh: a.Fresh + b.Fresh, Weights: a.Weights, Check: a.Check + b.Check}
	p.Weights.add(b.Weights)
	form := a.Form()
	into, n := p.listsOf(form), Lists(form)
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
	high := func(list int) []int64 { // the list of p.High
		p.needHigh()
		into := p.High.listsOf(form)[list]
		if *into == nil {
			*into = make([]int64, entries)
		}
		return *into
	}
	for _, part := range []*Partial{a, b} {
		p.addHeads(part)
		lists := part.AllLists()
		i, k, at := 0, 0, 0 // position in the part's features, its first entry there, and that in p
		for j, f := range features {
			first, end := p.Shape.Row(int(f))
			d := end - first
			if i < len(part.Features) && part.Features[i] == f {
				p.Count[j] += part.Count[i]
				for l, list := range lists {
					x := (*list)[k : k+d]
					if l >= n {
						addAll(high(l - n)[at:], x)
					} else if sums := (*into[l])[at:]; addAll(sums, x) {
						carryOver(sums, high(l)[at:], x)
					}
				}
				i, k = i+1, k+d
			}
			at += d
		}
	}
	if p.High != nil {
		for l := range n {
			high(l)
		}
	}
	return p
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

package match

import (
	"cmp"
	"errors"
	"slices"
)

// monomial is a product of at most three atoms, 21 bits each, in ascending order with
// zeros in front. Zero is the empty product.
type monomial uint64

const (
	atomBits = 21
	maxAtom  = 1<<atomBits - 1
)

// atoms returns the atoms of m in descending order. Those that m does not have are 0.
func (m monomial) atoms() [3]atom {
	return [3]atom{atom(m & maxAtom), atom(m >> atomBits & maxAtom), atom(m >> (2 * atomBits) & maxAtom)}
}

// degree returns the number of atoms of m.
func (m monomial) degree() int {
	n := 0
	for _, a := range m.atoms() {
		if a != 0 {
			n++
		}
	}
	return n
}

var errDegree = errors.New("a product has more than three factors")

// times returns the product of m and o.
func (m monomial) times(o monomial) (monomial, error) {
	if m.degree()+o.degree() > 3 {
		return 0, errDegree
	}
	var all []atom
	for _, n := range []monomial{m, o} {
		for _, a := range n.atoms() {
			if a != 0 {
				all = append(all, a)
			}
		}
	}
	slices.Sort(all)
	product := monomial(0)
	for _, a := range all {
		product = product<<atomBits | monomial(a)
	}
	return product, nil
}

// term is a monomial times a factor that is not 0.
type term struct {
	monomial monomial
	factor   float64
}

// polynomial is a sum of terms with different monomials in ascending order. It is
// read-only, because elements of several values share it.
type polynomial []term

func number(v float64) polynomial {
	if v == 0 {
		return nil
	}
	return polynomial{{0, v}}
}

// constant returns p if it is a number.
func (p polynomial) constant() (v float64, ok bool) {
	switch {
	case len(p) == 0:
		return 0, true
	case len(p) == 1 && p[0].monomial == 0:
		return p[0].factor, true
	}
	return 0, false
}

// atom returns p if it is an atom, else 0.
func (p polynomial) atom() atom {
	if len(p) == 1 && p[0].factor == 1 && p[0].monomial <= maxAtom {
		return atom(p[0].monomial)
	}
	return 0
}

// affine returns a, s and t if p is s*a + t for an atom a and numbers s and t.
func (p polynomial) affine() (a atom, s, t float64) {
	if len(p) > 0 && p[0].monomial == 0 {
		t, p = p[0].factor, p[1:]
	}
	if len(p) != 1 || p[0].monomial > maxAtom {
		return 0, 0, 0
	}
	return atom(p[0].monomial), p[0].factor, t
}

func (p polynomial) scaled(s float64) polynomial {
	if s == 1 {
		return p
	}
	out := make(polynomial, 0, len(p))
	for _, t := range p {
		if f := t.factor * s; f != 0 {
			out = append(out, term{t.monomial, f})
		}
	}
	return out
}

// collect adds terms that have any order, which it changes.
func collect(terms []term) polynomial {
	slices.SortStableFunc(terms, func(a, b term) int { return cmp.Compare(a.monomial, b.monomial) })
	out := terms[:0]
	for _, t := range terms {
		if n := len(out); n > 0 && out[n-1].monomial == t.monomial {
			out[n-1].factor += t.factor
		} else {
			out = append(out, t)
		}
	}
	return slices.DeleteFunc(out, func(t term) bool { return t.factor == 0 })
}

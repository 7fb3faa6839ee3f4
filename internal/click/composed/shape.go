// Package composed computes embedding tables from smaller tensors. A composed table stands
// for a table [n, d], of which each row is a function of a few rows of the tensors.
//
// All numbers are float32, and every product and sum rounds on its own. The embeddings and the
// gradients therefore have the same bits on all processors and on any number of cores.
package composed

import (
	"fmt"
	"math"
)

// Scheme says how the rows of a table follow from the tensors.
type Scheme string

// The schemes.
const (
	// QR multiplies two rows by elements: feature i of n reads row i mod q and row i div q (Shi et
	// al., "Compositional embeddings using complementary partitions", KDD 2020).
	QR Scheme = "qr"
	// TT is a tensor train: feature i selects a matrix in each core, and its row is their product
	// (Yin et al., "TT-Rec: tensor train compression for deep learning recommendation models",
	// MLSys 2021). The most frequent features may have rows of their own, the cache.
	TT Scheme = "tt"
	// CERP adds two rows of sparse tables with B rows: feature i reads row i mod B of P and row i
	// div ceil(n/B) of Q (Liang et al., "Learning compact compositional embeddings via regularized
	// pruning for recommendation", ICDM 2023).
	CERP Scheme = "cerp"
)

// Shape describes the tensors of a composed table. Each scheme has fields of its own, and the
// others are 0.
type Shape struct {
	Scheme   Scheme `json:"scheme"`
	Features int    `json:"features"` // n, at least 1 and below 2^31
	Dim      int    `json:"dim"`      // d, 1 to 65536

	Divider int `json:"divider,omitempty"` // q of QR, 1 to n

	// Core i of TT has the shape [Rows[i], Ranks[i-1], Columns[i], Ranks[i]], where the first and
	// the last rank are 1 and not in Ranks. The product of Rows is at least n, and that of Columns
	// is d. The first core has the most significant digit of a feature, and of a column.
	Rows    []int `json:"rows,omitempty"`
	Columns []int `json:"columns,omitempty"`
	Ranks   []int `json:"ranks,omitempty"`
	Cached  int   `json:"cached,omitempty"` // number of features with rows of their own, at most n

	Buckets int `json:"buckets,omitempty"` // B of CERP, 1 to n
}

// The limits of a shape. They bound the memory of a product of TT.
const (
	maxDim   = 1 << 16
	maxCores = 8
	maxLeft  = 1 << 22                 // numbers of a product of the first cores
	maxSize  = min(1<<40, math.MaxInt) // numbers of a tensor
)

// Validate returns an error that names the first invalid field.
func (s *Shape) Validate() error {
	within := func(name string, value, most int) error {
		if value < 1 || value > most {
			return fmt.Errorf("%s is %d, expected 1 to %d", name, value, most)
		}
		return nil
	}
	if err := within("features", s.Features, math.MaxInt32); err != nil {
		return err
	}
	if err := within("dim", s.Dim, maxDim); err != nil {
		return err
	}
	own := Shape{Scheme: s.Scheme, Features: s.Features, Dim: s.Dim}
	var err error
	switch s.Scheme {
	case QR:
		own.Divider = s.Divider
		err = within("divider", s.Divider, s.Features)
	case TT:
		own.Rows, own.Columns, own.Ranks, own.Cached = s.Rows, s.Columns, s.Ranks, s.Cached
		err = s.validateTrain()
	case CERP:
		own.Buckets = s.Buckets
		err = within("buckets", s.Buckets, s.Features)
	default:
		return fmt.Errorf("scheme is %q, expected %s, %s or %s", s.Scheme, QR, TT, CERP)
	}
	if err == nil && !own.equal(s) {
		err = fmt.Errorf("a shape of scheme %s has a field of another scheme", s.Scheme)
	}
	return err
}

func (s *Shape) equal(o *Shape) bool {
	return s.Divider == o.Divider && s.Cached == o.Cached && s.Buckets == o.Buckets &&
		len(s.Rows) == len(o.Rows) && len(s.Columns) == len(o.Columns) && len(s.Ranks) == len(o.Ranks)
}

func (s *Shape) validateTrain() error {
	cores := len(s.Rows)
	if cores < 2 || cores > maxCores || len(s.Columns) != cores || len(s.Ranks) != cores-1 {
		return fmt.Errorf("rows, columns and ranks have %d, %d and %d numbers: expected 2 to %d rows, as many columns, and one rank fewer", cores, len(s.Columns), len(s.Ranks), maxCores)
	}
	if s.Cached < 0 || s.Cached > s.Features {
		return fmt.Errorf("cached is %d, expected 0 to %d", s.Cached, s.Features)
	}
	rows, columns := 1, 1
	for i := range cores {
		p, q, r := s.Rows[i], s.Columns[i], s.rank(i+1)
		if p < 1 || p > math.MaxInt32 || q < 1 || q > s.Dim || r < 1 || r > maxLeft {
			return fmt.Errorf("core %d has %d rows, %d columns and the rank %d: expected numbers of at least 1, at most 2^31-1, %d and %d", i, p, q, r, s.Dim, maxLeft)
		}
		columns *= q
		if columns > s.Dim || columns*r > maxLeft {
			return fmt.Errorf("the columns of cores 0 to %d have the product %d and the rank %d: expected at most %d columns and %d numbers", i, columns, r, s.Dim, maxLeft)
		}
		if p > maxSize/(s.rank(i)*q)/r {
			return fmt.Errorf("core %d has more than %d numbers", i, maxSize)
		}
		rows = min(rows*p, math.MaxInt32)
	}
	if columns != s.Dim || rows < s.Features {
		return fmt.Errorf("the cores have %d rows and %d columns: expected at least %d and exactly %d", rows, columns, s.Features, s.Dim)
	}
	return nil
}

// rank returns the rank before core i of TT. It is 1 before the first core and after the last.
func (s *Shape) rank(i int) int {
	if i == 0 || i == len(s.Rows) {
		return 1
	}
	return s.Ranks[i-1]
}

// Tensor is one of the arrays from which a table is computed.
type Tensor struct {
	Name   string // as in the reference's state dicts, without the name of the module
	Shape  []int
	Values []float32 // row-major
}

// Elements returns the number of values of a tensor with t's shape.
func (t *Tensor) Elements() int {
	n := 1
	for _, size := range t.Shape {
		n *= size
	}
	return n
}

// Tensors returns the names and the shapes of the tensors of s, without values. s must be valid.
func (s *Shape) Tensors() []Tensor {
	switch s.Scheme {
	case QR:
		return []Tensor{
			{Name: "emb1.weight", Shape: []int{s.Divider, s.Dim}},
			{Name: "emb2.weight", Shape: []int{quotient(s.Features, s.Divider), s.Dim}},
		}
	case CERP:
		return []Tensor{{Name: "p_weight", Shape: []int{s.Buckets, s.Dim}}, {Name: "q_weight", Shape: []int{s.Buckets, s.Dim}}}
	}
	var all []Tensor
	for i, p := range s.Rows {
		all = append(all, Tensor{Name: fmt.Sprintf("tt_cores.%d", i), Shape: []int{1, p, s.rank(i) * s.Columns[i] * s.rank(i+1)}})
	}
	if s.Cached > 0 {
		all = append(all, Tensor{Name: "cache_weight", Shape: []int{s.Cached, s.Dim}})
	}
	return all
}

// quotient returns ceil(a/b).
func quotient(a, b int) int { return (a + b - 1) / b }

// Entries returns the number of values that the embeddings read: those of all tensors, except the
// rows of CERP's Q that no feature reads. s must be valid.
func (s *Shape) Entries() (n int) {
	if s.Scheme == CERP {
		return (s.Buckets + s.ReadRows()) * s.Dim
	}
	for _, t := range s.Tensors() {
		n += t.Elements()
	}
	return n
}

// ReadRows returns the number of rows of CERP's Q that features read. They are the first.
func (s *Shape) ReadRows() int { return quotient(s.Features, quotient(s.Features, s.Buckets)) }

package train

import (
	"context"
	"fmt"
	"slices"

	"shaver/internal/num/random"
)

// The numbers of OptEmbed's search.
const (
	generations   = 30
	population    = 20
	elite         = 15  // candidates from which the next generation comes
	crossovers    = 10  // of a generation after the first; the others are mutations
	mutated       = 0.1 // probability that a mutation draws the width of a field again
	widthAttempts = 100 // draws of a candidate before it is made to fit the budget
)

// Widths is a candidate of OptEmbed's search: the number of leading columns that each field
// keeps, from 1 to the dimension.
type Widths struct {
	Columns []int    `json:"columns"` // [fields]
	Metrics *Metrics `json:"metrics"`
}

// Evolution searches the widths of the fields as OptEmbed does. There are 30 generations of
// 20 candidates. Those of the first are random. Each later generation has 10 crossovers, which take the
// width of each field from one of two candidates of the elite, and 10 mutations of
// candidates of the elite. The elite is the best 15 of all candidates so far, and of equal
// ones the oldest.
type Evolution struct {
	Seed   uint64
	Dim    int
	Alive  []int // [fields], number of features that the field's threshold keeps
	Budget int   // largest number of entries that a candidate keeps; at least the sum of Alive

	// Fitness returns the metrics of a candidate. It may not keep or change columns.
	Fitness func(ctx context.Context, columns []int) (*Metrics, error)
	// Done is called after each candidate. It may be nil.
	Done func() error

	// Seen has all candidates so far, the oldest first. A caller that continues a search sets it.
	Seen []Widths
}

// Entries returns the number of entries that columns keeps.
func (e *Evolution) Entries(columns []int) (n int) {
	for j, c := range columns {
		n += c * e.Alive[j]
	}
	return n
}

// Candidates returns the number of candidates of a whole search.
func (e *Evolution) Candidates() int { return generations * population }

// Run searches and returns the best candidate. It returns the error of ctx, Fitness or Done.
// Only the seed and Fitness decide the result.
func (e *Evolution) Run(ctx context.Context) (*Widths, error) {
	if smallest := e.Entries(slices.Repeat([]int{1}, len(e.Alive))); smallest > e.Budget {
		return nil, fmt.Errorf("one column of each of the %d remaining features has more than %d entries", smallest, e.Budget)
	}
	for number := len(e.Seen); number < e.Candidates(); number++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		columns := e.candidate(number)
		metrics, err := e.Fitness(ctx, columns)
		if err != nil {
			return nil, err
		}
		e.Seen = append(e.Seen, Widths{columns, metrics})
		if e.Done != nil {
			if err := e.Done(); err != nil {
				return nil, err
			}
		}
	}
	return &e.elite(len(e.Seen))[0], nil
}

// elite returns the best of the first n candidates, the best first.
func (e *Evolution) elite(n int) []Widths {
	best := slices.Clone(e.Seen[:n])
	slices.SortStableFunc(best, func(a, b Widths) int {
		switch {
		case a.Metrics.Better(b.Metrics):
			return -1
		case b.Metrics.Better(a.Metrics):
			return 1
		}
		return 0
	})
	return best[:min(elite, n)]
}

// candidate draws a candidate. Those of a generation depend on the generations before it only.
func (e *Evolution) candidate(number int) []int {
	generation, k := number/population, number%population
	var best []Widths
	if generation > 0 {
		best = e.elite(generation * population)
	}
	stream := random.At(e.Seed, random.Evolution, uint64(number), 0)
	columns := make([]int, len(e.Alive))
	width := func() int { return 1 + int(stream.Below(uint64(e.Dim))) }
	parent := func() []int { return best[stream.Below(uint64(len(best)))].Columns }
	for range widthAttempts {
		switch {
		case generation == 0:
			for j := range columns {
				columns[j] = width()
			}
		case k < crossovers:
			a, b := parent(), parent()
			for j := range columns {
				columns[j] = a[j]
				if stream.Below(2) == 1 {
					columns[j] = b[j]
				}
			}
		default:
			copy(columns, parent())
			for j := range columns {
				if stream.Float64() < mutated {
					columns[j] = width()
				}
			}
		}
		if e.Entries(columns) <= e.Budget {
			return columns
		}
	}
	for e.Entries(columns) > e.Budget {
		if j := stream.Below(uint64(len(columns))); columns[j] > 1 {
			columns[j]--
		}
	}
	return columns
}

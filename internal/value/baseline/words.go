package baseline

import (
	"cmp"
	"math"
	"runtime"
	"slices"
	"sync"

	"shaver/internal/click/model"
	"shaver/internal/num/random"
)

const (
	clusterRows  = 1 << 15 // largest number of rows of a span from which clusters are found; all rows then read the nearest word
	clusterSteps = 20      // largest number of steps of k-means
)

// Finder finds the words of the tables of a model. Only one goroutine may use it at a time.
type Finder struct {
	a           *model.Architecture
	spans       []model.Span
	table       []float32
	codebook    []float32
	occurrences []int64          // by row of all tables; 0 for fixed rows
	found       map[[2]int]found // by span and number of words
}

// found is what k-means found.
type found struct {
	words   []float32
	numbers []uint8 // of the rows of the span
}

// NewFinder returns a finder for the tables of a. counts are the occurrences of the features, [n].
func NewFinder(a *model.Architecture, table []float32, counts []int64) *Finder {
	values, _ := codebook(a, table, counts)
	occurrences := slices.Clone(a.RowCounts(counts))
	for _, row := range a.FixedRows() {
		occurrences[row] = 0
	}
	return &Finder{a, a.Spans(), table, values, occurrences, map[[2]int]found{}}
}

// Occurring returns the number of rows of each span that occur and are not fixed.
func (f *Finder) Occurring() []int {
	all := make([]int, len(f.spans))
	for j, s := range f.spans {
		for _, w := range f.occurrences[s.Row:][:s.Rows] {
			if w > 0 {
				all[j]++
			}
		}
	}
	return all
}

// Words returns the baseline in which span j has at most most[j] words, and at most MostWords. The words of a span are those of
// k-means of its rows, which count as often as the features that read them occur, in the order of how much they count. A
// span of one word has the codebook. A row that does not occur reads the first word. The result does not depend on earlier calls.
func (f *Finder) Words(most []int) model.Baseline {
	b := model.Baseline{Values: slices.Clone(f.codebook)}
	last := &f.spans[len(f.spans)-1]
	numbers := make([]uint8, last.Row+last.Rows)
	several := false
	for j := range f.spans {
		s, key := &f.spans[j], [2]int{j, most[j]}
		w, known := f.found[key]
		if !known && most[j] > 1 {
			w.numbers = make([]uint8, s.Rows)
			c := &clusters{span: s, table: f.table[s.Entry : s.Entry+s.Rows*s.Dim], weights: f.occurrences[s.Row:][:s.Rows]}
			w.words = c.find(most[j], uint64(j), w.numbers)
			f.found[key] = w
		}
		n := max(1, len(w.words)/s.Dim)
		b.Words = append(b.Words, n)
		if n == 1 {
			continue
		}
		several = true
		copy(numbers[s.Row:], w.numbers)
		for _, r := range s.Readers() {
			copy(b.Values[r.Baseline:], w.words[:s.Dim])
		}
		b.Values = append(b.Values, w.words[s.Dim:]...)
	}
	if b.Numbers = numbers; !several {
		b.Words, b.Numbers = nil, nil
	}
	return b
}

// Renew returns b with words of the table of f: a word is the mean of the rows that read it and drop an entry, weighted as those of
// Words. A word that no such row reads stays, and a span of one word has the codebook. b is a baseline of the model, and dropped,
// [Parameters], a mask.
func (f *Finder) Renew(b model.Baseline, dropped []bool) model.Baseline {
	book, values := f.a.Book(b), slices.Clone(b.Values)
	copy(values, f.codebook)
	for j := range f.spans {
		s, n := &f.spans[j], book.NumberOfWords(j)
		if n == 1 {
			continue
		}
		c := &clusters{span: s, table: f.table[s.Entry:][:s.Rows*s.Dim], weights: slices.Clone(f.occurrences[s.Row:][:s.Rows])}
		for i := range c.weights {
			if !slices.Contains(dropped[s.Entry+i*s.Dim:][:s.Dim], true) { // and so reads no word
				c.weights[i] = 0
			}
		}
		for k := range n {
			for _, v := range book.Word(j, k) {
				c.words = append(c.words, float64(v))
			}
		}
		c.means(b.Numbers[s.Row:][:s.Rows], func(i int) int { return i })
		for i, v := range c.words {
			values[book.Position(j, i/s.Dim)+i%s.Dim] = float32(v)
		}
		for _, r := range s.Sharers {
			copy(values[r.Baseline:], values[s.Baseline:][:s.Dim])
		}
	}
	b.Values = values
	return b
}

// clusters finds the words of a span.
type clusters struct {
	span    *model.Span
	table   []float32 // of the span, [rows, dim]
	weights []int64   // how often each row is read, [rows]; 0 if it is fixed
	rows    []int     // sample of the rows with a weight
	words   []float64 // [k, dim]
}

// find returns at most k words, [words, dim], and sets the numbers of the rows.
func (c *clusters) find(k int, index uint64, numbers []uint8) []float32 {
	c.sample()
	c.begin(min(k, model.MostWords), index)
	if len(c.words) == 0 { // no row has a weight
		return nil
	}
	nearest := make([]uint8, len(c.rows))
	for range clusterSteps {
		before := slices.Clone(nearest)
		c.assign(nearest, func(i int) int { return c.rows[i] })
		c.means(nearest, func(i int) int { return c.rows[i] })
		if slices.Equal(before, nearest) {
			break
		}
	}
	c.assign(numbers, func(i int) int { return i })
	return c.settle(numbers)
}

// sample takes evenly many rows among those with a weight.
func (c *clusters) sample() {
	for i, w := range c.weights {
		if w > 0 {
			c.rows = append(c.rows, i)
		}
	}
	n := len(c.rows)
	for i := range min(n, clusterRows) {
		c.rows[i] = c.rows[i*n/min(n, clusterRows)]
	}
	c.rows = c.rows[:min(n, clusterRows)]
}

// row returns row i of the span.
func (c *clusters) row(i int) []float32 { return c.table[i*c.span.Dim:][:c.span.Dim] }

// distance returns the squared distance of a row from a word.
func distance(row []float32, word []float64) (sum float64) {
	for i, v := range row {
		d := float64(v) - word[i]
		sum += float64(d * d)
	}
	return sum
}

// begin sets words to at most k rows of the sample, each drawn with a probability proportional to its weight times the squared distance from those
// before (k-means++, Arthur and Vassilvitskii, 2007).
func (c *clusters) begin(k int, index uint64) {
	stream := random.At(0, random.Words, index, uint64(k))
	away := make([]float64, len(c.rows))
	for i, r := range c.rows {
		away[i] = float64(c.weights[r])
	}
	for n := range k {
		total := 0.0
		for _, v := range away {
			total += v
		}
		if !(total > 0) || math.IsInf(total, 0) {
			return
		}
		at, left := len(away)-1, stream.Float64()*total
		for i, v := range away {
			if left -= v; left < 0 {
				at = i
				break
			}
		}
		for _, v := range c.row(c.rows[at]) {
			c.words = append(c.words, float64(v))
		}
		word := c.words[len(c.words)-c.span.Dim:]
		for i, r := range c.rows {
			d := float64(distance(c.row(r), word) * float64(c.weights[r]))
			if n == 0 || d < away[i] {
				away[i] = d
			}
		}
	}
}

// assign sets the number of each of some rows to that of the nearest word.
func (c *clusters) assign(numbers []uint8, row func(i int) int) {
	var group sync.WaitGroup
	threads := runtime.GOMAXPROCS(0)
	for t := range threads {
		group.Go(func() {
			for i := t * len(numbers) / threads; i < (t+1)*len(numbers)/threads; i++ {
				x, least := c.row(row(i)), math.Inf(1)
				for n := range len(c.words) / c.span.Dim {
					if d := distance(x, c.words[n*c.span.Dim:]); d < least {
						numbers[i], least = uint8(n), d
					}
				}
			}
		})
	}
	group.Wait()
}

// means moves each word to the mean of the rows that read it. A word that no row reads stays.
func (c *clusters) means(numbers []uint8, row func(i int) int) (totals []float64) {
	d := c.span.Dim
	sums := make([]float64, len(c.words))
	totals = make([]float64, len(c.words)/d)
	for i, n := range numbers {
		w := float64(c.weights[row(i)])
		totals[n] += w
		for k, v := range c.row(row(i)) {
			sums[int(n)*d+k] += float64(w * float64(v))
		}
	}
	for i, sum := range sums {
		if total := totals[i/d]; total > 0 {
			c.words[i] = sum / total
		}
	}
	return totals
}

// settle returns the words that rows with a weight read, in the order of how much these count, and sets the numbers to this order.
func (c *clusters) settle(numbers []uint8) []float32 {
	d := c.span.Dim
	totals := c.means(numbers, func(i int) int { return i })
	order := make([]int, len(totals))
	for n := range order {
		order[n] = n
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(totals[y], totals[x]) })
	var words []float32
	place := make([]uint8, len(totals))
	for at, n := range order {
		if totals[n] == 0 {
			break
		}
		place[n] = uint8(at)
		for _, v := range c.words[n*d : (n+1)*d] {
			words = append(words, float32(v))
		}
	}
	for i, n := range numbers {
		if numbers[i] = place[n]; c.weights[i] == 0 {
			numbers[i] = 0
		}
	}
	return words
}

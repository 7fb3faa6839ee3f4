package prepare

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"go.uber.org/zap"

	"shaver/internal/base/fault"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/gap"
	"shaver/internal/jobs/job"
	"shaver/internal/num/loss"
	"shaver/internal/value/baseline"
	"shaver/internal/value/mask"
)

const (
	wordRows      = 1 << 14 // largest number of rows by which the numbers of words are chosen
	leastUnseen   = 256     // smallest number of such rows
	mostTable     = 1 << 24 // largest number of rows of all tables, whose numbers are in the metadata of scores
	rowsPerWord   = 40      // least number of occurring rows of a table for each of its words
	moreWords     = 4       // ratio between the numbers of words that are tried
	wordShare     = 64      // ratio between the bits of the whole tables and of those for which the numbers are chosen
	sampleEntries = 1 << 21 // largest number of entries by which the least value of a kept one is found
	entryBits     = 12      // about the bits of a kept entry of such tables: its value and its position
	wordBits      = 8       // about the bits of a value of a word
)

// lastWords keeps the words that were found last, because a program prepares the same job several times.
var lastWords struct {
	mu    sync.Mutex
	of    string
	words model.Baseline
}

// words returns the words of the tables of m. Their numbers are those with which tables of a given size have the least
// loss, after a calibration, on rows that the model has not seen, which are those of the split fresh if it has enough, or else val. The size
// is that of the words, of the numbers of all rows, and of as many entries as fit, which are those that mask.Frequency keeps. First all spans have
// as many words as their rows allow, up to a limit; then each has more or fewer if that is clearly better.
func (r *Request) words(m *model.Model, digest string, tasks []model.Task, kind loss.Kind, counts []int64, log *zap.Logger) (model.Baseline, error) {
	lastWords.mu.Lock()
	defer lastWords.mu.Unlock()
	of := fmt.Sprint(digest, r.Dataset.Digest(), tasks, m.Frozen, kind)
	if lastWords.of == of {
		logWords(log, &lastWords.words)
		return lastWords.words, nil
	}
	w := &wordFinder{model: m, kind: kind, counts: counts, finder: baseline.NewFinder(&m.Architecture, m.Weights.Embedding, counts)}
	split := dataset.Val
	if r.Dataset.Rows(dataset.Fresh) >= leastUnseen {
		split = dataset.Fresh
	}
	if shape := m.Shape(); shape.Rows() > mostTable {
		log.Info("one word for each field, because the tables are large", zap.Int("rows", shape.Rows()), zap.Int("most", mostTable))
		return w.finder.Words(make([]int, len(m.Spans()))), nil
	}
	log.Info("choosing the words that dropped entries read")
	var err error
	if w.rows, err = gap.Draw(context.Background(), m, r.Dataset, &job.Spec{}, split, wordRows); err != nil {
		return model.Baseline{}, err
	}
	if w.rows.Len() < leastUnseen {
		log.Info("one word for each field, because few rows are there that the model has not seen", zap.String("split", split), zap.Int("rows", w.rows.Len()), zap.Int("enough", leastUnseen))
		return w.finder.Words(make([]int, len(m.Spans()))), nil
	}
	if err := w.choose(); err != nil {
		return model.Baseline{}, err
	}
	logWords(log, &w.words)
	lastWords.of, lastWords.words = of, w.words
	return w.words, nil
}

// logWords logs the numbers of words of b that were chosen.
func logWords(log *zap.Logger, b *model.Baseline) {
	if b.Words == nil {
		log.Debug("one word for each field: several are not better on rows that the model has not seen")
		return
	}
	log.Info("words for what is dropped", zap.Ints("of each table", b.Words))
}

// wordFinder chooses numbers of words.
type wordFinder struct {
	model  *model.Model
	kind   loss.Kind
	counts []int64 // occurrences of the features
	finder *baseline.Finder
	rows   *model.Rows

	// The best so far.
	numbers     []int // by span
	words       model.Baseline
	predictions *evaluate.Predictions
}

// try takes other numbers of words if their loss is clearly lower: the 95% interval of the difference is below 0.
func (w *wordFinder) try(numbers []int) (taken bool, err error) {
	words := w.finder.Words(numbers)
	p, err := w.predict(words)
	if err != nil || p == nil {
		return false, err
	}
	if w.numbers != nil {
		d := evaluate.CompareLoss(w.predictions, p, evaluate.Calibrate(w.predictions), evaluate.Calibrate(p))
		if !(d.High < 0) {
			return false, nil
		}
	}
	w.numbers, w.words, w.predictions = numbers, words, p
	return true, nil
}

// choose finds the best numbers.
func (w *wordFinder) choose() error {
	occurring := w.finder.Occurring()
	most := func(j, limit int) int { return max(1, min(occurring[j]/rowsPerWord, limit, model.MostWords)) }
	for limit, refused := 1, 0; limit <= model.MostWords && refused < 2; limit *= moreWords {
		all := make([]int, len(occurring))
		for j := range all {
			all[j] = most(j, limit)
		}
		taken, err := w.try(all)
		if err != nil {
			return err
		}
		if refused++; taken {
			refused = 0
		}
	}
	spans := make([]int, len(occurring))
	for j := range spans {
		spans[j] = j
	}
	slices.SortStableFunc(spans, func(x, y int) int { return cmp.Compare(occurring[y], occurring[x]) })
	for _, j := range spans {
		at := w.numbers[j]
		for _, n := range []int{1, at / moreWords, at * moreWords} {
			if n = most(j, n); n != w.numbers[j] {
				all := slices.Clone(w.numbers)
				all[j] = n
				if _, err := w.try(all); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// predict returns what the model predicts with tables of the size in which words are compared, or nil if b alone takes more.
func (w *wordFinder) predict(b model.Baseline) (*evaluate.Predictions, error) {
	a, table := &w.model.Architecture, w.model.Weights.Embedding
	left := 32*float64(len(table))/wordShare - float64(wordBits*(len(b.Values)-a.BaselineSize())) - numberBits(a.Book(b))
	if left < 0 {
		return nil, nil
	}
	m := w.model.WithEmbedding(mask.Apply(a, table, w.drop(mask.Frequency(a, table, b, w.counts), left/entryBits), b))
	source := func(_ context.Context, each func(*model.Rows) error) error { return each(w.rows) }
	p, err := evaluate.Predict(context.Background(), m, w.kind, source, runtime.GOMAXPROCS(0))
	if err != nil {
		return nil, fault.Inputf("%w", err)
	}
	return p, nil
}

// drop returns which entries are dropped so that about the given number with the largest values is kept. It does not drop fixed rows. The
// least value that is kept is that of evenly many entries.
func (w *wordFinder) drop(values []float64, kept float64) []bool {
	shape := w.model.Shape()
	for _, row := range w.model.FixedRows() {
		for from, to := shape.Row(row); from < to; from++ {
			values[from] = math.Inf(1)
		}
	}
	n := min(len(values), sampleEntries)
	some := make([]float64, n)
	for i := range some {
		some[i] = values[i*len(values)/n]
	}
	slices.Sort(some)
	least := math.Inf(1)
	if at := n - 1 - int(kept*float64(n)/float64(len(values))); at >= 0 {
		least = some[at]
	}
	dropped := make([]bool, len(values))
	for i, v := range values {
		dropped[i] = v <= least && !math.IsInf(v, 1)
	}
	return dropped
}

// numberBits returns the bits of the numbers of words of all rows, at their entropy.
func numberBits(k *model.Book) (sum float64) {
	for j, s := range k.Spans {
		var rows [model.MostWords]float64
		for i := range s.Rows {
			rows[k.Number(j, i)]++
		}
		for _, n := range rows {
			if n > 0 {
				sum -= float64(n * math.Log2(n/float64(s.Rows)))
			}
		}
	}
	return sum
}

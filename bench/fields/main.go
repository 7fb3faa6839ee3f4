// Command fields compares ways to choose the fields that a model can do without. It removes the
// fields one after the other in three orders, and measures what is left on the test split: the
// path of shaver prune --fields, permutation importance, and the first-order term of Taylor's
// expansion, as SHARK computes it (Zhang et al., CIKM 2023). The last two measure the whole model
// once. Then it removes columns along a path. It prints tables in Markdown, with the time of a row
// relative to the whole model on one core.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"time"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/num/loss"
	"shaver/internal/num/random"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/slice"
)

func main() {
	file := flag.String("model", "", "model of a state dict (required)")
	folder := flag.String("dataset", "", "dataset with the splits val and test (required)")
	flag.Parse()
	if *file == "" || *folder == "" {
		fmt.Fprintln(os.Stderr, "fields: expected -model FILE and -dataset FOLDER")
		os.Exit(2)
	}
	if err := run(context.Background(), *file, *folder); err != nil {
		fmt.Fprintln(os.Stderr, "fields:", err)
		os.Exit(1)
	}
}

// bench is a model with rows.
type bench struct {
	ck        *checkpoint.Checkpoint
	names     []string
	val, test *model.Rows
	whole     *evaluate.Ranking // of test
}

func run(ctx context.Context, file, folder string) error {
	ck, err := checkpoint.Read(file)
	if err != nil {
		return err
	}
	d, err := dataset.Open(folder)
	if err != nil {
		return err
	}
	b := &bench{ck: ck, names: d.Fields()}
	if b.val, err = rowsOf(ctx, d, dataset.Val); err != nil {
		return err
	}
	if b.test, err = rowsOf(ctx, d, dataset.Test); err != nil {
		return err
	}
	p, err := predict(ctx, ck, b.test)
	if err != nil {
		return err
	}
	b.whole = evaluate.Rank(p)
	metrics := p.Metrics()
	fmt.Printf("%s, %d test rows: AUC %.4f, LogLoss %.4f\n\n", file, b.test.Len(), metrics.AUC, p.MeanLoss(loss.Uncalibrated))
	o := cut.Options{Model: file, Dataset: []string{folder}, Slicing: cut.Slicing{KeepFields: 1}}
	began := time.Now()
	r, err := o.Choose(ctx)
	if err != nil {
		return err
	}
	took := time.Since(began)
	var path []int
	for _, s := range r.Path {
		path = append(path, slices.Index(b.names, s.Field))
	}
	permuted, err := b.permutation(ctx)
	if err != nil {
		return err
	}
	taylor, err := b.taylor()
	if err != nil {
		return err
	}
	if err := b.fields(ctx, path, permuted, taylor, r.Path); err != nil {
		return err
	}
	fmt.Printf("\nThe path took %.1f s.\n\n", took.Seconds())
	o.KeepFields, o.KeepColumns = 0, 1
	if r, err = o.Choose(ctx); err != nil {
		return err
	}
	return b.columns(ctx, r.Path)
}

// rowsOf reads a split.
func rowsOf(ctx context.Context, d *dataset.Dataset, split string) (*model.Rows, error) {
	all := &model.Rows{}
	err := d.Scan(ctx, []string{split}, 4096, func(rows *model.Rows) error {
		for i := range rows.Label {
			all.Append(rows, i)
		}
		return nil
	})
	return all, err
}

func predict(ctx context.Context, ck *checkpoint.Checkpoint, rows *model.Rows) (*evaluate.Predictions, error) {
	m, err := ck.Model()
	if err != nil {
		return nil, err
	}
	return evaluate.Predict(ctx, m, "", func(_ context.Context, each func(*model.Rows) error) error { return each(rows) }, runtime.GOMAXPROCS(0))
}

// ascending returns the numbers of the fields by ascending importance.
func ascending(importance []float64) []int {
	order := make([]int, len(importance))
	for j := range order {
		order[j] = j
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(importance[i], importance[j]) })
	return order
}

// permutation returns the fields by the loss with the values of one field permuted over the
// validation rows.
func (b *bench) permutation(ctx context.Context) ([]int, error) {
	importance := make([]float64, len(b.names))
	for j := range b.names {
		rows := *b.val
		rows.Features = slices.Clone(b.val.Features)
		order := make([]int32, rows.Len())
		for i := range order {
			order[i] = int32(i)
		}
		stream := random.At(1, random.Sample, uint64(j), 1)
		stream.Permute(order)
		for i, from := range order {
			rows.Row(i)[j] = b.val.Row(int(from))[j]
		}
		p, err := predict(ctx, b.ck, &rows)
		if err != nil {
			return nil, err
		}
		importance[j] = p.MeanLoss(loss.Uncalibrated)
	}
	return ascending(importance), nil
}

// taylor returns the fields by the magnitude of the sum, over the validation rows, of the loss's
// gradient by the field's embedding times the mean embedding minus the row's own.
func (b *bench) taylor() ([]int, error) {
	m, err := b.ck.Model()
	if err != nil {
		return nil, err
	}
	players, dim := m.Players(), m.Dim
	mean, x := make([]float64, players), make([]float32, players)
	for i := range b.val.Label {
		m.Embed(x, b.val.Row(i))
		for k, v := range x {
			mean[k] += float64(v) / float64(b.val.Len())
		}
	}
	importance := make([]float64, len(b.names))
	g, logit := m.NewGradient(), make([]float64, 1)
	for i, label := range b.val.Label {
		at := g.Set(0, b.val, i)
		m.Embed(at, b.val.Row(i))
		copy(x, at)
		g.Slopes(logit)
		slope := evaluate.Probability(logit[0]) - float64(label)
		for k, v := range g.Slope(0) {
			importance[k/dim] += slope * float64(v) * (mean[k] - float64(x[k]))
		}
	}
	for j := range importance {
		importance[j] = math.Abs(importance[j])
	}
	return ascending(importance), nil
}

// sliced measures the model with the given fields and columns on the test split.
func (b *bench) sliced(ctx context.Context, s checkpoint.Slice) (text string, small *checkpoint.Checkpoint, err error) {
	if small, err = b.ck.Sliced(s); err != nil {
		return "", nil, err
	}
	p, err := predict(ctx, small, b.rows(s.Fields, small))
	if err != nil {
		return "", nil, err
	}
	d := evaluate.Rank(p).Minus(b.whole)
	return fmt.Sprintf("%+.4f ± %.4f, %+.4f", d.Loss.Value, (d.Loss.High-d.Loss.Low)/2, d.AUC.Value), small, nil
}

// rows returns the test rows with the given fields only, which small reads.
func (b *bench) rows(fields []int, small *checkpoint.Checkpoint) *model.Rows {
	return cut.RowsOf(b.test, fields, &b.ck.Architecture, &small.Architecture)
}

// speed returns the least time of a row on one core.
func (b *bench) speed(small *checkpoint.Checkpoint, fields []int) (float64, error) {
	m, err := small.Model()
	if err != nil {
		return 0, err
	}
	batch := b.rows(fields, small).Slice(0, 4096)
	scorer, logits := m.NewScorer(), make([]float64, batch.Len())
	least := math.Inf(1)
	for range 7 {
		began := time.Now()
		scorer.Logits(logits, &batch)
		least = min(least, time.Since(began).Seconds()/float64(batch.Len()))
	}
	return least, nil
}

func (b *bench) fields(ctx context.Context, path, permuted, taylor []int, steps []slice.Step) error {
	m, columns := len(b.names), cut.Without(b.ck.Architecture.Dim)
	whole, err := b.speed(b.ck, cut.Without(m))
	if err != nil {
		return err
	}
	fmt.Println("| fields | path drops | path | permutation drops | permutation | first order drops | first order | products | time |\n|---|---|---|---|---|---|---|---|---|")
	for k := 1; k < m; k++ {
		line := fmt.Sprintf("| %d ", m-k)
		var first *checkpoint.Checkpoint
		for _, order := range [][]int{path, permuted, taylor} {
			text, small, err := b.sliced(ctx, checkpoint.Slice{Fields: cut.Without(m, order[:k]...), Columns: columns})
			if err != nil {
				return err
			}
			if first == nil {
				first = small
			}
			line += fmt.Sprintf("| %s | %s ", b.names[order[k-1]], text)
		}
		time, err := b.speed(first, cut.Without(m, path[:k]...))
		if err != nil {
			return err
		}
		fmt.Printf("%s| %d | %.2f |\n", line, steps[k-1].Multiplications, time/whole)
	}
	return nil
}

func (b *bench) columns(ctx context.Context, steps []slice.Step) error {
	fields := cut.Without(len(b.names))
	whole, err := b.speed(b.ck, fields)
	if err != nil {
		return err
	}
	fmt.Println("| columns | path | products | bytes | time |\n|---|---|---|---|---|")
	var gone []int
	for _, s := range steps {
		gone = append(gone, s.Gone...)
		text, small, err := b.sliced(ctx, checkpoint.Slice{Fields: fields, Columns: cut.Without(b.ck.Architecture.Dim, gone...)})
		if err != nil {
			return err
		}
		time, err := b.speed(small, fields)
		if err != nil {
			return err
		}
		fmt.Printf("| %d | %s | %d | %d | %.2f |\n", s.Columns, text, s.Multiplications, s.Bytes, time/whole)
	}
	return nil
}

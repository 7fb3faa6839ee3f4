// Train compares the steps of a training with those of PyTorch, in the same run. It takes
// turns with PyTorch, which has the number of threads that is best for it.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"shaver/internal/click/model"
	"shaver/internal/click/train"
	"shaver/internal/num/kernel"
	"shaver/internal/num/random"
)

// batch is the number of rows of a step, as in bench/peer/train.py.
const batch = 2048

// shape is what a training depends on.
type shape struct {
	name             string
	kind             model.Kind
	fields, features int
}

var shapes = []shape{
	{"flights", model.DeepFM, 11, 7813}, {"flights", model.DCNMix, 11, 7813},
	{"Criteo", model.DeepFM, 39, 1086810}, {"Criteo", model.DCNMix, 39, 1086810},
}

func main() {
	python := flag.String("python", "python3", "Python with PyTorch")
	seconds := flag.Float64("seconds", 3, "time of each measurement")
	turns := flag.Int("turns", 3, "number of measurements of each program, of which the median counts")
	flag.Parse()
	if err := run(*python, *seconds, *turns); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(python string, seconds float64, turns int) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "SHAPE\tKIND\tROWS/S\tPYTORCH\tRATIO\tGFLOP/S OF PRODUCTS, WHOLE STEP\tPEAK\n")
	for _, s := range shapes {
		own, err := newSteps(s)
		if err != nil {
			return err
		}
		best := map[int][]float64{} // rows/s of PyTorch by threads
		var ours, peak []float64
		for range turns {
			ours, peak = append(ours, own.measure(seconds)), append(peak, measurePeak())
			for threads := 1; threads <= runtime.GOMAXPROCS(0); threads *= 2 {
				rate, err := peer(python, s, threads, seconds)
				if err != nil {
					return err
				}
				best[threads] = append(best[threads], rate)
			}
		}
		theirs := 0.0
		for _, rates := range best {
			theirs = max(theirs, median(rates))
		}
		rate := median(ours)
		fmt.Fprintf(w, "%s\t%s\t%.0f\t%.0f\t%.2f\t%.0f\t%.0f\n", s.name, s.kind, rate, theirs, rate/theirs, rate*own.flop/1e9, median(peak)*float64(runtime.GOMAXPROCS(0)))
	}
	return w.Flush()
}

func median(x []float64) float64 {
	x = slices.Clone(x)
	slices.Sort(x)
	return x[len(x)/2]
}

// measurePeak returns the peak of one core in GFLOP/s.
func measurePeak() float64 {
	start := time.Now()
	return float64(kernel.Peak(2e9)) / time.Since(start).Seconds() / 1e9
}

// steps is a training on one batch.
type steps struct {
	trainer *train.Trainer
	rows    *model.Rows
	flop    float64 // floating point operations of the products for a row
}

func newSteps(s shape) (*steps, error) {
	a := model.Architecture{Kind: s.kind, Dim: 16, Hidden: []int{400, 400, 400}}
	size := s.features / s.fields
	for range s.fields {
		a.FieldDims = append(a.FieldDims, size)
	}
	width := a.Players()
	macs := width*400 + 2*400*400 + 400
	if s.kind == model.DCNMix {
		a.CrossLayers, a.Experts, a.Rank = 3, 4, 64
		macs += a.CrossLayers * a.Experts * (2*width*a.Rank + a.Rank*a.Rank + width)
	}
	t, err := train.New(a, train.Initial(&a, true, 1), train.Options{Optimizer: train.Adam, LearningRate: 1e-3, WeightDecay: 1e-6, Dropout: .5, Batch: batch})
	if err != nil {
		return nil, err
	}
	rows := &model.Rows{Width: s.fields}
	stream := random.At(1, random.Synthetic, 0, 0)
	for i := range batch {
		rows.Number, rows.Label = append(rows.Number, int64(i)), append(rows.Label, float32(stream.Below(2)))
		for j := range s.fields {
			rows.Features = append(rows.Features, int32(j*size+int(stream.Below(uint64(size)))))
		}
	}
	return &steps{t, rows, 6 * float64(macs)}, nil
}

// measure returns the rows per second of the median step.
func (s *steps) measure(seconds float64) float64 {
	var times []float64
	for end := time.Now().Add(time.Duration(seconds * float64(time.Second))); time.Now().Before(end) || len(times) < 3; {
		start := time.Now()
		s.trainer.Step(s.rows, len(times))
		times = append(times, time.Since(start).Seconds())
	}
	return batch / median(times)
}

func peer(python string, s shape, threads int, seconds float64) (float64, error) {
	c := exec.Command(python, "bench/peer/train.py", "--kind", string(s.kind), "--fields", strconv.Itoa(s.fields), "--features", strconv.Itoa(s.features),
		"--threads", strconv.Itoa(threads), "--seconds", fmt.Sprint(seconds))
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", c, err)
	}
	var result struct {
		Rate float64 `json:"rows_per_second"`
	}
	err = json.Unmarshal(out, &result)
	return result.Rate, err
}

package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	"shaver/bench/paired"
	"shaver/internal/jobs/scores"
)

// toySeeds is the number of toy models. toyPasses are numbers of orders per row.
var (
	toySeeds  = 3
	toyPasses = []int{1, 10, 100}
)

// toy is the paper's toy check: 40 rows, fields of 2, 2 and 3 features, and 3 columns. Every set of
// the 9 players of a row can be evaluated, so the values are known.
type toy struct {
	Mean  float64   // mean |value| over the entries and the models
	Error []float64 // mean |estimate - value|, by the number of passes
}

// check compares the walks of Algorithm 1 with the values.
func (t *tool) check() (to toy, err error) {
	err = t.work.Measure("toy.json", &to, func() error {
		to.Error = make([]float64, len(toyPasses))
		for seed := 1; seed <= toySeeds; seed++ {
			if err := t.toy(seed, &to); err != nil {
				return err
			}
		}
		return nil
	})
	return to, err
}

func (t *tool) toy(seed int, to *toy) error {
	draw := rand.New(rand.NewPCG(uint64(seed), 0))
	lines := []string{"label,a,b,c"}
	for range 40 {
		lines = append(lines, fmt.Sprintf("%d,%d,%d,%d", draw.IntN(2), draw.IntN(2), draw.IntN(2), draw.IntN(3)))
	}
	name := fmt.Sprintf("toy-%d", seed)
	rows, dataset, model := t.work.Path(name+".csv"), t.work.Path(name), t.work.Path(name+".safetensors")
	if err := os.WriteFile(rows, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	if err := t.work.Make(name, "dataset", "import", "csv", "--ids", "local", "--train", rows, "--val", rows, "--out", dataset); err != nil {
		return err
	}
	if err := t.work.Train(name+".safetensors", "train", "--dataset", dataset, "--dim", "3", "--hidden", "16,16", "--batch", "10", "--epochs", "100", "--patience", "0", "--seed", strconv.Itoa(seed)); err != nil {
		return err
	}
	values := func(name string, flags ...string) ([]float64, error) {
		if err := t.work.Make(name, append([]string{"score", "--model", model, "--dataset", dataset, "--seed", strconv.Itoa(seed), "--out", t.work.Path(name)}, flags...)...); err != nil {
			return nil, err
		}
		f, err := scores.Read(t.work.Path(name))
		if err != nil {
			return nil, err
		}
		return f.Aggregate(scores.Sum)
	}
	exact, err := values(name+"-exact.arrow", "--estimator", "exact")
	if err != nil {
		return err
	}
	n := float64(len(exact) * toySeeds)
	for _, v := range exact {
		to.Mean += math.Abs(v) / n
	}
	for k, passes := range toyPasses {
		walked, err := values(fmt.Sprintf("%s-%d.arrow", name, passes), "--estimator", "permutation", "--passes", strconv.Itoa(passes))
		if err != nil {
			return err
		}
		for i, v := range walked {
			to.Error[k] += math.Abs(v-exact[i]) / n
		}
	}
	return nil
}

// print prints the check.
func (to *toy) print(w io.Writer) {
	fmt.Fprintf(w, "\nToy check: the mean |value| is %s. The mean |estimate - value| is", paired.Number("%.5f", to.Mean))
	for k, passes := range toyPasses {
		fmt.Fprintf(w, " %s with %d,", paired.Number("%.5f", to.Error[k]), passes)
	}
	fmt.Fprintln(w, " orders per row.")
}

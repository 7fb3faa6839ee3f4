package gap

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/jobs/job"
	"shaver/internal/value/estimator"
)

const users = 3840 // as many as rows of the training, one each

// remembers returns an FM of the fields user and other. Its logit is 4 for odd users and -4 for others.
func remembers(t *testing.T) *model.Model {
	t.Helper()
	table := make([]float32, users+2)
	for u := range users {
		table[u] = float32(8*(u%2) - 4)
	}
	table[users], table[users+1] = 1, 1
	m, err := model.New(model.Architecture{Kind: model.FM, FieldDims: []int{users, 2}, Dim: 1}, model.Weights{Embedding: table, FirstOrder: make([]float32, users+2)})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// imported returns a dataset. A split has n rows, and label gives the label of a row by its user.
func imported(t *testing.T, n map[string]int, label func(split string, user int) int) *dataset.Dataset {
	t.Helper()
	dir := t.TempDir()
	files := map[string][]string{}
	for split, n := range n {
		var text strings.Builder
		text.WriteString("label,user,other\n")
		for u := range n {
			fmt.Fprintf(&text, "%d,%d,%d\n", label(split, u), u, u/2%2)
		}
		files[split] = []string{filepath.Join(dir, split+".csv")}
		if err := os.WriteFile(files[split][0], []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := ingest.EncodedConfig{Train: files[dataset.Train], Val: files[dataset.Val], Fresh: files[dataset.Fresh], Sizes: []int{users, 2}, Out: filepath.Join(dir, "d")}
	if _, err := ingest.ImportEncoded(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	d, err := dataset.Open(config.Out)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The worth of a field is the mean rise of the loss without it. The labels of val contradict every second user that is read, so there
// the model loses 4 nat.
func TestMeasure(t *testing.T) {
	d := imported(t, map[string]int{dataset.Train: users, dataset.Val: users}, func(split string, u int) int {
		if split == dataset.Val {
			return (u + u/2) % 2
		}
		return u % 2
	})
	spec := &job.Spec{Splits: []string{dataset.Train}, Sample: 1}
	g, err := Measure(t.Context(), remembers(t), d, spec, model.Baseline{Values: []float32{0, 0}})
	if err != nil || g == nil {
		t.Fatal(g, err)
	}
	const n = 320 // 64 places, of users / (4 * 3) rows
	right := math.Log1p(math.Exp(-4))
	near := func(what string, got, want float64) {
		t.Helper()
		if !(math.Abs(got-want) < 1e-6) {
			t.Errorf("%s: %v, expected %v", what, got, want)
		}
	}
	if g.Rows != [2]int{n, n} || len(g.Fields) != 2 {
		t.Fatalf("%+v", g)
	}
	near("loss", g.Loss[Train], right)
	wrong := 0. // portion of the rows of val whose label contradicts the user
	for k := range 64 {
		for i := range n / 64 {
			wrong += float64((k*users/64 + i) / 2 % 2)
		}
	}
	wrong /= n
	near("loss on val", g.Loss[Unseen], right+4*wrong)
	for k, f := range append(g.Fields, g.Total) {
		times := []float64{1, 1, 2}[k]
		near(f.Name, f.Worth[Train].Value, times*(math.Ln2-right))
		near(f.Name, f.Worth[Train].SE, 0)
		near(f.Name, f.Worth[Unseen].Value, times*(math.Ln2-right-4*wrong))
		near(f.Name, f.Worth[Unseen].SE, times*4*math.Sqrt(wrong*(1-wrong)/(n-1)))
		near(f.Name, f.Worth[Unseen].High-f.Worth[Unseen].Low, 2*1.96*f.Worth[Unseen].SE)
		near(f.Name, f.Back(), 0)
	}
	if text := g.Warning(spec); !strings.HasPrefix(text, "the model memorises: of what the fields are worth on rows of the training, 0% comes back on rows that the model has not seen; ") { // of no field less
		t.Errorf("%q", text)
	}
	if text := g.Warning(&job.Spec{Splits: []string{dataset.Train, dataset.Val}}); text != "" || !g.Memorises() {
		t.Errorf("%q although the job scores val", text)
	}
	words := model.Baseline{Values: []float32{-4, 0, 4}, Words: []int{2, 1}, Numbers: make([]uint8, users+2)}
	for u := range users { // each user reads a word that is its entry
		words.Numbers[u] = uint8(u % 2)
	}
	if g, err = Measure(t.Context(), remembers(t), d, spec, words); err != nil || len(g.Fields) != 1 {
		t.Fatal(g, err)
	}
	near("other with words", g.Fields[0].Worth[Train].Value, math.Ln2-right)
	frozen, err := Measure(t.Context(), remembers(t).Freeze([]int{1}), d, spec, model.Baseline{Values: []float32{0, 0}})
	if err != nil || len(frozen.Fields) != 1 || frozen.Fields[0].Name != "user" {
		t.Errorf("%+v with a frozen field, error %v", frozen, err)
	}
}

// Unseen rows are those of fresh rather than of val. Fresh days are no rows of the training. Few rows are not measured.
func TestRows(t *testing.T) {
	right := func(split string, u int) int { // wrong on val
		if split == dataset.Val {
			return 1 - u%2
		}
		return u % 2
	}
	m, spec := remembers(t), &job.Spec{Splits: []string{dataset.Train}, Sample: 1}
	d := imported(t, map[string]int{dataset.Train: users, dataset.Val: users, dataset.Fresh: users}, right)
	g, err := Measure(t.Context(), m, d, spec, model.Baseline{Values: []float32{0, 0}})
	if err != nil || g == nil || g.Total.Back() != 1 {
		t.Fatalf("%+v, error %v", g, err)
	}
	if text := g.Warning(spec); text != "" || g.Memorises() {
		t.Errorf("%q although all comes back", text)
	}
	spec.Fresh = &estimator.Fresh{Weight: 1, Rows: [][2]int64{{users * 9 / 10, users}}}
	if g, err = Measure(t.Context(), m, d, spec, model.Baseline{Values: []float32{0, 0}}); err != nil || g.Rows[Train] >= g.Rows[Unseen] {
		t.Errorf("%v rows with fresh days, error %v", g, err)
	}
	for _, n := range []map[string]int{{dataset.Train: users}, {dataset.Train: users, dataset.Val: 200}, {dataset.Train: 2000, dataset.Val: users}} {
		g, err := Measure(t.Context(), m, imported(t, n, right), &job.Spec{Splits: []string{dataset.Train}, Sample: 1}, model.Baseline{Values: []float32{0, 0}})
		if g != nil || err != nil {
			t.Errorf("%v: %+v, error %v", n, g, err)
		}
	}
}

// A model memorises if the interval on unseen rows ends below two thirds of the interval on train rows.
func TestMemorises(t *testing.T) {
	at := func(low, high float64) evaluate.Difference {
		return evaluate.Difference{Value: (low + high) / 2, Low: low, High: high}
	}
	for _, test := range []struct {
		train, unseen evaluate.Difference
		want          bool
	}{
		{at(.3, .5), at(.1, .19), true},
		{at(.3, .5), at(.1, .21), false},
		{at(.3, .5), at(-.3, -.1), true},
		{at(-.1, .5), at(-.3, -.2), false},
	} {
		g := &Gap{Total: Field{"all fields", [2]evaluate.Difference{test.train, test.unseen}}}
		if g.Memorises() != test.want {
			t.Errorf("%v and %v: it memorises: %v", test.train, test.unseen, !test.want)
		}
	}
	field := func(name string, unseen float64) Field {
		return Field{name, [2]evaluate.Difference{at(.1, .3), at(unseen, unseen)}}
	}
	g := &Gap{Total: Field{"all fields", [2]evaluate.Difference{at(.3, .5), at(.1, .1)}}, Fields: []Field{field("a", .3), field("b", .02), field("c", .1)}}
	if text := g.Text(); !strings.HasSuffix(text, ", 25% comes back on rows that the model has not seen, and 10% of b") {
		t.Errorf("%q", text)
	}
	if unknown := (&Field{Worth: [2]evaluate.Difference{at(-.1, .5), at(.1, .1)}}); !math.IsNaN(unknown.Back()) {
		t.Error("what comes back of nothing")
	}
}

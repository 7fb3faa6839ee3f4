package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"

	"shaver/internal/click/model"
	"shaver/internal/click/modelfile"
	"shaver/internal/click/planted"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/value/estimator"
)

// A job says once that its model memorises: a warning if it scores rows of the training alone, and not when it resumes.
func TestMemorises(t *testing.T) {
	j, _ := tiny(t)
	p, err := planted.New(planted.Config{Fields: []string{"a", "b"}, FieldDims: []int{900, 5}, Informative: 2, Silent: 1, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	var rows model.Rows
	p.Rows(&rows, 0, 3600)
	logits := make([]float64, rows.Len())
	p.Model.NewScorer().Logits(logits, &rows)
	files := [2]string{filepath.Join(t.TempDir(), "train.csv"), filepath.Join(t.TempDir(), "val.csv")}
	for k, file := range files { // the model predicts the labels of train, and the opposite of those of val
		text := strings.Builder{}
		text.WriteString("label,a,b\n")
		for i, logit := range logits {
			label := k
			if logit > 0 {
				label = 1 - k
			}
			fmt.Fprintf(&text, "%d,%d,%d\n", label, rows.Row(i)[0], rows.Row(i)[1])
		}
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := ingest.EncodedConfig{Train: files[:1], Val: files[1:], Sizes: p.FieldDims, Global: true, Out: filepath.Join(t.TempDir(), "d")}
	if _, err := ingest.ImportEncoded(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if j.Dataset, err = dataset.Open(config.Out); err != nil {
		t.Fatal(err)
	}
	j.Open = func() (modelfile.Source, error) { return p.Checkpoint, nil }
	j.Options, j.RowsPerShard = estimator.Options{Estimator: estimator.Taylor, Passes: 1}, 300

	said := func(ctx context.Context, j Job, stop func()) (levels []zapcore.Level) {
		j.Log = zaptest.NewLogger(t, zaptest.WrapOptions(zap.Hooks(func(e zapcore.Entry) error {
			if strings.HasPrefix(e.Message, "the model memorises: of what the fields are worth") {
				levels = append(levels, e.Level)
			}
			if e.Message == "task done" {
				stop()
			}
			return nil
		})))
		if _, err := j.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		return levels
	}
	want := func(what string, got []zapcore.Level, want ...zapcore.Level) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: it is said at the levels %v, expected %v", what, got, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	want("the first run", said(ctx, j, cancel), zap.WarnLevel)
	want("the run that resumes", said(t.Context(), j, func() {}))
	j.Splits, j.Out = []string{dataset.Train, dataset.Val}, filepath.Join(t.TempDir(), "s.arrow")
	want("a job that scores val", said(t.Context(), j, func() {}), zap.InfoLevel)
	j.Splits, j.Options = []string{dataset.Train}, estimator.Options{Estimator: estimator.Exact, Passes: 1}
	j.Players, j.Out = estimator.Fields, filepath.Join(t.TempDir(), "s.arrow")
	want("a job of fields", said(t.Context(), j, func() {}))
}

package window

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"

	"shaver/internal/click/checkpoint"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/tally"
)

// The state of an earlier program is read: the sums of its day give the rows, the loss and the efficiency error that this program wrote into
// its scores.
func TestOlderState(t *testing.T) {
	older := filepath.Join("..", "..", "..", "testdata", "older")
	dir := t.TempDir() // Open locks the folder
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(older, "state-1"))); err != nil {
		t.Fatal(err)
	}
	want, err := scores.Read(filepath.Join(older, "scores-3-state.arrow"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	x, err := readIndex(s.path(indexName))
	if err != nil || len(x.Days) != 1 || len(x.Games) != 1 {
		t.Fatalf("%+v, %v", x, err)
	}
	ck, err := checkpoint.Read(s.path("model-45e4091021431c22.safetensors"))
	if err != nil || ck.Digest() != want.Spec.Model {
		t.Fatalf("another model, or %v", err)
	}
	e := tally.NewSampling(want.Spec.Options, want.DatasetRows)
	sums := newTotal(&ck.Architecture, e.Form(ck.Architecture.Fields()))
	if err := sums.addDay(s, &x.Days[0]); err != nil {
		t.Fatal(err)
	}
	all, err := sums.finish()
	if err != nil {
		t.Fatal(err)
	}
	got, err := all.Check(e)
	if err != nil {
		t.Fatal(err)
	}
	if got.Rows != want.Rows || got.LossFull != want.LossFull || math.Abs(got.EfficiencyError-want.EfficiencyError) > 1e-12 {
		t.Errorf("%d rows, loss %v, efficiency error %v, expected %d, %v and %v", got.Rows, got.LossFull, got.EfficiencyError, want.Rows, want.LossFull, want.EfficiencyError)
	}
}

package window

import (
	"bytes"
	"testing"

	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
)

// With an unchanged model, the scores of a window are those of a full job over its days, bit
// for bit, while days come and go.
func TestWindow(t *testing.T) {
	b, p := newBench(t), plantedModel(t, 9, 5, 7)
	var days []string
	for i := range 4 {
		days = append(days, importDay(t, p, i))
	}
	for _, o := range []estimator.Options{
		{Estimator: estimator.Permutation, Passes: 1}, {Estimator: estimator.Antithetic, Passes: 2}, {Estimator: estimator.Multilinear, Passes: 1},
	} {
		for _, step := range []struct {
			days []string
			want string
		}{{days[:2], "ff"}, {days[:2], "kk"}, {days[:3], "kkf"}, {days[1:4], "kkf"}, {days[3:], "k"}, {days[2:4], "fk"}} {
			r := request(t, p.Checkpoint, o, baseline.Zero, step.days...)
			data, _ := b.night(o.Estimator, Night{Request: r}, step.want)
			if !bytes.Equal(data, b.fullJob(r)) {
				t.Errorf("%+v: a window of %d days differs from a full job", o, len(step.days))
			}
		}
	}
}

// With the codebook, the first window of a model is that of a full job, bit for bit. A later
// one keeps the baseline, and equals a full job with this baseline.
func TestCodebook(t *testing.T) {
	b, p := newBench(t), plantedModel(t, 9, 5, 7)
	days := []string{importDay(t, p, 0), importDay(t, p, 1), importDay(t, p, 2)}
	o := estimator.Options{Estimator: estimator.Permutation, Passes: 1}
	first := request(t, p.Checkpoint, o, baseline.Codebook, days[:2]...)
	for _, want := range []string{"ff", "kk"} {
		data, _ := b.night("s", Night{Request: first}, want)
		if !bytes.Equal(data, b.fullJob(first)) {
			t.Error("the first window differs from a full job")
		}
	}
	values := parse(t, b.fullJob(first)).Baseline
	second := request(t, p.Checkpoint, o, baseline.Codebook, days[1:]...)
	data, _ := b.night("s", Night{Request: second}, "kf")
	if bytes.Equal(data, b.fullJob(second)) {
		t.Error("the baselines of the two windows do not differ, so the test proves nothing")
	}
	second.BaselineValues = &values
	if !bytes.Equal(data, b.fullJob(second)) {
		t.Error("the second window differs from a full job with the same baseline")
	}
}

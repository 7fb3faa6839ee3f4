package job

import (
	"slices"
	"strings"
	"testing"

	"shaver/internal/value/estimator"
)

// resultOf is what a worker computes for the first shard of verifying. It has a partial unless it is again, of the task with Verify.
func resultOf(worker string, digest uint64, again bool) Result {
	if again {
		return Result{Shard: 2, Rows: 1, Kernel: "k", Worker: worker, Digests: []uint64{digest}}
	}
	return Result{Rows: 1, Kernel: "k", Worker: worker, Digests: []uint64{digest}, Partial: Blob{Name: "of " + worker}}
}

// verifying returns a machine of two shards that are verified. The result of the first one, of the worker a, waits, and the task
// that computes it again has the number 2.
func verifying(t *testing.T, tries int) *Machine {
	t.Helper()
	m := NewMachine(&Spec{Kernel: "k"}, Plan{Rows: 2, RowsPerShard: 1}, Limits{Window: 4, SaveEvery: 9, Tries: tries, Verify: 1}, nil, 0, nil)
	m.Step(Inventory{Results: []int{0}, Tasks: []int{1}})
	want(t, m.Step(resultOf("a", 1, false)), "job.Publish")
	return m
}

func want(t *testing.T, actions []Action, expected ...string) {
	t.Helper()
	if got := types(actions); !slices.Equal(got, expected) {
		t.Errorf("actions %q, expected %q", got, expected)
	}
}

// A task with Verify that is lost, or whose worker is silent, is published again, and this counts as no try. A task that is
// not published yet is not lost.
func TestLostTaskWithVerify(t *testing.T) {
	m := verifying(t, 2)
	for range 5 {
		want(t, m.Step(Inventory{Results: []int{0}, Tasks: []int{1}}))
	}
	for range 3 {
		m.Step(Published{2})
		want(t, m.Step(Inventory{Results: []int{0}, Tasks: []int{1}}))
		want(t, m.Step(Inventory{Results: []int{0}, Tasks: []int{1}}), "job.Publish")
	}
	for range 3 {
		m.Step(Published{2})
		want(t, m.Step(Inventory{Results: []int{0}, Tasks: []int{1, 2}, Slow: []int{2}}), "job.Withdraw", "job.Publish")
	}
	m.Step(Published{2})
	stuck := Inventory{Results: []int{0}, Tasks: []int{1, 2}, Stuck: []int{2}}
	want(t, m.Step(stuck))
	want(t, m.Step(stuck), "job.Withdraw", "job.Publish")
	m.Step(Published{2})
	m.Step(stuck)
	actions := m.Step(stuck)
	want(t, actions, "job.Withdraw", "job.Discard", "job.SetAside")
	if why := m.Quarantined()[0].Reason; !strings.Contains(why, "computed by a") || strings.Contains(why, "different") {
		t.Errorf("the only result is set aside because %s", why)
	}
}

// The result of a task with Verify is deleted. A result without a partial is no result of another task.
func TestResultWithoutPartial(t *testing.T) {
	m := verifying(t, 2)
	want(t, m.Step(Result{Shard: 1, Rows: 1, Kernel: "k", Worker: "b", Digests: []uint64{1}}), "job.Discard", "job.Publish")
	want(t, m.Step(resultOf("b", 1, true)), "job.Forget", "job.Merge")
}

// A worker that contradicts itself is found without a third one, and the shard is still verified by others. Nothing that
// it computes afterwards counts.
func TestWorkerContradictsItself(t *testing.T) {
	m := verifying(t, 9)
	want(t, m.Step(resultOf("b", 2, true)), "job.Forget", "job.Publish")
	want(t, m.Step(resultOf("b", 3, true)), "job.Forget", "job.Distrust", "job.Publish")
	want(t, m.Step(resultOf("b", 1, true)), "job.Forget", "job.Publish")
	want(t, m.Step(Result{Shard: 1, Rows: 1, Kernel: "k", Worker: "b", Digests: []uint64{1}, Partial: Blob{Name: "p"}}), "job.Discard", "job.Publish")
	want(t, m.Step(resultOf("b", 2, false)), "job.Discard") // which says nothing about that of a
	want(t, m.Step(resultOf("c", 2, true)), "job.Forget", "job.Publish")
	want(t, m.Step(resultOf("d", 1, true)), "job.Forget", "job.Distrust", "job.Merge")
	want(t, m.Step(resultOf("d", 1, true)), "job.Forget") // it came late
}

// If two workers disagree, one of them cannot settle it, even if it is alone.
func TestAlone(t *testing.T) {
	m := verifying(t, 9)
	again := resultOf("a", 1, true)
	again.Alone = true
	want(t, m.Step(resultOf("b", 2, true)), "job.Forget", "job.Publish")
	want(t, m.Step(again), "job.Forget", "job.Publish")
	m = verifying(t, 9)
	want(t, m.Step(resultOf("a", 1, true)), "job.Forget", "job.Publish") // others did not refuse the task
	want(t, m.Step(again), "job.Forget", "job.Merge")
}

// A partial of several shards is merged when all of them are verified.
func TestVerifyCombined(t *testing.T) {
	m := NewMachine(&Spec{Kernel: "k"}, Plan{Rows: 2, RowsPerShard: 1}, Limits{Window: 4, SaveEvery: 9, Tries: 2, Verify: 1}, nil, 0, nil)
	m.Step(Inventory{Results: []int{0, 1}})
	want(t, m.Step(Result{Shards: []int{0, 1}, Rows: 2, Kernel: "k", Worker: "a", Digests: []uint64{1, 1}, Partial: Blob{Name: "p"}}), "job.Publish", "job.Publish")
	want(t, m.Step(resultOf("b", 1, true)), "job.Forget")
	actions := m.Step(Result{Shard: 3, Rows: 1, Kernel: "k", Worker: "b", Digests: []uint64{1}})
	if want(t, actions, "job.Forget", "job.Merge"); actions[1].(Merge).Verified != 2 {
		t.Errorf("%+v", actions[1])
	}
}

// A second result of a merged shard that differs from the first is a reason to verify the shard, even if it is not one of those
// that are verified. The job does not end before. A result of a path that was computed with another mask is no reason.
func TestDifferentResults(t *testing.T) {
	for _, name := range []string{"", estimator.Path} {
		m := NewMachine(&Spec{Kernel: "k", Options: estimator.Options{Estimator: name}}, Plan{Rows: 2, RowsPerShard: 1}, Limits{Window: 4, SaveEvery: 9, Tries: 9}, nil, 0, nil)
		m.Step(Inventory{Results: []int{0}, Tasks: []int{1}})
		first, mask := resultOf("a", 1, false), ""
		if name != "" {
			mask = "m"
		}
		first.Mask = mask
		m.Step(first)
		m.Step(Merged{first})
		if second := resultOf("b", 2, false); name != "" {
			want(t, m.Step(second), "job.Discard")
			continue
		} else {
			want(t, m.Step(second), "job.Publish", "job.Discard")
		}
		last := Result{Shard: 1, Rows: 1, Kernel: "k", Worker: "a", Digests: []uint64{1}, Partial: Blob{Name: "last"}}
		want(t, m.Step(last), "job.Merge")
		want(t, m.Step(Merged{last}))
		want(t, m.Step(resultOf("c", 1, true)), "job.Forget", "job.Distrust", "job.Finish")
	}
}

// What was computed with another mask is not compared with the result of a path.
func TestVerifyPath(t *testing.T) {
	m := verifying(t, 9)
	m.spec = &Spec{Kernel: "k", Options: estimator.Options{Estimator: estimator.Path}}
	other := resultOf("b", 2, true)
	other.Mask = "m"
	want(t, m.Step(other), "job.Forget", "job.Publish")
	want(t, m.Step(resultOf("c", 1, true)), "job.Forget", "job.Merge")
}

// A shard of a round of a path that is over is not verified, because its task would not be published.
func TestVerifyPastRound(t *testing.T) {
	plan := Plan{Rows: 2, RowsPerShard: 1, Rounds: []Round{{Rows: 1}, {Rows: 1, Pass: 1}}}
	m := NewMachine(&Spec{Kernel: "k", Options: estimator.Options{Estimator: estimator.Path}}, plan, Limits{Window: 4, SaveEvery: 9, Tries: 9}, nil, 0, nil)
	m.Step(Inventory{Results: []int{0}})
	first := resultOf("a", 1, false)
	m.Step(first)
	want(t, m.Step(Merged{first}), "job.Judge")
	want(t, m.Step(Judged{More: true}), "job.Look")
	want(t, m.Step(resultOf("b", 2, false)), "job.Discard")
}

package shapley

import (
	"testing"

	"shaver/internal/num/kernel"
)

// Each kernel of this machine computes what is recorded for it. If a change of the arithmetic is intended, copy the
// numbers that this test prints to proofs, also those of "make levels-arm64". Kernels without a record are compared with
// their first result.
func TestProve(t *testing.T) {
	defer kernel.Use(kernel.Name())
	for _, name := range kernel.Names() {
		kernel.Use(name)
		want, recorded := proofs[name]
		if err := Prove(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !recorded {
			got, err := prove()
			t.Logf("%s has no record: %d, %v", name, got, err)
			continue
		}
		proofs[name] = want ^ 1<<40
		if Prove(name) == nil {
			t.Errorf("%s: Prove notices no wrong bit", name)
		}
		proofs[name] = want
	}
	const other = "a kernel without a record"
	if err := Prove(other); err != nil {
		t.Error(err)
	}
	if proved.Store(other, uint64(1)); Prove(other) == nil {
		t.Error("Prove does not notice that a result changes")
	}
}

func BenchmarkProve(b *testing.B) {
	for b.Loop() {
		if err := Prove(kernel.Name()); err != nil {
			b.Fatal(err)
		}
	}
}

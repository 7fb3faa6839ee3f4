package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"shaver/internal/app/training"
	"shaver/internal/app/training/trainingtest"
	"shaver/internal/click/checkpoint"
	"shaver/internal/num/layout"
)

// A training with PEP or OptEmbed that is killed in either of its parts and started again writes
// the bytes of one that is not, also on another number of cores. The file is pruned with the
// baseline zero, and PEP keeps exactly the entries of the budget.
func TestFindResumes(t *testing.T) {
	dir := t.TempDir()
	data := trainingtest.Clicks(t, dir, 8000)
	for table, more := range map[string][]string{"pep": {"--epochs", "12", "--warm-up", "2"}, "optembed": {"--epochs", "2"}} {
		args := func(out string) []string {
			return append(append([]string{"train", "--dataset", data, "--table", table, "--sparsity", "0.7", "--out", filepath.Join(dir, out)}, tinyTraining...), more...)
		}
		var whole, continued training.Result
		shaver(t, &whole, args("whole-"+table)...)
		c, err := checkpoint.Read(filepath.Join(dir, "whole-"+table))
		if err != nil || c.Compact == nil {
			t.Fatalf("%s wrote no compact file (%v)", table, err)
		}
		dropped, baseline, err := c.Pruned()
		if err != nil {
			t.Fatal(err)
		}
		kept := 0
		for _, gone := range dropped {
			if !gone {
				kept++
			}
		}
		if !baseline.IsZero() {
			t.Errorf("%s has the baseline %v", table, baseline)
		}
		drop, err := layout.Dropped(len(dropped), .7)
		if want := len(dropped) - drop; err != nil || kept > want || table == "pep" && kept != want || kept != whole.Kept {
			t.Errorf("%s keeps %d entries and reports %d, expected %d (%v)", table, kept, whole.Kept, want, err)
		}
		killOften(t, filepath.Join(dir, "killed-"+table), args("killed-"+table))
		shaver(t, &continued, args("killed-"+table)...)
		a, errA := os.ReadFile(filepath.Join(dir, "whole-"+table))
		b, errB := os.ReadFile(filepath.Join(dir, "killed-"+table))
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: the killed training wrote other bytes (%v, %v)", table, errA, errB)
		}
		if x, y := mustJSON(t, whole.Find), mustJSON(t, continued.Find); x != y {
			t.Errorf("%s: the killed training has the epochs %s, expected %s", table, y, x)
		}
	}
}

// killOften starts a training that writes to out on one core up to three times, and kills it after its
// first state, or some time after that.
func killOften(t *testing.T, out string, args []string) {
	t.Helper()
	state := filepath.Join(filepath.Dir(out), "."+filepath.Base(out)+".training")
	for kills := range 3 {
		p := exec.Command("shaver", args...)
		p.Env = append(os.Environ(), "GOMAXPROCS=1")
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		for range 2000 {
			if _, err := os.Stat(state); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(kills) * 30 * time.Millisecond)
		_ = p.Process.Kill()
		_ = p.Wait()
		if _, err := os.Stat(state); err != nil {
			break // it ended before
		}
	}
}

package training

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shaver/internal/app/training/trainingtest"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/train"
)

// A table's text says what it is, and its settings are checked without a command.
func TestTableIsParsed(t *testing.T) {
	for text, want := range map[string]string{
		"": "0", "full": "0", "pep": "0.5", "optembed": "0.5", "cerp": "0.5", "cerp:9": "0.5", "qr": "0.5", "qr:3": "0", "tt": "0.5", "tt:3,2": "0", "tt:3,2,4:100": "0",
	} {
		s := Settings{Table: text, Epochs: 5, WarmUp: 3, Optimizer: train.Adam}
		if err := json.Unmarshal([]byte(want), &s.Sparsity); err != nil {
			t.Fatal(err)
		}
		if err := s.checkTable(); err != nil {
			t.Errorf("--table %q with --sparsity %s: %v", text, want, err)
		}
		if warm := text == "pep" || strings.HasPrefix(text, "cerp"); warm != (s.WarmUp == 3) {
			t.Errorf("--table %q has a warm-up of %d epochs", text, s.WarmUp)
		}
		s.Sparsity = .5 - s.Sparsity
		if err := s.checkTable(); err == nil || !strings.Contains(err.Error(), "--sparsity") {
			t.Errorf("--table %q with --sparsity %v: %v", text, s.Sparsity, err)
		}
	}
	for _, text := range []string{"qr:", "qr:0", "qr:1,2", "qr:2:3", "tt:", "tt:3:", "tt:3,:4", "tt:3:0", "tt:1,1,1,1,1,1,1,1", "cerp:x", "cerp:-1", "pep:3", "full:3", "optembed:", "QR", "tt:3,2:4:5"} {
		s := Settings{Table: text, Epochs: 5, Sparsity: .5, Optimizer: train.Adam}
		if err := s.checkTable(); err == nil || !strings.Contains(err.Error(), "expected full, pep") {
			t.Errorf("--table %q: %v", text, err)
		}
	}
	s := Settings{Table: "qr:3", Optimizer: train.SparseAdam}
	if err := s.checkTable(); err == nil || !strings.Contains(err.Error(), "--optimizer adam") {
		t.Errorf("SparseAdam: %v", err)
	}
}

// The number of entries of a candidate of OptEmbed is the number of entries in its mask.
func TestWidthMask(t *testing.T) {
	a := &model.Architecture{FieldDims: []int{3, 1, 4}, Dim: 5}
	kept := []bool{true, false, true, false, true, true, true, false} // by feature
	e := &train.Evolution{Dim: 5, Alive: []int{2, 0, 3}}
	for _, columns := range [][]int{{1, 1, 1}, {5, 5, 5}, {2, 3, 4}, {4, 1, 2}} {
		n, next := 0, 0
		widthMask(a, columns, func(entry int, in bool) {
			if entry != next {
				t.Fatalf("entry %d follows %d", entry, next-1)
			}
			next++
			if in && kept[entry/5] {
				n++
			}
		})
		if next != 40 || n != e.Entries(columns) {
			t.Errorf("columns %v keep %d of %d entries, expected %d of 40", columns, n, next, e.Entries(columns))
		}
	}
}

// A training recognizes the file of the epoch that follows its state, and no other file.
func TestFileAhead(t *testing.T) {
	a := model.Architecture{Kind: model.FM, FieldDims: []int{3, 2}, Dim: 2}
	from := checkpoint.New(a, train.Initial(&a, false, 1))
	o := &Course{from: from, Options: &Options{
		Settings: Settings{Epochs: 5, LearningRate: 1e-3, Batch: 2, Optimizer: train.Adam}, Out: filepath.Join(t.TempDir(), "m.safetensors"),
	}}
	p, err := from.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	for _, search := range []int{0, 3} {
		o.Search = search
		settings := o.settings(nil)
		if search > 0 {
			settings.Trial(1)
		}
		trainer, err := train.New(a, p, settings)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.write(trainer, train.Epoch{Number: 2, Validation: &train.Metrics{LogLoss: 1. / 3}}, &settings); err != nil {
			t.Fatal(err)
		}
		state := func(epochs, trials int) *State {
			s := &State{Trials: make([]Trial, trials)}
			for i := range epochs {
				s.History = append(s.History, train.Epoch{Number: i + 1})
			}
			return s
		}
		now := min(search, 1) // finished trials
		for epochs, want := range []bool{false, true, false, false} {
			if got := o.ahead(state(epochs, now)); got != want {
				t.Errorf("after %d epochs the file of epoch 2 is recognized: %v", epochs, got)
			}
		}
		if search > 0 && o.ahead(state(1, 2)) {
			t.Error("the file of another trial is recognized")
		}
		o.Seed++
		if o.ahead(state(1, now)) {
			t.Error("the file of a training with another seed is recognized")
		}
	}
	if err := os.Remove(o.Out); err != nil || o.ahead(&State{}) {
		t.Errorf("a missing file is recognized (%v)", err)
	}
}

// A training replaces the model of the same training, and another model only if that is forced.
func TestFinishedModelIsKept(t *testing.T) {
	a := model.Architecture{Kind: model.FM, FieldDims: []int{3, 2}, Dim: 2}
	from := checkpoint.New(a, train.Initial(&a, false, 1))
	for name, test := range map[string]struct {
		change func(o *Course)
		want   string // part of the error; "" = none
	}{
		"same":    {func(*Course) {}, ""},
		"kernel":  {func(o *Course) { o.Kernel, o.Version = "another", 7 }, ""},
		"search":  {func(o *Course) { o.LearningRate = .5 }, "is the model of a training with other settings"},
		"seed":    {func(o *Course) { o.Seed++ }, "is the model of a training with other settings"},
		"forced":  {func(o *Course) { o.Seed++; o.Outputs.Force = true }, ""},
		"decided": {func(o *Course) { o.Seed++; o.Replace = true }, ""},
		"missing": {func(o *Course) { o.Seed++; o.Out += "x" }, ""},
	} {
		o := &Course{from: from, Options: &Options{
			Settings: Settings{Epochs: 5, LearningRate: 1e-3, Batch: 2, Optimizer: train.Adam}, Out: filepath.Join(t.TempDir(), "m.safetensors"),
		}}
		p, err := from.Parameters()
		if err != nil {
			t.Fatal(err)
		}
		settings := o.settings(nil)
		trainer, err := train.New(a, p, settings)
		if err == nil {
			err = o.write(trainer, train.Epoch{Number: 2}, &settings)
		}
		if err != nil {
			t.Fatal(err)
		}
		test.change(o)
		if _, err := o.resume(); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, expected %q", name, err, test.want)
		}
		if name == "search" { // its trials draw the learning rate
			o.Search = 3
			if err := o.checkFinished(); err == nil {
				t.Error("the model of a training without a search is replaced by that of a search")
			}
		}
		if _, err := checkpoint.WriteDense(o.Out, from); err != nil {
			t.Fatal(err)
		}
		if err := o.checkFinished(); (err == nil) != (o.Outputs.Force || o.Replace) {
			t.Errorf("%s: a model without a training: %v", name, err)
		}
	}
}

// A training that cannot fit into memory is refused, and a batch of more rows than there are takes
// the memory of one with all rows.
func TestMemory(t *testing.T) {
	a := &model.Architecture{Kind: model.DeepFM, FieldDims: []int{3, 2}, Dim: 2, Hidden: []int{4, 4}}
	o := &Options{Settings: Settings{Batch: 10}}
	const need = 4 * (3*(10+16+16) + 10*(8+16))
	for most, want := range map[int64]bool{need: true, need - 1: false} {
		if err := o.checkMemory(a, 100, most); (err == nil) != want {
			t.Errorf("%d bytes: %v", most, err)
		}
	}
	if o.Batch = 1 << 31; o.checkMemory(a, 10, need) != nil {
		t.Error("the rows that a batch lacks take memory")
	}
	a.Hidden = []int{1 << 62, 1 << 62}
	if err := o.checkMemory(a, 10, 1<<62); err == nil || !strings.Contains(err.Error(), "expected a smaller model or --batch") {
		t.Errorf("huge layers: %v", err)
	}
}

// The table of a search says why trials failed.
func TestTableOfTrials(t *testing.T) {
	result := Result{Out: "m", Trials: []Trial{{Failed: "too many entries"}, {Best: &train.Epoch{Number: 1, Validation: &train.Metrics{}}}}, Best: 2}
	var text strings.Builder
	if result.WriteTable(&text); !strings.Contains(text.String(), "too many entries") {
		t.Errorf("the table of trials lacks a reason: %s", &text)
	}
}

// A budget that thresholds do not reach, or that OptEmbed cannot reach, is an error that says
// what to do, and leaves no state.
func TestFindGivesUp(t *testing.T) {
	dir := t.TempDir()
	data := trainingtest.Clicks(t, dir, 2000)
	for want, s := range map[string]Settings{
		"entries remain after 2 epochs": {Table: "pep", Sparsity: .999, Epochs: 2, WarmUp: 1, LearningRate: .3},
		"expected at most 0.75":         {Table: "optembed", Sparsity: .8, Epochs: 1, LearningRate: .005},
	} {
		s.Optimizer, s.Order, s.Batch, s.Dropout, s.WeightDecay, s.Seed = train.Adam, OrderShuffle, 256, .2, 1e-5, 1
		o := &Options{Settings: s, Out: filepath.Join(dir, "out"), Folders: []string{data}}
		if err := o.Check(); err != nil {
			t.Fatal(err)
		}
		c, err := o.Fresh(&model.Architecture{Kind: model.DeepFM, Dim: 4, Hidden: []int{16, 8}}, true, InitialDefault)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Train(t.Context())
		var none *NoModel
		if !errors.As(err, &none) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q", s.Table, err, want)
		}
		if Started(o.Out) {
			t.Errorf("%s left a state", s.Table)
		}
	}
}

// A training that is interrupted after its first epoch continues, and writes the bytes of one that
// is not.
func TestInterruptedTraining(t *testing.T) {
	dir := t.TempDir()
	data := trainingtest.Clicks(t, dir, 2000)
	run := func(ctx context.Context, out string) error {
		s := Default()
		s.Epochs, s.Patience, s.Batch = 4, 0, 256
		o := &Options{Settings: s, Out: filepath.Join(dir, out), Folders: []string{data}}
		if err := o.Check(); err != nil {
			t.Fatal(err)
		}
		c, err := o.Fresh(&model.Architecture{Kind: model.FM, Dim: 4}, false, InitialDefault)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Train(ctx)
		return err
	}
	if err := run(t.Context(), "whole"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil && !Started(filepath.Join(dir, "halves")) {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if err := run(ctx, "halves"); err == nil { // it may end before it is interrupted
		t.Log("the training was not interrupted")
	} else if !errors.Is(err, context.Canceled) || !Started(filepath.Join(dir, "halves")) {
		t.Fatal(err)
	} else if err := run(t.Context(), "halves"); err != nil {
		t.Fatal(err)
	}
	whole, errA := os.ReadFile(filepath.Join(dir, "whole"))
	halves, errB := os.ReadFile(filepath.Join(dir, "halves"))
	if errA != nil || errB != nil || !bytes.Equal(whole, halves) {
		t.Errorf("the interrupted training wrote other bytes (%v, %v)", errA, errB)
	}
}

package cut_test

import (
	"math"
	"os"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/evaluate"
	"shaver/internal/data/dataset"
	"shaver/internal/data/measure"
	"shaver/internal/num/loss"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
)

// auto returns options that choose the bits of each row.
func (f *files) auto(out, unit string, amount float64) *cut.Options {
	o := f.options(out, unit, amount)
	o.Form.Values, o.Rounding = compact.Mixed, .01
	return o
}

// Bits are chosen for a number of entries and for a number of bytes. The file is within the budget, also if it is
// calibrated.
func TestAuto(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	half := f.auto("half.safetensors", mask.Sparsity, .5)
	c, sizes := prune(t, half)
	if c.Dropped != f.entries/2 || c.Rounding == nil || c.Rounding.TableRise.Value > .01 || c.Rounding.SecondOrder > .01 || c.Rounding.SecondOrder <= 0 || len(c.Rounding.Rows) == 0 {
		t.Fatalf("%+v, rounded by %+v", c, c.Rounding)
	}
	if info, err := os.Stat(half.Out); err != nil || info.Size() != sizes.Bytes || sizes.TableBytes >= sizes.DenseTableBytes {
		t.Errorf("%+v: %v", sizes, err)
	}
	ck, err := checkpoint.Read(half.Out)
	if err != nil {
		t.Fatal(err)
	}
	dropped, _, err := ck.Pruned()
	if err != nil {
		t.Fatal(err)
	}
	for i, gone := range dropped {
		if gone != (i < f.entries/2) {
			t.Errorf("entry %d: dropped is %v", i, gone)
		}
	}
	var p sweep.Point
	bits, kept := 0, 0
	for i, use := range ck.Compact.Uses() {
		bits, kept = bits+use.Kept*ck.Compact.Palette().Quantizers[i].Bits, kept+use.Kept
	}
	if err := cut.SetSize(&p, ck, f.entries); err != nil || p.Bits != int(math.Ceil(float64(bits)/float64(kept))) || p.Bits == 0 || *p.Bytes != sizes.Bytes {
		t.Errorf("the size is %+v, expected %d bytes, and %d bits of %d entries; %v", p, sizes.Bytes, bits, kept, err)
	}
	for budget, calibrate := range map[int64]bool{sizes.Bytes + 64: false, sizes.Bytes + 256: true} { // calibrated weights are float32
		o := f.auto("bytes.safetensors", mask.Bytes, float64(budget))
		o.Calibrate = calibrate
		if _, small := prune(t, o); small.Bytes > budget || small.Bytes < budget-400 {
			t.Errorf("calibrated %v: %d bytes, expected at most %d", calibrate, small.Bytes, budget)
		}
	}
}

// What choosing bits cannot do is wrong usage that says what to change.
func TestAutoRefuses(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	for want, change := range map[string]func(o *cut.Options){
		"budget: bytes 100: the model without any embedding entry takes ": func(o *cut.Options) { o.Budget = &mask.Budget{Unit: mask.Bytes, Amount: 100} },
	} {
		o := f.auto("out.safetensors", mask.Sparsity, .5)
		change(o)
		if _, err := o.Choose(t.Context()); !fault.IsUsage(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
}

// Without a calibration, the bound of the rise holds for the loss of the file that is written, and with one for the loss after it.
func TestAutoBoundsTheLossOfTheFile(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	losses := func(path string, calibrate bool) float64 {
		ck, err := checkpoint.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		m, err := ck.Model()
		if err != nil {
			t.Fatal(err)
		}
		b, err := measure.Open([]string{f.rows}, dataset.Val, "", m, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := b.Predict(t.Context(), m, nil)
		if err != nil {
			t.Fatal(err)
		}
		if calibrate {
			return p.MeanLoss(evaluate.Calibrate(p))
		}
		return p.MeanLoss(loss.Uncalibrated)
	}
	for _, sparsity := range []float64{0, .3, .7} {
		whole := f.options("whole.safetensors", mask.Sparsity, sparsity)
		prune(t, whole)
		for _, calibrate := range []bool{false, true} {
			o := f.auto("auto.safetensors", mask.Sparsity, sparsity)
			o.Calibrate, o.Rounding = calibrate, .001
			c, _ := prune(t, o)
			rise := losses(o.Out, calibrate) - losses(whole.Out, calibrate)
			if most := 2 * o.Rounding; rise > most || c.Rounding.TableRise.Value > o.Rounding { // the network may raise it by as much as the tables
				t.Errorf("sparsity %v, calibrated %v: the loss rises by %v, expected at most %v; by the tables alone %v", sparsity, calibrate, rise, most, c.Rounding.TableRise)
			}
		}
	}
}

// Who calibrates, or chooses bits, on rows on which the whole model is worse than a constant gets a warning, once. These are
// probably not rows of the model.
func TestDoubt(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	for name, change := range map[string]func(o *cut.Options){
		"calibrated": func(o *cut.Options) { o.Calibrate = true },
		"rounded":    func(o *cut.Options) { o.Form.Values, o.Rounding = compact.Mixed, .01 },
		"both":       func(o *cut.Options) { o.Calibrate, o.Form.Values, o.Rounding = true, compact.Mixed, .01 },
		"neither":    func(*cut.Options) {},
	} {
		o, warned := f.options("doubt.safetensors", mask.Sparsity, .1), 0
		change(o)
		o.Warn = func(text string) {
			if strings.HasPrefix(text, f.model+" predicts worse than a constant: ") {
				warned++
			}
		}
		prune(t, o)
		if want := map[bool]int{true: 0, false: 1}[name == "neither"]; warned != want {
			t.Errorf("%s: %d warnings, expected %d", name, warned, want)
		}
	}
}

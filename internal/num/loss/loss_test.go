package loss_test

import (
	"math"
	"testing"

	"shaver/internal/num/loss"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		kind  loss.Kind
		logit float64
		label float32
		want  float64
	}{
		{loss.Logistic, 0, 0, math.Ln2}, {loss.Logistic, 0, 1, math.Ln2}, {loss.Logistic, 800, 1, 0}, {loss.Logistic, 800, 0, 800},
		{loss.Logistic, -800, 1, 800}, {loss.Logistic, 1, 0, 1.3132616875182228},
		{loss.Squared, 3, 3, 0}, {loss.Squared, 1.5, 4, 6.25}, {loss.Squared, -1, 1, 4},
	} {
		if got := c.kind.Of(c.logit, c.label); math.Abs(got-c.want) > 1e-15*(1+c.want) {
			t.Errorf("%s loss of (%v, %v) is %v, expected %v", c.kind.Name(), c.logit, c.label, got, c.want)
		}
	}
}

// Every name stands for the loss that has it, and nothing else is a name.
func TestParse(t *testing.T) {
	for _, name := range loss.Names() {
		if kind, err := loss.Parse(name); err != nil || kind.Name() != name {
			t.Errorf("Parse(%q) is %q, %v", name, kind.Name(), err)
		}
	}
	for kind, want := range map[loss.Kind]bool{loss.Logistic: true, loss.Squared: true, "logistic": false, "x": false} {
		if err := kind.Check(); (err == nil) != want {
			t.Errorf("Check of %q: %v", string(kind), err)
		}
	}
	for _, name := range []string{"", "Squared", "mse"} {
		if _, err := loss.Parse(name); err == nil {
			t.Errorf("%q is a loss", name)
		}
	}
}

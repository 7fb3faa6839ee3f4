package launch

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/estimator"
)

// The report of a resumed job shows no rate, because an earlier run scored some of the
// rows.
func TestReportOfResumed(t *testing.T) {
	for resumed, want := range map[bool]string{
		false: "rows\t90\t45/s\nseconds\t2.0\t3.0 of CPU\n",
		true:  "rows\t90\nseconds\t2.0\t3.0 of CPU, and the time of an earlier run that was interrupted\n",
	} {
		var out bytes.Buffer
		(&JobReport{Rows: 90, Seconds: 2, CPUSeconds: 3, Shards: 1, Resumed: resumed}).Table(&out, "s.arrow", nil)
		if !strings.Contains(out.String(), want) {
			t.Errorf("%v: %q, want %q in it", resumed, &out, want)
		}
	}
}

// The rate of a path counts a row once for each round that measured it, as its progress does.
func TestReportOfPath(t *testing.T) {
	var out bytes.Buffer
	r := &JobReport{Rows: 90, Seconds: 2, CPUSeconds: 3, Shards: 1, Path: &scores.Path{Rounds: []scores.Round{{Rows: 90}, {Rows: 30}, {Rows: 30}}}}
	if r.Table(&out, "s.arrow", nil); !strings.Contains(out.String(), "rows\t90\tin the first round\t150 in all rounds, 75/s\n") {
		t.Errorf("%q, expected the rate of 150 rows", &out)
	}
}

// The table of a job says that the standard error of multilinear does not cover its bias, and that its
// values mean little if they are less than its efficiency error. So does the document.
func TestReportOfBias(t *testing.T) {
	var o coordinator.Outcome
	s := &o.Scores
	s.LossFull, s.LossEmpty, s.EfficiencySE = .5, .581, .1
	path := filepath.Join(t.TempDir(), "scores.arrow")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		estimator     string
		off           float64
		bias, warning bool
	}{{estimator.Multilinear, .08, true, false}, {estimator.Multilinear, 6.2, true, true}, {estimator.Debiased, .08, false, false}} {
		s.Spec.Estimator, s.EfficiencyError = c.estimator, c.off
		o.Existing = true
		r, err := newReport(&o, path)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		r.Table(&out, path, nil)
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if bias := strings.Contains(out.String(), "\t\tmore than twice the standard error is bias; --audit"); bias != c.bias {
			t.Errorf("%+v: says that there is a bias: %t\n%s", c, bias, &out)
		}
		for _, by := range []string{out.String(), string(text)} {
			if warning := strings.Contains(by, "score with --estimator antithetic"); warning != c.warning {
				t.Errorf("%+v: a warning: %t\n%s", c, warning, by)
			}
		}
	}
}

package launch

import (
	"bytes"
	"strings"
	"testing"

	"shaver/internal/jobs/scores"
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
	if r.Table(&out, "s.arrow", nil); !strings.Contains(out.String(), "rows\t90\t75/s in all rounds\n") {
		t.Errorf("%q, expected the rate of 150 rows", &out)
	}
}

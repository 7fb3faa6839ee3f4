package launch

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"shaver/internal/cli"
)

// The help of each command that programs share documents the exit codes.
func TestExitHelp(t *testing.T) {
	for _, c := range []*cobra.Command{ScoreCommand("score", false), ScoreCommand("coordinator", true), WorkCommand("worker")} {
		if !strings.Contains(c.Long, cli.ExitHelp) {
			t.Errorf("%s does not document its exit codes", c.Name())
		}
	}
}

// Rows of an earlier run make no rate of this one's seconds.
func TestReportOfResumed(t *testing.T) {
	for resumed, want := range map[bool]string{
		false: "rows\t90\t45/s\nseconds\t2.0\t3.0 of CPU\n",
		true:  "rows\t90\nseconds\t2.0\t3.0 of CPU, and what an earlier run took that was cut off\n",
	} {
		var out bytes.Buffer
		(&JobReport{Rows: 90, Seconds: 2, CPUSeconds: 3, Shards: 1, Resumed: resumed}).table(&out, "s.arrow", nil)
		if !strings.Contains(out.String(), want) {
			t.Errorf("%v: %q, want %q in it", resumed, &out, want)
		}
	}
}

package cli

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"shaver/internal/jobs/job"
	"shaver/internal/num/kernel"
)

// The version names the commit if the build knows it.
func TestVersion(t *testing.T) {
	info := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123abc"}, {Key: "vcs.modified", Value: "true"}}}
	info.Main.Version = "v1.2.3"
	platform := fmt.Sprintf("go        %s\nplatform  %s/%s\nkernel    avx2\nprotocol  %d", runtime.Version(), runtime.GOOS, runtime.GOARCH, job.Protocol)
	if got, want := versionText(info, "avx2"), "v1.2.3\ncommit    0123abc (modified)\n"+platform; got != want {
		t.Errorf("%q, expected %q", got, want)
	}
	if got, want := versionText(&debug.BuildInfo{}, "avx2"), "(devel)\ncommit    unknown\n"+platform; got != want {
		t.Errorf("without information: %q, expected %q", got, want)
	}
	var out bytes.Buffer
	c := &cobra.Command{Use: "worker", Run: func(*cobra.Command, []string) {}}
	Setup(c)
	c.SetOut(&out)
	c.SetArgs([]string{"--version"})
	if err := c.Execute(); err != nil || !strings.HasPrefix(out.String(), "worker ") || !strings.HasSuffix(out.String(), fmt.Sprintf("kernel    %s\nprotocol  %d\n", kernel.Name(), job.Protocol)) {
		t.Errorf("worker --version prints %q (%v)", &out, err)
	}
}

// One line names the version and the commit.
func TestProgramText(t *testing.T) {
	info := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123abc"}, {Key: "vcs.modified", Value: "true"}}}
	if got := programText(info); got != "shaver (devel), commit 0123abc (modified)" {
		t.Error(got)
	}
	info.Main.Version = "v1.2.3"
	info.Settings = nil
	if got := programText(info); got != "shaver v1.2.3, commit unknown" {
		t.Error(got)
	}
}

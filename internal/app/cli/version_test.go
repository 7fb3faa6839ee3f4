package cli

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"shaver/internal/jobs/job"
	"shaver/internal/num/kernel"
)

// The version names the commit if the build knows it.
func TestVersion(t *testing.T) {
	info := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123abc"}, {Key: "vcs.modified", Value: "true"}}}
	platform := fmt.Sprintf("go        %s\nplatform  %s/%s\nkernel    avx2\nprotocol  %d", runtime.Version(), runtime.GOOS, runtime.GOARCH, job.Protocol)
	if got, want := versionText(info, "avx2"), Release()+"\ncommit    0123abc (modified)\n"+platform; got != want {
		t.Errorf("%q, expected %q", got, want)
	}
	if got, want := versionText(&debug.BuildInfo{}, "avx2"), Release()+"\ncommit    unknown\n"+platform; got != want {
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
	if got := programText(info); got != "shaver "+Release()+", commit 0123abc (modified)" {
		t.Error(got)
	}
	info.Settings = nil
	if got := programText(info); got != "shaver "+Release()+", commit unknown" {
		t.Error(got)
	}
}

var rewrite = flag.Bool("rewrite", false, "copy the version to the files that state it")

// The files that state the version state that of version.txt. The first heading of the changes is its.
func TestVersionEverywhere(t *testing.T) {
	if !regexp.MustCompile(`^\d+\.\d+\.\d+\n$`).MatchString(released) {
		t.Fatalf("version.txt has %q, expected a version such as 1.2.3 and a new line", released)
	}
	image := `\bshaver:(\d+\.\d+\.\d+)`
	for file, pattern := range map[string]string{
		"deploy/helm/shaver/Chart.yaml":   `(?m)^(?:v|appV)ersion: (.*)$`,
		"python/src/shaver/__init__.py":   `(?m)^__version__ = "(.*)"$`,
		"docker-compose.yml":              image,
		"CITATION.cff":                    `(?m)^version: (.*)$`,
		"Dockerfile":                      image,
		"README.md":                       image,
		"deploy/k8s/README.md":            image,
		"deploy/k8s/try/data/import.yaml": image,
		"CHANGELOG.md":                    `^# Changes\n[^#]*\n## (\S+)\n`,
	} {
		path := filepath.Join("..", "..", "..", filepath.FromSlash(file))
		text, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			continue
		}
		found := regexp.MustCompile(pattern).FindAllSubmatchIndex(text, -1)
		if len(found) == 0 {
			t.Errorf("%s does not state the version", file)
		}
		changed := false
		for _, at := range slices.Backward(found) {
			if got := string(text[at[2]:at[3]]); got == Release() {
				continue
			} else if !*rewrite || file == "CHANGELOG.md" {
				t.Errorf("%s states version %s, expected %s: run make version", file, got, Release())
				continue
			}
			text = slices.Concat(text[:at[2]], []byte(Release()), text[at[3]:])
			changed = true
		}
		if changed {
			if err := os.WriteFile(path, text, 0o644); err != nil {
				t.Error(err)
			}
		}
	}
}

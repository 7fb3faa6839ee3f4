package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/base/long"
)

// A copy of the module with another path has no import that is missing, its packages compile, and its tests of the architecture
// pass. The old path gives the old files.
func TestRename(t *testing.T) {
	long.Heavy(t)
	tracked, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "ls-files", "-z").Output()
	if err != nil {
		t.Skip("the test is not in a clone: ", err)
	}
	copied := t.TempDir()
	files := map[string][]byte{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(tracked), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join("../..", name))
		if os.IsNotExist(err) {
			continue // deleted, but not committed
		}
		path := filepath.Join(copied, name)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if err == nil {
			err = os.WriteFile(path, data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		files[name] = data
	}
	before := declared.FindSubmatch(files["go.mod"])
	changed, err := rename(copied, "example.org/team/attribution")
	if err != nil {
		t.Fatal(err)
	}
	if len(changed) < 500 {
		t.Errorf("%d files changed, expected at least 500", len(changed))
	}
	run := func(args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), args[0], args[1:]...)
		c.Dir = copied
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if packages := run("go", "list", "-deps", "-test", "./..."); !strings.Contains(packages, "\nexample.org/team/attribution/cmd/shaver\n") {
		t.Errorf("packages %s", packages)
	}
	run("go", "vet", "./internal/base/...", "./internal/jobs/bus", "./release/...")
	run("go", "test", "./internal")
	if out := run("gofmt", "-l", "."); out != "" {
		t.Errorf("gofmt would change:\n%s", out)
	}

	if _, err := rename(copied, string(before[1])); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if got, err := os.ReadFile(filepath.Join(copied, name)); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s differs after two changes of the path: %v", name, err)
		}
	}
}

// Only paths of packages of the module change.
func TestMentions(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const page = "`shaver/infer` -X shaver/cmd.x, but deploy/shaver/infer, shaver/values.yaml, shaver/dist, other.org/shaver/infer, shaver/inference and shaver"
	write("go.mod", "module shaver\n")
	write("page.md", page)
	write("CHANGELOG.md", page)
	write("docs/evidence/run.md", page)
	write("binary", page+"\x00")
	write("dist/infer.txt", "")
	write("cmd/a.go", "package main\n\nimport (\n\t\"zlib.org/a\"\n\t\"shaver/infer\"\n)\n")
	write("infer/b.go", "package infer\n")
	for _, to := range []string{"", "/a", "a b", "a//b", "a/", "../a"} {
		if _, err := rename(root, to); err == nil {
			t.Errorf("the path %q is taken", to)
		}
	}
	if _, err := rename(root, "example.org/s"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"go.mod":               "module example.org/s\n",
		"page.md":              "`example.org/s/infer` -X example.org/s/cmd.x, but deploy/shaver/infer, shaver/values.yaml, shaver/dist, other.org/shaver/infer, shaver/inference and shaver",
		"CHANGELOG.md":         page,
		"docs/evidence/run.md": page,
		"binary":               page + "\x00",
		"cmd/a.go":             "package main\n\nimport (\n\t\"example.org/s/infer\"\n\t\"zlib.org/a\"\n)\n",
	} {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q (%v), expected %q", name, got, err, want)
		}
	}
}

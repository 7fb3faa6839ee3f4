package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// runLayer makes a dataset in the folder of temporary files of an image, as the user of the image and in its unpacked layer. Only
// root can do this.
func runLayer(t *testing.T, layer map[string]entry, entrypoint []string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Log("the layer does not run: the test is not root")
		return
	}
	root, err := os.MkdirTemp("", "shaver-layer-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range sortedKeys(layer) { // folders come before what is in them
		e, path := layer[name], filepath.Join(root, filepath.FromSlash(name))
		var err error
		if strings.HasSuffix(name, "/") {
			err = os.Mkdir(path, 0o755)
		} else {
			err = os.WriteFile(path, e.data, e.mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), entrypoint[0], "dataset", "synth", "--shape", "criteo", "--rows", "100", "--out", "/tmp/log.tsv")
	c.Dir = "/"
	c.Env = []string{}
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("shaver in the image: %v\n%s", err, out)
	}
	log, err := os.ReadFile(filepath.Join(root, "tmp", "log.tsv"))
	if err != nil || strings.Count(string(log), "\n") != 100 {
		t.Errorf("shaver in the image wrote %d bytes, expected 100 rows: %v", len(log), err)
	}
}

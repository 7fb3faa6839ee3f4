//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A SIGHUP ends an import like Ctrl-C: it leaves no file. A second SIGHUP, which a shell
// sends when its terminal is closed, changes nothing. Under nohup the import continues.
func TestHangup(t *testing.T) {
	rows := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(rows, append([]byte("label,a,b\n"), bytes.Repeat([]byte("1,2,3\n0,1,2\n"), 1<<20)...), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		before string // what the shell does before it becomes the program
		code   int
		left   []string
	}{
		"terminal": {"", 130, nil},
		"nohup":    {`trap "" HUP;`, 0, []string{"d"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := start(t, nil, "sh", "-c", test.before+`exec shaver dataset import csv --train "$0" --out "$1"`, rows, filepath.Join(dir, "d"))
			for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
				if found, _ := filepath.Glob(filepath.Join(dir, ".d.tmp-*", "*")); len(found) > 0 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("the import did not begin to write")
				}
			}
			p.signal(syscall.SIGHUP)
			_ = p.cmd.Process.Signal(syscall.SIGHUP) // fails if the process has ended
			p.wantExit(test.code)
			wantFiles(t, dir, test.left...)
			if test.code != 0 && (len(p.log) == 0 || !strings.HasSuffix(p.log[len(p.log)-1], "shaver: cancelled")) {
				t.Errorf("the log is %q", p.log)
			}
		})
	}
}

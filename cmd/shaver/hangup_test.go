//go:build unix

package main

import (
	"bytes"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A SIGHUP ends an import like Ctrl-C: it leaves no file. A second SIGHUP, which a shell
// sends when its terminal is closed, changes nothing. Under nohup the import continues.
func TestHangup(t *testing.T) {
	// A process that is started with SIGHUP ignored, as by nohup, hands this on to the
	// processes that it starts, unless it handles the signal.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for name, test := range map[string]struct {
		before string // what the shell does before it becomes the program
		rows   int    // pairs of rows to import; those of terminal take seconds, so that the signal comes in time on a busy machine
		code   int
		left   []string
	}{
		"terminal": {"", 1 << 23, 130, nil},
		"nohup":    {`trap "" HUP;`, 1 << 20, 0, []string{"d"}},
	} {
		t.Run(name, func(t *testing.T) {
			rows, dir := filepath.Join(t.TempDir(), "rows.csv"), t.TempDir()
			if err := os.WriteFile(rows, append([]byte("label,a,b\n"), bytes.Repeat([]byte("1,2,3\n0,1,2\n"), test.rows)...), 0o600); err != nil {
				t.Fatal(err)
			}
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
			if test.code != 0 && (len(p.log) == 0 || !strings.HasSuffix(p.log[len(p.log)-1], "shaver: interrupted")) {
				t.Errorf("the log is %q", p.log)
			}
		})
	}
}

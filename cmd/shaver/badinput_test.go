package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Bounds of every case.
const (
	badPeak    = 256 << 20       // bytes of memory
	badSilence = 2 * time.Second // until the first output or the end, on a machine that is not busy
	badLeast   = 100             // number of cases
)

// TestBadInput runs the cases of testdata/bad.txt, each as a process of its own in an
// empty folder. Each must end with the expected exit code and last line on stderr, without
// a stack trace, within badPeak of memory, and without a silence of more than badSilence.
// A refusal prints one line and nothing else. The file says how to add a case.
func TestBadInput(t *testing.T) {
	inputs := makeBad(t)
	text, err := os.ReadFile(filepath.Join("testdata", "bad.txt"))
	if err != nil {
		t.Fatal(err)
	}
	turns := make(chan struct{}, 2*runtime.GOMAXPROCS(0))
	count := 0
	section, seen := "", map[string]bool{}
	for number, line := range strings.Split(string(text), "\n") {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			section = name
		}
		if line == "" || line[0] == '#' {
			continue
		}
		parts := strings.SplitN(line, " | ", 3)
		if len(parts) != 3 {
			t.Fatalf("bad.txt:%d: expected CODE | COMMAND | LAST LINE", number+1)
		}
		if seen[parts[1]] {
			t.Errorf("bad.txt:%d: the command is there already", number+1)
		}
		seen[parts[1]] = true
		count++
		t.Run(section+"/"+strconv.Itoa(number+1), func(t *testing.T) {
			t.Parallel()
			turns <- struct{}{}
			defer func() { <-turns }()
			runBad(t, inputs, strings.TrimSpace(parts[0]), parts[1], parts[2])
		})
	}
	if count < badLeast {
		t.Errorf("%d cases, expected at least %d", count, badLeast)
	}
}

// runBad runs one case. In command and last, SILENT is the address of a server that says
// nothing, NOBODY is an address at which nobody listens, GUARDED is the address of a NATS
// server without JetStream and without TLS whose user is me:secret, and FULL is a new
// folder for 8 KiB, and PIPES is a folder with named pipes. If the code ends with +, more lines may come before the last one.
func runBad(t *testing.T, in badInputs, code, command, last string) {
	code, chatty := strings.CutSuffix(code, "+")
	dir := t.TempDir()
	if err := os.Symlink(in.dir, filepath.Join(dir, "in")); err != nil {
		t.Skip(err) // Windows needs a privilege for this
	}
	full := ""
	if strings.Contains(command, "FULL") {
		if full = small(t); full == "" {
			t.Skip("only root can make a small file system")
		}
	}
	pipes := ""
	if strings.Contains(command, "PIPES") {
		if pipes = makePipes(t); pipes == "" {
			t.Skip("this system has no named pipes")
		}
	}
	places := strings.NewReplacer("PIPES", pipes, "SILENT", in.silent, "NOBODY", in.nobody, "GUARDED", in.guarded, "FULL", full)
	command, last = places.Replace(command), places.Replace(last)
	args := words(t, command)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Dir = dir
	peak := filepath.Join(t.TempDir(), "peak")
	c.Env = append(os.Environ(), peakVariable+"="+peak, "NO_COLOR=1")
	var stdout, stderr firstWrite
	c.Stdout, c.Stderr = &stdout, &stderr
	begun := time.Now()
	err := c.Run()
	silence := time.Since(begun)
	for _, w := range []*firstWrite{&stdout, &stderr} {
		if !w.at.IsZero() {
			silence = min(silence, w.at.Sub(begun))
		}
	}
	found, err := exitCode(err)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(stderr.String(), "\n"), "\n")
	end := lines[len(lines)-1]
	if strconv.Itoa(found) != code || !like(last, end) {
		t.Errorf("%s\nexit code %d, expected %s; last line\n%s\nexpected\n%s", command, found, code, end, last)
	}
	if !chatty && (len(lines) > 1 || stdout.Len() > 0) {
		t.Errorf("%s\nexpected one line on stderr and none on stdout:\n%s%s", command, &stdout, &stderr)
	}
	if all := stdout.String() + stderr.String(); strings.Contains(all, "goroutine ") || strings.Contains(all, "panic:") || strings.Contains(all, "\x1b") {
		t.Errorf("%s\na stack trace or an escape code:\n%s", command, all)
	}
	if limit := time.Duration(float64(badSilence) * load()); silence > limit {
		t.Errorf("%s\nsilent for %v, expected at most %v", command, silence, limit)
	}
	if text, err := os.ReadFile(peak); err == nil {
		if kib, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || kib<<10 > badPeak {
			t.Errorf("%s\n%s KiB of memory, expected at most %d (%v)", command, text, badPeak>>10, err)
		}
	} else if runtime.GOOS == "linux" {
		t.Errorf("%s\nno peak memory: %v", command, err)
	}
}

// words splits a command at spaces. A word in double quotes may contain spaces and Go's
// escapes.
func words(t *testing.T, command string) (list []string) {
	t.Helper()
	for _, word := range regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\S+`).FindAllString(command, -1) {
		if word[0] == '"' {
			text, err := strconv.Unquote(word)
			if err != nil {
				t.Fatalf("%s: %v", word, err)
			}
			word = text
		}
		list = append(list, word)
	}
	return list
}

// like reports whether text matches pattern, in which * stands for any text.
func like(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(text)
}

// firstWrite is a buffer that notes when it was first written to.
type firstWrite struct {
	mu sync.Mutex
	at time.Time
	bytes.Buffer
}

func (w *firstWrite) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at.IsZero() {
		w.at = time.Now()
	}
	return w.Buffer.Write(p)
}

// load returns by how much other processes may slow down this test, at least 1.
func load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 1
	}
	var average float64
	fmt.Sscan(string(text), &average)
	return max(1, 2*average/float64(runtime.GOMAXPROCS(0)))
}

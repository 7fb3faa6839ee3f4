// Package clock sets the wall clocks of processes. Programs in Go read the clock without
// libc. They are therefore built with a package time whose Now adds an offset from a file.
// Every process maps the file, so a change takes effect at once. The monotonic clock is
// unchanged, as on a host whose clock is set.
package clock

import (
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed jump.go.txt
var jumpSource string

// variable is the variable of the environment that names the file of a process's
// clock, as in jump.go.txt.
const variable = "CHAOS_CLOCK"

// reading is the line of time.Now that reads the clock.
const reading = "\tsec, nsec, mono := runtimeNow()\n"

// Overlay writes files to dir with which "go build -overlay" builds programs whose clocks
// can be set. It returns the path of the file for the flag.
func Overlay(dir string) (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	original := filepath.Join(source, "time.go")
	text, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), reading); n != 1 {
		return "", fmt.Errorf("%s reads the clock in %d places, expected 1: this version of Go is not supported", original, n)
	}
	changed := strings.Replace(string(text), reading, reading+"\tsec, nsec = jumped(sec, nsec)\n", 1)
	replace := map[string]string{}
	for _, f := range []struct{ original, name, text string }{
		{original, "time.go", changed}, {filepath.Join(source, "jump.go"), "jump.go", jumpSource},
	} {
		path := filepath.Join(dir, f.name)
		if err := os.WriteFile(path, []byte(f.text), 0o600); err != nil {
			return "", err
		}
		replace[f.original] = path
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}

// Clock is the wall clock of a slot's processes. Its zero value is the machine's clock
// and cannot be set.
type Clock struct{ file *os.File }

// New returns a clock that shows the machine's time. path is the file of its offset.
func New(path string) (Clock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		return Clock{}, err
	}
	c := Clock{f}
	return c, c.Set(0)
}

// Set makes the clock differ from the machine's clock by offset.
func (c Clock) Set(offset time.Duration) error {
	_, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(offset)), 0)
	return err
}

// Env returns the variable of the environment for processes with this clock.
func (c Clock) Env() []string {
	if c.file == nil {
		return nil
	}
	return []string{variable + "=" + c.file.Name()}
}

// Close closes the file of the offset.
func (c Clock) Close() {
	if c.file != nil {
		c.file.Close()
	}
}

// ShownTime returns the time of a log line of a node or of a program of shaver.
func ShownTime(line string) (t time.Time, ok bool) {
	var entry struct {
		Seconds float64 `json:"ts"`
	}
	if json.Unmarshal([]byte(line), &entry) == nil && entry.Seconds > 0 {
		return time.Unix(int64(entry.Seconds), 0), true
	}
	fields := strings.Fields(line)
	if len(fields) < 3 {
		return t, false
	}
	t, err := time.ParseInLocation("2006/01/02 15:04:05", fields[1]+" "+fields[2], time.Local)
	return t, err == nil
}

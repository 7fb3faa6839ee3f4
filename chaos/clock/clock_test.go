package clock

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A program that is built with the overlay shows the time of its clock, and its monotonic
// clock does not jump.
func TestClock(t *testing.T) {
	dir := t.TempDir()
	list, err := Overlay(dir)
	if err != nil {
		t.Fatal(err)
	}
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "show")
	err = os.WriteFile(source, []byte(`package main

import (
	"bufio"
	"fmt"
	"os"
	"time"
)

func main() {
	begun := time.Now()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(time.Now().UnixNano(), time.Since(begun) < time.Hour)
	}
}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-overlay", list, "-o", program, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	c, err := New(filepath.Join(dir, "clock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	show := exec.Command(program)
	show.Env = append(os.Environ(), c.Env()...)
	in, err := show.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := show.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := show.Start(); err != nil {
		t.Fatal(err)
	}
	for _, offset := range []time.Duration{0, 100 * 24 * time.Hour, -3 * time.Hour, 0} {
		if err := c.Set(offset); err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		var now int64
		var steady bool
		if _, err := io.WriteString(in, "now\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fscan(out, &now, &steady); err != nil {
			t.Fatal(err)
		}
		if wrong := time.Unix(0, now).Sub(before) - offset; wrong < 0 || wrong > time.Minute {
			t.Errorf("with an offset of %v, the clock is wrong by %v", offset, wrong)
		}
		if !steady {
			t.Errorf("with an offset of %v, the monotonic clock jumps", offset)
		}
	}
	in.Close()
	if err := show.Wait(); err != nil {
		t.Error(err)
	}
}

func TestShownTime(t *testing.T) {
	for _, line := range []string{`{"level":"info","ts":1795379219.76,"msg":"x"}`, "[26054] " + time.Unix(1795379219, 0).Format("2006/01/02 15:04:05") + ".518570 [INF] Starting nats-server"} {
		if found, ok := ShownTime(line); !ok || found.Unix() != 1795379219 {
			t.Errorf("%s: %v, %v", line, found, ok)
		}
	}
	for _, line := range []string{"", "{}", "[1] yesterday evening"} {
		if found, ok := ShownTime(line); ok {
			t.Errorf("%s: %v", line, found)
		}
	}
}

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The steps find the commands of docker-compose.yml, also one of two lines.
func TestCommands(t *testing.T) {
	commands := readCommands(read(t, "docker-compose.yml"), "7:8")
	for _, prefix := range []string{"go run ./deploy/nats/keys", upCommand, jobCommand + " 7:8 coordinator --model ", operatorCommand, scaleCommand, "docker compose down", "docker compose down --volumes"} {
		if !slices.ContainsFunc(commands, func(c string) bool { return strings.HasPrefix(c, prefix) }) {
			t.Errorf("no command %q in %q", prefix, commands)
		}
	}
	for _, c := range commands {
		if strings.ContainsAny(c, "\"$#\\") {
			t.Errorf("the command %q needs a shell", c)
		}
	}
}

// README.md and the Dockerfile have the commands that the steps run on the image alone.
func TestReadmeCommands(t *testing.T) {
	for _, want := range []struct{ file, text string }{
		{"README.md", "`" + buildCommand + "`"}, {"README.md", "`" + quickstartCommand + "`"}, {"Dockerfile", buildCommand + "\n"},
	} {
		if !strings.Contains(read(t, want.file), want.text) {
			t.Errorf("%s has no command %s", want.file, want.text)
		}
	}
}

// The steps find the images that the Dockerfile and docker-compose.yml take from a registry.
func TestBaseImages(t *testing.T) {
	golang, nats, err := (&try{tree: root}).baseImages()
	if err != nil || !strings.HasPrefix(golang, "golang:") || !strings.HasPrefix(nats, "nats:") {
		t.Errorf("got %q, %q, %v", golang, nats, err)
	}
}

// The build context has exactly what the Dockerfile copies.
func TestDockerignore(t *testing.T) {
	var copied, sent []string
	for _, m := range regexp.MustCompile(`(?m)^COPY ([^-].*) \S+$`).FindAllStringSubmatch(read(t, "Dockerfile"), -1) {
		copied = append(copied, strings.Fields(m[1])...)
	}
	lines := strings.Split(strings.TrimSpace(read(t, ".dockerignore")), "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "#") })
	if lines[0] != "*" {
		t.Errorf("the first rule is %q: expected * to leave out every other file", lines[0])
	}
	for _, l := range lines {
		if name, ok := strings.CutPrefix(l, "!"); ok {
			sent = append(sent, name)
		}
	}
	slices.Sort(copied)
	slices.Sort(sent)
	if !slices.Equal(copied, sent) {
		t.Errorf("the Dockerfile copies %v, but .dockerignore lets %v through", copied, sent)
	}
}

// A stand-in has the files of a folder without tests and their data.
func TestAddTree(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.go", "a_test.go", "b/c.txt", "b/testdata/d.txt"} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(addTree(w, dir, "to"), addTree(w, filepath.Join(dir, "a.go"), "one"), w.Close()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode != 0o644 {
			t.Errorf("%s has mode %o, which not every user can read", h.Name, h.Mode)
		}
		got = append(got, h.Name+"="+string(text))
	}
	if want := []string{"to/a.go=a.go", "to/b/c.txt=b/c.txt", "one=a.go"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

package deploy_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const root = "../.." // of the repository

func TestCompose(t *testing.T) {
	file := filepath.Join(root, "docker-compose.yml")
	var content map[string]any
	if err := yaml.Unmarshal([]byte(read(t, file)), &content); err != nil {
		t.Fatal(err)
	}
	n := node(content)
	for name := range n.in("services") {
		s := n.in("services", name)
		want := ownImage
		if name == "nats" {
			want = natsImage
		}
		if s.text("image") != want {
			t.Errorf("service %s: image %q", name, s.text("image"))
		}
		for _, port := range s.texts("ports") {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("service %s: port %s is open to others", name, port)
			}
		}
		if s.at("read_only") != true || !slices.Equal(s.texts("cap_drop"), []string{"ALL"}) || !slices.Contains(s.texts("security_opt"), "no-new-privileges:true") {
			t.Errorf("service %s is not confined", name)
		}
		if name != "nats" {
			entry := s.texts("entrypoint")
			args := slices.DeleteFunc(slices.Concat(entry[1:], s.texts("command")), func(arg string) bool { return arg == "--help" })
			checkCommand(t, "service "+name, entry[0], args)
		}
	}
	// The example in its head.
	example := regexp.MustCompile(`run --rm --user \S+ coordinator \\\n# +(--.*)\n`).FindStringSubmatch(strings.ReplaceAll(read(t, file), `"$(id -u):$(id -g)"`, "me"))
	if example == nil {
		t.Fatal("the file does not say how to run a job")
	}
	checkCommand(t, "example", "/bin/coordinator", append(strings.Fields(example[1]), "--nats=x"), "model", "dataset", "out")
	if _, err := os.Stat(filepath.Join(root, n.text("configs", "nats", "file"))); err != nil {
		t.Error(err)
	}
}

// TestVersions checks images against go.mod: the language, and the server whose
// behaviour was tested.
func TestVersions(t *testing.T) {
	mod, dockerfile := read(t, filepath.Join(root, "go.mod")), read(t, filepath.Join(root, "Dockerfile"))
	language := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(mod)
	server := regexp.MustCompile(`(?m)github.com/nats-io/nats-server/v2 v(\d+\.\d+)\.`).FindStringSubmatch(mod)
	if language == nil || server == nil {
		t.Fatal("go.mod names neither Go nor the server")
	}
	if !strings.Contains(dockerfile, "FROM golang:"+language[1]+" AS build\n") {
		t.Errorf("the Dockerfile does not build with Go %s", language[1])
	}
	if natsImage != "nats:"+server[1] {
		t.Errorf("image %s, the tests run %s", natsImage, server[1])
	}
	for _, want := range []string{"\nFROM scratch\n", "\nUSER 65532:65532\n", "CGO_ENABLED=0 ", "./cmd/shaver", "./cmd/coordinator", "./cmd/worker"} {
		if !strings.Contains(dockerfile, want) {
			t.Errorf("the Dockerfile has no %q", want)
		}
	}
	images := regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(dockerfile, -1)
	for _, image := range images {
		if strings.Contains(image[1], "/") {
			t.Errorf("image %s names a registry", image[1])
		}
	}
}

// TestBuildContext checks that the Dockerfile copies every folder that the
// programs import from.
func TestBuildContext(t *testing.T) {
	copied := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^COPY (\w+) \./`).FindAllStringSubmatch(read(t, filepath.Join(root, "Dockerfile")), -1) {
		copied[m[1]] = true
	}
	imports := regexp.MustCompile(`"shaver/(\w+)`)
	for _, folder := range []string{"cmd", "internal"} {
		if !copied[folder] {
			t.Errorf("the Dockerfile does not copy %s", folder)
		}
		err := filepath.WalkDir(filepath.Join(root, folder), func(file string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
				return err
			}
			for _, m := range imports.FindAllStringSubmatch(read(t, file), -1) {
				if !copied[m[1]] {
					t.Errorf("%s imports from %s, which the Dockerfile does not copy", file, m[1])
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

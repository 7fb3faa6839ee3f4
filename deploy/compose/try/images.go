package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"shaver/deploy/internal/trial"
)

// baseImages returns the images that the Dockerfile and docker-compose.yml take from a
// registry: Go and NATS.
func (t *try) baseImages() (golang, nats string, err error) {
	find := func(file, pattern string) string {
		text, e := os.ReadFile(filepath.Join(t.tree, file))
		m := regexp.MustCompile(pattern).FindSubmatch(text)
		if m == nil {
			err = errors.Join(err, e, fmt.Errorf("%s has no %s", file, pattern))
			return ""
		}
		return string(m[1])
	}
	return find("Dockerfile", `(?m)^FROM (golang:\S+)`), find("docker-compose.yml", `(?m)^ +image: (nats:\S+)`), err
}

// image pulls an image. If that fails, it imports what fill writes, and reports that this is
// a stand-in.
func (t *try) image(s *trial.Step, name string, changes []string, fill func(*tar.Writer) error) (standIn bool) {
	if t.docker(s.Ctx, "image", "inspect", name).Code == 0 {
		s.Say("The Engine has `%s`.", name)
		return false
	}
	pull := trial.Command{Args: []string{"docker", "pull", "--quiet", name}, Env: t.env, Limit: 10 * time.Minute}.Do(s.Ctx)
	if pull.Code == 0 {
		s.Say("`%s` was pulled.", name)
		return false
	}
	begun := time.Now()
	args := []string{"import"}
	for _, change := range changes {
		args = append(args, "--change", change)
	}
	c := exec.CommandContext(s.Ctx, "docker", append(args, "-", name)...)
	c.Env = append(os.Environ(), t.env...)
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	in, err := c.StdinPipe()
	s.Check(err)
	s.Check(c.Start())
	w := tar.NewWriter(in)
	err = errors.Join(fill(w), w.Close(), in.Close())
	if end := c.Wait(); err != nil || end != nil {
		s.Fail("docker import %s: %v, %v: %s", name, err, end, said.String())
	}
	s.Say("`%s` could not be pulled. A stand-in was imported in %.0f s.", name, time.Since(begun).Seconds())
	return true
}

// fillGo writes what the Dockerfile needs of the image golang: this machine's Go, sh, mkdir,
// certificates, and the modules that the build downloads.
func fillGo(ctx context.Context, tree string) func(*tar.Writer) error {
	return func(w *tar.Writer) error {
		goroot := trial.Command{Args: []string{"go", "env", "GOROOT"}}.Do(ctx)
		if goroot.Code != 0 {
			return errors.New(goroot.Text())
		}
		for _, dir := range []string{"tmp", "go", "root"} {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o1777}); err != nil {
				return err
			}
		}
		for _, dir := range []string{"bin", "src", "pkg", "lib", "VERSION", "go.env"} {
			if err := addTree(w, filepath.Join(goroot.Out, dir), "usr/local/go/"+dir); err != nil {
				return err
			}
		}
		if err := addPrograms(ctx, w, "sh", "mkdir"); err != nil {
			return err
		}
		if err := addCertificates(w); err != nil {
			return err
		}
		return addModules(ctx, w, tree)
	}
}

// goEnvironment is the environment of the stand-in for the image golang. The build finds the
// modules in the image. Any other module comes from where this machine gets it.
func goEnvironment(ctx context.Context) []string {
	proxy := trial.Command{Args: []string{"go", "env", "GOPROXY"}}.Do(ctx).Out
	return []string{
		"ENV PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"ENV GOPATH=/go", "ENV HOME=/root", "ENV GOTOOLCHAIN=local", "ENV GOPROXY=file:///modules," + proxy,
	}
}

// addTree adds a file or a folder. It leaves out tests and their data, which no build needs.
func addTree(w *tar.Writer, from, to string) error {
	return filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if entry.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(entry.Name(), "_test.go") {
			return nil
		}
		return addFile(w, file, path.Join(to, filepath.ToSlash(rel)))
	})
}

// addFile adds one file. It follows links.
func addFile(w *tar.Writer, from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: to, Mode: int64(info.Mode().Perm() | 0o444), Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// addPrograms adds programs of this machine and their libraries.
func addPrograms(ctx context.Context, w *tar.Writer, names ...string) error {
	added := map[string]bool{}
	for _, name := range names {
		file, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		if err := addFile(w, file, "bin/"+name); err != nil {
			return err
		}
		// ldd fails if the program is static. It then has no libraries.
		libraries := trial.Command{Args: []string{"ldd", file}}.Do(ctx)
		for _, library := range regexp.MustCompile(`/\S+`).FindAllString(libraries.Out, -1) {
			if _, err := os.Stat(library); err != nil || added[library] {
				continue
			}
			added[library] = true
			if err := addFile(w, library, strings.TrimPrefix(library, "/")); err != nil {
				return err
			}
		}
	}
	return nil
}

// addCertificates adds this machine's certificates at the place where Debian has them.
func addCertificates(w *tar.Writer) error {
	for _, file := range []string{os.Getenv("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"} {
		if _, err := os.Stat(file); err == nil {
			return addFile(w, file, "etc/ssl/certs/ca-certificates.crt")
		}
	}
	return errors.New("this machine has no file of certificates: set SSL_CERT_FILE")
}

// addModules adds what "go mod download" reads in tree, as a proxy of files at /modules.
func addModules(ctx context.Context, w *tar.Writer, tree string) error {
	r := trial.Command{Args: []string{"go", "mod", "download", "-json"}, Dir: tree, Limit: 10 * time.Minute}.Do(ctx)
	cache := trial.Command{Args: []string{"go", "env", "GOMODCACHE"}}.Do(ctx)
	if r.Code != 0 || cache.Code != 0 {
		return fmt.Errorf("go mod download: %s %s", r.Text(), cache.Text())
	}
	root := filepath.Join(cache.Out, "cache", "download")
	sums, err := os.ReadFile(filepath.Join(tree, "go.sum"))
	if err != nil {
		return err
	}
	mods := map[string]bool{} // the go.mod files of all modules, which Go reads to choose versions
	for line := range strings.Lines(string(sums)) {
		if module, version, ok := strings.Cut(line, " "); ok {
			version, _, _ = strings.Cut(version, " ")
			if version, ok = strings.CutSuffix(version, "/go.mod"); ok {
				mods[filepath.Join(root, filepath.FromSlash(escape(module)), "@v", escape(version)+".mod")] = true
			}
		}
	}
	for d := json.NewDecoder(strings.NewReader(r.Out)); d.More(); {
		var m struct{ Info, GoMod, Zip string }
		if err := d.Decode(&m); err != nil {
			return err
		}
		mods[m.Info], mods[m.GoMod], mods[m.Zip] = true, true, true
	}
	for _, file := range slices.Sorted(maps.Keys(mods)) {
		rel, err := filepath.Rel(root, file)
		if err == nil {
			err = addFile(w, file, "modules/"+filepath.ToSlash(rel))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // go.sum also has modules that no build reads
			return err
		}
	}
	return nil
}

// escape writes a module's path or version as Go's module cache does, with ! and the small
// letter in place of each capital.
func escape(name string) string {
	var b strings.Builder
	for _, c := range name {
		if 'A' <= c && c <= 'Z' {
			b.WriteByte('!')
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}

// files lists the files of an image of one layer, with their sizes.
func (t *try) files(s *trial.Step, image string) map[string]int64 {
	id := t.docker(s.Ctx, "create", image, "none")
	if id.Code != 0 {
		s.Fail("docker create: %s", id.Text())
	}
	defer t.docker(s.Ctx, "rm", id.Out)
	c := exec.CommandContext(s.Ctx, "docker", "export", id.Out)
	c.Env = append(os.Environ(), t.env...)
	out, err := c.StdoutPipe()
	s.Check(err)
	s.Check(c.Start())
	found := map[string]int64{}
	for r := tar.NewReader(out); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		s.Check(err)
		if h.Typeflag == tar.TypeReg {
			found[h.Name] = h.Size
		}
	}
	_, _ = io.Copy(io.Discard, out)
	s.Check(c.Wait())
	return found
}

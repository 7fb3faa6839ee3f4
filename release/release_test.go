package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"shaver/internal/base/long"
)

var rewrite = flag.Bool("rewrite", false, "write THIRD_PARTY.txt")

// THIRD_PARTY.txt has the licences of what the programs link today, on all platforms.
func TestNotices(t *testing.T) {
	modules, err := linkedModules(t.Context(), "..", platforms)
	if err != nil {
		t.Fatal(err)
	}
	golang, err := goNotices(t.Context(), "..")
	if err != nil {
		t.Fatal(err)
	}
	text := noticesText(append([]module{golang}, modules...))
	path := filepath.Join("..", noticesFile)
	if *rewrite {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != text {
		t.Errorf("%s is not current: run make notices, and read what changed", noticesFile)
	}
	// Licences that we have read: one file with one licence, several files, a folder of a linked package with a licence of its own,
	// and a README with a licence.
	for _, want := range []string{
		"github.com/spf13/cobra ", "github.com/apache/thrift v0.20.0: NOTICE\n", "/compress v1.20.3: zstd/internal/xxhash/LICENSE.txt\n",
		"github.com/JohnCGriffin/overflow v0.0.0-20211019200055-46fa312c352c: README.md\n", "Copyright (c) 2017 John C. Griffin",
		"Go, the standard library and the run time: LICENSE\n", "Copyright 2009 The Go Authors",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s has no %q", noticesFile, want)
		}
	}
	for path, want := range map[string]string{
		"github.com/spf13/cobra": "Apache-2.0", "go.uber.org/zap": "MIT", "golang.org/x/sys": "BSD-3-Clause", "github.com/JohnCGriffin/overflow": "MIT",
		"github.com/RoaringBitmap/roaring/v2": "Apache-2.0 AND BSD-3-Clause", "github.com/apache/arrow/go/v17": "", // has texts that are no licence
	} {
		for _, m := range modules {
			if m.path == path && m.licence() != want {
				t.Errorf("licence of %s: %q, expected %q", path, m.licence(), want)
			}
		}
	}
}

// A module without a licence is an error that names its folder, and a licence in a folder that is not linked is no licence of it.
func TestUnlicensed(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	names := func(linked ...string) (names []string, err error) {
		folders := map[string]bool{}
		for _, l := range linked {
			folders[filepath.Join(dir, filepath.FromSlash(l))] = true
		}
		notices, err := noticesOf(dir, folders)
		for _, n := range notices {
			names = append(names, n.file)
		}
		return names, err
	}
	write("a/b/LICENSE", "of a/b")
	write("other/LICENSE", "of other")
	write("NOTICE", "a notice")
	write("licence.go", "package a")
	write("README.md", "The licence is friendly.")
	if _, err := names("a/b"); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("without a licence: %v", err)
	}
	write("COPYING", "of all")
	if got, err := names("a/b", "a"); err != nil || !slices.Equal(got, []string{"COPYING", "NOTICE", "a/b/LICENSE"}) {
		t.Errorf("notices %v, %v", got, err)
	}
}

// A release for this machine has the same bytes twice, sums and components of all that it has, and programs that run without Go.
func TestRelease(t *testing.T) {
	long.Heavy(t)
	platform := runtime.GOOS + "/" + runtime.GOARCH
	if !slices.Contains(platforms, platform) {
		t.Skipf("we do not release for %s", platform)
	}
	var releases []map[string][]byte
	var folder string
	for range 2 {
		folder = t.TempDir()
		r := release{root: "..", out: folder, version: "1.2.3", platforms: []string{platform}, when: time.Unix(defaultTime, 0).UTC()}
		if err := r.build(t.Context()); err != nil {
			t.Fatal(err)
		}
		releases = append(releases, readFolder(t, folder))
	}
	files := releases[0]
	for name, data := range files {
		if !bytes.Equal(data, releases[1][name]) {
			t.Errorf("%s differs between two builds", name)
		}
	}
	name := "shaver-1.2.3-" + strings.ReplaceAll(platform, "/", "-")
	archive := name + ".tar.gz"
	want := []string{"SHA256SUMS", "shaver-1.2.3.cdx.json", "shaver-1.2.3.tgz"}
	switch runtime.GOOS {
	case "windows":
		archive = name + ".zip"
	case "linux":
		want = append(want, "shaver-1.2.3-image.tar")
	}
	want = append(want, archive)
	slices.Sort(want)
	if got := sortedKeys(files); !slices.Equal(got, want) || len(releases[1]) != len(got) {
		t.Fatalf("files %v, expected %v", got, want)
	}
	sums := ""
	for _, file := range want {
		if file != "SHA256SUMS" {
			sums += fmt.Sprintf("%x  %s\n", sha256.Sum256(files[file]), file)
		}
	}
	if got := string(files["SHA256SUMS"]); got != sums {
		t.Errorf("sums\n%s, expected\n%s", got, sums)
	}

	unpacked := unpack(t, archive, files[archive])
	var programs []string
	for file, e := range unpacked {
		if e.mode&0o111 != 0 || strings.HasSuffix(file, ".exe") {
			programs = append(programs, file)
		}
	}
	if len(programs) != 3 {
		t.Fatalf("programs %v, expected three", programs)
	}
	notices := string(unpacked[name+"/"+noticesFile].data)
	components := componentsOf(t, files["shaver-1.2.3.cdx.json"])
	for _, file := range programs {
		e := unpacked[file]
		program := filepath.Join(t.TempDir(), filepath.Base(file))
		if err := os.WriteFile(program, e.data, 0o755); err != nil {
			t.Fatal(err)
		}
		// go version -m is a reader of build information that is not ours.
		out, err := exec.CommandContext(t.Context(), "go", "version", "-m", program).Output()
		if err != nil {
			t.Fatal(err)
		}
		var linked []string
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); f[0] == "dep" {
				linked = append(linked, f[1]+" "+f[2])
				if !strings.Contains(notices, "\n"+f[1]+" "+f[2]+": ") {
					t.Errorf("the notices do not name %s %s of %s", f[1], f[2], file)
				}
			}
		}
		sum := sha256.Sum256(e.data)
		slices.Sort(linked)
		if got := components[hex.EncodeToString(sum[:])]; len(linked) < 20 || !slices.Equal(got, linked) {
			t.Errorf("components of %s:\n%v, expected\n%v", file, got, linked)
		}
		if strings.HasPrefix(filepath.Base(file), "shaver") {
			quickstart := exec.CommandContext(t.Context(), program, "quickstart", "--rows", "2000")
			quickstart.Dir = t.TempDir()
			quickstart.Env = []string{"PATH=", "HOME=" + quickstart.Dir, "TMPDIR=" + t.TempDir(), "SystemRoot=" + os.Getenv("SystemRoot")}
			if out, err := quickstart.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("efficiency")) {
				t.Errorf("quickstart without Go: %v\n%s", err, out)
			}
		}
	}
	chart := unpack(t, "chart.tar.gz", files["shaver-1.2.3.tgz"])
	for file, e := range chart {
		if have, err := os.ReadFile(filepath.Join("..", "deploy", "helm", filepath.FromSlash(file))); err != nil || !bytes.Equal(have, e.data) {
			t.Errorf("%s of the chart differs from its source: %v", file, err)
		}
	}
	if len(chart) < 10 {
		t.Errorf("the chart has only %d files", len(chart))
	}
	if runtime.GOOS == "linux" {
		checkImage(t, files["shaver-1.2.3-image.tar"], unpacked, name)
	}
}

// checkImage reads an image back: each blob has its digest and its size, the configuration names the layer's contents, and the layer has
// the programs and documents of the archive. As root, it also runs the image's command in the layer.
func checkImage(t *testing.T, image []byte, archive map[string]entry, name string) {
	t.Helper()
	files := unpackTar(t, bytes.NewReader(image))
	used := map[string]bool{}
	read := func(d descriptor, document any) []byte {
		t.Helper()
		file := "blobs/" + strings.Replace(d.Digest, ":", "/", 1)
		data := files[file].data
		if sum := sha256.Sum256(data); d.Digest != "sha256:"+hex.EncodeToString(sum[:]) || d.Size != len(data) {
			t.Fatalf("blob %s has %d bytes and the sum %x, expected %d bytes", d.Digest, len(data), sum, d.Size)
		}
		used[file] = true
		if document != nil {
			if err := json.Unmarshal(data, document); err != nil {
				t.Fatal(err)
			}
		}
		return data
	}
	if got := string(files["oci-layout"].data); got != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout %s", got)
	}
	var top, all index
	if err := json.Unmarshal(files["index.json"].data, &top); err != nil || len(top.Manifests) != 1 {
		t.Fatalf("index.json %s: %v", files["index.json"].data, err)
	}
	read(top.Manifests[0], &all)
	if len(all.Manifests) != 1 || *all.Manifests[0].Platform != (ociPlatform{runtime.GOARCH, runtime.GOOS}) {
		t.Fatalf("manifests %+v", all.Manifests)
	}
	var m manifest
	var config imageConfig
	read(all.Manifests[0], &m)
	read(m.Config, &config)
	z, err := gzip.NewReader(bytes.NewReader(read(m.Layers[0], nil)))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(plain); len(m.Layers) != 1 || !slices.Equal(config.RootFS.DiffIDs, []string{"sha256:" + hex.EncodeToString(sum[:])}) {
		t.Errorf("the configuration has layers %v, expected %x", config.RootFS.DiffIDs, sum)
	}
	if len(files) != len(used)+2 {
		t.Errorf("the image has %d files, of which %d are used", len(files), len(used)+2)
	}
	if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/bin/shaver"}) || config.Architecture != runtime.GOARCH || config.OS != "linux" || !strings.HasSuffix(config.Config.Env[0], ":/bin") {
		t.Errorf("configuration %+v", config)
	}
	layer := unpackTar(t, bytes.NewReader(plain))
	for file, e := range archive {
		folder := "licenses"
		if e.mode&0o111 != 0 {
			folder = "bin"
		}
		if got := layer[strings.Replace(file, name, folder, 1)]; !bytes.Equal(got.data, e.data) || got.mode != e.mode {
			t.Errorf("%s differs between the archive and the image", file)
		}
	}
	if layer["tmp/"].mode != 0o1777 {
		t.Errorf("the folder of temporary files has the mode %o", layer["tmp/"].mode)
	}
	certificates := 0
	for rest := layer["etc/ssl/certs/ca-certificates.crt"].data; ; certificates++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
	}
	if certificates < 100 {
		t.Errorf("%d root certificates, expected at least 100", certificates)
	}
	runLayer(t, layer, config.Config.Entrypoint)
}

// componentsOf returns the modules of each program in a list of components, as "path version", by the sum of the program.
func componentsOf(t *testing.T, data []byte) map[string][]string {
	t.Helper()
	var document struct {
		Components []struct {
			Type, Name, Version string
			Ref                 string `json:"bom-ref"`
			Hashes              []struct{ Content string }
		}
		Dependencies []dependency
	}
	if err := json.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	names, sums := map[string]string{}, map[string]string{}
	for _, c := range document.Components {
		if names[c.Ref] != "" {
			t.Errorf("two components have the reference %s", c.Ref)
		}
		names[c.Ref] = c.Name + " " + c.Version
		if c.Type == "application" {
			sums[c.Ref] = c.Hashes[0].Content
		}
	}
	all := map[string][]string{}
	for _, d := range document.Dependencies {
		for _, ref := range d.DependsOn {
			if names[ref] == "" {
				t.Errorf("%s depends on %s, which is no component", d.Ref, ref)
			}
			if sum := sums[d.Ref]; sum != "" && !strings.HasPrefix(ref, "pkg:golang/std@") {
				all[sum] = append(all[sum], names[ref])
			}
		}
		slices.Sort(all[sums[d.Ref]])
	}
	return all
}

func readFolder(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(folder, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// unpack returns the files of an archive by their names, and checks that they have the time of the release.
func unpack(t *testing.T, name string, data []byte) map[string]entry {
	t.Helper()
	if filepath.Ext(name) != ".zip" {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		return unpackTar(t, z)
	}
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]entry{}
	for _, f := range z.File {
		data, err := fs.ReadFile(z, f.Name)
		if err != nil || f.Modified.Unix() != defaultTime {
			t.Fatalf("%s of %v: %v", f.Name, f.Modified, err)
		}
		files[f.Name] = entry{f.Name, f.Mode(), data}
	}
	return files
}

func unpackTar(t *testing.T, r io.Reader) map[string]entry {
	t.Helper()
	files := map[string]entry{}
	for z := tar.NewReader(r); ; {
		h, err := z.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(z)
		if err != nil || h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != defaultTime || files[h.Name].name != "" {
			t.Fatalf("%s of %d:%d and %v, or twice: %v", h.Name, h.Uid, h.Gid, h.ModTime, err)
		}
		files[h.Name] = entry{h.Name, fs.FileMode(h.Mode), data}
	}
}

// A program that links a module without notices is an error that names both, and so are invalid settings.
func TestRefusals(t *testing.T) {
	linked := program{platform: "linux/arm64", name: "worker", info: &buildinfo.BuildInfo{Deps: []*debug.Module{{Path: "example.org/new", Version: "v1.0.0"}}}}
	if _, err := (&release{root: ".."}).documents([]program{linked}); err == nil || !strings.Contains(err.Error(), "example.org/new v1.0.0, which worker for linux/arm64 links") {
		t.Errorf("a module without notices: %v", err)
	}
	out := t.TempDir()
	if err := run(t.Context(), out, "", ""); err == nil || !strings.Contains(err.Error(), "root of the repository") {
		t.Errorf("in another folder: %v", err)
	}
	t.Chdir("..")
	if err := run(t.Context(), out, "linux/386", ""); err == nil || !strings.Contains(err.Error(), "-only linux/386: expected one of linux/amd64, ") {
		t.Errorf("an unknown platform: %v", err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "today")
	if err := run(t.Context(), out, "", ""); err == nil || !strings.Contains(err.Error(), `SOURCE_DATE_EPOCH is "today", expected seconds`) {
		t.Errorf("an invalid time: %v", err)
	}
	if left := readFolder(t, out); len(left) > 0 {
		t.Errorf("files %v are left", sortedKeys(left))
	}
}

// Zip files and tar files have the same content.
func TestZip(t *testing.T) {
	entries := []entry{{"a/b", 0o644, []byte("text")}, {"a/c.exe", 0o755, bytes.Repeat([]byte{7}, 1000)}}
	when := time.Unix(defaultTime, 0).UTC()
	zipFile, err := zipped(entries, when)
	if err != nil {
		t.Fatal(err)
	}
	tarFile, err := tarGz(entries, when)
	if err != nil {
		t.Fatal(err)
	}
	z, g := unpack(t, "x.zip", zipFile), unpack(t, "x.tar.gz", tarFile)
	for _, e := range entries {
		for _, got := range []entry{z[e.name], g[e.name]} {
			if got.mode != e.mode || !bytes.Equal(got.data, e.data) {
				t.Errorf("%s: %o, %d bytes", e.name, got.mode, len(got.data))
			}
		}
	}
}

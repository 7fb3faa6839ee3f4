// Release builds everything that a version consists of: archives of the static programs, the Python package, the image, the chart,
// a list of components (SBOM) and the sums of all files. The same source, Go, Python and packages give the same bytes.
//
//	go run ./release [-only PLATFORM] [-python PROGRAM] [-out FOLDER]
//
// The files are in the folder of the version in FOLDER, which they replace. docs/internals/releasing.md describes them.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// platforms are those for which we release, as GOOS/GOARCH.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64"}

// defaultTime is the time of all files unless SOURCE_DATE_EPOCH is set. It is the one that hatchling gives to the files of wheels.
const defaultTime = 1580601600 // 2020-02-02

// release is what builds one version.
type release struct {
	root      string // of the repository
	out       string // folder for the files, which is empty
	version   string // such as 1.2.3
	platforms []string
	python    string // program that has the packages build and hatchling; "" leaves out wheels
	when      time.Time
}

// program is a built program.
type program struct {
	platform, name string
	data           []byte
	info           *buildinfo.BuildInfo
}

func main() {
	out := flag.String("out", "dist", "`FOLDER` in which the folder of the version is written")
	only := flag.String("only", "", "build for one `PLATFORM`, such as linux/amd64")
	python := flag.String("python", "python3", "`PROGRAM` that has the Python packages build and hatchling")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *out, *only, *python); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run builds the version of the repository in the working directory.
func run(ctx context.Context, out, only, python string) error {
	r := release{root: ".", platforms: platforms, python: python, when: time.Unix(defaultTime, 0).UTC()}
	version, err := os.ReadFile("internal/app/cli/version.txt")
	if err != nil {
		return fmt.Errorf("%w: run it in the root of the repository", err)
	}
	r.version = strings.TrimSpace(string(version))
	if only != "" {
		if !slices.Contains(platforms, only) {
			return fmt.Errorf("-only %s: expected one of %s", only, strings.Join(platforms, ", "))
		}
		r.platforms = []string{only}
	}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH is %q, expected seconds since 1970", epoch)
		}
		r.when = time.Unix(seconds, 0).UTC()
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if r.out, err = os.MkdirTemp(out, ".release-*"); err != nil {
		return err
	}
	defer os.RemoveAll(r.out)
	if err := r.build(ctx); err != nil {
		return err
	}
	final := filepath.Join(out, r.version)
	if err := errors.Join(os.RemoveAll(final), os.Chmod(r.out, 0o755), os.Rename(r.out, final)); err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(final, "SHA256SUMS"))
	fmt.Printf("%s:\n%s", final, sums)
	return err
}

// build writes all files of the version.
func (r *release) build(ctx context.Context) error {
	work, err := os.MkdirTemp("", "shaver-release-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	programs, err := r.programs(ctx, work)
	if err != nil {
		return err
	}
	modules, err := linkedModules(ctx, r.root, r.platforms)
	if err != nil {
		return err
	}
	documents, err := r.documents(programs)
	if err != nil {
		return err
	}
	for _, platform := range r.platforms {
		if err := r.archive(platform, programs, documents); err != nil {
			return err
		}
	}
	if r.python != "" {
		if err := r.wheels(ctx, work); err != nil {
			return err
		}
	}
	return errors.Join(r.image(programs, documents), r.chart(), r.sbom(programs, modules), r.sums())
}

// goCommand returns a run of the go command for a platform, or for this machine if it is empty. Settings of the user that change a
// program do not hold.
func goCommand(ctx context.Context, root, platform string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir = root
	c.Stderr = os.Stderr
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off", "GOAMD64=v1", "GOARM64=v8.0")
	if system, processor, ok := strings.Cut(platform, "/"); ok {
		c.Env = append(c.Env, "GOOS="+system, "GOARCH="+processor)
	}
	return c
}

// programs builds the programs for all platforms, in the folder of each platform in work.
func (r *release) programs(ctx context.Context, work string) ([]program, error) {
	var programs []program
	for _, platform := range r.platforms {
		folder := filepath.Join(work, filepath.FromSlash(platform))
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
		build := goCommand(ctx, r.root, platform, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", folder+string(filepath.Separator), "./cmd/...")
		if err := build.Run(); err != nil {
			return nil, fmt.Errorf("go build for %s: %w", platform, err)
		}
		files, err := os.ReadDir(folder)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			data, err := os.ReadFile(filepath.Join(folder, f.Name()))
			if err != nil {
				return nil, err
			}
			info, err := buildinfo.Read(bytes.NewReader(data))
			if err != nil {
				return nil, fmt.Errorf("%s for %s: %w", f.Name(), platform, err)
			}
			programs = append(programs, program{platform, f.Name(), data, info})
		}
	}
	return programs, nil
}

// documents returns the licence and the notices, which must name all modules of the programs.
func (r *release) documents(programs []program) ([]entry, error) {
	var documents []entry
	for _, name := range []string{"LICENSE", noticesFile} {
		text, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return nil, err
		}
		documents = append(documents, entry{name, 0o644, text})
	}
	for _, p := range programs {
		for _, d := range p.info.Deps {
			if !bytes.Contains(documents[1].data, []byte("\n"+d.Path+" "+d.Version+": ")) {
				return nil, fmt.Errorf("%s does not name module %s %s, which %s for %s links: run make notices", noticesFile, d.Path, d.Version, p.name, p.platform)
			}
		}
	}
	return documents, nil
}

// archive writes the programs for a platform with the documents.
func (r *release) archive(platform string, programs []program, documents []entry) error {
	name := "shaver-" + r.version + "-" + strings.ReplaceAll(platform, "/", "-")
	var entries []entry
	for _, p := range programs {
		if p.platform == platform {
			entries = append(entries, entry{name + "/" + p.name, 0o755, p.data})
		}
	}
	for _, d := range documents {
		entries = append(entries, entry{name + "/" + d.name, d.mode, d.data})
	}
	pack, extension := tarGz, ".tar.gz"
	if strings.HasPrefix(platform, "windows/") {
		pack, extension = zipped, ".zip"
	}
	data, err := pack(entries, r.when)
	if err != nil {
		return err
	}
	return r.write(name+extension, data)
}

// wheels builds the Python package around the programs in work.
func (r *release) wheels(ctx context.Context, work string) error {
	args := []string{filepath.Join(r.root, "python", "wheels.py"), "--programs", work}
	if len(r.platforms) == 1 {
		args = append(args, "--only", r.platforms[0])
	}
	c := exec.CommandContext(ctx, r.python, append(args, r.out)...)
	c.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(r.when.Unix(), 10))
	c.Stderr = os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("python/wheels.py: %w (it needs the packages build and hatchling)", err)
	}
	return nil
}

// chart writes the chart in the form of "helm package".
func (r *release) chart() error {
	tree := os.DirFS(filepath.Join(r.root, "deploy", "helm"))
	var entries []entry
	err := fs.WalkDir(tree, "shaver", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(tree, name)
		entries = append(entries, entry{name, 0o644, data})
		return err
	})
	if err != nil {
		return err
	}
	data, err := tarGz(entries, r.when)
	if err != nil {
		return err
	}
	return r.write("shaver-"+r.version+".tgz", data)
}

// sums writes the SHA-256 sums of all files, as sha256sum reads them.
func (r *release) sums() error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(r.out, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(data), f.Name())
	}
	return r.write("SHA256SUMS", []byte(b.String()))
}

// write writes a file of the version.
func (r *release) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}

// Command try runs the commands at the top of docker-compose.yml and README.md's commands
// for the image alone on a real Docker Engine, and checks what they do:
//
//	go run ./deploy/compose/try
//
// It uses the Docker Engine that the docker program reaches. If none answers, it starts
// dockerd, which needs root and Linux, in namespaces and a temporary folder of its own, and
// ends it afterwards. If the docker program has no Compose, it builds Compose from its
// source. If an image of Docker's registry cannot be pulled, it makes a stand-in from the
// programs of this machine. The project's Dockerfile is built unchanged.
//
// The commands run in a copy of the tree. On an Engine that was there before, they use the
// Compose project shaver-try and port 4222 of 127.0.0.1, and leave the image shaver.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"shaver/deploy/internal/trial"
)

func main() {
	runtime.LockOSThread() // an Engine that this thread started ends with it
	page := flag.String("page", "", "Markdown file in which to replace the transcript between the lines begin compose and end compose if all steps pass")
	work := flag.Float64("work", 120, "processor seconds of the longer job; two workers must take more than 30 s for it, because the first checkpoint comes then")
	keep := flag.Bool("keep", false, "keep the temporary folder")
	get := flag.String("get", "", "print what this URL answers, and exit")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), ending...)
	context.AfterFunc(ctx, stop) // a second signal ends this program at once
	err := errors.New("unexpected argument " + flag.Arg(0) + ": expected only flags")
	switch {
	case flag.NArg() > 0:
	case *get != "":
		err = fetch(ctx, *get)
	default:
		err = run(ctx, *page, *work, *keep)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "compose:", err)
		os.Exit(1)
	}
}

// run makes everything that the steps need and runs them. If all pass, it writes the
// transcript into the page.
func run(ctx context.Context, page string, work float64, keep bool) (err error) {
	begun := time.Now()
	root, err := rootFolder(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "shaver-compose-*")
	if err != nil {
		return err
	}
	defer func() {
		if keep {
			fmt.Println("kept:", dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	e, err := findEngine(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	if err := e.findCompose(ctx, root); err != nil {
		return err
	}
	t := &try{Run: trial.New(os.Stdout), engine: e, work: work, root: root, dir: dir, tree: filepath.Join(dir, "shaver")}
	t.Hide[dir] = "DIR"
	t.Hide[root] = "."
	if host, _ := os.Hostname(); len(host) > 3 {
		t.Hide[host] = "HOST"
	}
	if t.size, err = copyTree(ctx, root, t.tree); err != nil {
		return err
	}
	t.steps(ctx)
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if err := t.Err(); err != nil || page == "" {
		return err
	}
	text := fmt.Sprintf("Run on %s. All steps passed after %.0f s.\n\n", time.Now().UTC().Format(time.DateOnly), time.Since(begun).Seconds())
	return trial.Replace(page, "compose", text+t.Markdown(3))
}

// rootFolder returns the root of the repository.
func rootFolder(ctx context.Context) (string, error) {
	r := trial.Command{Args: []string{"go", "env", "GOMOD"}}.Do(ctx)
	root := filepath.Dir(r.Out)
	if _, err := os.Stat(filepath.Join(root, "docker-compose.yml")); r.Code != 0 || err != nil {
		return "", fmt.Errorf("the working folder is not in shaver's repository: %s", r.Text())
	}
	return root, nil
}

// copyTree copies the files that git tracks or would add, and returns their size.
func copyTree(ctx context.Context, from, to string) (size int64, err error) {
	r := trial.Command{Args: []string{"git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"}, Dir: from}.Do(ctx)
	if r.Code != 0 {
		return 0, fmt.Errorf("git ls-files: %s", r.Text())
	}
	for name := range strings.SplitSeq(strings.Trim(r.Out, "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(from, name))
		if errors.Is(err, os.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue // deleted in the working folder, or a link
		}
		if err == nil {
			err = copyFile(filepath.Join(from, name), filepath.Join(to, name), info.Mode().Perm())
		}
		if err != nil {
			return 0, err
		}
		size += info.Size()
	}
	return size, nil
}

func copyFile(from, to string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, mode)
}

// fetch prints the answer of a URL. Run under nsenter it reaches what only the Engine's
// network namespace has.
func fetch(ctx context.Context, url string) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	_, err = io.Copy(os.Stdout, a.Body)
	return err
}

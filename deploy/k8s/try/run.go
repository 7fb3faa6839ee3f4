//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"shaver/deploy/internal/trial"
	"shaver/deploy/k8s/try/cluster"
)

type options struct {
	steps    []string
	keep     bool
	validate bool
	cached   bool
	page     string
}

// skip is the reason why nothing was done.
type skip string

func (s skip) Error() string { return string(s) }

// suite is what the steps share.
type suite struct {
	*cluster.Cluster
	root  string // the checkout
	cache string
	run   *trial.Run
	work  string // folder for files of the steps
	bin   string // folder of the programs of the checkout
	copy  string // copy of the checkout
	data  *data

	gocache, modcache string // of the go command
	begun             time.Time
	versions          map[string]string
	forward           sync.Mutex // held while a port is forwarded
	cancelled         int        // number of jobs that the operator cancelled; guarded by forward
}

// step is a part of the run.
type step struct {
	name  string
	do    func(*suite, *trial.Step)
	basic bool // the other steps need it, so it always runs, and ends the run if it fails
}

// names returns the names of all steps.
func names() []string {
	var list []string
	for _, group := range groups {
		for _, s := range group {
			list = append(list, s.name)
		}
	}
	return list
}

func (o *options) do(ctx context.Context) error {
	for _, name := range o.steps {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("-steps: no step %q: expected some of %s", name, strings.Join(names(), ", "))
		}
	}
	if os.Getuid() != 0 {
		return skip("this program needs root, because it makes namespaces")
	}
	root, err := checkout(ctx)
	if err != nil {
		return err
	}
	cache, err := o.programs(ctx, root)
	if err != nil {
		return err
	}
	begun := time.Now()
	c, err := cluster.Start(ctx, root, cache, !o.validate)
	if err != nil {
		return err
	}
	s := &suite{Cluster: c, root: root, cache: cache, run: trial.New(os.Stdout), work: filepath.Join(c.Dir, "files"), begun: begun, versions: cluster.Versions(root)}
	s.run.Hide = map[string]string{c.Dir: "CLUSTER", root: ".", cache: "CACHE"}
	defer func() {
		if err := c.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "try: removing the cluster:", err)
		}
	}()
	if err := os.Mkdir(s.work, 0o755); err != nil {
		return err
	}
	env, err := exec.CommandContext(ctx, "go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		return err
	}
	s.gocache, s.modcache, _ = strings.Cut(strings.TrimSpace(string(env)), "\n")
	if o.validate {
		s.run.Step(ctx, "validate", s.check)
		return s.run.Err()
	}
	o.all(ctx, s)
	s.summary()
	if o.keep && ctx.Err() == nil {
		fmt.Printf("the cluster runs until Ctrl-C:\n  export KUBECONFIG=%s\n  %s\n", c.Kubeconfig(), strings.Join(append(c.Kubectl().Under, c.Kubectl().Path, "get", "pods", "-A"), " "))
		<-ctx.Done()
	}
	if err := errors.Join(s.run.Err(), context.Cause(ctx)); err != nil || o.page == "" {
		return err
	}
	return s.write(o.page)
}

// all runs the steps. Those of a group run at the same time.
func (o *options) all(ctx context.Context, s *suite) {
	for _, group := range groups {
		var wg sync.WaitGroup
		broken := false
		for _, p := range group {
			if ctx.Err() != nil || len(o.steps) > 0 && !p.basic && !slices.Contains(o.steps, p.name) {
				continue
			}
			wg.Go(func() {
				if !s.run.Step(ctx, p.name, func(t *trial.Step) { p.do(s, t) }) && p.basic {
					broken = true
				}
			})
		}
		wg.Wait()
		if broken {
			return
		}
	}
}

// programs finds or builds what the cluster consists of, and returns the cache.
func (o *options) programs(ctx context.Context, root string) (string, error) {
	cache, err := cluster.Cache()
	if err != nil {
		return "", err
	}
	var built, packaged []string
	if o.validate {
		built, packaged = []string{"kube-apiserver", "kubectl", "helm"}, []string{"etcd", "ip", "nsenter"}
	}
	missing, err := cluster.Missing(root, cache, built...)
	if err != nil {
		return "", err
	}
	packages := cluster.Packages(packaged...)
	switch {
	case len(packages) > 0 && o.cached:
		return "", skip("packages are missing: " + strings.Join(packages, " "))
	case len(missing) > 0 && o.cached:
		return "", skip("programs are not built: " + strings.Join(missing, " ") + " (make cluster builds them)")
	case len(packages) > 0:
		return "", fmt.Errorf("packages are missing; run: apt-get install %s", strings.Join(packages, " "))
	}
	return cache, cluster.Build(ctx, root, cache, missing, os.Stdout)
}

// checkout returns the folder of the main module.
func checkout(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "shaver").Output()
	if err != nil {
		return "", fmt.Errorf("finding the module shaver, in which this program must run: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

//go:build linux

package cluster

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A tool is a program that is built from Go modules. Its version is that of the go.mod file
// in the folder.
type tool struct {
	folder string // of the go.mod file, from deploy/k8s/try/_tools on
	pkg    string
	module string // whose version the program must have; optional
}

const kubernetes = "k8s.io/kubernetes"

var tools = map[string]tool{
	"kube-apiserver":          {"kubernetes", kubernetes + "/cmd/kube-apiserver", kubernetes},
	"kube-controller-manager": {"kubernetes", kubernetes + "/cmd/kube-controller-manager", kubernetes},
	"kube-scheduler":          {"kubernetes", kubernetes + "/cmd/kube-scheduler", kubernetes},
	"kubelet":                 {"kubernetes", kubernetes + "/cmd/kubelet", kubernetes},
	"kube-proxy":              {"kubernetes", kubernetes + "/cmd/kube-proxy", kubernetes},
	"kubectl":                 {"kubernetes", kubernetes + "/cmd/kubectl", kubernetes},
	"coredns":                 {"coredns", ".", "github.com/coredns/coredns"},
	"helm":                    {"helm", "helm.sh/helm/v3/cmd/helm", "helm.sh/helm/v3"},
	"kueue":                   {"kueue", "sigs.k8s.io/kueue/cmd/kueue", "sigs.k8s.io/kueue"},
	"s3server":                {"../../../../internal/ops/remote/testdata/s3server", ".", "github.com/versity/versitygw"},
	"pause":                   {"pause", ".", ""},
}

// debian lists the programs that come from packages of Debian, with the packages.
var debian = map[string]string{
	"etcd": "etcd-server", "containerd": "containerd", "runc": "runc", "/usr/lib/cni/ptp": "containernetworking-plugins",
	"iptables": "iptables", "conntrack": "conntrack", "ipset": "ipset", "/bin/busybox": "busybox-static",
	"ip": "iproute2", "nsenter": "util-linux", "mount": "mount",
}

// Cache returns the folder of the built programs: the environment variable SHAVER_CLUSTER,
// or a folder of the user's cache.
func Cache() (string, error) {
	if dir := os.Getenv("SHAVER_CLUSTER"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "shaver-cluster"), err
}

// Missing returns which of the programs are not in the cache, or have another version than
// their go.mod file. If names is empty, it looks for all of them.
func Missing(root, cache string, names ...string) ([]string, error) {
	if len(names) == 0 {
		for name := range tools {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var missing []string
	for _, name := range names {
		t := tools[name]
		want := ""
		if t.module != "" {
			v, err := version(filepath.Join(folder(root, t), "go.mod"), t.module)
			if err != nil {
				return nil, err
			}
			want = v
		}
		info, err := buildinfo.ReadFile(filepath.Join(cache, "bin", name))
		if err != nil {
			missing = append(missing, name)
			continue
		}
		have := map[string]string{info.Main.Path: info.Main.Version}
		for _, d := range info.Deps {
			have[d.Path] = d.Version
		}
		if want != "" && have[t.module] != want {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

// Packages returns the packages of Debian of which a program is missing.
func Packages(programs ...string) []string {
	if len(programs) == 0 {
		for p := range debian {
			programs = append(programs, p)
		}
	}
	var missing []string
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, debian[p])
		}
	}
	slices.Sort(missing)
	return missing
}

// Build builds the programs into the cache. Those of Kubernetes take 15 minutes on two
// cores the first time.
func Build(ctx context.Context, root, cache string, names []string, out io.Writer) error {
	if err := os.MkdirAll(filepath.Join(cache, "bin"), 0o755); err != nil {
		return err
	}
	for _, name := range names {
		t := tools[name]
		fmt.Fprintln(out, "building", name)
		flags := "-s -w"
		if t.module == kubernetes {
			v, err := version(filepath.Join(folder(root, t), "go.mod"), t.module)
			if err != nil {
				return err
			}
			part := strings.Split(strings.TrimPrefix(v, "v"), ".")
			for _, p := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
				flags += fmt.Sprintf(" -X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s", p, v, p, part[0], p, part[1])
			}
		}
		cmd := exec.CommandContext(ctx, "go", "build", "-p", "2", "-trimpath", "-ldflags", flags, "-o", filepath.Join(cache, "bin", name), t.pkg)
		cmd.Dir, cmd.Stdout, cmd.Stderr = folder(root, t), out, out
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod")
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("building %s: %w", name, err)
		}
	}
	return nil
}

// Versions returns the versions of the modules from which programs are built, by the name
// of their folder.
func Versions(root string) map[string]string {
	versions := map[string]string{}
	for _, t := range tools {
		if v, err := version(filepath.Join(folder(root, t), "go.mod"), t.module); err == nil {
			versions[t.folder] = v
		}
	}
	return versions
}

func folder(root string, t tool) string {
	return filepath.Join(root, "deploy", "k8s", "try", "_tools", t.folder)
}

// version returns the version of a module that a go.mod file requires.
func version(file, module string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(f) >= 2 && f[0] == module && strings.HasPrefix(f[1], "v") {
			return f[1], nil
		}
	}
	return "", fmt.Errorf("%s: does not require %s", file, module)
}

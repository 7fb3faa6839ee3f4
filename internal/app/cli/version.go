package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"shaver/internal/jobs/job"
	"shaver/internal/num/kernel"
)

// release is the version that a build states, for builds without information about the
// module, such as those in images: -ldflags "-X shaver/internal/app/cli.release=v1.2.3". Empty =
// the version of the module.
var release string

// Program names this program's version in one line: that of the module, and the commit.
func Program() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return programText(info)
}

// programText is Program for a build.
func programText(info *debug.BuildInfo) string {
	module, commit := build(info)
	return "shaver " + module + ", commit " + commit
}

// version describes this program: the version of the module, the commit, Go, the
// platform, the first of the kernels of this machine, and the protocol.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return versionText(info, kernel.Name())
}

// versionText is version for a build and a kernel. Builds by "go run" and by "go
// install" of a version contain no commit, and builds of tests contain no version.
func versionText(info *debug.BuildInfo, kernel string) string {
	module, commit := build(info)
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", module)
	fmt.Fprintf(&b, "commit    %s\n", commit)
	fmt.Fprintf(&b, "go        %s\n", runtime.Version())
	fmt.Fprintf(&b, "platform  %s/%s\n", runtime.GOOS, runtime.GOARCH)
	fmt.Fprintf(&b, "kernel    %s\n", kernel)
	fmt.Fprintf(&b, "protocol  %d", job.Protocol)
	return b.String()
}

// build returns the version of the module of a build and its commit.
func build(info *debug.BuildInfo) (module, commit string) {
	module = cmp.Or(release, info.Main.Version)
	if module == "" {
		module = "(devel)"
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	commit = settings["vcs.revision"]
	switch {
	case commit == "":
		commit = "unknown"
	case settings["vcs.modified"] == "true":
		commit += " (modified)"
	}
	return module, commit
}

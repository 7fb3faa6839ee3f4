package cli

import (
	"cmp"
	_ "embed"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/jobs/job"
	"shaver/internal/num/kernel"
)

// released is the version of shaver. "make version" copies it to the Python package, the chart and
// the name of the image.
//
//go:embed version.txt
var released string

// release replaces released in a build for a test of two versions:
// -ldflags "-X shaver/internal/app/cli.release=9.0.0".
var release string

// Release returns the version of shaver, such as 1.2.3.
func Release() string { return cmp.Or(release, strings.TrimSpace(released)) }

// Program names this program's version in one line, with the commit.
func Program() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return programText(info)
}

// programText is Program for a build.
func programText(info *debug.BuildInfo) string {
	return "shaver " + Release() + ", commit " + commit(info)
}

// version describes this program: the version, the commit, Go, the platform, the first of the kernels of this machine, and the protocol.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return versionText(info, kernel.Name())
}

// versionText is version for a build and a kernel.
func versionText(info *debug.BuildInfo, kernel string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", Release())
	fmt.Fprintf(&b, "commit    %s\n", commit(info))
	fmt.Fprintf(&b, "go        %s\n", runtime.Version())
	fmt.Fprintf(&b, "platform  %s/%s\n", runtime.GOOS, runtime.GOARCH)
	fmt.Fprintf(&b, "kernel    %s\n", kernel)
	fmt.Fprintf(&b, "protocol  %d", job.Protocol)
	return b.String()
}

// commit returns the commit of a build. Builds by "go run", of tests and of images contain none.
func commit(info *debug.BuildInfo) string {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	commit := settings["vcs.revision"]
	switch {
	case commit == "":
		return "unknown"
	case settings["vcs.modified"] == "true":
		return commit + " (modified)"
	}
	return commit
}

// versionName is the name of the flag that prints the version.
const versionName = "version"

// printVersion prints the name of c's program and the version.
func printVersion(c *cobra.Command) error {
	root := c.Root()
	_, err := fmt.Fprintf(c.OutOrStdout(), "%s %s\n", root.Name(), root.Version)
	return err
}

// VersionCommand returns the command "version", which prints what --version prints.
func VersionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Long: "Print the version of the program and of its protocol, as --version does.",
		Example: "  shaver version",
		Args:    Args(cobra.NoArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return printVersion(c) },
	}
}

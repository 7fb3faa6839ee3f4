// Command s3server is an S3-compatible server for tests. It keeps the buckets in a folder.
//
//	s3server ADDRESS FOLDER ACCESS-KEY SECRET-KEY
//
// It is in a module of its own, so that the module of shaver does not depend on it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "s3server:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 5 {
		return fmt.Errorf("usage: s3server ADDRESS FOLDER ACCESS-KEY SECRET-KEY")
	}
	buckets, about := filepath.Join(os.Args[2], "buckets"), filepath.Join(os.Args[2], "about")
	for _, dir := range []string{buckets, about} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	sidecar, err := meta.NewSideCar(about)
	if err != nil {
		return err
	}
	backend, err := posix.New(buckets, sidecar, posix.PosixOpts{SideCarDir: about})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return embedgw.RunVersityGW(ctx, backend, &embedgw.Config{
		RootUserAccess: os.Args[3], RootUserSecret: os.Args[4], Region: "us-east-1", Ports: []string{os.Args[1]}, Quiet: true,
		MaxConnections: 1000, MaxRequests: 1000, MultipartMaxParts: 10000,
	})
}

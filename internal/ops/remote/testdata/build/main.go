// Command build builds the S3-compatible server of the tests, unless it is built already. Run it in the
// root folder of the repository.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"shaver/internal/ops/remote/remotetest"
)

func main() {
	if err := build(filepath.Join("internal", "ops", "remote", "testdata", "s3server")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func build(module string) error {
	path, err := remotetest.Program(module)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err == nil {
		fmt.Println(path, "is built already")
		return nil
	}
	c := exec.Command("go", "build", "-trimpath", "-o", path+".new", ".")
	c.Dir, c.Stdout, c.Stderr = module, os.Stdout, os.Stderr
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := c.Run(); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Command build builds the S3-compatible server of the tests, unless it is built already. Run it in the
// root folder of the repository.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"shaver/internal/ops/remote/remotetest"
)

func main() {
	program, err := remotetest.Build(filepath.Join("internal", "ops", "remote", "testdata", "s3server"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(program)
}

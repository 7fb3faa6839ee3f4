//go:build linux

// Command try runs deploy/k8s on a real Kubernetes cluster on this machine: a control plane
// and one node, in namespaces of their own. It follows README.md, tries what may go wrong,
// and checks what is seen. docs/evidence/cluster.md has the transcript of a run.
//
//	go run ./deploy/k8s/try
//
// It needs root, and builds Kubernetes from Go modules the first time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"shaver/deploy/k8s/try/cluster"
)

func main() {
	cluster.Init()
	var o options
	steps := flag.String("steps", "", "run only these steps, separated by commas, and those that they need; \"list\" prints the names")
	flag.BoolVar(&o.keep, "keep", false, "keep the cluster until Ctrl-C, and print how to use it")
	flag.BoolVar(&o.validate, "validate", false, "only let an API server check the manifests")
	flag.BoolVar(&o.cached, "cached", false, "do nothing if a program is missing, instead of building it")
	flag.StringVar(&o.page, "page", "", "Markdown file in which to replace the transcript between the lines begin cluster and end cluster if all steps pass")
	flag.Parse()
	if *steps != "" {
		o.steps = strings.Split(*steps, ",")
	}
	if *steps == "list" {
		fmt.Println(strings.Join(names(), "\n"))
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends this program, and with it the cluster
	begun := time.Now()
	err := o.do(ctx)
	var skipped skip
	switch {
	case errors.As(err, &skipped):
		fmt.Printf("SKIPPED: %v\n", err)
	case err != nil:
		fmt.Fprintln(os.Stderr, "try:", err)
		os.Exit(1)
	default:
		fmt.Printf("passed after %.0f s\n", time.Since(begun).Seconds())
	}
}

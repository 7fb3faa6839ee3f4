// Package remotetest runs an S3-compatible server for tests of other packages. The server is a
// program of its own, in internal/ops/remote/testdata/s3server, because it has many dependencies.
package remotetest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"shaver/internal/base/filelock"
)

// Build returns the server's program, and builds it if it is not there, which takes about a minute.
// A program serves all checkouts with the same main.go and go.sum. The variable SHAVER_S3SERVER
// names another one. module is the folder of the server's source.
func Build(module string) (program string, err error) {
	if program := os.Getenv("SHAVER_S3SERVER"); program != "" {
		return program, nil
	}
	sum := sha256.New()
	for _, name := range []string{"main.go", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", err
		}
		sum.Write(text)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "shaver")
	program = filepath.Join(folder, "s3server-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	unlock, err := filelock.Lock(program + ".lock")
	for ; errors.Is(err, filelock.ErrLocked); unlock, err = filelock.Lock(program + ".lock") {
		time.Sleep(100 * time.Millisecond) // another test builds it
	}
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	c := exec.Command("go", "build", "-trimpath", "-o", program+".new", ".")
	c.Dir, c.Env = module, append(os.Environ(), "CGO_ENABLED=0")
	if said, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the S3 server in %s: %w: %s", module, err, said)
	}
	return program, os.Rename(program+".new", program)
}

// Server is a server that runs until the end of the test.
type Server struct {
	URL    string // http://127.0.0.1:PORT
	Folder string // has a folder for each bucket
	t      testing.TB
}

// Start starts a server with the bucket "bucket", and sets the variables of the environment
// that have its credentials. module is the folder of the server's source. If the program cannot be
// built, as without a network, the test is skipped, except on CI, where it fails.
func Start(t testing.TB, module string) *Server {
	t.Helper()
	program, err := Build(module)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	dir := t.TempDir()
	s := &Server{"http://" + address, filepath.Join(dir, "buckets"), t}
	if err := os.MkdirAll(filepath.Join(s.Folder, "bucket"), 0o755); err != nil {
		t.Fatal(err)
	}
	const access, secret = "access", "a-secret-of-the-tests"
	c := exec.Command(program, address, dir, access, secret)
	log, err := os.Create(filepath.Join(t.TempDir(), "s3server.log"))
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = c.Process.Kill() // fails if the server has ended
		<-ended
		log.Close()
	})
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": s.URL,
		"AWS_SESSION_TOKEN": "", "AWS_ENDPOINT_URL": "",
	} {
		t.Setenv(name, value)
	}
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			return s
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("the S3 server ended: %s", text)
		default:
		}
		if time.Since(begun) > time.Minute {
			t.Fatal("the S3 server does not answer")
		}
	}
}

// Between starts a proxy in front of the server and makes programs use it. before is called
// for each request, and answers it if it returns true. after may replace the answer.
func (s *Server) Between(before func(http.ResponseWriter, *http.Request) bool, after func(*http.Response) error) {
	s.t.Helper()
	target, err := url.Parse(s.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		// The host stays that of the proxy, because it is part of the signature.
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
			r.Out.Host = r.In.Host
		},
		ModifyResponse: after,
		ErrorLog:       log.New(io.Discard, "", 0), // the tests break connections
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before == nil || !before(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	s.t.Cleanup(front.Close)
	s.t.Setenv("AWS_ENDPOINT_URL_S3", front.URL)
}

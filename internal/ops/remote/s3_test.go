package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/ops/remote/remotetest"
)

// hurry makes tries follow each other quickly.
func hurry(t *testing.T) {
	former := patience
	t.Cleanup(func() { patience = former })
	patience.tries, patience.first, patience.most = 5, time.Millisecond, 10*time.Millisecond
}

// start starts a server.
func start(t *testing.T) *remotetest.Server {
	t.Helper()
	hurry(t)
	return remotetest.Start(t, filepath.Join("testdata", "s3server"))
}

// session opens a session in a new scratch folder.
func session(t *testing.T) *Session {
	t.Helper()
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func place(t *testing.T, url string) Location {
	t.Helper()
	l, err := Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// store writes bytes to a URL.
func store(t *testing.T, url string, data []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := session(t).Replace(t.Context(), file, place(t, url)); err != nil {
		t.Fatal(err)
	}
}

func randomBytes(n int) []byte {
	data := make([]byte, n)
	random := rand.NewChaCha8([32]byte{1})
	random.Read(data)
	return data
}

// wantFile checks the bytes of a file.
func wantFile(t *testing.T, path string, want []byte) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s has %d bytes (%v), expected %d others", path, len(got), err, len(want))
	}
}

// Objects come back as they were written, under names with odd characters too. A copy is
// used again until the object changes.
func TestS3(t *testing.T) {
	start(t)
	s := session(t)
	for _, name := range []string{"a", "a b/c+d&e=f%20g.arrow", "ünï/日本.pth", "day=2026-11-22/part%3A0~!$'()*;,@.parquet"} {
		url := "s3://bucket/" + name
		store(t, url, []byte(name))
		path, err := s.Fetch(t.Context(), place(t, url))
		if err != nil {
			t.Fatal(err)
		}
		wantFile(t, path, []byte(name))
		before, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Fetch(t.Context(), place(t, url)); err != nil {
			t.Fatal(err)
		}
		if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
			t.Errorf("%s: a second copy of the same version (%v)", name, err)
		}
		store(t, url, []byte(name+"2"))
		if _, err := s.Fetch(t.Context(), place(t, url)); err != nil {
			t.Fatal(err)
		}
		wantFile(t, path, []byte(name+"2"))
	}
	names, err := s.List(t.Context(), place(t, "s3://bucket/"))
	if err != nil || len(names) != 4 {
		t.Errorf("listed %q (%v), expected four names", names, err)
	}
	folders, err := s.Folders(t.Context(), place(t, "s3://bucket"))
	if err != nil || strings.Join(folders, "|") != "a b|day=2026-11-22|ünï" {
		t.Errorf("folders %q (%v)", folders, err)
	}
	if err := s.Remove(t.Context(), place(t, "s3://bucket/a")); err != nil {
		t.Fatal(err)
	}
	if there, err := s.Exists(t.Context(), place(t, "s3://bucket/a")); there || err != nil {
		t.Errorf("a deleted object exists: %t, %v", there, err)
	}
	if err := s.Remove(t.Context(), place(t, "s3://bucket/a")); err != nil {
		t.Errorf("deleting it again: %v", err)
	}
}

// A connection that breaks is opened again where it broke.
func TestS3Resume(t *testing.T) {
	server := start(t)
	data := randomBytes(3 << 20)
	store(t, "s3://bucket/large", data)
	var sent, requests atomic.Int64
	server.Between(nil, func(r *http.Response) error {
		if r.Request.Method != http.MethodGet {
			return nil
		}
		requests.Add(1)
		r.Body = &cut{r.Body, &sent, 300_000 + int(requests.Load())}
		return nil
	})
	path, err := session(t).Fetch(t.Context(), place(t, "s3://bucket/large"))
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, data)
	if n := requests.Load(); n < 10 {
		t.Errorf("%d requests, expected at least 10 broken ones", n)
	}
	if n := sent.Load(); n > 4<<20 {
		t.Errorf("%d bytes were sent for an object of %d", n, len(data))
	}
}

// cut is a body that breaks after some bytes.
type cut struct {
	io.ReadCloser
	sent *atomic.Int64
	left int
}

func (c *cut) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errors.New("cut")
	}
	n, err := c.ReadCloser.Read(p[:min(len(p), c.left)])
	c.left -= n
	c.sent.Add(int64(n))
	return n, err
}

// The body of an answer that stalls is an error that may go away, and not a wait without end. A body that is slow is read.
func TestStall(t *testing.T) {
	former := stall
	t.Cleanup(func() { stall = former })
	stall = 200 * time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 10 {
			_, _ = w.Write([]byte("x"))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(stall / 4)
		}
		if r.URL.Path == "/stalls" {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	client := &http.Client{Transport: transport()}
	for path, stalls := range map[string]bool{"/ends": false, "/stalls": true} {
		answer, err := client.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		found, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if len(found) != 10 || (err != nil) != stalls || stalls && judge(err) != temporary {
			t.Errorf("%s: %d bytes, %v", path, len(found), err)
		}
	}
}

// A copy of an object whose body stalls says that it waits, and continues where it stopped.
func TestS3Stall(t *testing.T) {
	server := start(t)
	data := randomBytes(1 << 20)
	store(t, "s3://bucket/large", data)
	wasStall, wasSilence := stall, silence
	t.Cleanup(func() { stall, silence = wasStall, wasSilence })
	stall, silence = time.Second, 100*time.Millisecond
	var requests, said atomic.Int64
	server.Between(nil, func(r *http.Response) error {
		if r.Request.Method == http.MethodGet && requests.Add(1) == 1 {
			r.Body = &stalling{r.Body, r.Request.Context(), 300_000}
		}
		return nil
	})
	s := session(t)
	s.Waiting = func(string) { said.Add(1) }
	path, err := s.Fetch(t.Context(), place(t, "s3://bucket/large"))
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, data)
	if requests.Load() != 2 || said.Load() == 0 {
		t.Errorf("%d requests, and said %d times what it waits for", requests.Load(), said.Load())
	}
}

// stalling is a body that gives nothing after some bytes.
type stalling struct {
	io.ReadCloser
	ctx  context.Context
	left int
}

func (s *stalling) Read(p []byte) (int, error) {
	if s.left <= 0 {
		<-s.ctx.Done()
		return 0, s.ctx.Err()
	}
	n, err := s.ReadCloser.Read(p[:min(len(p), s.left)])
	s.left -= n
	return n, err
}

// An answer that no other try changes is bad input. Credentials that have expired are not, because others may come.
func TestRefusedRequests(t *testing.T) {
	hurry(t)
	for code, input := range map[string]bool{"AuthorizationHeaderMalformed": true, "ExpiredToken": false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
		}))
		t.Cleanup(server.Close)
		if _, err := session(t).List(t.Context(), place(t, "s3://bucket/x?anonymous=true&endpoint="+server.URL)); err == nil || fault.IsInput(err) != input {
			t.Errorf("%s: %v", code, err)
		}
	}
	if _, err := session(t).Fetch(t.Context(), place(t, "s3://a/x")); !fault.IsInput(err) {
		t.Errorf("a bucket whose name is too short: %v", err)
	}
}

// A session continues the copy that another one began in the same scratch folder.
func TestS3ResumeLater(t *testing.T) {
	server := start(t)
	data := randomBytes(1 << 20)
	store(t, "s3://bucket/large", data)
	var sent atomic.Int64
	broken := true
	server.Between(nil, func(r *http.Response) error {
		if r.Request.Method == http.MethodGet {
			left := 1 << 30
			if broken {
				left = 600_000
			}
			r.Body = &cut{r.Body, &sent, left}
		}
		return nil
	})
	patience.tries = 1
	dir := t.TempDir()
	for range 2 {
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		path, err := s.Fetch(t.Context(), place(t, "s3://bucket/large"))
		if broken && (err == nil || fault.IsInput(err)) {
			t.Errorf("a broken connection: %v", err)
		}
		if !broken {
			if err != nil {
				t.Fatal(err)
			}
			wantFile(t, path, data)
		}
		s.Close()
		broken = false
	}
	// Bytes on their way when the connection breaks are lost, and sent again.
	if n := sent.Load(); n > 1<<20+300_000 {
		t.Errorf("%d bytes were sent, expected those that had not arrived only", n)
	}
}

// An object that changes while it is copied gives the new bytes, and never a mixture.
func TestS3Changes(t *testing.T) {
	server := start(t)
	former, latter := randomBytes(1<<20), bytes.Repeat([]byte("x"), 1<<20)
	store(t, "s3://bucket/object", former)
	var once sync.Once
	server.Between(nil, func(r *http.Response) error {
		if r.Request.Method == http.MethodGet {
			once.Do(func() {
				r.Body = &cut{r.Body, new(atomic.Int64), 200_000}
				proxy := os.Getenv("AWS_ENDPOINT_URL_S3")
				os.Setenv("AWS_ENDPOINT_URL_S3", server.URL)
				store(t, "s3://bucket/object", latter)
				os.Setenv("AWS_ENDPOINT_URL_S3", proxy)
			})
		}
		return nil
	})
	path, err := session(t).Fetch(t.Context(), place(t, "s3://bucket/object"))
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, latter)
}

// Throttling and failures of the server are tried again, for reads and writes.
func TestS3Throttled(t *testing.T) {
	server := start(t)
	var n atomic.Int64
	server.Between(func(w http.ResponseWriter, r *http.Request) bool {
		if n.Add(1)%3 == 0 {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, "<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>")
		return true
	}, nil)
	store(t, "s3://bucket/object", []byte("data"))
	path, err := session(t).Fetch(t.Context(), place(t, "s3://bucket/object"))
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, []byte("data"))
	server.Between(func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}, nil)
	_, err = session(t).Fetch(t.Context(), place(t, "s3://bucket/object"))
	if err == nil || fault.IsInput(err) || fault.IsUsage(err) || !strings.Contains(err.Error(), "s3://bucket/object") {
		t.Errorf("a server that is down: %v", err)
	}
}

// A body that ends too early is no copy.
func TestS3Truncated(t *testing.T) {
	server := start(t)
	store(t, "s3://bucket/object", randomBytes(1000))
	server.Between(nil, func(r *http.Response) error {
		if r.Request.Method == http.MethodGet {
			r.Body = io.NopCloser(io.LimitReader(r.Body, 0))
			r.Header.Set("Content-Length", "1000")
		}
		return nil
	})
	s := session(t)
	l := place(t, "s3://bucket/object")
	if _, err := s.Fetch(t.Context(), l); err == nil || fault.IsInput(err) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(s.Local(l)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a copy (%v)", err)
	}
}

// Bytes that are not those that were written are refused.
func TestS3Flipped(t *testing.T) {
	server := start(t)
	store(t, "s3://bucket/object", []byte("the bytes"))
	server.Between(nil, func(r *http.Response) error {
		if r.Request.Method == http.MethodGet {
			r.Body = io.NopCloser(strings.NewReader("the bites"))
		}
		return nil
	})
	_, err := session(t).Fetch(t.Context(), place(t, "s3://bucket/object"))
	if err == nil || !strings.Contains(err.Error(), "SHA-256") {
		t.Errorf("error %v", err)
	}
}

// What does not exist is bad input. What is denied is not, and no message has the secret.
func TestS3Missing(t *testing.T) {
	server := start(t)
	for _, url := range []string{"s3://bucket/none", "s3://no-such-bucket/none"} {
		_, err := session(t).Fetch(t.Context(), place(t, url))
		if !fault.IsInput(err) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), url) {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := session(t).FetchTree(t.Context(), place(t, "s3://bucket/none")); !fault.IsInput(err) {
		t.Errorf("a folder without objects: %v", err)
	}
	store(t, "s3://bucket/object", []byte("data"))
	t.Setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
	for _, do := range []func(*Session) error{
		func(s *Session) error { _, err := s.Fetch(t.Context(), place(t, "s3://bucket/object")); return err },
		func(s *Session) error { _, err := s.List(t.Context(), place(t, "s3://bucket/object")); return err },
		func(s *Session) error {
			return s.Replace(t.Context(), filepath.Join("testdata", "s3server", "main.go"), place(t, "s3://bucket/object"))
		},
	} {
		err := do(session(t))
		if err == nil || fault.IsInput(err) || fault.IsUsage(err) || !strings.Contains(err.Error(), "denied") || strings.Contains(err.Error(), "secret") {
			t.Errorf("wrong credentials: %v", err)
		}
	}
	_ = server
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
	if _, err := session(t).Fetch(t.Context(), place(t, "s3://bucket/object")); err == nil || fault.IsInput(err) {
		t.Errorf("no server: %v", err)
	}
}

// Of two writers that saw the same version, one wins, whether or not the object existed.
func TestS3TwoWriters(t *testing.T) {
	start(t)
	l := place(t, "s3://bucket/pointer")
	for round := range 3 {
		var won, lost atomic.Int64
		var group sync.WaitGroup
		var ready sync.WaitGroup
		ready.Add(4)
		for i := range 4 {
			group.Go(func() {
				s, err := Open("")
				if err != nil {
					t.Error(err)
					ready.Done()
					return
				}
				defer s.Close()
				_, _, err = s.FetchIf(t.Context(), l)
				ready.Done()
				ready.Wait()
				file := filepath.Join(t.TempDir(), "pointer")
				if err == nil {
					err = os.WriteFile(file, fmt.Appendf(nil, "round %d writer %d", round, i), 0o644)
				}
				if err == nil {
					err = s.Publish(t.Context(), file, l)
				}
				switch {
				case err == nil:
					won.Add(1)
				case errors.Is(err, ErrConflict):
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		group.Wait()
		if won.Load() != 1 || lost.Load() != 3 {
			t.Errorf("round %d: %d won and %d lost, expected 1 and 3", round, won.Load(), lost.Load())
		}
	}
}

// A write whose answer is lost succeeds when it is tried again. A writer with the same bytes
// as another one succeeds too.
func TestS3LostAnswer(t *testing.T) {
	server := start(t)
	var once sync.Once
	server.Between(nil, func(r *http.Response) error {
		if r.Request.Method == http.MethodPut {
			var err error
			once.Do(func() { err = errors.New("lost") })
			return err
		}
		return nil
	})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("data"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := session(t).Publish(t.Context(), file, place(t, "s3://bucket/object")); err != nil {
			t.Error(err)
		}
	}
}

// A large object is written in parts, under the same conditions, and takes little memory.
func TestS3Large(t *testing.T) {
	start(t)
	former := partSize
	t.Cleanup(func() { partSize = former })
	partSize = 5 << 20
	size := int64(64 << 20)
	file := filepath.Join(t.TempDir(), "large")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(f, rand.NewChaCha8([32]byte{2}), size); err != nil {
		t.Fatal(err)
	}
	f.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := session(t)
	l := place(t, "s3://bucket/large")
	if err := s.Publish(t.Context(), file, l); err != nil {
		t.Fatal(err)
	}
	other := session(t)
	path, err := other.Fetch(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > uint64(size)/2 {
		t.Errorf("%d bytes were allocated for an object of %d", n, size)
	}
	a, err := files.Digest(file)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := files.Digest(path); err != nil || a != b {
		t.Errorf("the copy differs (%v)", err)
	}
	if err := os.Truncate(file, size-1); err != nil {
		t.Fatal(err)
	}
	if err := session(t).Publish(t.Context(), file, l); !errors.Is(err, ErrConflict) {
		t.Errorf("a writer that has not seen the object: %v", err)
	}
	if err := other.Publish(t.Context(), file, l); err != nil {
		t.Errorf("a writer that has seen the object: %v", err)
	}
}

// The end of the context ends a copy.
func TestS3Cancelled(t *testing.T) {
	server := start(t)
	store(t, "s3://bucket/object", randomBytes(1<<20))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server.Between(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			cancel()
			<-r.Context().Done()
			return true
		}
		return false
	}, nil)
	if _, err := session(t).Fetch(ctx, place(t, "s3://bucket/object")); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

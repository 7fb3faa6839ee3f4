package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shaver/internal/base/fault"
)

// A URL is parsed and printed, and a malformed one is wrong usage that repeats no secret.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"s3://bucket/a/b.pth":                            "s3://bucket/a/b.pth",
		"s3://bucket/a/b/":                               "s3://bucket/a/b",
		"s3://bucket":                                    "s3://bucket",
		"s3://bucket/a%20b c":                            "s3://bucket/a%20b c",
		"gs://b/k?endpoint=http://127.0.0.1:9":           "gs://b/k",
		"azblob://$web/k?storage_account=x":              "azblob://$web/k",
		"file:///a/b":                                    "file:///a/b",
		"file://localhost/a":                             "file:///a",
		"s3://b/k?region=x&use_path_style=true&profile=": "s3://b/k",
	} {
		l, err := Parse(text)
		if err != nil || l.String() != want || !Is(text) {
			t.Errorf("%s: %s, %v", text, l, err)
			continue
		}
		if again, err := Parse(l.URL()); err != nil || again.URL() != l.URL() || again.local() != l.local() {
			t.Errorf("%s: %s parses as %s (%v)", text, l.URL(), again.URL(), err)
		}
	}
	for _, text := range []string{
		"s3://", "s3:///key", "s3://bu cket/k", "s3://../k", "s3://b//k", "s3://b/a/../k", "s3://b/.", "s3://b/a\\b", "s3://b/a\nb", "s3://b/\xff",
		"s3://key:secret@bucket/k", "s3://key:secret/x@bucket/k", "s4://key:secret@bucket/k", "s3://b/k?secret=secret", "s3://b/k?%zz=secret", "s3://b/k?region=a&region=b", "s3://b/k?endpoint=ftp://x", "s3://b/k?endpoint=http://u:secret@x",
		"s3://b/k?anonymous=maybe", "file://host/a", "file:///", "ftp://b/k", "https://account.blob.core.windows.net/k?sig=secret",
	} {
		if _, err := Parse(text); !fault.IsUsage(err) || strings.Contains(err.Error(), "=secret") || strings.Contains(err.Error(), ":secret") {
			t.Errorf("%q: error %v, expected wrong usage", text, err)
		}
	}
	for _, text := range []string{"a/b", "C:\\x", "/a", "", "s3:/b", "http://x"} {
		if Is(text) {
			t.Errorf("%q is a URL of a store", text)
		}
	}
	if l := place(t, "s3://b/a/b?region=r"); l.Join("c/d").URL() != "s3://b/a/b/c/d?region=r" || l.Sibling("c").String() != "s3://b/a/c" || l.Base() != "b" {
		t.Errorf("%s: %s, %s, %s", l, l.Join("c/d").URL(), l.Sibling("c"), l.Base())
	}
	if a, b := place(t, "s3://b/k?endpoint=http://x"), place(t, "s3://b/k?endpoint=http://y"); a.local() == b.local() {
		t.Errorf("two servers share the copy %s", a.local())
	}
}

// Whatever the text of a URL is, its copy lies in the scratch folder.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"s3://b/k", "gs://b/a/../k", "file:///a/b?x=y", "azblob://c/k?storage_account=n", "s3://b/../../x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse(text)
		if err != nil {
			if !fault.IsUsage(err) {
				t.Errorf("%v is not wrong usage", err)
			}
			return
		}
		if !filepath.IsLocal(l.local()) {
			t.Errorf("the copy of %q is %s", text, l.local())
		}
		if again, err := Parse(l.URL()); err != nil || again.local() != l.local() {
			t.Errorf("%q: %q is another place (%v)", text, l.URL(), err)
		}
	})
}

// Names that a store lists lead to files in the scratch folder, or are bad input.
func FuzzList(f *testing.F) {
	f.Add("a/b", false)
	f.Add("../../etc/passwd", false)
	f.Add("day/", true)
	f.Fuzz(func(t *testing.T, key string, shallow bool) {
		s := &Session{dir: "/scratch", buckets: map[string]bucket{}}
		l := Location{Scheme: schemeS3, Bucket: "b", Key: "folder"}
		s.buckets[l.store()] = listing("folder/" + key)
		names, _, err := s.list(t.Context(), l, shallow)
		if err != nil && !fault.IsInput(err) {
			t.Errorf("%v is not bad input", err)
		}
		for _, name := range names {
			if path := s.path(l.Join(name)); !strings.HasPrefix(path, "/scratch/s3/b/folder/") {
				t.Errorf("%q leads to %s", name, path)
			}
		}
	})
}

// listing is a bucket that lists one key.
type listing string

func (l listing) list(_ context.Context, _ string, _ bool, visit func(object) error) error {
	return visit(object{key: string(l)})
}
func (listing) head(context.Context, string) (object, error) { panic("not called") }
func (listing) get(context.Context, string, string, int64) (io.ReadCloser, object, error) {
	panic("not called")
}
func (listing) put(context.Context, string, io.ReaderAt, int64, object, condition) (string, error) {
	panic("not called")
}
func (listing) remove(context.Context, string) error { panic("not called") }

// Folders of this machine behave as stores: versions, conditions, lists and deletions.
func TestFiles(t *testing.T) {
	hurry(t)
	dir := filepath.ToSlash(t.TempDir())
	contract(t, "file://"+dir+"/bucket")
	contract(t, "file://"+dir+"/other folder")
}

// The headers of Google Cloud Storage make its XML interface work as the others.
func TestGCS(t *testing.T) {
	hurry(t)
	fake := &googleStore{objects: map[string]*stored{}}
	server := httptest.NewServer(fake)
	defer server.Close()
	t.Setenv("STORAGE_EMULATOR_HOST", server.URL)
	contract(t, "gs://bucket")
	largeOnGoogle(t, fake)
	if fake.failure != "" {
		t.Error(fake.failure)
	}
}

// largeOnGoogle checks that large objects are written in parts only without a condition, and
// that the version of such a write is that of the object.
func largeOnGoogle(t *testing.T, fake *googleStore) {
	former := partSize
	t.Cleanup(func() { partSize = former })
	partSize = 10
	file, l := filepath.Join(t.TempDir(), "large"), place(t, "gs://bucket/large")
	if err := os.WriteFile(file, randomBytes(25), 0o644); err != nil {
		t.Fatal(err)
	}
	s := session(t)
	if err := s.Publish(t.Context(), file, l); err != nil || fake.parts > 0 {
		t.Fatalf("a large object under a condition: %d parts, %v", fake.parts, err)
	}
	if err := os.WriteFile(file, randomBytes(26), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := session(t).Publish(t.Context(), file, l); !errors.Is(err, ErrConflict) {
		t.Errorf("a writer that has not seen the large object: %v", err)
	}
	if err := s.Replace(t.Context(), file, l); err != nil || fake.parts != 3 {
		t.Fatalf("a large object: %d parts, %v", fake.parts, err)
	}
	if o, err := s.head(t.Context(), l); err != nil || s.record(l).Version != o.version {
		t.Errorf("version %v, expected %v (%v)", s.record(l), o, err)
	}
	if err := os.WriteFile(file, randomBytes(27), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Publish(t.Context(), file, l); err != nil {
		t.Errorf("a writer that has written the large object: %v", err)
	}
}

// A symbolic link to a folder is that folder.
func TestFilesLink(t *testing.T) {
	hurry(t)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "folder", "a"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("folder", filepath.Join(dir, "link")); err != nil {
		t.Skip(err)
	}
	l := place(t, "file://"+filepath.ToSlash(dir)+"/link")
	if names, err := session(t).List(t.Context(), l); err != nil || !slices.Equal(names, []string{"a"}) {
		t.Errorf("names %q (%v)", names, err)
	}
}

// A file that is written in place while it is copied gives the new bytes, and never a mixture. If
// it changes again and again, there is no copy.
func TestFilesChange(t *testing.T) {
	hurry(t)
	path := filepath.Join(t.TempDir(), "file")
	l := place(t, "file://"+filepath.ToSlash(path))
	const size = fewBytes
	written := time.Now().Add(-time.Hour)
	write := func(with string) {
		t.Helper()
		written = written.Add(time.Second) // writes may follow each other faster than the clock of the file system
		if err := errors.Join(os.WriteFile(path, bytes.Repeat([]byte(with), size), 0o644), os.Chtimes(path, written, written)); err != nil {
			t.Fatal(err)
		}
	}
	for most, want := range map[int]string{0: "a", 1: "b", 1 << 30: ""} {
		write("a")
		s, changes, copied := session(t), 0, int64(0)
		s.Progress = func(string, int64) (func(int64), func()) {
			copied = 0
			return func(n int64) {
				if copied += n; copied > size/2 && copied-n <= size/2 && changes < most {
					changes++
					write("b")
				}
			}, func() {}
		}
		got, err := s.Fetch(t.Context(), l)
		if want == "" {
			if _, failed := os.Stat(got); err == nil || !strings.Contains(err.Error(), "has changed") || !errors.Is(failed, os.ErrNotExist) {
				t.Errorf("a file that changes all the time: %v, and a copy: %v", err, failed)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		wantFile(t, got, bytes.Repeat([]byte(want), size))
	}
}

// breaking is a bucket whose bodies break after some bytes.
type breaking struct {
	bucket
	after int
}

func (b breaking) get(ctx context.Context, key, version string, offset int64) (io.ReadCloser, object, error) {
	body, o, err := b.bucket.get(ctx, key, version, offset)
	return &cut{body, new(atomic.Int64), b.after}, o, err
}

// crowded is a bucket that gives an object only when several are asked for at the same time.
type crowded struct {
	bucket
	now, most atomic.Int64
}

func (b *crowded) get(ctx context.Context, key, version string, offset int64) (io.ReadCloser, object, error) {
	defer b.now.Add(-1)
	n := b.now.Add(1)
	for most := b.most.Load(); n > most && !b.most.CompareAndSwap(most, n); most = b.most.Load() {
	}
	for begun := time.Now(); b.most.Load() < together; time.Sleep(time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			return nil, object{}, errors.Join(errors.New("alone"), context.Canceled)
		}
	}
	return b.bucket.get(ctx, key, version, offset)
}

// The objects of a folder are copied several at a time, no more than together, and shown as one copy of all their bytes. A file
// that the manifest names twice is copied once, unless its contents differ.
func TestTogether(t *testing.T) {
	l := place(t, "file://"+filepath.ToSlash(t.TempDir()))
	var parts []Part
	part := randomBytes(1 << 20)
	for i := range 3 * together {
		name := fmt.Sprintf("part-%d", i)
		part[0] = byte(i)
		if err := os.WriteFile(filepath.Join("/"+filepath.FromSlash(l.Key), name), part, 0o600); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(part)
		parts = append(parts, Part{name, hex.EncodeToString(sum[:]), int64(len(part))})
	}
	total := int64(len(parts) * len(part))
	if err := os.WriteFile(filepath.Join("/"+filepath.FromSlash(l.Key), "manifest"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, fetch := range map[string]func(s *Session) (string, error){
		"a folder with a manifest": func(s *Session) (string, error) {
			return s.FetchFolder(t.Context(), l, "manifest", func([]byte) ([]Part, error) { return append(parts, parts[0]), nil })
		},
		"a folder": func(s *Session) (string, error) { return s.FetchTree(t.Context(), l) },
	} {
		s := session(t)
		b := &crowded{bucket: openFiles()}
		s.buckets[l.store()] = b
		var shown, copied, ends int64
		s.Progress = func(_ string, bytes int64) (func(int64), func()) {
			shown += bytes
			return func(n int64) { copied += n }, func() { ends++ }
		}
		path, err := fetch(s)
		if err != nil {
			t.Fatal(err)
		}
		for i := range parts {
			part[0] = byte(i)
			wantFile(t, filepath.Join(path, parts[i].Name), part)
		}
		if b.most.Load() != together || shown != total || copied != total || ends != 1 {
			t.Errorf("%s: %d at a time, and %d of %d bytes shown in %d copies, expected %d, and %d in one", name, b.most.Load(), copied, shown, ends, together, total)
		}
	}
	twice := []Part{parts[0], {parts[0].Name, parts[1].SHA256, parts[1].Bytes}}
	_, err := session(t).FetchFolder(t.Context(), l, "manifest", func([]byte) ([]Part, error) { return twice, nil })
	if !fault.IsInput(err) || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a file with two contents: %v", err)
	}
}

// A copy continues after the bytes that were on the disk for certain. It begins again if its record
// is of another version, is damaged, or is missing. What a crash of the machine left does not
// matter. No object has more than one incomplete copy.
func TestResumeAfterCrash(t *testing.T) {
	hurry(t)
	patience.tries = 1
	former := saveEvery
	t.Cleanup(func() { saveEvery = former })
	saveEvery = 1 << 20
	path := filepath.Join(t.TempDir(), "file")
	data := randomBytes(fewBytes)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	l := place(t, "file://"+filepath.ToSlash(path))
	const arrived = 5<<20 + 12345
	zeros := func(t *testing.T, part string, from int64) {
		t.Helper()
		if err := errors.Join(os.Truncate(part, from), os.Truncate(part, fewBytes)); err != nil {
			t.Fatal(err)
		}
	}
	record := func(t *testing.T, part, text string) {
		t.Helper()
		if err := os.WriteFile(part+savedSuffix, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		crash func(t *testing.T, part string)
		from  int64
	}{
		"a broken connection":         {func(*testing.T, string) {}, arrived},
		"zeros after the saved bytes": {func(t *testing.T, part string) { zeros(t, part, arrived) }, arrived},
		"no record":                   {func(t *testing.T, part string) { zeros(t, part, 0); os.Remove(part + savedSuffix) }, 0},
		"an empty record":             {func(t *testing.T, part string) { zeros(t, part, 0); record(t, part, "") }, 0},
		"a record of another version": {func(t *testing.T, part string) {
			zeros(t, part, 0)
			record(t, part, `{"version":"other","bytes":1000}`)
		}, 0},
		"a copy shorter than its record": {func(t *testing.T, part string) {
			if err := os.Truncate(part, 1000); err != nil {
				t.Fatal(err)
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := session(t)
			b, err := s.open(t.Context(), l)
			if err != nil {
				t.Fatal(err)
			}
			s.buckets[l.store()] = breaking{b, arrived}
			if _, err := s.Fetch(t.Context(), l); err == nil {
				t.Fatal("no error from a connection that breaks")
			}
			s.buckets[l.store()] = b
			c.crash(t, s.part(l))
			from := int64(-1)
			s.Progress = func(string, int64) (func(int64), func()) {
				return func(n int64) {
					if from < 0 {
						from = n
					}
				}, func() {}
			}
			copied, err := s.Fetch(t.Context(), l)
			if err != nil {
				t.Fatal(err)
			}
			wantFile(t, copied, data)
			if from != c.from {
				t.Errorf("the copy continued at %d, expected %d", from, c.from)
			}
			if left, err := os.ReadDir(filepath.Join(s.dir, partsFolder)); err != nil || len(left) > 0 {
				t.Errorf("the incomplete copies are %v (%v)", left, err)
			}
		})
	}
}

// A scratch folder that another session uses is an error that may go away, so that a program
// that tries again does so. The next session can use it.
func TestLockedScratch(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || fault.IsUsage(err) || fault.IsInput(err) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second session: %v", err)
	}
	s.Close()
	if s, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// A session deletes incomplete copies that are older than a week.
func TestOldParts(t *testing.T) {
	dir := t.TempDir()
	old, young := filepath.Join(dir, partsFolder, "old"), filepath.Join(dir, partsFolder, "young")
	if err := os.Mkdir(filepath.Dir(old), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, age := range map[string]time.Duration{old: partAge + time.Hour, young: partAge - time.Hour} {
		at := time.Now().Add(-age)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old copy: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Error(err)
	}
}

// Deleting the last object of a folder leaves the folder, which may be the user's own.
func TestFilesRemove(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "own")
	if err := errors.Join(os.Mkdir(folder, 0o755), os.WriteFile(filepath.Join(folder, "a"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := session(t).Remove(t.Context(), place(t, "file://"+filepath.ToSlash(folder)+"/a")); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) > 0 {
		t.Errorf("the folder has %v (%v)", entries, err)
	}
}

// A process that loses the claim while it writes a file writes no other file after it.
func TestMirrorLosesClaim(t *testing.T) {
	hurry(t)
	l := place(t, "file://"+filepath.ToSlash(t.TempDir())+"/state")
	begin := func(rank func(name string) int) *Mirror {
		t.Helper()
		m := session(t).Mirror(l)
		m.Guarded = func(string) bool { return false }
		m.Rank = rank
		if err := m.Claim(t.Context()); err != nil {
			t.Fatal(err)
		}
		return m
	}
	same := func(string) int { return 0 }
	m := begin(same)
	var other *Mirror
	m.Guarded = func(name string) bool { // called before each write
		if name == "b" {
			other = begin(same)
		}
		return false
	}
	for _, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(m.Folder(), name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Push(t.Context()); !errors.Is(err, ErrConflict) {
		t.Errorf("a process that lost the claim: %v", err)
	}
	if names, err := other.Names(t.Context()); err != nil || slices.Contains(names, "c") {
		t.Errorf("names %q (%v)", names, err)
	}
}

// The server of S3's interface has the same behaviour.
func TestS3Contract(t *testing.T) {
	start(t)
	contract(t, "s3://bucket")
}

// contract checks what this package needs of a store. url is a place without objects, and
// settings follow the key.
func contract(t *testing.T, url string, settings ...string) {
	t.Helper()
	place := func(t *testing.T, url string) Location { return place(t, url+strings.Join(settings, "")) }
	file := filepath.Join(t.TempDir(), "file")
	write := func(text string) string {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	l := place(t, url+"/folder/a b")
	a, b := session(t), session(t)
	if names, err := a.List(t.Context(), place(t, url)); len(names) > 0 || err != nil {
		t.Errorf("%s has %q (%v)", url, names, err)
	}
	if _, err := a.Fetch(t.Context(), l); !fault.IsInput(err) {
		t.Errorf("an object that does not exist: %v", err)
	}
	if err := a.Publish(t.Context(), write("one"), l); err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), write("other"), l); !errors.Is(err, ErrConflict) {
		t.Errorf("a writer that has not seen the object: %v", err)
	}
	path, err := b.Fetch(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, []byte("one"))
	if err := b.Publish(t.Context(), write("second"), l); err != nil {
		t.Errorf("a writer that has seen the object: %v", err)
	}
	if err := a.Publish(t.Context(), write("third"), l); !errors.Is(err, ErrConflict) {
		t.Errorf("a writer that has seen an older version: %v", err)
	}
	if err := a.Publish(t.Context(), write("second"), l); err != nil {
		t.Errorf("a writer with the same bytes: %v", err)
	}
	if err := a.Replace(t.Context(), write(""), place(t, url+"/folder/deep/empty")); err != nil {
		t.Fatal(err)
	}
	if path, err = b.Fetch(t.Context(), place(t, url+"/folder/deep/empty")); err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, nil)
	if names, err := a.List(t.Context(), place(t, url+"/folder")); err != nil || !slices.Equal(names, []string{"a b", "deep/empty"}) {
		t.Errorf("names %q (%v)", names, err)
	}
	if names, err := a.Folders(t.Context(), place(t, url+"/folder")); err != nil || !slices.Equal(names, []string{"deep"}) {
		t.Errorf("folders %q (%v)", names, err)
	}
	for pattern, want := range map[string][]string{"d*": {"deep"}, "deep": {"deep"}, "deep/*y": {"deep/empty"}, "a b": {"a b"}, "ee*": nil, "none/*": nil} {
		if names, err := a.Find(t.Context(), place(t, url+"/folder"), pattern); err != nil || !slices.Equal(names, want) {
			t.Errorf("found %q by %s, expected %q (%v)", names, pattern, want, err)
		}
	}
	if err := a.Remove(t.Context(), place(t, url+"/folder/deep/empty")); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := b.FetchIf(t.Context(), place(t, url+"/folder/deep/empty")); ok || err != nil {
		t.Errorf("a deleted object: %t, %v", ok, err)
	}
	if err := a.Publish(t.Context(), write("again"), place(t, url+"/folder/deep/empty")); err != nil {
		t.Errorf("an object that was deleted: %v", err)
	}
	bucket, err := a.open(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	body, o, err := bucket.get(t.Context(), l.Key, "", 3)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if rest, err := io.ReadAll(body); string(rest) != "ond" || o.size != 6 || err != nil {
		t.Errorf("the rest is %q of %d bytes (%v)", rest, o.size, err)
	}
	folders(t, place(t, url+"/dataset"), place(t, url+"/none"))
	mirrors(t, place(t, url+"/state"))
}

// folders checks that a folder with a manifest is copied whole or not at all.
func folders(t *testing.T, l, none Location) {
	t.Helper()
	folder := t.TempDir()
	digest := func(text string) string { sum := sha256.Sum256([]byte(text)); return hex.EncodeToString(sum[:]) }
	for name, text := range map[string]string{"part": "rows", "deep/part": "more", "manifest": "part deep/part", ".hidden": ""} {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	s := session(t)
	if err := s.Empty(t.Context(), l); err != nil {
		t.Error(err)
	}
	if err := s.PublishFolder(t.Context(), folder, l, "manifest"); err != nil {
		t.Fatal(err)
	}
	if err := s.Empty(t.Context(), l); !errors.Is(err, os.ErrExist) {
		t.Errorf("a folder with objects: %v", err)
	}
	if names, err := s.List(t.Context(), l); err != nil || !slices.Equal(names, []string{"deep/part", "manifest", "part"}) {
		t.Errorf("names %q (%v)", names, err)
	}
	parse := func(more string) func([]byte) ([]Part, error) {
		return func([]byte) ([]Part, error) {
			return []Part{{"part", digest("rows" + more), 4}, {"deep/part", digest("more"), 4}}, nil
		}
	}
	other := session(t)
	for range 2 {
		path, err := other.FetchFolder(t.Context(), l, "manifest", parse(""))
		if err != nil {
			t.Fatal(err)
		}
		wantFile(t, filepath.Join(path, "deep", "part"), []byte("more"))
		wantFile(t, filepath.Join(path, "manifest"), []byte("part deep/part"))
	}
	third := session(t)
	if _, err := third.FetchFolder(t.Context(), l, "manifest", parse("x")); !fault.IsInput(err) || !strings.Contains(err.Error(), "SHA-256") {
		t.Errorf("a file with another digest: %v", err)
	}
	if _, err := os.Stat(filepath.Join(third.Local(l), "manifest")); err == nil {
		t.Error("there is a manifest without its files")
	}
	short := func([]byte) ([]Part, error) { return []Part{{"part", digest("row"), 3}}, nil }
	fourth := session(t)
	if _, err := fourth.FetchFolder(t.Context(), l, "manifest", short); !fault.IsInput(err) || !strings.Contains(err.Error(), "has 4 bytes, expected 3") {
		t.Errorf("a file of another size: %v", err)
	}
	if _, err := os.Stat(filepath.Join(fourth.Local(l), "part")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file of another size was copied: %v", err)
	}
	if _, err := third.FetchFolder(t.Context(), none, "manifest", parse("")); !fault.IsInput(err) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	path, err := third.FetchTree(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, filepath.Join(path, "part"), []byte("rows"))
}

// mirrors checks that a folder is taken over, and that only the last process can write.
func mirrors(t *testing.T, l Location) {
	t.Helper()
	begin := func(s *Session) *Mirror {
		t.Helper()
		m := s.Mirror(l)
		m.Guarded = func(name string) bool { return name == "index" }
		m.Rank = func(name string) int { return map[string]int{"lock": -1, "index": 1}[name] }
		if err := m.Claim(t.Context()); err != nil {
			t.Fatal(err)
		}
		names, err := m.Names(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Pull(t.Context(), names...); err != nil {
			t.Fatal(err)
		}
		return m
	}
	write := func(m *Mirror, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(m.Folder(), name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	first := session(t)
	m := begin(first)
	write(m, "lock", "")
	write(m, "day-1", "one")
	write(m, "index", "day-1")
	if err := m.Push(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := begin(session(t))
	wantFile(t, filepath.Join(n.Folder(), "index"), []byte("day-1"))
	write(m, "day-2", "never")
	if err := m.Push(t.Context()); !errors.Is(err, ErrConflict) {
		t.Errorf("a process without the claim: %v", err)
	}
	if err := os.Remove(filepath.Join(n.Folder(), "day-1")); err != nil {
		t.Fatal(err)
	}
	write(n, "day-3", "three")
	write(n, "index", "day-3")
	if err := n.Push(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names, err := n.Names(t.Context()); err != nil || !slices.Equal(names, []string{"day-3", "index"}) {
		t.Errorf("names %q (%v)", names, err)
	}
	write(n, "index", "newer, but not pushed")
	if n = begin(n.s); fileText(t, n, "index") != "newer, but not pushed" {
		t.Errorf("the next process in the same scratch folder has the index %q", fileText(t, n, "index"))
	}
	if m = begin(first); fileText(t, m, "index") != "day-3" || fileText(t, m, "day-2") != "" {
		t.Errorf("a process in an old scratch folder has the index %q", fileText(t, m, "index"))
	}
}

func fileText(t *testing.T, m *Mirror, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.Folder(), name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

// googleStore imitates the XML interface of Google Cloud Storage as far as this package uses it.
type googleStore struct {
	mu         sync.Mutex
	objects    map[string]*stored
	generation int64
	upload     map[string][]byte // the parts of an upload, by number
	parts      int               // of the last upload
	failure    string            // what Google would not understand
}

type stored struct {
	data       []byte
	generation int64
	meta       http.Header
}

func (g *googleStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amz-") || name == "If-Match" || name == "If-None-Match" {
			g.failure = "a request has the header " + name
		}
	}
	key, ok := strings.CutPrefix(r.URL.Path, "/bucket/")
	if r.Method == http.MethodGet && (!ok || key == "") {
		g.list(w, r)
		return
	}
	o := g.objects[key]
	current := int64(0)
	if o != nil {
		current = o.generation
	}
	query := r.URL.Query()
	if r.Method == http.MethodPost || query.Has("uploadId") {
		if r.Header.Get(gcsMatch) != "" {
			g.failure = "an upload in parts has a condition"
		}
		g.inParts(w, r, key)
		return
	}
	if match := r.Header.Get(gcsMatch); match != "" && match != strconv.FormatInt(current, 10) {
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	if r.Method == http.MethodPut {
		data, _ := io.ReadAll(r.Body)
		g.generation++
		o = &stored{data, g.generation, http.Header{}}
		for name, values := range r.Header {
			if strings.HasPrefix(name, "X-Goog-Meta-") {
				o.meta[name] = values
			}
		}
		g.objects[key] = o
		w.Header().Set(gcsGeneration, strconv.FormatInt(o.generation, 10))
		w.Header().Set("ETag", `"not-the-generation"`)
		return
	}
	if o == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if r.Method == http.MethodDelete {
		delete(g.objects, key)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	for name, values := range o.meta {
		w.Header()[name] = values
	}
	w.Header().Set(gcsGeneration, strconv.FormatInt(o.generation, 10))
	w.Header().Set("ETag", `"not-the-generation"`)
	w.Header().Set("Last-Modified", "Sun, 22 Nov 2026 20:00:00 GMT")
	data := o.data
	var from int
	if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); n == 1 {
		data = data[from:]
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(o.data)-1, len(o.data)))
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		w.WriteHeader(http.StatusPartialContent)
	} else {
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	}
	if r.Method == http.MethodGet {
		io.Copy(w, bytes.NewReader(data))
	}
}

// inParts begins an upload in parts, or receives a part, or completes the upload.
func (g *googleStore) inParts(w http.ResponseWriter, r *http.Request, key string) {
	query := r.URL.Query()
	switch {
	case query.Has("uploads"):
		g.upload = map[string][]byte{}
		fmt.Fprint(w, "<InitiateMultipartUploadResult><UploadId>id</UploadId></InitiateMultipartUploadResult>")
	case r.Method == http.MethodPut:
		g.upload[query.Get("partNumber")], _ = io.ReadAll(r.Body)
		w.Header().Set("ETag", `"part"`)
	default:
		g.parts = len(g.upload)
		var data []byte
		for i := range g.parts {
			data = append(data, g.upload[strconv.Itoa(i+1)]...)
		}
		g.generation++
		g.objects[key] = &stored{data, g.generation, http.Header{}}
		fmt.Fprint(w, `<CompleteMultipartUploadResult><Bucket>bucket</Bucket><ETag>"not-the-generation"</ETag></CompleteMultipartUploadResult>`)
	}
}

func (g *googleStore) list(w http.ResponseWriter, r *http.Request) {
	prefix, delimiter := r.URL.Query().Get("prefix"), r.URL.Query().Get("delimiter")
	var keys, folders []string
	for key := range g.objects {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		if head, _, is := strings.Cut(rest, "/"); delimiter != "" && is {
			folders = append(folders, prefix+head+"/")
			continue
		}
		keys = append(keys, key)
	}
	fmt.Fprint(w, "<ListBucketResult><IsTruncated>false</IsTruncated>")
	for _, key := range keys {
		fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>%d</Size><LastModified>2026-11-22T20:00:00Z</LastModified></Contents>", key, len(g.objects[key].data))
	}
	for _, folder := range folders {
		fmt.Fprintf(w, "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>", folder)
	}
	fmt.Fprint(w, "</ListBucketResult>")
}

package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
)

// mostRestarts is how often a copy begins again because the object changed meanwhile.
const mostRestarts = 5

// Fetch copies an object into the scratch folder and returns the path of the copy. A copy that
// is still the version in the store is used again. An object or a bucket that does not exist is bad
// input, and the error is fs.ErrNotExist too.
//
// A connection that breaks is opened again where it broke, for as long as the object stays the
// same.
func (s *Session) Fetch(ctx context.Context, l Location) (string, error) {
	path := s.Local(l)
	return path, s.fetchTo(ctx, l, path, anySize, nil)
}

// anySize stands for the size of an object of which nothing is known.
const anySize = -1

// fetchTo copies an object of a size to a path. The copy is complete when it appears. An object
// of another size is bad input, and is not copied. fetchTo counts the bytes with add, or shows the progress of the object if
// add is nil.
func (s *Session) fetchTo(ctx context.Context, l Location, path string, size int64, add func(int64)) error {
	b, err := s.open(ctx, l)
	if err != nil {
		return err
	}
	for restart := 0; ; restart++ {
		o, err := s.head(ctx, l)
		if err != nil {
			return err
		}
		if size != anySize && o.size != size {
			return fault.Inputf("%s has %d bytes, expected %d as the manifest says", l, o.size, size)
		}
		if r := s.record(l); r != nil && r.Version == o.version && r.untouched(path) {
			if add != nil {
				add(o.size)
			}
			return nil
		}
		part := s.part(l)
		err = s.download(ctx, b, l, o, part, add)
		if err != nil && judge(err) == changed && restart < mostRestarts {
			continue
		}
		if err != nil {
			return describe(l, "reading", err)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := s.dropRecord(l); err != nil {
			return err
		}
		if err := os.Rename(part, path); err != nil {
			return err
		}
		_ = os.Remove(part + savedSuffix) // there may be none
		return s.setRecord(l, path, o.version)
	}
}

// part returns the path of the incomplete copy of an object. The copy of another version
// replaces it.
func (s *Session) part(l Location) string {
	sum := sha256.Sum256([]byte(l.URL()))
	return filepath.Join(s.dir, partsFolder, hex.EncodeToString(sum[:16]))
}

// savedSuffix ends the name of the record of an incomplete copy.
const savedSuffix = ".saved"

// saveEvery is how many bytes a crash of the machine may cost. Tests replace it.
var saveEvery int64 = 64 << 20

// saved is the record of an incomplete copy. A crash of the machine may destroy what follows the
// first Bytes bytes, and leave zeros.
type saved struct {
	Version string `json:"version"`
	Bytes   int64  `json:"bytes"`
}

// save makes the first bytes of an incomplete copy survive a crash of the machine.
func save(f *os.File, version string, bytes int64) error {
	if err := f.Sync(); err != nil {
		return err
	}
	text, err := json.Marshal(saved{version, bytes})
	if err != nil {
		return err
	}
	return atomicfile.Write(f.Name()+savedSuffix, func(w io.Writer) error { _, err := w.Write(text); return err })
}

// resume returns how many bytes of an incomplete copy belong to the object. If it returns 0, it
// deletes the record, because the next bytes will replace those of the copy.
func resume(f *os.File, o object) (int64, error) {
	path := f.Name() + savedSuffix
	text, err := files.Small(path, 1, "the record of a copy")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	var r saved
	if json.Unmarshal(text, &r) == nil && r.Version == o.version && r.Bytes > 0 && r.Bytes <= min(o.size, info.Size()) {
		return r.Bytes, nil
	}
	return 0, errors.Join(os.Remove(path), atomicfile.SyncFolder(filepath.Dir(path)))
}

// fewBytes is the size from which a copy shows its progress.
const fewBytes = 8 << 20

// count begins to show the progress of a copy.
func (s *Session) count(doing string, l Location, bytes int64) (add func(int64), end func()) {
	if s.Progress == nil || bytes < fewBytes {
		return func(int64) {}, func() {}
	}
	one, end := s.Progress(doing+" "+l.Base(), bytes)
	var mu sync.Mutex
	return func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		one(n)
	}, end
}

// together is how many objects of a folder are copied at the same time.
const together = 16

// each calls do for n objects of a folder, some of them at the same time, and shows their progress as one. They have the given
// number of bytes, which do counts with add.
func (s *Session) each(ctx context.Context, doing string, l Location, n int, bytes int64, do func(ctx context.Context, i int, add func(int64)) error) error {
	add, end := s.count(doing, l, bytes)
	defer end()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(together)
	for i := range n {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return do(ctx, i, add)
		})
	}
	return g.Wait()
}

// download copies a version of an object to a new file, or continues the copy that a
// session began there, after the bytes that it saved. It checks the bytes if the store has their digest.
func (s *Session) download(ctx context.Context, b bucket, l Location, o object, part string, add func(int64)) error {
	if err := os.MkdirAll(filepath.Dir(part), 0o700); err != nil {
		return local(err)
	}
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return local(err)
	}
	defer f.Close()
	at, err := resume(f, o)
	if err != nil {
		return local(err)
	}
	if add == nil {
		var end func()
		add, end = s.count("fetch", l, o.size)
		defer end()
	}
	add(at)
	err = retry(ctx, func(int) (bool, error) {
		before := at
		err := func() error {
			if at == o.size {
				return nil
			}
			body, found, err := b.get(ctx, l.Key, o.version, at)
			if err != nil {
				return err
			}
			defer body.Close()
			if found.size != o.size {
				return &statusError{412, "the object has changed"}
			}
			for at < o.size && err == nil {
				// Stopping the transfer when ctx ends is the transport's work.
				most := min(saveEvery, o.size-at)
				var n int64
				n, err = io.Copy(&counter{io.NewOffsetWriter(f, at), add}, io.LimitReader(body, most))
				at += n
				if err == nil && n < most {
					err = io.ErrUnexpectedEOF
				}
				if n > 0 && at < o.size {
					err = errors.Join(err, local(save(f, o.version, at)))
				}
			}
			return err
		}()
		if err != nil {
			err = plain(err)
		}
		return at > before, err
	})
	if err != nil {
		return err
	}
	if err := f.Truncate(o.size); err != nil {
		return local(err)
	}
	if o.sha256 != "" {
		if found, err := digestOf(io.NewSectionReader(f, 0, o.size)); err != nil {
			return local(err)
		} else if found != o.sha256 {
			_ = os.Remove(part + savedSuffix)
			_ = os.Remove(part)
			return &statusError{400, fmt.Sprintf("the SHA-256 of the bytes is %.12s, expected %.12s as they were written", found, o.sha256)}
		}
	}
	return local(errors.Join(f.Sync(), f.Close()))
}

// counter passes on bytes and counts them.
type counter struct {
	to  io.Writer
	add func(int64)
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.add(int64(n))
	return n, local(err)
}

func digestOf(r io.Reader) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// FetchIf is like Fetch, but an object that does not exist is no error. A local copy from
// an earlier session is then deleted.
func (s *Session) FetchIf(ctx context.Context, l Location) (path string, ok bool, err error) {
	path, err = s.Fetch(ctx, l)
	if !errors.Is(err, fs.ErrNotExist) {
		return path, err == nil, err
	}
	return path, false, s.forget(l)
}

// forget deletes the local copy of an object that does not exist.
func (s *Session) forget(l Location) error {
	if err := os.Remove(s.path(l)); err != nil && !errors.Is(err, fs.ErrNotExist) && !isFolder(s.path(l)) {
		return err
	}
	return s.dropRecord(l)
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Part is a file of a folder, as the folder's manifest names it.
type Part struct {
	Name   string // relative to the folder, separated by slashes
	SHA256 string
	Bytes  int64
}

// FetchFolder copies a folder that has a manifest, and returns the path of the copy. parse
// returns the files that a manifest names. They are copied first, and are bad input unless they
// have the size and the digest that the manifest says.
func (s *Session) FetchFolder(ctx context.Context, l Location, manifest string, parse func(text []byte) ([]Part, error)) (string, error) {
	folder := s.Local(l)
	for restart := 0; ; restart++ {
		// The manifest is copied to another place, so that a folder with a manifest is whole.
		at := l.Join(manifest)
		aside := filepath.Join(s.dir, partsFolder, "manifest-"+filepath.Base(s.part(at)))
		if err := s.dropRecord(at); err != nil {
			return "", err
		}
		if err := s.fetchTo(ctx, at, aside, anySize, nil); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return "", fault.Inputf("%w", &missingError{fmt.Sprintf("%s does not exist or is not complete: it has no %s", l, manifest)})
			}
			return "", err
		}
		version := s.record(at)
		text, err := files.Small(aside, 64, "a manifest")
		if err != nil {
			return "", err
		}
		parts, err := parse(text)
		if err != nil {
			return "", fmt.Errorf("%s: %w", at, err)
		}
		err = s.fetchParts(ctx, l, parts)
		if err == nil {
			path := filepath.Join(folder, filepath.FromSlash(manifest))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return "", err
			}
			if err := os.Rename(aside, path); err != nil {
				return "", err
			}
			return folder, s.setRecord(at, path, version.Version)
		}
		// Somebody may have replaced the folder meanwhile.
		now, heading := s.head(ctx, at)
		if heading != nil || version == nil || now.version == version.Version || restart == mostRestarts {
			return "", err
		}
	}
}

func (s *Session) fetchParts(ctx context.Context, l Location, all []Part) error {
	named := map[string]Part{}
	var parts []Part
	bytes := int64(0)
	for _, p := range all {
		if why := badKey(p.Name); why != "" {
			return fault.Inputf("%s names the file %q: %s", l, p.Name, why)
		}
		if before, ok := named[p.Name]; !ok {
			named[p.Name], parts, bytes = p, append(parts, p), bytes+p.Bytes
		} else if before != p {
			return fault.Inputf("%s names the file %q twice, with different contents", l, p.Name)
		}
	}
	return s.each(ctx, "fetch", l, len(parts), bytes, func(ctx context.Context, i int, add func(int64)) error {
		p := parts[i]
		at := l.Join(p.Name)
		before := s.record(at)
		reused := before != nil && before.untouched(s.path(at))
		path := s.Local(at)
		if err := s.fetchTo(ctx, at, path, p.Bytes, add); err != nil {
			return err
		}
		if now := s.record(at); reused && now != nil && *now == *before {
			return nil // its digest was checked when it was copied, and readers check it again
		}
		found, err := files.Digest(path)
		if err != nil {
			return err
		}
		if found != p.SHA256 {
			return fault.Inputf("%s has the SHA-256 %.12s, expected %.12s as the manifest says", at, found, p.SHA256)
		}
		return nil
	})
}

// FetchTree copies all objects of a folder and returns the path of the copy. Files of an
// earlier copy that the store does not have any more are deleted. A folder without objects is bad
// input.
func (s *Session) FetchTree(ctx context.Context, l Location) (string, error) {
	names, bytes, err := s.list(ctx, l, false)
	if err != nil {
		return "", err
	}
	if len(names) == 0 {
		return "", fault.Inputf("%w", &missingError{fmt.Sprintf("%s does not exist: there is neither an object nor a folder with objects", l)})
	}
	folder := s.Local(l)
	err = s.each(ctx, "fetch", l, len(names), bytes, func(ctx context.Context, i int, add func(int64)) error {
		at := l.Join(names[i])
		return s.fetchTo(ctx, at, s.Local(at), anySize, add)
	})
	if err != nil {
		return "", err
	}
	there := map[string]bool{}
	for _, name := range names {
		there[name] = true
	}
	return folder, s.Keep(l, func(name string) bool { return there[name] })
}

// FetchAll copies objects of one bucket and returns the paths of the copies. They have the given number of bytes, or 0 if it is not known.
func (s *Session) FetchAll(ctx context.Context, doing Location, all []Location, bytes int64) ([]string, error) {
	paths := make([]string, len(all))
	for i, l := range all {
		paths[i] = s.Local(l)
	}
	return paths, s.each(ctx, "fetch", doing, len(all), bytes, func(ctx context.Context, i int, add func(int64)) error {
		return s.fetchTo(ctx, all[i], paths[i], anySize, add)
	})
}

// Keep deletes the copies of the objects of a folder for whose names keep is false.
func (s *Session) Keep(l Location, keep func(name string) bool) error {
	return s.walk(s.path(l), func(name string, _ fs.FileInfo) error {
		if keep(name) {
			return nil
		}
		return s.forget(l.Join(name))
	})
}

// walk calls visit with the name of each regular file in a folder, relative and
// separated by slashes.
func (s *Session) walk(folder string, visit func(name string, info fs.FileInfo) error) error {
	return filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		return visit(filepath.ToSlash(name), info)
	})
}

// mostNames is the largest number of objects of a folder.
const mostNames = 1 << 20

// List returns the names of the objects of a folder, relative to it, in the order of their
// bytes. A folder without objects has none. A name that cannot be the path of a local file is bad
// input.
func (s *Session) List(ctx context.Context, l Location) ([]string, error) {
	names, _, err := s.list(ctx, l, false)
	return names, err
}

// Folders returns the names of the folders in a folder, in the order of their bytes.
func (s *Session) Folders(ctx context.Context, l Location) ([]string, error) {
	names, _, err := s.list(ctx, l, true)
	return names, err
}

// Files returns the names of the objects in a folder, without those of the folders in it, in the order of their bytes.
func (s *Session) Files(ctx context.Context, l Location) (names []string, err error) {
	b, err := s.open(ctx, l)
	if err != nil {
		return nil, err
	}
	folder := strings.TrimPrefix(l.Key+"/", "/")
	err = b.list(ctx, folder, true, func(o object) error {
		if name := strings.TrimPrefix(o.key, folder); name != "" && !strings.HasSuffix(name, "/") {
			names = append(names, name)
		}
		return nil
	})
	if err != nil && judge(err) == missing {
		return nil, nil
	}
	slices.Sort(names)
	return names, describe(l, "listing", err)
}

// Find returns the names of the objects and folders in a folder that match a pattern of path.Match. A folder that does not
// exist, or whose list is denied, has none.
func (s *Session) Find(ctx context.Context, l Location, pattern string) (names []string, err error) {
	b, err := s.open(ctx, l)
	if err != nil {
		return nil, err
	}
	folder := strings.TrimPrefix(l.Key+"/", "/")
	beginning, _, _ := strings.Cut(pattern, "*")
	err = b.list(ctx, folder+beginning, true, func(o object) error {
		name := strings.TrimSuffix(strings.TrimPrefix(o.key, folder), "/")
		if ok, _ := path.Match(pattern, name); ok {
			names = append(names, name)
		}
		return nil
	})
	if why := judge(err); err != nil && (why == missing || why == denied) {
		return nil, nil
	}
	return names, describe(l, "listing", err)
}

// list also returns the bytes that all the objects have.
func (s *Session) list(ctx context.Context, l Location, shallow bool) (names []string, bytes int64, err error) {
	b, err := s.open(ctx, l)
	if err != nil {
		return nil, 0, err
	}
	prefix := l.Key
	if prefix != "" {
		prefix += "/"
	}
	err = b.list(ctx, prefix, shallow, func(o object) error {
		name, ok := strings.CutPrefix(o.key, prefix)
		folder, isFolder := strings.CutSuffix(name, "/")
		switch {
		case !ok:
			return fault.Inputf("%s: the store lists the object %q, which is not in this folder", l, o.key)
		case name == "", isFolder && !shallow:
			return nil // some programs make an object for the folder itself
		case shallow && !isFolder:
			return nil
		case shallow:
			name = folder
		}
		if why := badKey(name); why != "" {
			return fault.Inputf("%s has the object %q: %s", l, name, why)
		}
		bytes += o.size
		if names = append(names, name); len(names) > mostNames {
			return fault.Inputf("%s has more than %d objects", l, mostNames)
		}
		return nil
	})
	slices.Sort(names)
	return slices.Compact(names), bytes, describe(l, "listing", err)
}

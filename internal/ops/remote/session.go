package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/filelock"
	"shaver/internal/base/files"
)

// Session copies between stores and a scratch folder. Copies lie in the scratch folder in
// folders for the scheme, the bucket and the key. Only one goroutine may use a session at a time.
type Session struct {
	// Progress is called before a large copy begins, with what it does and the number of
	// bytes. It returns a function that counts bytes, with one call at a time, and one that is called at the end. nil = no calls.
	Progress func(doing string, bytes int64) (add func(int64), end func())
	// Waiting is called from any goroutine if a store says nothing for two seconds, with a text that
	// names the store and its address. nil = no calls. It must be set before the first copy.
	Waiting func(text string)

	dir     string
	unlock  func()
	scratch *atomicfile.Temporary // nil if the folder stays

	mu      sync.Mutex
	buckets map[string]bucket
	known   []Location // whose local copies messages may name
}

// The hidden folders in a scratch folder.
const (
	versionsFolder = ".versions" // what the local copies are copies of
	partsFolder    = ".parts"    // copies that are not complete
	lockName       = ".lock"
	recordName     = ".version"
)

// Open opens a session in the folder dir, which it creates if necessary. The copies stay there
// for the next session, which deletes incomplete ones after a week. If dir is "", the session uses a new folder, which Close deletes. A
// folder that another session uses is an error that may go away.
func Open(dir string) (*Session, error) {
	s := &Session{buckets: map[string]bucket{}}
	if dir == "" {
		made, err := os.MkdirTemp("", "shaver-")
		if err != nil {
			return nil, err
		}
		s.dir, s.scratch = made, atomicfile.Track(made)
		return s, nil
	}
	var err error
	if s.dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("the scratch folder cannot be used: %w", err)
	}
	s.unlock, err = filelock.Lock(filepath.Join(s.dir, lockName))
	if errors.Is(err, filelock.ErrLocked) {
		return nil, fmt.Errorf("another process uses the scratch folder %s: try again after its end, or name another one with --scratch", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("the scratch folder %s cannot be locked: %w", dir, err)
	}
	s.dropParts(time.Now().Add(-partAge))
	return s, nil
}

// partAge is the age at which incomplete copies are deleted.
const partAge = 7 * 24 * time.Hour

// dropParts deletes incomplete copies that did not grow since a time. One that cannot be deleted
// stays.
func (s *Session) dropParts(since time.Time) {
	folder := filepath.Join(s.dir, partsFolder)
	entries, _ := os.ReadDir(folder) // there may be none
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.ModTime().Before(since) {
			_ = os.Remove(filepath.Join(folder, e.Name()))
		}
	}
}

// Discard deletes the local copy of an object or a folder.
func (s *Session) Discard(l Location) error {
	return errors.Join(os.RemoveAll(s.path(l)), os.RemoveAll(filepath.Dir(s.recordPath(l))))
}

// Close ends the session.
func (s *Session) Close() error {
	if s.unlock != nil {
		s.unlock()
	}
	if s.scratch != nil {
		return s.scratch.Remove()
	}
	return nil
}

// Local returns the path of the local copy of an object or a folder, which need not exist.
func (s *Session) Local(l Location) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = append(s.known, l)
	return s.path(l)
}

func (s *Session) path(l Location) string { return filepath.Join(s.dir, l.local()) }

// Rename replaces the paths of local copies in a text by their URLs.
func (s *Session) Rename(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.known {
		text = replacePath(text, s.path(l), l.String())
	}
	// What lies next to a copy, such as the report of a job.
	for _, l := range s.known {
		if l.Key != "" {
			text = replacePath(text, filepath.Dir(s.path(l)), l.Sibling("").String())
		}
	}
	return text
}

// replacePath replaces a path in a text where it is not the beginning of a longer name.
func replacePath(text, path, by string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, path)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		if text = after; after == "" || strings.ContainsRune("/\\ :;,.\t\n\"'()", rune(after[0])) {
			b.WriteString(by)
		} else {
			b.WriteString(path)
		}
	}
}

// open returns the bucket of a location.
func (s *Session) open(ctx context.Context, l Location) (bucket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.buckets[l.store()]; b != nil {
		return b, nil
	}
	b, err := opener(ctx, l)
	if err == nil {
		b = s.hear(b, l)
		s.buckets[l.store()] = b
	}
	return b, err
}

// head describes an object.
func (s *Session) head(ctx context.Context, l Location) (o object, err error) {
	b, err := s.open(ctx, l)
	if err != nil {
		return o, err
	}
	err = retry(ctx, func(int) (bool, error) {
		o, err = b.head(ctx, l.Key)
		return false, err
	})
	return o, describe(l, "reading", err)
}

// Exists reports whether there is an object.
func (s *Session) Exists(ctx context.Context, l Location) (bool, error) {
	_, err := s.head(ctx, l)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// record says which version of an object the local copy is, or was before this program
// changed the copy.
type record struct {
	Version string `json:"version"`
	Size    int64  `json:"size"` // of the copy
	Changed int64  `json:"time"` // time of the copy's last change, in ns
}

func (s *Session) recordPath(l Location) string {
	return filepath.Join(s.dir, versionsFolder, l.local(), recordName)
}

// record returns the record of a copy, or nil.
func (s *Session) record(l Location) *record {
	text, err := files.Small(s.recordPath(l), 1, "the record of a copy")
	var r record
	if err != nil || json.Unmarshal(text, &r) != nil || r.Version == "" {
		return nil
	}
	return &r
}

// setRecord notes that the local file is a copy of a version.
func (s *Session) setRecord(l Location, file, version string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	text, err := json.Marshal(record{version, info.Size(), info.ModTime().UnixNano()})
	if err != nil {
		return err
	}
	path := s.recordPath(l)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

func (s *Session) dropRecord(l Location) error {
	err := os.Remove(s.recordPath(l))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Untouched reports whether the local copy of an object is still the version that was copied.
func (s *Session) Untouched(l Location) bool {
	r := s.record(l)
	return r != nil && r.untouched(s.path(l))
}

// untouched reports whether a file is still what the record says.
func (r *record) untouched(file string) bool {
	info, err := os.Lstat(file)
	return err == nil && info.Mode().IsRegular() && info.Size() == r.Size && info.ModTime().UnixNano() == r.Changed
}

// Package window keeps the sums of each day of a moving window in a folder, the state. A
// window is a list of datasets, its days. Sums over rows add up, so the scores of a window
// follow from the sums of its days. A night brings each day's sums to the newest model. It
// keeps a day that is up to date, corrects a day by a paired job on a sample of its
// rows, or scores it in full. Then it adds up the sums.
package window

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"go.uber.org/zap"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/filelock"
	"shaver/internal/click/modelfile"
)

// State is an open state folder. It is locked until Close. Only one goroutine may use it
// at a time.
type State struct {
	dir    string
	index  *Index
	unlock func()
	log    *zap.Logger
	// OnCommit is called after each change of the index, when the files that only the former
	// index names are deleted; nil = no call.
	OnCommit func() error
}

// The names of files in a state. The folder also has a file of sums for each day, and a copy
// of the newest model.
const (
	indexName = "state.json"
	lockName  = "lock"
)

// own matches the names of the files that a state owns, besides the index, and the
// temporary files in which it writes all of them.
var own = regexp.MustCompile(`^(day-[0-9a-f]{16}-[0-9a-f]{16}-[0-9]+\.sums|model-[0-9a-f]{16}\.safetensors|\.(state|day-|model-).*\.tmp)$`)

// operation is called before each change of the folder, with the kind of the change and the
// name of the file. If it returns an error, the change is not made. Tests replace it.
var operation = func(what, name string) error { return nil }

// Open opens the state in the folder dir, creates it if necessary, and locks it. It deletes
// what a killed run left. A folder that another process uses is wrong usage. A folder that
// has other files, or a damaged index, is bad input.
func Open(dir string, log *zap.Logger) (*State, error) {
	if err := checkFolder(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	unlock, err := filelock.Lock(filepath.Join(dir, lockName))
	if errors.Is(err, filelock.ErrLocked) {
		return nil, fmt.Errorf("another process uses the state %s: wait for its end", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("the state %s cannot be locked: %w", dir, err)
	}
	s := &State{dir: dir, unlock: unlock, log: log}
	if s.index, err = readIndex(s.path(indexName)); errors.Is(err, fs.ErrNotExist) {
		s.index, err = nil, nil
	}
	if err == nil {
		err = s.clean()
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return s, nil
}

// Close releases the lock.
func (s *State) Close() { s.unlock() }

// path returns the path of a file of the state.
func (s *State) path(name string) string { return filepath.Join(s.dir, name) }

// checkFolder returns bad input if dir exists and is neither a state nor empty. A state that
// was killed before it wrote its index has only files of its own.
func checkFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.Inputf("the state %s is not a folder that can be read: %w", dir, err)
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == indexName }) {
		return nil
	}
	for _, e := range entries {
		if name := e.Name(); !own.MatchString(name) && name != lockName && !isProgress(name) {
			return fault.Inputf("%s is not a state: it has the file %s but no %s: name a new or an empty folder", dir, name, indexName)
		}
	}
	return nil
}

// Progress is the name of the scores file next to which a job that runs for a state may keep
// its progress.
const Progress = "night.arrow"

// isProgress reports whether the name is that of the progress of a job, or of its lock.
func isProgress(name string) bool { return name == ".night.job" || name == ".night.job.lock" }

// clean deletes the files of the state that the index does not name.
func (s *State) clean() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	named := s.index.files()
	for _, e := range entries {
		name := e.Name()
		if !own.MatchString(name) || slices.Contains(named, name) {
			continue
		}
		if err := operation("delete", name); err != nil {
			return err
		}
		if err := os.Remove(s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// commit makes next the state's index. Files that only the former index names are deleted.
func (s *State) commit(next *Index) error {
	if err := operation("write", indexName); err != nil {
		return err
	}
	if err := next.write(s.path(indexName)); err != nil {
		return err
	}
	s.index = next
	if err := s.clean(); err != nil || s.OnCommit == nil {
		return err
	}
	return s.OnCommit()
}

// IndexName is the name of the index in the folder of a state. It names all other files.
const IndexName = indexName

// Named returns the names of the files that the index at path names.
func Named(path string) ([]string, error) {
	x, err := readIndex(path)
	return x.files(), err
}

// Owns reports whether a file of a state has the name. Locks, temporary files and the progress
// of jobs are not files of a state.
func Owns(name string) bool {
	return name == indexName || own.MatchString(name) && name[0] != '.'
}

// has reports whether the state has the given file. If the file is missing, has logs what
// follows from that. A file of another size is bad input.
func (s *State) has(f File, otherwise string) (bool, error) {
	info, err := os.Stat(s.path(f.Name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.log.Warn("a file of the state is missing: "+otherwise, zap.String("file", s.path(f.Name)))
		return false, nil
	case err != nil:
		return false, err
	case !info.Mode().IsRegular() || info.Size() != f.Bytes:
		return false, s.damaged(f, otherwise, fmt.Errorf("it has %d bytes, expected %d", info.Size(), f.Bytes))
	}
	return true, nil
}

// damaged returns the error for a file of the state that cannot be used.
func (s *State) damaged(f File, otherwise string, err error) error {
	return fault.Inputf("%s is damaged: %w: delete the file and run the command again; %s", s.path(f.Name), err, otherwise)
}

// What follows if a file of the state is missing.
const (
	fullInstead = "its day is then scored in full"
	noCopy      = "the previous model is then taken from --previous-model, and without it all days are scored in full"
)

// writeModel stores a copy of the model and returns its file, which no index names yet.
func (s *State) writeModel(ck modelfile.Source) (*File, error) {
	f := &File{Name: fmt.Sprintf("model-%.16s.safetensors", ck.Digest()), Bytes: ck.Size(), SHA256: ck.Digest()}
	if err := operation("write", f.Name); err != nil {
		return nil, err
	}
	return f, atomicfile.Write(s.path(f.Name), func(w io.Writer) error {
		_, err := ck.WriteTo(w)
		return err
	})
}

// dayFile returns the name of the file with the sums of a day, under the model, after the
// given number of paired jobs.
func dayFile(dataset, model string, generation int) string {
	return fmt.Sprintf("day-%.16s-%.16s-%d.sums", dataset, model, generation)
}

// isDigest reports whether text is a SHA-256 in hexadecimal.
func isDigest(text string) bool { return digestForm.MatchString(text) }

var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

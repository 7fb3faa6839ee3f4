package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Mirror is a folder in a store that this process changes as a local folder. Push makes the
// store equal to the local folder. A process that dies at any moment leaves the store as it was
// after a push, except for files that no other file names yet.
//
// Only one process at a time may push. The one that began last has the claim, and the pushes of
// others fail with ErrConflict.
type Mirror struct {
	// Rank returns when a changed file is written in a push: smaller ranks first. A file of
	// a negative rank stays here. Deletions come after all writes, larger ranks first.
	Rank func(name string) int
	// Guarded reports whether a file must have the version that this process has seen when
	// it is replaced.
	Guarded func(name string) bool
	// Drops reports whether Push deletes a file that Names listed and that was never copied
	// here; nil = none.
	Drops func(name string) bool

	listed []string
	s      *Session
	at     Location
	claim  Location
}

// claimName is the name of the object that says which process may push.
const claimName = ".shaver-claim.json"

// Mirror returns a mirror of the folder at l.
func (s *Session) Mirror(l Location) *Mirror {
	return &Mirror{s: s, at: l, claim: l.Join(claimName)}
}

// Folder returns the path of the local folder.
func (m *Mirror) Folder() string { return m.s.Local(m.at) }

// claimed is the content of the object that says which process may push.
type claimed struct {
	Claim string `json:"claim"`
	Began string `json:"began"` // RFC 3339, UTC
	Host  string `json:"host"`
	PID   int    `json:"pid"`
}

// Claim makes this process the one that pushes. If the last push was not made from this scratch
// folder, it deletes the local folder, because the store is newer.
func (m *Mirror) Claim(ctx context.Context) error {
	if err := os.MkdirAll(m.Folder(), 0o755); err != nil {
		return err
	}
	for range mostRestarts {
		before := m.s.record(m.claim)
		o, err := m.s.head(ctx, m.claim)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if before == nil || before.Version != o.version {
			if err := errors.Join(m.s.Discard(m.at), os.MkdirAll(m.Folder(), 0o755)); err != nil {
				return err
			}
		}
		c := condition{version: o.version, absent: o.version == ""}
		if err = m.writeClaim(ctx, c); !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("writing %s: %w", m.at, ErrConflict)
}

// writeClaim replaces the claim under a condition. The local file is not in the folder,
// whose readers may not expect it.
func (m *Mirror) writeClaim(ctx context.Context, c condition) error {
	host, _ := os.Hostname() // only for people
	text, err := json.Marshal(claimed{rand.Text(), time.Now().UTC().Format(time.RFC3339), host, os.Getpid()})
	if err != nil {
		return err
	}
	path := m.s.part(m.claim)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return m.s.publish(ctx, path, m.claim, c, nil)
}

// check returns ErrConflict unless this process has the claim.
func (m *Mirror) check(ctx context.Context) error {
	r := m.s.record(m.claim)
	o, err := m.s.head(ctx, m.claim)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if r == nil || o.version != r.Version {
		return fmt.Errorf("writing %s: %w", m.at, ErrConflict)
	}
	return nil
}

// Names returns the names of the files in the store.
func (m *Mirror) Names(ctx context.Context) ([]string, error) {
	names, err := m.s.List(ctx, m.at)
	m.listed = slices.DeleteFunc(names, func(name string) bool { return name == claimName || m.Rank(name) < 0 })
	return slices.Clone(m.listed), err
}

// Pull copies files from the store. Files that this process, or one before it in the same
// scratch folder, has changed and not pushed stay as they are. A file that the store does not
// have is not copied.
func (m *Mirror) Pull(ctx context.Context, names ...string) error {
	for _, name := range names {
		at := m.at.Join(name)
		if r := m.s.record(at); r != nil {
			o, err := m.s.head(ctx, at)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if err == nil && o.version == r.Version {
				continue // the local file is this version, newer, or deleted
			}
		}
		if _, _, err := m.s.FetchIf(ctx, at); err != nil {
			return err
		}
	}
	return nil
}

// Push writes all changes of the local folder to the store.
func (m *Mirror) Push(ctx context.Context) error {
	type change struct {
		name string
		rank int
	}
	var writes, deletions []change
	folder := m.Folder()
	here := map[string]bool{}
	err := m.s.walk(folder, func(name string, _ fs.FileInfo) error {
		rank := m.Rank(name)
		if name == claimName || rank < 0 {
			return nil
		}
		here[name] = true
		if r := m.s.record(m.at.Join(name)); r == nil || !r.untouched(filepath.Join(folder, filepath.FromSlash(name))) {
			writes = append(writes, change{name, rank})
		}
		return nil
	})
	if err != nil {
		return err
	}
	known := filepath.Dir(m.s.recordPath(m.at))
	err = m.s.walk(known, func(name string, _ fs.FileInfo) error {
		name, ok := strings.CutSuffix(name, "/"+recordName)
		if rank := m.Rank(name); ok && name != claimName && rank >= 0 && !here[name] {
			deletions = append(deletions, change{name, rank})
		}
		return nil
	})
	if err != nil {
		return err
	}
	m.listed = slices.DeleteFunc(m.listed, func(name string) bool {
		drop := m.Drops != nil && !here[name] && m.s.record(m.at.Join(name)) == nil && m.Drops(name)
		if drop {
			deletions = append(deletions, change{name, m.Rank(name)})
		}
		return drop
	})
	if len(writes)+len(deletions) == 0 {
		return nil
	}
	slices.SortFunc(writes, func(a, b change) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.name, b.name)) })
	slices.SortFunc(deletions, func(a, b change) int { return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(a.name, b.name)) })
	for _, w := range writes {
		if err := m.check(ctx); err != nil { // each time, because a write may take long
			return err
		}
		write := m.s.Replace
		if m.Guarded(w.name) {
			write = m.s.Publish
		}
		if err := write(ctx, filepath.Join(folder, filepath.FromSlash(w.name)), m.at.Join(w.name)); err != nil {
			return err
		}
	}
	for _, d := range deletions {
		if err := m.remove(ctx, d.name); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a file in the store if this process has the claim.
func (m *Mirror) remove(ctx context.Context, name string) error {
	if err := m.check(ctx); err != nil {
		return err
	}
	return m.s.Remove(ctx, m.at.Join(name))
}

// Delete deletes files that Names listed and that have no local copy.
func (m *Mirror) Delete(ctx context.Context, names ...string) error {
	m.listed = slices.DeleteFunc(m.listed, func(name string) bool { return slices.Contains(names, name) })
	for _, name := range names {
		if err := m.remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

package places

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"shaver/internal/jobs/window"
	"shaver/internal/ops/remote"
)

// mirrorState copies the state of a window and takes the claim on it.
func (u *use) mirrorState(ctx context.Context, l remote.Location) (*remote.Mirror, error) {
	m := u.Mirror(l)
	isIndex := func(name string) bool { return name == window.IndexName }
	m.Rank = func(name string) int {
		switch {
		case isIndex(name):
			return 1
		case window.Owns(name):
			return 0
		}
		return -1 // locks, progress and temporary files
	}
	m.Guarded = isIndex
	if err := m.Claim(ctx); err != nil {
		return nil, err
	}
	if err := m.Pull(ctx, window.IndexName); err != nil {
		return nil, err
	}
	names, err := window.Named(filepath.Join(m.Folder(), window.IndexName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return m, m.Pull(ctx, names...)
}

// State returns the local path of the state at a path, which may be a URL, for a night with this context, and a context by which
// Committed knows the state.
func State(ctx context.Context, text string) (context.Context, string, error) {
	outer, ok := ctx.Value(key{}).(*use)
	if !ok || !remote.Is(text) {
		return ctx, text, nil
	}
	u := &use{Session: outer.Session}
	path, err := u.place(ctx, state, text)
	return context.WithValue(ctx, key{}, u), path, err
}

// Committed returns what writes a state to its URL after each change, for a command with this
// context. It returns nil if the state is a local folder.
func Committed(ctx context.Context) func() error {
	u, ok := ctx.Value(key{}).(*use)
	if !ok || u.state == nil {
		return nil
	}
	return func() error { return u.state.Push(ctx) }
}

// Written returns what writes the outputs of a command with this context to their URLs, for a
// command that has to do something after that. It returns nil if no output has a URL.
func Written(ctx context.Context) func(ctx context.Context) error {
	u, ok := ctx.Value(key{}).(*use)
	if !ok || len(u.outputs) == 0 {
		return nil
	}
	return u.publish
}

// URL returns the URL of the output with this local path, for a command with this context, or
// "" if it has none.
func URL(ctx context.Context, path string) string {
	if u, ok := ctx.Value(key{}).(*use); ok {
		for _, o := range u.outputs {
			if o.path == path {
				return o.to.URL()
			}
		}
	}
	return ""
}

// Local returns what copies a file at a URL that another program wrote into the job, for a command
// with this context. The URL must be in a store to which the command itself writes, with the same
// settings, because the request carries the command's credentials. Other texts are paths and stay
// as they are.
func Local(ctx context.Context) func(ctx context.Context, text string) (string, error) {
	u, _ := ctx.Value(key{}).(*use)
	return func(ctx context.Context, text string) (string, error) {
		if !remote.Is(text) {
			return text, nil
		}
		l, err := remote.Parse(text)
		if err != nil {
			return "", err
		}
		if u == nil || !slices.ContainsFunc(u.outputs, func(o output) bool { return o.to.SameStore(l) }) {
			return "", fmt.Errorf("%s is not in the object store of the outputs", l)
		}
		return u.place(ctx, file, text)
	}
}

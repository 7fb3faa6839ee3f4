package night

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"shaver/internal/app/cli"
	"shaver/internal/app/places"
	"shaver/internal/data/dataset"
	"shaver/internal/ops/remote"
	"shaver/internal/prune/nightly"
)

// stores copies what nights read from object stores, and writes their results there.
type stores struct{ *remote.Session }

// localise makes a configuration of shaver nightly local. It copies the model, the newest days
// and what the next night needs of the earlier ones, and replaces their URLs by the paths of
// the copies. The state stays a URL, which State takes. inner is the context of the night.
//
// commit writes the changes of the results to their URL, or is nil if they are local. end must be
// called with the error of the night, and returns it with URLs in the place of local paths.
func localise(ctx context.Context, o *places.Copying, n *nightly.Config, date string) (inner context.Context, commit func() error, end func(error) error, err error) {
	end = func(err error) error { return err }
	if !slices.ContainsFunc([]string{n.Model, n.Days, n.Out, n.State, n.Source.Get("table")}, remote.Is) && n.Source.Get("catalog") == "" {
		return ctx, nil, end, waitForNight(ctx, nil, o, n, date)
	}
	if ctx, end, err = places.Stores(ctx, o); err != nil {
		return ctx, nil, end, err
	}
	u := &stores{places.Session(ctx)}
	if err := waitForNight(ctx, u, o, n, date); err != nil {
		return ctx, nil, end, err
	}
	commit, err = u.nights(ctx, n)
	return ctx, commit, end, err
}

// waitForNight waits for the model and, if the night has a date, for the day of that name.
func waitForNight(ctx context.Context, u *stores, o *places.Copying, n *nightly.Config, date string) error {
	if n.WaitInputs == 0 {
		return nil
	}
	var inputs []cli.Input
	add := func(path string, within ...string) error {
		if !remote.Is(path) {
			inputs = append(inputs, cli.FileInput(filepath.Join(append([]string{path}, within...)...)))
			return nil
		}
		l, err := remote.Parse(path)
		for _, name := range within {
			l = l.Join(name)
		}
		inputs = append(inputs, cli.Input{Name: l.String(), Exists: func(ctx context.Context) (bool, error) { return u.Exists(ctx, l) }})
		return err
	}
	err := add(n.Model)
	if err == nil && date != "" && n.Source == nil {
		err = add(n.Days, date, dataset.ManifestName)
	}
	if err != nil {
		return err
	}
	return cli.AwaitInputs(ctx, n.WaitInputs, o.Log, inputs...)
}

// nights copies what the next night needs.
func (u *stores) nights(ctx context.Context, n *nightly.Config) (commit func() error, err error) {
	if remote.Is(n.Out) {
		if commit, n.Out, err = u.results(ctx, n.Out); err != nil {
			return nil, err
		}
	}
	if remote.Is(n.Model) {
		l, err := remote.Parse(n.Model)
		if err != nil {
			return nil, err
		}
		if n.Model, err = places.Model(ctx, u.Session, l); err != nil {
			return nil, err
		}
	}
	if remote.Is(n.Days) {
		if n.Days, err = u.days(ctx, n); err != nil {
			return nil, err
		}
	}
	return commit, nil
}

// results copies the folder of the results, as far as the next night needs it, and takes the
// claim on it.
func (u *stores) results(ctx context.Context, text string) (commit func() error, folder string, err error) {
	l, err := remote.Parse(text)
	if err != nil {
		return nil, "", err
	}
	m := u.Mirror(l)
	folder = m.Folder()
	m.Rank, m.Guarded = nightly.Rank, nightly.Pointer
	m.Drops = func(name string) bool {
		c, err := nightly.ReadCopies(folder)
		return err == nil && c.Drops(name, func(night string) bool {
			_, err := os.Lstat(filepath.Join(folder, "nights", night))
			return !errors.Is(err, os.ErrNotExist)
		})
	}
	if err := m.Claim(ctx); err != nil {
		return nil, "", err
	}
	names, err := m.Names(ctx)
	if err != nil {
		return nil, "", err
	}
	leftover := nightly.Leftover(names)
	if err := m.Delete(ctx, leftover...); err != nil {
		return nil, "", err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(leftover, name) })
	if err := m.Pull(ctx, nightly.First(names)...); err != nil {
		return nil, "", err
	}
	copies, err := nightly.ReadCopies(folder)
	if err != nil {
		return nil, "", err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !copies.Needs(name) })
	return func() error { return m.Push(ctx) }, folder, m.Pull(ctx, names...)
}

// days copies the newest days, and those of a night that is not finished. It deletes the
// copies of all other days.
func (u *stores) days(ctx context.Context, n *nightly.Config) (string, error) {
	l, err := remote.Parse(n.Days)
	if err != nil {
		return "", err
	}
	folder := u.Local(l)
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return "", err
	}
	there, err := u.Folders(ctx, l)
	if err != nil {
		return "", err
	}
	there = slices.DeleteFunc(there, func(name string) bool { return strings.HasPrefix(name, ".") })
	unfinished, err := nightly.Days(n.Out)
	if err != nil {
		return "", err
	}
	var needed []string
	for i, name := range there {
		if i >= len(there)-n.Window || slices.Contains(unfinished, name) {
			needed = append(needed, name)
		}
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "", err
	}
	for _, e := range entries { // first, because the next day may need the space
		if !slices.Contains(needed, e.Name()) {
			if err := u.Discard(l.Join(e.Name())); err != nil {
				return "", err
			}
		}
	}
	for _, name := range needed {
		if _, err := places.Dataset(ctx, u.Session, l.Join(name)); err != nil {
			return "", err
		}
	}
	return folder, nil
}

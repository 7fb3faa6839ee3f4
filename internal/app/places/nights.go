package places

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"shaver/internal/app/cli"
	"shaver/internal/data/dataset"
	"shaver/internal/ops/remote"
	"shaver/internal/prune/nightly"
)

// Nights makes a configuration of shaver nightly local. It copies the model, the newest days
// and what the next night needs of the earlier ones, and replaces their URLs by the paths of
// the copies. The state stays a URL, which State takes. inner is the context of the night.
//
// commit writes the changes of the results to their URL, or is nil if they are local. end must be
// called with the error of the night, and returns it with URLs in the place of local paths.
func Nights(ctx context.Context, o *Copying, n *nightly.Config, date string) (inner context.Context, commit func() error, end func(error) error, err error) {
	end = func(err error) error { return err }
	if !slices.ContainsFunc([]string{n.Model, n.Days, n.Out, n.State}, remote.Is) {
		return ctx, nil, end, waitForNight(ctx, nil, o, n, date)
	}
	u, ok := ctx.Value(key{}).(*use)
	if !ok { // the file of the configuration is local
		session, err := o.open()
		if err != nil {
			return ctx, nil, end, err
		}
		u = &use{Session: session}
		ctx = cli.WithRename(context.WithValue(ctx, key{}, u), u.Rename)
		end = func(err error) error { return u.renamed(errors.Join(err, session.Close())) }
	}
	if err := waitForNight(ctx, u, o, n, date); err != nil {
		return ctx, nil, end, err
	}
	commit, err = u.nights(ctx, n)
	return ctx, commit, end, err
}

// waitForNight waits for the model and, if the night has a date, for the day of that name.
func waitForNight(ctx context.Context, u *use, o *Copying, n *nightly.Config, date string) error {
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
	if err == nil && date != "" {
		err = add(n.Days, date, dataset.ManifestName)
	}
	if err != nil {
		return err
	}
	return cli.AwaitInputs(ctx, n.WaitInputs, o.Log, inputs...)
}

// nights copies what the next night needs.
func (u *use) nights(ctx context.Context, n *nightly.Config) (commit func() error, err error) {
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
		if n.Model, err = u.Model(ctx, l); err != nil {
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
func (u *use) results(ctx context.Context, text string) (commit func() error, folder string, err error) {
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
func (u *use) days(ctx context.Context, n *nightly.Config) (string, error) {
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
	there = slices.DeleteFunc(there, isHidden)
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
		if _, err := u.Dataset(ctx, l.Join(name)); err != nil {
			return "", err
		}
	}
	return folder, nil
}

// Package places lets commands take URLs of objects where they take files and folders. Before a
// command runs, its inputs are copied to the scratch folder, and its flags are set to the paths
// of the copies. After it has run, its outputs are written to their URLs.
package places

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/dataset"
	"shaver/internal/data/folders"
	"shaver/internal/ops/remote"
)

// kind says what a flag or an argument names.
type kind int

const (
	file       kind = iota // an input file
	model                  // a checkpoint with the files next to it
	scoresFile             // scores, with the report of their job if there is one
	data                   // the folder of a dataset
	either                 // a file, or the folder of a dataset
	tree                   // a file, or a folder of files
	rows                   // as tree, or a table with a log, whose URL stays as it is
	out                    // an output file
	outModel               // a checkpoint to write, with its external data if it has some
	outScores              // scores to write, with the report of their job
	outData                // the folder of a dataset to write
	outDelta               // the folder of a delta to write
	state                  // the state of a window
)

// flags lists, for each command, the flags that may be URLs.
var flags = map[string]map[string]kind{
	"score":                  {"model": model, "dataset": data, "out": outScores},
	"nightly score":          {"model": model, "previous-model": model, "previous": scoresFile, "dataset": data, "out": outScores, "state": state},
	"plan":                   {"model": model, "previous-model": model, "previous": scoresFile, "dataset": data},
	"compress":               {"model": model, "scores": scoresFile, "dataset": data, "recipe": file},
	"train":                  {"model": model, "dataset": data, "out": outModel},
	"tune":                   {"model": model, "dataset": data, "out": outModel},
	"benchmark":              {"dataset": data},
	"prune":                  {"model": model, "scores": scoresFile, "dataset": data, "previous": file, "from": file, "out": outModel},
	"evaluate":               {"model": model, "against": model, "dataset": data, "predictions": out},
	"explain":                {"model": model, "against": model, "dataset": data},
	"check":                  {"model": model, "against": model, "dataset": data, "out": out},
	"sweep":                  {"model": model, "scores": scoresFile, "models": model, "dataset": data, "out": out},
	"report":                 {"model": model, "scores": scoresFile, "dataset": data, "sweep": file, "path": file, "out": out},
	"scores inspect":         {"dataset": data},
	"scores export":          {"out": out},
	"scores compare":         {"picture": out},
	"scores frequency":       {"model": model, "dataset": data, "out": outScores},
	"dataset inspect":        {"html": out},
	"dataset import csv":     {"train": tree, "val": tree, "test": tree, "fresh": tree, "raw": tree, "model": model, "vocabulary": either, "out": outData},
	"dataset import criteo":  {"model": model, "vocabulary": either, "out": outData},
	"dataset import avazu":   {"model": model, "vocabulary": either, "out": outData},
	"dataset import kdd":     {"model": model, "vocabulary": either, "out": outData},
	"dataset import parquet": {"val": rows, "test": rows, "fresh": rows, "model": model, "vocabulary": either, "out": outData},
	"model inspect":          {"dataset": data},
	"model convert":          {"dataset": data},
	"model delta":            {"from": model, "out": outDelta},
	"model apply":            {"model": model, "out": outModel},
	"nightly":                {"config": file},
}

// arguments lists the kinds of a command's arguments. The last kind is that of all further ones.
var arguments = map[string][]kind{
	"scores inspect":         {scoresFile},
	"scores export":          {scoresFile},
	"scores compare":         {scoresFile},
	"dataset inspect":        {data},
	"dataset import criteo":  {tree},
	"dataset import avazu":   {tree},
	"dataset import kdd":     {tree},
	"dataset import parquet": {rows},
	"model inspect":          {model},
	"model convert":          {model, outModel},
	"model delta":            {model},
}

// URLFlags is the title of the group of the flag --scratch.
const URLFlags = "Object stores"

// ScratchFlag is the name of the flag that names the scratch folder.
const ScratchFlag = "scratch"

// waitFlag is the name of the flag that says how long to wait for inputs.
const waitFlag = "wait-inputs"

// WrapAll makes the commands below root take URLs, except those that do so already.
func WrapAll(root *cobra.Command) *cobra.Command {
	var visit func(c *cobra.Command, path string)
	visit = func(c *cobra.Command, path string) {
		for _, sub := range c.Commands() {
			name := strings.TrimSpace(path + " " + sub.Name())
			if _, ok := flags[name]; ok && sub.Flags().Lookup(ScratchFlag) == nil {
				Wrap(sub, name)
			}
			visit(sub, name)
		}
	}
	visit(root, "")
	return root
}

// Wrap makes a command take URLs. name is that of the command below shaver, such as "score" or
// "dataset inspect", whatever the command is called here.
func Wrap(c *cobra.Command, name string) *cobra.Command {
	AddScratch(c)
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error { return resolved(c, args, name, run) }
	return c
}

// AddScratch adds the flag --scratch to a command.
func AddScratch(c *cobra.Command) {
	c.Flags().String(ScratchFlag, "", "`folder` for the copies of files at URLs, which stay there for the next run (default a temporary folder)")
	cli.Folder(c, ScratchFlag)
	cli.Group(c, URLFlags, ScratchFlag)
}

// key is the key of a session in a context.
type key struct{}

// use is the session of a command, and what it writes at its end.
type use struct {
	*remote.Session
	outputs []output
	state   *remote.Mirror
	last    string // see PublishLast
}

// PublishLast says which file of the folder that the command of ctx writes is for readers to look for, so that it is published
// after all others.
func PublishLast(ctx context.Context, name string) {
	if u, ok := ctx.Value(key{}).(*use); ok {
		u.last = name
	}
}

// output is a local file or folder that a command writes for a URL.
type output struct {
	kind kind
	path string
	to   remote.Location
}

// resolved runs a command with local copies in the place of URLs.
func resolved(c *cobra.Command, args []string, name string, run func(*cobra.Command, []string) error) (err error) {
	urls := slices.ContainsFunc(args, remote.Is)
	for flag := range flags[name] {
		urls = urls || slices.ContainsFunc(values(c.Flags().Lookup(flag)), remote.Is)
	}
	if f := c.Flags().Lookup("catalog"); f != nil && f.Changed {
		urls = true // it says where the files of its tables are
	}
	if !urls {
		return run(c, args)
	}
	if err := cli.Required(c); err != nil {
		return err
	}
	ctx := c.Context()
	u, inner := ctx.Value(key{}).(*use)
	if inner { // a command that another one runs
		u = &use{Session: u.Session}
	} else {
		session, err := openFor(c)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, session.Close()) }()
		u = &use{Session: session}
	}
	c.SetContext(cli.WithRename(context.WithValue(ctx, key{}, u), u.Rename))
	defer func() { err = u.renamed(err) }()
	local, err := u.resolve(c, args, name)
	if err != nil {
		return err
	}
	err = run(c, local)
	if err != nil && !errors.Is(err, cli.ErrUnconverged) && !errors.Is(err, cli.ErrIncomplete) && !errors.Is(err, cli.ErrGate) {
		return err
	}
	if failed := u.publish(ctx); failed != nil {
		return failed
	}
	return err
}

// Copying says where the copies of files at URLs are, and what reports that they take time.
type Copying struct {
	Scratch string      // folder; "" = a temporary one
	Log     *zap.Logger // also of what is waited for
	JSON    bool        // report progress to Log
}

// openFor opens the session that the flags of a command describe.
func openFor(c *cobra.Command) (*remote.Session, error) {
	dir, err := c.Flags().GetString(ScratchFlag)
	if err != nil {
		return nil, err
	}
	log, err := logger(c)
	if err != nil {
		return nil, err
	}
	f := c.Flags().Lookup("log")
	return (&Copying{dir, log, f != nil && f.Value.String() == cli.JSONLog}).open()
}

func (o *Copying) open() (*remote.Session, error) {
	s, err := remote.Open(o.Scratch)
	if err == nil {
		s.Progress = func(doing string, bytes int64) (func(int64), func()) {
			const mega = 1_000_000
			p := cli.NewProgress(doing, "MB", bytes/mega)
			if o.JSON {
				p = cli.LogProgress(o.Log, doing, "MB", bytes/mega)
			}
			done := int64(0)
			return func(n int64) { done += n; p.Set(done / mega) }, p.End
		}
		s.Waiting = func(text string) { o.Log.Warn(text) }
	}
	return s, err
}

// values returns the values of a flag.
func values(f *pflag.Flag) []string {
	if f == nil {
		return nil
	}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.GetSlice()
	}
	return []string{f.Value.String()}
}

// resolve sets the flags of a command to local paths and returns its arguments as such.
// Inputs come first, so that a command whose inputs are missing has not begun to change anything.
func (u *use) resolve(c *cobra.Command, args []string, name string) ([]string, error) {
	ctx := c.Context()
	kinds := flags[name]
	if err := u.await(c, kinds); err != nil {
		return nil, err
	}
	for _, writes := range []bool{false, true} {
		for _, flag := range sorted(kinds) {
			k, f := kinds[flag], c.Flags().Lookup(flag)
			if (k >= out) != writes || f == nil || !slices.ContainsFunc(values(f), remote.Is) {
				continue
			}
			var paths []string
			for _, value := range values(f) {
				path, err := u.place(ctx, k, value)
				if err != nil {
					return nil, err
				}
				paths = append(paths, path)
			}
			if list, ok := f.Value.(pflag.SliceValue); ok {
				if err := list.Replace(paths); err != nil {
					return nil, err
				}
			} else if err := f.Value.Set(paths[0]); err != nil {
				return nil, err
			}
		}
	}
	args = slices.Clone(args)
	for i := range args {
		kinds := arguments[name]
		if len(kinds) == 0 {
			break
		}
		path, err := u.place(ctx, kinds[min(i, len(kinds)-1)], args[i])
		if err != nil {
			return nil, err
		}
		args[i] = path
	}
	return args, nil
}

func sorted(kinds map[string]kind) []string {
	var names []string
	for name := range kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// await waits for late inputs at URLs, if the command has a flag for that. The command itself
// waits for local ones.
func (u *use) await(c *cobra.Command, kinds map[string]kind) error {
	if c.Flags().Lookup(waitFlag) == nil {
		return nil
	}
	limit, err := c.Flags().GetDuration(waitFlag)
	if err != nil || limit <= 0 {
		return err
	}
	var inputs []cli.Input
	for _, flag := range sorted(kinds) {
		for _, text := range values(c.Flags().Lookup(flag)) {
			if kinds[flag] >= out || !remote.Is(text) {
				continue
			}
			in, err := u.expected(kinds[flag], text)
			if err != nil {
				return err
			}
			inputs = append(inputs, in)
		}
	}
	log, err := logger(c)
	if err != nil {
		return err
	}
	return cli.AwaitInputs(c.Context(), limit, log, inputs...)
}

// expected returns the input at a URL.
func (u *use) expected(k kind, text string) (in cli.Input, err error) {
	l, err := remote.Parse(text)
	if k == data {
		l = l.Join(dataset.ManifestName)
	}
	return cli.Input{Name: l.String(), Exists: func(ctx context.Context) (bool, error) { return u.Exists(ctx, l) }}, err
}

// logger returns a log to stderr in the format that the command's flag says, or else SHAVER_LOG.
func logger(c *cobra.Command) (*zap.Logger, error) {
	if f := c.Flags().Lookup("log"); f != nil {
		return cli.Logger(f.Value.String(), false)
	}
	return cli.Log(), nil
}

// place returns the local path for a text that names a file or a folder. It copies an input.
func (u *use) place(ctx context.Context, k kind, text string) (string, error) {
	if !remote.Is(text) {
		return text, nil
	}
	l, err := remote.Parse(text)
	if err != nil {
		return "", err
	}
	if k >= out {
		return u.output(ctx, k, l)
	}
	return u.input(ctx, k, l)
}

// input copies an input.
func (u *use) input(ctx context.Context, k kind, l remote.Location) (string, error) {
	switch k {
	case model:
		return Model(ctx, u.Session, l)
	case scoresFile:
		if _, _, err := u.FetchIf(ctx, report(l)); err != nil {
			return "", err
		}
	case data:
		return Dataset(ctx, u.Session, l)
	case either, tree, rows:
		if k == rows && TableFormat(ctx, u.Session, l) != "" {
			return l.URL(), nil
		}
		path, ok, err := u.FetchIf(ctx, l)
		ended := false
		if k != either && err == nil {
			ended, err = u.finished(ctx, l, !ok)
		}
		if ok || err != nil {
			return path, err
		}
		if k == either {
			return Dataset(ctx, u.Session, l)
		}
		path, err = u.FetchTree(ctx, l)
		if err == nil && ended { // perhaps above the folder, which the copy does not have
			err = os.WriteFile(filepath.Join(path, "_SUCCESS"), nil, 0o644)
		}
		return path, err
	}
	return u.Fetch(ctx, l)
}

// finished is folders.Finished for the original at l, because a copy has no folders above it.
func (u *use) finished(ctx context.Context, l remote.Location, folder bool) (ended bool, err error) {
	var failed error
	ended, err = folders.Finished(filepath.FromSlash("/"+l.Key), folder, func(dir, pattern string) (names []string) {
		at := l
		at.Key = strings.TrimPrefix(filepath.ToSlash(dir), "/")
		if failed == nil {
			names, failed = u.Find(ctx, at, pattern)
		}
		return names
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", l, err)
	}
	return ended, cmp.Or(failed, err)
}

// Stores returns a context whose Session reads object stores. end must be called with the error of what was done in it.
func Stores(ctx context.Context, o *Copying) (inner context.Context, end func(error) error, err error) {
	if _, ok := ctx.Value(key{}).(*use); ok { // the file of the configuration is at a URL
		return ctx, func(err error) error { return err }, nil
	}
	session, err := o.open()
	if err != nil {
		return ctx, func(err error) error { return err }, err
	}
	u := &use{Session: session}
	return cli.WithRename(context.WithValue(ctx, key{}, u), u.Rename), func(err error) error { return u.renamed(errors.Join(err, session.Close())) }, nil
}

// Session returns the session of the command of ctx with its stores, or nil if it has none.
func Session(ctx context.Context) *remote.Session {
	if u, ok := ctx.Value(key{}).(*use); ok {
		return u.Session
	}
	return nil
}

// TableFormat returns the format of the table with a log at l, or "".
func TableFormat(ctx context.Context, s *remote.Session, l remote.Location) string {
	return folders.Table("", func(_, pattern string) []string {
		names, _ := s.Find(ctx, l, pattern) // whoever reads the table reports the error
		return names
	})
}

// Model copies a checkpoint and the files next to it that say more about it.
func Model(ctx context.Context, s *remote.Session, l remote.Location) (string, error) {
	path := s.Local(l)
	for _, near := range checkpoint.Files(path) {
		if near == path {
			continue
		}
		if _, _, err := s.FetchIf(ctx, l.Sibling(filepath.Base(near))); err != nil {
			return "", err
		}
	}
	return s.Fetch(ctx, l)
}

// Dataset copies the folder of a dataset, with its list of blocks if it has one. Who uses the list checks
// that it is that of the files.
func Dataset(ctx context.Context, s *remote.Session, l remote.Location) (string, error) {
	folder, err := s.FetchFolder(ctx, l, dataset.ManifestName, func(text []byte) ([]remote.Part, error) {
		m, err := dataset.Parse(text)
		if err != nil {
			return nil, err
		}
		var parts []remote.Part
		for _, f := range m.Files() {
			parts = append(parts, remote.Part{Name: f.File, SHA256: f.SHA256, Bytes: f.Bytes})
		}
		return parts, nil
	})
	if err != nil {
		return "", err
	}
	_, _, err = s.FetchIf(ctx, l.Join(dataset.BlocksName))
	return folder, err
}

// report returns the place of the report of the job whose scores are at l.
func report(l remote.Location) remote.Location {
	base := l.Base()
	return l.Sibling(strings.TrimSuffix(base, filepath.Ext(base)) + ".job.json")
}

// attached follows the name of a model in those of other files that belong to it: external data, and a path over its fields.
var attached = []string{checkpoint.DataFile(""), checkpoint.PathFile("")}

// output returns the local path of an output. What is at the URL is copied there, so the
// command decides about it as about a local file.
func (u *use) output(ctx context.Context, k kind, l remote.Location) (string, error) {
	if l.Key == "" {
		return "", fault.Usagef("%s: expected a key after the bucket", l)
	}
	path := u.Local(l)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	switch k {
	case state:
		var err error
		u.state, err = u.mirrorState(ctx, l)
		return path, err
	case outData, outDelta:
		if err := u.Empty(ctx, l); errors.Is(err, os.ErrExist) {
			return "", fault.Usagef("%s already exists and is not empty: name a new folder", l)
		} else if err != nil {
			return "", err
		}
		if err := os.RemoveAll(path); err != nil { // a copy of what is not in the store any more
			return "", err
		}
	case outModel:
		for _, suffix := range attached {
			if _, _, err := u.FetchIf(ctx, l.Sibling(l.Base()+suffix)); err != nil {
				return "", err
			}
		}
		if _, _, err := u.FetchIf(ctx, l); err != nil {
			return "", err
		}
	case outScores:
		if _, _, err := u.FetchIf(ctx, report(l)); err != nil {
			return "", err
		}
		fallthrough
	default:
		if _, _, err := u.FetchIf(ctx, l); err != nil {
			return "", err
		}
	}
	u.outputs = append(u.outputs, output{k, path, l})
	return path, nil
}

// publish writes the outputs to their URLs. What readers look for comes last.
func (u *use) publish(ctx context.Context) error {
	if u.state != nil {
		if err := u.state.Push(ctx); err != nil {
			return err
		}
	}
	for _, o := range u.outputs {
		switch o.kind {
		case outData:
			if err := u.PublishFolder(ctx, o.path, o.to, dataset.ManifestName); err != nil {
				return err
			}
			continue
		case outDelta:
			if err := u.PublishFolder(ctx, o.path, o.to, u.last); err != nil {
				return err
			}
			continue
		case outModel:
			for _, suffix := range attached {
				if err := u.changed(ctx, o.path+suffix, o.to.Sibling(o.to.Base()+suffix)); err != nil {
					return err
				}
			}
		case outScores:
			near := report(o.to)
			if err := u.changed(ctx, filepath.Join(filepath.Dir(o.path), near.Base()), near); err != nil {
				return err
			}
		}
		if err := u.changed(ctx, o.path, o.to); err != nil {
			return err
		}
	}
	return nil
}

// changed writes a file to its URL if the command has written it.
func (u *use) changed(ctx context.Context, path string, l remote.Location) error {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) || err == nil && u.Untouched(l) {
		return nil
	}
	return u.Publish(ctx, path, l)
}

// renamedError is an error whose text has URLs in the place of the paths of their copies.
type renamedError struct {
	error
	text string
}

func (r *renamedError) Error() string { return r.text }
func (r *renamedError) Unwrap() error { return r.error }

// Is makes a conflict an error that ends a command with an exit code of its own.
func (r *renamedError) Is(target error) bool {
	return target == cli.ErrOvertaken && errors.Is(r.error, remote.ErrConflict)
}

func (u *use) renamed(err error) error {
	if err == nil {
		return nil
	}
	return &renamedError{err, u.Rename(err.Error())}
}

// IsURL reports whether a path is the URL of an object or a folder in an object store.
func IsURL(path string) bool { return remote.Is(path) }

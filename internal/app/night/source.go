package night

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"shaver/internal/app/cli"
	"shaver/internal/app/places"
	"shaver/internal/app/tables"
	"shaver/internal/base/fault"
	"shaver/internal/data/dataset"
	"shaver/internal/data/lake"
	"shaver/internal/prune/nightly"
)

// Importer imports rows of a table into a new dataset. Its settings have the names of the flags of the command.
type Importer struct {
	Keys []nightly.Key
	Run  func(ctx context.Context, table string, settings nightly.Settings, out string) error
}

// dateMark stands for the day in the conditions of a source.
const dateMark = "{date}"

// source is a section source.
type source struct {
	table, catalog, column string          // column is the one that names the day
	where                  lake.Conditions // with dateMark
	settings               nightly.Settings
}

// sourceKeys are the keys of a section source that are not those of the import.
var sourceKeys = []nightly.Key{{Name: "table", Kind: nightly.Text}, {Name: "catalog", Kind: nightly.Text}, {Name: "where", Kind: nightly.List}}

// readSource returns the section source of a configuration.
func readSource(c *nightly.Config) (*source, error) {
	s := &source{table: c.Source.Get("table"), catalog: c.Source.Get("catalog")}
	if s.table == "" {
		return nil, fault.Inputf("%s: the key source.table is missing", c.Path)
	}
	if s.catalog == "" && !places.IsURL(s.table) && !filepath.IsAbs(s.table) {
		s.table = filepath.Join(filepath.Dir(c.Path), s.table)
	}
	if places.IsURL(c.Days) {
		return nil, fault.Inputf("%s: days %s: with source, expected a folder of this machine", c.Path, c.Days)
	}
	for _, g := range c.Source {
		switch g.Name {
		case "table", "catalog":
			continue
		case "where":
		default:
			s.settings = append(s.settings, g)
			continue
		}
		for _, text := range strings.Split(g.Value, ",") {
			condition, err := lake.ParseCondition(text)
			if err != nil {
				return nil, c.Errorf("source", g, errors.Unwrap(err))
			}
			if condition.Value == dateMark && condition.Operator == "=" && s.column == "" {
				s.column = condition.Column
			}
			s.where = append(s.where, condition)
		}
	}
	if s.column == "" {
		return nil, fault.Inputf("%s: source.where: expected a condition that names the day, such as day=%s", c.Path, dateMark)
	}
	return s, nil
}

// of returns the conditions for the rows of a day.
func (s *source) of(date string) lake.Conditions {
	where := slices.Clone(s.where)
	for i := range where {
		where[i].Value = strings.ReplaceAll(where[i].Value, dateMark, date)
	}
	return where
}

// Import makes the newest days of the table datasets, in their order. A day that is there is imported again if the rows of
// the table have changed. Ids that a day has had stay: each import takes the vocabulary of the newest day that is there, and
// the newest day adds the values that are new.
func (s *running) Import(ctx context.Context, date string) error {
	src, err := readSource(s.config)
	if err != nil {
		return err
	}
	t, newest, dates, err := s.dates(ctx, src, date)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.config.Days, 0o777); err != nil {
		return err
	}
	for _, date := range dates[max(0, len(dates)-s.config.Window):] {
		if strings.HasPrefix(date, ".") || !filepath.IsLocal(date) || strings.ContainsAny(date, `/\`) {
			return fault.Inputf("%s: %q is a value of %s: expected one that may be the name of a folder, such as 2026-11-29", t.Name, date, src.column)
		}
		err := s.importDay(ctx, t, src, newest.ID, date)
		if errors.Is(err, lake.ErrNoRows) {
			s.say("leaving the day %s out: %v", date, err)
		} else if err != nil {
			return fmt.Errorf("day %s: %w", date, err)
		}
	}
	return nil
}

// dates returns the table, its newest snapshot, and its days in their order. If date is not "", it waits for this day.
func (s *running) dates(ctx context.Context, src *source, date string) (t *tables.Table, found *lake.Snapshot, dates []string, err error) {
	look := func(ctx context.Context) (bool, error) {
		if t, err = tables.Open(ctx, src.table, src.catalog); err != nil { // each time, because a catalogue gives the newest snapshot then
			return false, err
		}
		if t == nil {
			return false, fault.Inputf("%s: source.table: %s is neither a Delta nor an Iceberg table", s.config.Path, fault.Address(src.table))
		}
		if found, err = t.Read(ctx, lake.Request{}); err != nil {
			return false, err
		}
		ok := false
		if dates, ok = found.Values[src.column]; !ok {
			return false, fault.Inputf("%s: source.where: the table %s is not partitioned by %q, by which nights find its days: expected one of %q", s.config.Path, t.Name, src.column, columns(found))
		}
		return date == "" || slices.Contains(dates, date), nil
	}
	if s.config.WaitInputs > 0 {
		err = cli.AwaitInputs(ctx, s.config.WaitInputs, s.Log, cli.Input{Name: fmt.Sprintf("the day %s of %s", date, fault.Address(src.table)), Exists: look})
	} else {
		_, err = look(ctx)
	}
	slices.Sort(dates) // as folders are
	return t, found, slices.DeleteFunc(dates, func(date string) bool { return date == "" }), err
}

// columns returns the names of what a table is partitioned by.
func columns(s *lake.Snapshot) (names []string) {
	for name := range s.Values {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// importDay makes the dataset of a day unless it is there. The folder has its name once it is complete. All else that an
// import writes is in a hidden folder, which stays if the import is killed. The next one continues from it and deletes it.
func (s *running) importDay(ctx context.Context, t *tables.Table, src *source, snapshot, date string) error {
	part, err := t.Read(ctx, lake.Request{At: snapshot, Where: src.of(date)})
	if err != nil {
		return err
	}
	day, hidden := filepath.Join(s.config.Days, date), filepath.Join(s.config.Days, "."+date)
	made, old := filepath.Join(hidden, "new"), filepath.Join(hidden, "old")
	if _, err := os.Lstat(day); errors.Is(err, fs.ErrNotExist) { // killed between two renames
		if err := os.Rename(old, day); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	var there *dataset.Dataset
	if _, err := os.Lstat(day); !errors.Is(err, fs.ErrNotExist) {
		if there, err = dataset.Open(day); err != nil {
			return err
		}
	}
	fits := func(d *dataset.Dataset) bool {
		return len(d.Tables) == 1 && d.Tables[0].ID == part.Table && d.Tables[0].Where == src.of(date).String() && d.Tables[0].Files == part.Digest()
	}
	if there != nil && (len(there.Tables) == 0 || fits(there)) { // somebody else may have made it
		return os.RemoveAll(hidden)
	}
	if complete, err := dataset.Open(made); err != nil || !fits(complete) {
		if err := os.RemoveAll(made); err != nil {
			return err
		}
		if err := os.MkdirAll(hidden, 0o777); err != nil {
			return err
		}
		if err := s.importRows(ctx, src, snapshot, date, there != nil, made); err != nil {
			os.Remove(hidden) // unless there is something to continue from
			return err
		}
	}
	if there != nil {
		if err := os.RemoveAll(old); err != nil {
			return err
		}
		if err := os.Rename(day, old); err != nil {
			return err
		}
	}
	if err := os.Rename(made, day); err != nil {
		return err
	}
	return os.RemoveAll(hidden)
}

// importRows imports the rows of a day into a new folder.
func (s *running) importRows(ctx context.Context, src *source, snapshot, date string, again bool, out string) error {
	newest, err := s.newestDay()
	if err != nil {
		return err
	}
	settings := slices.Clone(src.settings)
	last := newest == "" || date >= newest
	if newest != "" && settings.Get("vocabulary") == "" {
		settings = append(settings, nightly.Setting{Name: "vocabulary", Value: filepath.Join(s.config.Days, newest)})
		if last {
			settings = append(settings, nightly.Setting{Name: "grow", Value: "true"})
		} else {
			settings = without(settings, "min-count", "counted", "share")
		}
	}
	for _, c := range src.of(date) {
		settings = append(settings, nightly.Setting{Name: "where", Value: c.String()})
	}
	settings = append(settings, nightly.Setting{Name: "at", Value: snapshot})
	if src.catalog != "" {
		settings = append(settings, nightly.Setting{Name: "catalog", Value: src.catalog})
	}
	how := "importing the day %s"
	switch {
	case again:
		how = "importing the day %s again, because its rows have changed"
	case !last:
		how = "importing the day %s, which is late"
	}
	s.say(how, date)
	return s.Importer.Run(ctx, src.table, settings, out)
}

// newestDay returns the name of the newest day that is there, or "".
func (s *running) newestDay() (newest string, err error) {
	entries, err := os.ReadDir(s.config.Days)
	for _, e := range entries { // in the order of their names
		if info, err := os.Stat(filepath.Join(s.config.Days, e.Name())); err == nil && info.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			newest = e.Name()
		}
	}
	return newest, err
}

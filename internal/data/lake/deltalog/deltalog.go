// Package deltalog reads snapshots of Delta Lake tables from their logs.
//
// The log of a table has commits, which are JSON files with actions, and checkpoints, which stand for all commits before
// them. https://github.com/delta-io/delta/blob/master/PROTOCOL.md describes both. The log is not trusted. Malformed bytes are
// bad input, and memory grows only with the number of files of the snapshot.
package deltalog

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"shaver/internal/base/fault"
	"shaver/internal/data/columnfile"
	"shaver/internal/data/folders"
	"shaver/internal/data/lake"
)

// folder has the log of a table.
const folder = "_delta_log"

// Read returns a snapshot of the Delta table that the store has. A table with a feature that this package does not know is
// bad input, and so is a snapshot that the log no longer has.
func Read(ctx context.Context, store lake.Store, r lake.Request) (*lake.Snapshot, error) {
	h, err := list(ctx, store)
	if err != nil {
		return nil, err
	}
	version, err := h.choose(ctx, r.At)
	if err != nil {
		return nil, err
	}
	logs, err := h.logs(ctx, version)
	if err != nil {
		return nil, err
	}
	t := &table{live: map[string]*file{}, tuples: map[string]*tuple{}}
	if logs, err = t.readHead(ctx, store, logs); err != nil {
		return nil, err
	}
	if err := t.compile(r.Where); err != nil {
		return nil, err
	}
	for _, l := range logs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := l.read(t.fileColumns(), t.replay); err != nil {
			return nil, err
		}
	}
	s := &lake.Snapshot{Format: folders.Delta, Table: t.meta.ID, ID: strconv.FormatInt(version, 10), Where: t.rest}
	for _, c := range t.columns {
		s.Columns = append(s.Columns, lake.Column{Name: c.name, Kind: c.kind})
	}
	if err := t.finish(ctx, store, s); err != nil {
		return nil, err
	}
	s.Sort()
	return s, nil
}

// history says what versions of the table the log has.
type history struct {
	store       lake.Store
	commits     map[int64]bool
	checkpoints map[int64][]string // files of complete checkpoints
	newest      int64
}

// list lists the log. Checkpoints are found by their names and not by the file _last_checkpoint, which may be stale.
func list(ctx context.Context, store lake.Store) (*history, error) {
	names, err := store.List(ctx, folder)
	if err != nil {
		return nil, err
	}
	h := &history{store, map[int64]bool{}, map[int64][]string{}, -1}
	parts := map[string][]string{} // of checkpoints, by version and number of parts
	for _, name := range names {
		words := strings.Split(name, ".")
		version, err := strconv.ParseInt(words[0], 10, 64)
		if err != nil || len(words) < 2 || len(words[0]) != 20 || version < 0 {
			continue
		}
		switch last := words[len(words)-1]; {
		case len(words) == 2 && last == "json":
			h.commits[version] = true
		case words[1] != "checkpoint":
		case len(words) == 3 && last == "parquet", len(words) == 4 && (last == "parquet" || last == "json"):
			h.checkpoints[version] = []string{name}
		case len(words) == 5 && last == "parquet":
			key := words[0] + "." + words[3]
			parts[key] = append(parts[key], name)
			if strconv.Itoa(len(parts[key])) == strings.TrimLeft(words[3], "0") {
				h.checkpoints[version] = parts[key]
			}
		}
	}
	for _, versions := range []iter.Seq[int64]{maps.Keys(h.commits), maps.Keys(h.checkpoints)} {
		for version := range versions {
			h.newest = max(h.newest, version)
		}
	}
	if h.newest < 0 {
		return nil, fault.Inputf("%s has no commits: expected the log of a Delta table, such as %s/%020d.json", folder, folder, 0)
	}
	return h, nil
}

// choose returns the version that at means, as in lake.Request.
func (h *history) choose(ctx context.Context, at string) (int64, error) {
	if at == "" {
		return h.newest, nil
	}
	if version, err := strconv.ParseUint(at, 10, 63); err == nil {
		if int64(version) > h.newest {
			return 0, fault.Inputf("the table has no version %d, the newest is %d", version, h.newest)
		}
		return int64(version), nil
	}
	until, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return 0, fault.Usagef("%q is neither a version nor a time: expected a number such as 12, or a time such as 2026-11-29T00:00:00Z", at)
	}
	var oldest time.Time
	version := h.newest
	for ; h.commits[version]; version-- {
		if oldest, err = h.time(ctx, version); err != nil {
			return 0, err
		}
		if oldest.IsZero() {
			return 0, fault.Inputf("%s: no commitInfo with a timestamp, which the snapshot at a time needs: give a version", logName(commitName(version)))
		}
		if !oldest.After(until) {
			return version, nil
		}
	}
	if version == h.newest {
		return 0, fault.Inputf("%s is missing: the snapshot at a time needs it", logName(commitName(version)))
	}
	return 0, fault.Inputf("the log has no commit as old as %s, the oldest is that of version %d at %s", at, version+1, oldest.Format(time.RFC3339Nano))
}

// time returns the time of a commit, or zero if the commit does not say it.
func (h *history) time(ctx context.Context, version int64) (t time.Time, err error) {
	logs, err := local(ctx, h.store, folder, []string{commitName(version)})
	if err != nil {
		return t, err
	}
	err = logs[0].read(nil, func(_ string, action []byte) error {
		var a struct{ CommitInfo json.RawMessage }
		var info struct{ InCommitTimestamp, Timestamp *int64 }
		if err := json.Unmarshal(action, &a); err != nil {
			return err
		}
		if json.Unmarshal(a.CommitInfo, &info) != nil { // writers are free to put anything there
			return nil
		}
		if info.InCommitTimestamp != nil {
			info.Timestamp = info.InCommitTimestamp
		}
		if info.Timestamp != nil {
			t = time.UnixMilli(*info.Timestamp).UTC()
		}
		return nil
	})
	return t, err
}

func commitName(version int64) string { return fmt.Sprintf("%020d.json", version) }

func logName(name string) string { return folder + "/" + name }

// logs returns the newest checkpoint that is not newer than a version, and the commits after it until the version.
func (h *history) logs(ctx context.Context, version int64) ([]log, error) {
	checkpoint, oldest := int64(-1), h.newest+1
	for v := range h.checkpoints {
		if oldest = min(oldest, v); v <= version {
			checkpoint = max(checkpoint, v)
		}
	}
	names := slices.Clone(h.checkpoints[checkpoint])
	for v := checkpoint + 1; v <= version; v++ {
		if checkpoint < 0 && !h.commits[0] && oldest <= h.newest {
			return nil, fault.Inputf("version %d of the table can no longer be read: its log begins with the checkpoint of version %d", version, oldest)
		}
		if !h.commits[v] {
			return nil, fault.Inputf("%s is missing: version %d of the table needs it", logName(commitName(v)), version)
		}
		names = append(names, commitName(v))
	}
	return local(ctx, h.store, folder, names)
}

// local returns files of a folder, which it copies if they are not local.
func local(ctx context.Context, store lake.Store, folder string, names []string) ([]log, error) {
	logs, full := make([]log, len(names)), make([]string, len(names))
	for i, name := range names {
		full[i] = folder + "/" + name
	}
	if len(names) == 0 {
		return nil, nil
	}
	paths, err := store.Local(ctx, full)
	if err != nil {
		return nil, err
	}
	for i := range logs {
		logs[i] = log{full[i], paths[i]}
	}
	return logs, nil
}

// readHead finds the newest metadata and protocol. It returns the logs with the files to which the checkpoint refers.
func (t *table) readHead(ctx context.Context, store lake.Store, logs []log) ([]log, error) {
	var sidecars []string
	for _, l := range logs {
		err := l.read([]string{"metaData", "protocol", "sidecar.path"}, func(place string, action []byte) error {
			var a struct {
				MetaData *metadata
				Protocol *protocol
				Sidecar  *struct{ Path string }
			}
			if err := json.Unmarshal(action, &a); err != nil {
				return err
			}
			if a.MetaData != nil {
				t.meta, t.metaPlace = a.MetaData, place
			}
			if a.Protocol != nil {
				t.protocol, t.protocolPlace = a.Protocol, place
			}
			if a.Sidecar != nil {
				sidecars = append(sidecars, a.Sidecar.Path[strings.LastIndex(a.Sidecar.Path, "/")+1:])
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	switch {
	case t.protocol == nil:
		return nil, fault.Inputf("%s has no action protocol", folder)
	case t.meta == nil:
		return nil, fault.Inputf("%s has no action metaData", folder)
	}
	if err := t.protocol.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", t.protocolPlace, err)
	}
	if err := t.parseSchema(); err != nil {
		return nil, fmt.Errorf("%s: metaData: %w", t.metaPlace, err)
	}
	more, err := local(ctx, store, folder+"/_sidecars", sidecars)
	return slices.Concat(more, logs), err
}

// protocol says what a reader of the table has to know.
type protocol struct {
	MinReaderVersion json.Number
	ReaderFeatures   []string
}

// features are the reader features that this package reads, or that concern only columns which columnfile refuses.
var features = []string{
	"columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint", "vacuumProtocolCheck",
	"variantType", "variantType-preview", "variantShredding", "variantShredding-preview",
}

func (p *protocol) check() error {
	version, err := strconv.Atoi(p.MinReaderVersion.String())
	if err != nil || version < 1 || version > 3 {
		return fault.Inputf("the table needs readers of version %q, and this version of shaver reads versions 1 to 3", p.MinReaderVersion)
	}
	for _, f := range p.ReaderFeatures {
		if !slices.Contains(features, f) {
			return fault.Inputf("the table has the feature %s, which this version of shaver does not read", f)
		}
	}
	return nil
}

// table is what the log says of the table.
type table struct {
	meta                     *metadata
	protocol                 *protocol
	metaPlace, protocolPlace string
	columns                  []column
	partition                []*column // by which the files are partitioned
	decided, rest            lake.Conditions
	live                     map[string]*file  // by name
	tuples                   map[string]*tuple // by values
}

// file is a file of the table.
type file struct {
	bytes  int64
	of     *tuple
	vector *vector
	drop   bool // no row can satisfy the conditions
}

// tuple is values of the partition columns, which files share.
type tuple struct {
	values []string
	place  string // first action with the values
	keep   bool   // the decided conditions hold
	view   []columnfile.ViewColumn
}

// fileColumns returns the columns of a checkpoint that replay needs.
func (t *table) fileColumns() []string {
	names := []string{"add.path", "add.partitionValues", "add.size", "add.deletionVector", "remove.path", "remove.deletionVector"}
	if len(t.rest) > 0 {
		names = append(names, "add.stats", "add.stats_parsed.numRecords")
	}
	for _, c := range t.rest {
		column := t.column(c.Column)
		if column.kind == "" || column.array { // without bounds, and maybe of a type that columnfile refuses
			continue
		}
		for _, kind := range []string{"minValues", "maxValues", "nullCount"} {
			names = append(names, "add.stats_parsed."+kind+"."+column.physical)
		}
	}
	return names
}

// replay applies an action. A file with another deletion vector replaces that with the same name.
func (t *table) replay(place string, action []byte) error {
	var a struct {
		Add *struct {
			Path            string
			PartitionValues map[string]*string
			Size            json.Number
			DeletionVector  *vector
			Stats           string
			Parsed          *stats `json:"stats_parsed"`
		}
		Remove *struct {
			Path           string
			DeletionVector *vector
		}
	}
	if err := json.Unmarshal(action, &a); err != nil {
		return err
	}
	if a.Remove != nil {
		name, err := fileName(a.Remove.Path)
		if err != nil {
			return err
		}
		if f := t.live[name]; f != nil && f.vector.id() == a.Remove.DeletionVector.id() {
			delete(t.live, name)
		}
	}
	if a.Add == nil {
		return nil
	}
	name, err := fileName(a.Add.Path)
	if err != nil {
		return err
	}
	f := &file{vector: a.Add.DeletionVector}
	if f.bytes, err = a.Add.Size.Int64(); err != nil || f.bytes < 0 {
		return fault.Inputf("file %s: its size is %q, expected a number of bytes", name, a.Add.Size)
	}
	values := make([]string, len(t.partition))
	for i, c := range t.partition {
		if v := a.Add.PartitionValues[c.physical]; v != nil {
			values[i] = *v
		}
	}
	key := fmt.Sprintf("%q", values)
	if f.of = t.tuples[key]; f.of == nil {
		f.of = &tuple{values: values, place: place}
		t.tuples[key] = f.of
	}
	if len(t.rest) > 0 {
		s := a.Add.Parsed
		if s == nil {
			s = parseStats(a.Add.Stats)
		}
		f.drop = !t.mayHold(s)
	}
	t.live[name] = f
	return nil
}

// finish adds the files to the snapshot.
func (t *table) finish(ctx context.Context, store lake.Store, s *lake.Snapshot) error {
	used := map[*tuple]bool{}
	for _, f := range t.live {
		used[f.of] = true
	}
	values := make([]map[string]bool, len(t.partition))
	for i := range values {
		values[i] = map[string]bool{}
	}
	for of := range used {
		if err := t.settle(of); err != nil {
			return fmt.Errorf("%s: %w", of.place, err)
		}
		for i, text := range of.values {
			values[i][text] = true
		}
	}
	s.Values = map[string][]string{}
	for i, c := range t.partition {
		s.Values[c.name] = slices.Sorted(maps.Keys(values[i]))
	}
	maps.DeleteFunc(t.live, func(_ string, f *file) bool { return f.drop || !f.of.keep })
	deleted, err := t.vectors(ctx, store)
	if err != nil {
		return err
	}
	for name, f := range t.live {
		to := lake.File{Name: name, Bytes: f.bytes, Deletes: f.vector.id()}
		if to.View.Columns = f.of.view; f.vector != nil {
			to.View.Deleted = deleted[name]
		}
		s.Files = append(s.Files, to)
	}
	return nil
}

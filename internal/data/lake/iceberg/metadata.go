package iceberg

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/data/lake"
)

// mostMetadata bounds the metadata of a table, in MiB.
const mostMetadata = 64

// metadata is the metadata of a table.
type metadata struct {
	Version    int               `json:"format-version"`
	View       string            `json:"view-uuid"`
	UUID       string            `json:"table-uuid"`
	Location   string            `json:"location"`
	SchemaID   int               `json:"current-schema-id"`
	Schemas    []*schema         `json:"schemas"`
	OldSchema  *schema           `json:"schema"` // version 1
	Specs      []*spec           `json:"partition-specs"`
	OldSpec    []specField       `json:"partition-spec"` // version 1
	Properties map[string]string `json:"properties"`
	Current    *int64            `json:"current-snapshot-id"`
	Snapshots  []*snapshot       `json:"snapshots"`
	Log        []struct {
		ID   int64 `json:"snapshot-id"`
		Time int64 `json:"timestamp-ms"`
	} `json:"snapshot-log"`
	Refs map[string]struct {
		ID   int64  `json:"snapshot-id"`
		Type string `json:"type"`
	} `json:"refs"`
	Keys []json.RawMessage `json:"encryption-keys"`
}

// snapshot is a snapshot of a table, as its metadata describes it.
type snapshot struct {
	ID        int64    `json:"snapshot-id"`
	Time      int64    `json:"timestamp-ms"`
	List      string   `json:"manifest-list"`
	Manifests []string `json:"manifests"` // version 1; instead of List
	Schema    *int     `json:"schema-id"`
	Key       string   `json:"key-id"`
}

// parseMetadata decodes the metadata of a table, which may be compressed with gzip.
func parseMetadata(data []byte) (*metadata, error) {
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, fault.Inputf("the compressed metadata is malformed: %w", err)
		}
		if data, err = files.Read(r, "the compressed metadata", mostMetadata, "the metadata of an Iceberg table"); err != nil {
			return nil, fault.Inputf("%w", err)
		}
	}
	m := &metadata{}
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fault.Inputf("expected the metadata of an Iceberg table in JSON: %w", err)
	}
	switch {
	case m.View != "":
		return nil, fault.Inputf("the metadata is that of a view, expected that of a table")
	case m.Version == 0:
		return nil, fault.Inputf("no format-version, expected the metadata of an Iceberg table")
	case m.Version < 1 || m.Version > 3:
		return nil, fault.Inputf("the table has format-version %d, expected 1, 2 or 3", m.Version)
	case m.Location == "":
		return nil, fault.Inputf("no location, expected the URL of the table's folder")
	case len(m.Keys) > 0:
		return nil, fault.Inputf("the table has encryption-keys, but encrypted tables are not supported")
	}
	if len(m.Schemas) == 0 && m.OldSchema != nil {
		m.Schemas, m.SchemaID = []*schema{m.OldSchema}, m.OldSchema.ID
	}
	if len(m.Specs) == 0 {
		m.Specs = []*spec{{Fields: m.OldSpec}}
	}
	m.Location = strings.TrimRight(m.Location, "/")
	if slices.Contains(m.Schemas, nil) || slices.Contains(m.Specs, nil) || slices.Contains(m.Snapshots, nil) {
		return nil, fault.Inputf("schemas, partition-specs or snapshots have the value null")
	}
	return m, nil
}

// newest returns the name of a table's newest metadata file.
func newest(ctx context.Context, store lake.Store) (string, error) {
	names, err := store.List(ctx, "metadata")
	if err != nil {
		return "", err
	}
	if slices.Contains(names, "version-hint.text") {
		if name, err := hinted(ctx, store, names); err != nil {
			return "", fmt.Errorf("metadata/version-hint.text: %w", err)
		} else {
			return "metadata/" + name, nil
		}
	}
	best, most, ties := "", int64(-1), 0
	for _, name := range names {
		stem := metadataStem(name)
		digits, _, _ := strings.Cut(strings.TrimPrefix(stem, "v"), "-")
		if n, err := strconv.ParseInt(digits, 10, 64); stem != "" && err == nil {
			if n == most {
				ties++
			} else if n > most {
				best, most, ties = name, n, 0
			}
		}
	}
	switch {
	case most < 0:
		return "", fault.Inputf("no metadata file of an Iceberg table, expected one such as metadata/v1.metadata.json")
	case ties > 0:
		return "", fault.Inputf("metadata: %d files have the version %d, so that only the table's catalogue knows which one is valid: name the catalogue", ties+1, most)
	}
	return "metadata/" + best, nil
}

// hinted returns the name of the file that version-hint.text names. Its writers do not always succeed in changing it, so a
// version that follows is newer.
func hinted(ctx context.Context, store lake.Store, names []string) (string, error) {
	path, err := local(ctx, store, "metadata/version-hint.text")
	if err != nil {
		return "", err
	}
	data, err := files.Small(path, 1, "the version of a table")
	if err != nil {
		return "", err
	}
	hint := strings.TrimSpace(string(data))
	if slices.Contains(names, hint) && metadataStem(hint) != "" {
		return hint, nil
	}
	find := func(stem string) string {
		at := slices.IndexFunc(names, func(name string) bool { return metadataStem(name) == stem })
		if stem == "" || at < 0 {
			return ""
		}
		return names[at]
	}
	n, err := strconv.ParseInt(hint, 10, 64)
	best := find(hint)
	if err == nil {
		for found := find(fmt.Sprint("v", n)); found != ""; found = find(fmt.Sprint("v", n)) {
			best = found
			n++
		}
	}
	if best == "" {
		return "", fault.Inputf("the version is %q, but metadata/v%s.metadata.json does not exist", hint, hint)
	}
	return best, nil
}

// metadataStem returns the name of a metadata file without its extensions, or "" if it is not a metadata file.
func metadataStem(name string) string {
	for _, extension := range []string{".gz.metadata.json", ".metadata.json.gz", ".metadata.json"} {
		if stem, ok := strings.CutSuffix(name, extension); ok {
			return stem
		}
	}
	return ""
}

// at returns the snapshot that a request means, and its schema. The newest snapshot and those of branches have the table's schema.
func (m *metadata) at(at string) (*snapshot, *schema, error) {
	if len(m.Snapshots) == 0 {
		return nil, nil, fault.Inputf("the table is empty: it has no snapshots")
	}
	schemaID, own := m.SchemaID, true
	var id int64
	number, bad := strconv.ParseInt(at, 10, 64)
	moment, late := time.Parse(time.RFC3339, at)
	ref, known := m.Refs[at]
	switch {
	case at == "":
		if m.Current == nil || *m.Current == -1 {
			return nil, nil, fault.Inputf("the table is empty: it has no current snapshot")
		}
		id, own = *m.Current, false
	case bad == nil:
		id = number
	case known:
		id, own = ref.ID, ref.Type != "branch"
	case late == nil:
		found := false
		for _, entry := range m.Log {
			if !time.UnixMilli(entry.Time).After(moment) {
				id, found = entry.ID, true
			}
		}
		if !found {
			return nil, nil, fault.Inputf("no snapshot was current at %s", at)
		}
	default:
		return nil, nil, fault.Inputf("no branch or tag is named %q: expected the id of a snapshot, a branch, a tag, or a time such as 2026-11-29T13:00:00Z; the branches and tags are %q", at, slices.Sorted(maps.Keys(m.Refs)))
	}
	i := slices.IndexFunc(m.Snapshots, func(s *snapshot) bool { return s.ID == id })
	if i < 0 {
		ids := make([]int64, len(m.Snapshots))
		for i, s := range m.Snapshots {
			ids[i] = s.ID
		}
		return nil, nil, fault.Inputf("no snapshot %d; it may have expired; the last snapshots are %d", id, ids[max(0, len(ids)-10):])
	}
	s := m.Snapshots[i]
	if s.Key != "" {
		return nil, nil, fault.Inputf("snapshot %d has a key-id, but encrypted tables are not supported", id)
	}
	if own && s.Schema != nil {
		schemaID = *s.Schema
	}
	for _, c := range m.Schemas {
		if c.ID == schemaID {
			return s, c, nil
		}
	}
	return nil, nil, fault.Inputf("no schema %d in schemas", schemaID)
}

// local returns the path of a local file with the content of the named one.
func local(ctx context.Context, store lake.Store, name string) (string, error) {
	paths, err := store.Local(ctx, []string{name})
	if err != nil {
		return "", err
	}
	return paths[0], nil
}

// name returns a file's name in the store. path is the name in the table's metadata.
func (m *metadata) name(path string) (string, error) {
	if slices.Contains(strings.Split(path, "/"), "..") || path == "" {
		return "", fault.Inputf("the table names a file %q, expected a path or a URL without ..", path)
	}
	if name, ok := strings.CutPrefix(plain(path), plain(m.Location)+"/"); ok {
		return strings.TrimLeft(name, "/"), nil
	}
	return s3(path), nil
}

// plain returns one form for the URLs and the path of a file that writers have.
func plain(url string) string {
	if path, ok := strings.CutPrefix(url, "file:"); ok {
		return "/" + strings.TrimLeft(path, "/")
	}
	return s3(url)
}

// s3 returns a URL with the scheme s3 for one with a scheme that Hadoop has for the same objects.
func s3(url string) string {
	for _, scheme := range []string{"s3a://", "s3n://"} {
		if object, ok := strings.CutPrefix(url, scheme); ok {
			return "s3://" + object
		}
	}
	return url
}

// missing says what to do if a file of a table does not exist.
func missing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the table lists a file that does not exist, perhaps because its snapshot expired: %w", err)
	}
	return err
}

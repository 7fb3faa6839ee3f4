package iceberg

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/data/lake"
)

// mostFiles bounds the number of files of a snapshot.
const mostFiles = 4 << 20

// Contents of a file, and with the first two those of a manifest.
const (
	dataContent = iota
	positionDeletes
	equalityDeletes
)

// file is a live file of a snapshot.
type file struct {
	path         string // as in the manifest
	name         string // in the store
	content      int64
	format       string
	bytes, rows  int64
	sequence     int64
	spec         *spec
	values       []any    // of the spec's fields
	partition    string   // identifies the spec and the values; set if there are deletes
	texts        []string // of the spec's parts
	bounds       map[int32]bounds
	equality     []int32 // field IDs
	referenced   string  // path of the only data file of deletes, or ""
	offset, size int64   // of a deletion vector
}

// bounds is what a manifest says about the values of a column in a file.
type bounds struct {
	low, high   []byte // nil if unknown
	nulls, nans int64  // -1 if unknown
}

// manifest is a manifest of a snapshot.
type manifest struct {
	path     string
	deletes  bool
	sequence int64
	old      bool // the manifest is named by the metadata, which has no sequence numbers
	spec     int64
}

// Field IDs of manifest lists, manifests and the statistics of files.
const (
	listPath, listSpec, listContent, listSequence, listKey = 500, 502, 517, 515, 519

	entryStatus, entrySequence, entryFile = 0, 3, 2

	fileContent, filePath, fileFormat, filePartition, fileRows, fileBytes = 134, 100, 101, 102, 103, 104
	fileKey, fileEquality, fileReferenced, fileOffset, fileSize           = 131, 135, 143, 144, 145
	fileNulls, fileNaNs, fileLower, fileUpper                             = 110, 137, 125, 128
)

// unused are fields that readAvro skips.
var unused = map[int]bool{108: true, 109: true, 111: true, 132: true, 140: true, 142: true, 1: true, 4: true}

// manifests returns the manifests of a snapshot.
func (m *metadata) manifests(ctx context.Context, store lake.Store, s *snapshot) ([]manifest, error) {
	var found []manifest
	if s.List == "" {
		for _, path := range s.Manifests {
			found = append(found, manifest{path: path, old: true})
		}
		return found, nil
	}
	name, err := m.name(s.List)
	if err != nil {
		return nil, err
	}
	path, err := local(ctx, store, name)
	if err != nil {
		return nil, missing(err)
	}
	err = readAvro(path, nil, func(_ map[string]string, r record) error {
		content, _ := r[listContent].(int64)
		switch key, _ := r[listKey].([]byte); {
		case content != dataContent && content != positionDeletes:
			return fault.Inputf("a manifest has content %d, expected 0 for data or 1 for deletes", content)
		case len(key) > 0:
			return fault.Inputf("a manifest has key_metadata, but encrypted tables are not supported")
		}
		x := manifest{deletes: content != dataContent}
		var ok bool
		if x.path, ok = r[listPath].(string); !ok {
			return fault.Inputf("a manifest has no manifest_path")
		}
		x.sequence, _ = r[listSequence].(int64)
		if x.spec, ok = r[listSpec].(int64); !ok {
			return fault.Inputf("a manifest has no partition_spec_id")
		}
		found = append(found, x)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("manifest list %s: %w", name, err)
	}
	return found, nil
}

// files returns the live files of manifests. statistics has the columns whose bounds are kept.
func (m *metadata) files(ctx context.Context, store lake.Store, manifests []manifest, statistics []int32) (data, deletes []*file, err error) {
	names := make([]string, len(manifests))
	for i, x := range manifests {
		if names[i], err = m.name(x.path); err != nil {
			return nil, nil, err
		}
	}
	paths, err := store.Local(ctx, names)
	if err != nil {
		return nil, nil, missing(err)
	}
	skip := maps.Clone(unused)
	for _, id := range []int{fileNulls, fileNaNs, fileLower, fileUpper} {
		skip[id] = len(statistics) == 0
	}
	for i, x := range manifests {
		n := 0
		err := readAvro(paths[i], skip, func(header map[string]string, r record) error {
			n++
			f, err := m.entry(&x, header, r, statistics)
			switch {
			case err != nil:
				return fmt.Errorf("entry %d: %w", n, err)
			case len(data)+len(deletes) == mostFiles:
				return fault.Inputf("the snapshot has more than %d files", mostFiles)
			case f == nil:
			case f.content == dataContent:
				data = append(data, f)
			default:
				deletes = append(deletes, f)
			}
			return ctx.Err()
		})
		if err != nil {
			return nil, nil, fmt.Errorf("manifest %s: %w", names[i], err)
		}
	}
	return data, deletes, nil
}

// entry returns the file of an entry, or nil if the file is deleted.
func (m *metadata) entry(x *manifest, header map[string]string, r record, statistics []int32) (*file, error) {
	status, ok := r[entryStatus].(int64)
	d, there := r[entryFile].(record)
	switch {
	case !ok || status < 0 || status > 2 || !there:
		return nil, fault.Inputf("expected a status from 0 to 2 and a data_file")
	case status == 2:
		return nil, nil
	}
	f := &file{}
	f.path, _ = d[filePath].(string)
	f.format, _ = d[fileFormat].(string)
	f.format = strings.ToUpper(f.format)
	f.content, _ = d[fileContent].(int64)
	f.referenced, _ = d[fileReferenced].(string)
	f.offset, _ = d[fileOffset].(int64)
	f.size, _ = d[fileSize].(int64)
	var hasRows, hasBytes bool
	f.rows, hasRows = d[fileRows].(int64)
	f.bytes, hasBytes = d[fileBytes].(int64)
	key, _ := d[fileKey].([]byte)
	var err error
	if f.name, err = m.name(f.path); err != nil {
		return nil, err
	}
	switch {
	case !hasRows || !hasBytes || f.rows < 0 || f.bytes < 0:
		return nil, fault.Inputf("%s: expected record_count and file_size_in_bytes of at least 0", f.name)
	case len(key) > 0:
		return nil, fault.Inputf("%s: the file has key_metadata, but encrypted tables are not supported", f.name)
	case x.deletes != (f.content != dataContent) || f.content > equalityDeletes || f.content < 0:
		return nil, fault.Inputf("%s: the file has content %d, expected 0 in a manifest of data, and 1 or 2 in one of deletes", f.name, f.content)
	}
	if f.sequence, ok = r[entrySequence].(int64); !ok {
		if f.sequence = x.sequence; status == 0 && x.sequence != 0 {
			return nil, fault.Inputf("%s: an existing file has no sequence_number", f.name)
		}
	}
	id := x.spec
	if x.old {
		if id, err = strconv.ParseInt("0"+header["partition-spec-id"], 10, 32); err != nil {
			return nil, fault.Inputf("the header has the partition-spec-id %q, expected a number", header["partition-spec-id"])
		}
	}
	at := slices.IndexFunc(m.Specs, func(s *spec) bool { return int64(s.ID) == id })
	if at < 0 {
		return nil, fault.Inputf("%s: the file has the partition spec %d, which the table does not have", f.name, id)
	}
	f.spec = m.Specs[at]
	partition, _ := d[filePartition].(record)
	for i, field := range f.spec.Fields {
		f.values = append(f.values, owned(partition[field.id(i)]))
	}
	for _, p := range f.spec.parts {
		text, err := p.text(partition[p.id])
		if err != nil {
			return nil, fault.Inputf("%s: the partition field %q: %w", f.name, p.name, err)
		}
		f.texts = append(f.texts, text)
	}
	ids, _ := d[fileEquality].([]any)
	for _, id := range ids {
		id, _ := id.(int64)
		f.equality = append(f.equality, int32(id))
	}
	if len(statistics) > 0 && f.content == dataContent {
		f.bounds = map[int32]bounds{}
		nulls, nans, lower, upper := byColumn(d[fileNulls]), byColumn(d[fileNaNs]), byColumn(d[fileLower]), byColumn(d[fileUpper])
		for _, id := range statistics {
			b := bounds{nulls: -1, nans: -1}
			if n, ok := nulls[int64(id)].(int64); ok {
				b.nulls = n
			}
			if n, ok := nans[int64(id)].(int64); ok {
				b.nans = n
			}
			b.low, _ = owned(lower[int64(id)]).([]byte)
			b.high, _ = owned(upper[int64(id)]).([]byte)
			f.bounds[id] = b
		}
	}
	return f, nil
}

// byColumn returns the values of statistics by field IDs of columns.
func byColumn(statistics any) map[int64]any {
	pairs, _ := statistics.([]any)
	values := make(map[int64]any, len(pairs))
	for _, pair := range pairs {
		pair, _ := pair.(record)
		var key, value any
		for id, x := range pair { // the field of the value has the next ID
			if _, first := pair[id-1]; first {
				value = x
			} else {
				key = x
			}
		}
		if key, ok := key.(int64); ok {
			values[key] = value
		}
	}
	return values
}

// owned returns a value that remains valid.
func owned(value any) any {
	if b, ok := value.([]byte); ok {
		return slices.Clone(b)
	}
	return value
}

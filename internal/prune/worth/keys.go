package worth

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/data/columnfile"
	"shaver/internal/jobs/scores"
)

// Keyed returns the ids of IDs that stand for a value, with these values as their keys. Values must be integers of 64 bits with or without
// a sign. The folders have the dataset that was scored. The ids of all other values and of missing ones stand for none.
func Keyed(f *scores.File, ids []columnfile.WorthID, folders []string) (keyed []columnfile.WorthID, err error) {
	d, err := open(f, folders)
	if err != nil {
		return nil, err
	}
	if err := f.CheckDataset(d.Digest()); err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(folders, ", "), err)
	}
	names := d.Fields()
	for _, s := range f.Layout.Spans() {
		j := slices.Index(names, f.Fields[s.Field])
		if j < 0 {
			return nil, fault.Inputf("%s has no field %q", strings.Join(folders, ", "), f.Fields[s.Field])
		}
		values, err := d.Vocabulary(j)
		if err != nil {
			return nil, err
		}
		if values == nil {
			return nil, fault.Inputf("%s has no vocabulary: its rows were imported as ids, which are the keys without --dataset", strings.Join(folders, ", "))
		}
		for id, p := range ids[:s.Rows] {
			if id >= len(values) || values[id] == "" || p.Pad || id == d.Manifest.Fields[j].OOVID() {
				continue
			}
			if p.Key, err = strconv.ParseInt(values[id], 10, 64); err != nil {
				bits, err := strconv.ParseUint(values[id], 10, 64)
				if err != nil {
					return nil, fault.Inputf("field %s has the value %q, expected integers of 64 bits as keys; without --dataset keys are numbers of rows", f.Fields[s.Field], values[id])
				}
				p.Key = int64(bits)
			}
			keyed = append(keyed, p)
		}
		ids = ids[s.Rows:]
	}
	return keyed, nil
}

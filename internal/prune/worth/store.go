package worth

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/data/columnfile"
)

// The stores whose form WriteStore writes.
const (
	HierarchicalKV = "hierarchicalkv" // keys and scores of uint64, for kCustomized
	TFRA           = "tfra"           // keys and scores of int64, for HkvEvictStrategy.CUSTOMIZED
	DynamicEmb     = "dynamicemb"     // the key and score files of DynamicEmbDump
	TorchRec       = "torchrec"       // keys of int64 and weights of float32, for FeatureScoreBasedEvictionPolicy
)

// Stores returns the names of the stores.
func Stores() []string { return []string{HierarchicalKV, TFRA, DynamicEmb, TorchRec} }

// storeFiles returns the names of the files of a table: of its keys and of its scores.
func storeFiles(store, table string) (keys, scores string) {
	switch store {
	case DynamicEmb:
		return table + "_emb_keys.rank_0.world_size_1", table + "_emb_scores.rank_0.world_size_1"
	case TorchRec:
		return table + ".keys.int64", table + ".weights.float32"
	case TFRA:
		return table + ".keys.int64", table + ".scores.int64"
	}
	return table + ".keys.uint64", table + ".scores.uint64"
}

// WriteStore writes the scores of the ids in the form of a store to the new folder out, which appears whole: for each
// table a file of keys and one of scores, in the same order, without headers. Pads are among them.
func WriteStore(store string, ids []columnfile.WorthID, out string) error {
	if !slices.Contains(Stores(), store) {
		return fault.Usagef("store %q: expected one of %s", store, strings.Join(Stores(), ", "))
	}
	if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
		return fault.Usagef("%s already exists and is not empty: name a new folder", out)
	} else if err != nil && !os.IsNotExist(err) {
		return fault.Usagef("%s already exists and is not a folder", out)
	}
	var names []string
	tables := map[string][]columnfile.WorthID{}
	for _, id := range ids {
		if tables[id.Table] == nil {
			names = append(names, id.Table)
		}
		tables[id.Table] = append(tables[id.Table], id)
	}
	out = filepath.Clean(out)
	folder, temporary, err := atomicfile.Folder(out)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", out, err)
	}
	defer temporary.Remove() // does nothing after the rename
	for _, name := range names {
		if name != filepath.Base(name) || !filepath.IsLocal(name) || strings.ContainsAny(name, `/\:`) {
			return fault.Inputf("the table %q has a name that no file can have: expected one without slashes and colons", name)
		}
		part := tables[name]
		keys, scores := storeFiles(store, name)
		write := func(w io.Writer) error { return columnfile.WriteScores64(w, part) }
		if store == TorchRec {
			write = func(w io.Writer) error { return columnfile.WriteScores32(w, part, len(ids)) }
		}
		if err := atomicfile.Write(filepath.Join(folder, keys), func(w io.Writer) error { return columnfile.WriteKeys(w, part) }); err != nil {
			return err
		}
		if err := atomicfile.Write(filepath.Join(folder, scores), write); err != nil {
			return err
		}
	}
	if err := os.Remove(out); err != nil && !os.IsNotExist(err) { // removes an empty folder only
		return fault.Usagef("%s already exists: %w", out, err)
	}
	if err := temporary.Rename(out); err != nil {
		return err
	}
	return atomicfile.SyncFolder(filepath.Dir(out))
}

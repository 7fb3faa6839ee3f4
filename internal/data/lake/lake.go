// Package lake describes snapshots of tables whose files a log lists, such as those of Delta Lake and Iceberg. Its
// packages deltalog and iceberg read them. A snapshot is a list of Parquet files and of how each of them gives rows of
// the table, so whoever reads Parquet files can read the table.
package lake

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	"shaver/internal/data/columnfile"
)

// Store has the files of a table. Names are relative to the folder of the table and separated by slashes, or they are
// the absolute paths or URLs that the table's own files have.
type Store interface {
	// List returns the names of the files in a folder of the table, relative to that folder, in ascending order. Files in
	// folders below it are left out. A folder that does not exist has none.
	List(ctx context.Context, folder string) ([]string, error)
	// Local returns the paths of local files with the content of the named files. It may copy several at a time. A file that
	// does not exist is bad input, and the error is fs.ErrNotExist too.
	Local(ctx context.Context, names []string) ([]string, error)
}

// Request says which snapshot of a table to read, and which of its rows.
type Request struct {
	At    string     // version, id, or time as in RFC 3339, of which the newest snapshot not after it is meant; "" = the newest
	Where Conditions // files without rows for which they hold are left out
}

// Snapshot is the state of a table at a moment.
type Snapshot struct {
	Format  string   // folders.Delta or folders.Iceberg
	Table   string   // UUID of the table; "" if it has none
	ID      string   // version or id of the snapshot
	Columns []Column // of the table, in its order
	Files   []File   // in the order of the bytes of their names
	// Values are the distinct values of the columns and fields by which all files are partitioned, in the order of their bytes, before Where was
	// applied. Their texts are as in columnfile. A field that is not a column has the table's name for it.
	Values map[string][]string
	// Where has the conditions of the request that rows may fail although their file is in Files.
	Where Conditions
}

// Column is a column of a table.
type Column struct {
	Name string
	Kind string // as columnfile.File.Kind; "" for all others, such as structures
}

// File is a Parquet file with rows of the table.
type File struct {
	Name    string // as in Store
	Bytes   int64
	View    columnfile.View // its columns are those of the table, in their order
	Deletes string          // identifies what is deleted of the file; "" if nothing is
}

// Digest returns a digest of the rows of the files, as far as their names say what rows they have. A table never changes a file.
func (s *Snapshot) Digest() string {
	sum := sha256.New()
	for _, f := range s.Files {
		fmt.Fprintf(sum, "%q %d %q\n", f.Name, f.Bytes, f.Deletes)
	}
	io.WriteString(sum, s.Where.String())
	return hex.EncodeToString(sum.Sum(nil))
}

// Sort puts the files in their order.
func (s *Snapshot) Sort() {
	slices.SortFunc(s.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
}

// Package dataset reads encoded rows from a folder, which package ingest made.
//
// The folder holds dataset.json (the Manifest), one Arrow file for each split
// (train.arrow, val.arrow, test.arrow; those that exist), frequencies.arrow,
// and vocabulary/ if the ids were made here from strings. It holds neither
// paths nor times: the same input and seed give the same bytes.
package dataset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"shaver/internal/arrowio"
	"shaver/internal/fault"
	"shaver/internal/model"
)

// Version of the manifest's form.
const Version = "shaver.dataset/1"

// ManifestName is the manifest's file name in the folder.
const ManifestName = "dataset.json"

// The splits, in the order in which their rows are numbered.
const (
	Train = "train"
	Val   = "val"
	Test  = "test"
)

// SplitNames are all splits, in this order.
var SplitNames = []string{Train, Val, Test}

// Forms of the ids that were imported.
const (
	LocalIDs   = "local"  // ids counted within each field
	GlobalIDs  = "global" // ids counted over all fields
	RawStrings = "raw"    // strings; we made the ids
)

// Manifest describes a dataset. The SHA-256 of its JSON is the dataset's
// identity, as it covers every file's digest.
type Manifest struct {
	Version     string    `json:"version"`
	Fields      []Field   `json:"fields"`
	Splits      []Split   `json:"splits"` // in the order train, val, test
	Frequencies File      `json:"frequencies"`
	Vocabulary  []File    `json:"vocabulary,omitempty"` // one a field, if the ids were made here
	Sources     []File    `json:"sources"`              // what was imported: base names, in the order of reading
	IDs         string    `json:"ids"`                  // LocalIDs, GlobalIDs or RawStrings
	Division    *Division `json:"division,omitempty"`   // if the splits were drawn here
	MinCount    int64     `json:"min_count,omitempty"`  // RawStrings, if the vocabulary was made here: rarer values get the unseen ones' id
	Skipped     int64     `json:"skipped"`              // lines that were no valid rows and were left out
}

// Field is a field and the number of its features.
type Field struct {
	Name string `json:"name"`
	Size int    `json:"size"`
	OOV  *int   `json:"oov,omitempty"` // with a vocabulary, the id of unseen values if it is not the last; -1: there is none
}

// OOVID returns the id of unseen values, those without an id of their own, -1 if
// there is none. It says nothing if there is no vocabulary.
func (f Field) OOVID() int {
	if f.OOV == nil {
		return f.Size - 1
	}
	return *f.OOV
}

// Split is one split and its file.
type Split struct {
	Name      string `json:"name"`
	Rows      int64  `json:"rows"`
	Positives int64  `json:"positives"` // rows of label 1
	File
}

// File is a file's name, relative to the folder and with slashes, and digest.
type File struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"` // hexadecimal
	Bytes  int64  `json:"bytes"`
}

// Division says how rows were drawn into splits.
type Division struct {
	Ratio string `json:"ratio"` // train:val:test
	Seed  uint64 `json:"seed"`
}

const maxManifest = 64 << 20

// readManifest reads and checks the folder's manifest, and returns its bytes too.
func readManifest(f folder) (*Manifest, []byte, error) {
	path := f.path(ManifestName)
	file, err := f.open(ManifestName)
	if os.IsNotExist(err) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil, fault.Inputf("%s is no dataset: it has no %s", filepath.Dir(path), ManifestName)
	}
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxManifest+1))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(data) > maxManifest {
		return nil, nil, fault.Inputf("%s: larger than %d bytes", path, maxManifest)
	}
	m, err := parseManifest(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, data, nil
}

func parseManifest(data []byte) (*Manifest, error) {
	var version struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, fault.Inputf("not JSON: %w", err)
	}
	if version.Version != Version {
		return nil, fault.Inputf("version is %q, this program reads %q", version.Version, Version)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	m := &Manifest{}
	if err := decoder.Decode(m); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	if err := m.validate(); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	return m, nil
}

// Marshal returns the JSON of the manifest, as it is in the folder.
func (m *Manifest) Marshal() []byte {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		panic("dataset: manifest does not marshal: " + err.Error())
	}
	return append(text, '\n')
}

func (m *Manifest) validate() error {
	names, sizes := make([]string, len(m.Fields)), make([]int, len(m.Fields))
	for j, f := range m.Fields {
		names[j], sizes[j] = f.Name, f.Size
		if f.OOV != nil && (len(m.Vocabulary) == 0 || *f.OOV < -1 || *f.OOV >= f.Size-1) {
			return fmt.Errorf("field %d (%s) has the id %d for unseen values: that is one before the last of %d, or -1, in a dataset with a vocabulary", j, f.Name, *f.OOV, f.Size)
		}
	}
	if len(m.Fields) == 0 {
		return fmt.Errorf("no fields")
	}
	if err := model.CheckSizes(names, sizes); err != nil {
		return err
	}
	if err := arrowio.CheckFields(names); err != nil {
		return err
	}
	if len(m.Splits) == 0 {
		return fmt.Errorf("no splits")
	}
	files := slices.Concat([]File{m.Frequencies}, m.Vocabulary)
	previous, rows := -1, int64(0)
	for _, s := range m.Splits {
		at := slices.Index(SplitNames, s.Name)
		if at <= previous {
			return fmt.Errorf("split %q: splits are train, val and test, in this order", s.Name)
		}
		previous = at
		if s.Rows < 1 || s.Rows > math.MaxInt64/2-rows || s.Positives < 0 || s.Positives > s.Rows {
			return fmt.Errorf("split %s has %d rows, %d of them of label 1", s.Name, s.Rows, s.Positives)
		}
		rows += s.Rows
		files = append(files, s.File)
	}
	if n := len(m.Vocabulary); m.Vocabulary != nil && n != len(m.Fields) {
		return fmt.Errorf("vocabulary of %d fields, the dataset has %d", n, len(m.Fields))
	}
	for _, f := range files {
		if !filepath.IsLocal(filepath.FromSlash(f.File)) || strings.Contains(f.File, `\`) || f.Bytes < 0 {
			return fmt.Errorf("file %q of %d bytes: names stay in the folder", f.File, f.Bytes)
		}
	}
	return nil
}

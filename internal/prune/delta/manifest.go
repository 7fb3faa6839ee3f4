package delta

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/base/seal"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/data/columnfile"
)

// The names of the files of a delta that are not Parquet files. ManifestFile is written last.
const (
	HeadFile     = "head.safetensors"
	ManifestFile = "delta.json"
)

// fileNames are the files that a manifest lists, in their order.
var fileNames = []string{columnfile.DeltaKept, columnfile.DeltaDropped, columnfile.DeltaBaseline, HeadFile}

// The versions of a delta. The Parquet files of WordsVersion have the numbers of words, because one of its models has several.
const (
	Version      = "shaver.delta/1"
	WordsVersion = "shaver.delta/2"
)

// Manifest is the file delta.json.
type Manifest struct {
	Version string `json:"version"`
	Side
	File   string                `json:"file"`   // SHA-256 of the compact file of the model
	Values compact.Encoding      `json:"values"` // of this file
	From   *Side                 `json:"from"`   // the earlier model; null = a whole delta
	Count  columnfile.DeltaCount `json:"count"`
	New    int                   `json:"new"` // rows that the earlier model does not have
	Files  []File                `json:"files"`
	Digest string                `json:"digest"` // of this file; see package seal
}

// Side is one of the two models of a delta.
type Side struct {
	Generation int64  `json:"generation"` // from 1 on
	Model      string `json:"model"`      // digest of the model
	// Mask is the SHA-256 of which entries are dropped: one bit for each entry of the tables, the first one in the
	// lowest bit of the first byte, and with several words then the number of each row's word. Models with other masks may
	// have the same digest.
	Mask string `json:"mask"`
}

// maskDigest returns Side.Mask.
func maskDigest(dropped []bool, numbers []uint8) string {
	bits := make([]byte, (len(dropped)+7)/8)
	for i, d := range dropped {
		if d {
			bits[i/8] |= 1 << (i % 8)
		}
	}
	sum := sha256.Sum256(append(bits, numbers...))
	return hex.EncodeToString(sum[:])
}

// sideOf returns the side of a compact model.
func sideOf(ck *checkpoint.Checkpoint, generation int64) (Side, error) {
	dropped, baseline, err := ck.Pruned()
	return Side{generation, ck.Digest(), maskDigest(dropped, baseline.Numbers)}, err
}

// File is a file of a delta.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// fileOf describes the file at path.
func fileOf(path string) (File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return File{}, err
	}
	digest, err := files.Digest(path)
	return File{filepath.Base(path), info.Size(), digest}, err
}

// write seals the manifest, and writes it to path. It returns the number of bytes.
func (m *Manifest) write(path string) (int64, error) {
	text := func() ([]byte, error) {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetIndent("", "  ")
		err := e.Encode(m)
		return b.Bytes(), err
	}
	m.Digest = seal.Blank
	blank, err := text()
	if err != nil {
		return 0, err
	}
	if m.Digest, err = seal.Of(func(w io.Writer) error { _, err := w.Write(blank); return err }); err != nil {
		return 0, err
	}
	sealed, err := text()
	if err != nil {
		return 0, err
	}
	return int64(len(sealed)), atomicfile.Write(path, func(w io.Writer) error { _, err := w.Write(sealed); return err })
}

// mostManifest is the largest size of a manifest, in MiB.
const mostManifest = 1

// readManifest reads the manifest at path. One that is not what write writes is bad input.
func readManifest(path string) (*Manifest, error) {
	text, err := files.Small(path, mostManifest, "the "+ManifestFile+" of a delta")
	if os.IsNotExist(err) {
		return nil, fault.Inputf("%s: no such file: expected the folder of a delta of a compact model, which shaver model delta writes", path)
	}
	if err != nil {
		return nil, err
	}
	return parseManifest(path, text)
}

// parseManifest parses a manifest. path stands for it in errors.
func parseManifest(path string, text []byte) (*Manifest, error) {
	var form struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(text, &form); err != nil {
		return nil, fault.Inputf("%s is damaged: %w", path, err)
	}
	if form.Version != Version && form.Version != WordsVersion {
		return nil, fault.Inputf("%s: version %q, expected %q or %q", path, form.Version, Version, WordsVersion)
	}
	m := &Manifest{}
	if err := files.Strict(text, m); err != nil {
		return nil, fault.Inputf("%s is damaged: %w", path, err)
	}
	if err := seal.Check(path, bytes.NewReader(text), m.Digest); err != nil {
		return nil, err
	}
	names := make([]string, len(m.Files))
	digests := []string{m.Model, m.Mask, m.File}
	for i, f := range m.Files {
		names[i] = f.Name
		digests = append(digests, f.SHA256)
	}
	generations := m.Generation >= 1 && m.Generation <= mostGenerations
	if m.From != nil {
		digests = append(digests, m.From.Model, m.From.Mask)
		generations = generations && m.From.Generation >= 1 && m.From.Generation < m.Generation
	}
	switch {
	case !slices.Equal(names, fileNames):
		return nil, fault.Inputf("%s: the files %q, expected %q", path, names, fileNames)
	case slices.ContainsFunc(digests, func(d string) bool { return len(d) != len(seal.Blank) || strings.Trim(d, "0123456789abcdef") != "" }):
		return nil, fault.Inputf("%s: a digest is not a SHA-256 in hexadecimal", path)
	case !generations:
		return nil, fault.Inputf("%s: generation %d, expected 1 to %d and more than that of the earlier model", path, m.Generation, uint32(mostGenerations))
	case m.Values.Size() == 0 && m.Values != compact.Mixed:
		return nil, fault.Inputf("%s: values %q, expected one of %q", path, m.Values, compact.EncodingNames())
	}
	return m, nil
}

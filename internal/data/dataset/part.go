package dataset

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"

	"shaver/internal/base/fault"
	"shaver/internal/data/arrowio"
)

// part is a folder that holds all rows of a dataset, or one day of a window.
type part struct {
	Manifest // the folder's own manifest
	folder
	digest    string                     // SHA-256 of the manifest's bytes
	first     int64                      // number of the first row
	blockList func() (*blockList, error) // readBlocks, which is called once
}

// openPart opens a folder and checks it as Open says.
func openPart(in folder) (*part, error) {
	m, data, err := readManifest(in)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	p := &part{Manifest: *m, folder: in, digest: hex.EncodeToString(sum[:])}
	p.blockList = sync.OnceValues(p.readBlocks)
	for _, f := range m.Files() {
		info, err := p.stat(f.File)
		switch {
		case os.IsNotExist(err):
			return nil, fault.Inputf("%s is missing", p.path(f))
		case err != nil:
			return nil, err
		case !info.Mode().IsRegular() || info.Size() != f.Bytes:
			return nil, fault.Inputf("%s has %d bytes, but %s states %d", p.path(f), info.Size(), ManifestName, f.Bytes)
		}
	}
	for _, s := range m.Splits {
		if err := p.checkRows(s); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// path returns the path of a file for messages.
func (p *part) path(f File) string { return p.folder.path(f.File) }

// name returns the path of the folder for messages.
func (p *part) name() string { return p.folder.path("") }

// checkRows compares the number of rows of a split with that in the footer of its file.
func (p *part) checkRows(s Split) error {
	file, err := p.open(s.File.File)
	if err != nil {
		return err
	}
	defer file.Close()
	rows, err := arrowio.CountRows(file, s.Bytes)
	if err != nil {
		return p.explained(s.File, fmt.Errorf("%s: %w", p.path(s.File), err))
	}
	if rows != s.Rows {
		return fault.Inputf("%s has %d rows, but %s states %d", p.path(s.File), rows, ManifestName, s.Rows)
	}
	return nil
}

// addFrequencies adds the number of rows in which each feature occurs to sum, whose fields
// begin at the given offsets. place returns the number of
// a field of the folder among these, or -1. addFrequencies counts the splits that chosen selects.
func (p *part) addFrequencies(sum []int64, offsets []int32, place func(field int) int, chosen func(split string) bool) error {
	path := p.path(p.Frequencies)
	data, err := p.readFile(p.Frequencies)
	if err != nil {
		return err
	}
	features := 0
	names := make([]string, len(p.Splits))
	for k, s := range p.Splits {
		names[k] = s.Name
	}
	for _, f := range p.Fields {
		features += f.Size
	}
	counts, err := arrowio.ReadFrequencies(bytes.NewReader(data), names, features)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for k, s := range p.Splits {
		if err := p.checkCounts(counts[k], s); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if !chosen(s.Name) {
			continue
		}
		split := counts[k]
		for j, f := range p.Fields {
			if k := place(j); k >= 0 {
				into := sum[offsets[k]:]
				for id, count := range split[:f.Size] {
					into[id] += count
				}
			}
			split = split[f.Size:]
		}
	}
	return nil
}

// checkCounts checks that the counts of each field in a split add up to the split's rows. A
// list may have any counts up to the number of rows.
func (p *part) checkCounts(counts []int64, s Split) error {
	for j, f := range p.Fields {
		if f.Length > 0 {
			for id, count := range counts[:f.Size] {
				if count > s.Rows {
					return fault.Inputf("id %d of field %d (%s) is counted in %d rows of split %s, which has %d rows", id, j, f.Name, count, s.Name, s.Rows)
				}
			}
			counts = counts[f.Size:]
			continue
		}
		left := s.Rows
		for _, count := range counts[:f.Size] {
			if left -= min(count, left+1); left < 0 {
				break
			}
		}
		if left != 0 {
			return fault.Inputf("the counts of field %d (%s) in split %s do not add up to its %d rows", j, f.Name, s.Name, s.Rows)
		}
		counts = counts[f.Size:]
	}
	return nil
}

// readFile reads a small file of the folder into memory and checks its digest.
func (p *part) readFile(f File) ([]byte, error) {
	file, err := p.open(f.File)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, f.Bytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.path(f), err)
	}
	sum := sha256.Sum256(data)
	if hex.EncodeToString(sum[:]) != f.SHA256 {
		return nil, corrupt(p.path(f))
	}
	return data, nil
}

// explained returns that the file f is corrupt if its digest is not that of the manifest, because damaged
// bytes may be read as anything. Otherwise, or if err is not bad input, it returns err, the error of reading f.
func (p *part) explained(f File, err error) error {
	if !fault.IsInput(err) {
		return err
	}
	file, failed := p.open(f.File)
	if failed != nil {
		return err
	}
	defer file.Close()
	digest := sha256.New()
	if _, failed := io.Copy(digest, file); failed == nil && hex.EncodeToString(digest.Sum(nil)) != f.SHA256 {
		return corrupt(p.path(f))
	}
	return err
}

func corrupt(path string) error {
	return fault.Inputf("%s is corrupt: its SHA-256 is not the one in %s", path, ManifestName)
}

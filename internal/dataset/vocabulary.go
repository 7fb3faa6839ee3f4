package dataset

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"shaver/internal/fault"
	"shaver/internal/vocabulary"
)

// Vocabulary returns the values of a field by local id. An id without a value, such as the
// id of unseen values (Field.OOVID) or an unused one, has "". The list ends with the last
// value, and may be shorter than the field. Vocabulary returns nil if the dataset has no
// vocabulary.
func (d *Dataset) Vocabulary(field int) ([]string, error) {
	if d.Manifest.Vocabulary == nil {
		return nil, nil
	}
	f := d.Manifest.Vocabulary[field]
	data, err := d.readFile(f)
	if err != nil {
		return nil, err
	}
	described := d.Manifest.Fields[field]
	values, err := vocabulary.ParseText(data, described.Size, described.OOVID())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.path(f), err)
	}
	return values, nil
}

// Mapper returns the dataset's vocabulary, so that other rows can be given the same ids. A
// dataset without a vocabulary is bad input.
func (d *Dataset) Mapper() (*vocabulary.Mapper, error) {
	if d.Manifest.Vocabulary == nil {
		return nil, fault.Inputf("%s has no vocabulary: its rows were imported as ids, not as values", d.dir)
	}
	m := &vocabulary.Mapper{Names: d.Fields()}
	for j, f := range d.Manifest.Vocabulary {
		field, err := d.readField(f, d.Manifest.Fields[j])
		if err != nil {
			return nil, err
		}
		m.Fields = append(m.Fields, field)
	}
	return m, nil
}

// readField reads the vocabulary file f of a field and checks its digest.
func (d *Dataset) readField(f File, described Field) (*vocabulary.Field, error) {
	file, err := d.open(f.File)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	digest := sha256.New()
	field, err := vocabulary.ReadField(io.TeeReader(file, digest), described.Size, described.OOVID(), f.Bytes)
	if err == nil && hex.EncodeToString(digest.Sum(nil)) != f.SHA256 {
		return nil, corrupt(d.path(f))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.path(f), err)
	}
	return field, nil
}

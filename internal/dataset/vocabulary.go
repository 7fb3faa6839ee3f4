package dataset

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"shaver/internal/fault"
	"shaver/internal/vocabulary"
)

// Vocabulary returns the values behind the ids of a field, "" for ids that have
// none: that of unseen values (Field.OOVID), and those of no row. Behind the last
// value there may be ids without one. It returns nil if the ids were not made here.
func (d *Dataset) Vocabulary(field int) ([]string, error) {
	if d.Manifest.Vocabulary == nil {
		return nil, nil
	}
	f := d.Manifest.Vocabulary[field]
	data, err := d.readFile(f)
	if err != nil {
		return nil, err
	}
	of := d.Manifest.Fields[field]
	values, err := vocabulary.ParseText(data, of.Size, of.OOVID())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.path(f), err)
	}
	return values, nil
}

// Mapper returns the dataset's vocabulary, for mapping other values. A dataset whose
// ids were not made here has none: that is bad input.
func (d *Dataset) Mapper() (*vocabulary.Mapper, error) {
	if d.Manifest.Vocabulary == nil {
		return nil, fault.Inputf("%s has no vocabulary: its ids were made elsewhere", d.dir)
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

// readField reads the vocabulary file of a field and checks its digest.
func (d *Dataset) readField(f File, of Field) (*vocabulary.Field, error) {
	file, err := d.open(f.File)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	digest := sha256.New()
	field, err := vocabulary.ReadField(io.TeeReader(file, digest), of.Size, of.OOVID(), f.Bytes)
	if err == nil && hex.EncodeToString(digest.Sum(nil)) != f.SHA256 {
		return nil, corrupt(d.path(f))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.path(f), err)
	}
	return field, nil
}

package dataset

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"shaver/internal/base/fault"
)

// newest returns the folder whose fields and vocabulary are those of the dataset.
func (d *Dataset) newest() *part {
	if d.fields != nil {
		return d.fields
	}
	return d.parts[len(d.parts)-1]
}

// HasVocabulary reports whether the ids of the dataset were made from values.
func (d *Dataset) HasVocabulary() bool { return d.newest().Vocabulary != nil }

// Vocabulary returns the values of a field by local id. An id without a value, such as the
// id of unseen values (Field.OOVID) or an unused one, has "". The list ends with the last
// value, and may be shorter than the field. Vocabulary returns nil if the dataset has no
// vocabulary.
func (d *Dataset) Vocabulary(field int) ([]string, error) {
	p := d.newest()
	if p.Vocabulary == nil {
		return nil, nil
	}
	field = d.position(field)
	f := p.Vocabulary[field]
	data, err := p.readFile(f)
	if err != nil {
		return nil, err
	}
	described := p.Fields[field]
	values, err := ParseVocabularyFile(data, described.Size, described.OOVID())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.path(f), err)
	}
	return values, nil
}

// ReadVocabulary calls read with the vocabulary file of each field of the dataset's folder, or of the
// newest folder of a window, and checks its digest. A dataset without a vocabulary is bad input.
func (d *Dataset) ReadVocabulary(read func(field Field, file File, content io.Reader) error) error {
	p := d.newest()
	if p.Vocabulary == nil {
		return fault.Inputf("%s has no vocabulary: its rows were imported as ids, not as values", p.dir)
	}
	for j, f := range p.Vocabulary {
		if err := p.readVocabularyFile(p.Fields[j], f, read); err != nil {
			return err
		}
	}
	return nil
}

func (p *part) readVocabularyFile(field Field, f File, read func(Field, File, io.Reader) error) error {
	file, err := p.open(f.File)
	if err != nil {
		return err
	}
	defer file.Close()
	digest := sha256.New()
	if err := read(field, f, io.TeeReader(file, digest)); err != nil {
		return fmt.Errorf("%s: %w", p.path(f), err)
	}
	if hex.EncodeToString(digest.Sum(nil)) != f.SHA256 {
		return corrupt(p.path(f))
	}
	return nil
}

package dataset

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/data/vocabulary"
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
	values, err := vocabulary.ParseText(data, described.Size, described.OOVID())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.path(f), err)
	}
	return values, nil
}

// Mapper returns the dataset's vocabulary, so that other rows can be given the same ids. A
// dataset without a vocabulary is bad input.
func (d *Dataset) Mapper() (*vocabulary.Mapper, error) {
	p := d.newest()
	if p.Vocabulary == nil {
		return nil, fault.Inputf("%s has no vocabulary: its rows were imported as ids, not as values", p.dir)
	}
	m := &vocabulary.Mapper{Names: p.fieldNames(), Front: slices.ContainsFunc(p.Fields, func(f Field) bool { return f.Pads != "" })}
	for j, f := range p.Vocabulary {
		field, err := p.readField(f, p.Fields[j])
		if err != nil {
			return nil, err
		}
		m.Fields, m.SHA256 = append(m.Fields, field), append(m.SHA256, f.SHA256)
	}
	return m, nil
}

// readField reads the vocabulary file f of a field and checks its digest.
func (p *part) readField(f File, described Field) (*vocabulary.Field, error) {
	file, err := p.open(f.File)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	digest := sha256.New()
	field, err := vocabulary.ReadField(io.TeeReader(file, digest), described.Size, described.OOVID(), f.Bytes)
	if err == nil && hex.EncodeToString(digest.Sum(nil)) != f.SHA256 {
		return nil, corrupt(p.path(f))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.path(f), err)
	}
	return field, nil
}

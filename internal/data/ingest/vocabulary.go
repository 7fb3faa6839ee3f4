package ingest

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sync/errgroup"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/data/dataset"
	"shaver/internal/data/vocabulary"
)

// vocabularyFile returns the name of the vocabulary file of a field.
func vocabularyFile(field int, name string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
	return path.Join("vocabulary", fmt.Sprintf("%d-%s.txt", field, clean[:min(len(clean), 64)]))
}

// writeVocabulary writes the vocabulary files of the fields, at most workers concurrently,
// and sets m.Vocabulary. It calls each for every field, and each must call visit for each
// line of the field's file in order, as vocabulary.Field.Each does. writeVocabulary returns
// the number of lines of each field. It returns early if ctx ends.
func (b *builder) writeVocabulary(ctx context.Context, m *dataset.Manifest, fields []string, workers int, each func(field int, visit func(value []byte, has bool) error) error) ([]int, error) {
	if err := os.Mkdir(b.join("vocabulary"), 0o777); err != nil {
		return nil, err
	}
	m.Vocabulary = make([]dataset.File, len(fields))
	counts := make([]int, len(fields))
	var g errgroup.Group
	g.SetLimit(workers)
	for j, name := range fields {
		g.Go(func() error {
			f, err := b.create(vocabularyFile(j, name))
			if err != nil {
				return err
			}
			var line []byte
			err = each(j, func(value []byte, has bool) error {
				if counts[j]++; counts[j]%4096 == 0 && ctx.Err() != nil {
					return ctx.Err()
				}
				if line = line[:0]; has {
					line = dataset.AppendLine(line, value)
				} else {
					line = append(line, dataset.NoLine...)
				}
				_, err := f.Write(line)
				return err
			})
			if err != nil {
				f.file.Close()
				return err
			}
			m.Vocabulary[j], err = f.finish()
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return counts, b.sync("vocabulary")
}

// ReadVocabulary reads a mapper from a file, or the vocabulary of a dataset if path is a
// folder. For a file, memory and oov are those of vocabulary.Read. For a folder, oov must
// be "", because a dataset has its own ids for unseen values.
func ReadVocabulary(path string, memory int64, oov string) (*vocabulary.Mapper, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the vocabulary: %w", err)
	}
	if !info.IsDir() {
		return vocabulary.Read(path, memory, oov)
	}
	if oov != "" {
		return nil, fault.Setting(fault.Usagef("the id of unseen values can be chosen only for a mapper in a file: the dataset %s has its own", path), UnseenSetting)
	}
	d, err := dataset.Open(path)
	if err != nil {
		return nil, err
	}
	return vocabulary.Of(d)
}

// loadField reads the vocabulary file f of a field, which was just written. size is the
// number of ids, and oov the id of unseen values or -1.
func (b *builder) loadField(f dataset.File, size, oov int) (*vocabulary.Field, error) {
	file, err := files.Open(b.join(f.File), "a vocabulary")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return vocabulary.ReadField(file, size, oov, f.Bytes)
}

// Package worth ranks the features of a model by what their entries are worth together.
package worth

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/cut"
)

// Feature has the facts about a feature that occurs.
type Feature struct {
	ID    int     `json:"id"`              // within its field
	Name  string  `json:"value,omitempty"` // from the vocabulary, if there is one
	Count int64   `json:"count"`           // number of rows
	Worth float64 `json:"worth"`           // sum of the aggregate over its entries, nat; of a path, the highest rank of its entries
	Kept  int     `json:"kept"`            // number of kept entries
}

// Ranked returns the features of each field that occur, most valuable first, by the values of their
// entries, which are an aggregate of the first scores. name is one of Names. dropped says which entries are dropped.
func Ranked(p *cut.Source, values []float64, name func(field, id int) string, dropped []bool) [][]Feature {
	a, s := &p.Checkpoint.Architecture, p.Scores[0]
	all, ranks := make([][]Feature, len(a.FieldDims)), s.Ranks() // by field and id
	for _, span := range a.Spans() {
		if all[span.Field] == nil {
			all[span.Field] = make([]Feature, span.Rows)
		}
		for id := range span.Rows {
			f := &all[span.Field][id]
			f.ID, f.Count = id, s.Count[span.Row+id]
			from := span.Entry + id*span.Dim
			for i := from; i < from+span.Dim; i++ {
				if ranks {
					f.Worth = max(f.Worth, values[i])
				} else {
					f.Worth += values[i]
				}
				if !dropped[i] {
					f.Kept++
				}
			}
		}
	}
	for j, features := range all {
		features = slices.DeleteFunc(features, func(f Feature) bool { return f.Count == 0 })
		for i := range features {
			features[i].Name = name(j, features[i].ID)
		}
		slices.SortFunc(features, func(x, y Feature) int { return cmp.Or(-cmp.Compare(x.Worth, y.Worth), cmp.Compare(x.ID, y.ID)) })
		all[j] = features
	}
	return all
}

// Ends returns at most n features from each end of the list. No feature is in both.
func Ends(ranked []Feature, n int) (top, bottom []Feature) {
	n = min(n, len(ranked))
	return append([]Feature{}, ranked[:n]...), append([]Feature{}, ranked[max(n, len(ranked)-n):]...)
}

// OpenScored opens the dataset in the folders for the model of p, which must be that of its scores. A single folder is a window of
// one day if the scores are those of such a window. Without folders it returns nil.
func OpenScored(p *cut.Source, folders []string) (*dataset.Dataset, error) {
	if len(folders) == 0 {
		return nil, nil
	}
	s := p.Scores[0]
	d, err := open(s, folders)
	if err != nil {
		return nil, err
	}
	if d, err = d.For(&p.Checkpoint.Architecture, p.Checkpoint.Known()); err != nil {
		return nil, err
	}
	if err := s.CheckDataset(d.Digest()); err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(folders, ", "), err)
	}
	return d, nil
}

// open opens the dataset in the folders as that of s, if it may be.
func open(s *scores.File, folders []string) (*dataset.Dataset, error) {
	d, err := dataset.OpenAll(folders)
	if err == nil && len(folders) == 1 && d.Digest() != s.Spec.Dataset {
		if window, err := dataset.OpenDays(folders); err == nil && window.Digest() == s.Spec.Dataset {
			d = window
		}
	}
	return d, err
}

// Names returns a function that names the values of fields by the vocabulary of the dataset. It returns "" for a value without a
// name, and for every value if d is nil.
func Names(d *dataset.Dataset) (func(field, id int) string, error) {
	if d == nil {
		return func(int, int) string { return "" }, nil
	}
	vocabulary, err := make([][]string, len(d.Manifest.Fields)), error(nil)
	for j := range vocabulary {
		if vocabulary[j], err = d.Vocabulary(j); err != nil {
			return nil, err
		}
	}
	return func(field, id int) string {
		switch words := vocabulary[field]; {
		case words == nil:
			return ""
		case id == d.Manifest.Fields[field].OOVID():
			return "(other)"
		case id < len(words) && words[id] == "": // an id that occurs has a value
			return "(empty)"
		case id < len(words):
			return words[id]
		}
		return ""
	}, nil
}

package main

import (
	"cmp"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/ingest"
)

// computedFields returns the fields of a model whose ids an import of encoded rows computes.
func computedFields(ck *checkpoint.Checkpoint) ([]ingest.Computed, error) {
	fields, err := ck.Computed()
	if err != nil {
		return nil, err
	}
	var all []ingest.Computed
	for _, f := range fields {
		c := ingest.Computed{Field: f.Field, ID: f.ID}
		for _, position := range f.Sources {
			var sources []ingest.Source
			for _, s := range position {
				sources = append(sources, ingest.Source{Name: s.Name, Field: s.Field, Position: s.Position})
			}
			c.Sources = append(c.Sources, sources)
		}
		all = append(all, c)
	}
	return all, nil
}

// checkComputed returns an error if a model computes the ids of a field from others, and the field is not
// among the columns of raw rows.
func checkComputed(ck *checkpoint.Checkpoint, columns []ingest.Column) error {
	fields, err := ck.Computed()
	if err != nil {
		return err
	}
	for _, f := range fields {
		if f.Sources[0][0].Field == f.Field {
			continue
		}
		name := ck.Fields[f.Field]
		if !slices.ContainsFunc(columns, func(c ingest.Column) bool { return cmp.Or(c.As, c.Name) == name }) {
			return fault.Usagef("the model computes the ids of its field %q from %q, but raw rows have values without ids: import rows of ids with --train, or name a column that has these ids, with --columns, and its vocabulary", name, f.Sources[0][0].Name)
		}
	}
	return nil
}

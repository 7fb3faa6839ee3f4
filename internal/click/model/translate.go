package model

import "fmt"

// Translator maps the rows of a model to those of a previous model of the same fields.
// Fields grow at their end: a value keeps its local id, and new values get the next ids.
// Global ids change if a field before them grows. A Translator does not change after
// NewTranslator.
type Translator struct {
	sizes   []int   // size of each field of the previous model
	lengths []int   // number of ids of each field
	first   []int32 // global id of each field's first feature
	shift   []int32 // global id in the previous model minus that in the model
}

// NewTranslator returns the translator from the rows of a model with architecture a to
// those of a previous model. It returns an error unless both models have the same number of
// fields, the same lists, the same look-ups of tables with the same columns, of which the
// same read the same rows, and the same dense inputs, and no field of the previous model is
// larger. Both architectures must be valid.
func NewTranslator(a, earlier *Architecture) (*Translator, error) {
	if err := a.grewFrom(earlier); err != nil {
		return nil, fmt.Errorf("the models cannot be compared row by row: %w", err)
	}
	t := &Translator{sizes: earlier.FieldDims, lengths: a.Lengths(), first: a.Offsets(), shift: earlier.Offsets()}
	for j, first := range t.first {
		t.shift[j] -= first
	}
	return t, nil
}

// grewFrom returns an error unless the tables of a are those of the previous model, with or
// without more rows.
func (a *Architecture) grewFrom(earlier *Architecture) error {
	if len(a.FieldDims) != len(earlier.FieldDims) {
		return fmt.Errorf("the previous model has %d fields, expected %d", len(earlier.FieldDims), len(a.FieldDims))
	}
	for j, size := range earlier.FieldDims {
		if size > a.FieldDims[j] {
			return fmt.Errorf("field %d has %d features in the previous model, expected at most %d", j, size, a.FieldDims[j])
		}
	}
	tables, earlierTables := a.tables(), earlier.tables()
	if len(tables) != len(earlierTables) {
		return fmt.Errorf("the previous model has %d tables, expected %d", len(earlierTables), len(tables))
	}
	for i, t := range earlierTables {
		if t.Name != tables[i].Name {
			return fmt.Errorf("table %d of the previous model has the name %q, expected %q", i, t.Name, tables[i].Name)
		}
		if t.Dim != tables[i].Dim {
			return fmt.Errorf("table %d of the previous model has %d columns, expected %d", i, t.Dim, tables[i].Dim)
		}
	}
	lookUps, earlierLookUps := a.lookUps(), earlier.lookUps()
	if len(lookUps) != len(earlierLookUps) {
		return fmt.Errorf("the previous model has %d look-ups, expected %d", len(earlierLookUps), len(lookUps))
	}
	for k, l := range earlierLookUps { // offsets follow from the fields
		if l.Field != lookUps[k].Field || l.Table != lookUps[k].Table {
			return fmt.Errorf("look-up %d of the previous model reads table %d for field %d, expected table %d for field %d", k, l.Table, l.Field, lookUps[k].Table, lookUps[k].Field)
		}
	}
	if err := a.CheckReaders(earlier); err != nil {
		return err
	}
	if len(a.Dense) != len(earlier.Dense) {
		return fmt.Errorf("the previous model has %d dense inputs, expected %d", len(earlier.Dense), len(a.Dense))
	}
	for i, name := range earlier.Dense {
		if name != a.Dense[i] {
			return fmt.Errorf("dense input %d of the previous model is %q, expected %q", i, name, a.Dense[i])
		}
	}
	return nil
}

// CheckReaders returns an error unless the lists of the previous model are those of a, and
// the same look-ups read the same rows. Both models have the same number of fields and
// look-ups.
func (a *Architecture) CheckReaders(earlier *Architecture) error {
	lists, earlierLists := a.lists(), earlier.lists()
	for j, was := range earlierLists {
		if l := lists[j]; was.Length != l.Length || was.Pad != l.Pad {
			return fmt.Errorf("field %d has %d positions and the pad id %d in the previous model, expected %d positions and the pad id %d", j, was.Length, was.Pad, l.Length, l.Pad)
		}
	}
	first := a.firstReaders()
	for k, was := range earlier.firstReaders() {
		if was != first[k] {
			return fmt.Errorf("look-up %d of the previous model reads the rows of look-up %d, expected those of look-up %d", k, was, first[k])
		}
	}
	return nil
}

// firstReaders returns, for each look-up, the first look-up that reads the same rows.
func (a *Architecture) firstReaders() []int {
	first := make([]int, len(a.lookUps()))
	for _, s := range a.Spans() {
		for _, r := range s.Readers() {
			first[r.LookUp] = s.LookUp
		}
	}
	return first
}

// Translate sets into, [Width], to the previous model's global ids of a row, which must have
// passed CheckRow of the model. It returns an error that names the first field whose id
// the previous model lacks.
func (t *Translator) Translate(into, features []int32) error {
	at := 0
	for j, n := range t.lengths {
		for range n {
			f := features[at]
			if local := f - t.first[j]; int(local) >= t.sizes[j] {
				return fmt.Errorf("field %d has global id %d, the value %d of the field: the previous model knows only %d values", j, f, local, t.sizes[j])
			}
			into[at] = f + t.shift[j]
			at++
		}
	}
	return nil
}

package model

import "fmt"

// Translator maps the rows of a model to those of a previous model of the same fields.
// Fields grow at their end: a value keeps its local id, and new values get the next ids.
// Global ids change if a field before them grows. A Translator does not change after
// NewTranslator.
type Translator struct {
	sizes []int   // size of each field of the previous model
	first []int32 // global id of each field's first feature
	shift []int32 // global id in the previous model minus that in the model
}

// NewTranslator returns the translator from the rows of a model with architecture a to
// those of a previous model. It returns an error unless both models have the same number of
// fields, the same look-ups of tables with the same columns, and the same dense inputs, and
// no field of the previous model is larger. Both architectures must be valid.
func NewTranslator(a, earlier *Architecture) (*Translator, error) {
	if err := a.grewFrom(earlier); err != nil {
		return nil, fmt.Errorf("the models cannot be compared row by row: %w", err)
	}
	t := &Translator{sizes: earlier.FieldDims, first: a.Offsets(), shift: earlier.Offsets()}
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

// Translate sets into, [m], to the previous model's global ids of a row, which must have
// passed CheckRow of the model. It returns an error that names the first field whose id
// the previous model lacks.
func (t *Translator) Translate(into, features []int32) error {
	for j, f := range features {
		if local := f - t.first[j]; int(local) >= t.sizes[j] {
			return fmt.Errorf("field %d has global id %d, the value %d of the field: the previous model knows only %d values", j, f, local, t.sizes[j])
		}
		into[j] = f + t.shift[j]
	}
	return nil
}

// LookUpFields returns the field of each look-up. A plain architecture has one look-up for
// each field.
func (a *Architecture) LookUpFields() []int {
	var fields []int
	for _, l := range a.lookUps() {
		fields = append(fields, l.Field)
	}
	return fields
}

package vocabulary

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/arrowio"
	"shaver/internal/fault"
	"shaver/internal/rawtext"
)

// Mapper is a vocabulary that somebody brought: fields in the order in which the
// file names them first.
type Mapper struct {
	Names  []string
	Fields []*Field
}

// Read reads a mapper from a file, whose name tells its form, and which may be
// compressed (.gz, .zst) but for tables:
//
//   - .csv: the header field,value,id, and a line for each value;
//   - .json: {"FIELD": {"VALUE": ID, ...}, ...} or {"FIELD": ["VALUE OF ID 0", ...], ...},
//     either of them alone or under the key "vocabulary";
//   - .parquet, .arrow: the columns field, value and id.
//
// The ids of a field count from 0 without a gap; the one after the last is for
// all other values, and is not in the file. Anything else is bad input.
func Read(path string) (*Mapper, error) {
	m := &Mapper{}
	var err error
	switch plain := strings.TrimSuffix(strings.TrimSuffix(path, ".gz"), ".zst"); {
	case strings.HasSuffix(path, ".parquet"), strings.HasSuffix(path, ".arrow"):
		err = m.readTable(path)
	case strings.HasSuffix(plain, ".csv"):
		err = m.readText(path, m.readCSV)
	case strings.HasSuffix(plain, ".json"):
		err = m.readText(path, m.readJSON)
	default:
		return nil, fault.Inputf("%s: a vocabulary is a dataset's folder, or a .csv, .json, .parquet or .arrow file", path)
	}
	if err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// Choose returns the fields of the given names, in this order; that one of them
// is missing is bad input.
func (m *Mapper) Choose(names []string) ([]*Field, error) {
	fields := make([]*Field, len(names))
	for j, name := range names {
		at := slices.Index(m.Names, name)
		if at < 0 {
			return nil, fault.Inputf("the vocabulary has no field %q: it has %q", name, m.Names)
		}
		fields[j] = m.Fields[at]
	}
	return fields, nil
}

// readText opens a file for read.
func (m *Mapper) readText(path string, read func(io.Reader) error) error {
	s, err := rawtext.Open(path)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := read(s.Content()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// field returns the position of a field, which is new if there is none of its name.
func (m *Mapper) field(name string) int {
	if last := len(m.Names) - 1; last >= 0 && m.Names[last] == name {
		return last
	}
	j := slices.Index(m.Names, name)
	if j < 0 {
		j = len(m.Names)
		m.Names, m.Fields = append(m.Names, name), append(m.Fields, &Field{})
	}
	return j
}

// add gives a value of a field its id.
func (m *Mapper) add(field string, value []byte, id int64) error {
	j := m.field(field)
	switch {
	case id < 0 || id >= math.MaxInt32:
		return fault.Inputf("field %s: the value %q has the id %d, ids count from 0", field, value, id)
	case len(value) >= maxValue:
		return fault.Inputf("field %s: a value of %d bytes", field, len(value))
	case !m.Fields[j].add(value, id):
		return fault.Inputf("field %s: the value %q is there twice", field, value)
	}
	return nil
}

// check sees to it that the ids of each field are 0, 1, ... without a gap.
func (m *Mapper) check() error {
	if len(m.Names) == 0 {
		return fault.Inputf("the vocabulary is empty")
	}
	for j, f := range m.Fields {
		seen := make([]bool, f.values.used)
		for _, s := range f.values.slots {
			switch id := s.number - 1; {
			case id < 0:
			case id >= int64(len(seen)):
				return fault.Inputf("field %s has %d values and the id %d: ids count from 0 without a gap", m.Names[j], len(seen), id)
			case seen[id]:
				return fault.Inputf("field %s has two values of the id %d", m.Names[j], id)
			default:
				seen[id] = true
			}
		}
	}
	return nil
}

var mapperColumns = []string{"field", "value", "id"}

func (m *Mapper) readCSV(r io.Reader) error {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	header, err := in.Read()
	if err != nil || !slices.Equal(header, mapperColumns) {
		return fault.Inputf("line 1 is %q, expected the header %q", header, mapperColumns)
	}
	for {
		record, err := in.Read()
		if err == io.EOF {
			return nil
		}
		if p := (*csv.ParseError)(nil); errors.As(err, &p) {
			return fault.Inputf("%w", err)
		}
		if err != nil {
			return err
		}
		line, _ := in.FieldPos(0)
		id, err := parseID(record[2])
		if err == nil {
			err = m.add(record[0], []byte(record[1]), id)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
}

func parseID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fault.Inputf("the id %q is not an integer", text)
	}
	return id, nil
}

func (m *Mapper) readJSON(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(data, &top); err != nil {
		return fault.Inputf("not a JSON object: %w", err)
	}
	if inner, ok := top["vocabulary"]; ok && len(inner) > 0 && inner[0] == '{' {
		data = inner
	}
	in := json.NewDecoder(bytes.NewReader(data))
	in.UseNumber()
	if err := m.readFields(in); err != nil && !fault.IsInput(err) {
		return fault.Inputf("%w", err)
	} else if err != nil {
		return err
	}
	return nil
}

// readFields reads an object of fields, in its order.
func (m *Mapper) readFields(in *json.Decoder) error {
	if t, err := in.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("expected an object of fields, found %v", t)
	}
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return err
		}
		open, err := in.Token()
		if err != nil {
			return err
		}
		if open != json.Delim('{') && open != json.Delim('[') {
			return fmt.Errorf("field %v: expected an object or a list of values, found %v", name, open)
		}
		m.field(name.(string)) // it may have no values
		if err := m.readValues(in, name.(string), open == json.Delim('[')); err != nil {
			return err
		}
	}
	_, err := in.Token()
	return err
}

func (m *Mapper) readValues(in *json.Decoder, field string, list bool) error {
	for k := int64(0); in.More(); k++ {
		value, err := in.Token()
		if err != nil {
			return err
		}
		id := k
		if !list {
			t, err := in.Token()
			if err != nil {
				return err
			}
			if id, err = parseID(fmt.Sprint(t)); err != nil {
				return fmt.Errorf("field %s: value %q: %w", field, value, err)
			}
		}
		switch value.(type) {
		case string, json.Number:
		default:
			return fmt.Errorf("field %s: %v is not a value", field, value)
		}
		if err := m.add(field, []byte(fmt.Sprint(value)), id); err != nil {
			return err
		}
	}
	_, err := in.Token()
	return err
}

func (m *Mapper) readTable(path string) error {
	t, err := arrowio.OpenTable(path)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := t.Choose(mapperColumns); err != nil {
		return err
	}
	for {
		part, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		row := part.Row
		err = part.Rows(func(cells [][]byte) error {
			id, err := parseID(string(cells[2]))
			if err == nil {
				err = m.add(string(cells[0]), cells[1], id)
			}
			if err != nil {
				return fmt.Errorf("%s: row %d: %w", path, row, err)
			}
			row++
			return nil
		})
		if err != nil {
			return err
		}
	}
}

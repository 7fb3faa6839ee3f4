package vocabulary

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/data/columnfile"
	"shaver/internal/data/dataset"
	"shaver/internal/data/rawtext"
)

// Mapper is a vocabulary from a user's file or from a dataset. Its fields are in the
// order in which they first occur in that file or dataset.
type Mapper struct {
	Names  []string // names of the fields
	Fields []*Field // if the mapper is from a file, Choose sets their sizes
	SHA256 []string // of the fields' vocabulary files; nil if the mapper is from a file
	Front  bool     // its framework or dataset fills lists at their front
	path   string   // path of the file; "" for a dataset's vocabulary
	shared []string // by field: its name in messages, if it has the values of other fields, too
	oov    oov      // id of unseen values; only for a file
	left   int64    // memory left for the values in bytes
	memory int64    // memory limit in bytes
}

// Divisors that give the parts of the memory limit.
const (
	valuesPart = 2 // half of the limit is for the values
	textPart   = 8 // an eighth is for JSON text, which is read whole and copied
)

// maxFields is the largest number of fields of a mapper. No file of rows has that many
// fields.
const maxFields = 1 << 14

// Read reads a mapper from a file. The extension of the path determines the format:
//
//   - .csv: the header field,value,id, and a line for each value, whose id may end in .0;
//   - .json: {"FIELD": {"VALUE": ID, ...}, ...} or {"FIELD": ["VALUE OF ID 0", ...], ...},
//     either at the top or under the key "vocabulary";
//   - .parquet, .arrow: a table with the columns field, value and id.
//
// CSV and JSON files may be compressed (.gz, .zst).
//
// oov determines which id unseen values get in each field:
//
//   - last: the id after the largest one in the file;
//   - id=N: the id N, which must not belong to a value;
//   - value=TEXT: the id of the value TEXT;
//   - none: no id;
//   - "": last, or value=__OOV__ if every field of the file has the value __PAD__ with the id
//     0 and the value __OOV__, as in FuxiCTR's feature_vocab.json.
//
// Read uses at most about memory bytes, however far a compressed file expands. A mapper
// that needs more is a usage error.
func Read(path string, memory int64, oov string) (*Mapper, error) {
	m := &Mapper{path: path, left: memory / valuesPart, memory: memory}
	var err error
	if m.oov, err = parseOOV(oov); err != nil {
		return nil, err
	}
	switch plain := strings.TrimSuffix(strings.TrimSuffix(path, ".gz"), ".zst"); {
	case strings.HasSuffix(path, ".parquet"), strings.HasSuffix(path, ".arrow"):
		err = m.readTable(path)
	case strings.HasSuffix(plain, ".csv"):
		err = m.readText(path, m.readCSV)
	case strings.HasSuffix(plain, ".json"):
		err = m.readText(path, m.readJSON)
	default:
		return nil, fault.Inputf("%s: expected a vocabulary, which is the folder of a dataset or a .csv, .json, .parquet or .arrow file", path)
	}
	if err != nil {
		return nil, err
	}
	if len(m.Names) == 0 {
		return nil, fault.Inputf("%s: the vocabulary is empty", path)
	}
	if m.Front = m.fuxiCTR(); m.Front && oov == "" {
		m.oov.form, m.oov.value = oovValue, fuxiUnseen
	}
	return m, nil
}

// Of returns the vocabulary of a dataset, so that other rows can be given the same ids. A
// dataset without a vocabulary is bad input.
func Of(d *dataset.Dataset) (*Mapper, error) {
	m := &Mapper{}
	err := d.ReadVocabulary(func(f dataset.Field, file dataset.File, content io.Reader) error {
		field, err := ReadField(content, f.Size, f.OOVID(), file.Bytes)
		m.Names, m.Fields, m.SHA256 = append(m.Names, f.Name), append(m.Fields, field), append(m.SHA256, file.SHA256)
		m.Front = m.Front || f.Pads != ""
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// fuxiCTR reports whether the mapper is FuxiCTR's feature_vocab.json. In it, two values of
// each field stand for padding and for unseen values.
func (m *Mapper) fuxiCTR() bool {
	for _, f := range m.Fields {
		if f.id(fuxiPadding) != 0 || f.id(fuxiUnseen) < 0 {
			return false
		}
	}
	return true
}

// Choose returns the named fields, in the order of names. sizes are the sizes of a model's
// fields. If sizes is nil, each field has the least size that its ids need. A missing field
// is bad input. The mapper owns the fields, and the next call of Choose may change them.
//
// If the mapper is from a file, the ids must also fit the fields. Two values with the
// same id are bad input. With sizes, an id that is not below the size is bad input. If
// the oov of Read is last, any size other than the largest id in the file plus 2 is also
// bad input. Without sizes, an id without a value is bad input, unless it stands for
// unseen values.
func (m *Mapper) Choose(names []string, sizes []int) ([]*Field, error) {
	fields := make([]*Field, len(names))
	for j, name := range names {
		at := slices.Index(m.Names, name)
		if at < 0 {
			return nil, fault.Inputf("the vocabulary has no field %q: it has %q", name, m.Names)
		}
		fields[j] = m.Fields[at]
		if m.path == "" {
			continue
		}
		want := 0
		if sizes != nil {
			want = sizes[j]
		}
		if m.shared != nil {
			name = cmp.Or(m.shared[at], name)
		}
		if err := fields[j].fit(m.oov, j, name, want); err != nil {
			return nil, fmt.Errorf("%s: %w", m.path, err)
		}
	}
	return fields, nil
}

// Share gives the named field the values of another field, too, because a model reads both from one table. It does nothing
// if the mapper lacks one of them. A value with two ids is bad input. In a mapper from a dataset, the two must have the
// same values. A call of Choose follows.
func (m *Mapper) Share(name, other string) error {
	to, from := slices.Index(m.Names, name), slices.Index(m.Names, other)
	if to < 0 || from < 0 || to == from {
		return nil
	}
	if m.path == "" {
		if m.SHA256[to] != m.SHA256[from] {
			return fault.Inputf("the fields %s and %s have ids of their own in the earlier dataset, so they cannot share one table", name, other)
		}
		return nil
	}
	if m.shared == nil {
		m.shared = make([]string, len(m.Names))
	}
	least, clash := int64(math.MaxInt64), "" // of the values with two ids, that with the least id
	var value []byte
	values := &m.Fields[from].values
	for i := range values.slots {
		s := &values.slots[i]
		if s.number == 0 {
			continue
		}
		value = values.append(value[:0], s)
		switch id, has := s.number-1, int64(m.Fields[to].id(string(value))); {
		case has == id:
		case has >= 0 && id < least:
			least, clash = id, fmt.Sprintf("the value %.100q has the id %d in field %s and %d in field %s", value, has, cmp.Or(m.shared[to], name), id, other)
		case has < 0:
			if err := m.add(name, value, id); err != nil {
				return fmt.Errorf("%s: %w", m.path, err)
			}
		}
	}
	if clash != "" {
		return fault.Inputf("%s: %s, which share one table: expected the same id", m.path, clash)
	}
	if m.shared[to] == "" {
		m.shared[to] = name + " with the values of " + other
	} else {
		m.shared[to] += " and " + other
	}
	return nil
}

// readText opens a text file and calls read.
func (m *Mapper) readText(path string, read func(*rawtext.Source) error) error {
	s, err := rawtext.Open(path)
	if err != nil {
		return err
	}
	defer s.Close()
	return read(s)
}

// field returns the position of the named field, which it adds if it is missing.
func (m *Mapper) field(name string) (int, error) {
	if last := len(m.Names) - 1; last >= 0 && m.Names[last] == name {
		return last, nil
	}
	j := slices.Index(m.Names, name)
	if j < 0 {
		j = len(m.Names)
		if j == maxFields {
			return 0, fault.Inputf("more than %d fields", maxFields)
		}
		if err := m.take(int64(len(name))); err != nil {
			return 0, err
		}
		m.Names, m.Fields = append(m.Names, name), append(m.Fields, &Field{})
	}
	return j, nil
}

// take reserves bytes of the memory for values.
func (m *Mapper) take(bytes int64) error {
	if bytes > m.left {
		return fault.Setting(fault.Usagef("the vocabulary's values take more than %d MiB, half of the memory limit: raise the limit", m.memory/valuesPart>>20), MemorySetting)
	}
	m.left -= bytes
	return nil
}

// add gives a value of a field its id. It adds the field if it is missing.
func (m *Mapper) add(field string, value []byte, id int64) error {
	j, err := m.field(field)
	if err != nil {
		return err
	}
	f := m.Fields[j]
	before := f.values.bytes()
	more, _ := f.values.need(value) // while a table grows, the old one is still in memory
	if err := m.take(int64(more)); err != nil {
		return err
	}
	defer func() { m.left += int64(more) - int64(f.values.bytes()-before) }()
	switch {
	case id < 0 || id >= math.MaxInt32:
		return fault.Inputf("field %s: the value %q has the id %d, expected 0 to %d", field, value, id, math.MaxInt32-1)
	case len(value) >= dataset.MaxValue:
		return fault.Inputf("field %s: a value has %d bytes, expected fewer than %d", field, len(value), dataset.MaxValue)
	case !f.add(value, id):
		return fault.Inputf("field %s: the value %q occurs twice", field, value)
	}
	return nil
}

var mapperColumns = []string{"field", "value", "id"}

func (m *Mapper) readCSV(s *rawtext.Source) error {
	blocks, err := rawtext.NewBlocks(s)
	if err != nil {
		return err
	}
	blocks.Quotes = true
	line, err := blocks.Header()
	if err != nil {
		return err
	}
	if header, err := csv.NewReader(bytes.NewReader(line)).Read(); err != nil || !slices.Equal(header, mapperColumns) {
		return s.Errorf(1, "the line is %q, expected the header %q", line[:min(len(line), 100)], mapperColumns)
	}
	var block rawtext.Block
	records := rawtext.Records{Separator: ',', Quotes: true}
	for {
		if err := blocks.Next(&block); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		records.Reset(&block)
		if err := m.readRecords(s, &records); err != nil {
			return err
		}
	}
}

// readRecords reads the records of a block of CSV.
func (m *Mapper) readRecords(s *rawtext.Source, records *rawtext.Records) error {
	for {
		record, err := records.Next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return s.Errorf(records.Line, "%w", err)
		case len(record) == 1 && len(record[0]) == 0:
			continue
		case len(record) != len(mapperColumns):
			return s.Errorf(records.Line, "%d columns, expected %d", len(record), len(mapperColumns))
		}
		id, err := parseID(string(record[2]))
		if err == nil {
			err = m.add(string(record[0]), record[1], id)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", s.Path, records.Line, err)
		}
	}
}

func parseID(text string) (int64, error) {
	id, err := strconv.ParseInt(string(WholeNumber([]byte(text))), 10, 64)
	if err != nil {
		return 0, fault.Inputf("the id %q is not an integer", text)
	}
	return id, nil
}

func (m *Mapper) readJSON(s *rawtext.Source) error {
	most := m.memory / textPart // bytes
	data, err := io.ReadAll(io.LimitReader(s.Content(), most+1))
	if err == nil && int64(len(data)) > most {
		err = fault.Setting(fault.Usagef("the text has more than %d MiB, an eighth of the memory limit: raise the limit, or use CSV", most>>20), MemorySetting)
	}
	if err == nil {
		err = m.parseJSON(data)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.Path, err)
	}
	return nil
}

func (m *Mapper) parseJSON(data []byte) error {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(data, &top); err != nil {
		return fault.Inputf("not a JSON object: %w", err)
	}
	if inner, ok := top["vocabulary"]; ok && len(inner) > 0 && inner[0] == '{' {
		data = inner
	}
	in := json.NewDecoder(bytes.NewReader(data))
	in.UseNumber()
	if err := m.readFields(in); err != nil && !fault.IsInput(err) && !fault.IsUsage(err) {
		return fault.Inputf("%w", err)
	} else if err != nil {
		return err
	}
	return nil
}

// readFields reads a JSON object of fields, in the order of the text.
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
		if _, err := m.field(name.(string)); err != nil { // add the field here, because it may have no values
			return err
		}
		if err := m.readValues(in, name.(string), open == json.Delim('[')); err != nil {
			return err
		}
	}
	_, err := in.Token()
	return err
}

// readValues reads the values of a field up to the closing delimiter. In a list, the id of
// a value is its position.
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
	t, err := columnfile.Open(path)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := t.Choose(mapperColumns, nil, 0); err != nil {
		return err
	}
	for {
		block, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		row := block.Row
		err = block.Rows(func(_ int, cells [][]byte) error {
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

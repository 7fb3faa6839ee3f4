package dataset

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"shaver/internal/fault"
)

// A vocabulary file has one line for each value of a field that has an id of
// its own: line k (from 0) is the value of local id k, its backslashes, tabs,
// line feeds and carriage returns written as \\, \t, \n and \r. All other
// values, and those of rows outside train that train never has, share the
// field's last id, which has no line.

var escaper = strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`)

func unescape(line string) (string, error) {
	if !strings.Contains(line, `\`) {
		return line, nil
	}
	var out strings.Builder
	for i := 0; i < len(line); i++ {
		c := line[i]
		if c == '\\' {
			i++
			at := -1
			if i < len(line) {
				at = strings.IndexByte(`\tnr`, line[i])
			}
			if at < 0 {
				return "", fmt.Errorf(`a backslash is not followed by \, t, n or r`)
			}
			c = "\\\t\n\r"[at]
		}
		out.WriteByte(c)
	}
	return out.String(), nil
}

// vocabularyFile is the name of a field's file.
func vocabularyFile(field int, name string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
	return path.Join("vocabulary", fmt.Sprintf("%d-%s.txt", field, clean[:min(len(clean), 64)]))
}

// kept returns the values that get an id of their own, in the order of ids:
// those that occur in at least minCount rows of train, in byte order.
func kept(counts map[string]int64, minCount int64) []string {
	var values []string
	for value, count := range counts {
		if count >= minCount {
			values = append(values, value)
		}
	}
	slices.Sort(values)
	return values
}

// writeVocabulary writes the files and fills m.Vocabulary.
func (b *builder) writeVocabulary(m *Manifest, values [][]string) error {
	if err := b.mkdir("vocabulary"); err != nil {
		return err
	}
	for j, name := range b.fields {
		f, err := b.create(vocabularyFile(j, name))
		if err != nil {
			return err
		}
		for _, value := range values[j] {
			if _, err := escaper.WriteString(f, value); err != nil {
				return err
			}
			if _, err := f.Write([]byte{'\n'}); err != nil {
				return err
			}
		}
		file, err := f.finish()
		if err != nil {
			return err
		}
		m.Vocabulary = append(m.Vocabulary, file)
	}
	return b.sync("vocabulary")
}

// Vocabulary returns the values behind the ids of a field, all but the last id:
// that one stands for every other value. It returns nil if the ids were not
// made here.
func (d *Dataset) Vocabulary(field int) ([]string, error) {
	if d.Manifest.Vocabulary == nil {
		return nil, nil
	}
	f := d.Manifest.Vocabulary[field]
	data, err := d.readFile(f)
	if err != nil {
		return nil, err
	}
	values, err := parseVocabulary(data)
	if err == nil && len(values) != d.Manifest.Fields[field].Size-1 {
		err = fault.Inputf("%d values, the field has size %d", len(values), d.Manifest.Fields[field].Size)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.path(f), err)
	}
	return values, nil
}

func parseVocabulary(data []byte) ([]string, error) {
	values := []string{}
	for number := 1; len(data) > 0; number++ {
		line, rest, ok := bytes.Cut(data, []byte{'\n'})
		if !ok {
			return nil, fault.Inputf("line %d has no end", number)
		}
		value, err := unescape(string(line))
		if err != nil {
			return nil, fault.Inputf("line %d: %w", number, err)
		}
		if n := len(values); n > 0 && values[n-1] >= value {
			return nil, fault.Inputf("line %d: values ascend in byte order", number)
		}
		values, data = append(values, value), rest
	}
	return values, nil
}

// encoder maps the strings of a row to global ids.
type encoder struct {
	ids     []map[string]int32 // by field, global
	last    []int32            // by field, global id of all other values
	sizes   []int
	values  [][]string
	feature []int32 // of the current row
}

// newEncoder makes the vocabulary; it takes counts apart.
func newEncoder(counts []map[string]int64, minCount int64) *encoder {
	e := &encoder{feature: make([]int32, len(counts))}
	next := int32(0)
	for j := range counts {
		values := kept(counts[j], minCount)
		counts[j] = nil
		ids := make(map[string]int32, len(values))
		for k, value := range values {
			ids[value] = next + int32(k)
		}
		next += int32(len(values))
		e.ids, e.last = append(e.ids, ids), append(e.last, next)
		next++
		e.sizes, e.values = append(e.sizes, len(values)+1), append(e.values, values)
	}
	return e
}

// encode returns the global ids of a row's values, valid until the next call.
func (e *encoder) encode(values [][]byte) []int32 {
	for j, value := range values {
		id, ok := e.ids[j][string(value)]
		if !ok {
			id = e.last[j]
		}
		e.feature[j] = id
	}
	return e.feature
}

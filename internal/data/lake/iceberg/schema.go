package iceberg

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"shaver/internal/base/fault"
	"shaver/internal/data/columnfile"
)

// schema is a schema of a table.
type schema struct {
	ID     int     `json:"schema-id"`
	Fields []field `json:"fields"`
}

// field is a column at the top level of a schema.
type field struct {
	ID      int32           `json:"id"`
	Name    string          `json:"name"`
	Type    kind            `json:"type"`
	Default json.RawMessage `json:"initial-default"`
}

// kind is the name of a type, such as "long", or "list<long>" for a list. Structures are "struct", and maps "map".
type kind string

func (k *kind) UnmarshalJSON(data []byte) error {
	var nested struct {
		Type    string `json:"type"`
		Element *kind  `json:"element"`
	}
	if err := json.Unmarshal(data, (*string)(k)); err == nil {
		return nil
	}
	if err := json.Unmarshal(data, &nested); err != nil {
		return err
	}
	*k = kind(nested.Type)
	if nested.Type == "list" && nested.Element != nil {
		*k = "list<" + *nested.Element + ">"
	}
	return nil
}

// element returns the type of the elements of a list, and any other type as it is.
func (k kind) element() kind {
	return kind(strings.TrimSuffix(strings.TrimPrefix(string(k), "list<"), ">"))
}

// of returns the kind that package columnfile has for the type. It is "" for a type whose values have no text.
func (k kind) of() string {
	switch k {
	case "string":
		return columnfile.Strings
	case "int", "long", "float", "double":
		return columnfile.Numbers
	case "boolean":
		return columnfile.Truths
	case "date":
		return columnfile.Dates
	case "time":
		return columnfile.Times
	case "timestamp", "timestamp_ns":
		return columnfile.Timestamps
	case "timestamptz", "timestamptz_ns":
		return columnfile.Instants
	}
	return ""
}

// text returns the text of a value. The value is nil or has the type of its Avro form.
func (k kind) text(value any) (string, error) {
	switch value := value.(type) {
	case nil:
		return "", nil
	case bool:
		if k == "boolean" {
			return string('0' + boolByte(value)), nil
		}
	case string:
		if k == "string" {
			return value, nil
		}
	case float64:
		switch k {
		case "float":
			return columnfile.FloatText(value, 32), nil
		case "double":
			return columnfile.FloatText(value, 64), nil
		}
	case int64:
		switch k {
		case "int", "long":
			return strconv.FormatInt(value, 10), nil
		case "date":
			return columnfile.DateText(value)
		case "time":
			return columnfile.TimeText(value, 1e6)
		case "timestamp", "timestamptz":
			return columnfile.TimestampText(value, 1e6, k == "timestamptz")
		case "timestamp_ns", "timestamptz_ns":
			return columnfile.TimestampText(value, 1e9, k == "timestamptz_ns")
		}
	}
	return "", fmt.Errorf("a value of type %s is a %T", k, value)
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// bound returns the text of a bound of a column, in its single-value serialization. ok is false if it has none. A
// column that was an int or a float when the bound was written may have another type now.
func (k kind) bound(data []byte) (text string, ok bool) {
	var value any
	switch n := len(data); {
	case k == "string":
		value = string(data)
	case k == "boolean" && n == 1:
		value = data[0] != 0
	case (k == "float" || k == "double") && n == 4:
		value = float64(math.Float32frombits(binary.LittleEndian.Uint32(data)))
	case k == "double" && n == 8:
		value = math.Float64frombits(binary.LittleEndian.Uint64(data))
	case (k == "int" || k == "long" || k == "date") && n == 4:
		value = int64(int32(binary.LittleEndian.Uint32(data)))
	case k != "int" && k != "date" && k != "float" && n == 8:
		value = int64(binary.LittleEndian.Uint64(data))
	default:
		return "", false
	}
	text, err := k.text(value)
	return text, err == nil && text != "" || k == "string"
}

// given returns the text of a value in JSON, as it is in the default of a column.
func (k kind) given(data json.RawMessage) (string, error) {
	if len(data) == 0 || string(data) == "null" || k.of() == "" {
		return "", nil
	}
	var value any
	err := json.Unmarshal(data, &value)
	if k == "int" || k == "long" {
		value, err = strconv.ParseInt(string(data), 10, 64)
	}
	if text, ok := value.(string); ok && k != "string" && err == nil {
		var t time.Time
		t, err = time.Parse(map[string]string{
			columnfile.Dates: time.DateOnly, columnfile.Times: "15:04:05", columnfile.Timestamps: "2006-01-02T15:04:05", columnfile.Instants: time.RFC3339,
		}[k.of()], text)
		switch {
		case k == "date":
			value = t.Unix() / 86400
		case k == "time":
			value = t.Sub(t.Truncate(24 * time.Hour)).Microseconds()
		case strings.HasSuffix(string(k), "_ns"):
			value = t.UnixNano()
		default:
			value = t.UnixMicro()
		}
	}
	if err != nil {
		return "", err
	}
	return k.text(value)
}

// column returns the column with a name, or nil.
func (s *schema) column(name string) *field {
	if i := slices.IndexFunc(s.Fields, func(f field) bool { return f.Name == name }); i >= 0 {
		return &s.Fields[i]
	}
	return nil
}

// columnByID returns the column with an ID, or nil.
func (s *schema) columnByID(id int32) *field {
	if i := slices.IndexFunc(s.Fields, func(f field) bool { return f.ID == id }); i >= 0 {
		return &s.Fields[i]
	}
	return nil
}

// mapping returns the names by which the columns are found in files without field IDs, or nil if the table has no name mapping.
func (m *metadata) mapping() (map[int32][]string, error) {
	text, ok := m.Properties["schema.name-mapping.default"]
	if !ok {
		return nil, nil
	}
	var fields []struct {
		ID    int32    `json:"field-id"`
		Names []string `json:"names"`
	}
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		return nil, fault.Inputf("properties: schema.name-mapping.default is malformed: %w", err)
	}
	names := map[int32][]string{}
	for _, f := range fields {
		names[f.ID] = f.Names
	}
	return names, nil
}

// views returns the columns of a view without the values that depend on the file.
func (m *metadata) views(fields []field) ([]columnfile.ViewColumn, error) {
	mapped, err := m.mapping()
	if err != nil {
		return nil, err
	}
	columns := make([]columnfile.ViewColumn, len(fields))
	for i, f := range fields {
		names := []string{f.Name}
		if mapped != nil {
			names = append(slices.Clone(mapped[f.ID]), "")
		}
		value, err := f.Type.given(f.Default)
		if err != nil {
			return nil, fault.Inputf("column %q: the initial-default %s is not a value of type %s: %w", f.Name, f.Default, f.Type, err)
		}
		columns[i] = columnfile.ViewColumn{Name: f.Name, ID: f.ID, Source: names[0], Former: names[1:], Value: value, Kind: f.Type.element().of(), Double: f.Type.element() == "double"}
	}
	return columns, nil
}

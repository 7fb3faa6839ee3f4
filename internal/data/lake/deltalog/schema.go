package deltalog

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"shaver/internal/base/fault"
	"shaver/internal/data/columnfile"
)

// metadata describes the table.
type metadata struct {
	ID               string
	SchemaString     string
	PartitionColumns []string
	Configuration    map[string]string
	Format           struct{ Provider string }
}

// column is a column of the table.
type column struct {
	name     string
	physical string // name in files, statistics and partition values
	id       int32  // of the field in files, or 0
	of       string // Delta's type, or that of the elements of an array
	array    bool
	kind     string // as in lake.Column
	place    int    // position among the partition columns, or -1
}

// kinds are the kinds of values by Delta's types.
var kinds = map[string]string{
	"string": columnfile.Strings, "binary": columnfile.Strings, "boolean": columnfile.Truths, "date": columnfile.Dates,
	"byte": columnfile.Numbers, "short": columnfile.Numbers, "integer": columnfile.Numbers, "long": columnfile.Numbers,
	"float": columnfile.Numbers, "double": columnfile.Numbers, "timestamp": columnfile.Instants, "timestamp_ntz": columnfile.Timestamps,
}

// parseSchema sets the columns.
func (t *table) parseSchema() error {
	var s struct {
		Fields []struct {
			Name     string
			Type     json.RawMessage
			Metadata map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(t.meta.SchemaString), &s); err != nil {
		return fault.Inputf("schemaString: %w", err)
	}
	if p := t.meta.Format.Provider; p != "" && p != "parquet" {
		return fault.Inputf("the files have the format %q, expected parquet", p)
	}
	mode := "none"
	if v := t.protocol.MinReaderVersion; v == "2" || v == "3" && slices.Contains(t.protocol.ReaderFeatures, "columnMapping") {
		mode = cmp.Or(t.meta.Configuration["delta.columnMapping.mode"], mode)
	}
	for _, f := range s.Fields {
		c := column{name: f.Name, physical: f.Name, place: slices.Index(t.meta.PartitionColumns, f.Name)}
		if c.of = typeOf(f.Type); c.of == "" {
			var a struct {
				Type        string
				ElementType json.RawMessage
			}
			if json.Unmarshal(f.Type, &a) == nil && a.Type == "array" {
				c.of, c.array = typeOf(a.ElementType), true
			}
		}
		c.kind = kinds[c.of]
		switch mode {
		case "none":
		case "name", "id":
			if err := json.Unmarshal(f.Metadata["delta.columnMapping.physicalName"], &c.physical); err != nil {
				return fault.Inputf("column %q has no delta.columnMapping.physicalName: %w", f.Name, err)
			}
			if mode == "name" {
				break
			}
			if err := json.Unmarshal(f.Metadata["delta.columnMapping.id"], &c.id); err != nil || c.id <= 0 {
				return fault.Inputf("column %q: delta.columnMapping.id is %s, expected a number above 0", f.Name, f.Metadata["delta.columnMapping.id"])
			}
		default:
			return fault.Inputf("delta.columnMapping.mode is %q, expected none, name or id", mode)
		}
		t.columns = append(t.columns, c)
	}
	for _, name := range t.meta.PartitionColumns {
		c := t.column(name)
		if c == nil {
			return fault.Inputf("the table is partitioned by %q, but has no such column", name)
		}
		t.partition = append(t.partition, c)
	}
	return nil
}

// typeOf returns the name of a type that has one. Strings of limited lengths are strings, and all decimals have one name.
func typeOf(text json.RawMessage) (name string) {
	if json.Unmarshal(text, &name) != nil {
		return ""
	}
	name, _, limited := strings.Cut(name, "(")
	if limited && (name == "char" || name == "varchar") {
		return "string"
	}
	return name
}

func (t *table) column(name string) *column {
	i := slices.IndexFunc(t.columns, func(c column) bool { return c.name == name })
	if i < 0 {
		return nil
	}
	return &t.columns[i]
}

// numeric says whether values are compared as numbers.
func (c *column) numeric() bool { return c.kind == columnfile.Numbers || c.of == "decimal" }

// settle turns the values of a tuple into texts as in columnfile, and decides whether its files are kept.
func (t *table) settle(of *tuple) error {
	for i, c := range t.partition {
		text, ok := c.text(of.values[i])
		if !ok {
			return fault.Inputf("partition column %q has the value %q, expected a value of the type %s", c.name, of.values[i], c.of)
		}
		of.values[i] = text
	}
	of.keep = true
	for _, c := range t.decided {
		column := t.column(c.Column)
		of.keep = of.keep && c.Holds([]byte(of.values[column.place]), column.numeric())
	}
	if !of.keep {
		return nil
	}
	for _, c := range t.columns {
		v := columnfile.ViewColumn{Name: c.name, Kind: c.kind, Double: c.of == "double"}
		if c.place >= 0 {
			v.Value = of.values[c.place]
		} else {
			v.Source, v.ID = c.physical, c.id
		}
		of.view = append(of.view, v)
	}
	return nil
}

// text returns the text that a value of a partition column has in columnfile, and whether it is a value of the column's type.
// Bytes must be UTF-8.
func (c *column) text(value string) (string, bool) {
	if value == "" {
		return "", true
	}
	switch bits := map[string]int{"byte": 8, "short": 16, "integer": 32, "long": 64, "float": 32, "double": 64}[c.of]; c.of {
	case "byte", "short", "integer", "long":
		x, err := strconv.ParseInt(value, 10, bits)
		return strconv.FormatInt(x, 10), err == nil
	case "float", "double":
		x, err := strconv.ParseFloat(value, bits)
		return columnfile.FloatText(x, bits), err == nil
	case "boolean":
		return map[string]string{"true": "1", "false": "0"}[value], value == "true" || value == "false"
	case "date":
		_, err := time.Parse(time.DateOnly, value)
		return value, err == nil
	case "timestamp", "timestamp_ntz":
		return timestamp(value, c.of == "timestamp", 0)
	case "binary": // some writers escape bytes twice
		return value, !strings.ContainsAny(value, "\\\ufffd")
	}
	return value, true
}

// timestamp returns the text of a point in time and more, and whether value is one. A time without a zone is one of UTC.
func timestamp(value string, zone bool, more time.Duration) (string, bool) {
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", time.DateTime} {
		if at, err := time.Parse(form, value); err == nil {
			text, err := columnfile.TimestampText(at.Add(more).UnixMicro(), 1e6, zone)
			return text, err == nil
		}
	}
	return "", false
}

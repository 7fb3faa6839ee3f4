package iceberg

import (
	"fmt"
	"strings"
	"time"

	"shaver/internal/data/columnfile"
)

// spec says how files are partitioned.
type spec struct {
	ID     int         `json:"spec-id"`
	Fields []specField `json:"fields"`
	parts  []part
}

// specField is a field by which files are partitioned.
type specField struct {
	Source    int32  `json:"source-id"`
	ID        int    `json:"field-id"`
	Name      string `json:"name"`
	Transform string `json:"transform"`
}

// id returns the field ID of field i of a spec. Version 1 may leave it out.
func (f *specField) id(i int) int {
	if f.ID == 0 {
		return 1000 + i
	}
	return f.ID
}

// part is a field by which files are partitioned, if its values have texts.
type part struct {
	id      int
	name    string // of the column if the values are the column's, or of the field
	source  int32  // ID of the column if the values are the column's
	numeric bool
	form    string // of the texts if they are parts of dates, as in package time; "" for others
	text    func(value any) (string, error)
}

// unpartitioned reports whether all files are in one partition.
func (s *spec) unpartitioned() bool {
	for _, f := range s.Fields {
		if f.Transform != "void" {
			return false
		}
	}
	return true
}

// resolve sets the parts of a spec, for rows with the columns of c. A field with an unknown transform is not one of them.
func (s *spec) resolve(c *schema) {
	s.parts = nil
	for i, f := range s.Fields {
		p := part{id: f.id(i), name: f.Name}
		var source kind
		column := c.columnByID(f.Source)
		if column != nil {
			source = column.Type
		}
		transform, _, _ := strings.Cut(f.Transform, "[")
		switch transform {
		case "identity":
			if column == nil {
				continue
			}
			p.name, p.source, p.text = column.Name, f.Source, source.text
		case "truncate":
			p.text = source.text
		case "bucket":
			source = "int"
			p.text = source.text
		case "year":
			p.form, p.text = calendar("2006", func(n int) time.Time { return time.Date(1970+n, 1, 1, 0, 0, 0, 0, time.UTC) })
		case "month":
			p.form, p.text = calendar("2006-01", func(n int) time.Time { return time.Date(1970, time.Month(1+n), 1, 0, 0, 0, 0, time.UTC) })
		case "day":
			p.form, p.text = time.DateOnly, kind("date").text
			source = "date"
		case "hour":
			p.form, p.text = calendar("2006-01-02-15", func(n int) time.Time { return time.Unix(int64(n)*3600, 0).UTC() })
		default: // void or unknown
			continue
		}
		if (transform == "identity" || transform == "truncate") && source.of() == "" {
			continue
		}
		if transform != "identity" && c.column(f.Name) != nil { // a column was renamed
			continue
		}
		p.numeric = source.of() == columnfile.Numbers
		s.parts = append(s.parts, p)
	}
}

// calendar returns the function that gives a number of years, months or hours since 1970 its text, and the form of the texts.
func calendar(form string, moment func(n int) time.Time) (string, func(value any) (string, error)) {
	return form, func(value any) (string, error) {
		n, ok := value.(int64)
		if value == nil {
			return "", nil
		}
		if ok && max(n, -n) < 1<<30 {
			if t := moment(int(n)); t.Year() >= 1 && t.Year() <= 9999 {
				return t.Format(form), nil
			}
		}
		return "", fmt.Errorf("the value is %v, expected a time in the years 1 to 9999", value)
	}
}

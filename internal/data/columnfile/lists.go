package columnfile

import (
	"errors"
	"io"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"shaver/internal/data/arrowio"
)

// parquetList is the part of a parquetColumn for lists. Parquet stores the values of all lists
// one after the other. The repetition level of a value is 0 if a row begins with it. Its
// definition level says whether the value, the list, or the row's value for the column exists.
type parquetList struct {
	listText
	exists, present int16 // smallest definition levels of a value of a list, and of one that is not null
	repeated        [parquetBatch]int16
	levels, level   int  // number of levels that are decoded, and the next one
	value           int  // next decoded value
	ended           bool // whether the chunk has no more levels
	text            []byte
	ends            [parquetBatch]int // end of each cell in text
}

func newParquetList(d *schema.Column, between byte) *parquetList {
	l := &parquetList{listText: listText{between}, exists: d.MaxDefinitionLevel(), present: d.MaxDefinitionLevel()}
	if d.SchemaNode().RepetitionType() == parquet.Repetitions.Optional {
		l.exists--
	}
	return l
}

// readLists decodes the next n cells of a column of lists.
func (c *parquetColumn) readLists(n int) error {
	l := c.list
	l.text = l.text[:0]
	for row := range n {
		from, values := len(l.text), 0
		for first := true; ; first = false {
			if l.level == l.levels && !l.ended {
				if err := c.decodeLevels(); err != nil {
					return err
				}
			}
			if l.level == l.levels {
				if first {
					return arrowio.ErrTruncated
				}
				break
			}
			if !first && l.repeated[l.level] == 0 {
				break
			}
			if first && l.repeated[l.level] != 0 {
				return errors.New("a list begins in the middle")
			}
			defined := c.defined[l.level]
			l.level++
			if defined < l.exists {
				continue
			}
			var err error
			l.text, err = l.add(l.text, from, values == 0, func(text []byte) ([]byte, error) {
				if defined < l.present {
					return text, nil
				}
				l.value++
				return append(text, c.cell(l.value-1)...), nil
			})
			if err != nil {
				return err
			}
			values++
		}
		l.ends[row] = len(l.text)
	}
	start := 0
	for row := range n {
		c.cells[row] = l.text[start:l.ends[row]]
		start = l.ends[row]
	}
	return nil
}

// decodeLevels decodes the next levels and their values.
func (c *parquetColumn) decodeLevels() error {
	l := c.list
	l.levels, l.level, l.value = 0, 0, 0
	total, values, err := c.decode(parquetBatch, 0, c.defined[:], l.repeated[:])
	if err != nil {
		return err
	}
	if total == 0 {
		if err := c.chunk.Err(); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		l.ended = true
	}
	l.levels = int(total)
	return c.format(values)
}

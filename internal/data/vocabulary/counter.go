package vocabulary

import (
	"fmt"
	"path/filepath"
	"slices"
)

// Counter counts the rows in which each value of each field occurs. When its memory is
// used up, it writes a spill, which is a file of sorted values with their counts, and
// continues with empty tables. A Counter is not safe for concurrent use. Several
// goroutines can share the work if each has its own Counter. Merge then adds up the
// spills of all Counters.
type Counter struct {
	folder string
	name   string   // prefix of the spills' names
	limit  int      // memory for the tables in bytes
	bytes  int      // memory of the tables now
	tables []table  // counts by value, one table per field
	spills []string // paths
	made   int      // number of spills created, including removed ones
}

// NewCounter returns a counter for the given number of fields. It uses about limit bytes
// of memory, at least 64 KiB, and writes its spills to folder as NAME-0, NAME-1, ...
func NewCounter(folder, name string, fields int, limit int64) *Counter {
	// With less memory, each spill would contain only a few values.
	return &Counter{folder: folder, name: name, limit: int(max(limit, 1<<16)), tables: make([]table, fields)}
}

// Add counts the values of a row, one per field.
func (c *Counter) Add(values [][]byte) error {
	if len(values) != len(c.tables) {
		panic(fmt.Sprintf("vocabulary: %d values for %d fields", len(values), len(c.tables)))
	}
	for j, value := range values {
		t := &c.tables[j]
		a, b := pack(value)
		if len(t.slots) > 0 {
			if s := t.find(value, a, b); s.number > 0 {
				s.number++
				continue
			}
		}
		if err := c.insert(t, value, a, b); err != nil {
			return err
		}
	}
	return nil
}

// AddTo counts one value of a field. The caller calls it once for each row in which the value
// occurs.
func (c *Counter) AddTo(field int, value []byte) error {
	t := &c.tables[field]
	a, b := pack(value)
	if len(t.slots) > 0 {
		if s := t.find(value, a, b); s.number > 0 {
			s.number++
			return nil
		}
	}
	return c.insert(t, value, a, b)
}

func (c *Counter) insert(t *table, value []byte, a, b uint64) error {
	more, slots := t.need(value)
	if c.bytes+more > c.limit && c.bytes > 0 {
		if err := c.Flush(); err != nil {
			return err
		}
		_, slots = t.need(value)
	}
	before := t.bytes()
	t.insert(value, a, b, 1, slots)
	c.bytes += t.bytes() - before
	return nil
}

// fanIn is the largest number of spills that are merged at once. It is small because each
// spill needs an open file and a buffer, and several fields are merged concurrently.
const fanIn = 64

// Flush writes the counts to a spill and empties the tables.
func (c *Counter) Flush() error {
	if c.bytes == 0 {
		return nil
	}
	name := c.next()
	w, err := createSpill(name, len(c.tables))
	if err != nil {
		return err
	}
	for j := range c.tables {
		if err := w.table(&c.tables[j]); err != nil {
			w.abort()
			return err
		}
		c.tables[j] = table{}
	}
	if err := w.close(); err != nil {
		return err
	}
	c.bytes = 0
	c.spills = append(c.spills, name)
	if len(c.spills) < fanIn {
		return nil
	}
	return c.join()
}

// join merges all spills into one.
func (c *Counter) join() error {
	name := c.next()
	if err := joinSpills(name, c.spills, len(c.tables)); err != nil {
		return err
	}
	c.spills = []string{name}
	return nil
}

func (c *Counter) next() string {
	c.made++
	return filepath.Join(c.folder, fmt.Sprintf("%s-%d", c.name, c.made-1))
}

// Spills returns the paths of the spills. It must be called after Flush, because counts
// that are still in memory are in no spill.
func (c *Counter) Spills() []string { return slices.Clone(c.spills) }

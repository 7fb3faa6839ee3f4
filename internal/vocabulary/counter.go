package vocabulary

import (
	"fmt"
	"path/filepath"
	"slices"
)

// Counter counts in how many rows each value of each field occurs. When its
// memory is used up it writes what it has to a spill, a file of sorted values, and
// begins anew. It is for one goroutine; several Counters share a job, and Merge
// adds up all their spills.
type Counter struct {
	folder string
	name   string // of its spills, with a number
	limit  int    // bytes
	bytes  int    // of the tables
	tables []table
	spills []string
	made   int
}

// NewCounter returns a counter of values of the given number of fields that uses
// about limit bytes, and writes spills NAME-0, NAME-1, ... to the folder.
func NewCounter(folder, name string, fields int, limit int64) *Counter {
	// Below this, there would be spills of few values.
	return &Counter{folder: folder, name: name, limit: int(max(limit, 1<<16)), tables: make([]table, fields)}
}

// Add counts a row's values, one a field.
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

// fanIn is how many spills are merged at a time: each has a file open and a buffer,
// and fields are merged side by side.
const fanIn = 64

// Flush writes what was counted to a spill and forgets it.
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

// join makes one spill of all.
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

// Spills returns the paths of the spills that were written, after Flush.
func (c *Counter) Spills() []string { return slices.Clone(c.spills) }

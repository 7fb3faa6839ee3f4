package layout

import "testing"

// Rows and their entries agree with a list of all entries, for one table, for tables of
// equal columns, and for tables of different ones.
func TestShape(t *testing.T) {
	for name, tables := range map[string][][2]int{
		"one": {{5, 3}}, "equal": {{2, 4}, {3, 4}}, "different": {{2, 1}, {1, 5}, {4, 5}, {3, 2}},
	} {
		var s Shape
		var owner []int // by entry: its row
		var starts []int
		for _, table := range tables {
			s = s.And(table[0], table[1])
			for range table[0] {
				starts = append(starts, len(owner))
				for range table[1] {
					owner = append(owner, len(starts)-1)
				}
			}
		}
		if s.Rows() != len(starts) || s.Entries() != len(owner) {
			t.Fatalf("%s: %d rows and %d entries, expected %d and %d", name, s.Rows(), s.Entries(), len(starts), len(owner))
		}
		for row, start := range starts {
			end := len(owner)
			if row+1 < len(starts) {
				end = starts[row+1]
			}
			if from, to := s.Row(row); from != start || to != end {
				t.Errorf("%s: row %d has entries [%d, %d), expected [%d, %d)", name, row, from, to, start, end)
			}
		}
		for entry, row := range owner {
			if got := s.RowOf(entry); got != row {
				t.Errorf("%s: entry %d is in row %d, expected %d", name, entry, got, row)
			}
		}
	}
	equal, one, other := Of(2, 4).And(3, 4), Of(5, 4), Of(2, 4).And(3, 5)
	if !equal.Equal(&one) || equal.Equal(&other) || equal.Dim() != 4 || other.Dim() != 0 || other.Widest() != 5 {
		t.Error("tables of equal columns are not like one table, or tables of different ones are")
	}
}

// The ranges of a shape have all its rows, and each has about the same number of entries.
func TestCut(t *testing.T) {
	for name, s := range map[string]Shape{"one": Of(100, 3), "different": Of(20, 1).And(10, 5).And(40, 2), "few": Of(3, 2)} {
		for n := 1; n <= 7; n++ {
			starts := s.Cut(n)
			entries := 0
			for i := range n {
				from, to := starts[i], starts[i+1]
				if from > to {
					t.Fatalf("%s: ranges %v", name, starts)
				}
				part := s.Part(from, to)
				if part.Rows() != to-from {
					t.Errorf("%s: range %d of %d has %d rows, expected %d", name, i, n, part.Rows(), to-from)
				}
				for row := range part.Rows() {
					left, right := s.Row(from + row)
					first, end := part.Row(row)
					if first+entries != left || end+entries != right {
						t.Errorf("%s: row %d of range %d of %d has entries [%d, %d), expected [%d, %d)", name, row, i, n, first, end, left-entries, right-entries)
					}
				}
				if most := s.Entries()/n + s.Widest(); part.Entries() > most {
					t.Errorf("%s: range %d of %d has %d entries, expected at most %d", name, i, n, part.Entries(), most)
				}
				entries += part.Entries()
			}
			if starts[0] != 0 || entries != s.Entries() {
				t.Errorf("%s: %d ranges have %d of %d entries", name, n, entries, s.Entries())
			}
		}
	}
}

// A part of a mask has the entries of its range, wherever it begins, and no bits after them.
func TestPartOfMask(t *testing.T) {
	m := NewMask(29)
	for _, i := range []int{0, 1, 7, 8, 9, 13, 16, 20, 21, 22, 23, 27, 28} {
		m.Drop(i)
	}
	for from := range 30 {
		for to := from; to <= 29; to++ {
			part := m.Part(from, to)
			if err := part.Check(to - from); err != nil {
				t.Fatalf("[%d, %d): %v", from, to, err)
			}
			for i := range to - from {
				if part.Dropped(i) != m.Dropped(from+i) {
					t.Fatalf("[%d, %d): entry %d is dropped: %t", from, to, i, part.Dropped(i))
				}
			}
		}
	}
}

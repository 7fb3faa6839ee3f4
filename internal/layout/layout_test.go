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

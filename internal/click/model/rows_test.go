package model

import "testing"

// A row in a window is named by its number in the day and the start of the day's digest.
func TestRowName(t *testing.T) {
	for number, want := range map[int64]string{
		0:                                "row 0",
		RowsPerDay - 1:                   "row 137438953471",
		0xabcdef<<2*RowsPerDay + 12:      "row 12 of the day abcdef",
		(0x00000f<<2|3)*RowsPerDay + 1:   "row 1 of the day 00000f",
		(0xffffff<<2|3)*RowsPerDay + 137: "row 137 of the day ffffff",
	} {
		if got := RowName(number); got != want {
			t.Errorf("%d is %q, want %q", number, got, want)
		}
	}
}

package cli

import (
	"fmt"
)

// Metric returns v with six decimals, or "-" if it is undefined.
func Metric(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.6f", *v)
}

// Size returns a number of bytes with a unit.
func Size(bytes int64) string {
	v, units := float64(bytes), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for v >= 1024 && len(units) > 1 {
		v, units = v/1024, units[1:]
	}
	if v >= 1000 { // %.3g would print an exponent
		return fmt.Sprintf("%.0f %s", v, units[0])
	}
	return fmt.Sprintf("%.3g %s", v, units[0])
}

// Change says how a size in bytes changed.
func Change(before, after int64) string {
	if after == before {
		return Size(after) + ", unchanged"
	}
	percent := 100 * (float64(after)/float64(before) - 1)
	word := "larger"
	if percent < 0 {
		percent, word = -percent, "smaller"
	}
	return fmt.Sprintf("%s -> %s, %.0f%% %s", Size(before), Size(after), percent, word)
}

// DaysHelp ends the help of flags that take a dataset.
const DaysHelp = "the folders of a window's days, the oldest first, separated by commas"

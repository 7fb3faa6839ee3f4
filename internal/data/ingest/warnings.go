package ingest

import (
	"bytes"
	"fmt"
	"slices"

	"shaver/internal/data/dataset"
	"shaver/internal/data/vocabulary"
)

// oneKind returns a warning for each split whose labels are all 0 or all 1.
func oneKind(m *dataset.Manifest) (warnings []string) {
	for _, s := range m.Splits {
		if n := s.Positives; n != nil && s.Rows > 1 && (*n == 0 || *n == s.Rows) {
			warnings = append(warnings, fmt.Sprintf("split %s: all %d rows have the label %d, so no AUC can be measured on it: expected rows with label 0 and rows with label 1", s.Name, s.Rows, *n/s.Rows))
		}
	}
	return warnings
}

// smallTrain returns a warning for each split that has more than twice the rows of train.
func smallTrain(m *dataset.Manifest) (warnings []string) {
	at := slices.IndexFunc(m.Splits, func(s dataset.Split) bool { return s.Name == dataset.Train })
	for _, s := range m.Splits {
		if at >= 0 && s.Rows > 2*m.Splits[at].Rows {
			warnings = append(warnings, fmt.Sprintf("split %s has %d rows and split train only %d: check that their files are not swapped", s.Name, s.Rows, m.Splits[at].Rows))
		}
	}
	return warnings
}

// leastDecimals is the number of values from which a field may be a measure, such as a price. Fewer values may be
// versions or sizes.
const leastDecimals = 1000

// measures returns a warning for each field of which most values have decimals other than 0.
func measures(names []string, fields []*vocabulary.Field) (warnings []string, err error) {
	for j, f := range fields {
		values, decimals := 0, 0
		err := f.Each(func(value []byte, has bool) error {
			if has {
				values++
				if hasDecimals(value) {
					decimals++
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if values >= leastDecimals && decimals > values/2 {
			warnings = append(warnings, fmt.Sprintf("field %s: most of its %d values have decimals, as measures have: expected ids; make a price or a duration a dense input", names[j], values))
		}
	}
	return warnings, nil
}

// hasDecimals reports whether value is a number such as 12.5, with decimals that are not all 0.
func hasDecimals(value []byte) bool {
	whole, decimals, _ := bytes.Cut(bytes.TrimPrefix(value, []byte("-")), []byte("."))
	digits := func(text []byte) bool { return len(text) > 0 && len(bytes.Trim(text, "0123456789")) == 0 }
	return digits(whole) && digits(decimals) && len(bytes.Trim(decimals, "0")) > 0
}

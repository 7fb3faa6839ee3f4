package dataset

// LargestWeight returns the largest weight of a row that readers deliver. It is 1 if all rows count once.
func (d *Dataset) LargestWeight() int64 {
	largest, most := int64(1), int64(1)
	if divisor := d.Weights.divisor(); divisor > 0 {
		largest = d.Weights.Largest / divisor
	}
	for _, t := range d.tasks {
		most = max(most, t.Weight)
	}
	return largest * most
}

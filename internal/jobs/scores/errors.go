package scores

import (
	"fmt"
	"math"
	"strings"
)

// AggregateSE returns the standard error of the named aggregate of each entry, nat. It
// measures how far the aggregate may be from that of the population from which the rows
// come. Whether an entry belongs above a cut is a question about that population: the
// pruned model will see other rows, and tonight's rows are not last night's. The errors of
// a paired job include what a full job would not have, PairedSE and its like.
//
//   - Sum: PopulationSE.
//   - Abs: the mean square and the mean determine the variance of |c| between rows.
//   - RMS: the variance of c^2 needs fourth powers, which no job sums. They are modelled
//     from the shape of the contributions in the rows that activate the entry. Let k2 be
//     their mean square divided by the square of their mean absolute value. Their fourth
//     moment is taken to be k2^3 times the square of their second moment. For a normal
//     distribution this gives 3.9, and the truth is 3; for an exponential one 8 and 6; for
//     contributions that are equal in magnitude 1 and 1. A log-normal distribution has
//     k2^4. With q rows out of n, the error is rms/2 * sqrt(k2^3/q - 1/n).
//
// An entry in a single row has no variance between rows. As in tally.Sampling, its error is
// then about as large as the value. For RMS it is at most half of the value. An entry that
// does not occur has an error of 0, unless it inherits one. A path has no errors.
func (f *File) AggregateSE(aggregate string) ([]float64, error) {
	if f.Ranks() {
		return nil, fmt.Errorf("the scores have the order of a path, which has no standard errors: they need scores of an estimator of values, such as debiased")
	}
	errors := make([]float64, len(f.Phi))
	switch aggregate {
	case Sum:
		for i, se := range f.PopulationSE {
			errors[i] = float64(se)
		}
	case Abs:
		n := float64(f.fullRows())
		for i := range errors {
			mean, root := float64(f.Abs[i]), float64(f.RMS[i])
			between := root * root
			if n > 1 {
				between = max(0, between-mean*mean) * n / (n - 1)
			}
			errors[i] = math.Sqrt(between / n)
		}
		addErrors(errors, f.AbsPairedSE)
	case RMS:
		scored, full := float64(f.Rows), float64(f.fullRows())
		for feature, count := range f.Count {
			from, to := f.Shape.Row(feature)
			for i := from; i < to && count > 0; i++ {
				occurrences := float64(count) * full / scored
				errors[i] = rmsError(float64(f.Abs[i]), float64(f.RMS[i]), occurrences, full)
			}
		}
		addErrors(errors, f.RMSPairedSE)
	default:
		return nil, fmt.Errorf("aggregate %q: the aggregates are %s", aggregate, strings.Join(Aggregates(), ", "))
	}
	return errors, nil
}

// fullRows returns the number of rows that determine the errors of the aggregates, without
// what a paired job adds. The errors of a paired job are relative to a full job, which
// scores all rows of the dataset. A file without rows counts as one.
func (f *File) fullRows() int64 {
	if f.Lineage != nil {
		return max(1, f.DatasetRows)
	}
	return max(1, f.Rows)
}

// rmsError returns the standard error of a root mean square over the given number of rows.
// The entry occurs in some of them; abs and rms are means over all of them.
func rmsError(abs, rms, occurrences, rows float64) float64 {
	if !(abs > 0) {
		return 0
	}
	k2 := max(1, rms/abs*(rms/abs)*(occurrences/rows)) // rounding may make it less than 1
	return rms / 2 * math.Sqrt(max(0, k2*k2*k2/occurrences-1/rows))
}

// addErrors adds independent errors. more may be nil.
func addErrors(errors []float64, more []float32) {
	for i, se := range more {
		errors[i] = math.Hypot(errors[i], float64(se))
	}
}

package ingest

import (
	"errors"
	"fmt"

	"shaver/internal/base/fault"
)

// Policies for rows that are not valid.
const (
	Fail = "fail" // the first bad row ends the import
	Skip = "skip" // bad rows are left out, their lines are counted, and the first messages are kept
)

// keptMessages is the number of bad rows whose messages are kept.
const keptMessages = 5

// badRows applies the policy for bad rows, and counts the rows that are left out.
type badRows struct {
	policy string  // Fail or Skip
	lines  int64   // number of lines that were left out
	first  []error // of the first bad rows, at most keptMessages
}

func newBadRows(policy string) (badRows, error) {
	switch policy {
	case Fail, Skip:
	case "":
		policy = Fail
	default:
		return badRows{}, fault.Usagef("the policy for bad rows is %q, expected %s or %s", policy, Fail, Skip)
	}
	return badRows{policy: policy}, nil
}

// reject records a bad row of the given number of lines, with the error err. If the
// policy is Fail, it returns an error that wraps err, which ends the import.
func (b *badRows) reject(err error, lines int) error {
	if b.policy == Fail {
		switch {
		case errors.As(err, new(numberLabel)):
			err = fault.Setting(fmt.Errorf("%w: labels may be numbers, such as ratings", err), NumberLabelsSetting)
		case errors.Is(err, errNoLabel):
			err = fault.Setting(fmt.Errorf("%w: rows without a label can be left out", err), BadRowSetting)
		}
		return err
	}
	b.lines += int64(lines)
	if len(b.first) < keptMessages {
		b.first = append(b.first, err)
	}
	return nil
}

// add adds bad rows that come later in the input.
func (b *badRows) add(other *badRows) {
	b.lines += other.lines
	b.first = append(b.first, other.first[:min(len(other.first), keptMessages-len(b.first))]...)
}

func (b *badRows) reset() { b.lines, b.first = 0, nil }

func (b *badRows) messages() (texts []string) {
	for _, err := range b.first {
		texts = append(texts, err.Error())
	}
	return texts
}

// badRow wraps an error that a visit function returns to reject the row as bad.
type badRow struct{ error }

func (b badRow) Unwrap() error { return b.error }

func isBad(err error) bool { _, bad := err.(badRow); return bad }

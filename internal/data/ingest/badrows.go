package ingest

import (
	"errors"
	"fmt"

	"shaver/internal/base/fault"
	"shaver/internal/data/rawtext"
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
	policy   string   // Fail or Skip
	lines    int64    // number of lines that were left out
	messages []string // messages about the first bad rows, at most keptMessages
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
		var number *rawtext.NumberLabel
		switch {
		case errors.As(err, &number):
			err = fault.Setting(fmt.Errorf("%w: labels may be numbers, such as ratings", err), NumberLabelsSetting)
		case errors.Is(err, rawtext.ErrNoLabel):
			err = fault.Setting(fmt.Errorf("%w: rows without a label can be left out", err), BadRowSetting)
		}
		return err
	}
	b.lines += int64(lines)
	if len(b.messages) < keptMessages {
		b.messages = append(b.messages, err.Error())
	}
	return nil
}

// add adds bad rows that come later in the input.
func (b *badRows) add(other *badRows) {
	b.lines += other.lines
	b.messages = append(b.messages, other.messages[:min(len(other.messages), keptMessages-len(b.messages))]...)
}

func (b *badRows) reset() { b.lines, b.messages = 0, nil }

// badRow wraps an error that a visit function returns to reject the row as bad.
type badRow struct{ error }

func (b badRow) Unwrap() error { return b.error }

func isBad(err error) bool { _, bad := err.(badRow); return bad }

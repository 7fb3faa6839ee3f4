package ingest

import "shaver/internal/fault"

// What to do with a row that is not valid.
const (
	Fail = "fail" // the first bad row ends the import
	Skip = "skip" // leave bad rows out, count their lines and keep the first messages
)

// keptMessages is the number of bad rows whose messages are kept.
const keptMessages = 5

// badRows deals with bad rows.
type badRows struct {
	policy   string // Fail or Skip
	lines    int64  // number of lines that were left out
	messages []string
}

func newBadRows(policy string) (badRows, error) {
	switch policy {
	case Fail, Skip:
	case "":
		policy = Fail
	default:
		return badRows{}, fault.Usagef("on a bad row: %q, expected %s or %s", policy, Fail, Skip)
	}
	return badRows{policy: policy}, nil
}

// reject leaves out a bad row of the given number of lines. It returns err if that
// ends the import.
func (b *badRows) reject(err error, lines int) error {
	if b.policy == Fail {
		return err
	}
	b.lines += int64(lines)
	if len(b.messages) < keptMessages {
		b.messages = append(b.messages, err.Error())
	}
	return nil
}

// add adds the bad rows of input that comes after b's.
func (b *badRows) add(other *badRows) {
	b.lines += other.lines
	b.messages = append(b.messages, other.messages[:min(len(other.messages), keptMessages-len(b.messages))]...)
}

func (b *badRows) reset() { b.lines, b.messages = 0, nil }

// badRow is an error of visit that makes the row a bad one.
type badRow struct{ error }

func isBad(err error) bool { _, bad := err.(badRow); return bad }

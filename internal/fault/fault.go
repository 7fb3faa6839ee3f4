// Package fault classifies errors, because the kind of an error decides what happens
// next. Bad input is never retried, and a command exits with code 42. Wrong usage exits
// with code 2. Any other error comes from the environment and may go away when the
// operation is retried.
//
// Any package may import fault. It imports no other package of the project.
package fault

import (
	"errors"
	"fmt"
)

type kind struct {
	name string
	err  error
}

func (k *kind) Error() string { return k.err.Error() }
func (k *kind) Unwrap() error { return k.err }

const (
	input = "input"
	usage = "usage"
)

func is(err error, name string) bool {
	var k *kind
	return errors.As(err, &k) && k.name == name
}

// Inputf returns a bad-input error, formatted as by fmt.Errorf. It means that the bytes
// or values from the user are wrong, so that a retry would fail in the same way. The text
// must name the file, row, field or tensor, and say what was expected.
func Inputf(format string, args ...any) error {
	return &kind{input, fmt.Errorf(format, args...)}
}

// IsInput reports whether the outermost kind that err wraps is bad input.
func IsInput(err error) bool { return is(err, input) }

// Usagef returns a wrong-usage error, formatted as by fmt.Errorf. It means that the
// command line asks for something that does not exist, or that its parts contradict each
// other.
func Usagef(format string, args ...any) error {
	return &kind{usage, fmt.Errorf(format, args...)}
}

// IsUsage reports whether the outermost kind that err wraps is wrong usage.
func IsUsage(err error) bool { return is(err, usage) }

// settingError is an error about settings.
type settingError struct {
	names []string
	err   error
}

func (s *settingError) Error() string { return s.err.Error() }
func (s *settingError) Unwrap() error { return s.err }

// Setting returns err with the names of the settings that the user can change to
// avoid it. A package that has settings but no command line documents their names
// and speaks of them in words; a command, which knows its flags, asks Settings for
// the names and adds the flags to the message. The text and the kind stay err's.
func Setting(err error, names ...string) error { return &settingError{names, err} }

// Settings returns the names that Setting gave the outermost such error that err
// wraps, nil if there is none.
func Settings(err error) []string {
	var s *settingError
	if errors.As(err, &s) {
		return s.names
	}
	return nil
}

// Package fault says what kind of failure an error is, because the kind
// decides what happens next: bad input is never tried again and ends a command
// with exit code 42, wrong usage with 2, a job that stopped short of its
// precision with 3. Everything else is the world's failure, which may pass.
//
// Any package may import this one; it imports none of ours.
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

// Inputf returns an error, formatted as by fmt.Errorf, that says: the bytes or
// values the user gave are wrong, and doing the same again gives the same. The
// text names the file, row, field or tensor, and what was expected.
func Inputf(format string, args ...any) error {
	return &kind{input, fmt.Errorf(format, args...)}
}

// IsInput reports whether the outermost kind that err wraps is bad input.
func IsInput(err error) bool { return is(err, input) }

// Usagef returns an error that says: the command line asks for something that
// does not exist or does not fit together.
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

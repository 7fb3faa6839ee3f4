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

// settingError is an error that the user can avoid by changing settings.
type settingError struct {
	names []string
	err   error
}

func (s *settingError) Error() string { return s.err.Error() }
func (s *settingError) Unwrap() error { return s.err }

// Setting returns err with the names of the settings that the user can change to avoid
// it. Its text and kind are those of err. A package without a command line documents the
// names of its settings and describes them in words. A command gets the names from
// Settings, and adds the flags that stand for them to the message.
func Setting(err error, names ...string) error { return &settingError{names, err} }

// Settings returns the names of the settings in the outermost error of Setting that err
// wraps. It returns nil if err wraps no such error.
func Settings(err error) []string {
	var s *settingError
	if errors.As(err, &s) {
		return s.names
	}
	return nil
}

// Refused is an error about the value of a setting, apart from all other settings. Its text names the setting as a flag. A file
// with settings names the place of the setting, its value and Why.
type Refused struct {
	Setting string
	Value   any
	Why     string
}

func (r *Refused) Error() string {
	verb := "%v"
	if _, ok := r.Value.(string); ok {
		verb = "%q"
	}
	return fmt.Sprintf("--%s "+verb+": %s", r.Setting, r.Value, r.Why)
}

// Refuse returns a wrong-usage error that is a Refused. why says what was expected.
func Refuse(setting string, value any, why string) error {
	return &kind{usage, &Refused{setting, value, why}}
}

package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// OwnIDs is the Vocabulary of a field whose ids stand for themselves, because its rows came as
// ids and not as values.
const OwnIDs = "ids"

// Identity says what the ids of a field stand for. Two fields with the same identity have the
// same ids.
type Identity struct {
	Name string `json:"name"`
	// Vocabulary is the SHA-256, in hexadecimal, of the field's vocabulary file, which has a
	// line for each id in ascending order, or OwnIDs.
	Vocabulary string `json:"vocabulary"`
	Bytes      int64  `json:"bytes,omitempty"` // size of that file
	Pads       string `json:"pads,omitempty"`  // side on which a list is filled: Front, or empty for End
}

// Standard says what turned the numbers of a dense input into what the model reads. Package dense defines the rules.
type Standard struct {
	Name      string   `json:"name"`
	Rule      string   `json:"rule"`
	Mean      *float64 `json:"mean,omitempty"`      // if the rule has one
	Deviation *float64 `json:"deviation,omitempty"` // if the rule has one
	Missing   *float64 `json:"missing,omitempty"`   // number that replaced missing ones, before the rule
}

// String describes the rule and what replaces missing numbers. Two inputs standardise all numbers in
// the same way if and only if the texts are equal.
func (s *Standard) String() string {
	text := s.Rule
	if s.Mean != nil && s.Deviation != nil {
		text += fmt.Sprintf("=%v/%v", *s.Mean, *s.Deviation)
	}
	if s.Missing != nil {
		text += fmt.Sprintf(" with %v for missing numbers", *s.Missing)
	}
	return text
}

// Known is what the file of a model says about the model's fields and dense inputs.
type Known struct {
	File   string     // of the model
	Names  []string   // as the graph or the framework names the fields; nil = it does not
	Fields []Identity // nil = the file does not say what the ids stand for
	Sizes  []int      // number of features of each field
	Dense  []string   // names of the dense inputs
	// Standards describe the dense inputs. They are nil if the file does not say how their numbers were standardised.
	Standards []Standard
	// Logit says how the logit follows from the output of the graph, if this is a probability; otherwise "".
	Logit string
	// Tasks are those for which the model is used, or nil. Rows are then those of the tasks, as Dataset.ForTasks has them.
	Tasks  []Task
	Output string // name of the output that was chosen without a task, or ""
	// Ignored is a sentence without a full stop on inputs that the output does not depend on, or "". It may say why fields are missing.
	Ignored string
}

// FieldNames returns the names of the model's fields, or nil if the file does not name them.
func (k *Known) FieldNames() []string {
	if k.Fields == nil {
		return k.Names
	}
	names := make([]string, len(k.Fields))
	for j, f := range k.Fields {
		names[j] = f.Name
	}
	return names
}

// Unknown returns a sentence, without a full stop, which says that ids, or numbers of dense inputs, are
// taken for those of the dataset. It is "" if the file says what they stand for.
func (k *Known) Unknown() string {
	switch {
	case k.Fields != nil && k.Standards == nil && len(k.Dense) > 0:
		return k.File + " does not say by which rules its dense inputs were standardised, so they are taken for those of the dataset (shaver model convert --dataset writes a file that says it)"
	case k.Fields != nil:
		return ""
	}
	return k.File + " does not say which fields and vocabularies it was trained with, so its ids are taken for those of the dataset (shaver model convert --dataset writes a file that says it)"
}

// Precedes returns an error if both files say what their ids stand for, and those of k differ from
// those of a later model. Fields that have grown are compared by their names only, because the
// files have no values.
func (k *Known) Precedes(later *Known) error {
	for j, f := range k.Fields {
		if later.Fields == nil || j >= len(later.Fields) {
			break
		}
		switch g := later.Fields[j]; {
		case f.Name != g.Name:
			return fmt.Errorf("field %d is %q in %s and %q in %s: expected the same fields", j, f.Name, k.File, g.Name, later.File)
		case f.Vocabulary != g.Vocabulary && k.Sizes[j] == later.Sizes[j]:
			return fmt.Errorf("field %d (%s) has another vocabulary in %s than in %s (SHA-256 %.12s and %.12s): expected models of one vocabulary", j, f.Name, k.File, later.File, f.Vocabulary, g.Vocabulary)
		}
	}
	return nil
}

// CheckIdentities returns an error unless list has a valid identity for each of the given
// number of fields.
func CheckIdentities(list []Identity, fields int) error {
	if len(list) != fields {
		return fmt.Errorf("it has %d fields, expected %d", len(list), fields)
	}
	seen := map[string]bool{}
	for j, f := range list {
		switch {
		case f.Name == "":
			return fmt.Errorf("field %d has no name", j)
		case seen[f.Name]:
			return fmt.Errorf("two fields are named %q", f.Name)
		}
		seen[f.Name] = true
		if err := f.check(); err != nil {
			return fmt.Errorf("field %d (%q): %w", j, f.Name, err)
		}
	}
	return nil
}

// StandardsOf returns the standard of each dense input in list, which may have more. It returns an error if one lacks a standard,
// has two, or has an invalid one.
func StandardsOf(list []Standard, inputs []string) ([]Standard, error) {
	found := make([]Standard, len(inputs))
	for i, s := range list {
		at := slices.Index(inputs, s.Name)
		switch {
		case at < 0:
			continue
		case found[at].Name != "":
			return nil, fmt.Errorf("two dense inputs are named %q", s.Name)
		case s.Rule == "" || strings.Trim(s.Rule, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
			return nil, fmt.Errorf("dense input %d (%q) has the rule %q: expected the name of a rule", i, s.Name, s.Rule)
		case (s.Mean == nil) != (s.Deviation == nil):
			return nil, fmt.Errorf("dense input %d (%q) has only one of mean and deviation", i, s.Name)
		}
		found[at] = s
	}
	for at, name := range inputs {
		if found[at].Name == "" {
			return nil, fmt.Errorf("the dense input %q is missing", name)
		}
	}
	return found, nil
}

func (f *Identity) check() error {
	if f.Pads != "" && f.Pads != Front {
		return fmt.Errorf("its pads are at %q, expected %q or nothing", f.Pads, Front)
	}
	if f.Vocabulary == OwnIDs {
		if f.Bytes != 0 {
			return fmt.Errorf("it has %d bytes of a vocabulary, but its ids stand for themselves", f.Bytes)
		}
		return nil
	}
	valid := len(f.Vocabulary) == 64 && f.Bytes >= 0
	for _, c := range f.Vocabulary {
		valid = valid && (c >= '0' && c <= '9' || c >= 'a' && c <= 'f')
	}
	if !valid {
		return errors.New("expected the SHA-256 of a vocabulary in hexadecimal digits and its size, or " + OwnIDs)
	}
	return nil
}

package model

import (
	"strings"
	"testing"
)

// Two files of models whose fields have other names, or other vocabularies of the same size, do not
// follow each other. A field that grew, and a file that does not know its fields, pass.
func TestKnownPrecedes(t *testing.T) {
	of := func(file string, size int, names, vocabularies string) *Known {
		k := &Known{File: file}
		for j, name := range strings.Fields(names) {
			k.Fields = append(k.Fields, Identity{Name: name, Vocabulary: strings.Fields(vocabularies)[j]})
			k.Sizes = append(k.Sizes, size)
		}
		return k
	}
	yesterday := of("yesterday", 4, "user item", "aa bb")
	for _, c := range []struct {
		later *Known
		want  string
	}{
		{of("today", 4, "user item", "aa bb"), ""},
		{of("today", 5, "user item", "cc dd"), ""},
		{&Known{File: "today", Sizes: []int{4, 4}}, ""},
		{of("today", 4, "item user", "aa bb"), `field 0 is "user" in yesterday and "item" in today`},
		{of("today", 4, "user item", "aa cc"), "field 1 (item) has another vocabulary in yesterday than in today"},
	} {
		err := yesterday.Precedes(c.later)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, expected %q", c.later, err, c.want)
		}
	}
}

package main

import (
	"regexp"
	"strings"
	"testing"
)

// habits are the phrases that CONTRIBUTING.md asks us not to write.
var habits = regexp.MustCompile(`(?i)\b(is none|are none|told|tells|beside|anew|so many|but for|thrown away|in vain|for ever|of ours|that one needs|one looks up|without a word|gains the more|punctual|say the same|mends?|also when|heeds?|their last word)\b`)

// No text of the repository has a phrase that CONTRIBUTING.md advises against.
func TestHabits(t *testing.T) {
	texts, err := read("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range texts {
		if strings.HasPrefix(s.place, "docs/prose/main_test.go:") || strings.HasPrefix(s.place, "CONTRIBUTING.md:") {
			continue // these files name the phrases
		}
		if found := habits.FindString(s.text); found != "" && found != "is None" { // Python's None

			t.Errorf("%s: %q in: %s", s.place, found, s.text)
		}
	}
}

// Every kind of text is found, and the same seed gives the same sample.
func TestSample(t *testing.T) {
	texts, err := read("../..")
	if err != nil {
		t.Fatal(err)
	}
	first, second := sample(texts, 50, 7), sample(texts, 50, 7)
	kinds := map[string]int{}
	for i, s := range first {
		kinds[s.kind]++
		if s != second[i] {
			t.Errorf("sentence %d differs: %v, %v", i, s, second[i])
		}
	}
	if len(first) != 50 || kinds[help] != 13 || kinds[message] != 13 || kinds[comment] != 12 || kinds[page] != 12 {
		t.Errorf("%d sentences: %v", len(first), kinds)
	}
}

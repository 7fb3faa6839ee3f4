package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const evidence = "../evidence"

// numbersOf returns the numbers of lines, such as .7917, 1.9 and 45.2%.
func numbersOf(lines ...string) map[string]bool {
	numbers := map[string]bool{}
	for _, line := range lines {
		for _, n := range strings.FieldsFunc(line, func(r rune) bool { return !strings.ContainsRune("0123456789.%", r) }) {
			numbers[strings.TrimRight(n, ".")] = true
		}
	}
	return numbers
}

var accuracy = regexp.MustCompile(`^\.\d{3,}$`) // .7917, as we write an AUC

// Every AUC of README and the guide is in a page that says how it was measured.
func TestFigures(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(evidence, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	measured := map[string]bool{}
	for _, p := range pages {
		maps.Copy(measured, numbersOf(prose(t, p)...))
	}
	guide, err := filepath.Glob("../guide/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, p := range append(guide, "../../README.md") {
		for n := range numbersOf(prose(t, p)...) {
			if accuracy.MatchString(n) {
				found++
				if !measured[n] {
					t.Errorf("%s: docs/evidence does not have the figure %s", filepath.Base(p), n)
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("%d figures were found, expected at least 50", found)
	}
}

// Each claim of the guide's results names a page that has all its figures.
func TestClaims(t *testing.T) {
	text, err := os.ReadFile("../guide/results.md")
	if err != nil {
		t.Fatal(err)
	}
	claims := strings.Split(string(text), "\n- ")[1:]
	if len(claims) < 10 {
		t.Fatalf("%d claims were found, expected at least 10", len(claims))
	}
	for _, claim := range claims {
		claim, _, _ = strings.Cut(claim, "\n\n")
		measured := map[string]bool{}
		for _, l := range link.FindAllStringSubmatch(claim, -1) {
			if path, _, _ := strings.Cut(l[1], "#"); strings.HasPrefix(path, evidence+"/") {
				maps.Copy(measured, numbersOf(prose(t, path)...))
			}
		}
		if len(measured) == 0 {
			t.Errorf("no page of docs/evidence is named for the claim %q", claim)
		}
		for n := range numbersOf(link.ReplaceAllString(claim, "]")) {
			if len(n) > 1 && !rounded(n, measured) { // one digit is often a word
				t.Errorf("the pages named do not have the figure %s of the claim %q", n, claim)
			}
		}
	}
}

// rounded reports whether n is one of some numbers, perhaps with fewer digits.
func rounded(n string, numbers map[string]bool) bool {
	if numbers[n] {
		return true
	}
	text := strings.TrimSuffix(n, "%")
	_, decimals, _ := strings.Cut(text, ".")
	want, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return false
	}
	for m := range numbers {
		v, err := strconv.ParseFloat(strings.TrimSuffix(m, "%"), 64)
		if err == nil && strings.HasSuffix(m, "%") == strings.HasSuffix(n, "%") && strconv.FormatFloat(v, 'f', len(decimals), 64) == strconv.FormatFloat(want, 'f', len(decimals), 64) {
			return true
		}
	}
	return false
}

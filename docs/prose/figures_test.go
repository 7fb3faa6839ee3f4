package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const evidence = "../evidence"

var (
	accuracy = regexp.MustCompile(`(?:^|[^\w.])(\.\d{3,})\b`)                     // .7917, as we write an AUC
	figure   = regexp.MustCompile(`(?:^|[^\w.])(\d*\.\d+%?|\d+%|\d{2,})(?:\W|$)`) // any number but a digit
)

// Every figure of README and the guide is in a page that says how it was measured.
func TestFigures(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(evidence, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, p := range pages {
		all.WriteString(strings.Join(prose(t, p), "\n"))
	}
	guide, err := filepath.Glob("../guide/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, p := range append(guide, "../../README.md") {
		for _, line := range prose(t, p) {
			for _, f := range accuracy.FindAllStringSubmatch(line, -1) {
				found++
				if !strings.Contains(all.String(), f[1]) {
					t.Errorf("%s: docs/evidence does not have the figure %s", filepath.Base(p), f[1])
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
		var page strings.Builder
		for _, l := range link.FindAllStringSubmatch(claim, -1) {
			if path, _, _ := strings.Cut(l[1], "#"); strings.HasPrefix(path, evidence+"/") {
				page.WriteString(strings.Join(prose(t, path), "\n"))
			}
		}
		if page.Len() == 0 {
			t.Errorf("no page of docs/evidence is named for the claim %q", claim)
		}
		for _, f := range figure.FindAllStringSubmatch(link.ReplaceAllString(claim, "]"), -1) {
			if !strings.Contains(page.String(), f[1]) {
				t.Errorf("the pages named do not have the figure %s of the claim %q", f[1], claim)
			}
		}
	}
}

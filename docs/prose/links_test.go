package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`^#+ (.*)$`)
	marks   = regexp.MustCompile("[^a-z0-9 _-]")
)

// Every link of a page names a file of this repository, and its anchor is a heading of
// that file.
func TestLinks(t *testing.T) {
	const root = "../.."
	texts, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]bool{}
	for _, s := range texts {
		if s.kind == page {
			name, _, _ := strings.Cut(s.place, ":")
			pages[name] = true
		}
	}
	links := 0
	for name := range pages {
		for _, l := range linksOf(t, filepath.Join(root, name)) {
			if strings.Contains(l, "://") {
				continue
			}
			links++
			path, anchor, _ := strings.Cut(l, "#")
			target := filepath.Join(root, name)
			if path != "" {
				target = filepath.Join(root, filepath.Dir(name), filepath.FromSlash(path))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link %s: %v", name, l, err)
			} else if anchor != "" && !anchors(t, target)[anchor] {
				t.Errorf("%s: link %s: the page has no such heading", name, l)
			}
		}
	}
	if links < 50 {
		t.Errorf("%d links were found, expected at least 50", links)
	}
}

// prose returns the lines of a page that are not code.
func prose(t *testing.T, path string) (lines []string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fenced := false
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		} else if !fenced {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

func linksOf(t *testing.T, path string) (links []string) {
	t.Helper()
	for _, line := range prose(t, path) {
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			links = append(links, m[1])
		}
	}
	return links
}

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(t *testing.T, path string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, line := range prose(t, path) {
		if m := heading.FindStringSubmatch(line); m != nil {
			text := marks.ReplaceAllString(strings.ToLower(m[1]), "")
			all[strings.ReplaceAll(text, " ", "-")] = true
		}
	}
	return all
}

// Every path in docs/internals/extending.md is in this repository, except those with a name
// in capital letters, which stands for a new file.
func TestExtendingPaths(t *testing.T) {
	const root = "../.."
	data, err := os.ReadFile(filepath.Join(root, "docs", "internals", "extending.md"))
	if err != nil {
		t.Fatal(err)
	}
	paths := regexp.MustCompile("`((?:cmd|docs|internal|schemas|testdata)/[a-zA-Z0-9_./-]+)`").FindAllSubmatch(data, -1)
	if len(paths) < 40 {
		t.Errorf("%d paths were found, expected at least 40", len(paths))
	}
	placeholder := regexp.MustCompile(`[A-Z]{2,}`)
	for _, p := range paths {
		path := string(p[1])
		if placeholder.MatchString(path) {
			path = filepath.Dir(path)
		}
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(path))); err != nil {
			t.Errorf("extending.md names a file that is not there: %v", err)
		}
	}
}

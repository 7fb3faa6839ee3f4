package main

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"shaver/internal/app/cli"
)

// referenceDir holds the command reference, which "make generate" writes.
var referenceDir = filepath.Join("..", "..", "docs", "reference", "cli")

var manDir = flag.String("man", "", "folder to write the man pages into")

// documented returns the three programs with long texts in Markdown.
func documented() []*cobra.Command {
	all := roots()
	var convert func(c *cobra.Command)
	convert = func(c *cobra.Command) {
		c.DisableAutoGenTag = true // it has a date
		c.Long = markdown(c.Long)
		for _, sub := range c.Commands() {
			convert(sub)
		}
	}
	for _, root := range all {
		convert(root)
	}
	return all
}

// markdown returns the text of a help as Markdown: indented lines are code.
func markdown(text string) string {
	escape := strings.NewReplacer("*", `\*`, "_", `\_`, "<", `\<`)
	var b strings.Builder
	code := false
	fence := func(on bool) {
		if on != code {
			b.WriteString("```\n")
		}
		code = on
	}
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case strings.HasPrefix(line, "  "):
			if !code && !strings.HasSuffix(b.String(), "\n\n") {
				b.WriteString("\n")
			}
			fence(true)
			b.WriteString(line + "\n")
		default:
			fence(false)
			b.WriteString(escape.Replace(line) + "\n")
		}
	}
	fence(false)
	return strings.TrimSpace(b.String())
}

// reference returns the pages of the command reference, by file name.
func reference(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	scoring, _, err := documented()[0].Find([]string{"score"})
	if err != nil {
		t.Fatal(err)
	}
	var add func(c *cobra.Command)
	add = func(c *cobra.Command) {
		var page bytes.Buffer
		page.WriteString("<!-- Written by make generate from the help texts. -->\n\n")
		if err := doc.GenMarkdown(c, &page); err != nil {
			t.Fatal(err)
		}
		usages := c.NonInheritedFlags().FlagUsages()
		lacking, extended := hideFlagsOf(scoring, c)
		text := strings.Replace(page.String(), usages, strings.TrimPrefix(cli.FlagHelp(c), "Flags:\n")+"\n", 1)
		if extended {
			except := ""
			if len(lacking) > 0 {
				except = " without " + strings.Join(lacking, " and ")
			}
			text = strings.Replace(text, "### Options\n", "### Options\nThe flags of [shaver score](shaver_score.md)"+except+", and these:\n", 1)
		}
		if c.IsAdditionalHelpTopicCommand() {
			before, after, _ := strings.Cut(text, "### Options\n")
			_, after, _ = strings.Cut(after, "### SEE ALSO")
			text = before + "### SEE ALSO" + after
		}
		pages[strings.ReplaceAll(c.CommandPath(), " ", "_")+".md"] = strings.TrimSpace(text) + "\n"
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
				add(sub)
			}
		}
	}
	for _, root := range documented() {
		add(root)
	}
	return pages
}

// hideFlagsOf hides the flags that c has in common with base, if c is another command that has all flags of base but one or
// two. It returns which it lacks, and reports whether it is such a command. A flag that means something else stays.
func hideFlagsOf(base, c *cobra.Command) (lacking []string, extends bool) {
	base.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if c.LocalFlags().Lookup(f.Name) == nil {
			lacking = append(lacking, "`--"+f.Name+"`")
		}
	})
	if base.CommandPath() == c.CommandPath() || len(lacking) > 2 {
		return nil, false
	}
	base.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if own := c.LocalFlags().Lookup(f.Name); own != nil && own.Usage == f.Usage && own.DefValue == f.DefValue {
			own.Hidden = true
		}
	})
	return lacking, true
}

// TestReference compares docs/reference/cli with the help texts. With the flag -rewrite it writes
// the pages:
//
//	go test ./cmd/shaver -run '^TestReference$' -rewrite
func TestReference(t *testing.T) {
	pages := reference(t)
	if *rewrite {
		if err := os.RemoveAll(referenceDir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(referenceDir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range pages {
			if err := os.WriteFile(filepath.Join(referenceDir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	const advice = "run make generate"
	for name, want := range pages {
		found, err := os.ReadFile(filepath.Join(referenceDir, name))
		if err != nil {
			t.Errorf("%v: %s", err, advice)
		} else if string(found) != want {
			t.Errorf("docs/reference/cli/%s differs from the help: %s", name, advice)
		}
	}
	wantFiles(t, referenceDir, slices.Sorted(maps.Keys(pages))...)
	wantNoMachine(t, pages)
}

// TestManPages writes the man pages of the three programs, into the folder of the flag
// -man if it is given.
func TestManPages(t *testing.T) {
	dir := *manDir
	if dir == "" {
		dir = t.TempDir()
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var date time.Time
	for _, root := range documented() {
		if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Date: &date, Source: "shaver"}, dir); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		page := strings.Replace(string(text), date.Format("Jan 2006"), "", 1)
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page, ".SH SYNOPSIS") || !strings.Contains(page, ".SH EXAMPLE") {
			t.Errorf("%s lacks a section", e.Name())
		}
		pages[e.Name()] = page
	}
	for _, name := range []string{"shaver.1", "shaver-score.1", "coordinator.1", "worker.1"} {
		if pages[name] == "" {
			t.Errorf("no page %s", name)
		}
	}
	wantNoMachine(t, pages)
}

// wantNoMachine fails the test if a page has a date or a path of this machine.
func wantNoMachine(t *testing.T, pages map[string]string) {
	t.Helper()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	home, _ := os.UserHomeDir()
	for name, text := range pages {
		for _, word := range []string{folder, time.Now().Format("2006"), "0001", home + "/", os.TempDir()} {
			if word != "/" && strings.Contains(strings.ReplaceAll(text, "127.0.0.1", ""), word) {
				t.Errorf("%s has %q, which depends on the machine or the time", name, word)
			}
		}
	}
}

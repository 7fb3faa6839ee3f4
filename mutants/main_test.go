package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"shaver/internal/base/long"
)

// The mutants of a small file, with each kind of change once, and without changes of texts and types.
func TestMutantsIn(t *testing.T) {
	const text = `package p

const size = 4

type ring [8]int

func (r *ring) next(i int, name string) (n int, err error) {
	name = "a" + name
	for ; i < 9; i++ {
		if !(r[i] == 2) {
			continue
		}
		n += min(-i, 3)
		use(n)
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}
`
	all, err := mutantsIn(text, "p/p.go", new(listed))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all {
		got = append(got, strings.TrimPrefix(m.String(), "p/p.go "))
		if s := string(m.source()); s == text || len(s) < len(text)-30 {
			t.Errorf("%s: the file does not change, or more than a place of it: %s", &m, s)
		}
	}
	want := []string{
		"size: 4 -> 5",
		`ring.next: name = "a" + name -> _ = "a" + name`,
		"ring.next: i < 9 -> i <= 9", "ring.next: 9 -> 10", "ring.next: i++ -> i--",
		"ring.next: !(r[i] == 2) -> (!(r[i] == 2)) && false", "ring.next: !(r[i] == 2) -> (r[i] == 2)", "ring.next: r[i] == 2 -> r[i] != 2", "ring.next: 2 -> 3",
		"ring.next: continue -> break",
		"ring.next: n += min(-i, 3) -> n -= min(-i, 3)", "ring.next: min(-i, 3) -> max(-i, 3)", "ring.next: -i -> i", "ring.next: 3 -> 4",
		"ring.next: use(n) -> nothing",
		"ring.next: err != nil -> err == nil", "ring.next: 0 -> 1",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the mutants are\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// In a module of two packages, mutants that a test notices are killed, also by the tests of a package that imports theirs, others
// survive, those that do not compile do not count, and the log spares a second run.
func TestRun(t *testing.T) {
	long.Heavy(t)
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"go.mod":         "module m\n\ngo 1.26\n",
		"a/b/b.go":       "package b\n\nfunc Sum(x, y int) int {\n\treturn x + y\n}\n\nfunc Unused(x int) int {\n\treturn x * x\n}\n",
		"a/c/c.go":       "package c\n\nimport \"m/a/b\"\n\nvar _ = b.Sum\n",
		"a/c/c_test.go":  "package c\n\nimport (\n\t\"testing\"\n\n\t\"m/a/b\"\n)\n\nfunc TestSum(t *testing.T) {\n\tif b.Sum(2, 3) != 5 {\n\t\tt.Error()\n\t}\n}\n",
		"a/d/d.go":       "package d\n\nfunc Name() string {\n\tx := \"a\"\n\ty := \"b\"\n\treturn x + y\n}\n", // texts cannot be subtracted
		"other/other.go": "package other\n\nconst Seven = 7\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	log, page := filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "page.md")
	run := func(least float64) error {
		tool := &tool{seed: 1, timeout: 60e9, only: regexp.MustCompile("^a/"), known: map[string]result{}}
		return tool.run(t.Context(), []string{"a"}, 10, 2, log, page, least)
	}
	if err := run(.5); err != nil {
		t.Fatal(err)
	}
	found, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"| a | 2 | 1 | 0 | 1 | 50% |", "| m/a/b | 2 | 1 | 0 | 1 | 50% |", "a/b/b.go Unused: x * x -> x / x `` (line 8)"} {
		if !strings.Contains(string(found), line) {
			t.Errorf("the page lacks %q:\n%s", line, found)
		}
	}
	logged, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for outcome, n := range map[string]int{killed: 1, survived: 1, invalid: 1} {
		if strings.Count(string(logged), `"outcome":"`+outcome+`"`) != n {
			t.Errorf("expected %d mutants that are %s:\n%s", n, outcome, logged)
		}
	}
	// The second run takes what the first one found, even though the code that it would need is gone.
	if err := os.Remove("a/c/c_test.go"); err != nil {
		t.Fatal(err)
	}
	if err := run(.6); err == nil || !strings.Contains(err.Error(), "50%") {
		t.Errorf("a score of 50%% with a bound of 60%%: %v", err)
	}
}

// An accepted survivor has a reason, and counts neither as killed nor as missed.
func TestSummarise(t *testing.T) {
	all := []result{{Area: "a", Package: "p", Mutant: "x", Outcome: survived}, {Area: "a", Package: "p", Mutant: "y", Outcome: killed}, {Area: "a", Package: "q", Mutant: "z", Outcome: survived}}
	s, err := summarise(all, "x # it only saves time\n")
	if err != nil {
		t.Fatal(err)
	}
	if a := s.areas[0]; *a != (score{"a", 1, 1, 1}) || a.score() != .5 || len(s.packages) != 2 || s.packages[0].score() != 1 || len(s.unknown) != 1 || len(s.reasons) != 1 {
		t.Errorf("%+v of areas, %d packages, %d unknown, %d reasons", *a, len(s.packages), len(s.unknown), len(s.reasons))
	}
	if _, err := summarise(all, "x\n"); err == nil {
		t.Error("a survivor is accepted without a reason")
	}
	if _, err := summarise(nil, accepted); err != nil {
		t.Error(err)
	}
}

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// readGo returns the comments and the text literals of a Go file. The literals of the
// commands are help texts, except those that become an error or a log line. All other
// literals are messages.
func readGo(path, place string) ([]text, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	var texts []text
	add := func(kind string, at token.Pos, s string) {
		line := files.Position(at).Line
		for _, sentence := range sentences(s) {
			texts = append(texts, text{kind, fmt.Sprintf("%s:%d", place, line), sentence})
		}
	}
	for _, group := range file.Comments {
		add(comment, group.Pos(), group.Text()) // without directives
	}
	kind := message
	if ofCommands(place) && !strings.HasSuffix(place, "_test.go") {
		kind = help
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			return n.Tag == nil
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && kind == help && isMessage(f.Sel.Name) {
				for _, arg := range n.Args {
					add(message, arg.Pos(), literal(arg))
				}
				return false
			}
		case *ast.BinaryExpr:
			if s := literal(n); s != "" {
				add(kind, n.Pos(), s)
				return false
			}
		case *ast.BasicLit:
			add(kind, n.Pos(), literal(n))
		}
		return true
	})
	return texts, nil
}

// ofCommands reports whether the texts of a file are mostly help texts.
func ofCommands(place string) bool {
	return strings.HasPrefix(place, "cmd/") || strings.HasPrefix(place, "internal/app/cli/") || strings.HasPrefix(place, "internal/app/launch/") || strings.HasPrefix(place, "internal/app/score/") || place == "internal/value/estimator/estimator.go"
}

// isMessage reports whether a function of this name takes the text of an error or of a
// log line.
func isMessage(name string) bool {
	return slices.Contains([]string{"Errorf", "Inputf", "Usagef", "New", "Info", "Warn", "Error", "Debug"}, name)
}

// literal returns the text literals of an expression, joined.
func literal(e ast.Expr) string {
	var parts []string
	ast.Inspect(e, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if s, err := strconv.Unquote(l.Value); err == nil {
				parts = append(parts, s)
			}
		}
		return true
	})
	return strings.Join(parts, "")
}

// readHelp returns the sentences of a help text.
func readHelp(path, place string) ([]text, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var texts []text
	line := 1
	for paragraph := range strings.SplitSeq(string(data), "\n\n") {
		for _, sentence := range sentences(paragraph) {
			texts = append(texts, text{help, fmt.Sprintf("%s:%d", place, line), sentence})
		}
		line += strings.Count(paragraph, "\n") + 2
	}
	return texts, nil
}

// readPage returns the sentences of a Markdown page, without code.
func readPage(path, place string) ([]text, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var texts []text
	fenced := false
	first, paragraph := 0, ""
	end := func() {
		for _, sentence := range sentences(paragraph) {
			texts = append(texts, text{page, fmt.Sprintf("%s:%d", place, first), sentence})
		}
		paragraph = ""
	}
	for i, line := range strings.Split(string(data), "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			fenced = !fenced
			end()
			continue
		case fenced || strings.HasPrefix(line, "    ") && paragraph == "":
			continue
		case trimmed == "" || strings.HasPrefix(trimmed, "#"):
			end()
			continue
		case strings.HasPrefix(trimmed, "|") || strings.HasPrefix(trimmed, "- "):
			end()
		}
		if paragraph == "" {
			first = i + 1
		}
		paragraph += " " + trimmed
	}
	end()
	return texts, nil
}

var (
	space    = regexp.MustCompile(`\s+`)
	boundary = regexp.MustCompile("([.!?])\\s+([A-Z\"`*\\[])")
	word     = regexp.MustCompile(`[A-Za-z]{2,}`)
)

// sentences divides a text into sentences. It drops those with fewer than four words,
// such as a table's row of numbers.
func sentences(s string) []string {
	s = strings.TrimSpace(space.ReplaceAllString(s, " "))
	var list []string
	for sentence := range strings.SplitSeq(boundary.ReplaceAllString(s, "$1\x00$2"), "\x00") {
		if len(word.FindAllString(sentence, 4)) == 4 {
			list = append(list, sentence)
		}
	}
	return list
}

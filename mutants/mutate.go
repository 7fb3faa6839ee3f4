package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
)

// mutant is a file with one place changed.
type mutant struct {
	pkg      *listed
	file     string // slash-separated, from the root of the module
	function string // name of the function or of the declaration
	line     int
	text     string // the file before the change
	from, to int    // what changes, as offsets
	by       string // what replaces it
	before   string // the whole expression or statement
	after    string
	nth      int // number of earlier mutants of the function that read the same
}

// String identifies the mutant for as long as its function does not change.
func (m *mutant) String() string {
	s := fmt.Sprintf("%s %s: %s -> %s", m.file, m.function, m.before, m.after)
	if m.nth > 0 {
		s += fmt.Sprintf(" (%d)", m.nth+1)
	}
	return s
}

// source returns the changed file.
func (m *mutant) source() []byte { return []byte(m.text[:m.from] + m.by + m.text[m.to:]) }

// swaps has what replaces an operator.
var swaps = map[token.Token]string{
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.EQL: "!=", token.NEQ: "==",
	token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*", token.REM: "*", token.LAND: "||", token.LOR: "&&",
	token.AND: "|", token.OR: "&", token.XOR: "|", token.SHL: ">>", token.SHR: "<<", token.INC: "--", token.DEC: "++",
	token.ADD_ASSIGN: "-=", token.SUB_ASSIGN: "+=", token.MUL_ASSIGN: "/=", token.QUO_ASSIGN: "*=", token.OR_ASSIGN: "&=", token.AND_ASSIGN: "|=",
}

// mutantsOf returns all mutants of a file. Some of them do not compile.
func mutantsOf(file string, p *listed) ([]mutant, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return mutantsIn(string(data), file, p)
}

// mutantsIn returns all mutants of the text of a file.
func mutantsIn(text, file string, p *listed) (all []mutant, err error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	offset := func(at token.Pos) int { return files.Position(at).Offset }
	line := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	seen := map[string]int{}
	for _, declared := range parsed.Decls {
		function := nameOf(declared)
		// add adds the mutant of whole in which by replaces what is from one place to another.
		add := func(whole ast.Node, from, to int, by string) {
			m := mutant{pkg: p, file: file, function: function, line: files.Position(whole.Pos()).Line, text: text, from: from, to: to, by: by}
			first, last := offset(whole.Pos()), offset(whole.End())
			m.before, m.after = line(text[first:last]), line(text[first:from]+by+text[to:last])
			if m.after == "" {
				m.after = "nothing"
			}
			key := m.String()
			m.nth = seen[key]
			seen[key]++
			all = append(all, m)
		}
		swap := func(whole ast.Node, op token.Token, at token.Pos) {
			if by, ok := swaps[op]; ok {
				add(whole, offset(at), offset(at)+len(op.String()), by)
			}
		}
		ast.Inspect(declared, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec, *ast.ArrayType, *ast.Field:
				return false
			case *ast.BinaryExpr:
				if !isText(n.X) && !isText(n.Y) {
					swap(n, n.Op, n.OpPos)
				}
			case *ast.IncDecStmt:
				swap(n, n.Tok, n.TokPos)
			case *ast.UnaryExpr:
				if n.Op == token.NOT || n.Op == token.SUB {
					add(n, offset(n.OpPos), offset(n.X.Pos()), "")
				}
			case *ast.BasicLit:
				switch v, err := strconv.ParseInt(n.Value, 0, 64); {
				case n.Kind == token.INT && err == nil:
					add(n, offset(n.Pos()), offset(n.End()), strconv.FormatInt(v+1, 10))
				case n.Kind == token.FLOAT:
					add(n, offset(n.Pos()), offset(n.End()), "(2 * "+n.Value+")")
				}
			case *ast.IfStmt:
				// A branch that is never taken. What follows from an error of another function is its own matter.
				if condition := text[offset(n.Cond.Pos()):offset(n.Cond.End())]; condition != "err != nil" {
					add(n.Cond, offset(n.Cond.Pos()), offset(n.Cond.End()), "("+condition+") && false")
				}
			case *ast.ExprStmt:
				add(n, offset(n.Pos()), offset(n.End()), "")
			case *ast.AssignStmt:
				if n.Tok == token.ASSIGN {
					last := n.Lhs[len(n.Lhs)-1]
					if name, ok := last.(*ast.Ident); !ok || name.Name != "_" {
						add(n, offset(n.Lhs[0].Pos()), offset(last.End()), strings.Repeat("_, ", len(n.Lhs)-1)+"_")
					}
				} else {
					swap(n, n.Tok, n.TokPos)
				}
			case *ast.CallExpr:
				if name, ok := n.Fun.(*ast.Ident); ok && (name.Name == "min" || name.Name == "max") {
					add(n, offset(name.Pos()), offset(name.End()), map[string]string{"min": "max", "max": "min"}[name.Name])
				}
			case *ast.BranchStmt:
				if by := map[token.Token]string{token.BREAK: "continue", token.CONTINUE: "break"}[n.Tok]; by != "" && n.Label == nil {
					add(n, offset(n.Pos()), offset(n.End()), by)
				}
			}
			return true
		})
	}
	return all, nil
}

// isText reports whether an operand is a string, as far as its form shows.
func isText(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return isText(e.X) || isText(e.Y)
	}
	return false
}

// nameOf returns the name of a function, with its receiver, or of what else is declared.
func nameOf(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil || len(d.Recv.List) == 0 {
			return d.Name.Name
		}
		of := d.Recv.List[0].Type
		for {
			switch t := of.(type) {
			case *ast.StarExpr:
				of = t.X
				continue
			case *ast.IndexExpr:
				of = t.X
				continue
			case *ast.Ident:
				return t.Name + "." + d.Name.Name
			}
			return d.Name.Name
		}
	case *ast.GenDecl:
		var names []string
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, name := range s.Names {
					names = append(names, name.Name)
				}
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			}
		}
		if i := slices.IndexFunc(names, func(n string) bool { return n != "_" }); i >= 0 {
			return names[i]
		}
	}
	return "-"
}

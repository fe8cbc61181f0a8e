package main

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
)

// A fragment is a run of statements, or of values with commas between.
type fragment struct {
	text  string
	base  token.Pos // of the text's first character
	nodes []ast.Node
	holes map[*ast.Ident]ast.Node // each _ that stands for a value, and the expression around it
}

// parseFragment parses a text as values with commas between, or as statements.
func parseFragment(text string) (f fragment, err error) {
	f = fragment{text: text, holes: make(map[*ast.Ident]ast.Node)}

	// Go parses neither alone, so wrap values in a literal, and statements in a function.
	const values, statements = "_{", "func() {"
	if x, failed := parser.ParseExpr(values + text + "}"); failed == nil {
		f.base, f.nodes = token.Pos(1+len(values)), nodes(x.(*ast.CompositeLit).Elts)
	} else if x, err = parser.ParseExpr(statements + text + "}"); err == nil {
		f.base, f.nodes = token.Pos(1+len(statements)), nodes(x.(*ast.FuncLit).Body.List)
	}
	for _, n := range f.nodes {
		f.findHoles(n)
	}
	return f, err
}

// nodes returns a slice of nodes of one kind as a slice of nodes.
func nodes[N ast.Node](of []N) (all []ast.Node) {
	for _, n := range of {
		all = append(all, n)
	}
	return all
}

// findHoles finds each _ that is neither assigned nor declared, and notes the expression around it.
func (f *fragment) findHoles(root ast.Node) {
	var above []ast.Node
	named := make(map[ast.Node]bool)

	// above is the path to the present node: Inspect calls with nil when a node's children are over.
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil {
			above = above[:len(above)-1]
			return true
		}

		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, to := range n.Lhs {
				named[to] = true
			}

		case *ast.RangeStmt:
			named[n.Key], named[n.Value] = true, true
		case *ast.Field:
			for _, name := range n.Names {
				named[name] = true
			}

		case *ast.ValueSpec:
			for _, name := range n.Names {
				named[name] = true
			}

		case *ast.Ident:
			if n.Name == "_" && !named[n] {
				f.holes[n] = nil
				if len(above) > 0 {
					f.holes[n] = above[len(above)-1]
				}
			}
		}

		above = append(above, n)
		return true
	})
}

// A place is where a fragment stands.
type place struct {
	run    []ast.Node
	of     ast.Node   // the expression around it
	among  []ast.Node // the list that it is in, if there is one
	at     int        // where in that list
	filled []ast.Expr // what stands in the holes, in their order
}

// find returns all places in a tree where the fragment stands. Several nodes stand only in a list of statements or values.
func (f fragment) find(in ast.Node) (found []place) {
	match := func(p place) {
		p.filled = nil
		if f.matches(p.run, &p.filled) {
			found = append(found, p)
		}
	}

	ast.Inspect(in, func(n ast.Node) bool {
		if n == nil {
			return false
		}

		// Look at each field of the node that holds statements or expressions.
		v := reflect.ValueOf(n).Elem()
		for i := range v.NumField() {
			field, name := v.Field(i), v.Type().Field(i).Name
			if name == "Sel" || name == "Name" || name == "Names" {
				continue // the name of a field or of a declaration is no value
			}

			switch of := field.Interface().(type) {
			case []ast.Stmt:
				matchRuns(nodes(of), n, len(f.nodes), match)
			case []ast.Expr:
				matchRuns(nodes(of), n, len(f.nodes), match)
			case ast.Node:
				if len(f.nodes) == 1 && !field.IsNil() {
					match(place{run: []ast.Node{of}, of: n})
				}
			}
		}

		return true
	})

	return found
}

// matchRuns calls match with each run of that length in a list of the parent's children.
func matchRuns(of []ast.Node, parent ast.Node, length int, match func(place)) {
	for i := 0; i+length <= len(of); i++ {
		match(place{run: of[i : i+length], of: parent, among: of, at: i})
	}
}

// matches reports whether a run of nodes is the fragment, and appends the values of its holes to filled.
func (f fragment) matches(run []ast.Node, filled *[]ast.Expr) bool {
	for i, n := range f.nodes {
		if !f.same(reflect.ValueOf(n), reflect.ValueOf(run[i]), filled) {
			return false
		}
	}
	return true
}

// same reports whether a part of the fragment, a, equals a part of a file, b, wherever the two stand, and appends what is
// in the holes of a to filled. Both are parsed without comments.
func (f fragment) same(a, b reflect.Value, filled *[]ast.Expr) bool {
	if a.Kind() == reflect.Interface {
		a, b = a.Elem(), b.Elem()
	}
	if !a.IsValid() || !b.IsValid() {
		return a.IsValid() == b.IsValid()
	}

	// A hole matches any expression, which is kept for the new text.
	if id, ok := a.Interface().(*ast.Ident); ok {
		if _, hole := f.holes[id]; hole {
			x, ok := b.Interface().(ast.Expr)
			*filled = append(*filled, x)
			return ok
		}
	}

	if a.Type() != b.Type() {
		return false
	}

	// A position says where a node stands, or whether a token such as an ellipsis is there at all.
	if at, ok := a.Interface().(token.Pos); ok {
		return at.IsValid() == b.Interface().(token.Pos).IsValid()
	}

	switch a.Kind() {
	case reflect.Pointer:
		return a.IsNil() == b.IsNil() && (a.IsNil() || f.same(a.Elem(), b.Elem(), filled))
	case reflect.Struct:
		for i := range a.NumField() {
			if !f.same(a.Field(i), b.Field(i), filled) {
				return false
			}
		}
		return true

	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}

		for i := range a.Len() {
			if !f.same(a.Index(i), b.Index(i), filled) {
				return false
			}
		}

		return true
	}

	return a.Interface() == b.Interface()
}

// dropped returns where the text to remove begins and ends if what stands in the place goes: an operand goes with its
// operator, and one of several values with a comma.
func (p place) dropped() (from, to token.Pos) {
	from, to = p.run[0].Pos(), p.run[len(p.run)-1].End()
	if b, ok := p.of.(*ast.BinaryExpr); ok {
		if p.run[0] == b.X {
			return from, b.Y.Pos()
		}
		return b.X.End(), to
	}

	if _, isValue := p.run[0].(ast.Expr); isValue {
		switch after := p.at + len(p.run); {
		case after < len(p.among):
			return from, p.among[after].Pos()
		case p.at > 0:
			return p.among[p.at-1].End(), to
		}
	}

	return from, to
}

// filledWith returns the text of the fragment as it must be written into the place of a file, where it replaces the
// fragment that was found. Each hole gets the source of what stood in the same hole of that fragment, which must have as
// many holes if this one has any. Expressions get the parentheses that they need.
func (f fragment) filledWith(p place, file string) (string, error) {
	if len(f.holes) > 0 && len(f.holes) != len(p.filled) {
		return "", errors.New("the new text has another number of _ than the old one")
	}

	var b []byte

	// Copy the text, and put the source of each filled expression in the place of its hole.
	done, next := f.base, 0
	for _, n := range f.nodes {
		ast.Inspect(n, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if around, hole := f.holes[id]; ok && hole {
				x := p.filled[next]
				b = append(b, f.text[done-f.base:id.Pos()-f.base]...)
				b = append(b, wrapped(file[x.Pos()-1:x.End()-1], x, around, isRight(around, id))...)
				done = id.End()
				next++
			}

			return true
		})
	}

	text := string(b) + f.text[done-f.base:]
	if x, ok := f.nodes[0].(ast.Expr); ok && len(f.nodes) == 1 {
		text = wrapped(text, x, p.of, isRight(p.of, p.run[0]))
	}

	return text, nil
}

// isRight reports whether n is the right operand of the expression of.
func isRight(of, n ast.Node) bool {
	b, ok := of.(*ast.BinaryExpr)
	return ok && b.Y == n
}

// wrapped returns text, the source of the expression x, in parentheses if x is a binary expression that would be parsed
// differently without them as an operand of the node of. right says that x is the right operand. wrapped adds none for the
// operand that is indexed, sliced or called.
func wrapped(text string, x ast.Expr, of ast.Node, right bool) string {
	b, isBinary := x.(*ast.BinaryExpr)
	if !isBinary {
		return text
	}

	needsParentheses := false
	switch of := of.(type) {
	case *ast.BinaryExpr:
		inner, outer := b.Op.Precedence(), of.Op.Precedence()
		needsParentheses = inner < outer || inner == outer && right
	case *ast.UnaryExpr, *ast.StarExpr, *ast.SelectorExpr, *ast.TypeAssertExpr:
		needsParentheses = true
	}

	if needsParentheses {
		return "(" + text + ")"
	}
	return text
}

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
)

// A goFile is the syntax of a file in Go.
type goFile struct{ *ast.File }

func parseGo(text string) (goFile, error) {
	f, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
	return goFile{f}, err
}

// declared returns the declarations of that name: of a function, of a method as (*T).name or T.name, of a constant, a
// variable or a type.
func (f goFile) declared(name string) (found []ast.Node) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if methodOf(d)+d.Name.Name == name {
				found = append(found, d)
			}

		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.Name == name {
						found = append(found, s)
					}

				case *ast.ValueSpec:
					for _, n := range s.Names {
						if n.Name == name {
							found = append(found, s)
						}
					}
				}
			}
		}
	}

	return found
}

// methodOf returns the prefix of a method's name: "(*T)." or "T.".
func methodOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}

	// Write the receiver as stack traces do, so that a name can be copied from one into a list.
	of, front, back := d.Recv.List[0].Type, "", "."
	if star, ok := of.(*ast.StarExpr); ok {
		of, front, back = star.X, "(*", ")."
	}

	// Leave out type parameters: a method's name has none.
	switch generic := of.(type) {
	case *ast.IndexExpr:
		of = generic.X
	case *ast.IndexListExpr:
		of = generic.X
	}

	return front + of.(*ast.Ident).Name + back
}

// Longforms prints the tests that are longer in make soak than in make test: a folder and a pattern for go test -run in each line. make soak runs these with the race
// detector, because make test has shown all others.
//
//	go run ./internal/lab/soak/longforms
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

func main() {
	patterns, err := longForms(os.DirFS("."))
	if err != nil {
		log.Fatal("longforms: ", err)
	}
	for _, folder := range slices.Sorted(maps.Keys(patterns)) {
		fmt.Println(folder, patterns[folder])
	}
}

// longForms returns, for each folder below root that has long tests, the pattern that runs them. It skips testdata.
func longForms(root fs.FS) (map[string]string, error) {
	folders := make(map[string]mentions)
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && entry.Name() == "testdata" {
			return fs.SkipDir
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}

		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}

		folder := path.Dir(name)
		if folders[folder] == nil {
			folders[folder] = make(mentions)
		}
		folders[folder].add(file)
		return nil
	})

	patterns := make(map[string]string)
	for folder, m := range folders {
		if tests := m.longTests(); len(tests) > 0 {
			patterns[folder] = "^(" + strings.Join(tests, "|") + ")$"
		}
	}
	return patterns, err
}

// mentions has the names that each function of a folder's tests mentions. Methods of one name count as one function, which at worst makes a short test count as
// long.
type mentions map[string]map[string]bool

// add notes the names of the functions of one file.
func (m mentions) add(file *ast.File) {
	for _, decl := range file.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := function.Name.Name
		if m[name] == nil {
			m[name] = make(map[string]bool)
		}

		ast.Inspect(function, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if of, ok := n.X.(*ast.Ident); ok {
					m[name][of.Name+"."+n.Sel.Name] = true
				}
			case *ast.Ident:
				m[name][n.Name] = true
			}
			return true
		})
	}
}

// longest are the functions that take the length of a test from -short. readme.VetProgram is one, too, for the programs of pages.
var longest = []string{"soak.Only", "soak.Most", "soak.Seeds", "readme.Vet", "readme.VetProgram"}

// longTests returns the tests that call a function of longest, perhaps through further functions. It leaves out the tests
// that do not run under the race detector.
func (m mentions) longTests() []string {
	long := make(map[string]bool)
	for _, name := range longest {
		long[name] = true
	}

	// A function that mentions a long function is long, too. Repeat until none is added.
	for grown := true; grown; {
		grown = false
		for name, mentioned := range m {
			if long[name] {
				continue
			}
			for other := range mentioned {
				if long[other] {
					long[name], grown = true, true
					break
				}
			}
		}
	}

	var tests []string
	for name := range m {
		if strings.HasPrefix(name, "Test") && name != "TestMain" && long[name] && !m[name]["soak.WithoutRace"] {
			tests = append(tests, name)
		}
	}
	slices.Sort(tests)
	return tests
}

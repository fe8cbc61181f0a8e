// Package layers checks that the files of a package stand in layers: a file names
// only what is declared in itself or in a file below it.
package layers

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A Reference is one use of a name in a file above or below the one that declares it.
type Reference struct {
	From, To string // file names
	Name     string
}

func (r Reference) String() string { return fmt.Sprintf("%s uses %s of %s", r.From, r.Name, r.To) }

// Upward returns the references of the package in dir that run from a file to one
// above it. Order lists all files, the lowest first; an error names those that it
// leaves out and those that do not exist.
func Upward(dir string, order []string) ([]Reference, error) {
	rank := make(map[string]int)
	for i, name := range order {
		rank[name] = i + 1
	}
	all, files, err := references(dir)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range files {
		if rank[name] == 0 {
			errs = append(errs, fmt.Errorf("%s has no layer", name))
		}
	}
	for _, name := range order {
		if !slices.Contains(files, name) {
			errs = append(errs, fmt.Errorf("%s does not exist", name))
		}
	}
	up := slices.DeleteFunc(all, func(r Reference) bool { return rank[r.From] >= rank[r.To] })
	return up, errors.Join(errs...)
}

// references returns every use of a name in another file than the one that declares
// it, once for each pair of files, and the names of the package's files.
func references(dir string) (all []Reference, files []string, err error) {
	listed, err := list(dir)
	if err != nil {
		return nil, nil, err
	}
	fset := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range listed.files {
		f, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		parsed = append(parsed, f)
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", listed.open)}
	pkg, err := conf.Check(dir, fset, parsed, info)
	if err != nil {
		return nil, nil, err
	}
	file := func(p token.Pos) string { return filepath.Base(fset.Position(p).Filename) }
	seen := make(map[Reference]bool)
	for id, used := range info.Uses {
		if used.Pkg() != pkg {
			continue
		}
		r := Reference{file(id.Pos()), file(used.Pos()), used.Name()}
		if r.From != r.To && !seen[r] {
			seen[r] = true
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b Reference) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Name, b.Name))
	})
	return all, listed.files, nil
}

// A listing is what go list says of a package: its files, and where the compiled
// form of each package lies that it needs.
type listing struct {
	files   []string
	exports map[string]string // by import path
}

func list(dir string) (l listing, err error) {
	c := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,GoFiles,DepOnly", ".")
	c.Dir, c.Stderr = dir, os.Stderr
	text, err := c.Output()
	if err != nil {
		return l, err
	}
	l.exports = make(map[string]string)
	for d := json.NewDecoder(strings.NewReader(string(text))); ; {
		var p struct {
			ImportPath, Export string
			GoFiles            []string
			DepOnly            bool
		}
		switch err := d.Decode(&p); {
		case err == io.EOF:
			return l, nil
		case err != nil:
			return l, err
		}
		l.exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			l.files = p.GoFiles
		}
	}
}

// open is a lookup function for [importer.ForCompiler].
func (l listing) open(path string) (io.ReadCloser, error) { return os.Open(l.exports[path]) }

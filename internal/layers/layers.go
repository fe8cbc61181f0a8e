package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// A reference is one use of a name in another file than the one that declares it.
type reference struct {
	from, to string // file names
	name     string
}

func (r reference) String() string { return fmt.Sprintf("%s uses %s of %s", r.from, r.name, r.to) }

// A pkg is the files of one package, and how they refer to each other.
type pkg struct {
	path  string
	files []string    // the lowest first: the order to read them in; those of a cycle side by side
	cycle []reference // within cycles
}

// packages returns the packages that the patterns name in the module in dir.
func packages(dir string, patterns ...string) ([]pkg, error) {
	listed, exports, err := list(dir, patterns)
	if err != nil {
		return nil, err
	}
	var all []pkg
	for _, l := range listed {
		refs, err := l.references(exports)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.ImportPath, err)
		}
		p := pkg{path: l.ImportPath}
		p.files, p.cycle = sortFiles(l.GoFiles, refs)
		all = append(all, p)
	}
	return all, nil
}

// sortFiles sorts files so that each comes behind those that it refers to, and returns the
// references within cycles. The algorithm is Tarjan's for strongly connected components
// (SIAM Journal on Computing 1, 1972), which finds them in this order.
func sortFiles(files []string, refs []reference) (sorted []string, cycle []reference) {
	below := make(map[string][]string)
	for _, r := range refs {
		below[r.from] = append(below[r.from], r.to)
	}
	found, low, component := make(map[string]int), make(map[string]int), make(map[string]int)
	var open []string
	var visit func(file string)
	visit = func(file string) {
		found[file] = len(found) + 1
		low[file] = found[file]
		open = append(open, file)
		for _, to := range below[file] {
			if found[to] == 0 {
				visit(to)
			}
			if component[to] == 0 {
				low[file] = min(low[file], low[to])
			}
		}
		if low[file] < found[file] {
			return
		}
		first := slices.Index(open, file)
		for _, member := range open[first:] {
			component[member] = found[file]
			sorted = append(sorted, member)
		}
		open = open[:first]
	}
	for _, file := range files {
		if found[file] == 0 {
			visit(file)
		}
	}
	cycle = slices.DeleteFunc(slices.Clone(refs), func(r reference) bool { return component[r.from] != component[r.to] })
	return sorted, cycle
}

// A listing is what go list says of a package.
type listing struct {
	Dir, ImportPath, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// list returns the packages of the patterns, and where the compiled form of each package
// lies that they need.
func list(dir string, patterns []string) (all []listing, exports map[string]string, err error) {
	c := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles,DepOnly"}, patterns...)...)
	c.Dir, c.Stderr = dir, os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := c.Start(); err != nil {
		return nil, nil, err
	}
	exports = make(map[string]string)
	for d := json.NewDecoder(out); ; {
		var p listing
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return nil, nil, err
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			all = append(all, p)
		}
	}
	return all, exports, c.Wait()
}

// references returns every use of a name in another file than the one that declares it, once
// for each pair of files.
func (l *listing) references(exports map[string]string) (all []reference, err error) {
	fset := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range l.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(l.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, f)
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", open)}
	checked, err := conf.Check(l.ImportPath, fset, parsed, info)
	if err != nil {
		return nil, err
	}
	file := func(p token.Pos) string { return filepath.Base(fset.Position(p).Filename) }
	seen := make(map[reference]bool)
	for id, used := range info.Uses {
		if r := (reference{file(id.Pos()), file(used.Pos()), used.Name()}); used.Pkg() == checked && r.from != r.to {
			seen[r] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b reference) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.name, b.name))
	}), nil
}

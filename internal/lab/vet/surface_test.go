package vet

import (
	"bytes"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
)

const repository = "github.com/fleetthrottle/throttle"

// TestNothingInternalIsExported: what a package exports names no type of an internal package, which its users could not
// name, and has no method that the package's documentation does not show.
func TestNothingInternalIsExported(t *testing.T) {
	soak.WithoutRace(t) // make lint has compiled the packages without the detector
	found := 0
	for _, module := range []string{".", "policyfile"} {
		packages, imports := exported(t, module, "./...")
		for _, path := range packages {
			p, err := imports.Import(path)
			require.NoError(t, err)
			require.Empty(t, faultsOf(p), path)
			found++
		}
	}
	require.Greater(t, found, 40, "packages were not found")
}

// TestRootHasFewNames: what the root exports fits into one reading of go doc: at most 200 names, methods and fields
// included. A name that only authors of stores, of readers of answers or of job queues need belongs to their package.
func TestRootHasFewNames(t *testing.T) {
	_, imports := exported(t, ".", ".")
	root, err := imports.Import(repository)
	require.NoError(t, err)

	names := 0
	for _, name := range root.Scope().Names() {
		object := root.Scope().Lookup(name)
		if object.Exported() {
			names += 1 + membersOf(object)
		}
	}
	require.LessOrEqual(t, names, 200, "move a concept to a package of its own, or delete what nobody needs")
	require.Greater(t, names, 100, "the names were not found")
}

// membersOf returns how many methods and fields of a type are exported. An alias has those of its own package.
func membersOf(object types.Object) (n int) {
	name, ok := object.(*types.TypeName)
	if !ok || name.IsAlias() {
		return 0
	}

	named := name.Type().(*types.Named)
	for m := range named.Methods() {
		if m.Exported() {
			n++
		}
	}
	switch u := named.Underlying().(type) {
	case *types.Struct:
		for f := range u.Fields() {
			if f.Exported() {
				n++
			}
		}
	case *types.Interface:
		n += u.NumExplicitMethods()
	}
	return n
}

// TestNothingInternalIsExportedCanFail has a package with each fault that TestNothingInternalIsExported finds.
func TestNothingInternalIsExportedCanFail(t *testing.T) {
	_, imports := exported(t, ".", "./internal/lab/vet/testdata/faulty")
	p, err := imports.Import(repository + "/internal/lab/vet/testdata/faulty")
	require.NoError(t, err)
	const (
		hidden = repository + "/internal/lab/vet/testdata/faulty/internal/hidden"
		names  = ": names the internal type " + hidden
	)
	require.Equal(t, []string{
		"Aliased" + names + ".Type",
		"Constrained" + names + ".Set",
		"Embeds.Method: its documentation is that of the internal package " + hidden,
		"Embeds" + names + ".Type",
		"EmbedsAlias.Close: no documentation shows it, because the field closer is not exported",
		"Fields" + names + ".Type",
		"Interface" + names + ".Type",
		"Methods.Do" + names + ".Type",
		"Returns" + names + ".Type",
		"ReturnsUnexported" + names + ".Type",
		"Takes" + names + ".Type",
		"Variable" + names + ".Type",
	}, faultsOf(p))
}

// exported returns those packages of a module that its users may import, and what reads them.
func exported(t *testing.T, module, pattern string) (packages []string, imports types.Importer) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}\t{{.Name}}", pattern)
	list.Dir = filepath.Join("../../..", module)
	list.Stderr = new(bytes.Buffer)
	out, err := list.Output()
	require.NoError(t, err, "%s", list.Stderr)

	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		path := fields[0]
		files[path] = fields[1]
		if strings.HasPrefix(path, repository) && !isInternal(path) && fields[2] != "main" {
			packages = append(packages, path)
		}
	}
	return packages, importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
}

// isInternal reports whether a package of this repository is internal.
func isInternal(path string) bool {
	return strings.HasPrefix(path, repository) && slices.Contains(strings.Split(path, "/"), "internal")
}

// hidden finds types of internal packages in a type as it is printed.
var hidden = regexp.MustCompile(regexp.QuoteMeta(repository) + `(?:/[\w.-]+)*/internal(?:/[\w.-]+)*\.\w+`)

// faultsOf returns what is wrong with what a package exports.
func faultsOf(p *types.Package) (faults []string) {
	fault := func(format string, a ...any) { faults = append(faults, fmt.Sprintf(format, a...)) }
	names := func(name string, of types.Type) {
		for _, found := range hidden.FindAllString(printed(p, of, make(map[types.Type]bool)), -1) {
			if !strings.HasPrefix(found, p.Path()+".") {
				fault("%s: names the internal type %s", name, found)
			}
		}
	}

	for _, name := range p.Scope().Names() {
		object := p.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		names(name, object.Type())

		of, ok := object.Type().(*types.Named)
		if _, isType := object.(*types.TypeName); !isType || !ok || types.IsInterface(of) {
			continue
		}
		all := types.NewMethodSet(types.NewPointer(of))
		for i := range all.Len() {
			m := all.At(i)
			if !m.Obj().Exported() {
				continue
			}

			method, home := name+"."+m.Obj().Name(), m.Obj().Pkg()
			switch field := firstField(of, m); {
			case home != nil && home != p && isInternal(home.Path()):
				fault("%s: its documentation is that of the internal package %s", method, home.Path())
			case home != p && field != nil && !field.Exported():
				fault("%s: no documentation shows it, because the field %s is not exported", method, field.Name())
			default:
				names(method, m.Obj().Type())
			}
		}
	}
	slices.Sort(faults)
	return slices.Compact(faults)
}

// firstField returns the field through which a type has a method. It is nil if the method is the type's own.
func firstField(of *types.Named, m *types.Selection) *types.Var {
	st, ok := of.Underlying().(*types.Struct)
	if !ok || len(m.Index()) < 2 {
		return nil
	}
	return st.Field(m.Index()[0])
}

// printed prints a type with all types of a package that users reach by it: of a struct its exported and its embedded
// fields, of a type that users cannot name its exported methods.
func printed(p *types.Package, of types.Type, seen map[types.Type]bool) (text string) {
	of = types.Unalias(of)
	if seen[of] {
		return ""
	}
	seen[of] = true

	text = types.TypeString(of, nil) + " "
	switch of := of.(type) {
	case *types.Struct:
		text = ""
		for f := range of.Fields() {
			if f.Exported() || f.Embedded() && strings.HasPrefix(types.TypeString(f.Type(), nil), p.Path()+".") {
				text += printed(p, f.Type(), seen)
			}
		}
	case *types.Named:
		for t := range of.TypeParams().TypeParams() {
			text += printed(p, t.Constraint(), seen)
		}
		if of.Obj().Pkg() != p {
			break
		}
		text += printed(p, of.Underlying(), seen)
		for m := range of.Methods() {
			if m.Exported() && !of.Obj().Exported() {
				text += printed(p, m.Type(), seen)
			}
		}
	case interface{ Elem() types.Type }: // a pointer, a slice, an array, a map, a channel
		text += printed(p, of.Elem(), seen)
	case *types.Tuple:
		for v := range of.Variables() {
			text += printed(p, v.Type(), seen)
		}
	case *types.Signature:
		text += printed(p, of.Params(), seen) + printed(p, of.Results(), seen)
	}
	return text
}

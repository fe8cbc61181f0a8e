package vet

import (
	"bytes"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const repository = "github.com/fleetthrottle/throttle"

// TestNothingInternalIsExported: what a package exports names no type of an internal package, which its users could not
// name, and has no method that the package's documentation does not show.
func TestNothingInternalIsExported(t *testing.T) {
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

// faultsOf returns what is wrong with what a package exports.
func faultsOf(p *types.Package) []string {
	s := &surface{own: p, faults: make(map[string]struct{})}
	for _, name := range p.Scope().Names() {
		if token.IsExported(name) {
			s.object(p.Scope().Lookup(name))
		}
	}
	return slices.Sorted(maps.Keys(s.faults))
}

// A surface is what users of a package can reach.
type surface struct {
	own    *types.Package
	at     string                  // the exported name under which something is reached
	seen   map[types.Type]struct{} // under that name
	faults map[string]struct{}
}

func (s *surface) fault(format string, a ...any) {
	s.faults[s.at+": "+fmt.Sprintf(format, a...)] = struct{}{}
}

// under looks at a type under a name.
func (s *surface) under(name string, of types.Type) {
	at, seen := s.at, s.seen
	s.at, s.seen = name, make(map[types.Type]struct{})
	s.look(of)
	s.at, s.seen = at, seen
}

func (s *surface) object(o types.Object) {
	name, ok := o.(*types.TypeName)
	if !ok {
		s.under(o.Name(), o.Type())
		return
	}

	of := types.Unalias(name.Type())
	if name.IsAlias() {
		s.under(name.Name(), of)
		return
	}
	s.under(name.Name(), of.Underlying())
	if of, ok := of.(*types.Named); ok {
		for i := range of.TypeParams().Len() {
			s.under(name.Name(), of.TypeParams().At(i))
		}
		s.methods(of)
	}
}

// methods looks at the methods of a type that the package exports.
func (s *surface) methods(of *types.Named) {
	if types.IsInterface(of) {
		return // its methods are looked at with the type
	}
	all := types.NewMethodSet(types.NewPointer(of))
	for i := range all.Len() {
		m := all.At(i)
		if !m.Obj().Exported() {
			continue
		}

		s.at = of.Obj().Name() + "." + m.Obj().Name()
		home := m.Obj().Pkg()
		switch field := firstField(of, m); {
		case home != nil && home != s.own && isInternal(home.Path()):
			s.fault("its documentation is that of the internal package %s", home.Path())
		case home != s.own && field != nil && !field.Exported():
			s.fault("no documentation shows it, because the field %s is not exported", field.Name())
		default:
			s.under(s.at, m.Obj().Type())
		}
	}
}

// firstField returns the field through which a type has a method. It is nil if the method is the type's own.
func firstField(of *types.Named, m *types.Selection) *types.Var {
	st, ok := of.Underlying().(*types.Struct)
	if !ok || len(m.Index()) < 2 {
		return nil
	}
	return st.Field(m.Index()[0])
}

// look looks at a type that users of the package can reach.
func (s *surface) look(of types.Type) {
	of = types.Unalias(of)
	if _, seen := s.seen[of]; seen {
		return
	}
	s.seen[of] = struct{}{}

	switch of := of.(type) {
	case *types.Named:
		s.named(of)
	case *types.Pointer:
		s.look(of.Elem())
	case *types.Slice:
		s.look(of.Elem())
	case *types.Array:
		s.look(of.Elem())
	case *types.Chan:
		s.look(of.Elem())
	case *types.Map:
		s.look(of.Key())
		s.look(of.Elem())
	case *types.Tuple:
		for i := range of.Len() {
			s.look(of.At(i).Type())
		}
	case *types.TypeParam:
		s.look(of.Constraint())
	case *types.Union:
		for i := range of.Len() {
			s.look(of.Term(i).Type())
		}
	case *types.Signature:
		for i := range of.TypeParams().Len() {
			s.look(of.TypeParams().At(i))
		}
		s.look(of.Params())
		s.look(of.Results())
	case *types.Interface:
		for i := range of.NumMethods() {
			s.look(of.Method(i).Type())
		}
		for i := range of.NumEmbeddeds() {
			s.look(of.EmbeddedType(i))
		}
	case *types.Struct:
		for i := range of.NumFields() {
			if f := of.Field(i); f.Exported() || f.Embedded() && s.isOwn(f.Type()) {
				s.look(f.Type())
			}
		}
	}
}

// isOwn reports whether a type is one of the package.
func (s *surface) isOwn(of types.Type) bool {
	named, ok := types.Unalias(of).(*types.Named)
	return ok && named.Obj().Pkg() == s.own
}

// named looks at a type with a name.
func (s *surface) named(of *types.Named) {
	for i := range of.TypeArgs().Len() {
		s.look(of.TypeArgs().At(i))
	}
	o := of.Obj()
	switch {
	case o.Pkg() != nil && isInternal(o.Pkg().Path()) && o.Pkg() != s.own:
		s.fault("names the internal type %s.%s", o.Pkg().Path(), o.Name())
	case o.Pkg() == s.own && !o.Exported():
		// Users reach the fields and methods of a type that they cannot name.
		s.look(of.Underlying())
		for i := range of.NumMethods() {
			if m := of.Method(i); m.Exported() {
				s.look(m.Type())
			}
		}
	}
}

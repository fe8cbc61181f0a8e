// Package faulty has each fault once that TestNothingInternalIsExported finds, and what is none.
package faulty

import (
	"io"
	"sync"

	"github.com/fleetthrottle/throttle/internal/lab/vet/testdata/faulty/internal/hidden"
)

type (
	Aliased                   = hidden.Type
	Constrained[T hidden.Set] struct{ of T }
	Embeds                    struct{ *hidden.Type }
	EmbedsAlias               struct{ closer }
	Fields                    struct{ F map[string][]hidden.Type }
	Interface                 interface{ M(hidden.Type) }
	Methods                   struct{}
)

type closer = io.Closer

type unexported struct{ F hidden.Type }

func (Methods) Do(func(hidden.Type))  {}
func (Methods) not(func(hidden.Type)) {}

func Returns() *hidden.Type         { return nil }
func ReturnsUnexported() unexported { return unexported{} }
func Takes(...chan hidden.Type)     {}
func takes(hidden.Type)             {}

var Variable [2]hidden.Type

// Fine is what a package may export.
type Fine struct {
	sync.Mutex
	of hidden.Type
	own
}

type own struct{}

// Own is a method of which the documentation is in this package.
func (own) Own() {}

package filestore

import (
	"errors"
	"fmt"
)

// errDamaged says that a file is none that a store has written.
var errDamaged = errors.New("the file is damaged")

// ErrOtherMachine says that programs of another machine use the directory. Locks and clocks
// of a machine are its own, so budgets cannot be shared in that way.
var ErrOtherMachine = errors.New("filestore: programs of another machine, or of an earlier boot, use the directory: only programs of one machine can share it")

// A FormatError says that another version of this package wrote the budgets. Nothing is booked,
// because neither version would know what the other one books. Stop all programs that use the
// directory, remove the files in it, and start programs of one version.
type FormatError struct {
	Found int // the form that the file has
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("it was written by another version of the program (form %d, this program knows form %d): "+
		"use one version, or another directory", e.Found, format)
}

package filestore

import (
	"errors"
	"fmt"
	"os"

	"github.com/fleetthrottle/throttle/internal/nodestore"
)

// An awayError says that the directory cannot be used now, and may be again: the disk is full, for example. Callers wait.
type awayError struct{ error }

// Unwrap returns the error of the file system.
func (e awayError) Unwrap() error { return e.error }

// Is implements the interface of [errors.Is].
func (awayError) Is(target error) bool { return target == nodestore.ErrAway }

// fail returns an error as a store returns it. Callers wait for what will pass; of files that are damaged, of another form or machine,
// or that the program may not use, they are told at once.
func fail(err error) error {
	err = fmt.Errorf("filestore: %w", err)
	var form *FormatError
	switch {
	case errors.Is(err, errDamaged), errors.As(err, &form), errors.Is(err, ErrOtherMachine), errors.Is(err, os.ErrPermission):
		return err
	}
	return awayError{err}
}

//go:build !unix

package servers

import (
	"errors"
	"os"
)

// Pause fails: on other systems no signal pauses a process.
func Pause(*os.Process) error { return errors.ErrUnsupported }

// Continue fails as Pause does.
func Continue(*os.Process) error { return errors.ErrUnsupported }

//go:build !linux

package redistest

import "os/exec"

// dieWithParent does nothing where the kernel offers nothing of the kind:
// there, cleanup functions and [Main] end the servers.
func dieWithParent(*exec.Cmd) {}

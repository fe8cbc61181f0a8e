//go:build !linux

package crew

import "os/exec"

// dieWithParent does nothing where the kernel offers nothing of the kind. There the code that
// started a process ends it.
func dieWithParent(*exec.Cmd) {}

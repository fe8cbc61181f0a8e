package crew

import (
	"os/exec"
	"syscall"
)

// dieWithParent lets the kernel kill the process when the test binary ends,
// however it ends: by a timeout, a crash, a signal.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// A process is a server that runs while it is measured.
type process struct {
	cmd     *exec.Cmd
	address string // that it said on stderr
}

// start starts a process that says on stderr where it is, behind a text.
func start(before string, name string, args ...string) (*process, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")

	talk, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}

	lines := bufio.NewScanner(talk)
	for lines.Scan() {
		if _, rest, ok := strings.Cut(lines.Text(), before); ok {
			address, _, _ := strings.Cut(rest, "/")
			go func() {
				for lines.Scan() { // so that it never waits for a reader
				}
			}()

			return &process{cmd, address}, nil
		}
	}

	_ = cmd.Wait()
	return nil, fmt.Errorf("%s did not say where it is", name)
}

// stop ends the process.
func (p *process) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// tick is the unit of processor time in /proc: Linux has 100 of them a second on all its platforms of Go.
const tick = 10 * time.Millisecond

// used returns how much processor time the process has used.
func (p *process) used() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}

	_, rest, _ := strings.Cut(string(text), ") ") // a name may have spaces
	fields := strings.Fields(rest)

	const user, system = 11, 12
	if len(fields) <= system {
		return 0, fmt.Errorf("/proc/%d/stat has another form", p.cmd.Process.Pid)
	}

	var ticks int64
	for _, field := range fields[user : system+1] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}

	return time.Duration(ticks) * tick, nil
}

// memory returns the process's memory now, or its peak, in bytes: "VmRSS" or "VmHWM".
func (p *process) memory(name string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name+":" {
			kilobytes, err := strconv.ParseInt(fields[1], 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no %s", p.cmd.Process.Pid, name)
}

// cost returns the cost of a load for the process.
func (p *process) cost(before time.Duration, l *load) (string, error) {
	after, err := p.used()
	if err != nil {
		return "", err
	}

	now, err := p.memory("VmRSS")
	if err != nil {
		return "", err
	}

	most, err := p.memory("VmHWM")
	if err != nil {
		return "", err
	}

	used := after - before
	return fmt.Sprintf(" %9.3f %11.0f %9.1f %9.1f", used.Seconds()/l.elapsed.Seconds(), used.Seconds()*1e6/float64(len(l.took)), float64(now)/1e6, float64(most)/1e6), nil
}

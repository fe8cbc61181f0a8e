package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// nodeVariable tells a process of this program which node it is.
const nodeVariable = "DINGTALK_EXAMPLE_NODE"

// grace is how long a node may take to stop before it is killed.
const grace = 500 * time.Millisecond

// A process is a node that runs as a process of its own. It reads its setup and
// tasks as lines of JSON, so that no secret is among its arguments, and writes
// results. The end of its input tells it to stop; it notices the end of the
// parent in the same way.
type process struct {
	number int
	setup  setup

	cmd *exec.Cmd

	mu  sync.Mutex
	out map[int]task // handed to the process and not yet returned
}

// serve implements member. Tasks that a process takes with it when it dies are
// returned as failed, so that another node gets them.
func (p *process) serve(ctx context.Context, tasks <-chan task, results chan<- result) error {
	in, out, err := p.start(ctx)
	if err != nil {
		return fmt.Errorf("node %d: %w", p.number, err)
	}
	p.out = make(map[int]task)
	free := make(chan struct{}, p.setup.Workers) // a place for each worker of the process
	ended := make(chan struct{})
	var feeding sync.WaitGroup
	feeding.Go(func() {
		defer in.Close()
		p.feed(ctx, json.NewEncoder(in), tasks, free, ended)
	})
	lines := json.NewDecoder(out)
	for {
		var r result
		if lines.Decode(&r) != nil {
			break // it ended; Wait says why
		}
		p.returned(r.Task)
		<-free
		deliver(ctx, results, r)
	}
	close(ended)
	feeding.Wait()
	err = p.cmd.Wait()
	for _, t := range p.out {
		deliver(ctx, results, result{Task: t, Err: "its node ended", Returned: true})
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("node %d: %w", p.number, err)
	}
	return ctx.Err()
}

// start starts this program again, as a node.
func (p *process) start(ctx context.Context) (io.WriteCloser, io.Reader, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	p.cmd = exec.CommandContext(ctx, program)
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", nodeVariable, p.number))
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	p.cmd.Cancel, p.cmd.WaitDelay = in.Close, grace
	return in, out, p.cmd.Start()
}

// feed writes the setup and then tasks, never more than the process has workers
// for: the others can have them.
func (p *process) feed(ctx context.Context, lines *json.Encoder, tasks <-chan task, free chan<- struct{}, ended <-chan struct{}) {
	if lines.Encode(p.setup) != nil {
		return
	}
	for {
		select {
		case free <- struct{}{}:
		case <-ended:
			return
		case <-ctx.Done():
			return
		}
		select {
		case t, ok := <-tasks:
			if !ok {
				return
			}
			p.handed(t)
			if lines.Encode(t) != nil {
				return
			}
		case <-ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (p *process) handed(t task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out[t.ID] = t
}

func (p *process) returned(t task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.out, t.ID)
}

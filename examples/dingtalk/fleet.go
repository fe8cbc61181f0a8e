package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A member is a node, wherever it runs.
type member interface {
	// serve works until tasks is closed or the context ends, and returns
	// each task it took as a result.
	serve(ctx context.Context, tasks <-chan task, results chan<- result) error
}

// run hands the tasks of a pull to the members until all is done, the context
// ends or no member is left. It returns when every member has stopped.
func run(ctx context.Context, p *pull, members []member, show func(*pull), every time.Duration) error {
	tasks, results := make(chan task), make(chan result)
	left := make(chan struct{})
	errs := make([]error, len(members))
	var working sync.WaitGroup
	for i, m := range members {
		working.Go(func() { errs[i] = m.serve(ctx, tasks, results) })
	}
	go func() {
		working.Wait()
		close(left)
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()

	for working := true; working && !p.finished(); {
		out := tasks
		next, ok := p.next()
		if !ok {
			out = nil // everything is handed out: wait for results
		}
		select {
		case out <- next:
			p.taken(next)
		case r := <-results:
			p.settle(r, time.Now())
		case <-tick.C:
			show(p)
		case <-left:
			working = false
		case <-ctx.Done():
			working = false
		}
	}
	close(tasks)
	<-left
	show(p)
	return errors.Join(errs...)
}

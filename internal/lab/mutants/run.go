package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
)

// runAll tries the mutations, atOnce of them at a time, and calls tell after each trial, never twice at a time. It returns
// the trials in the order of all. The first error ends all trials, and so does the end of ctx, which is an error. After an
// error the trials that were not made are zero, or the list is nil.
func runAll(ctx context.Context, root string, all []mutation, atOnce int, tell func(trial) error) (seen []trial, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	last, err := records(root)
	if err != nil {
		return nil, err
	}

	unbroken, err := copyTree(root)
	defer func() { err = errors.Join(err, unbroken.remove()) }() // a copy that failed leaves a folder, too
	if err != nil {
		return nil, err
	}

	// A test that is red without a mutation, too, kills nothing. asIs finds out, in a tree without mutations.
	asIs := &sound{bench: bench{unbroken, make(map[suite]binary)}, green: make(map[string]bool)}
	seen = make([]trial, len(all))
	errs := make([]error, atOnce)
	next := make(chan int)
	var workers sync.WaitGroup

	var told sync.Mutex
	for w := range atOnce {
		workers.Go(func() {
			errs[w] = work(unbroken.dir, next, func(t *bench, i int) error {
				r, err := t.try(ctx, all[i], last[all[i].name].by, asIs)
				if err != nil {
					return fmt.Errorf("%s: %w", all[i].name, err)
				}

				// tell writes files, so call it one at a time.
				told.Lock()
				defer told.Unlock()

				seen[i] = r
				return tell(r)
			})

			// A worker that cannot work ends the others.
			if errs[w] != nil {
				stop()
			}
		})
	}

	for i := range all {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}

	close(next)
	workers.Wait()

	// An interrupt between two trials leaves some untried, and no worker has an error.
	return seen, cmp.Or(errors.Join(errs...), ctx.Err())
}

// work makes a tree of its own, and calls do in it for each number from next, until next is closed or do fails. The tree is
// a copy of root with free scripts: see freeScripts. work removes it at the end.
func work(root string, next <-chan int, do func(*bench, int) error) (err error) {
	t, err := copyTree(root)
	defer func() { err = errors.Join(err, t.remove()) }() // a copy that failed leaves a folder, too

	// Then a mutation of a script needs no compilation.
	if err == nil {
		err = t.freeScripts()
	}
	if err != nil {
		return err
	}

	b := &bench{t, make(map[suite]binary)}
	for i := range next {
		if err := do(b, i); err != nil {
			return err
		}
	}

	return nil
}

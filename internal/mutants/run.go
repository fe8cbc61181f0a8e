package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// runAll tries the mutations, some at once, each time in a tree of its own, and
// tells of each. What it returns is in their order.
func runAll(ctx context.Context, root string, all []mutation, atOnce int, out io.Writer) (seen []trial, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	seen = make([]trial, len(all))
	errs := make([]error, atOnce)
	next := make(chan int)
	var workers sync.WaitGroup
	var told sync.Mutex
	sound := sync.OnceValue(func() error { return green(ctx, root, all) })
	for w := range atOnce {
		workers.Go(func() {
			if errs[w] = sound(); errs[w] == nil {
				errs[w] = work(ctx, root, next, all, func(i int, r trial) {
					told.Lock()
					defer told.Unlock()
					seen[i] = r
					fmt.Fprintf(out, "%-9s %-4s %-28s %5.1fs %s\n", r.verdict, r.promise, r.name, r.took.Seconds(), r.by)
				})
			}
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
	return seen, errors.Join(errs...)
}

// work tries one mutation after another.
func work(ctx context.Context, root string, next <-chan int, all []mutation, tell func(int, trial)) (err error) {
	t, err := copyTree(root)
	defer func() { err = errors.Join(err, t.remove()) }()
	if err != nil {
		return err
	}
	for i := range next {
		r, err := t.try(ctx, all[i])
		if err != nil {
			return fmt.Errorf("%s: %w", all[i].name, err)
		}
		tell(i, r)
	}
	return nil
}

// green sees to it that all tests that will be run are green before anything is
// broken: else they would kill whatever comes.
func green(ctx context.Context, root string, all []mutation) (err error) {
	t, err := copyTree(root)
	defer func() { err = errors.Join(err, t.remove()) }()
	if err != nil {
		return err
	}
	for what, most := range together(all) {
		v, by, err := t.test(ctx, what, most)
		if err != nil {
			return err
		}
		if v != survived {
			return fmt.Errorf("%s is %s by %s though nothing is broken", what.pkg, v, by)
		}
	}
	return nil
}

// together returns the tests of all mutations, each package's in one run.
func together(all []mutation) map[tests]time.Duration {
	patterns := make(map[tests][]string)
	for _, m := range all {
		in := m.tests.all()
		patterns[in] = append(patterns[in], m.tests.run)
	}
	runs := make(map[tests]time.Duration, len(patterns))
	for in, p := range patterns {
		in.run = strings.Join(p, "|")
		runs[in] = whole
	}
	return runs
}

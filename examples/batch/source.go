package main

import (
	"context"
	"errors"
	"sync"

	"github.com/fleetthrottle/throttle"
)

const (
	workers      = 16 // of each source; more do no harm, because they wait
	passes       = 3  // how often a page is tried that fails, the first time with all others
	mostFailures = 20 // of a source, before the job gives up
)

// A source is where rows come from, as pages, and where they go.
type source struct {
	*folder
	*tally
}

// openSource opens a source under a policy. Its ids go from 1 to last, so many on a page.
func openSource(o options, name string, p throttle.Policy, last, size int) (*source, error) {
	f, err := openFolder(o.out, name, last, size, o.part, o.parts)
	if err != nil {
		return nil, err
	}
	share := (1 - p.Headroom[o.priority]) / float64(o.parts)
	return &source{f, newTally(p, share, f)}, nil
}

// pull pulls the pages that a source lacks. Pages that fail are tried again when all others are done.
func pull[Row any](ctx context.Context, s *source, call func(context.Context, page) ([]Row, error)) error {
	todo := s.missing()
	for pass := 0; pass < passes && len(todo) > 0; pass++ {
		var err error
		if todo, err = pullAll(ctx, s, todo, call); err != nil {
			return err
		}
	}
	if len(todo) > 0 {
		return s.failure()
	}
	return s.finish()
}

// pullAll pulls pages, and returns those that failed. An error says that not all pages were tried.
func pullAll[Row any](ctx context.Context, s *source, todo []page, call func(context.Context, page) ([]Row, error)) (failed []page, err error) {
	enough, giveUp := context.WithCancelCause(ctx) // ends before ctx when no other page is to be begun
	defer giveUp(nil)
	var mu sync.Mutex // of failed
	pages := make(chan page)
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for p := range pages {
				rows, err := call(ctx, p)
				if err == nil {
					err = write(s.folder, p, rows)
				}
				switch {
				case err == nil:
					s.add(len(rows))
				case ctx.Err() != nil: // the job is being stopped
				case errors.Is(err, throttle.ErrLimited): // ctx ends before there is room for the call
					giveUp(errOver)
				default:
					mu.Lock()
					failed = append(failed, p)
					mu.Unlock()
					if s.fail(err) >= mostFailures {
						giveUp(s.failure())
					}
				}
			}
		})
	}
	for i := 0; i < len(todo) && enough.Err() == nil; i++ {
		select {
		case pages <- todo[i]:
		case <-enough.Done():
		}
	}
	close(pages)
	working.Wait()
	return failed, context.Cause(enough)
}

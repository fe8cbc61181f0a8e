package main

import (
	"context"
	"errors"
	"sync"

	"github.com/fleetthrottle/throttle"
)

const (
	workers      = 16 // per source; more do no harm, because they wait
	passes       = 3  // attempts per page
	mostFailures = 20 // per source, before the job gives up
)

// A source is the pages to pull and the folder for them.
type source struct {
	*folder
	*tally
}

// openSource opens a source under a policy, with ids from 1 to last and size ids per page.
func openSource(o options, name string, p throttle.Policy, last, size int) (*source, error) {
	f, err := openFolder(o.out, name, last, size, o.part, o.parts)
	if err != nil {
		return nil, err
	}
	// Each machine has its part of the limit that the priority leaves.
	share := (1 - p.Headroom[o.priority]) / float64(o.parts)
	return &source{f, newTally(p, share, f)}, nil
}

// pull pulls the missing pages of a source. Failed pages are repeated after all pages were tried.
func pull[Row any](ctx context.Context, s *source, call func(context.Context, page) ([]Row, error)) error {
	todo := s.missing()
	// Try failed pages again only after all pages: trouble of a moment is over then.
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

// pullAll pulls pages, and returns those that failed. An error means that some pages were not tried.
func pullAll[Row any](ctx context.Context, s *source, todo []page, call func(context.Context, page) ([]Row, error)) (failed []page, err error) {
	enough, giveUp := context.WithCancelCause(ctx) // ends when no further page should begin
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

				// Only failures of the page itself are repeated.
				switch {
				case err == nil:
					s.add(len(rows))
				case ctx.Err() != nil: // the job is being stopped
				case errors.Is(err, throttle.ErrLimited): // ctx ends before the call could start
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

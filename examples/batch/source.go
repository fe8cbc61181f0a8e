package main

import (
	"context"
	"errors"
	"sync"

	"github.com/fleetthrottle/throttle"
)

const (
	workers    = 16 // of each source; more do no harm, because they wait
	mostFailed = 20 // pages of a source, before the job gives up
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

// pull pulls the pages that a source lacks. A page that fails is left for the next run, and the others
// are pulled all the same.
func pull[Row any](ctx context.Context, s *source, call func(context.Context, page) ([]Row, error)) error {
	enough, giveUp := context.WithCancelCause(ctx) // ends before ctx when no other page is to be begun
	defer giveUp(nil)
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
				case s.fail(err) == mostFailed:
					giveUp(s.failure())
				}
			}
		})
	}
	for _, p := range s.missing() {
		select {
		case pages <- p:
		case <-enough.Done():
		}
	}
	close(pages)
	working.Wait()
	if enough.Err() != nil {
		return context.Cause(enough)
	}
	if err := s.failure(); err != nil {
		return err
	}
	return s.finish()
}

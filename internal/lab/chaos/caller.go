package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/fleet"
)

// A callerKind says how long a caller waits.
type callerKind int

const (
	patient callerKind = iota // without a deadline
	dated                     // until the deadline of its context
	bounded                   // for a MaxWait
)

// A role is the work that a caller repeats.
type role struct {
	path    string
	kind    callerKind
	callers int // in each member
}

// The paths say which limits a request obeys.
const (
	quick     = "/pull/quick" // the sliding window
	slow      = "/free/slow"  // the limit of requests in flight
	quickSlow = "/pull/slow"  // both
)

// cast is more than the upstream allows, so that callers always wait.
var cast = []role{
	{quick, patient, 9},
	{quick, dated, 3},
	{quick, bounded, 2},
	{slow, patient, 2},
	{slow, dated, 1},
	{quickSlow, patient, 1},
	{quickSlow, dated, 1},
}

// A caller calls until its member rests.
type caller struct {
	role
	name   string
	url    string
	client *http.Client
	tell   func(word)
}

// CallHeader names a call.
const callHeader = "X-Chaos-Call"

// work calls until ctx ends, then gives up.
func (c *caller) work(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		done := c.call(ctx, fmt.Sprintf("%s/%d", c.name, n))
		if ctx.Err() != nil {
			return
		}
		c.tell(word{Call: &done})
		rest(ctx, rand.N(100*time.Millisecond))
		if done.Err != "" {
			// Refused at once, it would ask at once again.
			rest(ctx, 200*time.Millisecond)
		}
	}
}

// call makes one call.
func (c *caller) call(ctx context.Context, id string) call {
	done := call{ID: id, Kind: c.kind, Asked: fleet.Now()}
	var where atomic.Pointer[string]

	switch wait := 300*time.Millisecond + rand.N(2700*time.Millisecond); c.kind {
	case dated:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
		done.By = done.Asked + wait
		defer time.AfterFunc(wait+mostLate, tracer(&where)).Stop()

	case bounded:
		ctx = throttle.WithMaxWait(ctx, wait)
		done.By = done.Asked + wait
		defer time.AfterFunc(wait+mostLate, tracer(&where)).Stop()
	}

	err := c.send(ctx, id)
	done.Returned = fleet.Now()
	done.Err, done.Text = kind(err)
	if at := where.Load(); at != nil {
		done.Where = *at
	}

	return done
}

// send sends the request and reads the answer.
func (c *caller) send(ctx context.Context, id string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+c.path, nil)
	if err != nil {
		return err
	}

	r.Header.Set(fleet.WorkerHeader, c.name)
	r.Header.Set(callHeader, id)

	resp, err := c.client.Do(r)
	if err != nil {
		return err
	}

	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errStatus(resp.StatusCode)
	}

	return nil
}

// An errStatus is an answer that is not 200.
type errStatus int

func (e errStatus) Error() string { return fmt.Sprint("status ", int(e)) }

// kind says what kind of error a call ended with, and the text of an error that
// nobody expects. The texts of http.Client hold URLs, the library's none.
func kind(err error) (name, text string) {
	var store *throttle.StoreError
	var status errStatus
	switch {
	case err == nil:
		return "", ""
	case errors.Is(err, throttle.ErrLimited):
		return "limited", ""
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline", ""
	case errors.As(err, &store):
		return "store", store.Error()
	case errors.As(err, &status):
		return status.Error(), ""
	}

	return "other", err.Error()
}

// rest waits for d, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

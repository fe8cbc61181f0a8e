package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
)

const role = "stores"

// orders are the orders of a process.
type orders struct {
	Way, At string
	Callers int
	Length  time.Duration
}

// member is a process that takes starts.
func member(program *crew.Link) error {
	var o orders
	if err := program.Hear(&o); err != nil {
		return err
	}

	take, err := wayNamed(o.Way).open(o.At)
	if err != nil {
		return err
	}
	if _, err := takeAll(take, o.Callers, 0); err != nil { // this makes the connections
		return err
	}

	var start string
	if err := errors.Join(program.Tell("ready"), program.Hear(&start)); err != nil {
		return err
	}

	all, err := takeAll(take, o.Callers, o.Length)
	if err != nil {
		return err
	}

	took := make(times)
	for _, d := range all {
		took.add(d)
	}

	return program.Tell(took)
}

// takeAll has each caller take a start, and further starts until the time is over. It returns how long each start took.
func takeAll(take taker, callers int, length time.Duration) ([]time.Duration, error) {
	var all sync.WaitGroup
	took, errs := make([][]time.Duration, callers), make([]error, callers)

	end := time.Now().Add(length)
	for i := range callers {
		all.Go(func() {
			for began, more := time.Now(), true; more && errs[i] == nil; more = began.Before(end) {
				errs[i] = take(context.Background())
				now := time.Now()
				took[i] = append(took[i], now.Sub(began))
				began = now
			}
		})
	}

	all.Wait()
	return slices.Concat(took...), errors.Join(errs...)
}

package main

import (
	"context"
	"net/http"
	"sync"

	"github.com/fleetthrottle/throttle"
)

// A setup is what a node has to know.
type setup struct {
	Account account
	Base    string // the URL of the old host
	Secret  string
	Workers int
	Redis   string // a URL; "": the budgets are in this process
	Plain   bool   // without the library
}

// A node pulls: it takes tasks and returns results until there are no more.
type node struct {
	workers int
	api     *api
	base    http.RoundTripper
}

// newNode makes a node of the fleet that shares the store. It sends its
// requests through base.
func newNode(s setup, store throttle.Store, base http.RoundTripper) (*node, error) {
	client := &http.Client{Transport: tripObserver{base}}
	if !s.Plain {
		var err error
		if client, err = newClient(store, policies(s.Account), tripObserver{base}, observe); err != nil {
			return nil, err
		}
	}
	return &node{
		workers: s.Workers,
		api:     &api{client: client, base: s.Base, key: s.Account.App, secret: s.Secret},
		base:    base,
	}, nil
}

// serve works until tasks is closed or the context ends.
func (n *node) serve(ctx context.Context, tasks <-chan task, results chan<- result) error {
	defer (&http.Client{Transport: n.base}).CloseIdleConnections()
	var workers sync.WaitGroup
	for range n.workers {
		workers.Go(func() {
			for t := range tasks {
				if !deliver(ctx, results, n.do(ctx, t)) {
					return
				}
			}
		})
	}
	workers.Wait()
	return ctx.Err()
}

// deliver hands a result over unless nobody wants it any more.
func deliver(ctx context.Context, results chan<- result, r result) bool {
	select {
	case results <- r:
		return true
	case <-ctx.Done():
		return false
	}
}

// do makes the call.
func (n *node) do(ctx context.Context, t task) result {
	trip := new(trip)
	ctx = withTrip(ctx, trip)
	r := result{Task: t}
	var err error
	if t.Path == pathDepartments {
		r.Departments, err = n.api.departments(ctx, t.Dept)
	} else {
		r.People, r.Next, err = n.api.people(ctx, t.Dept, t.Cursor)
	}
	if err != nil {
		r.Err = err.Error()
	}
	r.Starts, r.Refusals = trip.starts, trip.refusals
	return r
}

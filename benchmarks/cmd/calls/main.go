// Calls makes many calls of one kind and nothing else, so that a profiler that counts
// instructions can tell what one takes: see instructions.sh.
//
//	calls acquire|roundtrip|wait <how many>
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"

	"golang.org/x/time/rate"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// plenty is a limit for each second that is never reached.
const plenty = 100_000_000

// kinds are the kinds of calls: each returns one that finds room.
var kinds = map[string]func(context.Context) (func() error, error){
	"acquire":   acquire,
	"roundtrip": roundTrip,
	"wait":      wait,
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "calls:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 || kinds[args[0]] == nil {
		return fmt.Errorf("usage: calls acquire|roundtrip|wait <how many>")
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	call, err := kinds[args[0]](ctx)
	for i := 0; i < n && err == nil; i++ {
		err = call()
	}
	return err
}

func acquire(ctx context.Context) (func() error, error) {
	l, err := throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "p", Limit: throttle.PerSecond(plenty)})
	return func() error {
		_, err := l.Acquire(ctx, "", 1)
		return err
	}, err
}

func roundTrip(ctx context.Context) (func() error, error) {
	t, err := throttle.New(throttle.Config{
		Base: idle{}, Store: memstore.New(),
		Policies: []throttle.Policy{{Name: "p", Match: "api.example.com/v1/", Limit: throttle.PerSecond(plenty)}},
	})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/v1/users", nil)
	return func() error {
		resp, err := t.RoundTrip(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}, err
}

func wait(ctx context.Context) (func() error, error) {
	l := rate.NewLimiter(plenty, plenty)
	return func() error { return l.Wait(ctx) }, nil
}

// idle is a base that answers at once with nothing.
type idle struct{}

func (idle) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
}

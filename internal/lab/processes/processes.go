//go:build unix

// Package processes has tests of a store's promises to several processes, for stores that they share through a directory
// or a server. Programs of the tests are real, and so is the time: promises that a contract can show in virtual time are not here.
package processes

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/fleet"
)

// A Store is shared by processes.
type Store struct {
	Role string // of its processes

	// Open opens the store for a process; place says where the store is. close closes what the store has open, such as
	// connections. It is nil if there is nothing to close.
	Open func(place string, lease time.Duration) (s throttle.Store, close func(), err error)

	Lease time.Duration // so short that a test can wait for its end
}

// Main is called first thing in TestMain.
func (s *Store) Main() { crew.Main(s.Role, s.member) }

// An order is a process's instructions.
type order struct {
	Place, URL string
	Lease      time.Duration
	Name       string
	Workers    int
	N          int // a second
	Slots      int // how many requests may be in flight; the default is one for each worker
}

// A report has the observations of a process.
type report struct{ Failed string } // the last error, or ""

// member is a process. Each of its workers sends requests until the program tells it to stop, is gone, or a request fails.
func (s *Store) member(program *crew.Link) error {
	var o order
	if err := program.Hear(&o); err != nil {
		return err
	}

	store, _, err := s.Open(o.Place, o.Lease) // until the process ends
	if err != nil {
		return err
	}

	transport, err := throttle.New(throttle.Config{Base: stamper{}, MaxWait: throttle.Forever, Store: store, Policies: o.policies()})
	if err != nil {
		return err
	}
	if err := program.Tell("ready"); err != nil {
		return err
	}

	// Each worker sends one request after the other.
	stopped := program.Alone()
	var failed atomic.Value
	var workers sync.WaitGroup

	client := &http.Client{Transport: transport}
	for range o.Workers {
		workers.Go(func() {
			for stopped.Err() == nil {
				if err := o.get(client); err != nil {
					failed.Store(err.Error())
					return
				}
			}
		})
	}

	workers.Wait()
	var r report
	r.Failed, _ = failed.Load().(string)

	return program.Tell(r)
}

// policies are the process's limits: of starts and, if the order has Slots, of requests in flight.
func (o *order) policies() []throttle.Policy {
	all := []throttle.Policy{{
		Name: "api", Match: "/", Limit: throttle.SlidingWindow(o.N, time.Second),
		Jitter: 500 * time.Millisecond, // the machine may be short of time
	}}
	if o.Slots > 0 {
		all = append(all, throttle.Policy{Name: slots, Match: "/", Limit: throttle.Concurrency(o.Slots)})
	}
	return all
}

// slots is the policy of requests in flight.
const slots = "slots"

// A stamper is the base of a member's transport: it stamps each request when the transport lets it go. The real base behind it
// does not call the hooks of the request's context, so the transport's last check comes before the stamp.
type stamper struct{}

// RoundTrip implements [http.RoundTripper].
func (stamper) RoundTrip(req *http.Request) (*http.Response, error) {
	start := strconv.FormatInt(time.Now().UnixNano(), 10)
	req = req.Clone(withoutHooks{req.Context()})
	req.Header.Set(fleet.StartHeader, start)

	return http.DefaultTransport.RoundTrip(req)
}

// withoutHooks is a context without values, and so without the hooks of package httptrace.
type withoutHooks struct{ context.Context }

// Value implements [context.Context].
func (withoutHooks) Value(any) any { return nil }

// get sends a request. A process that is told to stop ends the requests it has begun.
func (o *order) get(client *http.Client) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, o.URL, nil)
	if err != nil {
		return err
	}
	req.Header.Set(fleet.WorkerHeader, o.Name)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

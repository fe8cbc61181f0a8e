package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/examples/batch/downstream"
)

// A demo is the surroundings of the job: fake services, and users beside it.
type demo struct {
	options
	address string            // of the services
	base    http.RoundTripper // reaches them, whatever the names of hosts
	server  *http.Server      // nil if the services run elsewhere
	begin   time.Time
	job     waits
	users   []*user
	sources []*source

	endUsers context.CancelFunc
	asking   sync.WaitGroup
}

// startDemo starts the services, unless they run elsewhere, and users with the job's configuration.
func startDemo(o options, c throttle.Config, orders, shipments *source) (*demo, error) {
	d := &demo{options: o, address: o.services, begin: time.Now(), sources: []*source{orders, shipments}}
	if d.address == "" {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}

		d.address, d.server = listener.Addr().String(), newServer(o)
		go d.server.Serve(listener)
	}

	// The job and the users reach the services by this base, whatever host a request names.
	d.base = reach(d.address)
	c.Base = d.base
	ctx, cancel := context.WithCancel(context.Background())
	d.endUsers = cancel
	d.job.begin = d.begin

	priorities := []throttle.Priority{throttle.PriorityNormal, o.priority}
	// With the same priority one kind of user is enough.
	for _, priority := range slices.Compact(priorities) {
		u, err := newUser(c, priority, o.priority, d.begin)
		if err != nil {
			cancel()
			return nil, err
		}

		d.users = append(d.users, u)
		d.asking.Go(func() { u.ask(ctx, o.orders, time.Duration(o.parts)*betweenUsers) })
	}

	return d, nil
}

// observe records how long the job's calls wait.
func (d *demo) observe(_ context.Context, e throttle.Event) { d.job.note(e) }

// report ends the users and the services, and writes the report.
func (d *demo) report(w *os.File, failed error) error {
	took := time.Since(d.begin)
	d.endUsers()
	// Count only when the last answer is there.
	d.asking.Wait()

	r := report{took: took, failed: failed, sources: d.sources, job: d.job.all()}
	for _, u := range d.users {
		r.users = append(r.users, waiting{u.who, u.all()})
	}

	if err := r.count(d.address, d.begin); err != nil {
		fmt.Fprintln(w, "the services do not say what they have counted:", err)
	}
	if d.server != nil {
		d.server.Close()
	}

	r.print(w)
	name := "report.svg"
	// Each machine has a picture of its own.
	if d.parts > 1 {
		name = fmt.Sprintf("report-%d.svg", d.part)
	}

	name = filepath.Join(d.out, name)
	if err := os.WriteFile(name, []byte(r.picture()), 0o644); err != nil {
		return err
	}

	fmt.Fprintln(w, "picture:", name)
	return nil
}

// newServer returns a server of the fake services.
func newServer(o options) *http.Server {
	return &http.Server{Handler: downstream.New(downstream.Options{Orders: o.orders, Shipments: o.shipments, Ban: o.ban})}
}

// serve runs only the services, until ctx ends.
func serve(ctx context.Context, o options) error {
	listener, err := net.Listen("tcp", o.serve)
	if err != nil {
		return err
	}
	fmt.Println("the services are at", listener.Addr())
	server := newServer(o)
	// Serve returns once the server is closed.
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}

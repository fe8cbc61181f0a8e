package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/examples/batch/downstream"
)

// An observer is told what happens to the calls of the job.
type observer = func(context.Context, throttle.Event)

// A demo is what the job is shown with: fake services, and two users beside it.
type demo struct {
	options
	address string            // of the services
	base    http.RoundTripper // reaches them, whatever the names of hosts
	server  *http.Server      // nil: the services are elsewhere
	begin   time.Time
	job     waits
	before  *user // has the usual priority, and so goes before the job
	beside  *user // has the job's priority
	sources []*source

	endUsers context.CancelFunc
	asking   sync.WaitGroup
}

// startDemo starts the services, if they are to be in this program, and the users.
func startDemo(o options, store throttle.Store, orders, shipments *source) (*demo, error) {
	d := &demo{options: o, address: o.services, begin: time.Now(), sources: []*source{orders, shipments}}
	if d.address == "" {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		d.address, d.server = listener.Addr().String(), newServer(o)
		go d.server.Serve(listener)
	}
	d.base = reach(d.address)
	ctx, cancel := context.WithCancel(context.Background())
	d.endUsers = cancel
	d.job.begin = d.begin
	for user, priority := range map[**user]throttle.Priority{&d.before: throttle.Normal, &d.beside: o.priority} {
		var err error
		if *user, err = newUser(store, d.base, d.begin); err != nil {
			return nil, err
		}
		d.asking.Go(func() {
			(*user).ask(throttle.WithPriority(ctx, priority), o.orders, time.Duration(o.parts)*betweenUsers)
		})
	}
	return d, nil
}

// observe notes how long the calls of the job wait.
func (d *demo) observe(_ context.Context, e throttle.Event) { d.job.note(e) }

// report ends the users and the services, and writes what happened.
func (d *demo) report(w *os.File, failed error) error {
	took := time.Since(d.begin)
	d.endUsers()
	d.asking.Wait()
	r := report{took: took, failed: failed, sources: d.sources, waits: []waiting{
		{"the job", d.job.all()},
		{"a user, who goes before the job", d.before.all()},
		{"a user with the job's priority", d.beside.all()},
	}}
	if err := r.count(d.address, d.begin); err != nil {
		fmt.Fprintln(w, "the services do not say what they have counted:", err)
	}
	if d.server != nil {
		d.server.Close()
	}
	r.print(w)
	name := "report.svg"
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

// newServer returns a server that is the fake services.
func newServer(o options) *http.Server {
	return &http.Server{Handler: downstream.New(downstream.Options{Orders: o.orders, Shipments: o.shipments, Ban: o.ban})}
}

// serve is the program as the services, until the context ends.
func serve(ctx context.Context, o options) error {
	listener, err := net.Listen("tcp", o.serve)
	if err != nil {
		return err
	}
	fmt.Println("the services are at", listener.Addr())
	server := newServer(o)
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}

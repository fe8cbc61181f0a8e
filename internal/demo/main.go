// Demo is a fleet that calls a DingTalk which counts, refuses and bans: four nodes
// share its limits and pull an address book. Flags make the nodes processes that
// share a Redis, leave the library out, or have another program behind the same
// address banned in the middle of the job. It draws the pictures of the pages.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/fleetthrottle/throttle"
)

// options are the flags.
type options struct {
	nodes, workers, people int
	redis                  string
	unthrottled, provoke   bool
	ban, jitter            time.Duration
	svg                    string
	node                   string // the host of the upstream, for a process that is a node
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	code, err := demo(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
	os.Exit(code)
}

// The exit codes.
const (
	exitDone        = 0
	exitFailed      = 1 // something was lost, refused or banned
	exitUsage       = 2
	exitInterrupted = 130
)

// demo is main without the process around it.
func demo(ctx context.Context, args []string, stdout, stderr io.Writer) (exit int, err error) {
	var o options
	f := flag.NewFlagSet("demo", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.nodes, "nodes", 4, "nodes in the fleet")
	f.IntVar(&o.workers, "workers", 16, "workers of each node")
	f.IntVar(&o.people, "people", 3000, "people in the address book")
	f.StringVar(&o.redis, "redis", "", "`URL` of a Redis; the nodes are then processes that share it")
	f.BoolVar(&o.unthrottled, "unthrottled", false, "leave the library out; the address is banned after 100 calls, a hundredth of the real rule")
	f.BoolVar(&o.provoke, "provoke", false, "another program behind the same address gets it banned in the middle of the job")
	f.DurationVar(&o.ban, "ban", 5*time.Minute, "how long a ban lasts")
	f.DurationVar(&o.jitter, "jitter", throttle.DefaultJitter, "how long a call may be on its way; more on a busy machine")
	f.StringVar(&o.svg, "svg", "", "`file` for a picture of the calls")
	f.StringVar(&o.node, "node", "", "be a node that calls this `host`; for the program itself")
	if f.Parse(args) != nil {
		return exitUsage, nil // the flag set has told
	}
	switch {
	case f.NArg() > 0 || o.nodes < 1 || o.workers < 1 || o.people < 1 || o.ban <= 0 || o.jitter <= 0:
		return exitUsage, errors.New("there are only flags, and all numbers are positive")
	case o.unthrottled && (o.redis != "" || o.provoke):
		return exitUsage, errors.New("-unthrottled needs neither -redis nor -provoke")
	case o.node != "":
		err = o.beNode(os.Stdin, stdout)
	default:
		exit, err = o.run(ctx, args, stdout, stderr)
	}
	if err != nil {
		return exitFailed, err
	}
	return exit, nil
}

// run plays the fleet and tells what happened.
func (o options) run(ctx context.Context, args []string, stdout, stderr io.Writer) (exit int, err error) {
	upstream := o.upstream()
	f, stop, err := o.fleet(ctx, upstream, args)
	if err != nil {
		return exitFailed, err
	}
	defer stop()
	fmt.Fprintf(stdout, "%d nodes × %d workers %s: %d people\n", o.nodes, o.workers, o.sharing(), o.people)
	p := &pull{fleet: f, departments: max(1, o.people/20), found: make(map[string]int)}
	begin := time.Now()
	if o.provoke {
		defer letIn(ctx, f.base, f.outsider)()
	}
	if err := p.run(ctx, o.workers, stderr); err != nil && ctx.Err() == nil {
		return exitFailed, err
	}
	r := report{options: o, pull: p, upstream: upstream, log: upstream.Log(),
		begin: begin, took: time.Since(begin), interrupted: ctx.Err() != nil}
	r.print(stdout)
	if o.svg != "" {
		if err := r.picture(o.svg); err != nil {
			return exitFailed, err
		}
	}
	return r.exitCode(), nil
}

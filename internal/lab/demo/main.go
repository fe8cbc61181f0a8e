// Demo is a fleet that calls a DingTalk which counts, refuses and bans: four nodes
// share its limits and pull an address book. Flags make the nodes processes that
// share a Redis, leave the library out, or have a program of a stranger behind the same
// address banned in the middle of the job. It draws the pictures of the pages.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	code, err := demo(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
	os.Exit(code)
}

// demo is main without the process around it.
func demo(ctx context.Context, args []string, stdout, stderr io.Writer) (exit int, err error) {
	o, err := parse(args)
	if err != nil {
		return exitUsage, err
	}
	if o.node == "" {
		return o.run(ctx, args, stdout, stderr)
	}
	if err := o.beNode(os.Stdin, stdout); err != nil {
		return exitFailed, err
	}
	return exitDone, nil
}

// run plays the fleet and tells what happened.
func (o options) run(ctx context.Context, args []string, stdout, stderr io.Writer) (exit int, err error) {
	if o.halves != "" {
		return o.drawHalves(ctx, o.halves)
	}

	r, err := o.play(ctx, args, stdout, stderr)
	if err != nil {
		return exitFailed, err
	}

	if o.svg != "" {
		if err := r.picture(o.svg); err != nil {
			return exitFailed, err
		}
	}

	return r.exitCode(), nil
}

// play has the fleet do its job once.
func (o options) play(ctx context.Context, args []string, stdout, stderr io.Writer) (r report, err error) {
	upstream := o.upstream()
	f, stop, err := o.fleet(ctx, upstream, args)
	if err != nil {
		return r, err
	}

	defer stop()
	fmt.Fprintf(stdout, "%d nodes × %d workers %s: %d people\n", o.nodes, o.workers, o.sharing(), o.people)
	p := &pull{fleet: f, departments: max(1, o.people/20), found: make(map[string][]int)}
	begin := time.Now()
	if o.provoke {
		defer letIn(ctx, f.base, f.outsider)()
	}
	if err := p.run(ctx, o.workers, stderr); err != nil && ctx.Err() == nil {
		return r, err
	}

	r = report{options: o, pull: p, upstream: upstream, log: upstream.Log(),
		begin: begin, took: time.Since(begin), interrupted: ctx.Err() != nil}
	r.print(stdout)
	return r, nil
}

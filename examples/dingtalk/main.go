// Dingtalk pulls a company's whole address book with a fleet of nodes that
// share DingTalk's limits, and shows that none of them was ever passed. With
// nothing installed it talks to a fake DingTalk inside this program; see the
// README for a fleet of processes with Redis and for the real DingTalk.
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
	"github.com/fleetthrottle/throttle/examples/dingtalk/fake"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
)

func main() {
	if name, ok := os.LookupEnv(nodeVariable); ok {
		if err := nodeMain(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintf(os.Stderr, "node %s: %v\n", name, err)
			os.Exit(exitFailed)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(program(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// retries is how often a task is handed out again whose node ended.
const retries = 3

// The exit codes.
const (
	exitDone        = 0
	exitFailed      = 1 // something was lost, refused or banned
	exitUsage       = 2
	exitInterrupted = 130
)

// program is main without the process around it.
func program(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitDone
	case err != nil:
		return exitUsage
	}
	r, err := c.pull(ctx, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "dingtalk:", err)
		return exitFailed
	}
	r.print(stdout)
	if c.svg != "" {
		if err := r.picture(c.svg); err != nil {
			fmt.Fprintln(stderr, "dingtalk: the picture:", err)
			return exitFailed
		}
		fmt.Fprintln(stdout, "picture   ", c.svg)
	}
	return r.exitCode()
}

// pull runs the whole job and returns its report.
func (c config) pull(ctx context.Context, stdout, stderr io.Writer) (*report, error) {
	store, closeStore, err := c.store(ctx)
	if err != nil {
		return nil, err
	}
	defer closeStore()
	var upstream *fake.Server
	if !c.real() {
		var stop func()
		if upstream, stop, err = serveFake(&c); err != nil {
			return nil, err
		}
		defer stop()
	}
	members, err := c.members(store)
	if err != nil {
		return nil, err
	}
	gauge, err := newGauge(store, c.account())
	if err != nil {
		return nil, err
	}
	c.announce(stdout, upstream)
	if c.provoke {
		defer letIn(ctx, newOutsider(c.base, newBase(outsiderCalls)))()
	}
	p, bar := newPull(retries), newProgress(stderr, upstream, gauge)
	begin := time.Now()
	err = run(ctx, p, members, bar.show, bar.every)
	bar.end()
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(stderr, err) // the other nodes took over
	}
	return newReport(c, p, upstream, time.Since(begin), ctx.Err() != nil), nil
}

// members makes the fleet: nodes that share one store, or processes that share
// one Redis.
func (c config) members(store throttle.Store) ([]member, error) {
	s := c.setup()
	fleet := make([]member, c.nodes)
	for i := range fleet {
		if c.redis != "" {
			fleet[i] = &process{number: i + 1, setup: s}
			continue
		}
		n, err := newNode(s, store, newBase(c.workers))
		if err != nil {
			return nil, err
		}
		fleet[i] = n
	}
	return fleet, nil
}

// setup is what every node has to know.
func (c config) setup() setup {
	return setup{
		Account: c.account(), Base: c.base, Secret: c.secret,
		Workers: c.workers, Redis: c.redis, Plain: c.unthrottled,
	}
}

// store returns where the budgets are. It fails early, and in one place, if there
// is no Redis.
func (c config) store(ctx context.Context) (throttle.Store, func(), error) {
	if c.redis == "" {
		return memstore.New(), func() {}, nil
	}
	client, err := dial(c.redis)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		client.Close()
		return nil, nil, fmt.Errorf("no answer from Redis: %w", err)
	}
	return redisstore.New(client, nil), func() { client.Close() }, nil
}

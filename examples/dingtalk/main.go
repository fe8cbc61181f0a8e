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
	if err := c.pingRedis(ctx); err != nil {
		return nil, err
	}
	var upstream *fake.Server
	if !c.real() {
		var stop func()
		var err error
		if upstream, stop, err = serveFake(&c); err != nil {
			return nil, err
		}
		defer stop()
	}
	members, err := c.members()
	if err != nil {
		return nil, err
	}
	c.announce(stdout, upstream)
	p, bar := newPull(c.retries()), newProgress(stderr, upstream)
	begin := time.Now()
	err = run(ctx, p, members, bar.show, bar.every)
	bar.end()
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(stderr, err) // the other nodes took over
	}
	return newReport(c, p, upstream, time.Since(begin), ctx.Err() != nil), nil
}

// retries is how often a failed call is tried again. A policy's penalty makes
// the next try wait; without the library nothing would, so there is none.
func (c config) retries() int {
	if c.unthrottled {
		return 0
	}
	return 3
}

// members makes the fleet: nodes that share one store, or processes that share
// one Redis.
func (c config) members() ([]member, error) {
	s := c.setup()
	var store throttle.Store = memstore.New()
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
		Account: c.account(), Base: c.oapi, Secret: c.secret,
		Workers: c.workers, Redis: c.redis, Plain: c.unthrottled,
	}
}

// pingRedis fails early, and in one place, if there is no Redis.
func (c config) pingRedis(ctx context.Context) error {
	if c.redis == "" {
		return nil
	}
	client, err := dial(c.redis)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("no answer from Redis: %w", err)
	}
	return nil
}

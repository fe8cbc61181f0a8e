package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/examples/batch/downstream"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
)

// options are the values of the flags.
type options struct {
	out         string
	redis       string
	part, parts int
	most        time.Duration
	priority    throttle.Priority

	services, serve   string
	orders, shipments int
	ban               time.Duration
}

// usage is the exit code for invalid flags.
const usage = 2

// parse returns the values of the flags, or ends the program.
func parse(args []string) options {
	o, err := parseFlags(args, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		fmt.Fprintln(os.Stderr, "batch:", err)
		os.Exit(usage)
	}
	return o
}

// parseFlags returns the values of the flags. Package flag writes its own errors to w.
func parseFlags(args []string, w io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("batch", flag.ContinueOnError)
	flags.SetOutput(w)
	flags.StringVar(&o.out, "out", "batch.out", "the `folder` of the pages; with the same folder the job goes on where it was")
	flags.StringVar(&o.redis, "redis", "", "the `URL` of the Redis by which machines share the limits (redis://localhost:6379); none: this program alone has them")
	flags.IntVar(&o.parts, "parts", 1, "on how many machines the job runs")
	flags.IntVar(&o.part, "part", -1, "which of them this one is, from 0; defaults to $JOB_COMPLETION_INDEX, and to 0")
	flags.DurationVar(&o.most, "for", 0, "stop after so long, at the end of the night; 0: when all is pulled")
	low := flags.Bool("low", true, "the job has low priority, and leaves a quarter of the limits to users")
	flags.StringVar(&o.services, "services", "", "the `address` of the fake services; none: they are in this program")
	flags.StringVar(&o.serve, "serve", "", "be the fake services at an `address`, and nothing else")
	flags.IntVar(&o.orders, "orders", downstream.Orders, "the highest id of an order")
	flags.IntVar(&o.shipments, "shipments", downstream.Shipments, "the highest id of a shipment")
	flags.DurationVar(&o.ban, "ban", 0, "the fake services of this program refuse everybody for so long, once 300 calls have come")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	// Users have normal priority, so a low job leaves room for them.
	if *low {
		o.priority = throttle.PriorityLow
	}

	return o, errors.Join(noArguments(flags), o.setPart(), o.check())
}

func noArguments(flags *flag.FlagSet) error {
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is no flag", flags.Arg(0))
	}
	return nil
}

// setPart sets the part of this machine. Kubernetes tells each pod of an indexed job its index.
func (o *options) setPart() (err error) {
	if o.part >= 0 {
		return nil
	}
	index := os.Getenv("JOB_COMPLETION_INDEX")
	o.part = 0
	// Without the variable the job runs on this machine alone.
	if index != "" {
		if o.part, err = strconv.Atoi(index); err != nil {
			return fmt.Errorf("JOB_COMPLETION_INDEX is %q and not a number", index)
		}
	}
	return nil
}

// check returns all mistakes in the flags.
func (o *options) check() error {
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}

	refuse(o.out == "", "-out is empty: name a folder")
	refuse(o.parts < 1, "-parts is %d: use 1 or more", o.parts)
	refuse(o.parts >= 1 && (o.part < 0 || o.part >= o.parts), "-part is %d of %d: parts are counted from 0", o.part, o.parts)
	refuse(o.parts > 1 && o.redis == "", "-parts is %d without -redis: machines share the limits by a Redis", o.parts)
	refuse(o.parts > 1 && o.services == "", "-parts is %d without -services: each machine would have its own (see -serve)", o.parts)
	refuse(o.most < 0, "-for is %v: use a time above 0", o.most)
	refuse(o.orders < 1 || o.shipments < 1, "-orders and -shipments must be 1 or more")
	refuse(o.ban < 0, "-ban is %v: use a time above 0", o.ban)
	refuse(o.ban > 0 && o.services != "", "-ban is for the services of this program: leave out -services")
	refuse(o.serve != "" && o.services != "", "-serve and -services exclude each other")

	return errors.Join(errs...)
}

// errOver is the cause when the time of the job is over.
var errOver = errors.New("the time is over")

// untilEnd returns a context that ends when the time of the job is over.
func (o *options) untilEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.most == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, o.most, errOver)
}

// store returns the store of the limits.
func (o *options) store(ctx context.Context) (throttle.Store, error) {
	if o.redis == "" {
		return memstore.New(), nil
	}

	settings, err := redis.ParseURL(o.redis)
	if err != nil {
		return nil, errors.New("-redis is no URL such as redis://localhost:6379") // err may contain the password
	}

	// Silence the log of the client: the progress says when the store does not answer.
	redis.SetLogger(quiet{})
	client := redis.NewClient(settings)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// Find a wrong address now, and not at the first request.
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("no answer from Redis: %w", err)
	}

	return redisstore.New(client, redisstore.Options{}), nil
}

// quiet discards the log of go-redis: the progress reports an outage of Redis.
type quiet struct{}

// Printf implements the interface of the client's logger.
func (quiet) Printf(context.Context, string, ...any) {}

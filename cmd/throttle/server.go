package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// addressVariable has the address of Redis if --redis is not said, so that a password
// stands in no list of processes.
const addressVariable = "THROTTLE_REDIS"

// A server is the flags that say where the budgets of a fleet are.
type server struct {
	address, namespace string
	hashTags           bool
	timeout            time.Duration
	identity
}

func (s *server) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.address, "redis", "", "the Redis of the programs, such as redis://localhost:6379/0, redis+cluster://host:6379\nor redis+sentinel://host:26379/0?master_name=main")
	s.identity.flags(c)
	f.StringVar(&s.namespace, "namespace", redisstore.DefaultNamespace, "the namespace of the programs in Redis")
	f.BoolVar(&s.hashTags, "hash-tags", false, "the programs set redisstore.Options.HashTags")
	f.DurationVar(&s.timeout, "timeout", 5*time.Second, "how long Redis may take")
}

// hasAddress reports whether the address of Redis is known, and sets it by addressVariable if --redis
// was not passed.
func (s *server) hasAddress() bool {
	s.address = cmp.Or(s.address, os.Getenv(addressVariable))
	return s.address != ""
}

// errAddress is the error of an address that cannot be read. The client's own error would repeat
// the address, and so the password.
var errAddress = errors.New("--redis: it is not an address such as redis://localhost:6379/0, redis+cluster://host:6379 or redis+sentinel://host:26379/0?master_name=main")

// oneDial is how often the client dials for each of its attempts. With its own 5 a server that
// refuses takes so long that --timeout ends first, and hides the cause.
const oneDial = 1

// connect returns a client for the address: of one server, of a cluster, or of servers behind sentinels,
// as the scheme says. It sends nothing yet. The client obeys --timeout also if Redis hangs.
func (s *server) connect() (redis.UniversalClient, error) {
	scheme, rest, _ := strings.Cut(s.address, "://")
	scheme, kind, _ := strings.Cut(scheme, "+")
	address := scheme + "://" + rest

	switch kind {
	case "cluster":
		o, err := redis.ParseClusterURL(address)
		if err != nil {
			return nil, errAddress
		}

		o.ContextTimeoutEnabled, o.DialerRetries = true, cmp.Or(o.DialerRetries, oneDial)
		if o.TLSConfig, err = s.identity.config(o.TLSConfig); err != nil {
			return nil, err
		}

		return redis.NewClusterClient(o), nil

	case "sentinel":
		o, err := redis.ParseFailoverURL(address)
		if err != nil {
			return nil, errAddress
		}

		o.ContextTimeoutEnabled, o.DialerRetries = true, cmp.Or(o.DialerRetries, oneDial)
		if o.TLSConfig, err = s.identity.config(o.TLSConfig); err != nil {
			return nil, err
		}

		return redis.NewFailoverClient(o), nil

	case "":
		o, err := redis.ParseURL(address)
		if err != nil {
			return nil, errAddress
		}

		o.ContextTimeoutEnabled, o.DialerRetries = true, cmp.Or(o.DialerRetries, oneDial)
		if o.TLSConfig, err = s.identity.config(o.TLSConfig); err != nil {
			return nil, err
		}

		return redis.NewClient(o), nil
	}

	return nil, errAddress
}

// withFleet calls f with the fleet, and a context that ends after --timeout. Its error has the code that
// the program ends with.
func (s *server) withFleet(ctx context.Context, f func(ctx context.Context, all *fleet.Fleet) error) error {
	all, closeAll, err := s.connectFleet(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, stop := context.WithTimeout(ctx, s.timeout)
	defer stop()
	return withExitCode(f(ctx, all))
}

// withTimeout calls f with a context that ends after --timeout. Its error has the code that the program
// ends with.
func (s *server) withTimeout(ctx context.Context, f func(context.Context) error) error {
	ctx, stop := context.WithTimeout(ctx, s.timeout)
	defer stop()
	return withExitCode(f(ctx))
}

// interruptGrace is how long after an interrupt the command still waits for an answer that is on its way,
// so that it can say what was done.
const interruptGrace = 500 * time.Millisecond

// connectFleet returns the fleet, and the function that closes its client. It sends nothing yet. An
// interrupt, which ends ctx, closes the client after interruptGrace: while the client reads, it obeys the
// deadline of a context, but not its end.
func (s *server) connectFleet(ctx context.Context) (all *fleet.Fleet, closeAll func(), err error) {
	if !s.hasAddress() {
		return nil, nil, fmt.Errorf("there is no address of Redis: pass --redis, or set %s", addressVariable)
	}

	client, err := s.connect()
	if err != nil {
		return nil, nil, err
	}

	closeClient := func() { client.Close() }
	all, err = fleet.New(client, fleet.Options{Namespace: s.namespace, HashTags: s.hashTags})
	if err != nil {
		closeClient()
		return nil, nil, err
	}

	context.AfterFunc(ctx, func() { time.AfterFunc(interruptGrace, closeClient) })
	return all, closeClient, nil
}

// withExitCode returns an error of the fleet as an exit, with the code that the program ends with.
func withExitCode(err error) error {
	var known *exit
	var away *fleet.Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case fleet.Denied(err):
		return &exit{exitDenied, err}
	case errors.As(err, &away), errors.Is(err, context.DeadlineExceeded):
		return &exit{exitStore, err}
	}
	return &exit{exitUsage, err}
}

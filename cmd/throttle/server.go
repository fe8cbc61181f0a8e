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
}

func (s *server) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.address, "redis", "", "the Redis of the programs, such as redis://localhost:6379/0, redis+cluster://host:6379\nor redis+sentinel://host:26379/0?master_name=main")
	f.StringVar(&s.namespace, "namespace", redisstore.DefaultNamespace, "the namespace of the programs in Redis")
	f.BoolVar(&s.hashTags, "hash-tags", false, "the programs set redisstore.Options.HashTags")
	f.DurationVar(&s.timeout, "timeout", 5*time.Second, "how long Redis may take")
}

// connect returns a client for the address. It sends nothing yet.
func (s *server) connect() (redis.UniversalClient, error) {
	client, err := dial(s.address)
	if err != nil {
		// The client's own error repeats the address, and so the password.
		return nil, errors.New("--redis: it is not an address such as redis://localhost:6379/0, redis+cluster://host:6379 or redis+sentinel://host:26379/0?master_name=main")
	}
	return client, nil
}

// dial returns a client for an address, by what its scheme says. It obeys --timeout also if
// Redis hangs.
func dial(address string) (redis.UniversalClient, error) {
	scheme, rest, _ := strings.Cut(address, "://")
	scheme, kind, _ := strings.Cut(scheme, "+")
	address = scheme + "://" + rest
	switch kind {
	case "cluster":
		o, err := redis.ParseClusterURL(address)
		if err != nil {
			return nil, err
		}
		o.ContextTimeoutEnabled = true
		return redis.NewClusterClient(o), nil
	case "sentinel":
		o, err := redis.ParseFailoverURL(address)
		if err != nil {
			return nil, err
		}
		o.ContextTimeoutEnabled = true
		return redis.NewFailoverClient(o), nil
	case "":
		o, err := redis.ParseURL(address)
		if err != nil {
			return nil, err
		}
		o.ContextTimeoutEnabled = true
		return redis.NewClient(o), nil
	}
	return nil, fmt.Errorf("unknown kind %q", kind)
}

// fleetCommands are those that see and steer a fleet through Redis.
func fleetCommands() []*cobra.Command {
	return []*cobra.Command{
		newStatus(), newPause(), newResume(), newReset(), newAudit(),
		newPush(), newPull(), newDiff(), newHistory(), newRollback(), newTop(),
	}
}

// with calls f with the fleet, and a context that ends when Redis has taken too long.
func (s *server) with(ctx context.Context, f func(ctx context.Context, all *fleet.Fleet) error) error {
	all, closeAll, err := s.open()
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, stop := context.WithTimeout(ctx, s.timeout)
	defer stop()
	return coded(f(ctx, all))
}

// open returns the fleet. It sends nothing yet.
func (s *server) open() (all *fleet.Fleet, closeAll func(), err error) {
	if s.address = cmp.Or(s.address, os.Getenv(addressVariable)); s.address == "" {
		return nil, nil, fmt.Errorf("where is the fleet? Say --redis, or set %s", addressVariable)
	}
	client, err := s.connect()
	if err != nil {
		return nil, nil, err
	}
	return fleet.New(client, &fleet.Options{Namespace: s.namespace, HashTags: s.hashTags}), func() { client.Close() }, nil
}

// coded gives an error of a fleet the code that the program ends with.
func coded(err error) error {
	var known *exit
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case fleet.Denied(err):
		return &exit{exitDenied, err}
	}
	return &exit{exitStore, err}
}

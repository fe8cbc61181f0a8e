package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/internal/lab/redissim"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// costs are what this machine adds: microseconds of a busy server's processor, the kernel's
// part included, and bytes. Everything beyond these in the tables is counted.
type costs struct {
	Command  float64 // a command that does nothing
	Beat     float64 // a message to its own publisher
	Deliver  float64 // a message to one more subscriber
	BusSend  float64 // a message to one other server of the cluster
	BusTake  float64 // a message from a different server
	Conn     float64 // bytes of a connection
	Listener float64 // bytes of a connection that is subscribed to two channels
}

// asking is for how long each cost is measured.
const asking = 2 * time.Second

// askers are the connections that ask at the same time.
const askers = 16

// many are the connections that are measured together.
const many = 200

// measureCosts measures the costs on real servers.
func measureCosts(t redistest.TB) (c costs, err error) {
	server := redistest.Single(t)
	client := server.Client(t)
	c.Command, err = perCall(client, func(c *redis.Client, _ int) error { return c.Ping(context.Background()).Err() })
	return c, errors.Join(err, c.messages(client), c.connections(server), c.bus(t))
}

// messages sets the costs of messages to their publisher and to others, and the memory of a subscriber.
func (c *costs) messages(client *redis.Client) (err error) {
	ctx := context.Background()
	var subs []*redis.PubSub
	defer func() {
		for _, s := range subs {
			err = errors.Join(err, s.Close())
		}
	}()

	// listen adds a subscriber that reads its messages until its end.
	listen := func(channels ...string) error {
		sub := client.Subscribe(ctx, channels...)
		subs = append(subs, sub)
		_, err := sub.Receive(ctx)
		go func() {
			for range sub.Channel() {
			}
		}()

		return err
	}

	for i := range askers {
		err = errors.Join(err, listen(fmt.Sprintf("own-%d", i)))
	}

	beat, failed := perCall(client, func(c *redis.Client, i int) error {
		return c.Publish(ctx, fmt.Sprintf("own-%d", i), "~1234567890123").Err()
	})
	c.Beat, err = beat, errors.Join(err, failed)

	// Many subscribers show what one takes: the memory of all, and the time of a message to all, divided by their number.
	before := client.Info(ctx, "memory").Val()

	for i := range many {
		err = errors.Join(err, listen("all", fmt.Sprintf("mine-%d", i)))
	}

	after, failed := client.Info(ctx, "memory").Result()
	c.Listener, err = (redissim.Number(after, "used_memory")-redissim.Number(before, "used_memory"))/many, errors.Join(err, failed)
	all, failed := perCall(client, func(c *redis.Client, _ int) error {
		return c.Publish(ctx, "all", "come 1 2 3 4 throttle:7:key").Err()
	})
	c.Deliver = (all - c.Command) / many

	return errors.Join(err, failed)
}

// connections sets the memory of a connection that has made a call.
func (c *costs) connections(server *redistest.Server) error {
	ctx := context.Background()
	watch := redis.NewClient(server.Options())
	defer watch.Close()

	before, err := watch.Info(ctx, "memory").Result()
	if err != nil {
		return err
	}

	for range many {
		one := redis.NewClient(server.Options())
		defer one.Close() // all stay open until they are measured
		if err := one.Ping(ctx).Err(); err != nil {
			return err
		}
	}

	after, err := watch.Info(ctx, "memory").Result()
	c.Conn = (redissim.Number(after, "used_memory") - redissim.Number(before, "used_memory")) / many
	return err
}

// bus sets what a message to which nobody has subscribed costs two servers of a cluster: its own for each other server,
// and one that is told of it.
func (c *costs) bus(t redistest.TB) error {
	ctx := context.Background()
	cluster := redistest.Cluster(t)
	first, second := cluster.Servers[0].Client(t), cluster.Servers[1].Client(t)
	before, err := second.Info(ctx, "cpu").Result()
	if err != nil {
		return err
	}

	// Publish on the first server. What the second spends is the cost of taking a message that nobody hears.
	var sent atomic.Int64
	send, err := perCall(first, func(c *redis.Client, _ int) error {
		sent.Add(1)
		return c.Publish(ctx, "nobody", "~1234567890123").Err()
	})
	if err != nil {
		return err
	}

	after, err := second.Info(ctx, "cpu").Result()
	c.BusSend = (send - c.Command) / float64(len(cluster.Servers)-1)
	c.BusTake = 1e6 * (redissim.Processor(after) - redissim.Processor(before)) / float64(sent.Load())

	return err
}

// perCall has several connections make a call again and again, and returns the microseconds of the server's processor for
// one. call gets the number of its connection.
func perCall(client *redis.Client, call func(*redis.Client, int) error) (float64, error) {
	before, err := client.Info(context.Background(), "cpu").Result()
	if err != nil {
		return 0, err
	}

	var calls atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, askers)

	// Several connections keep the server busy: a server that waits would cost less a call.
	end := time.Now().Add(asking)
	for i := range askers {
		all.Go(func() {
			for errs[i] == nil && time.Now().Before(end) {
				errs[i] = call(client, i)
				calls.Add(1)
			}
		})
	}

	all.Wait()
	after, err := client.Info(context.Background(), "cpu").Result()
	return 1e6 * (redissim.Processor(after) - redissim.Processor(before)) / float64(calls.Load()), errors.Join(append(errs, err)...)
}

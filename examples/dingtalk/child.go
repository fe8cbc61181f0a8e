package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore"
)

// nodeMain is the program as one node of a fleet of processes.
func nodeMain(in io.Reader, out io.Writer) error {
	signal.Ignore(os.Interrupt) // a terminal sends it to every process; the parent decides
	lines := json.NewDecoder(in)
	var s setup
	if err := lines.Decode(&s); err != nil {
		return fmt.Errorf("reading the setup: %w", err)
	}
	client, err := dial(s.Redis)
	if err != nil {
		return err
	}
	defer client.Close()
	n, err := newNode(s, redisstore.New(client, nil), newBase(s.Workers))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	tasks, results := make(chan task), make(chan result)
	go func() {
		defer stop() // the end of the input is the order to stop
		read(ctx, lines, tasks)
	}()
	go func() {
		defer close(results)
		_ = n.serve(ctx, tasks, results) // it ends because it was told to
	}()
	report := json.NewEncoder(out)
	for r := range results {
		if err := report.Encode(r); err != nil {
			return fmt.Errorf("reporting: %w", err)
		}
	}
	return nil
}

// read passes tasks on until there are no more.
func read(ctx context.Context, lines *json.Decoder, tasks chan<- task) {
	defer close(tasks)
	for {
		var t task
		if lines.Decode(&t) != nil {
			return
		}
		select {
		case tasks <- t:
		case <-ctx.Done():
			return
		}
	}
}

// dial makes a client of the Redis at a URL; "host:port" will do.
func dial(url string) (*redis.Client, error) {
	if !strings.Contains(url, "://") {
		url = "redis://" + url
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("the URL of Redis: %w", err)
	}
	return redis.NewClient(options), nil
}

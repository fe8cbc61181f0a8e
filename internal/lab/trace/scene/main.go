// Command scene sends a GET under one policy whose budget is full, and prints the files that it entered
// as JSON. It knows them only if internal/lab/trace has built it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/trace/entered"
	"github.com/fleetthrottle/throttle/redisstore"
)

func main() {
	if err := play(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "scene:", err)
		os.Exit(1)
	}
}

// play sends three requests under a limit of one per second. The first fills the budget, and the second waits, so that
// everything exists that is made only once. The third waits again: play prints the files that this request entered. The
// scripts write theirs into the server's list "entered".
func play(addr string) error {
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	admin, client := redis.NewClient(&redis.Options{Addr: addr}), redis.NewClient(&redis.Options{Addr: addr})
	transport, err := throttle.New(throttle.Config{
		MaxWait: throttle.Forever,
		Store:   redisstore.New(client, redisstore.Options{}), Policies: []throttle.Policy{{Name: "one", Match: "/", Limit: throttle.PerSecond(1)}},
	})
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	for range 3 {
		entered.Take()
		if err := admin.Del(ctx, "entered").Err(); err != nil {
			return err
		}
		if err := get(ctx, transport, upstream.URL); err != nil {
			return err
		}
	}

	scripts, err := admin.LRange(ctx, "entered", 0, -1).Result()
	if err != nil {
		return err
	}

	return json.NewEncoder(os.Stdout).Encode(map[string][]string{"go": entered.Take(), "lua": scripts})
}

// get sends a GET, and drops the answer.
func get(ctx context.Context, t *throttle.Transport, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Command quickstart is the program of docs/start/quickstart.md: one pod that calls GitHub every five seconds and Stripe all the time,
// within limits that all pods share through Redis.
package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/slogthrottle"
	"github.com/fleetthrottle/throttle/presets/github"
	"github.com/fleetthrottle/throttle/presets/stripe"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/retry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	rdb, err := connect(os.Getenv("REDIS_URL"), os.Getenv("REDIS_CA"))
	if err != nil {
		log.Fatal(err)
	}

	// The reporter is the store of this pod, and lets throttle status show the pod.
	reporter, err := fleet.Start(rdb, redisstore.New(rdb, redisstore.Options{}), fleet.ReporterOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer reporter.Close()

	// A dry run answers in place of the real APIs.
	var base http.RoundTripper
	if refuse, ok := os.LookupEnv("DRY_RUN"); ok {
		base = &dryRun{refuse: refuse}
	}
	client, err := newClient(reporter, base)
	if err != nil {
		log.Fatal(err)
	}

	// The workers ask as fast as they can: the transport keeps all pods together within the limit.
	var answered atomic.Int64
	for range 8 {
		go func() {
			for ctx.Err() == nil {
				if err := get(ctx, client, "https://api.stripe.com/v1/balance", "STRIPE_KEY"); err != nil {
					log.Println("Stripe:", err)
					continue
				}
				answered.Add(1)
			}
		}()
	}

	// GitHub is asked seldom, beside Stripe: each API has its own budgets.
	for second := 0; ctx.Err() == nil; second++ {
		if second%5 == 0 {
			if err := get(ctx, client, "https://api.github.com/user", "GITHUB_TOKEN"); err != nil {
				log.Println("GitHub:", err)
			}
		}
		time.Sleep(time.Second)
		fmt.Println(answered.Swap(0), "answered by Stripe")
	}
}

// newClient returns the client of a pod for both APIs. A pod makes it once. base sends the requests; nil means the default of [throttle.Config].
func newClient(store throttle.Store, base http.RoundTripper) (*http.Client, error) {
	transport, err := throttle.New(throttle.Config{
		Store:    store,
		Policies: append(github.Policies(github.Options{}), stripe.Policies(stripe.Options{Sandbox: true})...),
		MaxWait:  30 * time.Second, // an attempt that would wait longer fails at once
		Observe:  slogthrottle.New(nil, slogthrottle.Options{}).Observe,
		Base:     base,
	})
	if err != nil {
		return nil, err
	}
	return retry.NewClient(transport).StandardClient(), nil
}

// connect makes the client of Redis, with the password and TLS of the address. ca is a file with the certificates to trust, or "" for those of the system.
func connect(address, ca string) (*redis.Client, error) {
	options, err := redis.ParseURL(address)
	if err != nil || options.TLSConfig == nil {
		return nil, errors.New("REDIS_URL must be rediss://USER:PASSWORD@HOST:PORT") // err may hold the password
	}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		options.TLSConfig.RootCAs = x509.NewCertPool()
		options.TLSConfig.RootCAs.AppendCertsFromPEM(pem)
	}
	return redis.NewClient(options), nil
}

// get calls a URL with the token that a variable of the environment has. Every status except 200 is an error.
func get(ctx context.Context, client *http.Client, url, variable string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+os.Getenv(variable))
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// dryRun plays both APIs without a network. It refuses one request, for 3 seconds.
type dryRun struct {
	refuse   string // the number of the request to refuse, from 1
	requests atomic.Int64
}

// RoundTrip implements [http.RoundTripper].
func (d *dryRun) RoundTrip(req *http.Request) (*http.Response, error) {
	answer := &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), Body: http.NoBody, Request: req}
	if fmt.Sprint(d.requests.Add(1)) == d.refuse {
		answer.StatusCode = http.StatusTooManyRequests
		answer.Header.Set("Retry-After", "3")
	}
	return answer, nil
}

// Command tutorial is the program of docs/start/tutorial.md: eight workers that call an API under a limit of 20 requests per second,
// and, with -api, the API.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
)

func main() {
	api := flag.Bool("api", false, "be the API at localhost:8080")
	address := flag.String("redis", "", "address of Redis (default a budget of this process alone)")
	requests := flag.Int("n", 100, "number of requests")
	path := flag.String("path", "/", "path of the requests")
	maxWait := flag.Duration("max-wait", 0, "MaxWait of the transport")
	timeout := flag.Duration("timeout", 0, "Timeout of the client")
	flag.Parse()

	if *api {
		log.Fatal(http.ListenAndServe("localhost:8080", newAPI(os.Stdout)))
	}

	logging.Disable() // go-redis prints each failed dial; errors and Observe report the failure once
	var store throttle.Store = memstore.New()
	if *address != "" {
		store = redisstore.New(redis.NewClient(&redis.Options{Addr: *address}), redisstore.Options{})
	}
	transport, err := newTransport(store, *maxWait, nil)
	if err != nil {
		log.Fatal(err)
	}

	begin := time.Now()
	done := call(&http.Client{Transport: transport, Timeout: *timeout}, "http://localhost:8080"+*path, *requests)
	fmt.Println(done, "in", time.Since(begin).Round(100*time.Millisecond))
}

// newTransport returns a transport that keeps the limit of the API. It logs when the budget closes, by a penalty or an operator's pause, when the
// budget opens, and failures of the store. base sends the requests; nil means the default of [throttle.Config].
func newTransport(store throttle.Store, maxWait time.Duration, base http.RoundTripper) (*throttle.Transport, error) {
	return throttle.New(throttle.Config{
		Store:    store,
		Policies: []throttle.Policy{{Name: "api", Match: "localhost/", Limit: throttle.PerSecond(20)}},
		MaxWait:  maxWait,
		Base:     base,
		Observe: func(_ context.Context, e throttle.Event) {
			switch e.Kind {
			case throttle.EventPenalized, throttle.EventClosed, throttle.EventOpened:
				log.Println(e.Kind, e.Policy, e.Duration.Round(time.Millisecond))
			case throttle.EventStoreFailed:
				log.Println(e.Kind, e.Err)
			}
		},
	})
}

// results counts requests by what became of them. A refused one was answered with any status except 200.
type results struct{ answered, refused, unsent atomic.Int64 }

// String returns the counts.
func (r *results) String() string {
	return fmt.Sprint(r.answered.Load(), " answered, ", r.refused.Load(), " refused, ", r.unsent.Load(), " not sent,")
}

// call sends n requests with eight workers, counts what becomes of them, and logs the error of the first that was not sent.
func call(client *http.Client, url string, n int) *results {
	var done results
	var workers sync.WaitGroup
	for worker := range 8 {
		workers.Go(func() {
			for i := worker; i < n; i += 8 {
				resp, err := client.Get(url)
				if err != nil {
					// One error says enough: the requests of a run fail for the same reason.
					if done.unsent.Add(1) == 1 {
						log.Println(err)
					}
					continue
				}

				resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					done.answered.Add(1)
				} else {
					done.refused.Add(1)
				}
			}
		})
	}
	workers.Wait()
	return &done
}

// newAPI returns an API for trials: it answers 20 requests in each second of the clock, refuses the others and the path /refuse,
// and writes to out how many requests came in each second.
func newAPI(out io.Writer) http.Handler {
	var mu sync.Mutex
	var second int64 // the second that the counts are of
	arrived, refused := 0, 0

	// turn does nothing until a new second has begun. Then it reports the last one, if requests came in it, and begins to count anew. The mutex is held.
	turn := func() {
		now := time.Now().Unix()
		if now == second {
			return
		}
		if arrived > 0 {
			fmt.Fprintln(out, arrived, "arrived,", refused, "refused")
		}
		arrived, refused, second = 0, 0, now
	}

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		turn()
		if arrived == 0 {
			time.AfterFunc(time.Second, func() { // reports this second even if no other request comes
				mu.Lock()
				defer mu.Unlock()
				turn()
			})
		}

		arrived++
		if arrived > 20 || r.URL.Path == "/refuse" {
			refused++
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
}

// Batch pulls all orders from an API and all shipments from a database in
// parallel, as fast as both limits allow and never faster. It can be killed at
// any moment: the same command resumes.
//
// Copy this file and pages.go, and replace the fake services of package
// downstream, which count and refuse.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/examples/batch/downstream"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/retry"
)

// The limits of the owners of both services. All programs with the same store share them. Work of low
// priority, like this job, leaves a quarter free for users.
var (
	ordersPolicy  = throttle.Policy{Name: "orders", Match: "orders.example.com/", Limit: throttle.PerSecond(40), Headroom: forUsers}
	queriesPolicy = throttle.Policy{Name: "shipments", Limit: throttle.PerSecond(12), Headroom: forUsers}
	atOncePolicy  = throttle.Policy{Name: "queries at once", Limit: throttle.Concurrency(4)}

	forUsers = map[throttle.Priority]float64{throttle.PriorityLow: 0.25}
)

// options are the values of the flags.
type options struct {
	out, redis, services, serve string
	part, parts                 int
	orders, shipments           int
}

func main() {
	log.SetFlags(0)
	var o options
	flag.StringVar(&o.out, "out", "batch.out", "the `folder` of the pages; with the same folder the job resumes")
	flag.StringVar(&o.redis, "redis", "", "the `URL` of the Redis by which machines share the limits; none: this program alone has them")
	flag.IntVar(&o.parts, "parts", 1, "on how many machines the job runs")
	index, _ := strconv.Atoi(os.Getenv("JOB_COMPLETION_INDEX")) // an indexed job of Kubernetes tells each pod its index
	flag.IntVar(&o.part, "part", index, "which of the machines this one is, from 0")
	flag.StringVar(&o.services, "services", "", "the `address` of the fake services; none: they are in this program")
	flag.StringVar(&o.serve, "serve", "", "be the fake services at an `address`, and nothing else")
	flag.IntVar(&o.orders, "orders", downstream.Orders, "the highest id of an order")
	flag.IntVar(&o.shipments, "shipments", downstream.Shipments, "the highest id of a shipment")
	flag.Parse()

	// Machines that share nothing would send too much together.
	isPart := 0 <= o.part && o.part < o.parts
	sharesLimits := o.parts == 1 || o.redis != ""
	if !isPart || !sharesLimits {
		log.Fatal("batch: -part is one of -parts, from 0, and several machines share their limits by -redis")
	}
	if o.serve != "" {
		log.Fatal(http.ListenAndServe(o.serve, downstream.New(downstream.Options{Orders: o.orders, Shipments: o.shipments})))
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		log.Fatal("batch: the same command pulls the rest: ", err)
	}
}

// run opens the services and the folders of their pages, and pulls. Without -services it runs the fake ones in this program, and prints their counts at
// the end.
func run(ctx context.Context, o options) error {
	store, err := openStore(o.redis)
	if err != nil {
		return err
	}

	// Leave this out where the services are real.
	if o.services == "" {
		fakes := downstream.New(downstream.Options{Orders: o.orders, Shipments: o.shipments})
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}

		o.services = listener.Addr().String()
		go http.Serve(listener, fakes)
		defer func() { fmt.Print(fakes) }()
	}

	// Queries are no HTTP requests, so Limiters hold them: the job asks for their policies by name.
	config := throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: []throttle.Policy{queriesPolicy, atOncePolicy}}
	limits, err := throttle.NewLimiters(config)
	if err != nil {
		return err
	}

	// Calls of the API are HTTP requests, so a Transport holds them.
	config.Policies = []throttle.Policy{ordersPolicy}
	config.Base = downstream.Reach(o.services, workers) // yours: an *http.Transport with MaxIdleConnsPerHost: workers
	transport, err := throttle.New(config)
	if err != nil {
		return err
	}

	db, err := sql.Open("warehouse", o.services) // yours: your driver, your database
	if err != nil {
		return err
	}
	defer db.Close()

	// A call returns 50 orders or 100 shipments.
	orders, err := openFolder(o.out, "orders", o.orders, 50, o.part, o.parts)
	if err != nil {
		return err
	}
	shipments, err := openFolder(o.out, "shipments", o.shipments, 100, o.part, o.parts)
	if err != nil {
		return err
	}

	j := job{transport, retry.NewClient(transport).StandardClient(), db, limits} // each attempt waits for its start
	return j.pull(throttle.WithPriority(ctx, throttle.PriorityLow), orders, shipments)
}

// openStore returns the store of the limits: a Redis for several programs, or the memory of this one.
func openStore(url string) (throttle.Store, error) {
	if url == "" {
		return memstore.New(), nil
	}

	settings, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New("-redis is no URL such as redis://localhost:6379") // err may contain the password
	}
	return redisstore.New(redis.NewClient(settings), redisstore.Options{}), nil
}

// A job has the clients that pull pages.
type job struct {
	transport *throttle.Transport
	api       *http.Client // over transport
	db        *sql.DB
	limits    *throttle.Limiters // of the database
}

// pull pulls both sources in parallel, and shows the progress. It returns the errors of both, or why ctx has ended.
func (j *job) pull(ctx context.Context, orders, shipments *folder) error {
	ctx, cancel := context.WithCancel(ctx)
	var showing sync.WaitGroup
	showing.Go(func() { j.show(ctx, orders, shipments) })
	begin := time.Now()

	var both sync.WaitGroup
	var errOrders, errShipments error
	both.Go(func() { errOrders = pull(ctx, orders, j.pageOfOrders) })
	both.Go(func() { errShipments = pull(ctx, shipments, j.pageOfShipments) })
	both.Wait()

	// Only an interrupt has ended ctx so far. It makes both sources fail, and is the error to return then.
	interrupted := ctx.Err()
	cancel() // ends show
	showing.Wait()

	pages := orders.pages + shipments.pages
	missing := len(orders.missing) + len(shipments.missing)
	done := pages - missing + int(orders.pulled.Load()+shipments.pulled.Load())
	fmt.Printf("%d of %d pages are there after %.1f s; %d were there before\n", done, pages, time.Since(begin).Seconds(), pages-missing)

	if interrupted != nil {
		return context.Cause(ctx)
	}
	return errors.Join(errOrders, errShipments)
}

// show writes a line of progress every second, until ctx ends. It asks the stores itself, so a slow store delays no worker.
func (j *job) show(ctx context.Context, sources ...*folder) {
	for second := 1; ; second++ {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}

		// Ask for the state of all budgets, for a second at most.
		within, cancel := context.WithTimeout(ctx, time.Second)
		statuses, err := j.transport.Statuses(within)
		if err == nil {
			var queries map[throttle.Budget]throttle.Status
			queries, err = j.limits.Statuses(within)
			maps.Copy(statuses, queries)
		}
		cancel()

		// One line: the progress of each source, closed budgets, and a store that is away.
		var parts []string
		for _, s := range sources {
			parts = append(parts, s.progress(second))
		}
		for budget, status := range statuses {
			if status.Paused > 0 {
				parts = append(parts, fmt.Sprintf("%s is closed for %v", budget.Policy, status.Paused.Round(time.Second)))
			}
		}
		if err != nil {
			parts = append(parts, "the store does not answer: nothing is sent")
		}
		fmt.Println(strings.Join(parts, " | "))
	}
}

// pageOfOrders returns the rows of a page from the API.
func (j *job) pageOfOrders(ctx context.Context, p page) (rows []downstream.Order, err error) {
	url := fmt.Sprintf("http://orders.example.com/v1/orders?from=%d&to=%d", p.first, p.last)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}

	resp, err := j.api.Do(req)
	if err != nil {
		return nil, err
	}

	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}

	err = json.NewDecoder(resp.Body).Decode(&rows)
	return rows, err
}

// pageOfShipments returns the rows of a page from the database. It tells the fleet of each refusal, and queries again.
func (j *job) pageOfShipments(ctx context.Context, p page) ([]downstream.Shipment, error) {
	for {
		permit, err := j.limits.Acquire(ctx, throttle.Demand{Policy: queriesPolicy.Name}, throttle.Demand{Policy: atOncePolicy.Name})
		if err != nil {
			return nil, err
		}

		rows, err := j.query(ctx, p)

		// Release before Tell: the query is over, whatever the answer says.
		permit.Release()

		busy, ok := errors.AsType[*downstream.BusyError](err)
		if !ok {
			return rows, err
		}
		if err := permit.Tell(ctx, throttle.Refused(busy.RetryAfter), queriesPolicy.Name); err != nil {
			return nil, err
		}
	}
}

// query returns the rows of a page from the database. The error of a refusal is a *downstream.BusyError.
func (j *job) query(ctx context.Context, p page) (all []downstream.Shipment, err error) {
	rows, err := j.db.QueryContext(ctx, downstream.Statement, p.first, p.last)
	if err != nil {
		return nil, err
	}

	defer rows.Close()
	for rows.Next() {
		var s downstream.Shipment
		if err := rows.Scan(&s.ID, &s.Carrier, &s.Grams); err != nil {
			return nil, err
		}
		all = append(all, s)
	}

	return all, rows.Err()
}

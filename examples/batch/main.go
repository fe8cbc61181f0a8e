// Batch pulls all orders from an API and all shipments from a database in
// parallel, as fast as both limits allow and never faster. It can be killed at
// any moment: the same command resumes.
//
// Copy this file, source.go, pages.go and progress.go. The remaining files
// demonstrate the job: fake services that count and refuse, users beside the
// job, a report.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/examples/batch/downstream"
	"github.com/fleetthrottle/throttle/retry"
)

// The limits of the owners of both services. All programs with the same store
// share them. Work of low priority, like this job, leaves a quarter free for
// users.
var (
	ordersPolicy  = throttle.Policy{Name: "orders", Match: "orders.example.com/", Limit: throttle.PerSecond(40), Headroom: forUsers}
	queriesPolicy = throttle.Policy{Name: "queries", Limit: throttle.PerSecond(12), Headroom: forUsers}
	atOncePolicy  = throttle.Policy{Name: "queries at once", Limit: throttle.Concurrency(4)}

	forUsers = map[throttle.Priority]float64{throttle.PriorityLow: 0.25}
)

func main() {
	log.SetFlags(0)
	o, do := parse(os.Args[1:]), run
	if o.serve != "" {
		do = serve
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := do(ctx, o); err != nil {
		log.Fatal("batch: ", err)
	}
}

// run opens the sources and their destinations, and pulls.
func run(ctx context.Context, o options) error {
	store, err := o.store(ctx) // memstore.New() for one program, redisstore.New(rdb, redisstore.Options{}) for several
	if err != nil {
		return err
	}

	orders, err := openSource(o, "orders", ordersPolicy, o.orders, 50)
	if err != nil {
		return err
	}

	shipments, err := openSource(o, "shipments", queriesPolicy, o.shipments, 100)
	if err != nil {
		return err
	}

	config := throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: []throttle.Policy{ordersPolicy}}
	demo, err := startDemo(o, config, orders, shipments)
	if err != nil {
		return err
	}

	config.Observe = demo.observe
	database := config
	database.Policies = []throttle.Policy{queriesPolicy, atOncePolicy} // by name: no request matches them

	limits, err := throttle.NewLimiters(database)
	if err != nil {
		return err
	}

	config.Base = demo.base // yours: an *http.Transport with MaxIdleConnsPerHost: workers
	transport, err := throttle.New(config)
	if err != nil {
		return err
	}

	db, err := sql.Open("warehouse", demo.address) // yours: your driver, your database
	if err != nil {
		return err
	}

	defer db.Close()
	j := job{retry.NewClient(transport).StandardClient(), db, limits} // each attempt waits for its start
	err = j.pull(ctx, o, orders, shipments, newProgress(os.Stdout, statuses(transport, limits), orders.tally, shipments.tally))

	return errors.Join(err, demo.report(os.Stdout, err))
}

// statuses returns a function that reads the budgets of the API and of the database.
func statuses(api *throttle.Transport, database *throttle.Limiters) func(context.Context) (map[throttle.Budget]throttle.Status, error) {
	return func(ctx context.Context) (map[throttle.Budget]throttle.Status, error) {
		orders, err := api.Statuses(ctx)
		queries, failed := database.Statuses(ctx)
		maps.Copy(orders, queries)
		return orders, errors.Join(err, failed)
	}
}

// A job has the clients that pull pages.
type job struct {
	api    *http.Client
	db     *sql.DB
	limits *throttle.Limiters // of the database
}

// pull pulls both sources in parallel, and shows the progress.
func (j *job) pull(ctx context.Context, o options, orders, shipments *source, p *progress) error {
	ctx, cancel := o.untilEnd(throttle.WithPriority(ctx, o.priority))
	defer cancel()
	defer p.show(ctx)()
	var both sync.WaitGroup
	var errOrders, errShipments error
	both.Go(func() { errOrders = pull(ctx, orders, j.pageOfOrders) })
	both.Go(func() { errShipments = pull(ctx, shipments, j.pageOfShipments) })
	both.Wait()

	// An interrupt ends both sources, and is no failure of theirs.
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errOrders == errShipments: // both are nil, or both are errOver
		return errOrders
	}

	return errors.Join(errOrders, errShipments)
}

// pageOfOrders calls the API.
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

// pageOfShipments queries the database, again after each refusal.
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

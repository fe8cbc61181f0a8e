package throttle_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// A database that all tenants share: so many queries a second, fewer for each tenant,
// and so many at once. When it says that it is overloaded, nobody asks it for a while.
func ExampleLimiters() {
	limits, err := throttle.NewLimiters(throttle.Config{
		Store:   memstore.New(), // redisstore.New(client, redisstore.Options{}) for a fleet
		MaxWait: 2 * time.Second,
		Policies: []throttle.Policy{
			{Name: "queries", Limit: throttle.PerSecond(200)},
			{Name: "tenant", Keyed: true, Limit: throttle.PerSecond(20)},
			{Name: "at once", Limit: throttle.Concurrency(10)},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	db := sql.OpenDB(warehouse{})
	defer db.Close()

	orders := func(ctx context.Context, tenant string) (n int, err error) {
		permit, err := limits.Acquire(ctx,
			throttle.Demand{Policy: "queries"},
			throttle.Demand{Policy: "tenant", Key: tenant},
			throttle.Demand{Policy: "at once"},
		)
		if err != nil {
			return 0, err // such as a *throttle.LimitError, which names the policy
		}
		defer permit.Release()
		err = db.QueryRowContext(ctx, "SELECT count(*) FROM orders WHERE tenant = ?", tenant).Scan(&n)
		if err != nil && strings.Contains(err.Error(), "too many connections") {
			err = errors.Join(err, permit.Tell(ctx, throttle.Refused(5*time.Second), "queries"))
		}
		return n, err
	}

	ctx := context.Background()
	fmt.Println(orders(ctx, "acme"))
	fmt.Println(orders(ctx, "greedy"))
	_, err = orders(ctx, "acme") // refused at once: the penalty is longer than MaxWait
	var limited *throttle.LimitError
	if errors.As(err, &limited) {
		fmt.Println(limited.Policy, "is closed by a penalty:", limited.Paused)
	}
	// Output:
	// 42 <nil>
	// 0 warehouse: too many connections
	// queries is closed by a penalty: true
}

// A consumer of a queue sends mails: so many an hour, and fewer to each customer. What
// it cannot send goes back to the queue.
func ExamplePermit_Renew() {
	limits, err := throttle.NewLimiters(throttle.Config{
		Store: memstore.New(),
		Policies: []throttle.Policy{
			{Name: "mails", Limit: throttle.PerHour(500)},
			{Name: "customer", Keyed: true, Limit: throttle.PerHour(2)},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	consume := func(ctx context.Context, m message) error {
		permit, err := limits.Acquire(ctx,
			throttle.Demand{Policy: "mails"},
			throttle.Demand{Policy: "customer", Key: m.customer},
		)
		if err != nil {
			return m.Nack(err)
		}
		defer permit.Release()
		text := render(m) // takes a while

		// The start may be too old by now, or the provider may have refused another program.
		if err := permit.Renew(ctx); err != nil {
			return m.Nack(err)
		}
		var busy busyError
		if err := deliver(text); errors.As(err, &busy) {
			return m.Nack(errors.Join(err, permit.Tell(ctx, throttle.Refused(busy.after), "mails")))
		}
		return m.Ack()
	}
	ctx := throttle.WithMaxWait(context.Background(), time.Second)
	for _, customer := range []string{"ann", "ann", "ann", "busy", "bob"} {
		fmt.Println(consume(ctx, message{customer}))
	}
	// Output:
	// ack ann
	// ack ann
	// nack ann: throttle: policy "customer" (2/h): would wait 1h0m0s, but MaxWait is 1s
	// nack busy: the provider is busy
	// nack bob: throttle: policy "mails" (500/h): closed by a penalty, would wait 10m0s, but MaxWait is 1s
}

// A job would have to wait, so it gives its worker back and keeps its place. The text of the place is stored with the job.
// Another program of the fleet redeems it when its time has come.
func ExampleLimiters_Reserve() {
	limits, err := throttle.NewLimiters(throttle.Config{
		Store:    memstore.New(), // redisstore.New(client, redisstore.Options{}) for a fleet
		Policies: []throttle.Policy{{Name: "crm", Limit: throttle.PerSecond(1)}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	type job struct {
		Name  string
		Place *throttle.Place `json:",omitempty"`
	}
	visit := func(ctx context.Context, text string) (stored string, again time.Duration) {
		var j job
		var permit *throttle.Permit
		demand, err := throttle.Demand{Policy: "crm"}, json.Unmarshal([]byte(text), &j)
		if err == nil {
			permit, j.Place, err = limits.Reserve(ctx, j.Place, demand) // after a *store.PlaceError come again without a place
		}
		if permit == nil && err == nil {
			fmt.Println(j.Name, "is put aside")
			after := j.Place.RetryAfter()
			text, _ := json.Marshal(j) // never fails
			return string(text), after
		}
		fmt.Println(j.Name, "starts", err)
		return "", 0
	}
	ctx := throttle.WithMaxWait(context.Background(), 100*time.Millisecond) // 2 seconds without
	visit(ctx, `{"Name": "the first"}`)
	stored, again := visit(ctx, `{"Name": "the second"}`)
	time.Sleep(again)
	visit(ctx, stored)
	// Output:
	// the first starts <nil>
	// the second is put aside
	// the second starts <nil>
}

// A message is one of a queue.
type message struct{ customer string }

func (m message) Ack() error           { return errors.New("ack " + m.customer) }
func (m message) Nack(err error) error { return fmt.Errorf("nack %s: %w", m.customer, err) }

func render(m message) string { return m.customer }

// A busyError is how the provider refuses.
type busyError struct{ after time.Duration }

func (busyError) Error() string { return "the provider is busy" }

func deliver(text string) error {
	if text == "busy" {
		return busyError{10 * time.Minute}
	}
	return nil
}

// A warehouse is a database that knows one number.
type warehouse struct{}

func (w warehouse) Connect(context.Context) (driver.Conn, error) { return w, nil }
func (w warehouse) Driver() driver.Driver                        { return nil }
func (w warehouse) Prepare(string) (driver.Stmt, error)          { return w, nil }
func (w warehouse) Begin() (driver.Tx, error)                    { return nil, errors.ErrUnsupported }
func (w warehouse) Close() error                                 { return nil }
func (w warehouse) NumInput() int                                { return 1 }
func (w warehouse) Exec([]driver.Value) (driver.Result, error)   { return nil, errors.ErrUnsupported }

func (w warehouse) Query(args []driver.Value) (driver.Rows, error) {
	if args[0] == "greedy" {
		return nil, errors.New("warehouse: too many connections")
	}
	return &oneRow{}, nil
}

// A oneRow is an answer of one row.
type oneRow struct{ read bool }

func (*oneRow) Columns() []string { return []string{"count"} }
func (*oneRow) Close() error      { return nil }

func (r *oneRow) Next(to []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read, to[0] = true, int64(42)
	return nil
}

// Either of two render farms can do the job: the one that is free first does it.
func ExampleLimiters_AcquireFirst() {
	limits, err := throttle.NewLimiters(throttle.Config{
		Store: memstore.New(),
		Policies: []throttle.Policy{
			{Name: "large farm", Limit: throttle.Concurrency(1)},
			{Name: "small farm", Limit: throttle.PerMinute(1)},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		permit, i, err := limits.AcquireFirst(context.Background(),
			throttle.Alternative{Demands: []throttle.Demand{{Policy: "large farm"}}},
			throttle.Alternative{Demands: []throttle.Demand{{Policy: "small farm"}}},
		)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer permit.Release()
		fmt.Println([]string{"large", "small"}[i])
	}
	// Output:
	// large
	// small
}

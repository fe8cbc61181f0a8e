//go:build unix

// Command cost measures what a start costs in a pgstore: so many processes with so many callers each acquire
// starts of one budget that has room for all of them, on a server of its own with fsync. Beside it: a transaction for each start
// that locks the row (SELECT … FOR UPDATE), as other limiters do.
//
//	go run ./internal/cost -for 5s
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetthrottle/throttle/internal/crew"
	"github.com/fleetthrottle/throttle/internal/pgtest"
	"github.com/fleetthrottle/throttle/pgstore"
)

const role = "pgcost"

// A result is what a process has seen: how long each call took.
type result struct{ Took []time.Duration }

func main() {
	crew.Main(role, member)
	length := flag.Duration("for", 5*time.Second, "for how long each line is measured")
	runs := flag.Int("runs", 1, "how often all of it is measured")
	flag.Parse()
	t := new(tb)
	defer t.end()
	if err := measure(t, *length, *runs); err != nil {
		t.Fatal(err)
	}
}

// A line is one of the table.
type line struct {
	name               string
	processes, callers int
	each, held         bool
}

var lines = []line{
	{"pgstore", 4, 16, false, false},
	{"SELECT ... FOR UPDATE each", 4, 16, true, false},
	{"pgstore", 16, 16, false, false},
	{"pgstore", 1, 1, false, false},
	{"SELECT ... FOR UPDATE each", 1, 1, true, false},
	{"pgstore, a snapshot is held", 4, 16, false, true},
}

func measure(t *tb, length time.Duration, runs int) error {
	server := pgtest.Start(t, "fsync=on", "shared_buffers=128MB", "max_connections=400")
	ctx := context.Background()
	c, err := pgx.Connect(ctx, server.URL())
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	var version string
	if err := c.QueryRow(ctx, "SELECT version()").Scan(&version); err != nil {
		return err
	}
	fmt.Printf("%s\nfsync on, one budget, each line %v\n\n", version, length)
	fmt.Printf("%-30s %9s %8s %10s %9s %9s %9s %9s\n", "", "processes", "callers", "starts/s", "half", "99%", "99.9%", "all")
	for range runs {
		for _, l := range lines {
			if err := prepare(ctx, c, server.URL()); err != nil {
				return err
			}
			if err := l.run(ctx, server.URL(), length); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepare makes empty tables.
func prepare(ctx context.Context, c *pgx.Conn, url string) error {
	for _, sql := range []string{
		"DROP SCHEMA IF EXISTS throttle CASCADE", "DROP TABLE IF EXISTS bucket",
		"CREATE TABLE bucket (id bigint PRIMARY KEY, state bytea, expires_at bigint)",
		"INSERT INTO bucket VALUES (1, decode(repeat('00', 400), 'hex'), 0)",
	} {
		if _, err := c.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return pgstore.Setup(ctx, url, nil)
}

func (l line) run(ctx context.Context, url string, length time.Duration) error {
	if l.held {
		c, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer c.Close(ctx)
		if _, err := c.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM throttle.budgets"); err != nil {
			return err
		}
	}
	all, err := crew.Muster(ctx, role, slices.Repeat([]orders{{url, l.callers, length, l.each}}, l.processes))
	if err != nil {
		return err
	}
	defer all.Kill()
	for _, m := range all {
		if err := m.Tell("go"); err != nil {
			return err
		}
	}
	var took []time.Duration
	for _, m := range all {
		var r result
		if err := m.Hear(&r); err != nil {
			return err
		}
		took = append(took, r.Took...)
	}
	slices.Sort(took)
	fmt.Printf("%-30s %9d %8d %10.0f", l.name, l.processes, l.callers, float64(len(took))/length.Seconds())
	for _, part := range []float64{0.5, 0.99, 0.999, 1} {
		fmt.Printf(" %9v", took[int(part*float64(len(took)-1))].Round(10*time.Microsecond))
	}
	fmt.Println()
	return nil
}

// member acquires starts.
func member(program *crew.Link) error {
	var o orders
	if err := program.Hear(&o); err != nil {
		return err
	}
	acquire, err := acquirer(o)
	if err != nil {
		return err
	}
	for range o.Callers { // connections are made before
		if err := acquire(); err != nil {
			return err
		}
	}
	if err := program.Tell("ready"); err != nil {
		return err
	}
	var start string
	if err := program.Hear(&start); err != nil {
		return err
	}
	var wg sync.WaitGroup
	took := make([][]time.Duration, o.Callers)
	errs := make([]error, o.Callers)
	end := time.Now().Add(o.Length)
	for i := range o.Callers {
		wg.Go(func() {
			for {
				began := time.Now()
				if began.After(end) {
					return
				}
				if errs[i] = acquire(); errs[i] != nil {
					return
				}
				took[i] = append(took[i], time.Since(began))
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return program.Tell(result{slices.Concat(took...)})
}

// A tb is what pgtest needs of a test.
type tb struct{ cleanups []func() }

func (t *tb) Helper()          {}
func (t *tb) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *tb) Fatal(args ...any) {
	t.end()
	fmt.Fprintln(os.Stderr, append([]any{"cost:"}, args...)...)
	os.Exit(1)
}

func (t *tb) Fatalf(format string, args ...any) { t.Fatal(fmt.Sprintf(format, args...)) }

func (t *tb) end() {
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
	t.cleanups = nil
}

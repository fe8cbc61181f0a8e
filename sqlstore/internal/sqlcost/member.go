//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/crew"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/sqlstore"
)

const role = "sqlcost"

// The ways in which a start is taken.
const (
	plain    = "plain"
	together = "together"
	oneByOne = "one by one"
	durable  = "Redis that writes to the disk"
	volatile = "Redis that does not"
)

// Orders are those of a process.
type orders struct {
	Way, At string // At is the server
	Callers int
	Length  time.Duration
}

// A result is what a process has seen: how long each start took.
type result struct{ Waits []time.Duration }

// member takes starts.
func member(program *crew.Link) error {
	var o orders
	if err := program.Hear(&o); err != nil {
		return err
	}
	take, err := taker(o)
	if err != nil {
		return err
	}
	if err := take(context.Background()); err != nil { // it makes a connection
		return err
	}
	var start string
	if err := errors.Join(program.Tell("ready"), program.Hear(&start)); err != nil {
		return err
	}
	var all sync.WaitGroup
	waits, errs := make([][]time.Duration, o.Callers), make([]error, o.Callers)
	end := time.Now().Add(o.Length)
	for i := range o.Callers {
		all.Go(func() {
			for errs[i] == nil {
				began := time.Now()
				if began.After(end) {
					return
				}
				errs[i] = take(context.Background())
				waits[i] = append(waits[i], time.Since(began))
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return program.Tell(result{slices.Concat(waits...)})
}

// taker returns what takes a start.
func taker(o orders) (take func(context.Context) error, err error) {
	if o.Way == durable || o.Way == volatile {
		return of(redisstore.New(redis.NewClient(&redis.Options{Addr: o.At}), nil)), nil
	}
	if o.Way != together {
		o.At = strings.Replace(o.At, "multiStatements=true", "multiStatements=false", 1)
	}
	db, err := sql.Open("mysql", o.At)
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(o.Callers)
	if o.Way == plain {
		return plainly(db), nil
	}
	return of(sqlstore.MySQL(db, nil)), nil
}

// of returns what takes a start from a store.
func of(s throttle.Store) func(context.Context) error {
	b := throttle.Booking{MaxWait: throttle.AnyWait, Horizon: time.Second, Charges: []throttle.Charge{{
		Budget: throttle.Budget{Policy: "one", Key: [16]byte{1}}, Limit: throttle.PerSecond(100_000_000), Cost: 1, Jitter: throttle.DefaultJitter,
	}}}
	return func(ctx context.Context) error {
		g, err := s.Book(ctx, &b)
		if err == nil && !g.OK {
			err = fmt.Errorf("no start: %+v", g)
		}
		return err
	}
}

// size is how many bytes a row of the plain way has.
const size = 400

func createPlain(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, fmt.Sprintf(`CREATE TABLE plain (id INT PRIMARY KEY, state VARBINARY(%d) NOT NULL) ENGINE=InnoDB;
		INSERT INTO plain VALUES (1, REPEAT('x', %d))`, size, size))
	return err
}

// plainly takes a start in a transaction of its own, which decides nothing. Its statements are prepared by nobody, and have
// their arguments in them, so that each takes one round trip.
func plainly(db *sql.DB) func(context.Context) error {
	state := strings.Repeat("x", size)
	return func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // after a commit it does nothing
		var read []byte
		if err := tx.QueryRowContext(ctx, "SELECT state FROM plain WHERE id = 1 FOR UPDATE").Scan(&read); err != nil {
			return err
		}
		at := time.Now().UnixNano() // the state changes
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE plain SET state = '%s%020d' WHERE id = 1", state[20:], at)); err != nil {
			return err
		}
		return tx.Commit()
	}
}

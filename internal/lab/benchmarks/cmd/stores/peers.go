package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"
)

// openRedisRate is go-redis/redis_rate.
func openRedisRate(addr string) (taker, error) {
	limiter := redis_rate.NewLimiter(goredis.NewClient(&goredis.Options{Addr: addr}))
	return func(ctx context.Context) error {
		r, err := limiter.Allow(ctx, "one", redis_rate.PerSecond(plenty))
		if err == nil && r.Allowed != 1 {
			err = fmt.Errorf("no start: %+v", r)
		}
		return err
	}, nil
}

// createBucket returns the statements that make the table of a bucket: a row of 400 bytes, whose type is given.
func createBucket(bytes string) string {
	return "DROP TABLE IF EXISTS bucket; CREATE TABLE bucket (id int PRIMARY KEY, state " + bytes + " NOT NULL); INSERT INTO bucket VALUES (1, '" + strings.Repeat("x", 400) + "')"
}

// each is how other limiters on SQL take a start: a transaction locks the row of a bucket, reads it, and writes it. What they decide
// in between is left out. Each caller has a connection.
func each(driver, options, argument string) func(at string) (taker, error) {
	return func(at string) (taker, error) {
		db, err := sql.Open(driver, at+options)
		if err != nil {
			return nil, err
		}

		db.SetMaxIdleConns(100)
		return func(ctx context.Context) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}

			defer func() { _ = tx.Rollback() }() // after a commit it does nothing
			var state []byte
			if err := tx.QueryRowContext(ctx, "SELECT state FROM bucket WHERE id = 1 FOR UPDATE").Scan(&state); err != nil {
				return err
			}

			copy(state, fmt.Sprint(time.Now().UnixNano()))
			if _, err := tx.ExecContext(ctx, "UPDATE bucket SET state = "+argument+" WHERE id = 1", state); err != nil {
				return err
			}

			return tx.Commit()
		}, nil
	}
}

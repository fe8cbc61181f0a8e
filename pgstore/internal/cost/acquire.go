//go:build unix

package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/pgstore"
)

// Orders are those of a process.
type orders struct {
	URL     string
	Callers int
	Length  time.Duration
	Each    bool // a transaction for each start
}

// acquirer returns a function that acquires one start.
func acquirer(o orders) (func() error, error) {
	if o.Each {
		return each(o)
	}
	s, err := pgstore.Open(o.URL, nil)
	if err != nil {
		return nil, err
	}
	b := throttle.Booking{MaxWait: throttle.AnyWait, Horizon: time.Second, Charges: []throttle.Charge{{
		Budget: throttle.Budget{Policy: "one", Key: [16]byte{1}}, Limit: throttle.PerSecond(100_000_000), Cost: 1, Jitter: throttle.DefaultJitter,
	}}}
	return func() error {
		_, err := s.Book(context.Background(), &b)
		return err
	}, nil
}

// each locks the row of a bucket for each start, reads it, writes it and commits. What would be decided in between is
// left out. All callers have a connection.
func each(o orders) (func() error, error) {
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(o.Callers)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	return func() error {
		ctx := context.Background()
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			var state []byte
			if err := tx.QueryRow(ctx, "SELECT state FROM bucket WHERE id = $1 FOR UPDATE", 1).Scan(&state); err != nil {
				return err
			}
			state[0]++
			_, err := tx.Exec(ctx, "UPDATE bucket SET state = $1, expires_at = $2 WHERE id = $3", state, time.Now().UnixMilli(), 1)
			return err
		})
	}, nil
}

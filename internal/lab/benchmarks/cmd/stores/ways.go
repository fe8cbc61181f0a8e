package main

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"
)

// A way is how a start is taken.
type way struct {
	name   string
	place  *place
	shared bool // processes share the store, in the way in which it should be used
	open   func(at string) (taker, error)
}

var ways = []way{
	{"memstore", memory, false, from(openMemory)},
	{"filestore", files, true, from(openFiles)},
	{"redisstore", redis, true, from(openRedis)},
	{"redisstore, appendfsync always", redisFile, true, from(openRedis)},
	{"pgstore", postgres, true, from(openPostgres)},
	{"sqlstore", mariaDB, true, from(openMySQL)},
	{"sqlstore, flush 2", mariaDB2, true, from(openMySQL)},
	{"redis_rate", redis, false, openRedisRate},
	{"FOR UPDATE each, PostgreSQL", postgres, false, each("pgx", "", "$1")},
	{"FOR UPDATE each, MariaDB", mariaDB, false, eachMariaDB},
	{"FOR UPDATE each, MariaDB, flush 2", mariaDB2, false, eachMariaDB},
}

// Without interpolateParams a statement with an argument would take two round trips.
var eachMariaDB = each("mysql", "&interpolateParams=true", "?")

// wayNamed returns the way of a name, which must be there.
func wayNamed(name string) way {
	return ways[slices.IndexFunc(ways, func(w way) bool { return w.name == name })]
}

// times is a histogram: how many starts took each time, rounded to three digits.
type times map[time.Duration]int

// add counts a start that took d.
func (t times) add(d time.Duration) {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	t[d.Round(unit)]++
}

func (t times) merge(others times) {
	for d, n := range others {
		t[d] += n
	}
}

func (t times) count() (all int) {
	for _, n := range t {
		all += n
	}
	return all
}

// quantile returns the time of the start with the index share*(n-1), rounded down, of n starts in order of their times. share is from 0 to 1. It returns 0 if
// there are no starts.
func (t times) quantile(share float64) (d time.Duration) {
	faster := int(share * float64(t.count()-1)) // the faster starts that are left to be passed
	for _, d = range slices.Sorted(maps.Keys(t)) {
		faster -= t[d]
		if faster < 0 {
			break
		}
	}
	return d
}

// openRedisRate returns the taker of go-redis/redis_rate.
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

// each returns a function that opens the way of other limiters on SQL: to take a start, a transaction locks the row of a
// bucket, reads it, and writes it. The limiter's decision in between is left out. Each caller has a connection. parameters
// follow the address, and argument stands for an argument in the driver's SQL.
func each(driver, parameters, argument string) func(at string) (taker, error) {
	return func(at string) (taker, error) {
		db, err := sql.Open(driver, at+parameters)
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

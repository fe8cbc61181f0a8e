package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/filestore"
	"github.com/fleetthrottle/throttle/stores/pgstore"
	"github.com/fleetthrottle/throttle/stores/sqlstore"
)

// A taker takes a start.
type taker func(context.Context) error

func openMemory(string) (throttle.Store, error)       { return memstore.New(), nil }
func openFiles(dir string) (throttle.Store, error)    { return filestore.New(dir, filestore.Options{}) }
func openPostgres(url string) (throttle.Store, error) { return pgstore.New(url, pgstore.Options{}) }

func openRedis(addr string) (throttle.Store, error) {
	return redisstore.New(goredis.NewClient(&goredis.Options{Addr: addr}), redisstore.Options{}), nil
}

func openMySQL(dsn string) (throttle.Store, error) {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, err
	}
	return sqlstore.New(db, sqlstore.Options{})
}

// plenty is a limit for each second that is never reached.
const plenty = 100_000_000

// from takes starts from a store.
func from(open func(at string) (throttle.Store, error)) func(string) (taker, error) {
	b := store.Booking{MaxWait: store.AnyWait, Horizon: time.Second, Charges: []store.Charge{{
		Budget: throttle.Budget{Policy: "one", Key: [16]byte{1}}, Limit: throttle.PerSecond(plenty), Cost: 1, Jitter: 35 * time.Millisecond,
	}}}
	return func(at string) (taker, error) {
		s, err := open(at)
		return func(ctx context.Context) error {
			g, err := s.Book(ctx, &b)
			if err == nil && !g.OK {
				err = fmt.Errorf("no start: %+v", g)
			}
			return err
		}, err
	}
}

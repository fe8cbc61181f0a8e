package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/filestore"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/pgstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/sqlstore"
)

// A way is one in which a start is taken.
type way struct {
	name   string
	place  *place
	shared bool // a store that processes share, in the way in which it should be used
	open   func(at string) (taker, error)
}

// A taker takes a start.
type taker func(context.Context) error

var ways = []way{
	{"memstore", memory, false, from(openMemory)},
	{"filestore", files, true, from(openFiles)},
	{"redisstore", redis, true, from(openRedis)},
	{"redisstore, appendfsync always", redisFile, true, from(openRedis)},
	{"pgstore", postgres, true, from(openPostgres)},
	{"sqlstore", mariaDB, true, from(openMySQL)},
	{"sqlstore, statements one by one", mariaDB, false, from(openMySQLOneByOne)},
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

func openMemory(string) (throttle.Store, error)       { return memstore.New(), nil }
func openFiles(dir string) (throttle.Store, error)    { return filestore.Open(dir) }
func openPostgres(url string) (throttle.Store, error) { return pgstore.Open(url, nil) }

func openRedis(addr string) (throttle.Store, error) {
	return redisstore.New(goredis.NewClient(&goredis.Options{Addr: addr}), nil), nil
}

func openMySQL(dsn string) (throttle.Store, error) {
	db, err := sql.Open("mysql", dsn)
	return sqlstore.MySQL(db, nil), err
}

func openMySQLOneByOne(dsn string) (throttle.Store, error) {
	return openMySQL(strings.Replace(dsn, "multiStatements=true", "multiStatements=false", 1))
}

// plenty is a limit for each second that is never reached.
const plenty = 100_000_000

// from takes starts from a store.
func from(open func(at string) (throttle.Store, error)) func(string) (taker, error) {
	b := throttle.Booking{MaxWait: throttle.AnyWait, Horizon: time.Second, Charges: []throttle.Charge{{
		Budget: throttle.Budget{Policy: "one", Key: [16]byte{1}}, Limit: throttle.PerSecond(plenty), Cost: 1, Jitter: throttle.DefaultJitter,
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

package main

import "slices"

// A way is one in which a start is taken.
type way struct {
	name   string
	place  *place
	shared bool // a store that processes share, in the way in which it should be used
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

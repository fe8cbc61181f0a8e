package fleet

import (
	"cmp"

	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/internal/names"
)

// keys are the names of what is kept of a fleet. Their hash tag puts them into one slot
// of a cluster. No budget has such a name: there, braces are escaped or hold its group,
// behind the version of its stored form.
type keys struct {
	nodes    string // sorted set: node ids by their last report, in microseconds
	node     string // and an id: its record
	pauses   string // hash: hashed key of a budget in hex: end in microseconds, a space, note
	audit    string // list: moment in microseconds, a space, act; the newest first
	policies string // hash: the pushed file
	history  string // list: pushed files; the newest first
}

func keysOf(namespace string) keys {
	p := names.Escape(cmp.Or(namespace, redisstore.DefaultNamespace)) + ":{fleet}:"
	return keys{p + "nodes", p + "node:", p + "pauses", p + "audit", p + "policies", p + "history"}
}

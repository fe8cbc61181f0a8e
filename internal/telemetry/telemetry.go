// Package telemetry is what the modules have in common that tell others of events:
// promthrottle and otelthrottle.
package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/fleetthrottle/throttle"
)

// Other names policies that are not in the table.
const Other = "other"

// Buckets are the boundaries of histograms of waits, in seconds: from 5 ms to ten minutes. Those
// that clients choose by default end at ten seconds.
var Buckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// Kinds are the names of the kinds of events; "" for those of what becomes of a request.
var Kinds = [...]string{
	throttle.EventWaiting:        "waiting",
	throttle.EventStale:          "stale",
	throttle.EventLate:           "late",
	throttle.EventPenalized:      "penalized",
	throttle.EventShadowed:       "shadowed",
	throttle.EventStoreFailed:    "store_failed",
	throttle.EventFunctionFailed: "function_failed",
	throttle.EventIllegible:      "illegible",
	throttle.EventLowered:        "lowered",
	throttle.EventStillWaiting:   "still_waiting",
	throttle.EventClosed:         "closed",
	throttle.EventOpened:         "opened",

	throttle.EventUnmatched: "unmatched",
}

// A Table has what belongs to each policy, bound beforehand: events come on the request's way.
// The zero Table is empty, and must be given policies before it is asked.
type Table[S any] struct {
	mu  sync.Mutex // for changes of all
	all atomic.Pointer[map[string]*S]
}

// Add binds what belongs to the policies of a new table, to "" for requests that no policy held,
// and to [Other]. A name that is not UTF-8 is no policy's, because throttle refuses it. What belongs
// to policies that are gone stays, as long as the program runs.
func (t *Table[S]) Add(policies []throttle.Policy, bind func(policy string) *S) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := make(map[string]*S)
	if all := t.all.Load(); all != nil {
		next = maps.Clone(*all)
	}
	names := []string{"", Other}
	for _, p := range policies {
		if utf8.ValidString(p.Name) {
			names = append(names, p.Name)
		}
	}
	for _, name := range names {
		if next[name] == nil {
			next[name] = bind(name)
		}
	}
	t.all.Store(&next)
}

// Of returns what belongs to a policy. It takes no lock.
func (t *Table[S]) Of(policy string) *S {
	all := *t.all.Load()
	if s := all[policy]; s != nil {
		return s
	}
	return all[Other]
}

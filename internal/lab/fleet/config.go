package fleet

import (
	"errors"
	"fmt"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A Config describes one run of a fleet. Redis, Limit, Processes, Workers and
// Load are required, Redis only if the Limiter needs it.
type Config struct {
	Name    string // names the run in reports and its policy in the store
	Limiter string // a name that Main knows; "": throttle's transport
	Redis   string // the store's URL, as redis.ParseURL reads it
	Limit   string // as throttle.ParseLimit reads it: a window of a fixed length
	Jitter  time.Duration

	Processes int
	Workers   int           // in each process, each in a closed loop
	Keys      int           // workers share this many budgets evenly; the default is one
	Load      time.Duration // how long the workers go on

	Delay     time.Duration // each request is held up to this long between grant and send
	Ban       time.Duration // how long the upstream bans, or 0 for no upstream
	Handshake time.Duration // every request dials anew, and its handshake takes up to this long, or 0 for plain HTTP
}

// check reports missing fields, and returns the limit.
func (c Config) check() (throttle.Limit, error) {
	limit, err := throttle.ParseLimit(c.Limit)
	switch {
	case err != nil:
		return limit, err
	case limit.Per() <= 0:
		return limit, fmt.Errorf("fleet: %v has no window of a fixed length", limit)
	case c.Processes <= 0 || c.Workers <= 0 || c.Load <= 0:
		return limit, errors.New("fleet: Processes, Workers and Load must be above zero")
	}
	return limit, nil
}

// key returns the key of a worker's budget.
func (c Config) key(worker int) string {
	if c.Keys <= 1 {
		return ""
	}
	return fmt.Sprintf("key %d", worker%c.Keys)
}

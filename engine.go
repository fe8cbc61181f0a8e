package throttle

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// An engine is what all acquisitions of a [Transport], or of limiters that belong
// together, have in common.
type engine struct {
	store          Store
	defaultMaxWait time.Duration                // as in Config
	observe        func(context.Context, Event) // nil: none
	longWait       time.Duration                // as in Config; 0: none, or there is no observer
	rtt            rttEstimator                 // how long the store's answers take
	queues         sync.Map                     // of *atomic.Int64: how many callers each policy holds
	closings       closings
	recent         atomic.Pointer[recents] // the budgets that callers used last; nil: nobody asks for them
	unanswered     atomic.Int32            // how many callers were told that the store does not answer, and wait for it still
}

// configure takes over what it needs of a configuration.
func (e *engine) configure(c Config) error {
	e.store, e.defaultMaxWait, e.observe = c.Store, c.MaxWait, observer(c.Observe).guarded()
	if e.observe != nil {
		e.longWait = max(0, cmp.Or(c.LongWait, DefaultLongWait))
	}
	if c.Store == nil {
		return &ConfigError{"", "Store", errors.New("is required: memstore.New() for one process, redisstore.New(client, nil) for a fleet")}
	}
	return nil
}

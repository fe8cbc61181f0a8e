package memstore

import (
	"maps"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// appointments are those of all budgets.
type appointments struct {
	mu   sync.Mutex
	all  map[ledger.Key]ledger.Appointments
	most int // how many budgets there may be until those whose appointments are over are dropped
}

// make makes an appointment with a caller that leaves now.
func (a *appointments) make(now int64, c *store.Charge, wait time.Duration, again bool) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.all) >= a.most {
		maps.DeleteFunc(a.all, func(_ ledger.Key, of ledger.Appointments) bool { return max(of[0], of[1]) <= now })
		a.most = max(64, 2*len(a.all))
	}
	if a.all == nil {
		a.all = make(map[ledger.Key]ledger.Appointments)
	}
	of := a.all[c.Budget.Key]
	in := of.Make(now, c, wait, again)
	a.all[c.Budget.Key] = of
	return in
}

package nodestore

import (
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
)

// Options are those of a node.
type Options struct {
	Node       ledger.Node
	RenewEvery time.Duration    // how often the node renews its leases: a small part of them
	Arrivals   *ledger.Arrivals // of the node; nil: new ones
}

package node

import (
	"context"
	"errors"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// A Backend keeps the rows of budgets for many nodes. Its methods are safe for concurrent use, but
// a node makes one Step at a time.
type Backend interface {
	// Step locks the rows, calls decide, saves the rows that decide has got and unlocks them:
	// all rows are saved, or none. The keys are those that decide asks for first. Decide may be called
	// again, with the rows as they were, if what it did could not be saved. After an error
	// nothing was saved, unless it is an [ErrUnsure]. Step returns what other nodes have done since the last call.
	Step(keys []ledger.Key, decide func(Rows) Told) (Heard, error)

	// Read calls look with the rows as they are, which look does not change. The keys are those that
	// look asks for; look may be called again. Read returns what other nodes have done, also with an error. It fails when ctx has ended.
	Read(ctx context.Context, keys []ledger.Key, look func(Rows)) (Heard, error)

	// Listen has wake called, from any goroutine, when other nodes have news for this one, until
	// stop is called. Wake does not block. A backend whose nodes cannot be told calls wake four times a second.
	Listen(wake func()) (stop func(), err error)
}

// A DeathObserver is a Backend that knows of some nodes that they are dead before their leases end.
type DeathObserver interface {
	// IsDead reports whether a node is dead for sure. It does not block.
	IsDead(node int64) bool
}

// ErrAway is what an error of Step is if the backend cannot be reached now. Callers that can wait then
// wait for it, and the step is made again.
var ErrAway = errors.New("the database cannot be reached")

// ErrUnsure is what an error of Step is if it is not known whether the rows were saved, and the leases that the node had in them are over.
var ErrUnsure = errors.New("it is not known whether this was saved")

// A Troubled is a Backend whose steps may take long because something has failed.
type Troubled interface {
	// Trouble returns the failure in the step that is under way, or nil.
	Trouble() error
}

// Rows are the rows of budgets during a step or a look.
type Rows interface {
	// Now is the time of the store's clock, in microseconds. The clock was read between Asked, when this node asked for the
	// time, and Received, when this node had the answer.
	Now() int64
	Asked() time.Time
	Received() time.Time

	// Fetch says of which charges the rows are wanted next: a backend that has to load them does it at once.
	Fetch(charges []store.Charge)

	// Row returns the row of a budget. If there is none it returns nil, or with create a new one.
	Row(key ledger.Key, create bool) *ledger.Row
}

// Told is what a step has done that concerns other nodes.
type Told struct {
	News  ledger.News
	Nodes []int64 // the nodes that are to hear of it at once
	All   bool    // all nodes are to hear of it at once
}

// Heard is what other nodes have done.
type Heard struct {
	News ledger.News
	Lost bool // they may have done more
}

// Add adds what was heard later.
func (h *Heard) Add(later Heard) {
	Append(&h.News, later.News)
	h.Lost = h.Lost || later.Lost
}

// Empty reports whether nothing was heard.
func (h *Heard) Empty() bool { return !h.Lost && IsEmpty(&h.News) }

// Empty reports whether there is nothing to tell.
func (t *Told) Empty() bool { return IsEmpty(&t.News) }

package node

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/store"
)

// An op is what a caller, or the node itself, wants done in a step.
type op struct {
	// decide does, in a step, what is wanted. It is called again if the step is made again.
	decide func(*step, *op)

	booking  store.Booking // with charges of the op's own
	grant    store.Grant   // the answer to a booking, or the grant that the op gives back
	asked    time.Time     // when this node asked the store's clock for the time of the step
	received time.Time     // when this node had that time
	books    bool          // the op asks for a start
	isUndo   bool          // the op gives something back

	costs []int // what a start has cost

	keys []ledger.Key // the budgets whose leases the op renews; nil: it has a booking

	from, to float64 // the answer to a refusal

	err   error
	done  chan struct{} // is sent to once
	state atomic.Int32  // see pending, left and answered

	observer outage.Observer // is told why the store does not answer; nil: nobody is
	away     chan error      // has room for one
}

const (
	pending  = iota
	left     // its caller did not wait for the answer
	answered // its caller has the answer
)

// ops are the ops of a store that are not in use.
type ops struct{ pool sync.Pool }

// get returns an op about a booking.
func (all *ops) get(decide func(*step, *op), b *store.Booking) *op {
	o, _ := all.pool.Get().(*op)
	if o == nil {
		o = &op{done: make(chan struct{}, 1), away: make(chan error, 1)}
	}
	charges := append(o.booking.Charges[:0], b.Charges...)
	o.booking = *b
	o.booking.Charges = charges
	o.decide = decide
	return o
}

// put lets an op be used again. Nobody else has it.
func (all *ops) put(o *op) {
	charges, done, away := o.booking.Charges, o.done, o.away
	clear(charges)
	for len(away) > 0 {
		<-away
	}
	*o = op{done: done, away: away}
	o.booking.Charges = charges[:0]
	all.pool.Put(o)
}

// await waits until the op is done, at most as long as ctx and patience allow, if that is not
// negative. It returns false if the caller leaves: the op is not the caller's any more.
func (o *op) await(ctx context.Context, patience time.Duration) bool {
	if ctx.Done() == nil && patience < 0 && o.observer == nil {
		<-o.done
		return true
	}
	var over <-chan time.Time
	if patience >= 0 {
		t := time.NewTimer(patience)
		defer t.Stop()
		over = t.C
	}
	for waits := true; waits; {
		select {
		case <-o.done:
			return true
		case err := <-o.away:
			if o.observer != nil {
				o.observer.StoreAway(err)
			}
		case <-over:
			waits = false
		case <-ctx.Done():
			waits = false
		}
	}
	if o.state.CompareAndSwap(pending, left) {
		return false
	}
	<-o.done
	return true
}

// tell lets the caller go on. It returns false if the caller has left.
func (o *op) tell(err error) bool {
	o.err = err
	if !o.state.CompareAndSwap(pending, answered) {
		return false
	}
	o.done <- struct{}{}
	return true
}

// canWait reports whether the caller waits for the backend while that is away.
func (o *op) canWait() bool { return o.books && o.booking.MaxWait != 0 && o.state.Load() == pending }

// tellAway lets the caller know why it waits.
func (o *op) tellAway(err error) {
	select {
	case o.away <- err:
	default: // it knows
	}
}

// hasLeft reports whether the caller has left.
func (o *op) hasLeft() bool { return o.state.Load() == left }

// gives reports whether an op that asks for a start gives something back when it is done.
func (o *op) gives() bool { return o.booking.Turn != nil || o.booking.Instead != (store.Handle{}) }

// isPointless reports whether nothing would come of the op but a start for a caller that has left.
func (o *op) isPointless() bool { return o.books && !o.gives() && o.hasLeft() }

// budgets appends the keys of the budgets that the op asks for first.
func (o *op) budgets(keys []ledger.Key) []ledger.Key {
	for i := range o.booking.Charges {
		keys = append(keys, o.booking.Charges[i].Budget.Key)
	}
	return append(keys, o.keys...)
}

// size is how many rows the op asks for first.
func (o *op) size() int { return len(o.booking.Charges) + len(o.keys) }

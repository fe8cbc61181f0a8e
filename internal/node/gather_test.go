package node

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// TestAnyPriorityGathers: priorities above and below all others count as the highest and the lowest, for newcomers
// to a long line as in the line itself.
func TestAnyPriorityGathers(t *testing.T) {
	key := ledger.Key{1}
	b := &store.Booking{
		Charges: []store.Charge{{Budget: store.Budget{Key: key}, Limit: store.PerSecond(100), Cost: 1}},
		Horizon: time.Millisecond, MaxWait: store.AnyWait,
	}
	k := new(worker)
	k.shares.Store(true)
	for _, p := range []store.Priority{store.PriorityLow - 9, store.PriorityHigh + 9} {
		b.Priority = p
		k.noteWait(b, &store.Grant{Ready: make(chan struct{}), Wait: time.Second})
		require.Positive(t, k.gathering.patience(b, time.Now()))
	}
}

// TestP1_NoAnswerFromRowsThatCannotBeRead: a step does not say of a start that it holds if it could not read the row, which may say that it does not.
func TestP1_NoAnswerFromRowsThatCannotBeRead(t *testing.T) {
	m := newMemory(Options{Node: ledger.Node{ID: 1, Lease: 1_000_000}}, nil)
	st := newStep(&m)
	for _, readable := range []bool{true, false} {
		rows := NewTable(func(keys []ledger.Key) ([][]byte, error) {
			if readable {
				return make([][]byte, len(keys)), nil
			}
			return nil, errors.New("the disk fails")
		})
		rows.Begin(time.Now().UnixMicro(), time.Now(), time.Now(), true)
		st.begin(&rows)

		c := &confirmation{watch: new(Watch), answer: make(chan bool, 1)}
		charges := []store.Charge{{Budget: store.Budget{Key: ledger.Key{1}}, Limit: store.PerSecond(100), Cost: 1}}
		c.watch.Begin(charges, store.Grant{OK: true, Handle: store.Handle{Start: time.Now().UnixMicro()}}, nil)
		c.decide(&st)
		c.end()
		_, answered := <-c.answer
		require.Equal(t, readable, answered)
	}
}

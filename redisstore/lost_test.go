package redisstore_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/redistest"
)

// TestP8_LostBooking loses a call that books. The caller gets a start, and one
// is charged.
func TestP8_LostBooking(t *testing.T) {
	t.Parallel()
	onLoss(t, func(w *wire, lose, late func()) {
		w.now(w.store)
		lose()
		w.now(w.store)
		w.charged(2)
		w.now(w.store)
		late()
		w.charged(3)
		w.room(2)
	})
}

// TestP8_LostCancel loses a call that gives a place back. It is given back, and
// once: the place that becomes free is taken by another, who keeps it.
func TestP8_LostCancel(t *testing.T) {
	t.Parallel()
	onLoss(t, func(w *wire, lose, late func()) {
		for range 4 {
			w.now(w.store)
		}
		h := w.now(w.store)
		lose()
		w.store.Cancel(h.booking, h.grant)
		w.charged(4)
		w.now(w.direct)
		late()
		w.charged(5)
		w.room(0)
	})
}

// TestP8_LostReplacement loses a call that books a start instead of another.
func TestP8_LostReplacement(t *testing.T) {
	t.Parallel()
	onLoss(t, func(w *wire, lose, late func()) {
		for range 4 {
			w.now(w.store)
		}
		h := w.now(w.store)
		lose()
		h.booking.Instead = h.grant.Handle
		g, err := w.store.Book(w.Context(), h.booking)
		require.NoError(w, err)
		require.True(w, g.OK)
		require.Zero(w, g.Wait)
		w.charged(5)
		late()
		w.charged(5)
		w.room(0)
	})
}

// TestP8_LostSettlement loses a call that changes what a start cost.
func TestP8_LostSettlement(t *testing.T) {
	t.Parallel()
	onLoss(t, func(w *wire, lose, late func()) {
		w.now(w.store)
		h := w.now(w.store)
		lose()
		require.NoError(w, w.store.Settle(w.Context(), h.booking, h.grant, []int{3}))
		w.charged(4)
		late()
		w.charged(4)
		w.room(1)
	})
}

// TestP8_LeavesAfterALoss lets the only caller leave while its call is on the way
// and lost. What was booked for it is given back, at the latest when the next one
// comes.
func TestP8_LeavesAfterALoss(t *testing.T) {
	t.Parallel()
	onLoss(t, func(w *wire, lose, late func()) {
		w.now(w.store)
		ctx, cancel := context.WithCancelCause(w.Context())
		lose()
		got := make(chan error)
		go func() {
			_, err := w.store.Book(ctx, booking(w.five))
			got <- err
		}()
		cancel(errLeft)
		want := 3
		if err := <-got; err != nil {
			require.Equal(w, errLeft, err)
			want = 2
		}
		w.now(w.store)
		w.charged(want)
		late()
		w.charged(want)
		w.room(5 - want)
	})
}

// TestP8_LostAgainAndAgain loses every answer for a while, whoever repeats.
func TestP8_LostAgainAndAgain(t *testing.T) {
	t.Parallel()
	w := newWire(t, func(*redis.Options) {}) // a client with nothing but defaults
	for range 10 {
		w.proxy.Disturb(redistest.CutAfter)
	}
	h := w.now(w.store)
	w.charged(1)
	for range 10 {
		w.proxy.Disturb(redistest.CutAfter)
	}
	w.store.Cancel(h.booking, h.grant)
	w.charged(0)
	w.room(5)
}

// TestP8_LateCommandsInAnyOrder holds calls back, and each of their repeats. They
// arrive when all are over, the newest first.
func TestP8_LateCommandsInAnyOrder(t *testing.T) {
	t.Parallel()
	w := newWire(t, clients["does not repeat"])
	var late []*redistest.Fault
	for i := range 3 {
		for range 2 {
			late = append(late, w.proxy.Disturb(redistest.HoldCall))
		}
		h := w.now(w.store)
		w.charged(i + 1)
		late = append(late, w.proxy.Disturb(redistest.HoldCall))
		w.store.Cancel(h.booking, h.grant)
		w.charged(i)
		w.now(w.store)
	}
	for i := len(late) - 1; i >= 0; i-- {
		late[i].Pass(t)
		w.charged(3)
	}
	w.room(2)
}

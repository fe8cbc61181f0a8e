package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// stands books for a caller that has to stand in line.
func (w *wire) stands(s throttle.Store) *held {
	w.Helper()
	k := booking(w.five)
	k.Horizon = near
	g, err := s.Book(w.Context(), k)
	require.NoError(w, err)
	require.False(w, g.OK)
	require.NotNil(w, g.Ready)
	require.NotNil(w, g.Turn)
	return &held{k, g}
}

// TestP8_LostPlaceInLine loses a call that joins the line. There is one ticket, which is
// given back once.
func TestP8_LostPlaceInLine(t *testing.T) {
	t.Parallel()
	onLoss(t, func(w *wire, lose, late func()) {
		for range 5 {
			w.now(w.store)
		}
		first := w.stands(w.store)
		w.charged(6)
		lose()
		h := w.stands(w.store)
		w.charged(7)
		late()
		w.charged(7)
		w.store.Cancel(h.booking, h.grant)
		w.charged(6)
		w.store.Cancel(h.booking, h.grant)
		w.charged(6)
		w.store.Cancel(first.booking, first.grant)
		w.charged(5)
		gone(t, w.store, w.direct)
	})
}

// TestP8_LostLeave loses a call that leaves the line. One place is given back, and not
// that of another.
func TestP8_LostLeave(t *testing.T) {
	t.Parallel()
	onLoss(t, func(w *wire, lose, late func()) {
		for range 5 {
			w.now(w.store)
		}
		all := []*held{w.stands(w.store), w.stands(w.direct), w.stands(w.store)}
		w.charged(8)
		lose()
		w.store.Cancel(all[0].booking, all[0].grant)
		w.charged(7)
		late()
		w.charged(7)
		all[0] = w.stands(w.direct)
		w.charged(8)
		w.direct.Cancel(all[0].booking, all[0].grant)
		w.direct.Cancel(all[1].booking, all[1].grant)
		w.store.Cancel(all[2].booking, all[2].grant)
		gone(t, w.store, w.direct)
	})
}

// TestP8_LostComing loses a call of one who comes back to ask. It keeps its place.
func TestP8_LostComing(t *testing.T) {
	t.Parallel()
	onLoss(t, func(w *wire, lose, late func()) {
		for range 5 {
			w.now(w.store)
		}
		first, behind := w.stands(w.store), w.stands(w.direct)
		lose()
		first.booking.Turn, first.booking.Returns = first.grant.Turn, true
		g, err := w.store.Book(w.Context(), first.booking)
		require.NoError(w, err)
		require.NotNil(w, g.Ready)
		require.LessOrEqual(w, g.Wait, behind.grant.Wait, "it is the first one")
		w.charged(7)
		late()
		w.charged(7)
		w.store.Cancel(first.booking, g)
		w.charged(6)
		w.direct.Cancel(behind.booking, behind.grant)
		w.charged(5)
	})
}

// TestP8_LeavesBeforeThePlaceIsKnown: a caller leaves while the call that joins the line
// is on its way, and lost. Nobody stands there for it.
func TestP8_LeavesBeforeThePlaceIsKnown(t *testing.T) {
	t.Parallel()
	onLoss(t, func(w *wire, lose, late func()) {
		for range 5 {
			w.now(w.store)
		}
		ctx, cancel := context.WithCancelCause(w.Context())
		lose()
		got := make(chan throttle.Grant)
		k := booking(w.five)
		k.Horizon = near
		go func() {
			g, err := w.store.Book(ctx, k)
			if err != nil {
				g = throttle.Grant{}
			}
			got <- g
		}()
		cancel(errLeft)
		if g := <-got; g.Ready != nil {
			w.store.Cancel(k, g)
		}
		h := w.stands(w.store) // tells what is left to tell
		late()
		w.charged(6)
		w.store.Cancel(h.booking, h.grant)
		w.charged(5)
		require.Eventually(w, func() bool { return w.store.Lines() == 0 }, 10*time.Second, time.Millisecond)
	})
}

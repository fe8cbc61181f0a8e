package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
)

// A wire is a store whose calls to the server can be lost on the way, and a
// budget of five an hour.
type wire struct {
	*testing.T
	proxy  *redistest.Proxy
	store  *redisstore.Store
	direct *redisstore.Store // of another node, with a way of its own
	five   throttle.Charge
	calm   time.Time // when the store was last known to have no call left
}

func newWire(t *testing.T, change func(*redis.Options)) *wire {
	server := redistest.Shared(t)
	p := redistest.NewProxy(t, server)
	o := p.Options()
	change(o)
	client := clientOf(t, o)
	w := &wire{
		T: t, proxy: p, store: redisstore.New(client, nil), direct: redisstore.New(server.Client(t), nil),
		five: charge("five", throttle.PerHour(5)),
	}
	// From here on the server knows the scripts: what is lost is what counts.
	book(t, w.store, inGroup("other", charge("other", throttle.PerHour(1))))
	w.calm = time.Now()
	return w
}

// charged requires that so many starts are booked, by the server's own account.
func (w *wire) charged(want int) {
	w.Helper()
	w.quiet()
	// What gives back is tried again for a second, which a busy machine may need. Then the
	// next caller finds out what became of it.
	for time.Since(w.calm) > conn.ReplyTime {
		w.calm = time.Now()
		book(w.T, w.store, charge("next", throttle.PerSecond(1000)))
		w.quiet()
	}
	w.calm = time.Now()
	require.Equal(w, want, booked(w.T, w.direct, w.five))
}

// quiet waits until the store makes no calls any more.
func (w *wire) quiet() {
	w.Helper()
	require.Eventually(w, func() bool { return w.store.Running() == 0 }, 30*time.Second, time.Millisecond)
}

// now books a start that has room at once.
func (w *wire) now(s throttle.Store) *held {
	w.Helper()
	k := booking(w.five)
	g := ask(w.T, s, k)
	require.True(w, g.OK)
	require.Zero(w, g.Wait)
	return &held{k, g}
}

// room requires that there is room for so many starts and no more.
func (w *wire) room(want int) {
	w.Helper()
	for range want {
		w.now(w.direct)
	}
	require.Positive(w, book(w.T, w.direct, w.five))
}

// A held is a start and the booking that asked for it.
type held struct {
	booking *throttle.Booking
	grant   throttle.Grant
}

// hows are the ways in which a call can go wrong.
var hows = map[string]redistest.How{
	"cut before":   redistest.CutBefore,
	"cut after":    redistest.CutAfter,
	"no reply":     redistest.Swallow,
	"late reply":   redistest.HoldReply,
	"late command": redistest.HoldCall,
}

// clients are clients that repeat commands and others that do not. All soon give
// up a reply that does not come.
var clients = map[string]func(*redis.Options){
	"repeats":         func(o *redis.Options) { o.ReadTimeout = 100 * time.Millisecond },
	"does not repeat": func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = 100*time.Millisecond, -1 },
}

// onLoss runs a test with every client and every loss. The test gets a function
// that is to be called before the call that is lost, and another for when all is
// over: what was held back arrives then.
func onLoss(t *testing.T, test func(w *wire, lose, late func())) {
	t.Parallel()
	for client, change := range clients {
		for name, how := range hows {
			t.Run(client+" "+name, func(t *testing.T) {
				w := newWire(t, change)
				var f *redistest.Fault
				lose := func() { f = w.proxy.Disturb(how) }
				late := func() {
					t.Helper()
					f.Await(t)
					if how == redistest.HoldCall || how == redistest.HoldReply {
						f.Pass(t)
					}
				}
				test(w, lose, late)
			})
		}
	}
}

// TestP8_LostBooking loses a call that books. The caller gets a start, and one
// is charged.
func TestP8_LostBooking(t *testing.T) {
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
	onLoss(t, func(w *wire, lose, late func()) {
		for range 4 {
			w.now(w.store)
		}
		h := w.now(w.store)
		lose()
		h.booking.Instead = h.grant.Handle
		g := ask(w.T, w.store, h.booking)
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
			require.ErrorIs(w, err, errLeft) // which says that Redis was away, too, if the call was lost before
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

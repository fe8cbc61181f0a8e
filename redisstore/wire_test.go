package redisstore_test

import (
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
	client := redis.NewClient(o)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
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
	st, err := w.direct.Status(w.Context(), w.five)
	require.NoError(w, err)
	require.Equal(w, want, st.Used+st.Waiting)
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
	g, err := s.Book(w.Context(), k)
	require.NoError(w, err)
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

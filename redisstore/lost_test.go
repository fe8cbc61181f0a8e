package redisstore_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// A wire is a store whose calls to the server can be lost on the way, and a
// budget of five an hour.
type wire struct {
	*testing.T
	proxy  *redistest.Proxy
	store  *redisstore.Store
	direct *redisstore.Store // of another node, with a way of its own
	five   store.Charge
}

// onWire runs a test in virtual time, which stands still while a call is on its way: however slow the machine is, no start is late, and a caller has
// the time that it waits for. Only the client's wait for a reply, which a lost reply costs, is real.
func onWire(t *testing.T, change func(*redis.Options), test func(w *wire)) {
	t.Helper()
	server := redistest.Shared(t)
	proxy := redistest.NewProxy(t, server)
	synctest.Test(t, func(t *testing.T) {
		o := proxy.Options()
		change(o)
		at := func(c *redis.Client) *redisstore.Store {
			return atRest(t, redisstore.NewAt(c, redisstore.Options{}, bubbleClock))
		}
		w := &wire{T: t, proxy: proxy, store: at(clientOf(t, o)), direct: at(server.Client(t)), five: charge("five", store.PerHour(5))}
		// From here on the server knows the scripts: what is lost is what counts.
		book(t, w.store, inGroup("other", charge("other", store.PerHour(1))))
		test(w)
	})
}

// charged requires that so many starts are booked, by the server's own account.
func (w *wire) charged(want int) {
	w.Helper()
	w.quiet()
	require.Equal(w, want, booked(w.T, w.direct, w.five))
}

// quiet waits until the store makes no calls any more.
func (w *wire) quiet() {
	w.Helper()
	require.Eventually(w, func() bool { return w.store.Running() == 0 }, 30*time.Second, time.Millisecond)
}

// now books a start that has room at once.
func (w *wire) now(s store.Store) *held {
	w.Helper()
	k := booking(w.five)
	g := ask(w.T, s, k)
	require.True(w, g.OK)
	require.Zero(w, g.Wait)
	return &held{booking: k, grant: g}
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
	booking *store.Booking
	grant   store.Grant
	by      *redisstore.Store
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
				onWire(t, change, func(w *wire) {
					var f *redistest.Fault
					lose := func() { f = w.proxy.Disturb(how) }
					late := func() {
						w.Helper()
						f.Await(w)
						if how == redistest.HoldCall || how == redistest.HoldReply {
							f.Pass(w)
						}
					}
					test(w, lose, late)
				})
			})
		}
	}
}

// losses are what is done while a call is lost, and what must come of it. There is one call between
// "lose" and the move behind it; "late" is when all is over, and what was held back arrives. "now k" starts a
// call's caller k at once, "stands k" has it stand in line, "used 3 1" sets what is used from 3 to 1, "other" does so by another program.
var losses = map[string]string{
	"P8_LostBooking":     "now a; lose; now b; charged 2; now c; late; charged 3; room 2",
	"P8_LostCancel":      "now a b c d k; lose; cancel k; charged 4; other now a; late; charged 5; room 0",
	"P8_LostReplacement": "now a b c d k; lose; again k; charged 5; late; charged 5; room 0",
	"P8_LostSettlement":  "now a k; lose; settle k; charged 4; late; charged 4; room 1",
	"P8_LostPlaceInLine": "now a b c d e; stands k; charged 6; lose; stands l; charged 7; late; charged 7; cancel l; charged 6; cancel l; charged 6; cancel k; charged 5; gone",
	"P8_LostLeave":       "now a b c d e; stands k; other stands l; stands m; charged 8; lose; cancel k; charged 7; late; charged 7; other stands k; charged 8; cancel k l m; gone",
	"P8_LostComing":      "now a b c d e; stands k; other stands l; lose; comes k; charged 7; late; charged 7; cancel k; charged 6; cancel l; charged 5",
	"P11_LostPause":      "now a; lose; pause; late; closed",
	"P1_LostSetUsed":     "now a b c; other used 3 3; lose; used 3 1; now d e f g; late; charged 5; room 0",
}

// TestLost plays losses with every client and every way to lose a call.
func TestLost(t *testing.T) {
	t.Parallel()
	for name, moves := range losses {
		t.Run(name, func(t *testing.T) {
			onLoss(t, func(w *wire, lose, late func()) {
				callers := make(map[string]*held)
				for move := range strings.SplitSeq(moves, "; ") {
					words, s := strings.Fields(move), w.store
					if words[0] == "other" {
						words, s = words[1:], w.direct
					}
					switch words[0] {
					case "lose":
						lose()
					case "late":
						late()
					case "pause":
						require.NoError(w, s.Pause(w.Context(), w.five, time.Hour))
					case "closed":
						require.Greater(w, book(w.T, w.direct, w.five), 59*time.Minute)
					case "gone":
						gone(w.T, w.store, w.direct)
					case "used":
						before, ok, err := s.SetUsed(w.Context(), w.five, must(strconv.Atoi(words[2])))
						require.NoError(w, err)
						require.True(w, ok)
						require.Equal(w, words[1], strconv.Itoa(before))
					case "charged", "room":
						n, err := strconv.Atoi(words[1])
						require.NoError(w, err)
						map[string]func(int){"charged": w.charged, "room": w.room}[words[0]](n)
					default:
						for _, name := range words[1:] {
							callers[name] = w.does(s, words[0], callers[name])
						}
					}
				}
			})
		})
	}
}

// does makes a move of a caller.
func (w *wire) does(s *redisstore.Store, move string, h *held) *held {
	w.Helper()
	switch move {
	case "now":
		h = w.now(s)
		h.by = s
	case "stands":
		h = w.stands(s)
		h.by = s
	case "cancel":
		h.by.Cancel(h.booking, h.grant)
	case "settle":
		require.NoError(w, s.Settle(w.Context(), h.booking, h.grant, []int{3}))
	case "again":
		h.booking.Instead = h.grant.Handle
		h.grant = ask(w.T, s, h.booking)
		require.True(w, h.grant.OK)
		require.Zero(w, h.grant.Wait)
	case "comes":
		h.booking.Turn, h.booking.Returns = h.grant.Turn, true
		before := h.grant.Wait
		h.grant = ask(w.T, s, h.booking)
		require.NotNil(w, h.grant.Ready)
		require.LessOrEqual(w, h.grant.Wait, before, "it keeps its place")
	}
	return h
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
	defaults := func(*redis.Options) {}
	onWire(t, defaults, func(w *wire) {
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
	})
}

// TestP8_LateCommandsInAnyOrder holds calls back, and each of their repeats. They
// arrive when all are over, the newest first.
func TestP8_LateCommandsInAnyOrder(t *testing.T) {
	t.Parallel()
	onWire(t, clients["does not repeat"], func(w *wire) {
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
			late[i].Pass(w)
			w.charged(3)
		}
		w.room(2)
	})
}

// An upstream counts requests and answers them.
type upstream struct{ requests int }

func (u *upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	u.requests++
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("")), Request: req}, nil
}

// TestP8_LostInALimiter loses a call of Acquire in every way. One start is
// charged, and the caller knows nothing of it.
func TestP8_LostInALimiter(t *testing.T) {
	onLoss(t, func(w *wire, lose, late func()) {
		l := limiter(w, w.store, throttle.Policy{Name: "five", Keyed: true, Limit: store.PerHour(5)})
		charged := func(want int) {
			w.Helper()
			w.quiet()
			st, err := l.Status(w.Context(), "key")
			require.NoError(w, err)
			require.Equal(w, want, st.Used+st.Waiting)
		}
		acquire := func() {
			w.Helper()
			_, err := l.Acquire(throttle.WithMaxWait(w.Context(), throttle.Forever), "key", 1)
			require.NoError(w, err)
		}
		acquire()
		lose()
		acquire()
		charged(2)
		late()
		charged(2)
		for range 3 {
			acquire()
		}
		_, err := l.Acquire(throttle.WithMaxWait(w.Context(), throttle.NoWait), "key", 1)
		require.ErrorIs(w, err, throttle.ErrLimited)
		charged(5)
	})
}

// TestP8_LostInATransport loses a call for a request with two policies. It is
// sent once and charged once under both.
func TestP8_LostInATransport(t *testing.T) {
	onLoss(t, func(w *wire, lose, late func()) {
		policies := []throttle.Policy{
			{Name: "five", Match: "/", Limit: store.PerHour(5)},
			{Name: "path", Match: "example.com/", Key: throttle.RawPath, Limit: store.PerHour(3)},
		}
		u := &upstream{}
		tr, err := throttle.New(throttle.Config{Store: w.store, Policies: policies, Base: u, MaxWait: 30 * time.Second})
		require.NoError(w, err)
		send := func() error {
			req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, "https://example.com/a", nil)
			require.NoError(w, err)
			resp, err := tr.RoundTrip(req)
			if err != nil {
				return err
			}
			return resp.Body.Close()
		}
		require.NoError(w, send())
		lose()
		require.NoError(w, send())
		late()
		require.NoError(w, send())
		require.ErrorIs(w, send(), throttle.ErrLimited)
		require.Equal(w, 3, u.requests)

		req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, "https://example.com/a", nil)
		require.NoError(w, err)
		for _, c := range tr.Explain(req) {
			require.Equal(w, 3, booked(w.T, w.direct, c), c.Budget.Policy)
		}
	})
}

// TestP8_NodesAreNotMistaken lets two stores, whose calls are counted alike, lose
// answers in turn. The answer of one is never taken for the other's.
func TestP8_NodesAreNotMistaken(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.NewProxy(t, server)
	budget := charge("budget", store.PerHour(60))
	stores := []*redisstore.Store{
		redisstore.New(proxy.Client(t), redisstore.Options{}), redisstore.New(proxy.Client(t), redisstore.Options{}), redisstore.New(proxy.Client(t), redisstore.Options{}),
	}
	book(t, stores[0], inGroup("other", charge("other", store.PerHour(1)))) // loads the script
	marks := make(map[int64]int)
	for i := range 60 {
		if i%5 > 0 {
			proxy.Disturb(redistest.CutAfter)
		}
		g, err := stores[i%len(stores)].Book(t.Context(), booking(budget))
		require.NoError(t, err)
		require.True(t, g.OK)
		require.Zero(t, g.Wait, "start %d", i)
		marks[g.Handle.Start]++
	}
	require.Positive(t, book(t, stores[0], budget))
	require.Greater(t, len(marks), 1)
	requireSmall(t, server.Client(t))
}

// TestP8_LostBatch loses the answer of a call that serves many callers. Each gets
// a start of its own, without a gap, and each is charged once.
func TestP8_LostBatch(t *testing.T) {
	const callers = 50
	server := redistest.Shared(t)
	proxy := redistest.NewProxy(t, server)
	each(t, []redistest.How{redistest.CutBefore, redistest.CutAfter}, func(t *testing.T, how redistest.How) {
		synctest.Test(t, func(t *testing.T) {
			s, tap := loaded(t, proxy.Client(t), isScript)
			paced := charge("paced", store.LeakyBucket(1, time.Second))
			hourly := charge("hourly", store.PerHour(1000))
			var all []**outcome // the first is on its way, the others share the next call
			for range 1 + callers {
				all = append(all, bookAside(t.Context(), s, booking(paced, hourly)))
			}
			f := proxy.Disturb(how)
			close(tap.pass)
			f.Await(t)
			time.Sleep(time.Second) // the store may pause before it repeats
			synctest.Wait()
			starts := make(map[time.Duration]bool)
			for _, got := range all {
				require.NoError(t, (*got).err)
				starts[time.Duration((*got).grant.Handle.Start-(*all[0]).grant.Handle.Start)*time.Microsecond] = true
			}
			for i := range 1 + callers {
				require.True(t, starts[time.Duration(i)*time.Second], "nobody starts at %d s", i)
			}
			require.Equal(t, 1+callers, booked(t, s, hourly))
		})
	})
}

// TestP8_CrowdAfterLosses lets many callers come at once while answers are lost
// in every way.
func TestP8_CrowdAfterLosses(t *testing.T) {
	t.Parallel()
	const callers = 50
	for name, change := range clients {
		t.Run(name, func(t *testing.T) {
			onWire(t, change, func(w *wire) {
				w.five.Limit = store.PerHour(callers)
				var late []*redistest.Fault
				for _, how := range hows {
					f := w.proxy.Disturb(how)
					if how == redistest.HoldCall || how == redistest.HoldReply {
						late = append(late, f)
					}
				}
				waits := make(chan time.Duration)
				for range callers {
					go func() {
						g, err := w.store.Book(w.Context(), booking(w.five))
						if err != nil || !g.OK {
							g.Wait = store.Never
						}
						waits <- g.Wait
					}()
				}
				for range callers {
					require.Zero(w, <-waits)
				}
				w.charged(callers)
				// There may have been fewer calls than losses.
				for range hows {
					book(w.T, w.store, inGroup("other", charge("other", store.PerHour(1))))
				}
				for _, f := range late {
					f.Pass(w)
				}
				w.charged(callers)
				w.room(0)
			})
		})
	}
}

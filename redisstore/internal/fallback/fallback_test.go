package fallback_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/fallback"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/store"
)

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

// A primary is a store in memory that can be away, and says of the fleet what it is told to.
type primary struct {
	store.Store

	mu    sync.Mutex
	away  bool
	unfit bool // it is a server that cannot keep budgets
	mute  bool // while it is away pauses have no answer
	reply fallback.Reply
	saw   saw

	inLine  bool                // a caller stands in a line
	onBeats func(fallback.Kind) // called with each heartbeat, or nil
}

// A saw is what a primary was asked for.
type saw struct {
	beats    []beat
	booked   []store.Charge // the first of each booking
	reported []store.Charge
	woken    int
}

type beat struct {
	kind fallback.Kind
	at   time.Duration
}

func (p *primary) set(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
}

func (p *primary) Heartbeat(_ context.Context, _ string, h fallback.Heartbeat) (fallback.Reply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.saw.beats = append(p.saw.beats, beat{h.Kind, time.Since(begin)})
	if p.onBeats != nil {
		p.onBeats(h.Kind)
	}
	if p.away {
		return fallback.Reply{}, errRefused
	}
	if p.unfit {
		return fallback.Reply{}, conn.ErrUnfit
	}
	r := p.reply
	r.Now, r.Counts = time.Now().UnixMicro(), true
	return r, nil
}

// seen returns what it was asked for since it was called last.
func (p *primary) seen() saw {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.saw
	p.saw = saw{}
	return all
}

// Book asks for as long as its context and MaxWait let it, as a primary does that calls Redis.
func (p *primary) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	p.mu.Lock()
	away := p.away
	unfit := p.unfit
	p.saw.booked = append(p.saw.booked, b.Charges[0])
	p.mu.Unlock()
	if unfit {
		return store.Grant{HeldBy: -1}, conn.ErrUnfit
	}
	if away {
		timeUp, stop := conn.Timeout(ctx, b.MaxWait, time.Now())
		defer stop()
		select {
		case <-ctx.Done():
			return store.Grant{HeldBy: -1}, context.Cause(ctx)
		case <-timeUp:
			return store.Grant{HeldBy: -1}, errRefused
		}
	}
	return p.Store.Book(ctx, b)
}

func (p *primary) TellStarts(_ context.Context, charges []store.Charge) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.saw.reported = append(p.saw.reported, charges...)
	return nil
}

// Pause has no answer while the primary is away and mute.
func (p *primary) Pause(ctx context.Context, c store.Charge, d time.Duration) error {
	p.mu.Lock()
	unanswered := p.away && p.mute
	p.mu.Unlock()
	if unanswered {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return p.Store.Pause(ctx, c, d)
}

func (p *primary) Key(c *store.Charge) string { return c.Budget.Policy }
func (p *primary) PauseKey(c *store.Charge) string {
	if c.Limit.Kind() == store.KindConcurrency {
		return c.Budget.Policy + " in flight"
	}
	return c.Budget.Policy
}
func (p *primary) Keep(c *store.Charge) time.Duration { return c.Span() }
func (p *primary) Waiting(string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inLine
}
func (p *primary) Wake(string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.saw.woken++
}

// begin is when each bubble does.
var begin = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// inBubble runs a test in virtual time with a primary that answers so, and the store before
// it. It ends when all is idle.
func inBubble(t *testing.T, failOpen bool, reply fallback.Reply, test func(*testing.T, *primary, *fallback.Store)) {
	client := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379"}) // nobody dials it
	defer client.Close()
	synctest.Test(t, func(t *testing.T) {
		p := &primary{Store: memstore.New(), reply: reply}
		s := fallback.New(p, fallback.Options{
			FailOpen: failOpen, Conn: conn.New(client), History: history.New(), Pauses: history.RestorePauseEnds(nil),
			Shut: history.RestorePauseEnds(nil), Watches: notify.NewWatches(nil, nil, nil), Local: func() store.Store { return memstore.New() },
		})
		test(t, p, s)
		p.set(false)
		time.Sleep(time.Hour)
		require.Zero(t, s.Groups())
	})
}

func charge(l store.Limit) store.Charge {
	return store.Charge{Budget: store.Budget{Policy: "p", Key: [16]byte{1}}, Cost: 1, Limit: l}
}

// now books what fits at once, at most so often, and returns how much that was, and the last
// grant and error.
func now(t *testing.T, s store.Store, c store.Charge, most int) (n int, g store.Grant, err error) {
	for ; n < most; n++ {
		if g, err = s.Book(t.Context(), &store.Booking{Charges: []store.Charge{c}}); err != nil || !g.OK {
			break
		}
	}
	return n, g, err
}

// alone lets a node use a group until its share is known to the others, and takes the primary
// from it until it has given that up.
func alone(t *testing.T, p *primary, s *fallback.Store, c store.Charge) {
	for range 8 {
		n, g, err := now(t, s, c, 1)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.False(t, g.Handle.Local)
		s.Release(&store.Booking{Charges: []store.Charge{c}}, g)
		time.Sleep(time.Second + c.Jitter + time.Millisecond)
	}
	p.set(true)
	time.Sleep(time.Second + 5*time.Second + c.Span() + time.Millisecond) // from the last heartbeat on
}

// TestShares: what a node may start by itself, of a limit that four share.
func TestShares(t *testing.T) {
	reserved, costly, shadow := charge(store.PerSecond(40)), charge(store.PerSecond(40)), charge(store.LeakyBucket(40, time.Second))
	reserved.KeepFree, costly.Cost, shadow.Shadow = 9, 4, true
	for name, x := range map[string]struct {
		c    store.Charge
		want int // 50: all
	}{
		"sliding window":    {charge(store.PerSecond(40)), 10},
		"rounded down":      {charge(store.PerSecond(43)), 10},
		"fixed window":      {charge(store.FixedWindow(40, time.Second)), 10},
		"token bucket":      {charge(store.TokenBucket(40, time.Second, 8)), 2},
		"less than a share": {charge(store.PerSecond(3)), 0},
		"reserve":           {reserved, 7}, // 9 / 4, rounded up, stay free
		"cost":              {costly, 2},
		"leaky bucket":      {charge(store.LeakyBucket(40, time.Second)), 0},
		"concurrency":       {charge(store.Concurrency(40)), 0},
		"shadow":            {shadow, 50},
		"unlimited":         {charge(store.Unlimited()), 50},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, false, fallback.Reply{Divisor: 4, Nodes: 4}, func(t *testing.T, p *primary, s *fallback.Store) {
				alone(t, p, s, x.c)
				n, g, err := now(t, s, x.c, 50)
				require.Equal(t, x.want, n)
				if x.want > 0 {
					require.NoError(t, err)
					require.Equal(t, x.want == 50, g.OK)
					return
				}
				require.ErrorIs(t, err, errRefused)
				require.ErrorContains(t, err, "redisstore: no answer for 1s (failed calls: ")
			})
		})
	}
}

// TestAServerThatCannotKeepBudgets is not away: nobody waits for it, shares its limits or starts without it.
func TestAServerThatCannotKeepBudgets(t *testing.T) {
	for _, failOpen := range []bool{false, true} {
		inBubble(t, failOpen, fallback.Reply{}, func(t *testing.T, p *primary, s *fallback.Store) {
			p.unfit = true
			for range 2 {
				since := time.Now()
				_, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{charge(store.PerSecond(40))}, MaxWait: -1})
				require.ErrorIs(t, err, conn.ErrUnfit)
				require.Zero(t, time.Since(since))
			}
		})
	}
}

// TestNoShareIsKnown: a node on which the others do not count yet waits for the primary.
func TestNoShareIsKnown(t *testing.T) {
	for name, reply := range map[string]fallback.Reply{"no share": {Nodes: 4}, "too new": {Divisor: 4, Nodes: 4}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, false, reply, func(t *testing.T, p *primary, s *fallback.Store) {
				c := charge(store.PerSecond(40))
				_, _, err := now(t, s, c, 1)
				require.NoError(t, err)
				p.set(true)
				for range 60 {
					n, _, err := now(t, s, c, 1)
					require.Zero(t, n)
					require.Error(t, err)
				}
				p.set(false)
				time.Sleep(time.Second)
				n, g, err := now(t, s, c, 1)
				require.NoError(t, err)
				require.Equal(t, 1, n)
				require.False(t, g.Handle.Local)
			})
		})
	}
}

// TestHeartbeats: one each second while a group is in use and ten seconds more, and then one
// that says so; while the primary is away the node only asks, four times a second.
func TestHeartbeats(t *testing.T) {
	inBubble(t, false, fallback.Reply{Divisor: 1, Nodes: 1}, func(t *testing.T, p *primary, s *fallback.Store) {
		c := charge(store.PerSecond(40))
		_, _, err := now(t, s, c, 1)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		var want []beat
		for i := range 11 {
			want = append(want, beat{fallback.Beat, time.Duration(i) * time.Second})
		}
		require.Equal(t, append(want, beat{fallback.Leave, 11 * time.Second}), p.seen().beats)
		require.Zero(t, s.Groups())

		alone(t, p, s, c)
		p.seen()
		_, _, err = now(t, s, c, 1)
		require.NoError(t, err)
		time.Sleep(time.Second)
		beats := p.seen().beats
		require.Len(t, beats, 4)
		require.Equal(t, fallback.Look, beats[0].kind)
	})
}

// TestP12_ALineThatBeginsWithTheLeaving: a caller that got into a line while the node said that it leaves is there like any other: the node
// goes on with its heartbeats, and the caller is woken when the primary is given up.
func TestP12_ALineThatBeginsWithTheLeaving(t *testing.T) {
	inBubble(t, false, fallback.Reply{Divisor: 1, Nodes: 1}, func(t *testing.T, p *primary, s *fallback.Store) {
		_, _, err := now(t, s, charge(store.PerSecond(40)), 1)
		require.NoError(t, err)
		p.mu.Lock()
		p.onBeats = func(k fallback.Kind) { p.inLine = p.inLine || k == fallback.Leave }
		p.mu.Unlock()
		time.Sleep(20 * time.Second)
		require.Equal(t, 1, s.Groups())
		p.set(true)
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, p.seen().woken)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.onBeats, p.inLine = nil, false
	})
}

// TestSuspectedNodes: what they may start by themselves is left free.
func TestSuspectedNodes(t *testing.T) {
	inBubble(t, false, fallback.Reply{Divisor: 4, Nodes: 4, Suspected: []int{4, 3}}, func(t *testing.T, p *primary, s *fallback.Store) {
		n, _, err := now(t, s, charge(store.PerSecond(40)), 50)
		require.NoError(t, err)
		require.Equal(t, 40-10-13, n)
		require.Equal(t, 10+13, p.seen().booked[0].KeepFree)
		_, _, err = now(t, s, charge(store.Concurrency(40)), 1)
		require.NoError(t, err)
		require.Zero(t, p.seen().booked[0].KeepFree, "it has no shares")
		costly := charge(store.PerSecond(40))
		costly.Cost = 18
		since := time.Now()
		_, _, err = now(t, s, costly, 1)
		require.Zero(t, time.Since(since), "a caller that may not wait is told at once")
		require.EqualError(t, err, "redisstore: the rest of the limit may be in use by programs that Redis has not heard from for seconds")
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		_, err = s.Book(ctx, &store.Booking{Charges: []store.Charge{costly}, MaxWait: -1})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "Redis has not heard from", "the caller waits for the others, and not for Redis")
	})
}

// TestBackToThePrimary: it is told what was started meanwhile, and starts that were booked on
// this node and have not come are no good any more.
func TestBackToThePrimary(t *testing.T) {
	inBubble(t, false, fallback.Reply{Divisor: 4, Nodes: 4}, func(t *testing.T, p *primary, s *fallback.Store) {
		c := charge(store.PerSecond(40))
		alone(t, p, s, c)
		require.Equal(t, 1, p.seen().woken)
		n, _, err := now(t, s, c, 50)
		require.NoError(t, err)
		require.Equal(t, 10, n)
		b := store.Booking{Charges: []store.Charge{c}, MaxWait: -1}
		g, err := s.Book(t.Context(), &b)
		require.NoError(t, err)
		require.True(t, g.Handle.Local)
		require.Greater(t, g.Wait, 900*time.Millisecond)
		news := make(chan struct{}, 1)
		w := s.Watch(&b, g, news)

		p.set(false)
		time.Sleep(800 * time.Millisecond) // the primary has to answer for half a second
		<-news
		good, err := w.Confirm(t.Context(), -1)
		require.NoError(t, err)
		require.False(t, good)
		w.Stop()
		synctest.Wait() // the report goes on by itself
		require.Equal(t, []store.Charge{c}, p.seen().reported)
		require.Equal(t, int64(10), unreported(s))
		n, g, err = now(t, s, c, 1)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.False(t, g.Handle.Local)
	})
}

// unreported is how many starts the history has that the primary does not know of.
func unreported(s *fallback.Store) int64 { return s.History.Snapshot()["p"].Unreported.Count }

// TestAStartIsCountedOnce: the primary is told of a start once, however often its caller asks whether the start is still good.
func TestAStartIsCountedOnce(t *testing.T) {
	inBubble(t, false, fallback.Reply{Divisor: 4, Nodes: 4}, func(t *testing.T, p *primary, s *fallback.Store) {
		c := charge(store.PerSecond(40))
		alone(t, p, s, c)
		_, _, err := now(t, s, c, 50)
		require.NoError(t, err)
		b := store.Booking{Charges: []store.Charge{c}, MaxWait: store.AnyWait}
		g, err := s.Book(t.Context(), &b)
		require.NoError(t, err)
		w := s.Watch(&b, g, make(chan struct{}, 1))
		defer w.Stop()
		for range 3 {
			good, err := w.Confirm(t.Context(), store.AnyWait)
			require.NoError(t, err)
			require.True(t, good)
		}
		require.EqualValues(t, 11, unreported(s))
	})
}

// TestFailOpen: two seconds after its last answer nothing is held back, until the primary is
// back.
func TestFailOpen(t *testing.T) {
	inBubble(t, true, fallback.Reply{Divisor: 4, Nodes: 4}, func(t *testing.T, p *primary, s *fallback.Store) {
		c := charge(store.PerSecond(1))
		_, _, err := now(t, s, c, 1)
		require.NoError(t, err)
		p.set(true)
		time.Sleep(3 * time.Second)
		n, g, err := now(t, s, c, 100)
		require.NoError(t, err)
		require.Equal(t, 100, n)
		require.True(t, g.Handle.Local)
		require.NoError(t, s.Pause(t.Context(), c, time.Minute))
		n, _, err = now(t, s, c, 100)
		require.NoError(t, err)
		require.Zero(t, n, "but by a pause")

		p.set(false)
		time.Sleep(2 * time.Second)
		require.NoError(t, s.Resume(t.Context(), c))
		n, g, err = now(t, s, c, 100)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.False(t, g.Handle.Local)
	})
}

// TestP11_ShadowsHoldNobody: a shadow policy whose budget is paused holds nobody, whatever the outage allows.
func TestP11_ShadowsHoldNobody(t *testing.T) {
	for _, failOpen := range []bool{false, true} {
		inBubble(t, failOpen, fallback.Reply{Divisor: 4, Nodes: 4}, func(t *testing.T, p *primary, s *fallback.Store) {
			c, shadow := charge(store.PerSecond(40)), charge(store.PerSecond(40))
			shadow.Budget.Policy, shadow.Budget.Key, shadow.Shadow = "shadow", [16]byte{2}, true
			alone(t, p, s, c)
			require.NoError(t, s.Pause(t.Context(), shadow, time.Minute))
			n, g, err := now(t, s, shadow, 1)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.True(t, g.Handle.Local)
		})
	}
}

// TestFailOpenForTheIdle: a program that has used nothing for a while finds out at once that the primary is still away.
func TestFailOpenForTheIdle(t *testing.T) {
	inBubble(t, true, fallback.Reply{Nodes: 1}, func(t *testing.T, p *primary, s *fallback.Store) {
		c := charge(store.PerSecond(1))
		_, _, err := now(t, s, c, 1)
		require.NoError(t, err)
		p.set(true)
		time.Sleep(3 * time.Second)
		for range 3 {
			n, _, err := now(t, s, c, 100)
			require.NoError(t, err)
			require.Equal(t, 100, n)
			time.Sleep(time.Minute)
			require.Zero(t, s.Groups())
		}

		// It is back, and goes away anew: until that is known callers wait.
		p.set(false)
		n, _, err := now(t, s, c, 100)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		time.Sleep(time.Minute)
		p.set(true)
		_, _, err = now(t, s, c, 1)
		require.Error(t, err)
	})
}

// TestP11_APenaltyBeforeTheShare: a penalty holds in the share also if the primary did not hear of it any more, and until it is lifted.
func TestP11_APenaltyBeforeTheShare(t *testing.T) {
	for name, lift := range map[string]bool{"in force": false, "lifted": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, true, fallback.Reply{Nodes: 1}, func(t *testing.T, p *primary, s *fallback.Store) {
				c := charge(store.PerSecond(1))
				_, _, err := now(t, s, c, 1)
				require.NoError(t, err)
				p.set(true)
				p.mute = true
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				go s.Pause(ctx, c, time.Minute)
				synctest.Wait()
				if lift {
					require.NoError(t, s.Resume(t.Context(), c))
				}

				time.Sleep(3 * time.Second)
				n, _, err := now(t, s, c, 100)
				require.NoError(t, err)
				require.Equal(t, lift, n == 100)
				require.Equal(t, !lift, n == 0)
			})
		})
	}
}

// TestP11_KnownPenaltiesHoldInAShare: those of requests in flight and of unlimited budgets, too, and those that come after one was lifted.
func TestP11_KnownPenaltiesHoldInAShare(t *testing.T) {
	slots := charge(store.Concurrency(40))
	for name, x := range map[string]struct {
		c    store.Charge
		note func(*fallback.Store, time.Time)
	}{
		"window":    {charge(store.PerSecond(40)), func(s *fallback.Store, end time.Time) { s.Pauses.Note("p", end, time.Now()) }},
		"in flight": {slots, func(s *fallback.Store, end time.Time) { s.Pauses.Note("p in flight", end, time.Now()) }},
		"unlimited": {charge(store.Unlimited()), func(s *fallback.Store, end time.Time) { s.Shut.Note("p", end, time.Now()) }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, true, fallback.Reply{Nodes: 1}, func(t *testing.T, p *primary, s *fallback.Store) {
				starts := func() int {
					n, _, err := now(t, s, x.c, 1)
					require.NoError(t, err)
					return n
				}
				require.Equal(t, 1, starts())
				p.set(true)
				x.note(s, time.Now().Add(time.Hour))
				time.Sleep(3 * time.Second)
				require.Zero(t, starts())
				require.NoError(t, s.Resume(t.Context(), x.c))
				require.Equal(t, 1, starts())
				x.note(s, time.Now().Add(time.Minute))
				require.Zero(t, starts())
			})
		})
	}
}

// TestShadowSlotsOfAShare: a share keeps slots only of shadow charges, and a request that is over gives them back.
func TestShadowSlotsOfAShare(t *testing.T) {
	inBubble(t, false, fallback.Reply{Divisor: 4, Nodes: 4}, func(t *testing.T, p *primary, s *fallback.Store) {
		c, slots := charge(store.PerSecond(40)), charge(store.Concurrency(3))
		slots.Budget.Policy, slots.Budget.Key, slots.Shadow = "slots", [16]byte{2}, true
		alone(t, p, s, c)
		b := store.Booking{Charges: []store.Charge{c, slots}, MaxWait: store.AnyWait}
		g, err := s.Book(t.Context(), &b)
		require.NoError(t, err)
		require.True(t, g.Handle.Local)
		used := func() int {
			st, err := s.Status(t.Context(), slots)
			require.NoError(t, err)
			return st.Used
		}
		require.Equal(t, 1, used())
		s.Release(&b, g)
		require.Zero(t, used())
	})
}

// TestTheWaitForAShareCounts: NotBefore is a time from the call of Book, however long the caller waited for the share.
func TestTheWaitForAShareCounts(t *testing.T) {
	inBubble(t, true, fallback.Reply{Nodes: 1}, func(t *testing.T, p *primary, s *fallback.Store) {
		c := charge(store.PerSecond(9))
		_, _, err := now(t, s, c, 1)
		require.NoError(t, err)
		p.set(true)
		came := time.Now()
		g, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{c}, MaxWait: store.AnyWait, NotBefore: time.Minute})
		require.NoError(t, err)
		require.True(t, g.Handle.Local)
		require.InDelta(t, time.Minute, time.Since(came)+g.Wait, float64(time.Millisecond))
	})
}

// TestALocalStartIsOfNow: its caller waited for the primary before. A grant without an age would
// be one of when the caller came.
func TestALocalStartIsOfNow(t *testing.T) {
	inBubble(t, true, fallback.Reply{Nodes: 1}, func(t *testing.T, p *primary, s *fallback.Store) {
		c := charge(store.PerSecond(9))
		_, _, err := now(t, s, c, 1)
		require.NoError(t, err)
		p.set(true)
		came := time.Now()
		g, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{c}, MaxWait: store.AnyWait})
		require.NoError(t, err)
		require.True(t, g.Handle.Local)
		require.Greater(t, time.Since(came), time.Second)
		require.Positive(t, g.Age)
		require.Less(t, g.Age, time.Millisecond)
	})
}

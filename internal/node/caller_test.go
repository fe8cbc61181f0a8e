package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// A bench is the row of one budget, one start a second, and a caller, who comes when the next start is a second away.
type bench struct {
	Caller
	row      ledger.Row
	arrivals ledger.Arrivals
	booking  *store.Booking
	now      int64
}

// newBench returns a bench on which the caller has not asked yet.
func newBench() *bench {
	c := store.Charge{Budget: store.Budget{Policy: "one", Key: [16]byte{1}}, Limit: store.PerSecond(1), Cost: 1}
	b := &bench{booking: &store.Booking{Charges: []store.Charge{c}, MaxWait: time.Minute, Horizon: 100 * time.Millisecond}, now: 1_700_000_000_000_000}
	b.change(func(q *ledger.Request) { q.BookNow() })
	return b
}

// change changes the row for the caller.
func (b *bench) change(do func(*ledger.Request)) {
	do(ledger.NewRequest(b.now, ledger.Node{}, &b.arrivals, b.booking, []*ledger.Row{&b.row}))
}

// ask has the caller ask, and returns the answer.
func (b *bench) ask() (g store.Grant) {
	b.Come(b.booking)
	if b.IsKnown() {
		b.change(b.Leave)
	}
	b.Ask(b.booking, b.now)
	b.change(func(q *ledger.Request) {
		q.Stand(&b.Waiter)
		g = b.Answer(q)
	})
	return g
}

// serve gives the caller its turn, a second later, and reports whether the caller is told. called says that it must come by itself.
func (b *bench) serve(called bool) (told bool) {
	b.now += time.Second.Microseconds()
	b.change(func(q *ledger.Request) {
		q.Serve(&b.Waiter, b.booking.Charges[0].Budget.Key)
		told = b.Served(q, called) != nil
	})
	return told
}

// deliver has the caller fetch its start, late by some time.
func (b *bench) deliver(late time.Duration) (store.Grant, bool) {
	return b.Deliver(b.booking, b.now+ledger.Micros(late), Punctual)
}

// waiting is how many callers stand in the line of the row.
func (b *bench) waiting() int {
	return ledger.NewRequest(b.now, ledger.Node{}, nil, b.booking, []*ledger.Row{b.row.Clone()}).Status().Callers
}

// TestCallerStates: what happens to a caller in each state, in which state it is then, and what the row knows of it.
func TestCallerStates(t *testing.T) {
	inLine := func(b *bench) { b.ask() }
	booked := func(b *bench) { b.ask(); b.serve(false) }
	summoned := func(b *bench) { b.ask(); b.change(func(q *ledger.Request) { b.Dismiss(q) }) }
	for name, c := range map[string]struct {
		before, do func(*bench)
		state      State
		known      bool
	}{
		"nobody":                        {func(*bench) {}, func(*bench) {}, Left, false},
		"asks":                          {func(*bench) {}, func(b *bench) { b.Come(b.booking); b.Ask(b.booking, b.now) }, Asked, false},
		"is held":                       {func(*bench) {}, inLine, InLine, true},
		"may not wait":                  {func(b *bench) { b.booking.MaxWait = 0 }, inLine, Left, false},
		"finds room":                    {func(b *bench) { b.now += 2 * time.Second.Microseconds() }, inLine, Left, false},
		"in line, asks again":           {inLine, inLine, InLine, true},
		"in line, gives up":             {inLine, func(b *bench) { b.change(b.GiveUp) }, Left, false},
		"in line, is served":            {inLine, func(b *bench) { b.serve(false) }, Booked, true},
		"in line, is served, must come": {inLine, func(b *bench) { b.serve(true) }, Summoned, false},
		"in line, is dismissed":         {inLine, summoned, Summoned, false},
		"summoned, asks again":          {summoned, inLine, InLine, true},
		"booked, fetches":               {booked, func(b *bench) { b.deliver(0) }, Left, false},
		"booked, comes late":            {booked, func(b *bench) { b.deliver(6 * time.Millisecond) }, Booked, true},
		"booked, gives up":              {booked, func(b *bench) { b.change(b.GiveUp) }, Left, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench()
			c.before(b)
			c.do(b)
			require.Equal(t, c.state.String(), b.State().String())
			require.Equal(t, c.known, b.IsKnown())
			require.Equal(t, c.state == InLine, b.waiting() > 0)
		})
	}
}

// TestCallerFetchesOnce: the start that was booked for a caller is delivered once, and told as one of now.
func TestCallerFetchesOnce(t *testing.T) {
	b := newBench()
	g := b.ask()
	require.NotNil(t, g.Ready)
	require.True(t, b.serve(false))

	_, ok := b.Deliver(&store.Booking{}, b.now, Punctual)
	require.False(t, ok, "it asks for other charges")
	spread := *b.booking
	spread.Spread = time.Millisecond
	_, ok = b.Deliver(&spread, b.now, Punctual)
	require.False(t, ok, "it would use the start later than the room behind it allows")
	g, ok = b.deliver(2 * time.Millisecond)
	require.True(t, ok)
	require.True(t, g.OK)
	require.Zero(t, g.Wait)
	require.LessOrEqual(t, g.Age, 2*time.Millisecond)
	_, ok = b.deliver(0)
	require.False(t, ok)
}

// TestP1_RepliesTogether: two replies say together more exactly how the store's clock stands, less what the clocks run apart between the two. A former reply
// that contradicts, or that is old, says nothing.
func TestP1_RepliesTogether(t *testing.T) {
	began := time.Now()
	at := func(now, asked, received time.Duration) reply {
		return reply{1_700_000_000_000_000 + now.Microseconds(), began.Add(asked), began.Add(received)}
	}

	const s, ms, us = time.Second, time.Millisecond, time.Microsecond
	for name, c := range map[string]struct{ is, former, want reply }{
		"none":        {at(0, 0, 20*ms), reply{}, at(0, 0, 20*ms)},
		"closer":      {at(100*ms, 90*ms, 110*ms), at(0, -ms, 2*ms), at(100*ms, 99*ms-108*us, 102*ms+108*us)},
		"wider":       {at(100*ms, 99*ms, 102*ms), at(0, -10*ms, 10*ms), at(100*ms, 99*ms, 102*ms)},
		"overlaps":    {at(100*ms, 90*ms, 101*ms), at(0, -ms, 2*ms), at(100*ms, 99*ms-99*us, 101*ms)},
		"contradicts": {at(100*ms, 90*ms, 95*ms), at(0, -ms, 2*ms), at(100*ms, 90*ms, 95*ms)},
		"after 5 s":   {at(5*s, 5*s-10*ms, 5*s+10*ms), at(0, -ms, 2*ms), at(5*s, 5*s-6008*us, 5*s+7008*us)},
		"old":         {at(11*s, 11*s-10*ms, 11*s+10*ms), at(0, -ms, 2*ms), at(11*s, 11*s-10*ms, 11*s+10*ms)},
	} {
		require.Equal(t, c.want, c.is.within(c.former), name)
	}

	require.Equal(t, at(0, -ms, 2*ms), at(100*ms, 90*ms, 110*ms).orBetter(at(0, -ms, 2*ms)))
	require.Equal(t, at(100*ms, 99*ms, 101*ms), at(100*ms, 99*ms, 101*ms).orBetter(at(0, -ms, 2*ms)))
	require.Equal(t, at(9*s, 9*s-10*ms, 9*s+10*ms), at(9*s, 9*s-10*ms, 9*s+10*ms).orBetter(at(0, -ms, 2*ms)), "by now the former is as doubtful")
	require.Equal(t, at(11*s, 11*s-15*ms, 11*s+15*ms), at(11*s, 11*s-15*ms, 11*s+15*ms).orBetter(at(0, -ms, 2*ms)))
}

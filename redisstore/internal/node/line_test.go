package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// TestCalledWhenItsStartIsNear: a little after it is within the horizon, so that others'
// calls may take it along. Who stands there again comes earlier.
func TestCalledWhenItsStartIsNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		op := toldToWait(n, 2, 1, 5*time.Second)
		requireCalled(t, 5*time.Second-horizon+summonDelay+min(maxSpare, horizon/2-summonDelay), op)
		arrived(n, op)
		answer(n, op) // it has to wait as long again
		requireCalled(t, 5*time.Second-horizon, op)
		require.Equal(t, 1, n.Load().Summoned)
		require.Zero(t, n.Load().Waiting)
		arrived(n, op)
		require.Zero(t, n.Load().Summoned)
	})
}

// TestP5_OfferedRoomIsTakenInTime: the only caller of a share comes when the room that Redis keeps for it is within its horizon. Any other caller that
// has to wait again comes later each time.
func TestP5_OfferedRoomIsTakenInTime(t *testing.T) {
	for name, c := range map[string]struct {
		state  wire.TicketState
		beyond time.Duration // how far its start is beyond the horizon
		others bool          // of its share wait here
		want   time.Duration
	}{
		"the only caller of its share":   {wire.Offered, 4 * time.Millisecond, false, 4 * time.Millisecond},
		"with a start that is near":      {wire.Offered, time.Microsecond, false, minReturnOffered},
		"for which Redis keeps no room":  {0, 4 * time.Millisecond, false, 2 * minReturn},
		"others of its share wait, too":  {wire.Offered, 4 * time.Millisecond, true, 2 * minReturn},
		"with a start that is far ahead": {wire.Offered, time.Second, false, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				stands := func(ticket int64, wait time.Duration) *op {
					op := toldToWait(n, 2, ticket, wait)
					n.leaveLines(op.turn)
					op.outcome.Tickets[0].Share, op.outcome.Tickets[0].State = 7, c.state
					answer(n, op) // it has to wait again
					return op
				}

				first := stands(1, time.Hour)
				if c.others {
					last := stands(2, time.Hour)
					defer n.leaveLines(last.turn)
				}
				n.leaveLines(first.turn)
				requireCalled(t, c.want, stands(1, horizon+c.beyond))
			})
		})
	}
}

// TestNobodyIsCalledBeforeThoseThatCameEarlier, if they are of one class.
func TestNobodyIsCalledBeforeThoseThatCameEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		first, other, last := toldToWait(n, 2, 1, time.Minute), toldToWait(n, 3, 1, time.Minute), toldToWait(n, 2, 6, time.Minute)
		near := toldToWait(n, 2, 5, 2*time.Second)
		<-near.ready
		require.True(t, called(first))
		require.False(t, called(other), "of another class")
		require.False(t, called(last), "it came later")
		for _, op := range []*op{other, last} {
			n.leaveLines(op.turn)
		}
	})
}

// TestWhatRedisSaysOfALine: who is called at once.
func TestWhatRedisSaysOfALine(t *testing.T) {
	for name, c := range map[string]struct {
		says wire.Line
		want [2]bool // of tickets 1 and 5
	}{
		"nothing new":      {wire.Line{ID: 1, Cuts: [3]int64{9, 0, 9}, Hurry: summonNow}, [2]bool{}},
		"one has its turn": {wire.Line{ID: 1, Cuts: [3]int64{0, 2, 0}, Hurry: summonNow}, [2]bool{true, false}},
		"both have":        {wire.Line{ID: 1, Cuts: [3]int64{0, 6, 0}, Hurry: summonNow}, [2]bool{true, true}},
		"another line":     {wire.Line{ID: 2}, [2]bool{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				ops := []*op{toldToWait(n, 2, 1, time.Hour), toldToWait(n, 2, 5, time.Hour)}
				n.observeLine(n.Names.Row(&ops[0].Charges[0].Budget), &c.says)
				require.Equal(t, c.want, [2]bool{called(ops[0]), called(ops[1])})
				for _, op := range ops {
					n.leaveLines(op.turn)
				}
			})
		})
	}
}

// TestWhoLeavesALine tells Redis once, and keeps its arrival.
func TestWhoLeavesALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		op := toldToWait(n, 2, 1, time.Hour)
		require.True(t, n.Waiting("group"))
		leaves := n.leaveLines(op.turn)
		require.Equal(t, wire.Cancel, leaves.Kind)
		require.Equal(t, op.outcome.Tickets[0].Number, leaves.Tickets[0].Number)
		require.False(t, n.Waiting("group"))
		require.Nil(t, n.leaveLines(op.turn), "Redis knows")
		require.Equal(t, wire.HadStart, op.turn.tickets[0].State)
		require.Nil(t, n.leaveLines(nil), "it stood in none")

		again := keepOp(wire.Reserve, op.Charges...)
		n.join(again, &store.Booking{Charges: op.Charges, Horizon: horizon, Turn: op.turn})
		require.Same(t, op.turn, again.turn)
		require.Equal(t, int64(1), again.Tickets[0].Number)
	})
}

// TestWhoNeedsNoLineLeavesIt: a caller in line that books without a horizon gives up its place, and keeps its arrival.
func TestWhoNeedsNoLineLeavesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		op := toldToWait(n, 2, 1, time.Hour)
		again := keepOp(wire.Reserve, op.Charges...)
		n.join(again, &store.Booking{Charges: op.Charges, Turn: op.turn})
		require.False(t, n.Waiting("group"))
		require.Empty(t, again.Tickets)

		leaves := posted(n)
		require.Len(t, leaves, 1)
		require.Equal(t, wire.Cancel, leaves[0].Kind)
		require.Equal(t, int64(1), leaves[0].Tickets[0].Number)
		require.Equal(t, wire.HadStart, op.turn.tickets[0].State)
	})
}

// TestACallWaitsForThoseThatWereCalled, but not for long.
func TestACallWaitsForThoseThatWereCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		gathers := func() time.Duration {
			begin := time.Now()
			n.awaitSummoned("group")
			return time.Since(begin)
		}
		require.Zero(t, gathers(), "nobody was called")
		ops := []*op{toldToWait(n, 2, 1, time.Second), toldToWait(n, 2, 2, time.Second)}
		<-ops[1].ready
		time.AfterFunc(time.Millisecond, func() { arrived(n, ops[0]) })
		time.AfterFunc(2*time.Millisecond, func() { arrived(n, ops[1]) })
		require.Equal(t, 2*time.Millisecond, gathers())
		require.Zero(t, gathers())

		late := toldToWait(n, 2, 3, time.Second)
		<-late.ready
		require.Equal(t, maxGather, gathers())
		require.Zero(t, gathers(), "once")
		arrived(n, late)
	})
}

// TestAsks: when the first waiter of a node asks how its line stands.
func TestAsks(t *testing.T) {
	for _, c := range []struct {
		name  string
		wait  time.Duration
		line  int64 // how much waits in all of it; the node has 1
		fresh bool
		hurry bool
		soon  time.Duration // the first of all may start. Zero means that Redis has not said.
		want  time.Duration
	}{
		{"there is room that nobody takes", time.Hour, 100, true, true, 0, wire.AskSoon},
		{"a large part of a new line", time.Hour, 8, true, false, 0, askFirst},
		{"a small part of a new line", time.Minute, 9, true, false, 0, askRarely},
		{"a small part that comes soon", 5999 * time.Millisecond, 9, false, false, 0, 5999 * time.Millisecond},
		{"a large part that comes soon", 1500 * time.Millisecond, 8, false, false, 0, wire.MinAsk},
		{"at half of the wait", 20 * time.Second, 9, false, false, 0, 10 * time.Second},
		{"no more rarely", 100 * time.Second, 9, false, false, 0, askRarely},
		{"but of a long one", 20 * time.Minute, 9, false, false, 0, 30 * time.Second},
		{"and not more rarely than that", 10 * time.Hour, 9, false, false, 0, wire.MaxAsk},
		{"those before a large part may be dead", time.Hour, 8, false, false, 3 * time.Second, 3*time.Second - horizon/4},
		{"but not soon after an answer", time.Hour, 8, false, false, 100 * time.Millisecond, askFirst},
		{"others ask", time.Minute, 9, false, false, 100 * time.Millisecond, askRarely},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Now()
			n := &line{waiters: []*turn{{nearAt: now.Add(c.wait), comeBy: now.Add(c.wait), cost: 1, horizon: horizon}}, cost: 1, waiting: c.line, unasked: c.fresh, hurry: c.hurry, heardAt: now}
			if c.soon > 0 {
				n.firstStart = now.Add(c.soon)
			}
			require.Equal(t, c.want, n.asksAt().Sub(now))
		})
	}
}

// TestP5_LooksAfterMissedMessages: a connection of the subscription has begun, and messages may have been lost before. A
// line of which Redis said something a while ago asks at once, also where other nodes have most of it: their messages
// are lost as well. A line of which Redis has just spoken makes no further call.
func TestP5_LooksAfterMissedMessages(t *testing.T) {
	for name, c := range map[string]struct {
		line   int64         // how much waits in all of it; the node has 1
		silent time.Duration // how long ago Redis spoke of it, when the connection begins
		now    int           // how many calls are made at once
		later  int           // and how many until the first waiter asks in any case
	}{
		"the first connection":                          {1, time.Millisecond, 0, 1},
		"a first connection that took long":             {1, 2 * askFirst, 1, 0},
		"a new connection, soon after an answer":        {1, 20*time.Second + time.Millisecond, 0, 1},
		"a new connection":                              {1, 30 * time.Second, 1, 0},
		"a new connection of a node with a small part":  {100, 30 * time.Second, 1, 0},
		"a first connection where others have the line": {100, time.Millisecond, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				op := toldToWait(n, 2, 1, 10*time.Hour)
				defer n.leaveLines(op.turn)
				speaks := func() {
					n.observeLine(n.Names.Row(&op.Charges[0].Budget), &wire.Line{
						ID: 1, Waiting: c.line, Cuts: [3]int64{0, 1, 0}, Joined: [3]int64{0, 2, 0},
						Soon: 10 * time.Hour, First: [3]time.Duration{0, 10 * time.Hour, 0}, Last: [3]time.Duration{0, 10 * time.Hour, 0},
					})
				}
				speaks()
				if c.silent > 20*time.Second {
					time.Sleep(20 * time.Second)
					posted(n)
					speaks()
					time.Sleep(c.silent - 20*time.Second)
				} else {
					time.Sleep(c.silent)
				}

				posted(n)
				n.Subscribed(n.Names.Own())
				require.Empty(t, posted(n), "the other channel brings turns")
				n.Subscribed(n.Names.Shared())
				asked := posted(n)
				require.Len(t, asked, c.now)
				for _, o := range asked {
					require.Equal(t, wire.Renew, o.Kind)
					require.Equal(t, op.outcome.Tickets[0].Number, o.Tickets[0].Number)
				}
				rest := askFirst + askFirst/2
				time.Sleep(rest)
				require.Len(t, posted(n), c.later)
			})
		})
	}
}

// TestP5_SummonedBeforeItStands: a message says that it is a newcomer's turn, and comes before the answer that puts the
// newcomer in line. The newcomer books again at once. The message says nothing of a waiter whose turn came earlier, and
// that has asked since.
func TestP5_SummonedBeforeItStands(t *testing.T) {
	for name, c := range map[string]struct {
		class, ticket, line int64
		had                 bool // its call had the ticket
		want                bool
	}{
		"its turn has come":                    {2, 6, 1, false, true},
		"the turn of those before it has come": {2, 7, 1, false, false},
		"of another class":                     {1, 6, 1, false, false},
		"of another line":                      {2, 6, 2, false, false},
		"it knew":                              {2, 6, 1, true, false},
		"it goes before all":                   {2, 0, 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				stays := toldToWait(n, 3, 1, time.Hour)
				defer func() { n.leaveLines(stays.turn) }()
				time.Sleep(2 * askFirst)
				posted(n)
				n.Turns(notify.Turns{Key: n.Names.Row(&stays.Charges[0].Budget), Line: 1, Cuts: [3]int64{1, 7, 1}})
				require.False(t, called(stays))

				op := keepOp(wire.Reserve, stays.Charges...)
				op.Class, op.Horizon, op.MaxWait = c.class, horizon, wire.AnyWait
				op.outcome.State, op.outcome.Wait = wire.InLine, wire.Micros(time.Hour)
				op.outcome.Tickets = []wire.Ticket{{Budget: op.Charges[0].Budget.Key, Line: c.line, Number: c.ticket}}
				if c.had {
					op.Tickets = op.outcome.Tickets
				}
				answer(n, op)
				time.Sleep(time.Millisecond)
				require.Equal(t, c.want, called(op))
				arrived(n, op)
				n.leaveLines(op.turn)
			})
		})
	}
}

// TestP5_SummonedBesideShares: of a line with shares a message names the lanes that have moved, those without a share
// among them. No message takes back what an earlier one has said of a different lane.
func TestP5_SummonedBesideShares(t *testing.T) {
	n := newNode()
	l := &line{node: n, id: 1}
	told := func(lanes ...notify.Cut) {
		c := cuts{}
		for _, lane := range lanes {
			c.set(wire.LaneID{Class: lane.Class, Share: lane.Share}, lane.Cut)
		}
		l.noteCalled(1, c)
	}
	told(notify.Cut{Class: 2, Share: 5, Cut: 4})
	told(notify.Cut{Class: 2, Share: 9, Cut: 3}, notify.Cut{Class: 2, Cut: 7})
	told(notify.Cut{Class: 3, Cut: 2})
	require.True(t, l.hasCalled(&turn{class: 2, share: 5, number: 3}))
	require.True(t, l.hasCalled(&turn{class: 2, share: 9, number: 2}))
	require.True(t, l.hasCalled(&turn{class: 2, number: 6}))
	require.True(t, l.hasCalled(&turn{class: 3, number: 1}))
	require.False(t, l.hasCalled(&turn{class: 2, number: 7}))

	l.id = 2
	l.noteCalled(2, cuts{classes: [3]int64{0, 2, 0}})
	require.True(t, l.hasCalled(&turn{class: 2, number: 1}))
	require.False(t, l.hasCalled(&turn{class: 2, number: 6}), "its ticket is of a new line")
	require.False(t, l.hasCalled(&turn{class: 2, share: 5, number: 3}))
}

func TestClasses(t *testing.T) {
	require.Equal(t, []int64{1, 2, 3}, []int64{classOf(store.PriorityHigh), classOf(store.PriorityNormal), classOf(store.PriorityLow)})
	require.Equal(t, []int64{1, 3}, []int64{classOf(store.PriorityHigh + 9), classOf(store.PriorityLow - 9)})
	require.Negative(t, compareTurns(&turn{class: 1, number: 9}, &turn{class: 2, number: 1}))
	require.Negative(t, compareTurns(&turn{class: 1, number: 1}, &turn{class: 1, number: 2}))
}

package wire_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/store"
)

// twinCases are sequences in which the twins were not equal once, or, where the last sentence says so, both were wrong.
var twinCases = map[string]func(w *twins) error{
	"a bucket has room before the end of a start to come, and the other budget is closed until then": func(w *twins) error {
		c, free := w.of(0, store.TokenBucket(1000, time.Second, 1000)), w.of(1, store.Unlimited())
		of := func(cost int) store.Charge { d := c; d.Cost = cost; return d }
		ahead, both := book(-1, of(500)), book(-1, free, of(245))
		ahead.NotBefore, ahead.Spread, both.Horizon = 740*time.Millisecond, 20*time.Millisecond, 750*time.Millisecond
		return errors.Join(w.book(book(0, of(1000)), 1), w.book(ahead, 1), w.pause(free, 746*time.Millisecond), w.book(both, 1))
	},
	"a refusal by two budgets that have room later together than each of them": func(w *twins) error {
		paced, paused := w.of(0, store.LeakyBucket(1, time.Second)), w.of(1, store.PerSecond(9))
		behind, short := book(0, paced), book(2*time.Second, paced, paused)
		behind.NotBefore, behind.MaxWait, short.Horizon = 2*time.Second, -1, store.MinHorizon
		return errors.Join(w.book(book(0, paced), 1), w.book(behind, 1), w.pause(paused, 1500*time.Millisecond), w.book(short, 1))
	},
	"the second budget is paused, the first is asked again": func(w *twins) error {
		rate, slots := w.of(0, store.PerSecond(2)), w.of(1, store.Concurrency(2))
		short := book(time.Second, rate, slots)
		short.Horizon = store.MinHorizon
		return errors.Join(w.book(book(0, rate), 1), w.book(book(0, rate), 1), w.pause(slots, 2*time.Second), w.book(short, 1))
	},
	"a pause of slots ends when a start of others is": func(w *twins) error {
		slots, rate := w.of(1, store.Concurrency(2)), w.of(0, store.PerSecond(2))
		behind, short := book(-1, slots, rate), book(0, slots, rate)
		behind.Horizon, short.Horizon = time.Hour, store.MinHorizon
		return errors.Join(w.pause(slots, 2*time.Second), w.book(behind, 1), w.book(short, 1))
	},
	"the clock is set back beyond the edge of a window": func(w *twins) error {
		c := w.of(0, store.FixedWindow(5, time.Second))
		w.now += 350_000
		err := w.book(book(0, c), 5)
		w.now += 550_000
		err = errors.Join(err, w.book(book(0, c), 1))
		w.now -= 500_000
		return errors.Join(err, w.book(book(0, c), 1))
	},
	"the clock is set back by a little with starts ahead": func(w *twins) error {
		c := w.of(0, store.FixedWindow(5, time.Second))
		err := w.book(book(-1, c), 22)
		w.now += 1_100_000
		err = errors.Join(err, w.book(book(0, c), 1))
		w.now--
		return errors.Join(err, w.book(book(-1, c), 1))
	},
	"a caller gives back a start and keeps behind those of others alone": func(w *twins) error {
		b := book(-1, w.of(0, store.PerSecond(1)))
		b.Horizon = time.Hour
		err := w.book(b, 3)
		again := *b
		again.Instead = w.grants[1].grant.Handle
		return errors.Join(err, w.book(&again, 1))
	},
	"an unlimited budget does not count as another budget": func(w *twins) error {
		c, free := w.of(0, store.SlidingWindow(400, time.Hour)), w.of(1, store.Unlimited())
		c.Pace = 9 * time.Second
		full, next := c, book(-1, c, free)
		full.Cost, next.Horizon = 400, 2*time.Hour
		return errors.Join(w.book(book(0, full), 1), w.book(next, 1))
	},
	"a paced start costs more than all time": func(w *twins) error {
		c := w.of(0, store.LeakyBucket(1, 7*time.Hour))
		err := w.book(book(0, c), 1)
		return errors.Join(err, w.settleTo(w.grants[0], 1<<30), w.status(c))
	},
	"a limit of which no start is left": func(w *twins) error {
		c := w.of(0, store.PerSecond(400))
		err := w.book(book(0, c), 1)
		err = errors.Join(err, w.giveBack(w.grants[0]))
		return errors.Join(err, w.book(book(0, w.of(0, store.PerSecond(12))), 1))
	},
	"a start of a paced limit is given back where many of another limit are": func(w *twins) error {
		err := w.book(book(0, w.of(0, store.LeakyBucket(1, 720*time.Hour))), 1)
		many := w.of(0, store.SlidingWindow(1<<30, 3*time.Second))
		many.Cost = 5_000_000
		return errors.Join(err, w.book(book(0, many), 1), w.giveBack(w.grants[0]))
	},
	"a caller of the usual priority does not wait for those of a lower one": func(w *twins) error {
		c := w.of(0, store.PerSecond(10))
		c.Cost = 6
		low := book(-1, c)
		low.Horizon, low.Priority = time.Hour, store.PriorityLow
		err := w.book(low, 2)
		w.now += 1000
		return errors.Join(err, w.status(c))
	},
	"a pause is ended": func(w *twins) error {
		c := w.of(0, store.PerSecond(10))
		return errors.Join(w.book(book(0, c), 1), w.pause(c, time.Minute), w.resume(c))
	},
	"a pause of slots is ended": func(w *twins) error {
		c := w.of(0, store.Concurrency(3))
		b := book(-1, c)
		b.Horizon = store.MinHorizon
		return errors.Join(w.pause(c, 200*time.Millisecond), w.book(b, 1), w.resume(c), w.book(b, 1))
	},
}

// of returns a charge of a budget that has a limit now.
func (w *twins) of(i int, l store.Limit) store.Charge {
	w.budgets[i].Limit, w.budgets[i].Cost = l, 1
	return w.budgets[i]
}

// book is a booking without a line.
func book(maxWait time.Duration, charges ...store.Charge) *store.Booking {
	return &store.Booking{Charges: charges, MaxWait: maxWait}
}

// emptyTwins are twins of two budgets, at a round time.
func emptyTwins(t *testing.T, server *redistest.Server) *twins {
	w := newTwins(t.Context(), twinServer(t, server), 1)
	w.now, w.budgets = 1_700_000_000_000_000, nil
	for _, policy := range []string{"one", "two"} {
		w.budgets = append(w.budgets, store.Charge{Budget: store.Budget{Policy: policy, Group: "group", Key: [16]byte{policy[0]}}})
	}
	return w
}

// TestP1_TwinsInCases plays the sequences that were found, one by one.
func TestP1_TwinsInCases(t *testing.T) {
	for name, calls := range twinCases {
		t.Run(name, func(t *testing.T) {
			w := emptyTwins(t, redistest.Shared(t))
			require.NoError(t, calls(w), "%q", w.calls)
		})
	}
}

// TestP10_WindowsUnderWideEntries: three entries together fill a hundred million windows that come after one another, and none of them alone
// does. No script looks at each of these windows: meanwhile Redis would serve nobody.
func TestP10_WindowsUnderWideEntries(t *testing.T) {
	w := emptyTwins(t, redistest.Single(t))
	c := w.of(0, store.SlidingWindow(120, time.Hour))
	c.Cost = 40
	wide := book(0, c)
	wide.Spread = 2000 * time.Hour
	for range 3 {
		require.NoError(t, w.book(wide, 1))
		w.now += 1000
	}
	require.NoError(t, w.book(book(-1, w.of(0, store.FixedWindow(100, 50*time.Millisecond))), 1))
	require.Greater(t, w.grants[3].grant.Wait, 1999*time.Hour)
}

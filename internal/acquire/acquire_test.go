package acquire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
)

// TestWhatACallerHolds: thousands of callers go their way with a store that answers at random. After each call the store
// holds for the caller what the state says, nothing after an error, and nothing is given back twice.
func TestWhatACallerHolds(t *testing.T) {
	ways := make(map[string]int)
	for seed := range uint64(3000) {
		synctest.Test(t, func(t *testing.T) { goAnyWay(t, seed, ways) })
	}

	for _, end := range []string{"granted", "renewed", "refused", "store failed", "gave up", "unbooked", "detach", "repriced"} {
		require.NotZero(t, ways[end], "no caller went this way: %s, but %v", end, ways)
	}
}

// goAnyWay has one caller go a way that seed decides, and counts how it ended.
func goAnyWay(t *testing.T, seed uint64, ways map[string]int) {
	rng := rand.New(rand.NewPCG(seed, 44))
	s := &randomStore{t: t, rng: rng, seed: seed, lag: 4 * time.Millisecond, held: make(map[store.Handle]time.Duration), lines: make(map[store.Turn]bool)}
	if rng.IntN(4) == 0 {
		s.lag = 30 * time.Millisecond
	}
	e := &Engine{Store: s, Errors: plainErrors{}, LongWait: time.Second}
	if rng.IntN(2) == 0 {
		e.Observe = func(context.Context, Event) {}
	}

	c := new(Caller)
	c.Init(e)
	c.MaxWait = []time.Duration{-1, 0, time.Millisecond, time.Second, time.Minute}[rng.IntN(5)]
	c.Patience = []time.Duration{0, 0, 0, time.Second}[rng.IntN(4)]
	c.SetCharges(s.charges())

	replaced := make(chan struct{})
	w := Wait{Replaced: replaced, WhileBooked: rng.IntN(8) == 0}
	w.Detaches, w.DetachAt = rng.IntN(8) == 0, Now()+time.Duration(rng.IntN(2000))*time.Millisecond
	ctx, stop := context.WithTimeout(t.Context(), time.Duration(rng.IntN(20_000))*time.Millisecond)
	defer stop()
	if rng.IntN(4) == 0 {
		time.AfterFunc(time.Duration(rng.IntN(3000))*time.Millisecond, func() { close(replaced) })
	}

	end := ""
	for range 4 {
		err := c.Acquire(ctx, w)
		end = plainEnd(err)
		switch {
		case err == nil:
			s.requireHeld(c, "granted")
			require.True(t, c.Granted())
			time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
			c.Recheck()
			ways["renewed"]++
		case err == ErrReplaced:
			w.Replaced = nil
			_ = c.Reprice(ctx, func() error {
				if rng.IntN(2) == 0 {
					c.SetCharges(s.charges())
				}
				return nil
			})
			ways["repriced"]++
			s.requireHeld(c, "repriced")
		case err == ErrDetach || err == ErrUnbooked:
			s.requireHeld(c, end)
			w.Detaches, w.WhileBooked = false, false
		default:
			require.True(t, c.Idle(), "seed %d: after %v", seed, err)
			s.requireHeld(c, end)
		}
		ways[end]++
	}

	c.Cancel()
	s.requireHeld(c, "cancelled")
}

// A randomStore answers at random, and knows what its only caller holds.
type randomStore struct {
	store.Minimal
	t     *testing.T
	rng   *rand.Rand
	seed  uint64
	lag   time.Duration
	last  int64
	held  map[store.Handle]time.Duration // the spread of starts; slots and places in the line for slots
	lines map[store.Turn]bool            // places in the line for a start
}

// charges returns what a caller may ask for.
func (s *randomStore) charges() []store.Charge {
	all := []store.Charge{
		{Budget: store.Budget{Policy: "window"}, Limit: store.PerSecond(5), Cost: 1, Jitter: DefaultJitter},
		{Budget: store.Budget{Policy: "slots"}, Limit: store.Concurrency(2), Cost: 1},
		{Budget: store.Budget{Policy: "node"}, Limit: store.Concurrency(2), Cost: 1, Node: true},
	}
	some := all[:1+s.rng.IntN(3)]
	shadow := s.rng.IntN(6) == 0
	for i := range some {
		some[i].Shadow = shadow
	}
	return some
}

// requireHeld compares what the store holds with what the state of the caller says.
func (s *randomStore) requireHeld(c *Caller, after string) {
	want := 0
	switch {
	case c.uncounted || c.state == idle:
	case c.slots != nil:
		want = 2
	default:
		want = 1
	}
	require.Equal(s.t, want, len(s.held)+len(s.lines), "seed %d: after %s, in state %d", s.seed, after, c.state)
}

// giveBack ends what a handle or a turn names.
func (s *randomStore) giveBack(h store.Handle, turn store.Turn) {
	if h != (store.Handle{}) {
		require.Contains(s.t, s.held, h, "seed %d: what is given back is not held", s.seed)
	}
	delete(s.held, h)
	delete(s.lines, turn)
}

// Book implements [store.Store].
func (s *randomStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	if b.Instead.Start != 0 {
		require.Equal(s.t, s.held[b.Instead], b.Spread, "seed %d: a start takes the place of a start with another spread", s.seed)
	}
	s.giveBack(b.Instead, b.Turn)
	if s.rng.IntN(4) == 0 {
		time.Sleep(time.Duration(s.rng.IntN(700)) * time.Millisecond)
	}
	if ctx.Err() != nil || s.rng.IntN(12) == 0 {
		return store.Grant{}, errors.Join(errStore, context.Cause(ctx))
	}

	s.last++
	g := store.Grant{HeldBy: 0, Turn: b.Turn, Age: time.Duration(s.rng.IntN(3)) * s.lag}
	start := store.Handle{Start: s.last}
	switch n := s.rng.IntN(8); {
	case n < 3:
		g.OK, g.HeldBy, g.Handle = true, store.NotHeld, start
	case n < 5:
		g.OK, g.Handle, g.Wait = true, start, 1+time.Duration(s.rng.IntN(350))*time.Millisecond
	case n < 7 && b.MaxWait != 0:
		ready := make(chan struct{})
		time.AfterFunc(time.Duration(s.rng.IntN(5000))*time.Millisecond, func() { close(ready) })
		g.Ready, g.Turn, g.Wait = ready, s.last, time.Second
		if countsStart(b.Charges[0]) {
			s.lines[g.Turn] = true
			return g, nil
		}
		g.Handle, g.Wait = store.Handle{Place: s.last}, 0
	default:
		g.Wait = time.Second
		return g, nil
	}
	s.held[g.Handle] = b.Spread
	return g, nil
}

// Cancel implements [store.Store].
func (s *randomStore) Cancel(_ *store.Booking, g store.Grant) { s.giveBack(g.Handle, g.Turn) }

// Watch implements [store.Store].
func (s *randomStore) Watch(*store.Booking, store.Grant, chan<- struct{}) store.Watch {
	return randomWatch{s}
}

func (s *randomStore) Release(*store.Booking, store.Grant)                              {}
func (s *randomStore) Pause(context.Context, store.Charge, time.Duration) error         { return nil }
func (s *randomStore) Resume(context.Context, store.Charge) error                       { return nil }
func (s *randomStore) Reconcile(context.Context, store.Charge, store.Quota) error       { return nil }
func (s *randomStore) Settle(context.Context, *store.Booking, store.Grant, []int) error { return nil }

func (s *randomStore) Refuse(context.Context, store.Charge, store.Refusal) (from, to float64, err error) {
	return 0, 0, nil
}

func (s *randomStore) Status(context.Context, store.Charge) (store.Status, error) {
	return store.Status{}, nil
}

// A randomWatch confirms a start at random.
type randomWatch struct{ s *randomStore }

// Confirm implements [store.Watch].
func (w randomWatch) Confirm(context.Context, time.Duration) (bool, error) {
	switch w.s.rng.IntN(8) {
	case 0:
		return false, nil
	case 1:
		return false, errStore
	}
	return true, nil
}

// Stop implements [store.Watch].
func (w randomWatch) Stop() {}

// The errors of plainErrors, and of a randomStore.
var (
	errStore   = errors.New("store failed")
	errRefused = errors.New("refused")
	errGaveUp  = errors.New("gave up")
)

// plainErrors implements [Errors].
type plainErrors struct{}

func (plainErrors) Refused(r Refusal) error     { return errRefused }
func (plainErrors) StoreFailed(err error) error { return fmt.Errorf("%w: %w", errStore, err) }
func (plainErrors) GaveUp(d Departure) error    { return errGaveUp }

// plainEnd names how a call of Acquire ended.
func plainEnd(err error) string {
	switch {
	case err == nil:
		return "granted"
	case err == ErrDetach:
		return "detach"
	case err == ErrUnbooked:
		return "unbooked"
	case err == ErrReplaced:
		return "replaced"
	}
	for _, e := range []error{errStore, errRefused, errGaveUp} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	return err.Error()
}

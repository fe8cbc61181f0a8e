package throttle_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// A sceneStore notes what is asked of a memstore, and does what its scene says.
type sceneStore struct {
	throttle.Store
	stage *stage

	mu      sync.Mutex
	slow    time.Duration   // Book takes so long before the store decides
	ages    []time.Duration // of the next answers; the last is that of all others
	late    time.Duration   // how long the answer to one booking is on its way
	lateOn  int             // the number of that
	fails   map[string]string
	takes   map[string]time.Duration
	noNews  bool
	note    store.PauseNote
	books   int
	foreign bool // another program has booked starts
	owners  map[any]*caller
	charges map[[16]byte]store.Charge
	watches map[*sceneWatch]bool
	asks    atomic.Int32 // how many calls have no answer yet
}

func newSceneStore(s *stage) *sceneStore {
	return &sceneStore{Store: memstore.New(), stage: s, fails: map[string]string{}, takes: map[string]time.Duration{},
		owners: map[any]*caller{}, charges: map[[16]byte]store.Charge{}, watches: map[*sceneWatch]bool{}}
}

// storeOptions are what a store can be.
var storeOptions = map[string]func(*words) func(*sceneStore){
	"slow": func(w *words) func(*sceneStore) {
		d := w.duration()
		return func(s *sceneStore) { s.slow = d }
	},
	"ages": func(w *words) func(*sceneStore) {
		var ages []time.Duration
		for w.more() {
			ages = append(ages, w.duration())
		}
		return func(s *sceneStore) { s.ages = ages }
	},
	"late": func(w *words) func(*sceneStore) { // the number of the booking, and by how much
		n, d := w.number(), w.duration()
		return func(s *sceneStore) { s.late, s.lateOn = d, n }
	},
	"away": func(w *words) func(*sceneStore) { // from when until when, and so on
		var away [][2]time.Duration
		for w.more() {
			away = append(away, [2]time.Duration{w.duration(), w.duration()})
		}
		return func(s *sceneStore) { s.Store = absent(away...) }
	},
	"news": func(w *words) func(*sceneStore) {
		off := w.next() == "off"
		return func(s *sceneStore) { s.noNews = off }
	},
	"note": func(w *words) func(*sceneStore) {
		note := store.PauseNote{By: w.next(), Reason: w.rest()}
		return func(s *sceneStore) { s.note = note }
	},
}

func init() {
	for _, call := range []string{"book", "confirm", "settle", "pause", "refuse", "reconcile"} {
		storeOptions[call] = func(w *words) func(*sceneStore) { // "confirm no takes 30ms", "refuse hangs", "settle works"
			var fails string
			var takes time.Duration
			for w.more() {
				switch word := w.next(); word {
				case "fails", "hangs", "no", "yes":
					fails = word
				case "works":
				case "takes":
					takes = w.duration()
				default:
					w.fail("a store cannot %q", word)
				}
			}
			return func(s *sceneStore) { s.fails[call], s.takes[call] = fails, takes }
		}
	}
}

func parseStore(text string, w *words) func(*sceneStore) {
	var all []func(*sceneStore)
	w.options("store", text, func(name string) (known bool) {
		option := storeOptions[name]
		if option != nil {
			all = append(all, option(w))
		}
		return option != nil
	})
	return func(s *sceneStore) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, set := range all {
			set(s)
		}
	}
}

// asked notes a call, and does what the scene says about such calls before the store
// decides. It returns a function that notes what the store said.
func (s *sceneStore) asked(ctx context.Context, call string) (fails string, err error) {
	s.asks.Add(1)
	defer s.asks.Add(-1)
	s.mu.Lock()
	fails, takes := s.fails[call], s.takes[call]
	s.stage.mu.Lock()
	s.stage.totals[call]++
	s.stage.mu.Unlock()
	s.mu.Unlock()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return fails, context.Cause(ctx)
		}
	}
	switch fails {
	case "fails":
		return fails, errAway
	case "hangs":
		<-ctx.Done()
		return fails, context.Cause(ctx)
	}
	return fails, nil
}

// errAway is what a store says that fails.
var errAway = errors.New("throttle: down")

// said notes what the store said.
func (s *sceneStore) said(c *caller, err error, format string, args ...any) {
	if err != nil {
		format, args = format+": %v", append(args, err)
	}
	s.stage.note("calls", c, format, args...)
}

func (s *sceneStore) Book(ctx context.Context, b *store.Booking) (g store.Grant, err error) {
	c := callerOf(ctx)
	_, err = s.asked(ctx, "book")
	s.mu.Lock()
	s.books++
	n, slow := s.books, s.slow
	s.owners[b] = c
	for _, charge := range b.Charges {
		s.charges[charge.Budget.Key] = charge
	}
	s.mu.Unlock()
	text := "book"
	if b.Instead != (store.Handle{}) {
		text += " again"
	}
	if b.Spread != 0 {
		text += " with " + short(b.Spread) + " behind"
	}
	if err == nil {
		time.Sleep(slow)
		g, err = s.Store.Book(ctx, b)
	}
	s.mu.Lock()
	for _, key := range []any{g.Handle, g.Turn} {
		if key != nil && key != (store.Handle{}) {
			s.owners[key] = c
		}
	}
	if len(s.ages) > 0 {
		if g.Age = s.ages[0]; len(s.ages) > 1 {
			s.ages = s.ages[1:]
		}
	}
	late := s.late
	s.mu.Unlock()
	if n == s.lateOn {
		time.Sleep(late)
		g.Age = late
	}
	switch {
	case err != nil:
	case g.OK && g.Wait == 0:
		text += ": now"
	case g.OK:
		text += ": in " + short(g.Wait)
	case g.Ready != nil:
		text += ": in line"
	default:
		text += ": no"
	}
	s.said(c, err, "%s", text)
	return g, err
}

// owner returns whose grant it is.
func (s *sceneStore) owner(call string, b *store.Booking, g store.Grant) *caller {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stage.mu.Lock()
	s.stage.totals[call]++
	s.stage.mu.Unlock()
	for _, key := range []any{b, g.Turn, g.Handle} {
		if c := s.owners[key]; key != nil && c != nil {
			return c
		}
	}
	return nil
}

func (s *sceneStore) Cancel(b *store.Booking, g store.Grant) {
	s.said(s.owner("cancel", b, g), nil, "cancel")
	s.Store.Cancel(b, g)
}

func (s *sceneStore) Release(b *store.Booking, g store.Grant) {
	s.said(s.owner("release", b, g), nil, "release")
	s.Store.Release(b, g)
}

func (s *sceneStore) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	_, err := s.asked(ctx, "settle")
	if err == nil {
		err = s.Store.Settle(ctx, b, g, costs)
	}
	s.said(callerOf(ctx), err, "settle %v", costs)
	return err
}

func (s *sceneStore) Pause(ctx context.Context, c store.Charge, d time.Duration) error {
	_, err := s.asked(ctx, "pause")
	if err == nil {
		err = s.Store.Pause(ctx, c, d)
	}
	s.said(callerOf(ctx), err, "pause %s %s", c.Budget.Policy, short(d))
	return err
}

func (s *sceneStore) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	if _, err = s.asked(ctx, "refuse"); err == nil {
		from, to, err = s.Store.Refuse(ctx, c, r)
	}
	text := ""
	if r.Ago != 0 {
		text += " of " + short(r.Ago) + " ago"
	}
	if r.Took != r.Ago {
		text += " that took " + short(r.Took)
	}
	s.said(callerOf(ctx), err, "refuse %s %s%s", c.Budget.Policy, short(r.Length), text)
	return from, to, err
}

func (s *sceneStore) Reconcile(ctx context.Context, c store.Charge, q throttle.Quota) error {
	_, err := s.asked(ctx, "reconcile")
	if err == nil {
		err = s.Store.Reconcile(ctx, c, q)
	}
	s.said(callerOf(ctx), err, "reconcile %s %d for %s", c.Budget.Policy, q.Left, short(q.Reset))
	return err
}

// PauseNote implements [store.Store].
func (s *sceneStore) PauseNote(throttle.Budget) store.PauseNote { return s.note }

func (s *sceneStore) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	if s.noNews {
		news = nil
	}
	w := &sceneWatch{s.Store.Watch(b, g, news), s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[w] = true
	return w
}

// watching returns how many watches go on.
func (s *sceneStore) watching() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches)
}

type sceneWatch struct {
	store.Watch
	store *sceneStore
}

func (w *sceneWatch) Confirm(ctx context.Context, maxWait time.Duration) (ok bool, err error) {
	fails, err := w.store.asked(ctx, "confirm")
	if ok = fails == "yes" || fails == "fails"; err == nil && fails == "" {
		ok, err = w.Watch.Confirm(ctx, maxWait)
	}
	text := "confirm"
	if maxWait >= 0 {
		text += " within " + short(maxWait)
	}
	if err == nil && !ok {
		text += ": no"
	}
	w.store.said(callerOf(ctx), err, "%s", text)
	return ok, err
}

func (w *sceneWatch) Stop() {
	w.store.mu.Lock()
	delete(w.store.watches, w)
	w.store.mu.Unlock()
	w.Watch.Stop()
}

// checkIdle checks, when all callers have left, that nothing waits and nothing is held.
func (s *sceneStore) checkIdle() {
	t := s.stage.t
	require.Empty(t, s.watches, "P15: a watch goes on")
	for _, c := range s.charges {
		st, err := s.Store.Status(context.Background(), c)
		require.NoError(t, err)
		if c.Limit.Kind() == store.KindConcurrency {
			require.Zero(t, st.Used, "P13: %s is in flight", c.Budget.Policy)
		}
		if !s.foreign && c.Limit.Kind() != store.KindLeakyBucket { // what a start costs there is yet to come
			require.Zero(t, st.Waiting, "P7: %s waits", c.Budget.Policy)
		}
	}
}

package throttle

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/outage"
)

// An engine is what all acquisitions of a [Transport], or of limiters that belong
// together, have in common.
type engine struct {
	store          Store
	defaultMaxWait time.Duration                // as in Config
	observe        func(context.Context, Event) // nil: none
	longWait       time.Duration                // as in Config; 0: none, or there is no observer
	rtt            rttEstimator                 // how long the store's answers take
	queues         sync.Map                     // of *atomic.Int64: how many callers each policy holds
	closings       closings
	recent         atomic.Pointer[recents] // the budgets that callers used last; nil: nobody asks for them
	unanswered     atomic.Int32            // how many callers were told that the store does not answer, and wait for it still
}

// configure takes over what it needs of a configuration.
func (e *engine) configure(c Config) error {
	e.store, e.defaultMaxWait, e.observe = c.Store, c.MaxWait, observer(c.Observe).guarded()
	if e.observe != nil {
		e.longWait = max(0, cmp.Or(c.LongWait, DefaultLongWait))
	}
	if c.Store == nil {
		return &ConfigError{"", "Store", errors.New("is required: memstore.New() for one process, redisstore.New(client, nil) for a fleet")}
	}
	return nil
}

// closings are the budgets of which this program knows that they are closed, so that
// each time makes one event, and another when the budget is open again.
type closings struct {
	count atomic.Int32 // of known, so that starts need no lock while it is 0
	mu    sync.Mutex
	known map[Budget]closing
}

// A closing is the time for which a budget is closed, as far as it is known here.
type closing struct {
	since   time.Duration // when this program learned of it first
	learned time.Duration // and last
	until   time.Duration
}

// mostClosings is how many closed budgets are known at a time. Of others nothing is told.
const mostClosings = 1024

// add notes that a budget is closed until then. It returns false if that was known, or
// too many others are.
func (k *closings) add(b Budget, at, until time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	old, found := k.known[b]
	if found && at < old.until {
		return false
	}
	if len(k.known) >= mostClosings && !found {
		k.forgetOld(at)
		if len(k.known) >= mostClosings {
			return false
		}
	}
	if k.known == nil {
		k.known = make(map[Budget]closing)
	}
	if !found {
		old.since = at
	}
	old.learned, old.until = at, until
	k.known[b] = old
	k.count.Store(int32(len(k.known)))
	return true
}

// extend notes a later end.
func (k *closings) extend(b Budget, at, until time.Duration) {
	if k.add(b, at, until) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if c, found := k.known[b]; found {
		c.learned, c.until = at, max(c.until, until)
		k.known[b] = c
	}
}

// remove notes that a budget is open. It returns how long it was closed; false if it was
// not known to be, or only since the store was asked.
func (k *closings) remove(b Budget, asked, at time.Duration) (time.Duration, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, found := k.known[b]
	if !found || asked < c.learned {
		return 0, false
	}
	delete(k.known, b)
	k.count.Store(int32(len(k.known)))
	return at - c.since, true
}

// forgetOld drops what must be open by now.
func (k *closings) forgetOld(at time.Duration) {
	for b, c := range k.known {
		if c.until < at {
			delete(k.known, b)
		}
	}
}

const (
	mostRecent = 16          // how many budgets of a policy are known
	inUse      = time.Minute // for how long one keeps its place after its last use
	recentFor  = time.Hour   // for how long one is known after its last use
)

// recents are the budgets that callers used last, some of each policy. They know hashes, and no
// keys.
type recents struct {
	mu       sync.Mutex
	askedAt  time.Duration // when somebody asked for them last
	byPolicy map[string][]recentBudget
}

// A recentBudget is one of them.
type recentBudget struct {
	key    [16]byte
	usedAt time.Duration
	heldAt time.Duration // when it held a caller last
}

// note takes in the budgets of a booking, unless another caller is about to do so for its own:
// nobody waits here. It returns false if nobody has asked for long.
func (r *recents) note(charges []Charge, g *Grant, at time.Duration) bool {
	if !r.mu.TryLock() {
		return true
	}
	defer r.mu.Unlock()
	for i := range charges {
		b := &charges[i].Budget
		r.byPolicy[b.Policy] = use(r.byPolicy[b.Policy], b.Key, g.Held == i && (!g.OK || g.Wait > 0), at)
	}
	return at-r.askedAt < recentFor
}

// use notes that a budget is used. Where all places are taken, it takes that of the one that was
// used the longest ago and is not in use. One that holds its caller takes that of one that holds
// nobody.
func use(all []recentBudget, key [16]byte, held bool, at time.Duration) []recentBudget {
	place := -1
	for i := range all {
		b := &all[i]
		if b.key == key {
			place = i
			break
		}
		free := at-b.usedAt > inUse || held && at-b.heldAt > inUse
		if free && (place < 0 || b.usedAt < all[place].usedAt) {
			place = i
		}
	}
	switch {
	case place >= 0 && all[place].key == key:
	case len(all) < mostRecent:
		place, all = len(all), append(all, recentBudget{key: key, heldAt: at - recentFor})
	case place < 0:
		return all
	default:
		all[place] = recentBudget{key: key, heldAt: at - recentFor}
	}
	if all[place].usedAt = at; held {
		all[place].heldAt = at
	}
	return all
}

// ask returns the budgets that are known of each policy in the table, and forgets the others.
func (r *recents) ask(has func(policy string) bool, at time.Duration) map[string][]recentBudget {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.askedAt = at
	all := make(map[string][]recentBudget)
	for policy, budgets := range r.byPolicy {
		budgets = slices.DeleteFunc(budgets, func(b recentBudget) bool { return at-b.usedAt > recentFor })
		if len(budgets) == 0 || !has(policy) {
			delete(r.byPolicy, policy)
			continue
		}
		r.byPolicy[policy] = budgets
		all[policy] = slices.Clone(budgets)
	}
	return all
}

// A storeQuestion asks the store about a budget that nobody has. It lies where those of a group
// lie.
type storeQuestion struct {
	*engine
	group string
}

var errUnanswered = errors.New("throttle: callers wait for the store's answer")

// Ask implements [outage.Question]. The store may serve such a question and not the callers, as
// one does that cannot write.
func (q storeQuestion) Ask(ctx context.Context) error {
	if err := q.unheard(); err != nil {
		return err
	}
	_, err := q.statusOrAway(ctx, nobodys(q.group))
	return err
}

// nobodys returns a charge of a budget that nobody has.
func nobodys(group string) Charge {
	return Charge{Budget: Budget{Group: group}, Limit: PerSecond(1), Cost: 1}
}

// unheard returns an error while callers wait for an answer that should have come.
func (e *engine) unheard() error {
	if e.unanswered.Load() > 0 {
		return errUnanswered
	}
	return nil
}

// statusOrAway asks the store what a budget is like. If another store answers in its place, the error
// says why.
func (e *engine) statusOrAway(ctx context.Context, c Charge) (Status, error) {
	var away error
	st, err := e.store.Status(outage.WithObserver(ctx, func(err error) { away = err }), c)
	return st, cmp.Or(err, away)
}

// withQuestion returns the context of an event. If the error says that the store did not do what
// it was asked of the charges, an observer can ask by the context whether the store answers.
func (e *engine) withQuestion(ctx context.Context, err error, charges []Charge) context.Context {
	if _, failed := errors.AsType[*StoreError](err); !failed {
		return ctx
	}
	i := slices.IndexFunc(charges, func(c Charge) bool { return !c.Node })
	if i < 0 {
		return ctx
	}
	return outage.WithQuestion(ctx, storeQuestion{e, charges[i].Budget.Group})
}

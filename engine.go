package throttle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/store"
)

// An engine is what all acquisitions of a [Transport], or of limiters that belong
// together, have in common.
type engine struct {
	store            Store
	traits           store.Traits                 // of the store
	refusesUnmatched bool                         // Config.Unmatched is UnmatchedRefuse
	defaultMaxWait   time.Duration                // as in Config
	observe          func(context.Context, Event) // nil: none
	longWait         time.Duration                // as in Config; 0: none, or there is no observer
	rtt              rttEstimator                 // how long the store's answers take: those without a start
	grantAge         rttEstimator                 // how old starts are at the most: a store may know how long ago it booked them
	overestimated    overestimate                 // by how much the costs of policies are estimated too high
	heldByPolicy     sync.Map                     // of *atomic.Int64: how many callers each policy holds
	closings         closings
	counting         counting
	ahead            ahead
	recent           atomic.Pointer[recents] // the budgets that callers used last; nil: nobody asks for them
	behind           atomic.Int32            // how many reports go on behind the back of callers, at most mostBehind
	unanswered       atomic.Int32            // how many callers were told that the store does not answer, and wait for it still
}

// configure sets the fields that come from a configuration. Its error is that of a missing Store.
func (e *engine) configure(c Config) error {
	e.store, e.defaultMaxWait, e.observe = c.Store, c.MaxWait, observer(c.Observe).guarded()
	if e.observe != nil {
		e.longWait = max(0, cmp.Or(c.LongWait, DefaultLongWait))
	}
	if c.Store == nil {
		return &ConfigError{"", "Store", errors.New("is required: memstore.New() for one process, redisstore.New(client, redisstore.Options{}) for a fleet")}
	}

	// A constructor that failed has returned a nil pointer, which is no nil Store.
	if v := reflect.ValueOf(c.Store); v.Kind() == reflect.Pointer && v.IsNil() {
		return &ConfigError{"", "Store", fmt.Errorf("a nil %T: check the error of its constructor", c.Store)}
	}

	traits := c.Store.Traits()
	if traits.Err != nil {
		return &ConfigError{"", "Store", traits.Err}
	}

	if c.Unmatched > UnmatchedRefuse {
		return &ConfigError{"", "Unmatched", fmt.Errorf("%d is unknown: use UnmatchedPass or UnmatchedRefuse", c.Unmatched)}
	}

	e.traits, e.refusesUnmatched = traits, c.Unmatched == UnmatchedRefuse
	return nil
}

// noticeUnmatched tells the observer of a request that no policy matches. It returns an error if such requests are refused.
func (e *engine) noticeUnmatched(r *http.Request) error {
	var err error
	if e.refusesUnmatched {
		err = &UnmatchedError{Method: Method(r), Host: Host(r)}
	}

	if e.observe != nil {
		e.observe(r.Context(), Event{Kind: EventUnmatched, Host: Host(r), Err: err})
	}
	return err
}

// closings are the budgets that are closed, as far as this program knows. By them the observer
// gets one event when a budget closes, and one when it is open again.
type closings struct {
	count atomic.Int32 // of known, so that starts need no lock while it is 0
	mu    sync.Mutex
	known map[Budget]closing
}

// A closing is the time for which a budget is closed, as far as it is known here.
type closing struct {
	since   time.Duration // when this program learned first that the budget is closed
	learned time.Duration // when it learned of the present end
	until   time.Duration // the present end
}

// mostClosings is how many closed budgets are known at a time. The observer hears nothing of others.
const mostClosings = 1024

// add notes at a time that a budget is closed until a later time. It returns false, and changes
// nothing, if the budget is known to be closed still, or if too many other budgets are.
func (k *closings) add(b Budget, at, until time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	old, found := k.known[b]
	if found && at < old.until {
		return false
	}
	if len(k.known) >= mostClosings && !found {
		k.forgetPast(at)
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

// extend notes at a time that a budget is closed at least until a later time, also if the budget
// is known to be closed.
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

// remove notes at a time that a budget is open, by an answer of the store to a question that was
// sent at asked. It returns since how long the budget was known to be closed. It returns false, and
// changes nothing, if the budget was not known to be closed, or if this program learned of the end
// after it asked: then the answer may be older than the closing.
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

// forgetPast drops the budgets whose end has passed.
func (k *closings) forgetPast(at time.Duration) {
	for b, c := range k.known {
		if c.until < at {
			delete(k.known, b)
		}
	}
}

const (
	mostRecent = 16          // how many budgets of a policy are known
	inUse      = time.Minute // for how long a budget keeps its place after its last use
	recentFor  = time.Hour   // for how long a budget is known after its last use, and budgets are noted after the last question
)

// recents are the budgets that callers used last, at most mostRecent of each policy. They have
// hashed keys only.
type recents struct {
	mu       sync.Mutex
	askedAt  time.Duration // when somebody asked for them last
	byPolicy map[string][]recentBudget
}

// A recentBudget is a budget of a policy that a caller used.
type recentBudget struct {
	key    [16]byte
	usedAt time.Duration
	heldAt time.Duration // when it held a caller last
}

// note notes the budgets of a booking that was answered with g, unless another caller has the lock:
// no caller waits for it. It returns false if nobody has called ofTable for recentFor: then the
// recents can be dropped.
func (r *recents) note(charges []store.Charge, g *store.Grant, at time.Duration) bool {
	if !r.mu.TryLock() {
		return true
	}
	defer r.mu.Unlock()
	for i := range charges {
		b := &charges[i].Budget
		r.byPolicy[b.Policy] = noteUse(r.byPolicy[b.Policy], b.Key, g.Held == i && (!g.OK || g.Wait > 0), at)
	}
	return at-r.askedAt < recentFor
}

// noteUse notes in all, the budgets of a policy, that the budget with a key is used at a time, and
// whether it holds its caller. A new budget takes a free place or, if there is none, replaces the
// budget that was used the longest ago among those that are replaceable: those that were not used
// within inUse and, if the new one holds its caller, those that have held nobody within inUse.
func noteUse(all []recentBudget, key [16]byte, held bool, at time.Duration) []recentBudget {
	place := -1
	for i := range all {
		b := &all[i]
		if b.key == key {
			place = i
			break
		}
		replaceable := at-b.usedAt > inUse || held && at-b.heldAt > inUse
		if replaceable && (place < 0 || b.usedAt < all[place].usedAt) {
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

// ofTable returns the budgets that are known of each policy that is in the table, and forgets all
// others. inTable tells which policies are.
func (r *recents) ofTable(inTable func(policy string) bool, at time.Duration) map[string][]recentBudget {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.askedAt = at
	all := make(map[string][]recentBudget)
	for policy, budgets := range r.byPolicy {
		budgets = slices.DeleteFunc(budgets, func(b recentBudget) bool { return at-b.usedAt > recentFor })
		if len(budgets) == 0 || !inTable(policy) {
			delete(r.byPolicy, policy)
			continue
		}
		r.byPolicy[policy] = budgets
		all[policy] = slices.Clone(budgets)
	}
	return all
}

// A storeQuestion asks the store whether it answers for the budgets of a group.
type storeQuestion struct {
	*engine
	group string
}

// errUnanswered is the error of unansweredError.
var errUnanswered = errors.New("throttle: callers wait for the store's answer")

// Ask implements [outage.Question]. A store that cannot write answers a question but no caller, so
// Ask looks first whether callers wait for an answer.
func (q storeQuestion) Ask(ctx context.Context) error {
	if err := q.unansweredError(); err != nil {
		return err
	}
	_, err := q.statusOrAway(ctx, livenessCharge(q.group))
	return err
}

// livenessCharge returns a charge of a budget that nobody uses, in a group: the store is asked for
// its status to learn whether the server of the group answers.
func livenessCharge(group string) store.Charge {
	return store.Charge{Budget: Budget{Group: group}, Limit: PerSecond(1), Cost: 1}
}

// unansweredError returns errUnanswered while callers wait for a store of which they were told
// that it does not answer; else nil.
func (e *engine) unansweredError() error {
	if e.unanswered.Load() > 0 {
		return errUnanswered
	}
	return nil
}

// statusOrAway asks the store for the status of a budget. If the store is away and another store
// answers in its place, the error says why the first one is away.
func (e *engine) statusOrAway(ctx context.Context, c store.Charge) (Status, error) {
	var away error
	st, err := e.store.Status(outage.WithObserver(ctx, func(err error) { away = err }), c)
	return st, cmp.Or(err, away)
}

// withQuestion returns the context of an event about charges. If the event's error is a StoreError,
// the context has a storeQuestion, by which an observer can ask whether the store answers again.
func (e *engine) withQuestion(ctx context.Context, err error, charges []store.Charge) context.Context {
	if _, failed := errors.AsType[*StoreError](err); !failed {
		return ctx
	}
	i := slices.IndexFunc(charges, func(c store.Charge) bool { return !c.Node })
	if i < 0 {
		return ctx
	}
	return outage.WithQuestion(ctx, storeQuestion{e, charges[i].Budget.Group})
}

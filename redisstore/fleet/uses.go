package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// uses counts requests with a start, in total and per budget. Starts given back are subtracted, so that
// requests handed on remain. It runs on each request's path: a lock per shard, a map lookup, and no
// allocation for a known budget.
type uses struct {
	requests tally
	shards   [16]shard
	policies sync.Map // name: *policyUsed
}

// A shard is a part of the counted budgets, with a lock of its own.
type shard struct {
	mu   sync.Mutex
	all  map[[16]byte]*used // by hashed key
	full bool               // a budget found no room since the last whole report
}

// mostInShard bounds the counted budgets: 4,096 in all.
const mostInShard = 256

// A used is the count of a recently used budget.
type used struct {
	policy *policyUsed
	terms  terms
	starts tally
	cost   tally // charged cost of the starts
	asked  bool  // a start was wanted since the last report
	last   time.Time
	weight int64 // starts, with exponential decay

	closing closing // its closure, as far as the program knows
	waiters int     // callers in line
	refused lately  // refused callers
	left    lately  // callers that left the line without a start
}

// charge returns a charge of the budget, of cost 1.
func (b *used) charge(key [16]byte) store.Charge {
	b.policy.mu.Lock()
	c := b.policy.charge
	b.policy.mu.Unlock()

	c.Budget.Key = key

	// Budgets keep the terms of their own last use: SetPolicies may have changed the policy since.
	c.Limit, c.Jitter, c.Shadow, c.Adaptive, c.Node = b.terms.limit, b.terms.jitter, b.terms.shadow, b.terms.adaptive, b.terms.node
	return c
}

// A tally counts the starts of an interval, which a whole report ends. Further reports can come at any time.
// Their interval is too short for a rate, so they include the previous interval.
type tally struct {
	now    atomic.Int64
	before int64 // in the previous interval
}

// report returns the count for a report, which is never below 0. whole ends the interval. In an interval more starts can
// be given back than are counted, because they were counted earlier: the next interval begins with the deficit.
func (t *tally) report(whole bool) int64 {
	if !whole {
		return max(0, t.before+t.now.Load())
	}
	t.before = max(0, t.now.Load())
	t.now.Add(-t.before)
	return t.before
}

// terms are the fields of a policy's charges that SetPolicies can change.
type terms struct {
	limit                  store.Limit
	jitter                 time.Duration
	shadow, adaptive, node bool
}

// termsOf returns the terms of a charge.
func termsOf(c *store.Charge) terms { return terms{c.Limit, c.Jitter, c.Shadow, c.Adaptive, c.Node} }

// A policyUsed is a policy that was used at least once.
type policyUsed struct {
	name   string
	mu     sync.Mutex
	charge store.Charge // the latest, of cost 1 and without a key
}

// reportedFor is how long a budget is reported after its last use. Closed
// budgets and budgets with waiting callers are always reported.
const reportedFor = time.Minute

// shard returns the shard of a budget.
func (u *uses) shard(key [16]byte) *shard { return &u.shards[key[0]%16] }

// note changes the counts of a budget, if the budget is counted.
func (u *uses) note(key [16]byte, change func(b *used)) {
	s := u.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.all[key]; b != nil {
		change(b)
	}
}

// add counts the starts of a booking: 1 for a granted start, -1 for a start given back, 0 for neither. now
// means that the start is now, and takes slots. Slots of a later start are booked when it comes, by a booking
// without a horizon, which is not a request of its own: the request was counted with its start.
func (u *uses) add(booking *store.Booking, starts int64, now bool) {
	// A booking of slots alone and without a horizon takes the slots of a start that was counted with its request.
	request := booking.Horizon > 0
	for i := range booking.Charges {
		c, n := &booking.Charges[i], starts
		if c.Limit.Kind() != store.KindConcurrency {
			request = true
		} else if !now {
			n = 0
		}

		s := u.shard(c.Budget.Key)
		s.mu.Lock()

		b := s.all[c.Budget.Key]

		// Learn an unknown budget, and new terms after a change of the policy.
		if b == nil || b.terms != termsOf(c) {
			b = u.learn(s, c)
		}

		if b != nil {
			b.asked = true
			b.starts.now.Add(n)
			b.cost.now.Add(n * int64(c.Cost))
		}

		s.mu.Unlock()
	}

	if request {
		u.requests.now.Add(starts)
	}
}

// settle adds the difference between settled and charged costs to the costs of a booking's budgets.
func (u *uses) settle(booking *store.Booking, costs []int) {
	for i := range booking.Charges {
		c := &booking.Charges[i]
		switch c.Limit.Kind() {
		case store.KindConcurrency, store.KindUnlimited:
			continue // these charges are not settled
		}

		s := u.shard(c.Budget.Key)
		s.mu.Lock()
		if b := s.all[c.Budget.Key]; b != nil {
			b.cost.now.Add(int64(costs[i] - c.Cost))
		}

		s.mu.Unlock()
	}
}

// wait notes that a caller joins the line of a budget. leaveLine takes it off.
func (u *uses) wait(c *store.Charge, now time.Time) {
	s := u.shard(c.Budget.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := u.keep(s, c, now); b != nil {
		b.waiters++
	}
}

// leaveLine notes that a caller has left the line of a budget. A budget may be counted only since after the caller joined, so
// its waiters may be 0 already.
func leaveLine(b *used) { b.waiters = max(0, b.waiters-1) }

// learn starts to count the budget of a charge, or updates its terms, and returns its count. It notes that the shard is full,
// and returns nil, if there is no room for the budget. The shard is locked.
func (u *uses) learn(s *shard, c *store.Charge) *used {
	own := *c

	// A report describes the policy, without the key, the cost and the kept-free part of one request.
	own.Budget.Key, own.Cost, own.KeepFree = [16]byte{}, 1, 0
	v, _ := u.policies.LoadOrStore(c.Budget.Policy, &policyUsed{name: own.Budget.Policy, charge: own})
	p := v.(*policyUsed)

	// Keep the latest charge: the policy may have been replaced by a new table.
	p.mu.Lock()
	p.charge = own
	p.mu.Unlock()

	b := s.all[c.Budget.Key]
	switch {
	case b != nil:
		b.terms = termsOf(c)
		return b
	case len(s.all) >= mostInShard:
		s.full = true
		return nil
	case s.all == nil:
		s.all = make(map[[16]byte]*used)
	}

	b = &used{policy: p, terms: termsOf(c)}
	s.all[c.Budget.Key] = b
	return b
}

// A counted is a budget with its counts, for sorting.
type counted struct {
	use    budgetUse
	policy string
	urgent bool // closed, or with waiting callers
	weight int64
}

// compareCounted sorts the budgets that matter most to an operator first.
func compareCounted(a, b counted) int {
	switch {
	case a.urgent != b.urgent && a.urgent:
		return -1
	case a.urgent != b.urgent:
		return 1
	}
	return cmp.Or(cmp.Compare(b.use.Waiting, a.use.Waiting), cmp.Compare(b.weight, a.weight))
}

// report returns the policies ever used, at most mostPolicies, with their budgets: closed budgets and budgets with waiting
// callers first, then the busiest. leftOut is the number of dropped budgets, at least. whole ends the interval of counting.
func (u *uses) report(now time.Time, whole bool, waits map[[16]byte]waitSum) (all []policyUse, leftOut int) {
	var budgets []counted
	for i := range u.shards {
		var full bool
		budgets, full = u.shards[i].report(budgets, now, whole, waits)
		if full {
			leftOut++
		}
	}

	slices.SortFunc(budgets, compareCounted)
	leftOut += max(0, len(budgets)-mostBudgets)
	budgets = budgets[:min(len(budgets), mostBudgets)]

	u.policies.Range(func(_, v any) bool {
		p := v.(*policyUsed)
		p.mu.Lock()
		all = append(all, useOf(&p.charge))
		p.mu.Unlock()
		return true
	})

	byName := make(map[string]*policyUse)
	for i := range all {
		byName[all[i].Policy] = &all[i]
	}

	weight := make(map[string]int64)
	for _, b := range budgets {
		p := byName[b.policy]
		p.Budgets = append(p.Budgets, b.use)

		// Add one, so that a policy with idle budgets still precedes a policy without any.
		weight[b.policy] += b.weight + 1
		if b.urgent {
			weight[b.policy] += urgentWeight
		}
	}

	slices.SortFunc(all, func(a, b policyUse) int {
		return cmp.Or(cmp.Compare(weight[b.Policy], weight[a.Policy]), cmp.Compare(a.Policy, b.Policy))
	})
	return all[:min(len(all), mostPolicies)], leftOut
}

// urgentWeight exceeds any number of starts.
const urgentWeight = 1 << 40

// report appends the shard's budgets to all, and forgets budgets that were idle for reportedFor. whole ends the interval of
// counting. It returns all, and whether a budget has found no room since the last whole report.
func (s *shard) report(all []counted, now time.Time, whole bool, waits map[[16]byte]waitSum) ([]counted, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for key, b := range s.all {
		if b.asked {
			b.last = now
		}

		wait := waits[key]

		// Never forget a closed budget or a waiting caller. An opening must first reach the index.
		urgent := b.closing.holds(now) || wait.callers > 0
		if now.Sub(b.last) > reportedFor && !urgent && !b.closing.lifted {
			delete(s.all, key)
			continue
		}

		starts, cost := b.starts.report(whole), b.cost.report(whole)
		b.asked = false
		if whole {
			// Decay by half per interval, so that the order follows recent use.
			b.weight = b.weight/2 + starts
		}

		use := budgetUse{
			Key: encodeKey(key), Starts: starts, Cost: cost,
			Waiting: wait.callers, Left: b.left.sum(now), Refused: b.refused.sum(now),
		}

		if wait.callers > 0 {
			use.Oldest.Duration = max(0, now.Sub(wait.oldest))
		}

		// The index has the closings of shared budgets. A length of 0 would say that the budget is open.
		if b.terms.node && b.closing.holds(now) {
			use.ClosedFor.Duration, use.ClosedBy = max(time.Millisecond, now.Sub(b.closing.since)), b.closing.by
		}

		all = append(all, counted{use, b.policy.name, urgent, b.weight})
	}

	full := s.full

	// Only a whole report clears the mark: an extra report in between must not lose it.
	s.full = full && !whole
	return all, full
}

// waits are the program's callers in line.
type waits struct {
	mu  sync.Mutex
	all map[any]waiter // by identity: see waiterID
}

// A waiter is a caller in line.
type waiter struct {
	key   [16]byte  // of the budget that holds the caller
	since time.Time // when it joined its first line
}

// A placeID identifies a caller in a line for slots.
type placeID struct {
	node  bool
	place int64
}

// waiterID returns the identity of a caller in line: its place in a line for slots, or its turn. It returns
// nil for a caller in no line.
func waiterID(h store.Handle, t store.Turn) any {
	switch {
	case h.Node != nil && h.Node.Place != 0:
		return placeID{true, h.Node.Place}
	case h.Place != 0:
		return placeID{false, h.Place}

	// A foreign store's turn may not be comparable, and such a map key would panic.
	case t == nil || !reflect.ValueOf(t).Comparable():
		return nil
	}
	return t
}

// end notes that a caller has left the line, and returns what was noted of it. ok is false if nothing was.
func (w *waits) end(id any) (was waiter, ok bool) {
	if id == nil {
		return was, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	was, ok = w.all[id]
	delete(w.all, id)
	return was, ok
}

// begin notes that a caller stands in line. A caller with the id nil is not noted.
func (w *waits) begin(id any, who waiter) {
	if id == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = make(map[any]waiter)
	}
	w.all[id] = who
}

// A waitSum summarizes the callers that wait for one budget.
type waitSum struct {
	callers int
	oldest  time.Time
}

// sums summarizes the callers in line, by hashed key of the budget that holds them.
func (w *waits) sums() map[[16]byte]waitSum {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make(map[[16]byte]waitSum)
	for _, who := range w.all {
		s := all[who.key]
		s.callers++
		if s.oldest.IsZero() || who.since.Before(s.oldest) {
			s.oldest = who.since
		}
		all[who.key] = s
	}
	return all
}

// lately counts events of the last minute, in spans of ten seconds. The zero lately is empty.
type lately struct {
	last  int64 // the current span
	spans [6]int
}

const latelySpan = 10 * time.Second

// origin is the time from which spans are counted.
var origin = time.Now()

// add counts one event.
func (l *lately) add(now time.Time) {
	l.forget(now)
	l.spans[l.last%int64(len(l.spans))]++
}

// sum returns the count of the last minute.
func (l *lately) sum(now time.Time) (sum int) {
	l.forget(now)
	for _, n := range l.spans {
		sum += n
	}
	return sum
}

// forget drops spans older than a minute.
func (l *lately) forget(now time.Time) {
	span := int64(now.Sub(origin) / latelySpan)

	// After a long time only as many spans are cleared as there are.
	for l.last < span {
		l.last = max(l.last+1, span-int64(len(l.spans))+1)
		l.spans[l.last%int64(len(l.spans))] = 0
	}
}

//go:embed push.lua
var pushSource string

var pushScript = wire.FromSource(pushSource)

// Bounds of pushed files.
const (
	MostText  = 256 << 10 // of a file, in bytes
	mostFiles = 50        // in the history
)

// ErrNothingPushed reports that no policy file is pushed, or that Redis has
// lost it.
var ErrNothingPushed = errors.New("fleet: no file of policies is pushed")

// errUnreadable reports foreign data in the key of the pushed file.
var errUnreadable = errors.New("fleet: the pushed file cannot be read")

// Pushed is a pushed policy file. Its texts, except the file itself, are safe
// to print.
type Pushed struct {
	Number     int64     `json:"number"`     // one above its predecessor
	Generation string    `json:"generation"` // of its text: see package policyfile
	By         string    `json:"by"`
	Reason     string    `json:"reason,omitempty"`
	At         time.Time `json:"at"` // by the server's clock

	Text []byte `json:"-"` // nil from methods that do not read it
}

// ConflictError reports a concurrent push. Number is the pushed number, or 0
// for none.
type ConflictError struct{ Expected, Number int64 }

// Error implements error.
func (e *ConflictError) Error() string {
	if e.Number == 0 {
		return fmt.Sprintf("number %d is no longer pushed: nothing is", e.Expected)
	}
	return fmt.Sprintf("number %d has been pushed meanwhile: compare with it, and push again", e.Number)
}

// Push pushes a file in place of the file with the number instead, 0 for none, and
// returns the new number. It returns a *[ConflictError] if the pushed file has
// a different number. It does not validate the text: package policyfile/pushed
// does. act is the name of the act in the audit log.
func (f *Fleet) Push(ctx context.Context, instead int64, p Pushed, act string) (number int64, err error) {
	if len(p.Text) > MostText {
		return 0, fmt.Errorf("a file of %d bytes is too long: at most %d can be pushed", len(p.Text), MostText)
	}

	own := kept{p.Generation, cut(p.By, longestName), cut(p.Reason, longestText), string(p.Text)}
	entry, err := json.Marshal(own)
	if err != nil {
		return 0, err
	}

	// The new number is the next one after the number it replaces, so the act can name it in advance.
	a := Act{Act: act, What: p.Generation, By: p.By, Reason: p.Reason, Number: instead + 1}
	acted, err := a.encode()
	if err != nil {
		return 0, err
	}

	reply, err := f.conn.Run(ctx, pushScript, []string{f.keys.policies, f.keys.history, f.keys.audit},
		instead, rand.Text(), own.Generation, own.Text, own.By, own.Reason, entry, mostFiles, acted, mostActs)
	if err != nil {
		return 0, storeError(err)
	}

	// The script answers 1 and the new number, or 0 and the number of a concurrent push.
	ok := len(reply) == 2
	if ok {
		number, ok = reply[1].(int64)
	}

	switch {
	case !ok:
		return 0, storeError(errors.New("fleet: Redis says what the script does not"))
	case reply[0] == int64(0):
		return 0, &ConflictError{instead, number}
	}
	return number, nil
}

// A kept is the JSON of a file in the history.
type kept struct {
	Generation string `json:"generation"`
	By         string `json:"by"`
	Reason     string `json:"reason,omitempty"`
	Text       string `json:"text"`
}

// Pushed returns the pushed file without its text, or nil without one. It fails
// if the key in Redis holds foreign data.
func (f *Fleet) Pushed(ctx context.Context) (*Pushed, error) {
	return f.pushed(ctx, "number", "generation", "by", "reason", "at")
}

// Pull returns the pushed file with its text, or nil without one. It fails as
// [Fleet.Pushed] does.
func (f *Fleet) Pull(ctx context.Context) (*Pushed, error) {
	return f.pushed(ctx, "number", "generation", "by", "reason", "at", "text")
}

// pushed reads the fields of the pushed file in the order of Pull. It returns nil if nothing was ever pushed.
func (f *Fleet) pushed(ctx context.Context, fields ...string) (*Pushed, error) {
	v, err := f.client.HMGet(ctx, f.keys.policies, fields...).Result()

	// A key of a different type was written by hand: report it as unreadable, not as an outage.
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, f.unreadable()
	}
	if err != nil {
		return nil, f.commandError(err)
	}

	// The values are in the order of Pull's fields.
	text := func(i int) string { s, _ := v[i].(string); return s }

	// No field at all means that nothing was ever pushed.
	if !slices.ContainsFunc(v, func(field any) bool { return field != nil }) {
		return nil, nil
	}

	p, ok := pushedOf(text(0), text(4), text(1), text(2), text(3))
	if !ok {
		return nil, f.unreadable()
	}

	// Only Pull asks for the sixth field, the text, which is long.
	if len(fields) > 5 {
		p.Text = []byte(text(5))
	}
	return p, nil
}

// unreadable returns the error for foreign data in the key of the pushed file.
func (f *Fleet) unreadable() error {
	return fmt.Errorf("%w: remove the key by PEXPIRE %s 0, which an operator may send, and push again; programs keep what they have in force", errUnreadable, f.keys.policies)
}

// pushedOf parses fields that may have been edited by hand.
func pushedOf(number, at, generation, by, reason string) (*Pushed, bool) {
	n, err := strconv.ParseInt(number, 10, 64)
	when, right := moment(at)
	return &Pushed{
		// The texts may have been edited in Redis, and are printed to a terminal.
		Number: n, Generation: Clean(generation, longestName), By: Clean(by, longestName),
		Reason: Clean(reason, longestText), At: when,
	}, err == nil && right && n > 0
}

// History returns the files pushed last, with their texts, newest first, and
// how many entries were illegible and are left out.
func (f *Fleet) History(ctx context.Context) (all []Pushed, illegible int, err error) {
	list, err := f.client.LRange(ctx, f.keys.history, 0, mostFiles-1).Result()
	if err != nil {
		return nil, 0, f.commandError(err)
	}

	all = []Pushed{}
	for _, entry := range list {
		number, entry, _ := strings.Cut(entry, " ")
		at, entry, _ := strings.Cut(entry, " ")

		var k kept
		if json.Unmarshal([]byte(entry), &k) != nil {
			continue
		}

		if p, ok := pushedOf(number, at, k.Generation, k.By, k.Reason); ok {
			p.Text = []byte(k.Text)
			all = append(all, *p)
		}
	}

	return all, len(list) - len(all), nil
}

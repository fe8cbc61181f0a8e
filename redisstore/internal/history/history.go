// Package history is a node's memory of the budgets that it used: how many
// starts there were and when, the last reply of Redis, when their pauses
// end, and how far the servers' clocks are ahead of the node's. A Redis that
// lost budgets gets them back from this memory: see docs/internals/state-loss.md. The package
// does no I/O, and callers pass the time in.
package history

import (
	"cmp"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// MaxBudgets bounds how many budgets a node remembers.
const MaxBudgets = 1 << 14

// A History is a node's memory of each budget, by the budget's key in Redis.
type History struct {
	mu      sync.Mutex
	budgets map[string]*Budget
}

// New returns a History that knows nothing.
func New() *History { return &History{budgets: make(map[string]*Budget)} }

// Restore returns the History of a Snapshot.
func Restore(snapshot map[string]Budget) *History {
	h := New()
	for key, b := range snapshot {
		h.budgets[key] = b.clone()
	}
	return h
}

// Snapshot returns a copy of all that is known.
func (h *History) Snapshot() map[string]Budget {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[string]Budget, len(h.budgets))
	for key, b := range h.budgets {
		all[key] = *b.clone()
	}
	return all
}

// Known returns the part of a budget's history that every booking for the group tells Redis, in case
// Redis lost the budget. It is zero for a budget that the node does not remember. serverTime is the server's
// time if a script has asked with it (see clockSample), and otherwise 0.
func (h *History) Known(key, group string, now time.Time, serverTime int64) wire.Known {
	h.mu.Lock()
	defer h.mu.Unlock()

	b := h.budgets[key]
	if b == nil {
		return wire.Known{}
	}

	k := b.Last.clockSample(now, serverTime)
	k.Record = b.Last.record(group, now)

	// Redis needs only starts that still matter, the latest first.
	if !b.Expired(now) {
		k.Generations, k.Older = b.toReport(), b.Older
		for _, s := range slices.Backward(b.Starts) {
			k.Starts.Add(wire.Sample{Ago: now.Sub(s.By), Count: s.Count})
		}
	}

	return k
}

// An Observation is the part of a reply that is about one budget.
type Observation struct {
	Reply       Reply
	Generations [Generations]Generation
	Older       wire.Older
	Starts      Sample        // that count now
	Keep        time.Duration // for how long starts matter
}

// Observe remembers a reply about a budget. It reports whether Redis had
// lost the budget.
func (h *History) Observe(key string, o Observation, now time.Time) (lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()

	b := h.budget(key)

	// A generation that this node has not heard of is a new row: Redis has lost the old one.
	lost = !b.Expired(now) && !slices.ContainsFunc(b.Generations[:], func(g Generation) bool { return g.ID == o.Generations[0].ID })
	if o.Reply.By.IsZero() {
		o.Reply = o.Reply.withTime(b.Last, now) // a repeated reply has no By of its own
	}

	// The starts that are new to this node, by the counts of the generations, and by how many more count now than this node knows. The larger number
	// is safe, but no more than all that count now can be new.
	byGenerations, byCount := b.newStarts(o.Generations, o.Older), o.Starts.Count-b.startsSince(now.Add(-o.Keep))
	added := min(o.Starts.Count, max(byGenerations, byCount))
	b.Generations, b.Older, b.Keep, b.Last = o.Generations, o.Older, max(o.Keep, b.Keep), o.Reply
	if added > 0 {
		b.Add(Sample{o.Starts.By, added})
	}

	return lost
}

// LastStart returns when the last start of a budget is, as far as is known; the zero
// time if there is none.
func (h *History) LastStart(key string) (last time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.budgets[key]; b != nil && len(b.Starts) > 0 {
		last = b.Starts[len(b.Starts)-1].By
	}
	return last
}

// AddUnreported remembers starts of which Redis does not know, none of them later than
// the sample's By, as a generation of their own until MarkReported: see
// docs/internals/shares.md.
func (h *History) AddUnreported(key string, starts Sample, keep time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()

	// The generation gets an ID with the ordinal of the present one, and a random number, so that no other node has the same.
	b := h.budget(key)
	if b.Unreported.ID == 0 {
		// Without a present generation it must not seem to be older than the generations of other nodes.
		ordinal := int64(wire.LastOrdinal)
		if present := b.Generations[0].ID; present != 0 {
			ordinal = present / wire.Names
		}
		b.Unreported.ID = ordinal*wire.Names + 1 + rand.Int64N(wire.Names-1)
	}

	b.Unreported.Count += starts.Count
	b.Keep = max(b.Keep, keep)
	b.Add(starts)
}

// HasUnreported reports whether a budget has unreported starts that still matter.
func (h *History) HasUnreported(key string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.budgets[key]
	return b != nil && b.Unreported.ID != 0 && !b.Expired(now)
}

// MarkReported notes that Redis was told of a budget's unreported starts. It is for the
// reply to a call that was made after they were added.
func (h *History) MarkReported(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.budgets[key]; b != nil {
		b.Unreported = Generation{}
	}
}

// announceEvery is for how long one announcement of a loss is enough.
const announceEvery = time.Second

// NoteLoss notes that a budget was lost. It reports whether the loss is news: the node
// remembers the budget, and no loss of it was news within announceEvery.
func (h *History) NoteLoss(key string, now time.Time) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.budgets[key]
	if b == nil || now.Sub(b.lostAt) < announceEvery {
		return false
	}
	b.lostAt = now
	return true
}

// budget returns the history of a budget. If there are too many budgets it forgets one at random.
func (h *History) budget(key string) *Budget {
	b := h.budgets[key]
	if b != nil {
		return b
	}

	if len(h.budgets) >= MaxBudgets {
		for other := range maps.Keys(h.budgets) { // in random order
			delete(h.budgets, other)
			break
		}
	}

	b = new(Budget)
	h.budgets[key] = b
	return b
}

// Generations is how many generations of a row have a name, at most.
const Generations = wire.Lives

// A Generation of a row, whose ID is 0 if there was none.
type Generation = wire.Generation

// A Sample says that Count starts came to be known, and that none of them is later
// than By.
type Sample struct {
	By    time.Time
	Count int64
}

// A QuotaReply is the store's reply to a report of a quota.
type QuotaReply struct {
	Left       int64      // as the store has it
	Generation Generation // of the row: its present one, and how many starts it had
}

// A quotaReply is the last QuotaReply, and when it came.
type quotaReply struct {
	QuotaReply
	asked time.Time // when the store was told of a quota last
	at    time.Time // when the store replied
	end   time.Time // of the window that the reply was about

	told   store.Limit // the limit that the store was told last, and when
	toldAt time.Time
}

// A Budget is a node's memory of one budget. Its zero value knows nothing.
type Budget struct {
	Generations [Generations]Generation // the present one first
	Older       wire.Older
	Unreported  Generation    // of starts that no row has; the zero Generation if there are no such starts
	Starts      []Sample      // the oldest first
	begun       time.Time     // the By of the starts that came first into the last sample
	Keep        time.Duration // for how long starts matter
	Last        Reply
	quota       quotaReply
	lostAt      time.Time // when a loss was news last: see NoteLoss
}

// clone returns a copy that shares no memory with the budget.
func (b *Budget) clone() *Budget {
	c := *b
	c.Starts = slices.Clone(b.Starts)
	return &c
}

// Expired reports whether all starts are too long ago to matter.
func (b *Budget) Expired(now time.Time) bool {
	last := len(b.Starts) - 1
	return last < 0 || now.Sub(b.Starts[last].By) > b.Keep
}

// Add remembers some starts. It adds them to the last sample if that began less than a part of the window before them. So
// samples begin a part apart or more, and a sample that makes room is older than a window.
func (b *Budget) Add(s Sample) {
	// Samples stay in order: a later By is still an upper bound.
	last := len(b.Starts) - 1
	if last >= 0 && s.By.Before(b.Starts[last].By) {
		s.By = b.Starts[last].By
	}

	// Parts are rounded up, so that all of them are a window.
	if last >= 0 && s.By.Sub(b.begun) < (b.Keep+wire.Parts-1)/wire.Parts {
		b.Starts[last] = Sample{s.By, b.Starts[last].Count + s.Count}
		return
	}

	// The oldest sample makes room.
	if len(b.Starts) > wire.Parts {
		b.Starts = append(b.Starts[:0], b.Starts[1:]...)
	}
	b.Starts, b.begun = append(b.Starts, s), s.By
}

// startsSince counts the starts of which the node knows that may have been at a time or later.
func (b *Budget) startsSince(t time.Time) (n int64) {
	for _, s := range b.Starts {
		if !s.By.Before(t) {
			n += s.Count
		}
	}
	return n
}

// toReport returns the generations that are reported to Redis. The generation of unreported starts comes first, if there
// is one.
func (b *Budget) toReport() (all [Generations + 1]Generation) {
	if b.Unreported.ID == 0 {
		copy(all[:], b.Generations[:])
		return all
	}
	all[0] = b.Unreported
	copy(all[1:], b.Generations[:])
	return all
}

// newStarts counts the starts of a reply that this node does not know yet. told are the generations that the reply names,
// and toldOlder the starts of all older ones. Generations that are too old for one of the two lists, the reply's and this
// node's, are compared by the sum of their starts and of the older starts.
func (b *Budget) newStarts(told [Generations]Generation, toldOlder wire.Older) (sum int64) {
	// A generation below oldest may have no name in one of the lists. older is by how much the reply's sum of these is larger.
	oldest := max(oldestOf(told), oldestOf(b.Generations))
	older := toldOlder.Count - b.Older.Count

	// Each generation that both lists can name counts by itself.
	for _, g := range told {
		if g.ID < oldest {
			older += g.Count
		} else {
			sum += max(0, g.Count-b.count(g.ID))
		}
	}

	for _, g := range b.Generations {
		if g.ID < oldest {
			older -= g.Count
		}
	}

	return sum + max(0, older)
}

// oldestOf returns the ID of the oldest generation, or 0 if the list is not full.
func oldestOf(all [Generations]Generation) int64 {
	oldest := all[0].ID
	for _, g := range all {
		oldest = min(oldest, g.ID)
	}
	return oldest
}

// count is how many starts of a generation are known.
func (b *Budget) count(id int64) int64 {
	if b.Unreported.ID == id {
		return b.Unreported.Count
	}
	for _, g := range b.Generations {
		if g.ID == id {
			return g.Count
		}
	}
	return 0
}

// An upstream may say with every response how much of a quota is left. Nearly always the store knows
// that already, and a second call for each request would be a high price. So a node compares the quota with its
// own estimate, and tells the store only where programs outside of the fleet seem to have spent. See
// docs/internals/booking.md.

// repeatAfter is the shortest time between two reports of one budget: responses say much the same while the store
// is being told.
const repeatAfter = 100 * time.Millisecond

// toldAgain is how often the store is told a limit that it was told before.
const toldAgain = 30 * time.Second

// ReportsQuota decides whether the store should be told of a quota, and notes that it will be. It also returns the ID of
// the generation of the budget's row that the node knows. If the node knows no starts that still matter, the ID is 0, and
// the store is told each time.
func (h *History) ReportsQuota(key string, c *store.Charge, q store.Quota, now time.Time) (generation int64, report bool) {
	h.mu.Lock()
	defer h.mu.Unlock()

	// Without starts that matter the node has no estimate, so the store decides.
	b := h.budgets[key]
	if b == nil || b.Expired(now) {
		return 0, true
	}

	// Where the upstream tells the limit, the quota is about the window of that limit.
	news := false
	if c.Limit.Kind() == store.KindTold {
		known := &b.quota
		news = q.Told != (store.Limit{}) && (q.Told != known.told || now.Sub(known.toldAt) >= toldAgain)
		c = underTold(c, cmp.Or(q.Told, known.told))

		// Without a told limit nobody can say how much is left.
		if c.Limit.Kind() == store.KindTold {
			return b.Generations[0].ID, false
		}
	}

	// The upstream had not counted the starts of the last q.Age. Into a bucket tokens have flowed in that time, too: both are left out.
	left := int64(q.Left)
	if q.Age > 0 && c.Limit.Kind() != store.KindTokenBucket {
		left -= b.startsSince(now.Add(-q.Age))
	}

	// Without a reset, the quota of a window says nothing of what is left now.
	isAboutNow := q.Reset > 0 || c.Limit.Kind() == store.KindTokenBucket
	less := isAboutNow && left+tolerance(c) < b.estimatedLeft(c, q, now)
	report = (news || less) && now.Sub(b.quota.asked) >= repeatAfter
	if report {
		b.quota.asked = now
	}

	return b.Generations[0].ID, report
}

// ObserveQuota remembers the store's reply to a report, if the node remembers the budget.
func (h *History) ObserveQuota(key string, c *store.Charge, q store.Quota, r QuotaReply, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()

	// The told limit stays known when a later report has none.
	if b := h.budgets[key]; b != nil {
		told, at := b.quota.told, b.quota.toldAt
		if q.Told != (store.Limit{}) {
			told, at = q.Told, now
		}

		// The reply is about the window of the told limit.
		if c.Limit.Kind() == store.KindTold {
			c = underTold(c, told)
		}

		_, end := windowOf(c, q, now)
		b.quota = quotaReply{QuotaReply: r, asked: b.quota.asked, at: now, end: end, told: told, toldAt: at}
	}
}

// underTold returns a copy of the charge with the told limit in place of its own. If told is the zero limit, the copy keeps
// its own.
func underTold(c *store.Charge, told store.Limit) *store.Charge {
	own := *c
	own.Limit = cmp.Or(told, c.Limit)
	return &own
}

// estimatedLeft returns how much of a budget is left as far as the node knows: the last reply of the store about this
// window, less the starts since; or, without a reply about this window, the limit less the starts that the node knows.
func (b *Budget) estimatedLeft(c *store.Charge, q store.Quota, now time.Time) int64 {
	n, last := int64(c.Limit.Capacity()), &b.quota

	// The last reply was about a row or a window that is gone.
	if last.Generation.ID != b.Generations[0].ID || !now.Before(last.end) {
		begin, _ := windowOf(c, q, now)
		return n - b.startsSince(begin)
	}

	// The store's figure was right when it came; starts since then have taken from it.
	left := last.Left - (b.Generations[0].Count - last.Generation.Count)
	if c.Limit.Kind() == store.KindTokenBucket {
		left = min(n, left+refill(c, now.Sub(last.at)))
	}
	return left
}

// windowOf returns the window that a quota is about, from the first moment whose starts may count in
// it. For a bucket the window begins before now, and ends after now, by the time that the bucket takes to fill up.
func windowOf(c *store.Charge, q store.Quota, now time.Time) (begin, end time.Time) {
	switch c.Limit.Kind() {
	case store.KindFixedWindow:
		return c.Limit.Window(now)
	case store.KindTokenBucket:
		return now.Add(-c.Span()), now.Add(c.Span())
	}
	end = now.Add(min(q.Reset, c.Span()))
	return end.Add(-c.Span() - wire.Doubt), end
}

// tolerance returns by how much a quota may fall short of the estimate without a report: by what
// flows into a bucket within a second, and by nothing in a window.
func tolerance(c *store.Charge) int64 {
	if c.Limit.Kind() != store.KindTokenBucket {
		return 0
	}
	return refill(c, time.Second)
}

// refill returns how many whole tokens flow into a bucket within d.
func refill(c *store.Charge, d time.Duration) int64 {
	tokens, micros := c.Refill()
	return int64(float64(d/time.Microsecond) * float64(tokens) / float64(micros))
}

// PauseEnds are the ends of the pauses that a node knows, by the keys of their
// budgets. Of the node's two PauseEnds, the next booking reports Pauses to Redis,
// in case Redis forgot, but not Shut.
type PauseEnds struct {
	any  atomic.Bool // there may be some
	mu   sync.Mutex
	ends map[string]time.Time
}

// MaxPauses bounds how many pauses a node remembers.
const MaxPauses = 1 << 12

// RestorePauseEnds returns the PauseEnds of a Snapshot. A nil Snapshot holds none.
func RestorePauseEnds(snapshot map[string]time.Time) *PauseEnds {
	p := &PauseEnds{ends: make(map[string]time.Time, len(snapshot))}
	maps.Copy(p.ends, snapshot)
	p.any.Store(len(snapshot) > 0)
	return p
}

// Snapshot returns a copy of all that is known.
func (p *PauseEnds) Snapshot() map[string]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.ends)
}

// Note remembers a pause that is not over yet, unless MaxPauses of other budgets are in force already. Of several ends of a
// pause the latest counts.
func (p *PauseEnds) Note(key string, end, now time.Time) {
	if !end.After(now) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()

	// Pauses that are over make room for new ones.
	if len(p.ends) >= MaxPauses {
		p.sweep(now)
	}
	known, ok := p.ends[key]
	if (ok || len(p.ends) < MaxPauses) && known.Before(end) {
		p.ends[key] = end
		p.any.Store(true)
	}
}

// Forget is for a pause that was lifted.
func (p *PauseEnds) Forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ends, key)
}

// End returns when a pause ends; the zero time if none is known.
func (p *PauseEnds) End(key string) (end time.Time) {
	if p.Empty() {
		return end
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends[key]
}

// Empty reports, without the lock, that no pause is known. It may also be false if none is.
func (p *PauseEnds) Empty() bool { return !p.any.Load() }

// Known returns the pauses in force of some budgets, and forgets all pauses that are over.
func (p *PauseEnds) Known(keys iter.Seq[string], now time.Time) (all []wire.Pause) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.sweep(now)
	if len(p.ends) == 0 {
		return nil
	}

	// Several charges may have one budget.
	seen := make(map[string]bool)
	for key := range keys {
		if end, ok := p.ends[key]; ok && !seen[key] {
			seen[key] = true
			all = append(all, wire.Pause{Key: key, Left: end.Sub(now)})
		}
	}

	return all
}

// sweep forgets the pauses that are over. The ends are locked.
func (p *PauseEnds) sweep(now time.Time) {
	maps.DeleteFunc(p.ends, func(_ string, end time.Time) bool { return !end.After(now) })
	p.any.Store(len(p.ends) > 0)
}

// RecordTime is for how long Redis surely remembers a call: see docs/internals/once.md.
const RecordTime = wire.RecordTime - 5*time.Second

// suspendThreshold is by how much the two clocks of a computer may differ about how
// long ago something was. The monotonic clock stands still while a computer is suspended.
const suspendThreshold = time.Second

// A Reply is the last call whose reply spoke of a budget. Times of the server are
// microseconds of its clock.
type Reply struct {
	Group      string    // that the call was for
	Number     int64     // of the call
	Sent       time.Time // when the call was sent
	ServerTime int64     // the server's time in the reply, or 0 before the first reply
	By         time.Time // upper bound on when it was ServerTime; the zero time in a repeated reply

	Age time.Duration // in a repeated reply: how long before the reply the server's time was ServerTime
}

// withTime returns r, a repeated reply, with its By set. r was decided later than last, the reply before, by the difference
// of their server times. Without a last reply, r was decided r.Age before it was received.
//
// If the server's clock was set between the two replies, By is wrong by as much. A By that is too early makes the clock
// seem to have been set back since, which is the safe mistake. A By that is too late hides that the clock was set back,
// which lets windows last longer.
func (r Reply) withTime(last Reply, received time.Time) Reply {
	r.By = received.Add(-r.Age)
	if !last.By.IsZero() {
		r.By = last.By.Add(Between(last.ServerTime, r.ServerTime))
	}

	// The server cannot have decided after its reply was received.
	if r.By.After(received) {
		r.By = received
	}
	return r
}

// record returns a lower bound on the number in the record of the group's calls,
// or 0 if there may be no record.
func (r Reply) record(group string, now time.Time) int64 {
	if r.Group != group || now.Sub(r.Sent) > RecordTime {
		return 0
	}
	return r.Number
}

// clockSample returns the lengths of time by which a script finds out that its server's clock was set. A script that
// suspects that its clock was set forward may have been called late, so it answers with its time, serverTime, and the
// call is made again. Then the clocks can be compared. If no script has asked, serverTime is 0.
func (r Reply) clockSample(now time.Time, serverTime int64) wire.Known {
	s := wire.Known{ServerTime: r.ServerTime}
	s.Elapsed, s.Clock = Elapsed(r.Sent, now)
	if !r.By.IsZero() {
		s.AtLeast = max(0, now.Sub(r.By))
	}

	// The script asks, so the answer is either that the clock was set forward, because more time has passed on it than on this node's, or that nobody can tell.
	if serverTime != 0 && s.Clock == wire.ElapsedKnown {
		passed := micros(s.Elapsed)
		s.Clock = wire.ElapsedUnknown
		if serverTime-r.ServerTime > passed+micros(wire.Stall)+passed/wire.Steady {
			s.Clock = wire.SetForward
		}
	}

	return s
}

// Elapsed is how long ago something was. It is unknown if then is the zero time, or if the
// computer was suspended meanwhile.
func Elapsed(then, now time.Time) (time.Duration, wire.Clock) {
	if then.IsZero() {
		return 0, wire.ElapsedUnknown
	}
	d := now.Sub(then)

	// The wall clock goes on while a computer is suspended, and the monotonic clock does not.
	if (now.Round(0).Sub(then.Round(0)) - d).Abs() > suspendThreshold {
		return 0, wire.ElapsedUnknown
	}
	return d, wire.ElapsedKnown
}

// DecidedAt is for a repeated reply: Redis had done an earlier copy of the call. It returns a time of the server's clock,
// at, which the clock showed at some moment from since to received.
//
// The copy was sent at sent, and the reply was received at received. decided is the server's time when it did the copy, and
// now is its time in the reply. Usually at is now, and since is later than sent by now - decided. If the node's computer was
// suspended meanwhile, since is sent. If now is before decided, or later than the time since the copy was sent allows, the
// server's clock was set meanwhile: then at is decided, and since is sent. If the clock was set back by less, since is too
// early by as much, and a caller that waits for a start may find that the start is too old.
func DecidedAt(sent, received time.Time, decided, now int64) (at int64, since time.Time) {
	passed := now - decided
	elapsed, clock := Elapsed(sent, received)

	// The time since the copy was sent is an upper bound on the time since the server decided.
	maxPassed, known := micros(elapsed), clock == wire.ElapsedKnown
	switch {
	case passed < 0 || known && passed > maxPassed+maxPassed/wire.Steady:
		return decided, sent
	case !known:
		return now, sent
	}
	return now, sent.Add(time.Duration(passed) * time.Microsecond)
}

// Between is the length of time between two times of a server, at most [store.MaxAhead]. It is below 0 if the second
// time is earlier.
func Between(from, to int64) time.Duration {
	farthest := micros(store.MaxAhead)
	return time.Duration(min(max(-farthest, to-from), farthest)) * time.Microsecond
}

// micros returns d in microseconds, rounded up: it is safe to believe that more time has passed.
func micros(d time.Duration) int64 {
	m := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		m++
	}
	return m
}

// ClockOffsets are how far the servers' clocks are ahead of the node's, by group: the
// budgets of one group are on one server.
type ClockOffsets struct {
	mu  sync.Mutex
	all map[string]*offset
}

// An offset lies between two bounds. A reply that tells the server's time was decided
// after it was asked for and before it was received, so each reply is a pair of bounds,
// and the fastest reply that was ever received has the best. Where between its bounds the offset lies is not
// known, and may differ from node to node.
type offset struct {
	lower, upper time.Duration
	seen         time.Time
	replies      int // that agree
}

const (
	maxOffsets    = 1 << 12
	enoughReplies = 3
	drift         = 2000 // two clocks drift apart by at most one part in drift
)

// origin is the time from which the node's times count.
var origin = time.Now()

// NewClockOffsets returns ClockOffsets that know nothing.
func NewClockOffsets() *ClockOffsets { return &ClockOffsets{all: make(map[string]*offset)} }

// Observe learns from a reply that told the server's time.
func (c *ClockOffsets) Observe(group string, serverTime int64, sent, received time.Time) {
	// The server read its clock between sent and received, and cut off less than a microsecond.
	at := time.Duration(serverTime) * time.Microsecond
	lower, upper := at-received.Sub(origin), at+time.Microsecond-sent.Sub(origin)
	c.mu.Lock()
	defer c.mu.Unlock()

	o := c.all[group]
	if o == nil {
		// The bound keeps memory small. To forget all costs a few replies until offsets are known again.
		if len(c.all) >= maxOffsets {
			clear(c.all)
		}
		c.all[group] = &offset{lower, upper, received, 1}
		return
	}

	// Clocks drift apart, so the old bounds are worth less with time; the new reply has bounds of its own.
	doubt := received.Sub(o.seen) / drift
	o.lower, o.upper, o.seen = max(o.lower-doubt, lower), min(o.upper+doubt, upper), received

	// The bounds contradict each other: a clock was set, or a failover led to a new server.
	if o.lower > o.upper {
		o.lower, o.upper, o.replies = lower, upper, 0
	}

	o.replies++
}

// Until returns how long it is until a time of the group's server has surely come, below 0 if it has come, and how much
// earlier it may come. Both are known only once enoughReplies replies agree.
func (c *ClockOffsets) Until(group string, serverTime int64, now time.Time) (wait, doubt time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.all[group]
	if o == nil || o.replies < enoughReplies {
		return 0, 0, false
	}
	return time.Duration(serverTime)*time.Microsecond - o.lower - now.Sub(origin), o.upper - o.lower, true
}

package throttle

import (
	"context"
	"encoding/hex"
	"time"
)

// A Store keeps budgets and books starts in them. memstore keeps them for one
// process, redisstore for a fleet; package storetest is the contract that
// every Store must pass. Most users only construct one.
//
// A Store decides by its own clock, and only durations and opaque keys cross
// this interface: no caller's wall clock ever does. All methods are safe for
// concurrent use.
type Store interface {
	// Book finds the earliest start at which every charge of the booking
	// has room, books it in all of them in one atomic step and says how long
	// it is until then. A refusal spends nothing. Book does not wait for the
	// start; it waits for the store itself at most as long as ctx and
	// b.MaxWait allow and then returns an error, which says why the store did
	// not answer, as far as that is known, and matches what ended ctx. An error
	// means that nothing stays booked, or that it will be given back.
	//
	// Concurrency charges are held from the start until Release. When they will have
	// room cannot be known beforehand, so they are taken at the start or not at all:
	//
	//   - If the other charges make the booking wait, those are booked as
	//     usual and the Concurrency ones are not looked at. When the wait is over
	//     the caller books again, with Instead.
	//   - If there is no wait and they have no room, nothing is booked, and the
	//     caller gets a place in line: see Grant.Ready.
	Book(ctx context.Context, b *Booking) (Grant, error)

	// Cancel gives back a grant that was not used, or a place in line, at most
	// once. It does not block for long and reports nothing: a store that
	// cannot be reached keeps the place, which is safe.
	Cancel(b *Booking, g Grant)

	// Release ends what a granted booking holds of its Concurrency charges, at
	// most once, and wakes the first waiter in line. The other charges stay
	// booked. It does not block for long and reports nothing: a store that cannot be
	// reached learns of it later, or forgets the charges within 30 seconds.
	Release(b *Booking, g Grant)

	// Settle changes what a granted start cost, to costs[i] for b.Charges[i],
	// after the fact: more is booked at the start's own time even if there is
	// no room, less is given back. Concurrency and Unlimited charges, and starts that
	// no longer count, stay as they are. Costs are not negative and at most 2^40.
	Settle(ctx context.Context, b *Booking, g Grant, costs []int) error

	// Pause closes a budget for d, counted from now by the store's clock:
	// no booking made from now on starts earlier, and every Watch says so of
	// the starts booked before. Of several pauses the latest end counts. When
	// it is over one start goes first and the budget fills up slowly: see
	// docs/bans.md.
	Pause(ctx context.Context, c Charge, d time.Duration) error

	// Refuse closes a budget as Pause does, because the upstream refused a request. A
	// refusal that comes right after the end of the last one closes the budget for longer
	// than it says: see docs/bans.md. If the charge is Adaptive, and the refused start is
	// evidence that the upstream allows less than the limit, it lowers the budget's
	// ceiling: see docs/learning.md. It returns the ceiling before and after, which is how
	// much of Limit.N may be used. They are equal if nothing was learned.
	Refuse(ctx context.Context, c Charge, r Refusal) (from, to float64, err error)

	// Resume ends all pauses of a budget, and the slow start after them, and forgets
	// how long they were, and its ceiling.
	Resume(ctx context.Context, c Charge) error

	// Reconcile lowers what is left of a budget to what its upstream says. It never
	// raises it, and does nothing to LeakyBucket, Concurrency and Unlimited charges. A
	// store may skip a report that changes too little to be worth a call.
	Reconcile(ctx context.Context, c Charge, q Quota) error

	// Watch sees to it that the caller of a granted booking learns of a pause
	// before the start. It keeps nothing of the booking but the Charges, which do
	// not change until the watch is stopped.
	Watch(b *Booking, g Grant, news chan<- struct{}) Watch

	// Status describes one budget. It changes nothing.
	Status(ctx context.Context, c Charge) (Status, error)
}

// A PauseNoter is a Store that knows what operators said who closed budgets by hand.
// Package redisstore/fleet has one. Errors and events repeat it.
type PauseNoter interface {
	// PauseNote returns what was said of the pause that closes the budget now; zero if
	// there is none, or nothing is known of it. It does not block.
	PauseNote(b Budget) PauseNote
}

// A CallingStore is a Store that calls each waiter when its turn comes, without a trip to another program or a server. So callers with a
// share are booked right before their starts, and one that comes by itself has its part beside those that wait already.
// A Store that wraps another has a method Unwrap() Store instead.
type CallingStore interface {
	Store

	// CallsWaiters does nothing. It says that the store closes Grant.Ready in time however near the Horizon is.
	CallsWaiters()
}

// callsWaiters reports whether a store, or one that it wraps, is a CallingStore.
func callsWaiters(s Store) bool {
	for {
		if _, calls := s.(CallingStore); calls {
			return true
		}
		wrapper, ok := s.(interface{ Unwrap() Store })
		if !ok {
			return false
		}
		s = wrapper.Unwrap()
	}
}

// A PlaceKeeper is a Store whose callers can leave their place in line, and come back to it in another
// program: see [Limiters.Reserve]. Its methods are optional; without them there are no places. A Store that
// wraps another has a method Unwrap() Store instead: then the places are those of the store inside.
type PlaceKeeper interface {
	// KeepTurn returns what a Turn says of a caller that has left its line, by Cancel or because it
	// was refused. The caller may never come back, and the store keeps nothing of it. t is
	// nil if the caller was in no line.
	KeepTurn(b *Booking, t Turn) []byte

	// RestoreTurn returns the Turn of a caller that comes back, for a Booking with Returns, with the same budgets and
	// the same priority as b. It returns false if the bytes are not from a store of the same kind with the same budgets.
	// Nothing else may depend on what the bytes say but the order of callers.
	RestoreTurn(b *Booking, kept []byte) (Turn, bool)

	// Appoint returns in how long a caller that leaves should come again: after wait, which the store told
	// it, or later, so that callers of the charge that leave one after the other come one after
	// the other. again says that the caller came back and leaves once more; those have appointments
	// of their own. An appointment holds nothing of the budget.
	Appoint(ctx context.Context, c Charge, wait time.Duration, again bool) (time.Duration, error)
}

// A Watch is kept by a Store over one booked start, from the booking until the
// start is used or given back.
//
// While it lasts the store sends on the news channel, without blocking, when the
// start may have become useless. News comes at once where that is possible. It may
// get lost, and it may be wrong: Confirm decides.
type Watch interface {
	// Confirm reports whether the start may still be used. It must return false if
	// a pause that was stored before the call ends later than the start. It may return
	// false if a pause was lifted, because there may be an earlier start now. After
	// false the caller books again, with Instead. Confirm waits for the store at
	// most as long as ctx and maxWait allow, which means what Booking.MaxWait does;
	// after an error the answer is unknown.
	Confirm(ctx context.Context, maxWait time.Duration) (bool, error)

	// Stop ends the watch. It may be called more than once.
	Stop()
}

// A Budget names what one policy counts for one key. Budgets of one booking
// share their Group, so that a store spread over several servers can keep
// them together.
type Budget struct {
	Policy string   // the policy's name
	Group  string   // policies that can match the same request share it
	Key    [16]byte // a hash of the policy's name and the key: the key itself stays in the program
}

// String returns the policy's name and the hashed key, for logs and metrics.
func (b Budget) String() string { return b.Policy + "/" + hex.EncodeToString(b.Key[:6]) }

// A Charge is what one request costs one budget.
type Charge struct {
	Budget Budget
	Limit  Limit
	Cost   int           // at least 1 and at most Limit.Capacity
	Jitter time.Duration // resolved: 0 means none, a microsecond the part that the store's clock leaves out; see Policy.Jitter
	Shadow bool          // counts, but neither holds nor refuses
	Node   bool          // the budget is this Store's own and not the fleet's; see Policy.Scope

	// Adaptive says that the budget's ceiling counts, if it has one: starts are booked
	// as if the limit were so much smaller, but a cost that is larger fits an idle
	// budget. See Store.Refuse.
	Adaptive bool

	// Reserve is how much of the limit the start must leave free: it is
	// booked as if the limit, or the burst of a TokenBucket, were so much smaller.
	// Later starts may use what it left.
	Reserve int

	// Pace is for SlidingWindow charges. If it is not 0 and the charge alone makes
	// the request wait, the start keeps Pace times its own cost away from all
	// others still to come. So a queue does not leave in bursts.
	Pace time.Duration

	// Share is the part of the budget's callers to which the caller belongs: see [Share].
	Share Share
}

// A Share is a part of the callers of one budget: a tenant, a job, an agent. While callers wait
// in the budget's line, the shares with callers of one priority take turns, by weight. Within a
// share the first to come is the first served. The zero Share is that of all callers
// without one.
type Share struct {
	ID     uint64 // a hash of the policy's name and the share's name, below 2^53; 0: no share
	Weight int    // 1 to 1000; 0 means 1
}

// AnyWait is the MaxWait of a caller that waits as long as it has to.
const AnyWait time.Duration = -1

// A Booking asks for one start that all its charges have room for.
type Booking struct {
	Charges []Charge

	// MaxWait is the longest wait that is of use; a start later than that
	// is refused. Negative, as [AnyWait] is: any wait is. A Book that never waits has 0.
	MaxWait time.Duration

	// NotBefore is the least wait: no start earlier than that is booked.
	NotBefore time.Duration

	// Horizon is how far ahead a start is booked at the most. If the earliest
	// start is later than that, or earlier callers wait for a budget of the
	// booking, the caller gets a place in line: see Grant.Ready. 0: every start is
	// booked at once, and no line counts.
	Horizon time.Duration

	// Priority decides among the waiters in line; within a priority the first to
	// come is the first served.
	Priority Priority

	// Turn is Grant.Turn of the last answer to the same caller. A caller that
	// passes it on keeps its arrival, also if the limits of its charges changed.
	Turn Turn

	// Returns says that the caller has had a start or a place before, and gives it
	// up or has lost it. Without a Turn, it goes before all waiters in line.
	Returns bool

	// Spread says that the start may be used up to this much later than
	// the charges' Jitter covers, so the store must leave that much more
	// room behind it.
	Spread time.Duration

	// Instead, if not zero, is the handle of a place in line, or of an unused grant
	// for the same charges with the same Spread. It is given back in the same step,
	// even if the booking is then refused. A booking instead of a place in line
	// may add or leave out charges other than Concurrency. A grant that holds
	// Concurrency charges is cancelled, not replaced. After an error Instead counts
	// as given back: it may have been, and a second time would give back another's.
	Instead Handle
}

// A Handle names what a store gave to a caller: a booked start, or a place in the line of
// a Concurrency charge. It is opaque to all but the store that made it: its fields are for
// authors of stores. The zero Handle names nothing.
type Handle struct {
	Start int64 // names a booked start; 0: none
	Place int64 // names a place in line; 0: none
	Stamp int64 // what else the store wants to know of the grant in Watch

	// Local says that the start is one of a store that stands in for another while that
	// is away.
	Local bool

	// Node is the part of a store that keeps Node charges apart; nil: none.
	Node *Handle
}

// A Turn is what a store remembers of a caller that waited: when it came to the
// line of each budget that held it back. It is the store's own and opaque; nil: none.
type Turn any

// NotHeld is the Held of a grant that no charge held back.
const NotHeld = -1

// A Grant is the store's answer to a Booking.
type Grant struct {
	// OK says that the start is booked. Otherwise nothing was, and Wait
	// says how long it would have been; Never if no wait helps. No store books a start
	// that is more than a hundred years ahead.
	OK   bool
	Wait time.Duration // until the start, from when Book returns; 0: now

	// Age is how long ago, at the most, the store decided when Book
	// returns: the time that its answer may have been on the way.
	Age time.Duration

	// Handle names the start for Cancel and Instead. It is not zero but for a place in
	// the line for a start, which Turn identifies.
	Handle Handle

	// Ready is set, and OK is not, if MaxWait is not 0 and the caller has a
	// place in line, by arrival, until it books again with Turn and with Handle as
	// Instead, or cancels. Either only Concurrency charges had no room, or the start
	// is beyond the Horizon; then Wait is a guess of how long it will be, more than 0
	// and at most MaxWait. Ready is closed when it is time to book again. A caller that
	// books again and has to wait gets another Ready, which is not closed before
	// something has changed.
	Ready <-chan struct{}

	// Turn is the caller's arrival, for Booking.Turn; nil if it did not wait in line.
	Turn Turn

	// Over says of each Shadow charge how much later the start would have been if the
	// charge counted; 0 if not at all. It may be nil if it says 0 of all.
	Over []time.Duration

	Held   int  // index of the charge that set the start, or NotHeld
	Paused bool // the charge at Held is closed by a penalty, if only for a part of the wait

	// Shares is set, and OK is not, if the caller's share got no place in the line of the charge at Held: the store tells so many shares
	// apart there, and as many others have callers. Else it is 0.
	Shares int
}

// A Refusal is an answer that said no.
type Refusal struct {
	Length time.Duration // for how long it closes the budget; 0: not at all
	Ago    time.Duration // how long ago the refused request was sent
	Took   time.Duration // how much of that its answer took; 0: all

	// Start is the grant of the refused start, for what its refusal teaches; without a
	// Handle it teaches nothing.
	Start Grant
}

// Status is what a budget looks like at one moment. Used, Booked and Waiting are sums of
// costs, as a limit is.
//
// Starts of a large limit are counted together for a 128th of its window. Once one of
// them has come, all of them are in Used: it never says less than has started, and what it
// says too much, Booked and Waiting say too little.
//
// Callers counts callers, and not those whose start is booked. Where a store lists only the first callers of a long line, the
// number of the others is an estimate by their costs: it is exact if all callers of the line cost the same. A store that cannot
// tell leaves it 0.
type Status struct {
	Limit   Limit
	Used    int           // of starts that have come and count now, and of what is in flight
	Booked  int           // of starts that are booked for later
	Waiting int           // of all that wait: with a start that is booked, or in line without one
	Callers int           // how many callers stand in line, whatever they cost: see below
	Wait    time.Duration // how long a request of cost 1 would wait if it came now
	Paused  time.Duration // how long a penalty still closes the budget; 0: open

	// Repeated is how many times in a row the last penalty was met again right after
	// its end, so that it lasts longer each time.
	Repeated int

	// Ceiling is how much of Limit.N an Adaptive policy may use at most, as far as the
	// fleet has learned, cut off after three decimals; 0 if the limit alone counts. It
	// rises with time. Windows hold whole starts.
	Ceiling float64

	// Shares are those whose callers stand in the line for a start, and those that had
	// turns just now beside them, by ID, and nil without shares: at most 128, and in memory any number. A store in which
	// shares take no turns leaves it nil.
	Shares []ShareStatus
}

// A ShareStatus is what one share of a budget's callers looks like at one moment. Callers without a
// share have the ID 0; those of shares beyond the most that a budget tells apart have the ID 1 together.
type ShareStatus struct {
	Share
	Waiting int // the costs of its callers in line
	Served  int // the costs of the turns that it had since its callers began to wait; -1: the store had no room to count them
}

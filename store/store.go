// Package store is the contract between those who wait for a start and the stores that keep
// budgets: a [Store] books a [Booking] of [Charge]s and answers with a [Grant].
//
// Programs that only limit their requests do not need this package: they construct a store, such as
// memstore.New, and pass it to package throttle, which has aliases for what such programs type. Package store is for
// authors of stores, and for programs that book starts themselves. Package storetest tests a store against the contract.
package store

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Store keeps budgets and books starts in them. memstore keeps them for one
// process, redisstore for a fleet; package storetest is the contract that
// every Store must pass. Most users only construct one.
//
// A Store decides by its own clock, and only durations and opaque keys cross
// this interface: no caller's wall clock ever does. All methods are safe for
// concurrent use.
//
// A method that has returned keeps neither the Booking nor its Charges, because the
// caller uses them again. Only a Watch looks at the Charges until it is stopped.
//
// What a store owes its callers after a refusal is on the pages about [bans] and
// [learning].
//
// [bans]: https://github.com/fleetthrottle/throttle/blob/main/docs/bans.md
// [learning]: https://github.com/fleetthrottle/throttle/blob/main/docs/learning.md
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
	// the page on bans.
	Pause(ctx context.Context, c Charge, d time.Duration) error

	// Refuse closes a budget as Pause does, because the upstream refused a request. A
	// refusal that comes right after the end of the last one closes the budget for longer
	// than it says: see the page on bans. If the charge is Adaptive, and the refused start is
	// evidence that the upstream allows less than the limit, it lowers the budget's
	// ceiling: see the page on learning. It returns the ceiling before and after, which is how
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

	// Traits returns what the store can do beyond the methods above. It never changes.
	Traits() Traits

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

	// PauseNote returns what an operator said of the pause that closes the budget now, for errors and events. It returns the
	// zero PauseNote if there is no pause, or if nothing is known of it. It does not block.
	PauseNote(b Budget) PauseNote
}

// Traits are what a store can do beyond what every store must.
type Traits struct {
	// Places says that callers can leave their place in line, and come back to it in another program, by KeepTurn,
	// RestoreTurn and Appoint. Without Places those three methods are not called.
	Places bool

	// SummonsWaiters says that the store calls each waiter when its turn comes, without a trip to another program or a
	// server: it closes Grant.Ready in time however near the Horizon is. So callers with a share are booked right before
	// their starts, and a caller that comes by itself has its part beside those that wait already.
	SummonsWaiters bool

	// InMemory is the store itself if its methods take no time, because all is in the memory of this process. So they are
	// called where callers of another store would be held. It is a pointer. A store around another one passes on the
	// Traits of that one, and so does not say of itself that it takes no time.
	InMemory Store

	// Err says what is wrong with what the store was made of, by a constructor that returns no error. Constructors of
	// package throttle refuse a store with an Err at once. Nil says that nothing is wrong.
	Err error
}

// An OptionError says that a constructor was given what cannot be meant, and what to write instead. Constructors
// report all mistakes at once, by [errors.Join].
type OptionError struct {
	Package string // the package of the constructor, such as "redisstore"
	Option  string // a field, such as "Options.Outage", or the name of an argument
	Problem string // what was given, and what to write instead
}

// Error implements error.
func (e *OptionError) Error() string { return e.Package + ": " + e.Option + ": " + e.Problem }

// Minimal has the methods of a [Store] with no [Traits] and no notes of operators. A store embeds Minimal, and adds the others.
type Minimal struct{}

// Traits implements [Store].
func (Minimal) Traits() Traits { return Traits{} }

// KeepTurn implements [Store].
func (Minimal) KeepTurn(*Booking, Turn) []byte { return nil }

// RestoreTurn implements [Store].
func (Minimal) RestoreTurn(*Booking, []byte) (Turn, bool) { return nil, false }

// Appoint implements [Store].
func (Minimal) Appoint(_ context.Context, _ Charge, wait time.Duration, _ bool) (time.Duration, error) {
	return wait, nil
}

// PauseNote implements [Store].
func (Minimal) PauseNote(Budget) PauseNote { return PauseNote{} }

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

	HeldBy int  // index of the charge that set the start, or NotHeld
	Paused bool // the charge at Held is closed by a penalty, if only for a part of the wait

	// Shares is set, and OK is not, if the caller's share got no place in the line of the charge at HeldBy: the store tells so many shares
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

// A Quota is what an upstream says is left of one budget. It is how the fleet
// hears of others that use the same budget: another team, a program that was not
// told of throttle.
type Quota struct {
	Left int // what may still be spent; below 0 means 0

	// Reset is how long it takes until the upstream gives something back, be it a
	// part. A [TokenBucket] does not need it; for other limits 0 makes the Quota void.
	// If nothing is left the budget closes for so long, at most [MaxPenalty] at a time,
	// also if that is longer than the limit's own window.
	Reset time.Duration

	// Age is how long ago Left was true: what the fleet has started since is spent,
	// too. The [Transport] sets it to the time that the answer took.
	Age time.Duration
}

// Never is the RetryAfter of a [LimitError] where no wait helps: the cost is above
// the limit, or the limit's next window is further away than any start is booked.
const Never = time.Duration(math.MaxInt64)

// MaxPenalty caps for how long an answer can close a budget, so that no
// answer, however wrong or hostile, stops a fleet for longer.
const MaxPenalty = 24 * time.Hour

// A PauseNote is what an operator said who closed a budget by hand; zero: nothing. It
// comes from where the fleet can write: print it with [PauseNote.String].
type PauseNote struct {
	By     string // who it was
	Reason string
}

// String returns one line without control characters, such as
// `paused by anna@desk: "the shop moves"`.
func (n PauseNote) String() string {
	text := "paused"
	if n.By != "" {
		text += " by " + strings.Trim(strconv.Quote(n.By), `"`)
	}
	if n.Reason != "" {
		text += ": " + strconv.Quote(n.Reason)
	}
	return text
}

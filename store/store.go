// Package store is the contract between callers that wait for a start and the stores that
// keep budgets: a [Store] books a [Booking] of [Charge]s and answers with a [Grant].
//
// Programs that only limit their requests do not need this package: they construct a store,
// such as memstore.New, and pass it to package throttle, which has aliases for the names
// that such programs type. Package store is for authors of stores, and for programs that
// book starts themselves. Package storetest tests a store against the contract.
package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"time"
)

// A Store keeps budgets and books starts in them. memstore keeps budgets for one process,
// redisstore for a fleet, and every Store must pass package storetest. Most users only
// construct a Store.
//
// A Store decides by its own clock. Only durations and opaque keys cross this interface,
// and no caller's wall clock. All methods are safe for concurrent use.
//
// A method that has returned keeps neither the Booking nor its Charges, because the caller
// uses them again. Only a Watch reads the Charges until it is stopped.
//
// The pages about [bans] and [learning] say how a store treats callers after a refusal.
//
// [bans]: https://github.com/fleetthrottle/throttle/blob/main/docs/use/bans.md
// [learning]: https://github.com/fleetthrottle/throttle/blob/main/docs/use/bans.md#learn-from-refusals
type Store interface {
	// Book finds the earliest start at which every charge of the booking has room, books
	// that start in all budgets in one atomic step, and returns how long it is until the
	// start. A refusal spends nothing. Book does not wait for the start. It waits for the
	// store's answer at most as long as ctx and b.MaxWait allow, and then returns an error
	// that says why the store did not answer, as far as that is known, and matches the
	// error of ctx. After an error nothing stays booked, or the store gives it back.
	//
	// Concurrency charges are held from the start until Release. Nobody can know beforehand
	// when a slot will be free, so slots are taken at the start or not at all:
	//
	//   - If the rate limits make the booking wait, the store books their charges and does
	//     not look at the Concurrency charges. When the wait is over the caller books
	//     again, with Instead.
	//   - If the rate limits have room now and the slots are taken, the store books
	//     nothing, and the caller gets a place in line: see Grant.Ready.
	Book(ctx context.Context, b *Booking) (Grant, error)

	// Cancel gives back an unused grant, or a place in line, at most once. It does not
	// block for long and returns no error: a store that cannot be reached keeps the place,
	// which is safe.
	Cancel(b *Booking, g Grant)

	// Release ends the Concurrency charges of a granted booking, at most once, and wakes
	// the first waiter in line. The remaining charges stay booked. Release does not block
	// for long and returns no error: a store that cannot be reached learns of the release
	// later, or forgets the charges within 30 seconds.
	Release(b *Booking, g Grant)

	// Settle changes the cost of a granted start, to costs[i] for b.Charges[i]. A higher
	// cost is booked at the start's own time even if there is no room. A lower cost gives
	// the difference back. Concurrency and Unlimited charges, and starts that no longer
	// count, keep their cost. Costs are from 0 to 2^40.
	Settle(ctx context.Context, b *Booking, g Grant, costs []int) error

	// Pause closes a budget for d, counted from now by the store's clock: no later booking
	// starts before the end of the pause, and every Watch over an earlier booking reports
	// the pause. Of several pauses the latest end counts. After the end one start goes
	// first and the budget fills up slowly: see the page on bans.
	Pause(ctx context.Context, c Charge, d time.Duration) error

	// Refuse closes a budget as Pause does, because the upstream refused a request. A
	// refusal that comes right after the end of a pause closes the budget for longer than
	// r.Length: see the page on bans. If the charge is Adaptive, and the refused start is
	// evidence that the upstream allows less than the limit, Refuse lowers the budget's
	// ceiling: see the page on learning. It returns the ceiling before and after, in units
	// of Limit.N. Both are equal if the store learned nothing.
	Refuse(ctx context.Context, c Charge, r Refusal) (from, to float64, err error)

	// Resume ends all pauses of a budget and the slow start after them. The store forgets
	// the lengths of the pauses, the ceiling, and the limit that the upstream told.
	Resume(ctx context.Context, c Charge) error

	// Reconcile lowers the free part of a budget to the upstream's quota. It never raises
	// the free part, and does nothing to LeakyBucket, Concurrency and Unlimited charges. Under
	// the limit Told it also keeps the limit that the upstream tells, as q.Told. A
	// store may skip a report that changes too little to be worth a call.
	Reconcile(ctx context.Context, c Charge, q Quota) error

	// Watch has the caller of a granted booking learn of a pause before the start. The
	// Watch reads only the Charges of the booking, which do not change until the watch is
	// stopped.
	Watch(b *Booking, g Grant, news chan<- struct{}) Watch

	// Status describes one budget. It changes nothing.
	Status(ctx context.Context, c Charge) (Status, error)

	// Traits returns the abilities of the store beyond these methods. They never change.
	Traits() Traits

	// KeepTurn returns a Turn as bytes, for a caller that has left its line, by Cancel or
	// by a refusal. The caller may never come back, and the store keeps no record of the
	// caller. t is nil if the caller was in no line.
	KeepTurn(b *Booking, t Turn) []byte

	// RestoreTurn returns the Turn of a caller that comes back, for a Booking with Returns,
	// with the budgets and the priority of b. It returns false if the bytes are not from a
	// store of the same kind with the same budgets. Only the order of callers may depend on
	// the bytes.
	RestoreTurn(b *Booking, kept []byte) (Turn, bool)

	// Appoint returns in how long a caller that leaves should come again: after wait, which
	// the store told the caller, or later, so that callers who leave one by one come back
	// one by one. again says that the caller came back and leaves once more: such callers
	// have appointments of their own. An appointment holds nothing of the budget.
	Appoint(ctx context.Context, c Charge, wait time.Duration, again bool) (time.Duration, error)

	// PauseNote returns the operator's note on the pause that closes the budget now, for
	// errors and events. It returns the zero PauseNote if there is no pause, or no note. It
	// does not block.
	PauseNote(b Budget) PauseNote
}

// A Budget names the starts that one policy counts for one key. Group is not part of the
// name: two programs whose remaining policies differ have different groups for one budget.
// All budgets of one booking have the same Group, so that a store can queue its calls by
// group.
type Budget struct {
	Policy string   // the policy's name
	Group  string   // policies that can match the same request share it
	Key    [16]byte // a hash of the policy's name and the key: the key itself stays in the program
}

// String returns the policy's name and the first bytes of Key, for logs and metrics.
func (b Budget) String() string { return b.Policy + "/" + hex.EncodeToString(b.Key[:6]) }

// A Charge is what one request costs one budget.
type Charge struct {
	Budget Budget
	Limit  Limit
	Cost   int // at least 1 and at most Limit.Capacity

	// Jitter is how long after its grant a start may arrive at the upstream. It is
	// resolved: 0 means no jitter, and a microsecond is the part that the store's clock
	// leaves out. See Policy.Jitter.
	Jitter time.Duration

	Shadow bool // the charge is counted, but neither holds nor refuses the caller
	Node   bool // the budget belongs to this Store alone, and not to the fleet: see Policy.Scope

	// Adaptive says that the ceiling of the budget counts, if it has one: starts are booked
	// as if the limit were the ceiling, except that a larger cost still fits an idle
	// budget. See Store.Refuse.
	Adaptive bool

	// KeepFree is how many units of the limit the start must leave free: the start is
	// booked as if the limit, or the burst of a TokenBucket, were smaller by KeepFree.
	// Later starts may use these units. Cost and KeepFree are together at most
	// Limit.Capacity.
	KeepFree int

	// Pace is for SlidingWindow charges. If Pace is not 0 and this charge alone makes the
	// request wait, no later start comes within Pace times the charge's cost. So a queue
	// does not leave in bursts.
	Pace time.Duration

	// Share is the share of the budget to which the caller belongs. The zero Share is the
	// share of all callers that name none.
	Share Share
}

// A Share is a group of callers of one budget: a tenant, a job, an agent. While callers
// wait in the budget's line, the shares with callers of one priority take turns, by weight.
// Within a share callers are served in the order of their arrival. All callers without a
// share have the zero Share.
type Share struct {
	ID     uint64 // a hash of the policy's name and the share's name, below 2^53. It is 0 for callers without a share.
	Weight int    // from 1 to 1000, where 0 means 1
}

// A Booking asks for one start that all its charges have room for.
type Booking struct {
	Charges []Charge

	// MaxWait is the longest wait that is of use: the store refuses a later start. A
	// negative MaxWait, such as [AnyWait], accepts any wait. With a MaxWait of 0 Book
	// accepts only a start at once.
	MaxWait time.Duration

	// NotBefore is the shortest wait: the store books no earlier start.
	NotBefore time.Duration

	// Horizon bounds how far ahead a start is booked. If the earliest start is further
	// away, or earlier callers wait for a budget of the booking, the caller gets a place in
	// line: see Grant.Ready. With a Horizon of 0 every start is booked at once, and no line
	// counts.
	Horizon time.Duration

	// Priority decides among the waiters in line. Within a priority waiters are served in
	// the order of their arrival.
	Priority Priority

	// Turn is Grant.Turn of the last answer to the same caller. A caller that passes its Turn
	// on keeps its arrival, even if the limits of its charges changed.
	Turn Turn

	// Returns says that the caller has had a start or a place before, and gives it up or
	// has lost it. Without a Turn such a caller goes before all waiters in line.
	Returns bool

	// Spread says that the start may be used later than the charges' Jitter covers, by up
	// to Spread. The store must leave that much more room behind the start.
	Spread time.Duration

	// Instead, if not zero, is the handle of a place in line, or of an unused grant for the
	// same charges with the same Spread. The store gives it back in the same step, even if
	// it then refuses the booking. A booking instead of a place in line may add or leave
	// out charges other than Concurrency. A grant that holds Concurrency charges is
	// cancelled, not replaced. After an error Instead counts as given back: the store may
	// have given it back, and giving it back twice would give back the start of a different
	// caller.
	Instead Handle
}

// AnyWait is the MaxWait of a caller that waits without a bound.
const AnyWait time.Duration = -1

// A Priority is how much a request matters. The priority decides which waiter in line goes
// first and, with a policy's Headroom, how many units of the limit a request must leave
// free. High goes before Normal, and Normal before Low, however long the waiters of lower
// priority have waited. A booked start, which is at most a horizon away, is never taken
// away by a request of higher priority.
type Priority int8

// The priorities.
const (
	PriorityLow    Priority = -1 // batch work
	PriorityNormal Priority = 0  // the default
	PriorityHigh   Priority = 1  // a user is waiting for it
)

// String returns the priority's name in lower case, such as "low". A value that is none of
// the constants is named by its number.
func (p Priority) String() string {
	switch p {
	case PriorityLow:
		return "low"
	case PriorityNormal:
		return "normal"
	case PriorityHigh:
		return "high"
	}
	return fmt.Sprintf("priority %d", int8(p))
}

// A Grant is the store's answer to a Booking.
type Grant struct {
	// OK says that the start is booked. Otherwise nothing is booked, and Wait is how long
	// the wait would have been, or Never if no wait helps. No store books a start that is
	// further ahead than MaxAhead, a hundred years.
	OK   bool
	Wait time.Duration // from when Book returns until the start. It is 0 if the start is now.

	// Age is an upper bound on how much earlier the start may be than Wait says, because the
	// store's answer, or its clock's, was on the way. Without a start it is an upper bound on
	// how long before the return of Book the store decided.
	Age time.Duration

	// Handle names the start for Cancel and Instead. It is zero only for a place in the
	// line for a start, which Turn identifies.
	Handle Handle

	// Ready is set, and OK is not, if MaxWait is not 0 and the caller has a place in line,
	// by arrival, until it cancels, or books again with Turn and with Handle as Instead.
	// Either only Concurrency charges had no room, or the start is beyond the Horizon. In
	// the second case Wait is an estimate of the wait, more than 0 and at most MaxWait. The
	// store closes Ready when it is time to book again. A caller that books again and has
	// to wait gets a new Ready, which stays open until something has changed.
	Ready <-chan struct{}

	// Turn is the caller's arrival, for Booking.Turn, or nil if the caller did not wait in line.
	Turn Turn

	// Over has, for each charge, how much later the start would have been if a Shadow charge
	// counted. Nil means 0 for all charges.
	Over []time.Duration

	HeldBy int  // index of the charge that set the start, or NotHeld
	Paused bool // the budget of the charge at HeldBy is closed by a penalty, if only for a part of the wait

	// Shares is set, and OK is not, if the line of the charge at HeldBy had no place for the
	// caller's share, because callers of Shares other shares wait, which is as many as the
	// store tells apart. Otherwise Shares is 0.
	Shares int
}

// A Handle names a booked start, or a place in the line of a Concurrency charge. Only the
// store that made a Handle reads it: its fields are for authors of stores. The zero Handle
// names nothing.
type Handle struct {
	Start int64 // names a booked start, or is 0
	Place int64 // names a place in line, or is 0
	Stamp int64 // a value of the store's own, for Watch

	// Local says that the start is booked in a store that stands in for a store that is
	// away.
	Local bool

	// Node is the handle in the store that keeps Node charges apart, or nil.
	Node *Handle
}

// A Turn is a store's record of a caller that waited: when the caller came to the line of
// each budget that held it back. Only the store that made a Turn reads it. Nil is the Turn
// of a caller that was in no line.
type Turn any

// NotHeld is the HeldBy of a grant that no charge held back.
const NotHeld = -1

// A Watch is kept by a Store over one booked start, from the booking until the start is
// used or given back.
//
// While the Watch lasts the store sends on the news channel, without blocking, when the
// start may have become useless. News comes at once where that is possible. News may get
// lost, and may be wrong: Confirm decides.
type Watch interface {
	// Confirm reports whether the start may still be used. It must return false if a pause
	// that was stored before the call ends later than the start. It may return false if a
	// pause was lifted, because an earlier start may be free. After false the caller books
	// again, with Instead. Confirm waits for the store at most as long as ctx and maxWait
	// allow, where maxWait is as Booking.MaxWait. After an error the answer is unknown.
	Confirm(ctx context.Context, maxWait time.Duration) (bool, error)

	// Stop ends the watch. It may be called more than once.
	Stop()
}

// A Refusal is an upstream's answer that refused a request.
type Refusal struct {
	Length time.Duration // for how long the refusal closes the budget. With 0 the budget stays open.
	Ago    time.Duration // how long ago the refused request was sent
	Took   time.Duration // how long its answer took. Zero stands for Ago.

	// Start is the grant of the refused start, by which an Adaptive budget learns. Without a
	// Handle the budget learns nothing.
	Start Grant
}

// A Quota is an upstream's statement of the free part of one budget. By a Quota the fleet
// learns of foreign traffic on the same budget: a different team, a program that does not
// use throttle.
type Quota struct {
	Left int // the cost that may still be spent; a negative Left counts as 0

	// Reset is how long it takes until the upstream gives a part of the quota back. A
	// [TokenBucket] does not need Reset. For every other limit a Reset of 0 makes the Quota
	// void. With a Left of 0 the budget closes for Reset, at most [MaxPenalty] at a time,
	// even if Reset is longer than the limit's own window.
	Reset time.Duration

	// Age is how long ago Left was true: the fleet's starts since then are spent, too. A
	// throttle.Transport sets Age to the time that the answer took.
	Age time.Duration

	// Told is the limit that the upstream tells, as a [SlidingWindow]. It counts under the
	// limit [Told] alone, also if the Quota is void otherwise, and is ignored unless its window
	// is from MinTold to MaxTold and its number from 1 to 1<<30. The zero Limit tells nothing.
	Told Limit
}

// Never is the wait of a caller that no wait helps: the cost is above
// the limit, or the limit's next window is further away than any start is booked.
const Never = time.Duration(math.MaxInt64)

// MaxAhead bounds how far ahead a store books: it refuses a start further away than
// MaxAhead, and a longer penalty counts as one of this length.
const MaxAhead = 100 * 365 * 24 * time.Hour

// MaxPenalty caps for how long an answer can close a budget, so that no
// answer, however wrong or hostile, stops a fleet for longer.
const MaxPenalty = 24 * time.Hour

// Status is the state of a budget at one moment. Used, Booked and Waiting are sums of
// costs, in the units of the limit.
//
// Starts of a large limit are counted together for a 128th of its window. Once one of these
// starts has come, all of them are in Used. So Used is never lower than the number of
// starts, and Booked and Waiting are lower by the difference.
type Status struct {
	Limit   Limit
	Used    int           // costs of starts that have come and still count, and of requests in flight
	Booked  int           // costs of starts that are booked for later
	Waiting int           // costs of all waiters: with a booked start, or in line without one
	Wait    time.Duration // how long a request of cost 1 would wait if it came now, without the unknown wait for a slot
	Paused  time.Duration // how long a penalty still closes the budget. It is 0 while the budget is open.

	// Callers is how many callers stand in line, whatever they cost. Callers with a booked
	// start are not among them. Where a store lists only the first callers of a long line,
	// Callers estimates the rest by their costs, which is exact if all callers of the line
	// cost the same. A store that cannot tell leaves Callers 0.
	Callers int

	// Repeated is how many refusals in a row came right after the end of the penalty before,
	// each of which made the next penalty longer.
	Repeated int

	// Ceiling is the part of Limit.N that an Adaptive policy may use, as the fleet has
	// learned it, cut off after three decimals. It rises with time. Windows hold whole
	// starts. Zero means that the limit alone counts.
	Ceiling float64

	// Told is the limit that the upstream has told, and that a budget under [Told] keeps. The
	// zero Limit says that no limit is told. ToldAgo is how long ago an answer told it last.
	Told    Limit
	ToldAgo time.Duration

	// Shares lists the shares whose callers stand in the line for a start, and the shares
	// that had turns beside them lately, by ID: at most 128, and in memory any number. Shares
	// is nil without shares, and in a store in which shares take no turns.
	Shares []ShareStatus
}

// A ShareStatus is the state of one share of a budget at one moment. Callers without a
// share have the ID 0. Callers of shares that the budget no longer tells apart have the ID
// 1 together.
type ShareStatus struct {
	Share
	Waiting int // the costs of its callers in line
	Served  int // the costs of its turns since its callers began to wait, or -1 if the store had no room to count them
}

// A PauseNote is the note of the operator who closed a budget by hand. The zero PauseNote
// is no note. Any program of the fleet may have written its text, so print it with
// [PauseNote.String].
type PauseNote struct {
	By     string // the operator, or ""
	Reason string // why the budget is closed, or ""
}

// String returns one line without control characters, such as
// `paused by anna@desk: "the shop moves"`. The zero PauseNote gives "paused".
func (n PauseNote) String() string {
	text := "paused"
	if n.By != "" {
		// Escape control characters, but show the name without quotation marks.
		quoted := strconv.Quote(n.By)
		text += " by " + quoted[1:len(quoted)-1]
	}
	if n.Reason != "" {
		text += ": " + strconv.Quote(n.Reason)
	}
	return text
}

// Traits are the abilities of a store beyond the methods of [Store].
type Traits struct {
	// Places says that callers can leave their place in line, and come back to it in a
	// different program, by KeepTurn, RestoreTurn and Appoint. Without Places nobody calls
	// these three methods.
	Places bool

	// SummonsWaiters says that the store summons each waiter when its turn comes, without a
	// trip to a server or to a different program: it closes Grant.Ready in time however
	// near the Horizon is. So callers with a share are booked right before their starts,
	// and a caller that has just come takes its turn beside the waiters in line.
	SummonsWaiters bool

	// BooksWaiters says that the store books the start of a waiter in its turn, before the
	// caller comes for it, with the Charges and the Spread with which the caller asked last. So a
	// caller in line asks again with the same Spread: with a different one it would give
	// the start back.
	BooksWaiters bool

	// InMemory is the store itself, a pointer, if its methods return at once because all
	// budgets are in the memory of this process. Such methods are called even where a call
	// of a remote store would hold the caller. A store around an inner store passes on the
	// inner store's Traits, and so does not claim to return at once itself.
	InMemory Store

	// Switch turns throttle off for the callers of the store, or is nil. A store around an inner
	// store passes it on.
	Switch *Switch

	// Err is the error of a constructor that returns no error: it lists the mistakes in the
	// constructor's arguments. Constructors of package throttle refuse a store with an Err
	// at once. Nil means that the store is good.
	Err error
}

// An OptionError is one mistake in the options of a constructor of a store. Constructors
// report all mistakes at once, joined by [errors.Join].
type OptionError struct {
	Package string // the package of the constructor, such as "redisstore"
	Option  string // a field, such as "Options.Outage", or the name of an argument
	Problem string // the given value, and a value to use instead
}

// Error implements error.
func (e *OptionError) Error() string { return e.Package + ": " + e.Option + ": " + e.Problem }

// Minimal implements the optional methods of a [Store] for a store without [Traits] and
// without notes of operators. A store embeds Minimal and adds the required methods.
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

// BudgetOf returns the budget that a policy of this name has for a key, as the policy's Key
// returns it. A policy without a Key has the budget of the key "". By BudgetOf a program
// finds, without a request, a budget that events, metrics or the fleet's commands name. The
// Group of the result is empty, because a group depends on all policies of a program.
func BudgetOf(policy, key string) Budget { return Budget{Policy: policy, Key: budgetKey(policy, key)} }

// budgetKey hashes a policy's name and a key, so that no two pairs share a
// budget and the key itself stays here.
func budgetKey(policy, key string) (k [16]byte) {
	// The length of the name says where the key begins, so different pairs have different bytes.
	var room [192]byte
	b := binary.AppendUvarint(room[:0], uint64(len(policy)))
	b = append(append(b, policy...), key...)
	sum := sha256.Sum256(b)
	copy(k[:], sum[:])
	return k
}

// ShareOf returns the ID of the share that a policy of this name has for a share's name, as
// the policy's Share returns it. The ID of "" is 0, which is no share. By ShareOf a program
// finds its share in [Status].Shares, which holds no names.
func ShareOf(policy, share string) uint64 {
	if share == "" {
		return 0
	}

	// An ID has 53 bits, which every store can hold. The IDs 0 and 1 are taken: see ShareStatus.
	k := budgetKey(policy, share)
	return max(2, binary.BigEndian.Uint64(k[:])>>11)
}

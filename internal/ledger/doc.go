// Package ledger decides for all stores but Redis: it has the state of budgets,
// and what requests do to that state. It is pure: it has no lock, no clock and
// no I/O, and starts no goroutine. memstore keeps its rows in memory; a store
// on a database loads rows in a transaction, decides, and saves the rows:
// docs/internals/ledger.md shows how. The scripts of redisstore decide the same
// in Lua: entries, age, search, reconcile and status have the same functions in
// the same order there.
//
// A [Row] is one budget. A [Request] is one step: a booking, the rows of its
// charges, and the time. One method decides for all rows, and [News] lists the
// changes that concern other callers. A [Waiter] is the memory of one waiting
// caller, a [Record] the memory of a node's last call. Rows and records are
// stored as bytes.
//
// # Invariants
//
// These hold after every call, for every row:
//
//   - Truth. Every booked start that can still matter lies in an entry, and is
//     counted there. Widening an entry, joining two and counting too many are
//     always safe.
//   - P1. The row breaks no rule of docs/internals/booking.md, judged by the
//     limit of the caller that booked. Lines, leases and news decide which
//     caller starts when, and never make room.
//   - P6. A request books in all its rows or in none, at one time.
//   - P10. A row's bytes are at most [MaxBytes]. A row lists as many waiters as
//     fit, and counts the rest.
//   - Slots. Slots in use and slots set aside are together at most the limit of
//     the last caller that was granted some. A node whose lease has ended holds
//     nothing: only slots that it says it still holds may exceed the limit.
//   - Time. A row sees no time pass if the clock steps back: all its times move
//     with the clock, except the marks of starts.
//   - Arrivals. No two waiters of a line have the same arrival and node. The
//     arrival names the place.
//   - Bytes. A row that was stored as bytes decides like a row in memory, as
//     long as no waiter lost its place. Bytes that are no row are an
//     [ErrCorrupt].
//
// # Words
//
//   - An entry is a number of starts in a closed interval of time. The entries of
//     a row are a sliding window log in few bytes. The level of a token bucket is
//     how full of spent tokens it was when the last forgotten entry ended.
//   - A rule is a charge in microseconds; its span is the time after which no
//     start matters. A part of a window is the piece in which starts share an
//     entry under a large limit.
//   - A mark names a start: its time by the clock by which it was booked.
//   - A budget is closed while its penalty or pause lasts; the field paused is the
//     end of that. The probe is the first start afterwards, and the ramp keeps
//     room free in the slow start behind it. A ceiling is how much of the limit
//     refusals have left.
//   - The waiters of a budget stand in a line, in one lane for each share in each
//     of three classes, the priorities. Lanes take turns by start-time fair
//     queueing: a finish tag is the cost that a lane was served over its weight.
//   - A waiter's arrival is its number in the order of coming. Its place is the
//     arrival together with its cost and its node. Its rank is the sum of the
//     costs up to it. A waiter that has had its turn, and must still come for its
//     slots, is called.
//   - Slots are the units of a Concurrency limit: held by requests in flight, or
//     set aside for a called waiter. A lease is for how long a silent node is
//     believed to hold slots and to wait.
//   - A pass is one walk of a node through a line. It asks the nodes of other
//     waiters to come, which is a summons. The guard is the node that has promised
//     the next pass.
//   - A horizon is how far ahead starts are booked, a pace the distance that
//     waiting starts keep, and a spread the room behind a start for a store that
//     is far away: see store.Charge and store.Booking.
package ledger

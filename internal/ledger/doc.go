// Package ledger is what stores have in common: the state of budgets, and what requests do
// to it. It is pure: it has no lock, no clock and no I/O, and starts no goroutine. memstore
// is built on it; a store on a database loads rows in a transaction, decides, and saves
// them. docs/internals/ledger.md shows how.
//
// A [Row] is one budget. A [Request] is one step: a booking, the rows of its charges, and
// the time. One call decides for all of them, and what it changed for others is [News]. A
// [Waiter] is what a caller remembers while it waits, and a [Record] what a store remembers
// of the last call of a node. Rows and records are kept as bytes.
//
// These hold after every call, for every row:
//
//   - Truth. Every booked start that can still matter lies in an entry, and is counted there.
//     Widening an entry, joining two and counting too many are always safe.
//   - P1. No rule of docs/internals/booking.md is broken by the row, judged by the limit of the caller
//     that booked. Lines, leases and news decide which caller starts when, and never make room.
//   - P6. A request books in all its rows or in none, at one time.
//   - P10. A row's bytes are at most [MaxBytes]. It lists so many waiters as fit, and counts
//     the others.
//   - Slots. What is held and what is set aside is at most the limit of the last caller that
//     was granted some. Of a node whose lease has ended nothing is held.
//   - Time. A row sees no time pass if the clock steps back: all its times move with the
//     clock, but for the marks of starts.
//   - Arrivals. No two waiters of a line have one arrival and one node. The arrival names the
//     place.
//   - Bytes. A row that was bytes decides as if it had not been, as long as no waiter lost
//     its place. Bytes that are no row are an [ErrCorrupt].
package ledger

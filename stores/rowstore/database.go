package rowstore

import (
	"context"
	"errors"
	"time"

	"github.com/fleetthrottle/throttle/internal/node"
)

// ErrAway says that the database cannot be reached now, and may be again soon. If an error of Transact wraps ErrAway, callers
// wait for the database as long as MaxWait and their contexts allow. Every other error is told to callers at once: a right or
// a table that is missing.
//
//	return fmt.Errorf("%w: %w", rowstore.ErrAway, err)
var ErrAway error = away{}

// away is the type of [ErrAway].
type away struct{}

// Error implements error.
func (away) Error() string { return node.ErrAway.Error() }

// Is implements the interface of [errors.Is]: by it a node knows that its callers wait.
func (away) Is(target error) bool { return target == node.ErrAway }

// ErrNotSaved says that it is certain that nothing of a transaction was saved, and that nothing will be. If an error of Transact wraps
// ErrNotSaved, the Store does not ask the database whether the transaction was saved. So callers are told at once of a right that was taken
// away in the middle of the transaction, and callers that wait for a database that is away go on sooner.
var ErrNotSaved = errors.New("nothing was saved")

// A Database runs transactions on rows for many nodes. A node is one [Store], usually one program.
//
// Rows are small values under short keys. A key belongs to one group alone: a Database may use the group to place rows that
// are changed together, and need not store it. Groups have at most 64 bytes and keys at most 128, all of them letters, digits
// and "-_./". Keys that differ in the case of a letter are different keys. Values have at most 8 KB. A Database does not look
// into values.
//
// All methods are safe for concurrent use. A Store has at most one step of a group under way, in a Transact, and one look: in a second Transact or, if the
// Database is a [Reader], in a Read. While a Read takes longer than 5 ms there may be three.
type Database interface {
	// Transact runs do in one transaction of a group, and returns nil when the transaction is saved.
	//
	// Transactions of one group are serializable, whichever node runs them: usually a lock of the group lets one
	// transaction read and save at a time, or all rows that a transaction has read are compared when it is saved.
	// All rows that do has put are saved, or none is. If do has put nothing, there is nothing to save.
	//
	// Keys are the keys of the first Get of do, so that the rows can be read in one trip together with the
	// clock. Do may get further rows later. Without locks, each call of do has a Tx of its own, with nothing of
	// the Tx of a call that was refused, and a version that is compared does not come back after its row was
	// removed.
	//
	// If do returns an error, nothing is saved and Transact returns that error. Do may be called again, one call
	// after the other, when it is certain that the first call is not saved and never will be: after a deadlock,
	// or a compare-and-swap that was refused. Transact does not repeat a transaction that may have been saved, as
	// when the connection is lost during a commit: it returns an error, and the Store finds out.
	//
	// Do is not called, and does not run, after Transact has returned: Transact waits for do, also when ctx ends.
	//
	// When ctx ends, Transact returns soon, with an error. A node may stand still in do. A Database that locks the group has
	// to end such a transaction by itself, within seconds, because all nodes wait for its end.
	Transact(ctx context.Context, group string, keys []string, do func(Tx) error) error
}

// A Tx is a transaction under way, for the call of do to which it was given.
type Tx interface {
	// Now is the time of the database's clock, read once: after the group was locked or, in a database without
	// locks, after the rows of the first Get were read. So the time does not go back from one transaction to the
	// next. The clock need not be right, but it is the same for all nodes: see Options.ManyClocks for databases
	// without a clock, or with many clocks. Now is called after the first Get.
	Now() time.Time

	// Get returns the values of rows, in the order of the keys. The value of a row that does not exist is nil.
	// Get need not see rows that the same transaction has put. Nobody changes the bytes.
	Get(keys ...string) ([][]byte, error)

	// Put saves a row when the transaction is saved. The row may be removed when it was not put again for as long
	// as keep, and not earlier. Each key is put once. Put may keep the value.
	Put(key string, value []byte, keep time.Duration)
}

// An Asker is a Tx that knows when the database was asked for the time. For every other Tx the Store takes the
// moment at which it called Transact. Then it believes that starts are older than they are, by the time for which
// Transact waited for the group, and books a second time when a start may be too old.
type Asker interface {
	// Asked is a moment, by this program's clock, that is not later than the moment at which the database's
	// clock was read: for example when the statement was sent that reads it, after the group was locked.
	Asked() time.Time
}

// A Reader is a Database that reads without a transaction, so that nodes that only look do not
// wait for each other. With every other Database nodes look in a Transact that puts nothing.
type Reader interface {
	// Read runs do with a Tx that is only read. Each row that do gets is at least as new as the
	// last transaction that was saved before Read was called. Now is the database's clock, read after the
	// call. Do may be called again if something failed. Read returns the error of do.
	Read(ctx context.Context, group string, keys []string, do func(Tx) error) error
}

// A Notifier is a Database that can tell nodes of news at once: a penalty, a turn in line. Its Tx
// implement [Waker]. With every other Database nodes look at one small row four times a second while
// their callers wait, and more often while there are news.
type Notifier interface {
	// Listen has wake called, until stop is called, when a transaction of the group was saved that woke the
	// node, or all nodes. Wake does not block, and may be called too often, and from any goroutine.
	//
	// News may be lost: nodes look once a second in any case. After a lost connection Listen connects again,
	// and calls wake. If Listen returns an error the node looks four times a second.
	Listen(group, node string, wake func()) (stop func(), err error)
}

// An Attender is a Database whose sessions end with their programs, so that other programs learn of a death before the
// lease is over: within a second where slots are held or waited for, and otherwise within two. A program that begins to
// wait after the death has not seen the session, and waits for the lease. With every other Database the slots and places
// of a dead program are free when its lease ends.
type Attender interface {
	// Attend opens a session in the name of a node, for as long as its callers wait or hold slots. After an error the
	// Store tries again. Only the node and the server can end the session.
	Attend(ctx context.Context, node string) (Session, error)
}

// A Session shows other nodes that a node lives. It is used by one goroutine at a time.
type Session interface {
	// Present reports for each of some nodes, in their order, whether it has a session, and the time of the database's
	// clock, read before. After an error, and whenever the server may have ended sessions of other nodes together with
	// this one, all later calls fail: a node takes a program for dead only if the same Session has shown it alive
	// before.
	Present(ctx context.Context, nodes []string) (present []bool, now time.Time, err error)

	// Close ends the session.
	Close()
}

// A Waker is the Tx of a [Notifier].
type Waker interface {
	// Wake notes other nodes, which are woken when the transaction is saved, and not before. Without nodes it wakes all of the
	// group; it may wake this one, too.
	Wake(nodes ...string)
}

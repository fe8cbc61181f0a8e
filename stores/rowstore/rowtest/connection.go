package rowtest

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// Connection tests a Database whose connections are lost or stand still. The server of the database has to listen
// at address, such as "127.0.0.1:5432". Open returns a Database that has its connections to the address that open gets: either the
// server's, or a relay's, which passes on the bytes of both sides, loses replies, and stands still.
//
//	rowtest.Connection(t, address, func(t *testing.T, address string) rowstore.Database { return mydb.New(address) })
func Connection(t *testing.T, address string, open func(t *testing.T, address string) rowstore.Database) {
	t.Run("connection", func(t *testing.T) {
		t.Run("lost replies", func(t *testing.T) { through(t, address, open).lostReplies() })
		t.Run("standstill", func(t *testing.T) {
			l := through(t, address, open)
			l.standstill(l.relay.freeze, l.relay.thaw)
		})
		t.Run("context", func(t *testing.T) { through(t, address, open).frozen() })
		t.Run("refused", func(t *testing.T) { through(t, address, open).refused() })
	})
}

// A line is a group of two programs, of which one is behind a relay.
type line struct {
	*group
	relay *relay
}

// through opens two Databases, the first of them through a new relay, and makes sure that its transactions pass the relay.
func through(t *testing.T, address string, open func(t *testing.T, address string) rowstore.Database) *line {
	t.Parallel()
	r := newRelay(t, address)
	l := &line{&group{t, open(t, r.address()), open(t, address), rand.Text()}, r}
	if err := l.add(t.Context()); err != nil {
		t.Fatalf("Transact: %v", hint(err))
	}

	// A Database that goes around the relay would pass every test.
	if r.came.Load() == 0 {
		t.Fatal("a transaction was made, and the relay has no connection. The Database has to connect to the address that open gets, and to no other one")
	}

	return l
}

// add adds 1 to a number, in one transaction behind the relay.
func (l *line) add(ctx context.Context) error {
	return l.db.Transact(ctx, l.name, []string{l.key("number")}, func(tx rowstore.Tx) error {
		values, err := tx.Get(l.key("number"))
		if err == nil {
			tx.Put(l.key("number"), binary.BigEndian.AppendUint64(nil, count(values[0])+1), time.Hour)
		}
		return err
	})
}

// number is the number that the second program finds.
func (l *line) number() (n uint64) {
	l.Helper()
	l.transactOn(l.other, func(tx rowstore.Tx) error {
		values, err := tx.Get(l.key("number"))
		if err == nil {
			n = count(values[0])
		}
		return err
	}, l.key("number"))
	return n
}

// lostReplies: of the replies in a transaction, each is lost once, up to the hundredth. The transaction is saved at most once, and exactly once if
// Transact returns nil.
func (l *line) lostReplies() {
	const most = 100
	for n := 1; n <= most; n++ {
		before := l.number()

		// The reply is lost together with its connection, when the server has done its part.
		isLost := l.relay.lose(n)
		ctx, stop := context.WithTimeout(l.Context(), soon)
		err := l.add(ctx)
		stop()
		wasLost := isLost()
		l.relay.lose(0)

		after := l.number()
		if after > before+1 {
			l.Fatalf("reply %d of a transaction was lost with its connection, and the transaction was saved %d times. Nobody knew whether it was saved. "+
				"So neither Transact nor the client library may repeat it: Transact has to return an error. Then the Store finds out", n, after-before)
		}

		// A promise that was given must be kept, although a reply was lost.
		if err == nil && after == before {
			l.Fatalf("reply %d of a transaction was lost with its connection. Transact returned nil, and nothing is saved", n)
		}
		if !wasLost {
			return // a transaction has fewer than n replies
		}

		l.again(n)
	}
}

// again: after the connection was lost together with reply n, transactions are saved again.
func (l *line) again(n int) {
	l.Helper()
	ctx, stop := context.WithTimeout(l.Context(), patience)
	defer stop()

	// The connection has to be made anew, which may take some tries.
	var err error
	for ctx.Err() == nil {
		if err = l.add(ctx); err == nil {
			return
		}
		time.Sleep(pause)
	}

	l.Fatalf("reply %d of a transaction was lost with its connection, and transactions still fail %v later: does the Database connect again? The last error: %v", n, patience, err)
}

// frozen: if the database does not answer, Transact returns an error soon after ctx has ended.
func (l *line) frozen() {
	l.relay.freeze()
	ctx, stop := context.WithTimeout(l.Context(), 100*time.Millisecond)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- l.add(ctx) }()

	const most = 5 * time.Second // after that the Store has given up Transact

	// Count pauses and not time: a machine that stops the program stops the pauses, too.
	for range pauses(most) {
		select {
		case err := <-done:
			if err == nil {
				l.Error("the database did not answer, and Transact returned nil")
			}
			return

		case <-time.After(pause):
		}
	}

	l.Fatalf("the database does not answer. The context of Transact ended %v ago, and Transact has not returned: is ctx given to each call of the database?", most)
}

// refused: if the database refuses connections, the error of Transact wraps ErrAway, unless Transact tries until ctx ends.
func (l *line) refused() {
	l.relay.end()
	for range 3 { // the first try may only find that its connection is lost
		ctx, stop := context.WithTimeout(l.Context(), 2*time.Second)
		err := l.add(ctx)
		ended := ctx.Err() != nil
		stop()
		if err == nil {
			l.Fatal("the database refuses connections, and Transact returned nil")
		}
		if !ended && !errors.Is(err, rowstore.ErrAway) {
			l.Fatalf("the database refuses connections, and the error of Transact does not wrap rowstore.ErrAway. So callers do not wait until the database is back. The error: %v", err)
		}
	}
}

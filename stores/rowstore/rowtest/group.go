package rowtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A group is the group of rows of one check, with the Databases of two programs.
type group struct {
	*testing.T
	db, other rowstore.Database
	name      string
}

// key returns the key of a row of the group.
func (g *group) key(name string) string { return g.name + "/" + name }

// transact is transactOn with the first program's Database.
func (g *group) transact(do func(rowstore.Tx) error, keys ...string) {
	g.Helper()
	g.transactOn(g.db, do, keys...)
}

// patience is for how long a transaction may be tried that must be saved.
const patience = time.Minute

// transactOn runs a transaction of db that must be saved. Otherwise the check fails, and goes on.
func (g *group) transactOn(db rowstore.Database, do func(rowstore.Tx) error, keys ...string) {
	g.Helper()
	called := false
	ctx, stop := context.WithTimeout(g.Context(), patience)
	defer stop()

	err := g.try(ctx, db, func(tx rowstore.Tx) error {
		called = true
		return do(tx)
	}, keys...)
	if err != nil && ctx.Err() != nil {
		g.Errorf("Transact was not done after %v: %v. If it waits for a lock, who has the lock? If it compares and swaps, what differs each time?", patience, err)
	} else if err != nil {
		g.Errorf("Transact: %v", hint(err))
	} else if !called {
		g.Error("Transact returned nil and has not called do")
	}
}

// try runs a transaction of db, and again if it was ended because this program stood still.
func (g *group) try(ctx context.Context, db rowstore.Database, do func(rowstore.Tx) error, keys ...string) error {
	for {
		begun := time.Now()
		err := db.Transact(ctx, g.name, keys, do)

		// On a busy machine this program may stand still while it has the lock, and the database takes the lock away.
		stood := errors.Is(err, rowstore.ErrAway) && time.Since(begun) > time.Second && ctx.Err() == nil
		if !stood {
			return err
		}
	}
}

// get returns the values of rows, in the order of the keys. The check ends if there are more or fewer values.
func (g *group) get(keys ...string) (values [][]byte) {
	g.Helper()
	g.transact(func(tx rowstore.Tx) (err error) {
		values, err = tx.Get(keys...)
		return err
	}, keys...)
	if len(values) != len(keys) {
		g.Fatalf("Get of %d keys returned %d values", len(keys), len(values))
	}
	return values
}

// soon is the upper bound on steps that have to happen soon. It leaves room for a busy machine.
const soon = 20 * time.Second

// hint adds to the error of a transaction that must be saved what its author may have missed.
func hint(err error) error {
	return fmt.Errorf("%w. The transaction has to be saved. If another one was in its way (a refused compare-and-swap, a deadlock), Transact calls do again for as long as ctx lasts", err)
}

// count is the number in a row. It is 0 if there is none, or if its bytes are no number, of which the check of rows tells.
func count(value []byte) uint64 {
	if len(value) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(value)
}

// pause is for how long a check sleeps at once. A check that counts pauses, and not time, does not count the time for which the machine stops the
// program.
const pause = 10 * time.Millisecond

// pauses returns how many pauses there are in d.
func pauses(d time.Duration) int { return int(d / pause) }

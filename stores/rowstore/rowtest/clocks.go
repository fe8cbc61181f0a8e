package rowtest

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// clock: the clock has steps of a millisecond or less, and a transaction reads it once.
func (g *group) clock() {
	step := time.Second.Microseconds() // longer steps are not told apart
	for i := 0; i < 100 && step != 1; i++ {
		g.transact(func(tx rowstore.Tx) error {
			_, err := tx.Get(g.key("a"))

			// The greatest common divisor of all times is the step of the clock.
			now := tx.Now().UnixMicro()
			for a := now; a != 0; {
				step, a = a, step%a
			}

			time.Sleep(1100 * time.Microsecond)
			if again := tx.Now().UnixMicro(); again != now {
				g.Errorf("Now returned two times in one call of do, %d µs apart: it has to read the clock once", again-now)
			}

			return err
		})

		if g.Failed() {
			return
		}
	}

	if step > 1000 {
		g.Errorf("the clock has steps of %v or more, and must have steps of a millisecond or less", time.Duration(step)*time.Microsecond)
	}
}

// clockAfterLock: the time of a transaction that has waited for a lock is not from before the wait.
func (g *group) clockAfterLock() {
	const wait, slack = 200 * time.Millisecond, 20 * time.Millisecond
	var ahead time.Duration // the least by which the database's clock is ahead of this program's
	for range 3 {           // the first makes connections
		var now time.Time
		g.transact(func(tx rowstore.Tx) error {
			_, err := tx.Get(g.key("a"))
			now = tx.Now()
			return err
		}, g.key("a"))

		ahead = time.Until(now)
	}

	// The second transaction begins when the first has the lock, and must have a later time than its end.
	var end atomic.Pointer[time.Time] // of do of the first transaction, by this program's clock
	has, second := make(chan struct{}), make(chan error, 1)
	go func() {
		<-has
		second <- g.other.Transact(g.Context(), g.name, []string{g.key("a")}, func(tx rowstore.Tx) error {
			values, err := tx.Get(g.key("a"))
			if err != nil || string(values[0]) != "first" { // without a lock it comes before the first one, which then is made again
				return err
			}
			if late := end.Load().Add(ahead - slack).Sub(tx.Now()); late > 0 {
				g.Errorf("a transaction waited for another one, and its time is %v before the other one ended: the clock is read before the group is locked, or in the statement that waits for the lock", late)
			}

			return nil
		})
	}()

	first := true
	g.transact(func(tx rowstore.Tx) error {
		if _, err := tx.Get(g.key("a")); err != nil {
			return err
		}

		if first {
			first = false
			close(has)
		}

		time.Sleep(wait)
		tx.Put(g.key("a"), []byte("first"), time.Hour)
		now := time.Now()
		end.Store(&now)

		return nil
	}, g.key("a"))

	if err := <-second; err != nil && !errors.Is(err, rowstore.ErrAway) {
		g.Errorf("Transact: %v", err)
	}
}

package rowtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// context: Transact returns soon if its context has ended beforehand.
func (g *group) context() {
	ctx, stop := context.WithCancel(g.Context())
	stop()
	done := make(chan error, 1)
	go func() {
		done <- g.db.Transact(ctx, g.name, []string{g.key("a")}, func(tx rowstore.Tx) error {
			tx.Put(g.key("a"), []byte("a"), time.Hour)
			return nil
		})
	}()

	select {
	case <-done: // either way: whether it was saved need not be known
	case <-time.After(soon):
		g.Fatal("Transact does not return though its context has ended")
	}
}

// cancelled: the contexts of transactions end at any time. If Transact returns nil, all rows are saved, and otherwise all or none. do does not run after
// Transact has returned.
func (g *group) cancelled() {
	const tries = 60
	var running atomic.Int32
	var took time.Duration
	saved := uint64(0)

	keys := []string{g.key("number"), g.key("b"), g.key("c"), g.key("d"), g.key("e"), g.key("f"), g.key("g"), g.key("h")}
	for i := range tries {
		ctx, stop := context.WithCancel(g.Context())
		var cut *time.Timer

		// Contexts end at any time of a transaction, so that each trip to the database is cut off at some time.
		if i > 2 { // the first have made connections
			cut = time.AfterFunc(time.Duration(rand.Int64N(int64(took)*5/4+1)), stop)
		}

		var number uint64
		begun := time.Now()
		err := g.db.Transact(ctx, g.name, []string{g.key("number")}, func(tx rowstore.Tx) error {
			running.Add(1)
			defer running.Add(-1)

			values, err := tx.Get(g.key("number"))
			if err != nil {
				return err
			}

			number = 1 + count(values[0])
			for _, k := range keys {
				tx.Put(k, binary.BigEndian.AppendUint64(nil, number), time.Hour)
			}

			return nil
		})

		if running.Load() != 0 {
			g.Fatal("Transact returned when its context ended, and do still runs")
		}

		if cut == nil {
			took = time.Since(begun)
		} else {
			cut.Stop()
		}

		stop()
		if err != nil {
			g.number(keys) // which checks that no part is saved
			continue
		}

		// A transaction that returned nil is saved, and may have been followed by others that returned errors.
		saved++
		if g.number(keys) < number {
			g.Fatalf("Transact returned nil, and the rows have number %d though the transaction put %d: if the context ends before it is known that all is saved, Transact has to return an error", g.number(keys), number)
		}
	}

	if n := g.number(keys); n < saved || n > tries {
		g.Errorf("of %d transactions, whose contexts ended at any time, %d returned nil, and the rows count %d. If they count more than there were, a transaction was made again after its commit was cut off: Transact has to return an error then. "+
			"If they count less than returned nil, Transact returned nil before all was saved", tries, saved, n)
	}
}

// number returns the number in the rows of keys. The check ends if their values differ.
func (g *group) number(keys []string) (n uint64) {
	g.Helper()
	all := g.get(keys...)
	for i, v := range all {
		if !bytes.Equal(v, all[0]) {
			g.Fatalf("of the rows that a transaction put together, row 0 is %x and row %d is %x: a transaction whose context ended has saved a part", all[0], i, v)
		}
	}
	return count(all[0])
}

// standstill: a program that stands still in a transaction does not keep others out for long. When it goes on, it does not
// overwrite what others have saved meanwhile without having read that. freeze is called when it begins to stand still, and thaw before it goes on.
func (g *group) standstill(freeze, thaw func()) {
	// The first transaction stands still in do, until the others have gone on without it.
	stands, goOn := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	result := make(chan error, 1)
	standOnce := sync.OnceFunc(func() { freeze(); close(stands); <-goOn })
	go func() {
		result <- g.db.Transact(g.Context(), g.name, []string{g.key("a")}, func(tx rowstore.Tx) error {
			values, err := tx.Get(g.key("a"))
			if err != nil {
				return err
			}

			tx.Put(g.key("a"), append([]byte("late after "), values[0]...), time.Hour)
			standOnce()
			return nil
		})
	}()

	select {
	case <-stands:
	case err := <-result:
		g.Fatalf("Transact: %v", err)
	}

	others := make(chan error, 1)
	go func() { others <- g.persist("others") }()

	select {
	case err := <-others:
		if err != nil {
			g.Fatalf("a program stood still in a transaction, and kept all others out for %v: the database has to end its transaction by itself. A database that cannot do that needs a compare-and-swap. Last error: %v", soon, err)
		}

	case <-time.After(2 * soon):
		g.Fatalf("a program stood still in a transaction, and kept all others out for %v. Their Transact did not return when its context ended: does it wait for a lock in the memory of the program, or for the database without ctx?", 2*soon)
	}

	// Now the first transaction goes on, and finds that the world has changed.
	thaw()
	release()

	// If it was refused, the row is what the others have put. If it was made again, it has read that.
	select {
	case err := <-result:
		switch v := string(g.get(g.key("a"))[0]); {
		case v != "others" && v != "late after others":
			g.Errorf("a program stood still in a transaction, others have saved a row meanwhile, and then the program overwrote it: the row is %q. Its commit had to be refused", v)
		case err == nil && v == "others":
			g.Error("a program stood still in a transaction that the database ended: its Transact returned nil, and nothing is saved")
		}

	case <-time.After(soon):
		g.Fatalf("a program stood still in a transaction, and its Transact does not return after it went on")
	}
}

// persist puts the row "a" of the group, by the other Database. It tries until the row is saved, or until soon is over: then it returns the last
// error. If the check has ended before the first try, it returns nil.
func (g *group) persist(value string) (err error) {
	ctx, stop := context.WithTimeout(g.Context(), soon)
	defer stop()

	for ctx.Err() == nil {
		// A try that hangs ends after a quarter of the time, so that a second one follows.
		tryCtx, stopTry := context.WithTimeout(ctx, soon/4)
		err = g.other.Transact(tryCtx, g.name, []string{g.key("a")}, func(tx rowstore.Tx) error {
			// A database without locks compares only rows that were read.
			_, err := tx.Get(g.key("a"))
			tx.Put(g.key("a"), []byte(value), time.Hour)
			return err
		})

		stopTry()
		if err == nil {
			return nil
		}

		time.Sleep(50 * time.Millisecond)
	}

	return err
}

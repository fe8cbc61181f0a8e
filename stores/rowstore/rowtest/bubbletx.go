package rowtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A bubbleTx is a transaction in a bubble. It keeps the rows that are put until flush, because a call of do that is repeated must have
// put nothing.
type bubbleTx struct {
	rowstore.Tx
	kept  *kept
	now   time.Time // of the bubble
	puts  []put
	all   bool     // all nodes are to be woken
	nodes []string // the nodes that are to be woken, if not all are
}

// A put is a call of Put.
type put struct {
	key   string
	value []byte
	keep  time.Duration
}

// Now implements [rowstore.Tx].
func (tx *bubbleTx) Now() time.Time { return tx.now }

// A kept knows until when rows are kept, by the bubble's clock.
type kept struct {
	mu    sync.Mutex
	until map[string]time.Time // by key
}

// Get implements [rowstore.Tx]. It returns no row that may have been removed by now, even if the Database still has it: the strictest
// Database is tested.
func (tx *bubbleTx) Get(keys ...string) ([][]byte, error) {
	values, err := tx.Tx.Get(keys...)
	if err != nil {
		return nil, err
	}

	values = slices.Clone(values) // the slice is the Database's
	tx.kept.mu.Lock()
	defer tx.kept.mu.Unlock()

	for i, k := range keys {
		if until, ok := tx.kept.until[k]; ok && !tx.now.Before(until) {
			values[i] = nil
		}
	}

	return values, nil
}

// Put implements [rowstore.Tx].
func (tx *bubbleTx) Put(key string, value []byte, keep time.Duration) {
	tx.puts = append(tx.puts, put{key, value, keep})
}

// flush puts all rows of the transaction into the Database.
func (tx *bubbleTx) flush() {
	tx.kept.mu.Lock()
	for _, p := range tx.puts {
		tx.kept.until[p.key] = tx.now.Add(p.keep)
	}
	tx.kept.mu.Unlock()

	// A server's clock is not the bubble's, and goes on while the bubble's stands still. So a server keeps rows for longer than the test lasts,
	// and Get alone hides them.
	var longer time.Duration
	if isOther := tx.Tx.Now().Sub(tx.now).Abs() > time.Hour; isOther {
		longer = 24 * time.Hour
	}

	for _, p := range tx.puts {
		tx.Tx.Put(p.key, p.value, p.keep+longer)
	}
}

// Wake implements [rowstore.Waker].
func (tx *bubbleTx) Wake(nodes ...string) { tx.all, tx.nodes = len(nodes) == 0, nodes }

// wakes reports whether a node is to be woken when the transaction is saved.
func (tx *bubbleTx) wakes(node string) bool { return tx.all || slices.Contains(tx.nodes, node) }

// clock: the clock has steps of a millisecond or less, and a transaction reads it once.
func (g *group) clock() {
	// The greatest common divisor of all times is the step of the clock. A second stands for any longer step.
	step := time.Second.Microseconds()
	for i := 0; i < 100 && step != 1; i++ {
		g.transact(func(tx rowstore.Tx) error {
			_, err := tx.Get(g.key("a"))
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

// clockAfterLock: a transaction that has waited for the lock reads the clock after the wait. A Database without a lock passes.
func (g *group) clockAfterLock() {
	const wait, slack = 200 * time.Millisecond, 20 * time.Millisecond

	// Measure by how much the database's clock is ahead of this program's, at the least. The first transaction makes connections, so the third one counts.
	var ahead time.Duration
	for range 3 {
		var now time.Time
		g.transact(func(tx rowstore.Tx) error {
			_, err := tx.Get(g.key("a"))
			now = tx.Now()
			return err
		}, g.key("a"))

		ahead = time.Until(now)
	}

	// The second transaction begins when the first has the lock, and must have a later time than its end.
	var end atomic.Pointer[time.Time] // when do of the first transaction ended, by this program's clock
	hasLock, second := make(chan struct{}), make(chan error, 1)
	go func() {
		<-hasLock
		second <- g.other.Transact(g.Context(), g.name, []string{g.key("a")}, func(tx rowstore.Tx) error {
			values, err := tx.Get(g.key("a"))

			// Without a lock this transaction comes before the first one, which then is made again.
			if err != nil || string(values[0]) != "first" {
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
			close(hasLock)
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

// overtakes puts a row in a transaction of the other program, while a transaction of this program may be in do, and reports whether the row was
// saved. It was not if the Database locks, so that the other transaction has to wait, or if the machine is busy.
func (g *group) overtakes(key, value string, keep time.Duration) bool {
	// Without a lock the other program is saved at once. With a lock it waits, and gives up.
	ctx, stop := context.WithTimeout(g.Context(), time.Second/4)
	done := make(chan error, 1)

	// The caller may have the lock, so it must not wait for a Database that ignores ctx.
	go func() {
		defer stop()
		done <- g.other.Transact(ctx, g.name, []string{g.key(key)}, func(tx rowstore.Tx) error {
			_, err := tx.Get(g.key(key))
			tx.Put(g.key(key), []byte(value), keep)
			return err
		})
	}()

	select {
	case err := <-done:
		return err == nil
	case <-time.After(time.Second / 2):
		return false
	}
}

// overtaken: without a lock, a transaction that was overtaken is made again, and nothing remains of the first call of do.
func (g *group) overtaken() {
	g.overtakenIn("one-", false)
	if !g.Failed() {
		g.overtakenIn("more-", true)
	}
}

// overtakenIn is overtaken with keys that begin with prefix. If more is true, do gets a second row after it was overtaken, whose version, or
// whose group's version, is a new one.
func (g *group) overtakenIn(prefix string, more bool) {
	a, b, once := g.key(prefix+"a"), g.key(prefix+"b"), g.key(prefix+"once")
	calls, overtook := 0, false
	err := g.db.Transact(g.Context(), g.name, []string{a}, func(tx rowstore.Tx) error {
		calls++
		if _, err := tx.Get(a); err != nil || calls > 1 {
			tx.Put(b, []byte("again"), time.Hour)
			return err
		}

		// The other program is saved between the Get and the end of do.
		overtook = g.overtakes(prefix+"a", "other", time.Hour)
		tx.Put(b, []byte("first"), time.Hour)
		tx.Put(once, []byte("first"), time.Hour)
		if !more {
			return nil
		}

		_, err := tx.Get(g.key(prefix + "c"))
		return err
	})

	// The Database locks, or the lock was taken away because do stood still.
	if err != nil || !overtook {
		return
	}

	if calls == 1 && more {
		g.Error("do got a row, another program saved that row, do got a second row, and then the transaction was saved. " +
			"The version that is compared has to be the one of the first Get: a later Get must not replace it")
	} else if calls == 1 {
		g.Error("do got a row, another program saved that row, and then the transaction was saved: does it compare what it has read, in one step with the saving?")
	} else if v := g.get(b, once); string(v[0]) != "again" || len(v[1]) > 0 {
		g.Errorf("do was called again because its first call was refused. The first call put the rows b and once, the last call only b. Saved are b: %q and once: %q. Begin each call of do with a new Tx", v[0], v[1])
	}
}

// removed: a version that was compared does not come back after its row was removed. A Database that locks passes, and one that does not remove
// the row within 2.5 s.
func (g *group) removed() {
	putA := func(value string, keep time.Duration) bool { return g.overtakes("a", value, keep) }
	if !putA("old", time.Millisecond) {
		return
	}

	calls, gone := 0, false
	err := g.db.Transact(g.Context(), g.name, []string{g.key("a")}, func(tx rowstore.Tx) error {
		calls++
		if _, err := tx.Get(g.key("a")); err != nil {
			return err
		}

		// The other program saves until the Database has removed the row, and then puts it anew.
		for end := time.Now().Add(5 * time.Second / 2); calls == 1 && !gone && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if !g.overtakes("other", "other", time.Hour) { // the Database locks
				break
			}
			gone = g.missing("a") && putA("new", time.Hour)
		}

		tx.Put(g.key("b"), []byte("b"), time.Hour)
		return nil
	})

	if err == nil && gone && calls == 1 {
		g.Error("do got a row, the row was removed and put again with another value, and then the transaction was saved. A version must not come back after its row was removed: " +
			"take a random one, or a number that all rows share")
	}
}

// missing reports whether the other program finds no row. It is called in do of a Database that does not lock. After an error it returns false.
func (g *group) missing(key string) bool {
	ctx, stop := context.WithTimeout(g.Context(), time.Second/2)
	defer stop()
	var values [][]byte
	err := g.other.Transact(ctx, g.name, []string{g.key(key)}, func(tx rowstore.Tx) (err error) {
		values, err = tx.Get(g.key(key))
		return err
	})
	return err == nil && len(values) == 1 && values[0] == nil
}

// returns: Transact does not return before do has, even if the context ends in do. A Database that does not call do passes.
func (g *group) returns() {
	ctx, stop := context.WithCancel(g.Context())
	returned, waited := make(chan struct{}), make(chan bool, 1)
	called := false
	go func() {
		defer close(returned)
		_ = g.db.Transact(ctx, g.name, []string{g.key("a")}, func(tx rowstore.Tx) error {
			_, err := tx.Get(g.key("a"))

			// A Database may call do again: check its first call alone.
			if called {
				return err
			}

			called = true
			stop()

			// If Transact returns now, it has not waited for do.
			select {
			case <-returned:
				waited <- false
			case <-time.After(100 * time.Millisecond):
				waited <- true
			}

			// Use the Tx once more: it has to be valid until do returns.
			tx.Put(g.key("a"), []byte("a"), time.Hour)
			return err
		})
	}()

	// waited has a value only if do was called.
	<-returned
	if called && !<-waited {
		g.Error("the context ended while do ran, and Transact returned before do did. Transact has to wait for do: what do does later is not safe")
	}
}

// waits: a transaction that waits for a lock, or is overtaken each time, ends with its context.
func (g *group) waits() {
	const late = 50 // pauses
	ctx, stop := context.WithCancel(g.Context())
	var passed atomic.Int32 // pauses since the context has ended
	second := make(chan error, 1)
	other := func() {
		second <- g.other.Transact(ctx, g.name, []string{g.key("a")}, func(tx rowstore.Tx) error {
			if passed.Load() > late {
				g.Errorf("a transaction waited for another one, its context ended, and do was called more than %v later: does the wait for the lock end with ctx?", late*pause)
			}

			_, err := tx.Get(g.key("a"))
			tx.Put(g.key("a"), []byte("second"), time.Hour)
			return err
		})
	}

	// The second transaction begins while the first is in do: it waits for the lock, or is saved at once.
	first, locks := true, false
	err := g.db.Transact(g.Context(), g.name, []string{g.key("a")}, func(tx rowstore.Tx) error {
		_, err := tx.Get(g.key("a"))
		if err != nil || !first {
			return err
		}

		first = false
		go other()

		select {
		case err := <-second: // without a lock
			second <- err
			return nil
		case <-time.After(100 * time.Millisecond):
		}

		locks = true
		stop()

		// Keep the lock for twice as long as the second transaction may take to return.
		for range 2 * late {
			if len(second) > 0 {
				break
			}
			time.Sleep(pause)
			passed.Add(1)
		}

		tx.Put(g.key("a"), []byte("first"), time.Hour)
		return nil
	})

	stop()
	select {
	case <-second:
	case <-time.After(soon):
		g.Fatal("a transaction waited for another one, and its Transact does not return though its context has ended")
	}

	if err == nil && !locks {
		g.overtakenAfterEnd()
	}
}

// overtakenAfterEnd: without a lock, a transaction whose context has ended, and which is overtaken each time, is not made again and again.
func (g *group) overtakenAfterEnd() {
	const most = 20
	ctx, stop := context.WithCancel(g.Context())
	defer stop()
	calls, tooMany := 0, errors.New("too many calls")
	err := g.db.Transact(ctx, g.name, []string{g.key("b")}, func(tx rowstore.Tx) error {
		stop()
		calls++
		if calls > most {
			return tooMany
		}

		_, err := tx.Get(g.key("b"))
		g.overtakes("b", fmt.Sprint(calls), time.Hour)
		tx.Put(g.key("b"), []byte("b"), time.Hour)

		return err
	})
	if errors.Is(err, tooMany) {
		g.Errorf("the context of a transaction ended, the transaction was overtaken each time, and do was called %d times more: look at ctx before each call of do, and give it to each call of the database", most)
	}
}

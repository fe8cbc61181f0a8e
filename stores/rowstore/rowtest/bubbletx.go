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

// A bubbleTx is a transaction in a bubble. What it puts is put when it is known that it is not made again.
type bubbleTx struct {
	rowstore.Tx
	in    *kept
	now   time.Time
	puts  []put
	all   bool
	nodes []string
}

type put struct {
	key   string
	value []byte
	keep  time.Duration
}

// Now implements [rowstore.Tx].
func (tx *bubbleTx) Now() time.Time { return tx.now }

// A kept knows until when rows are kept.
type kept struct {
	mu    sync.Mutex
	until map[string]time.Time // by key
}

// Get implements [rowstore.Tx].
func (tx *bubbleTx) Get(keys ...string) ([][]byte, error) {
	values, err := tx.Tx.Get(keys...)
	if err != nil {
		return nil, err
	}

	// The row may be there still, although it may have been removed: the strict case is tested.
	values = slices.Clone(values)
	tx.in.mu.Lock()
	defer tx.in.mu.Unlock()

	for i, k := range keys {
		if until, ok := tx.in.until[k]; ok && !tx.now.Before(until) {
			values[i] = nil
		}
	}

	return values, nil
}

// Put implements [rowstore.Tx].
func (tx *bubbleTx) Put(key string, value []byte, keep time.Duration) {
	tx.puts = append(tx.puts, put{key, value, keep})
}

// flush puts all rows that were put. The clock of a server goes on while the clock of the bubble stands still: on a machine that is busy, a row may
// be older for the server than for the bubble.
func (tx *bubbleTx) flush() {
	tx.in.mu.Lock()
	for _, p := range tx.puts {
		tx.in.until[p.key] = tx.now.Add(p.keep)
	}

	tx.in.mu.Unlock()

	// The server's clock is not the bubble's. Rows of a test are kept there for longer than the bubble lasts.
	longer := time.Duration(0)
	if tx.Tx.Now().Sub(tx.now).Abs() > time.Hour {
		longer = 24 * time.Hour
	}

	for _, p := range tx.puts {
		tx.Tx.Put(p.key, p.value, p.keep+longer)
	}
}

// Wake implements [rowstore.Waker].
func (tx *bubbleTx) Wake(nodes ...string) { tx.all, tx.nodes = len(nodes) == 0, nodes }

func (tx *bubbleTx) wakes(node string) bool { return tx.all || slices.Contains(tx.nodes, node) }

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

// overtakes saves a transaction of the other program while one of this program is in do. It returns false if the
// Database locks, so that its transaction has to wait, or if the machine is busy.
func (g *group) overtakes(key, value string, keep time.Duration) bool {
	// Without a lock the other program is saved at once. With a lock it waits, and gives up.
	ctx, stop := context.WithTimeout(g.Context(), time.Second/4)
	done := make(chan error, 1)
	go func() { // a Database that ignores ctx must not keep the caller waiting, who has the lock
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

// overtakenIn has do get a second row after it was overtaken if more is true: the version of that row, or of the group, is a new one.
func (g *group) overtakenIn(in string, more bool) {
	a, b, once := g.key(in+"a"), g.key(in+"b"), g.key(in+"once")
	calls, overtook := 0, false
	err := g.db.Transact(g.Context(), g.name, []string{a}, func(tx rowstore.Tx) error {
		calls++
		if _, err := tx.Get(a); err != nil || calls > 1 {
			tx.Put(b, []byte("again"), time.Hour)
			return err
		}

		// The other program is saved between the Get and the end of do.
		overtook = g.overtakes(in+"a", "other", time.Hour)
		tx.Put(b, []byte("first"), time.Hour)
		tx.Put(once, []byte("first"), time.Hour)
		if !more {
			return nil
		}

		_, err := tx.Get(g.key(in + "c"))
		return err
	})
	if err != nil || !overtook { // it locks, or the lock was taken away because do stood still
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

// removed: a version that was compared does not come back after its row was removed. A Database that keeps rows for longer passes.
func (g *group) removed() {
	put := func(value string, keep time.Duration) bool { return g.overtakes("a", value, keep) }
	if !put("old", time.Millisecond) {
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
			if !g.overtakes("other", "other", time.Hour) { // it locks
				break
			}
			gone = g.missing("a") && put("new", time.Hour)
		}

		tx.Put(g.key("b"), []byte("b"), time.Hour)
		return nil
	})

	if err == nil && gone && calls == 1 {
		g.Error("do got a row, the row was removed and put again with another value, and then the transaction was saved. A version must not come back after its row was removed: " +
			"take a random one, or a number that all rows share")
	}
}

// missing returns whether the other program finds no row. It is called in do of a Database that does not lock.
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

// returns: Transact does not return before do has, though the context ends.
func (g *group) returns() {
	ctx, stop := context.WithCancel(g.Context())
	returned, ended := make(chan struct{}), make(chan bool, 1)
	first := true
	go func() {
		defer close(returned)
		_ = g.db.Transact(ctx, g.name, []string{g.key("a")}, func(tx rowstore.Tx) error {
			_, err := tx.Get(g.key("a"))
			if !first {
				return err
			}

			first = false
			stop()

			// If Transact returns now, it has not waited for do.
			select {
			case <-returned:
				ended <- false
			case <-time.After(100 * time.Millisecond):
				ended <- true
			}

			tx.Put(g.key("a"), []byte("a"), time.Hour)
			return err
		})
	}()

	<-returned
	if !first && !<-ended {
		g.Error("the context ended while do ran, and Transact returned before do did. Transact has to wait for do: what do does later is not safe")
	}
}

// waits: a transaction that waits for a lock, or is overtaken each time, ends with its context.
func (g *group) waits() {
	const late = 50 // pauses
	ctx, stop := context.WithCancel(g.Context())
	passes, second := make(chan int, 1), make(chan error, 1)
	passes <- 0
	passed := func(n int) (all int) {
		all = <-passes + n
		passes <- all
		return all
	}

	other := func() {
		second <- g.other.Transact(ctx, g.name, []string{g.key("a")}, func(tx rowstore.Tx) error {
			if n := passed(0); n > late {
				g.Errorf("a transaction waited for another one, its context ended, and do was called more than %v later: does the wait for the lock end with ctx?", late*pause)
			}

			_, err := tx.Get(g.key("a"))
			tx.Put(g.key("a"), []byte("second"), time.Hour)
			return err
		})
	}

	first, locks := true, false
	err := g.db.Transact(g.Context(), g.name, []string{g.key("a")}, func(tx rowstore.Tx) error {
		_, err := tx.Get(g.key("a"))
		if err != nil || !first {
			return err
		}

		first = false
		go other()

		select {
		case err := <-second: // it did not wait
			second <- err
			return nil
		case <-time.After(100 * time.Millisecond):
		}

		locks = true
		stop()

		// Count the pauses since the context has ended: do of the other transaction must not be called late.
		for range 2 * late {
			if len(second) > 0 {
				break
			}
			time.Sleep(pause)
			passed(1)
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

// overtakenAfterEnd: a transaction whose context has ended is not made again and again.
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

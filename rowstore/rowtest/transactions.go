package rowtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/rowstore"
)

// transactions checks what a Database promises, without a Store.
func (s *suite) transactions(t *testing.T) {
	t.Run("rows", func(t *testing.T) { s.group(t).rows() })
	t.Run("errors", func(t *testing.T) { s.group(t).errors() })
	t.Run("order", func(t *testing.T) { s.group(t).order(!s.with.ManyClocks) })
	t.Run("skew", func(t *testing.T) { s.group(t).skew() })
	t.Run("context", func(t *testing.T) { s.group(t).context() })
	t.Run("reads", func(t *testing.T) { s.group(t).reads() })
	t.Run("news", func(t *testing.T) { s.group(t).news() })
}

// A group is one of a check.
type group struct {
	*testing.T
	db   rowstore.Database
	name string
}

func (s *suite) group(t *testing.T) *group {
	t.Parallel()
	return &group{t, s.open(t), rand.Text()}
}

func (g *group) key(name string) string { return g.name + "/" + name }

// transact runs a transaction that must be saved.
func (g *group) transact(do func(rowstore.Tx) error, keys ...string) {
	g.Helper()
	if err := g.db.Transact(g.Context(), g.name, keys, do); err != nil {
		g.Errorf("Transact: %v", err)
	}
}

// get returns the values of rows.
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

// rows: what is put can be got, in the same group and by the same key alone.
func (g *group) rows() {
	large := bytes.Repeat([]byte{0, 0xff, '\'', '\\'}, 2048)
	g.transact(func(tx rowstore.Tx) error {
		tx.Put(g.key("large"), large, time.Hour)
		tx.Put(g.key("small"), []byte{0}, time.Hour)
		return nil
	}, g.key("small"))
	values := g.get(g.key("small"), g.key("none"), g.key("large"))
	if !bytes.Equal(values[0], []byte{0}) || values[1] != nil || !bytes.Equal(values[2], large) {
		g.Fatalf("got %d, %v and %d bytes of what was put", values[0], values[1], len(values[2]))
	}
	g.transact(func(tx rowstore.Tx) error {
		values, err := tx.Get(g.key("large")) // it is none of those that were known beforehand
		if err == nil && !bytes.Equal(values[0], large) {
			g.Errorf("a key that was not known beforehand: %d bytes", len(values[0]))
		}
		tx.Put(g.key("large"), []byte("shorter"), time.Hour)
		return err
	})
	if v := g.get(g.key("large")); string(v[0]) != "shorter" {
		g.Errorf("a row that was put twice: %d bytes", len(v[0]))
	}
}

// errors: nothing is saved of a transaction that ends with an error.
func (g *group) errors() {
	no := errors.New("no")
	err := g.db.Transact(g.Context(), g.name, []string{g.key("a")}, func(tx rowstore.Tx) error {
		tx.Put(g.key("a"), []byte("a"), time.Hour)
		return no
	})
	if !errors.Is(err, no) {
		g.Errorf("Transact returned %v, and not the error of do", err)
	}
	if v := g.get(g.key("a")); v[0] != nil {
		g.Errorf("a transaction that ended with an error saved %q", v[0])
	}
}

// order: no transaction is lost, and time does not go back from one to the next.
func (g *group) order(oneClock bool) {
	const callers, each = 8, 25
	var mu sync.Mutex
	seen := make(map[uint64]time.Time) // the time of each transaction, by its number
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				var number uint64
				var now time.Time
				g.transact(func(tx rowstore.Tx) error {
					values, err := tx.Get(g.key("number"))
					if err != nil {
						return err
					}
					number = 1
					if values[0] != nil {
						number += binary.BigEndian.Uint64(values[0])
					}
					now = tx.Now()
					tx.Put(g.key("number"), binary.BigEndian.AppendUint64(nil, number), time.Hour)
					return nil
				}, g.key("number"))
				mu.Lock()
				seen[number] = now
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(seen) != callers*each {
		g.Fatalf("of %d transactions %d were lost: another one read what they had not saved yet", callers*each, callers*each-len(seen))
	}
	for i := uint64(2); oneClock && i <= callers*each; i++ {
		if seen[i].Before(seen[i-1]) {
			g.Fatalf("transaction %d was at %v, and the one before it %v later: is the clock read before the group is locked?", i, seen[i], seen[i-1].Sub(seen[i]))
		}
	}
}

// skew: two transactions that read the same rows and put different ones do not both find what was there before.
func (g *group) skew() {
	for range 25 {
		name := rand.Text()
		keys := []string{g.key(name + "-0"), g.key(name + "-1")}
		var both sync.WaitGroup
		for _, mine := range keys {
			both.Go(func() {
				g.transact(func(tx rowstore.Tx) error {
					values, err := tx.Get(keys...)
					if err == nil && values[0] == nil && values[1] == nil {
						tx.Put(mine, []byte("first"), time.Hour)
					}
					return err
				}, keys...)
			})
		}
		both.Wait()
		if v := g.get(keys...); v[0] != nil && v[1] != nil {
			g.Fatal("two transactions of a group both found that they were the first: they are not serializable")
		}
	}
}

// soon is longer than anything may take that has to happen soon.
const soon = 20 * time.Second

// context: a transaction whose context has ended does not last.
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

// reads: Read sees what was saved before it was called.
func (g *group) reads() {
	r, ok := g.db.(rowstore.Reader)
	if !ok {
		g.Skip("the Database is no Reader")
	}
	for i := range byte(20) {
		g.transact(func(tx rowstore.Tx) error {
			tx.Put(g.key("a"), []byte{i}, time.Hour)
			return nil
		})
		if err := r.Read(g.Context(), g.name, []string{g.key("a"), g.key("none")}, func(tx rowstore.Tx) error {
			values, err := tx.Get(g.key("none"), g.key("a"))
			if err == nil && (values[0] != nil || !bytes.Equal(values[1], []byte{i})) {
				g.Errorf("Read got %v after %d was saved", values, i)
			}
			return err
		}); err != nil {
			g.Fatalf("Read: %v", err)
		}
	}
}

// news: who listens is woken.
func (g *group) news() {
	n, ok := g.db.(rowstore.Notifier)
	if !ok {
		g.Skip("the Database is no Notifier: nodes look four times a second")
	}
	woken := make(chan struct{}, 1)
	stop, err := n.Listen(g.name, "me", func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	if err != nil {
		g.Fatalf("Listen: %v", err)
	}
	defer stop()
	for _, to := range [][]string{nil, {"other", "me"}} {
		for len(woken) > 0 {
			<-woken
		}
		g.transact(func(tx rowstore.Tx) error {
			tx.Put(g.key("a"), []byte("a"), time.Hour)
			w, ok := tx.(rowstore.Waker)
			if !ok {
				return errors.New("the Tx of a Notifier is no Waker")
			}
			w.Wake(to...)
			return nil
		})
		select {
		case <-woken:
		case <-time.After(soon):
			g.Fatalf("Wake(%q) does not wake a node that listens", to)
		}
	}
}

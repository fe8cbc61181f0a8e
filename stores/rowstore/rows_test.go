package rowstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A measured is a Database that notes what transactions ask for.
type measured struct {
	rowstore.Database
	mu   sync.Mutex
	keys []int // of each transaction, how many keys were known beforehand
	gets []int // and how often it read
}

// Transact implements [rowstore.Database].
func (m *measured) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	var of measuredTx
	err := m.Database.Transact(ctx, group, keys, func(tx rowstore.Tx) error {
		of = measuredTx{Tx: tx}
		return do(&of)
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys, m.gets = append(m.keys, len(keys)), append(m.gets, of.gets)
	return err
}

// take returns what was noted since the last call.
func (m *measured) take() (keys, gets []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys, gets = m.keys, m.gets
	m.keys, m.gets = nil, nil
	return keys, gets
}

type measuredTx struct {
	rowstore.Tx
	gets int
}

func (tx *measuredTx) Get(keys ...string) ([][]byte, error) {
	tx.gets++
	return tx.Tx.Get(keys...)
}

// slots is a budget of its own for each number.
func slots(i int) store.Charge {
	c := slot()
	binary.BigEndian.PutUint32(c.Budget.Key[:], uint32(i+1))
	return c
}

// TestRows: a transaction has so many rows as Options say, and reads them at once: those of many callers, those of a caller with
// several budgets, and those whose leases are renewed.
func TestRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &measured{Database: newMemory()}
		s := must(rowstore.New(m, rowstore.Options{Rows: 10}))
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				b := &store.Booking{Charges: []store.Charge{slots(2 * i), slots(2*i + 1)}}
				g, err := s.Book(t.Context(), b)
				if err != nil || !g.OK {
					t.Errorf("%v %v", g, err)
				}
			})
		}
		all.Wait()
		keys, gets := m.take()
		require.Equal(t, 12, slices.Max(keys), "ten, and two of the store's own")
		require.Equal(t, 1, slices.Max(gets))
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		keys, gets = m.take()
		require.Equal(t, 12, slices.Max(keys))
		require.Equal(t, 1, slices.Max(gets))
		require.Len(t, keys, 40, "400 leases are renewed")
		for i := range 200 {
			s.Release(&store.Booking{Charges: []store.Charge{slots(2 * i), slots(2*i + 1)}}, store.Grant{OK: true})
		}
	})
}

// TestP11_FarLooks: a caller that looks at rows that are far away does not wait for the looks of others, so a caller that confirms its start a round trip before
// the start has the answer in time. A program has at most three looks under way, and one at a time in a database that is near.
func TestP11_FarLooks(t *testing.T) {
	for _, c := range []struct {
		way    time.Duration
		atOnce int64 // looks under way, at the most
	}{{20 * time.Millisecond, 3}, {time.Millisecond, 1}} {
		synctest.Test(t, func(t *testing.T) {
			d := newServed(45)
			l := &lookers{distant: &distant{served: d, way: c.way}}
			s := must(rowstore.New(onServer{l, l, d}, rowstore.Options{}))

			var all sync.WaitGroup
			for range 100 {
				time.Sleep(c.way * 3 / 4)
				all.Go(func() {
					began := time.Now()
					used(t, s, hourly(1))
					if took := time.Since(began); c.atOnce > 1 && took > 2*c.way {
						t.Errorf("a look took %v", took)
					}
				})
			}

			all.Wait()
			require.Equal(t, c.atOnce, l.most.Load())
		})
	}
}

// TestP3_ASlowLook: a look that takes many times the usual is made a second time for the same caller, who has the first answer. Where looks fail, the caller
// has an answer of a look that did not.
func TestP3_ASlowLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newServed(45)
		l := &lookers{distant: &distant{served: d, way: time.Millisecond}}
		s := must(rowstore.New(onServer{l, l, d}, rowstore.Options{}))
		look := func() time.Duration {
			began := time.Now()
			used(t, s, hourly(1))
			return time.Since(began)
		}

		// The looks become known to take less than 20 ms each.
		for range 20 {
			look()
		}

		for _, err := range []error{nil, errors.New("the connection is lost")} {
			l.late.Store(&lateLook{by: time.Minute, err: err})
			require.Less(t, look(), time.Second)
		}
		time.Sleep(2 * time.Minute) // until the late looks are over
	})
}

// TestP3_AskedInTime: a caller asks whether its start still holds before the start has come, so that an answer that takes a little longer than a start may
// be late does not cost the caller its start.
func TestP3_AskedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newServed(45)
		d.slower = 0.01
		l := &lookers{distant: &distant{served: d}}
		stale := 0
		limits, err := throttle.NewLimiters(throttle.Config{
			Store: must(rowstore.New(onServer{l, l, d}, rowstore.Options{})), Policies: []throttle.Policy{{Name: "all", Limit: store.PerSecond(1)}},
			Observe: func(_ context.Context, e throttle.Event) {
				if e.Kind == throttle.EventStale {
					stale++
				}
			},
		})
		require.NoError(t, err)
		start := func() {
			_, err := limits.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), throttle.Demand{Policy: "all"})
			require.NoError(t, err)
		}
		start()

		// The second start is booked by then, and its caller asks soon.
		time.AfterFunc(900*time.Millisecond, func() { l.slow.Store(int64(12 * time.Millisecond)) })
		start()
		require.Zero(t, stale, "starts were given back, because the answer was late")
	})
}

// lookers are a distant that counts the looks that are under way.
type lookers struct {
	*distant
	under, most atomic.Int64
	late        atomic.Pointer[lateLook] // how the next read ends, or nil for a usual read
	slow        atomic.Int64             // how many nanoseconds each read takes beside
}

// A lateLook is a read that takes long, and may fail then.
type lateLook struct {
	by  time.Duration
	err error
}

// Read implements [rowstore.Reader].
func (l *lookers) Read(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	l.most.Store(max(l.most.Load(), l.under.Add(1)))
	defer l.under.Add(-1)
	time.Sleep(time.Duration(l.slow.Load()))
	if late := l.late.Swap(nil); late != nil {
		time.Sleep(late.by)
		if late.err != nil {
			return late.err
		}
	}
	return l.distant.Read(ctx, group, keys, do)
}

// TestP12_Looks: a look is not awaited for longer than its caller may, and shows nothing to a caller that has left.
func TestP12_Looks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		s := must(rowstore.New(&broken{Database: newMemory(), before: func() error { <-goOn; return nil }}, rowstore.Options{}))
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		began := time.Now()
		_, err := s.Status(ctx, hourly(1))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))

		c := hourly(1)
		w := s.Watch(&store.Booking{Charges: []store.Charge{c}}, store.Grant{OK: true}, make(chan struct{}, 1))
		_, err = w.Confirm(t.Context(), time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 2*time.Second, time.Since(began))
		w.Stop()
		close(goOn)
	})
}

// A memory is a Database of a test. Its clock is the program's, which may be that of a bubble.
type memory struct {
	arrivals ledger.Arrivals
	turn     chan struct{}    // has an element while a transaction goes on
	clock    func() time.Time // another clock. With nil it is the program's.

	mu   sync.Mutex
	goes *memoryTx // the transaction that goes on
	rows map[string]row
	bell map[string]func() // by node
	puts int
}

type row struct {
	value   []byte
	expires time.Time
}

func newMemory() *memory {
	return &memory{turn: make(chan struct{}, 1), rows: make(map[string]row), bell: make(map[string]func())}
}

// Arrivals lets stores count arrivals together.
func (m *memory) Arrivals() *ledger.Arrivals { return &m.arrivals }

// A memoryTx implements [rowstore.Tx].
type memoryTx struct {
	*memory
	now   time.Time
	put   map[string]row
	wakes []string
	all   bool
}

func (tx *memoryTx) Now() time.Time { return tx.now }

// Get implements [rowstore.Tx]. Rows whose time is over are not found.
func (tx *memoryTx) Get(keys ...string) ([][]byte, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	all := make([][]byte, len(keys))
	for i, k := range keys {
		if r := tx.rows[k]; tx.now.Before(r.expires) {
			all[i] = r.value
		}
	}
	return all, nil
}

func (tx *memoryTx) Put(key string, value []byte, keep time.Duration) {
	tx.put[key] = row{value, tx.now.Add(keep)}
}

func (tx *memoryTx) Wake(nodes ...string) {
	tx.wakes, tx.all = nodes, len(nodes) == 0
}

var errStandstill = errors.New("the transaction stood still, and was ended")

// begin begins a transaction when no other one goes on, and ends one that stands still.
func (m *memory) begin(ctx context.Context) (*memoryTx, error) {
	for began := false; !began; {
		m.mu.Lock()
		before := m.goes
		m.mu.Unlock()
		select {
		case m.turn <- struct{}{}:
			began = true
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Second):
			m.mu.Lock()
			if before != nil && m.goes == before {
				m.goes = nil
				<-m.turn
			}
			m.mu.Unlock()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.goes = &memoryTx{memory: m, now: time.Now(), put: make(map[string]row)}
	if m.clock != nil {
		m.goes.now = m.clock()
	}
	return m.goes, nil
}

// Transact implements [rowstore.Database].
func (m *memory) Transact(ctx context.Context, _ string, _ []string, do func(rowstore.Tx) error) error {
	tx, err := m.begin(ctx)
	if err != nil {
		return err
	}
	err = do(tx)
	m.mu.Lock()
	if m.goes != tx {
		err = errStandstill
	} else {
		m.goes = nil
		<-m.turn
	}
	if err != nil {
		m.mu.Unlock()
		return err
	}
	maps.Copy(m.rows, tx.put)
	m.puts += len(tx.put)
	var ring []func()
	for node, wake := range m.bell {
		if tx.all || slices.Contains(tx.wakes, node) {
			ring = append(ring, wake)
		}
	}
	m.mu.Unlock()
	for _, wake := range ring {
		wake()
	}
	return nil
}

// A notifier is a memory that wakes nodes.
type notifier struct{ *memory }

// Listen implements [rowstore.Notifier].
func (m notifier) Listen(_, node string, wake func()) (stop func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bell[node] = wake
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.bell, node)
	}, nil
}

package rowstore_test

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A served is a database on a server: transactions and reads take a random time, and the server counts them.
type served struct {
	*memory
	sessions *sessions
	n        atomic.Int64 // transactions, reads, questions who is present, and nodes that heard a message, which is a transaction in PostgreSQL

	slower float64       // how many times as long a trip takes as on a server with time to spare
	wakes  time.Duration // for how long a message keeps the server from transactions, for each node that listens

	dice   sync.Mutex
	random *rand.Rand
}

func newServed(seed uint64) *served {
	return &served{
		memory: newMemory(), sessions: &sessions{open: make(map[*session]bool)}, random: rand.New(rand.NewPCG(seed, 45)), slower: 1,
	}
}

// onServer has the methods of a served, and no arrivals in common: each node counts its own.
type onServer struct {
	rowstore.Database
	rowstore.Reader
	rowstore.Attender
}

// trip waits for as long as one way and the work of the server take: 0.1 to 10 ms, and 1.4 ms on average. A transaction makes two trips.
func (s *served) trip() {
	s.dice.Lock()
	u := s.random.Float64()
	d := time.Duration(s.slower * float64(100*time.Microsecond) * math.Pow(100, u*u))
	s.dice.Unlock()
	time.Sleep(d)
}

// A servedTx knows when the database was asked for the time.
type servedTx struct {
	*memoryTx
	asked time.Time
}

func (tx servedTx) Asked() time.Time { return tx.asked }

// Transact implements [rowstore.Database].
func (s *served) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	s.n.Add(1)
	return s.memory.Transact(ctx, group, keys, func(tx rowstore.Tx) error {
		asked := time.Now()
		s.trip()
		err := do(servedTx{tx.(*memoryTx), asked})
		if own := tx.(*memoryTx); own.all || len(own.wakes) > 0 {
			s.mu.Lock()
			listen := len(s.bell)
			s.mu.Unlock()
			s.n.Add(int64(listen))
			time.Sleep(time.Duration(listen) * s.wakes)
		}
		s.trip()
		return err
	})
}

// Read implements [rowstore.Reader].
func (s *served) Read(_ context.Context, _ string, _ []string, do func(rowstore.Tx) error) error {
	s.n.Add(1)
	asked := time.Now()
	s.trip()
	return do(servedTx{&memoryTx{memory: s.memory, now: time.Now()}, asked})
}

// Attend implements [rowstore.Attender].
func (s *served) Attend(ctx context.Context, node string) (rowstore.Session, error) {
	own, err := (&attended{stoppable: &stoppable{notifier: notifier{s.memory}}, sessions: s.sessions}).Attend(ctx, node)
	return countedSession{own, s}, err
}

// A countedSession counts its questions.
type countedSession struct {
	rowstore.Session
	server *served
}

func (c countedSession) Present(ctx context.Context, nodes []string) (present []bool, now time.Time, err error) {
	c.server.n.Add(1)
	return c.Session.Present(ctx, nodes)
}

// TestP3_WaitingOnASlowServer: the callers of many nodes use the limit though the server does one transaction at a time, takes long and uneven times, and is busy for a
// while with each message, because it wakes all nodes that listen. Nearly each start that is booked for a waiter is used. If starts were given back because answers take
// uneven times, each start would cost more transactions the slower the server is, and the server would have no time left.
func TestP3_WaitingOnASlowServer(t *testing.T) {
	for i, c := range []struct {
		*waitingNodes
		most float64 // transactions and reads a start, and nodes that hear a message
	}{
		{&waitingNodes{nodes: 60, callers: 4, n: 40, slower: 2, wakes: 100 * time.Microsecond}, 9},
		{&waitingNodes{nodes: 60, callers: 4, n: 40, slower: 1.5, wakes: 800 * time.Microsecond}, 8},
		{&waitingNodes{nodes: 16, callers: 16, n: 40, slower: 2.5, wakes: 100 * time.Microsecond}, 3.5},
		{&waitingNodes{nodes: 4, callers: 16, n: 40, slower: 3, wakes: 100 * time.Microsecond}, 2.5},
	} {
		f := c.waitingNodes
		t.Run(f.String(), func(t *testing.T) {
			if i > 0 { // the race detector looks at the first
				soak.WithoutRace(t)
			}

			synctest.Test(t, func(t *testing.T) {
				f.T, f.random = t, rand.New(rand.NewPCG(45, 45))
				began := time.Now()
				transactions := f.play()

				since := began.Add(orderSettles)
				in := f.within(since, since.Add(orderLasts))
				used := float64(len(in)) * 1.035 / (float64(f.n) * orderLasts.Seconds())
				cost := float64(transactions) / float64(len(in))
				wrong, passed := f.order(since)
				t.Logf("%.1f %% used, %.2f transactions a start, %.1f %% of pairs in the wrong order, passed by %v", 100*used, cost, 100*wrong, passed)
				require.GreaterOrEqual(t, used, 0.97)
				require.LessOrEqual(t, cost, c.most)
			})
		})
	}
}

// A distant is a database on a server that is far away: a way there and a way back take as long each, or up to the given time longer. A transaction has the lock of the rows from when the
// server reads the clock until the server saves, which is a way back and a way there, and takes a round trip beside that.
type distant struct {
	*served
	way    time.Duration
	uneven time.Duration // by how much a way may be longer. Most are longer by little.
}

// travel waits for as long as one way takes.
func (d *distant) travel() {
	d.dice.Lock()
	u := d.random.Float64()
	d.dice.Unlock()
	time.Sleep(d.way + time.Duration(u*u*float64(d.uneven)))
}

// Transact implements [rowstore.Database].
func (d *distant) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	d.n.Add(1)
	sent := time.Now()
	d.travel()
	arrived := time.Now()

	err := d.memory.Transact(ctx, group, keys, func(tx rowstore.Tx) error {
		waited := time.Since(arrived)
		d.travel()
		err := do(servedTx{tx.(*memoryTx), sent.Add(waited)})
		d.travel()
		return err
	})

	d.travel()
	return err
}

// Read implements [rowstore.Reader].
func (d *distant) Read(_ context.Context, _ string, _ []string, do func(rowstore.Tx) error) error {
	d.n.Add(1)
	asked := time.Now()
	d.travel()

	// The rows of this moment, which the reader sees later.
	d.mu.Lock()
	seen := &memoryTx{memory: &memory{rows: maps.Clone(d.rows)}, now: time.Now()}
	d.mu.Unlock()

	d.travel()
	return do(servedTx{seen, asked})
}

// distantBell has the nodes of a distant hear of news.
type distantBell struct{ far *distant }

// Listen implements [rowstore.Notifier].
func (b distantBell) Listen(group, node string, wake func()) (stop func(), err error) {
	return notifier{b.far.memory}.Listen(group, node, func() { time.AfterFunc(b.far.way, wake) })
}

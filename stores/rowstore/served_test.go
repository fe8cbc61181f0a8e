package rowstore_test

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A served is a database on a server: transactions and reads take a random time, and the server counts them.
type served struct {
	*memory
	sessions *sessions
	n        atomic.Int64 // transactions, reads, questions who is present, and nodes that heard a message, which is a transaction in PostgreSQL

	dice   sync.Mutex
	random *rand.Rand
}

func newServed(seed uint64) *served {
	return &served{
		memory: newMemory(), sessions: &sessions{open: make(map[*session]bool)}, random: rand.New(rand.NewPCG(seed, 45)),
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
	d := time.Duration(float64(100*time.Microsecond) * math.Pow(100, u*u))
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
			s.n.Add(int64(len(s.bell)))
			s.mu.Unlock()
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

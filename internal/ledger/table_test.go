package ledger_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// A table is the database of byteStores: it keeps every row as bytes, and does one step
// after another. Every fifth step is lost, and of every third the answer.
type table struct {
	t      testing.TB
	stores []*byteStore

	// arrivals is a sequence of the database. Without one, stores would not know which of
	// two callers came first that came to different lines within a microsecond.
	arrivals ledger.Arrivals

	mu      sync.Mutex
	steps   int
	rows    map[ledger.Key]stored
	records map[int64][]byte // of the last call of each node
}

// stored is a row as bytes.
type stored struct {
	bytes   []byte
	expires int64
	busy    bool // it does not expire
}

// newTable returns a table with so many stores. Several have leases.
func newTable(t testing.TB, stores int) *table {
	db := &table{t: t, rows: make(map[ledger.Key]stored), records: make(map[int64][]byte)}
	for i := range stores {
		s := &byteStore{
			table: db, slots: make(map[ledger.Place]*slotWaiter), line: make(map[ledger.Place]*waiter),
			timers: make(map[ledger.Key]*time.Timer), watches: make(map[*watch]struct{}),
		}
		s.Reader = s.read
		if stores > 1 {
			s.node = ledger.Node{ID: int64(i + 1), Lease: int64(store.MaxAhead / time.Microsecond)}
		}
		db.stores = append(db.stores, s)
	}
	return db
}

// linger is for how long a row is kept that no limit needs: a longer one may come.
const linger = 10_000_000

var errLost = errors.New("the connection was cut")

// step loads rows, decides and saves them, all or none, unless the call was done before. It
// returns which try of the call was done.
func (t *table) step(node, call, try int64, keys []ledger.Key, decide func(now int64, row func(ledger.Key) *ledger.Row)) (tried int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var last ledger.Record
	if b := t.records[node]; b != nil {
		t.check(last.UnmarshalBinary(b))
	}
	if verdict := last.Begin(call, try); verdict == ledger.Done {
		return last.Tried(), nil
	} else if verdict == ledger.Late {
		t.t.Errorf("call %d is late", call)
	}
	now, rows := time.Now().UnixMicro(), make(map[ledger.Key]*ledger.Row)
	for _, key := range keys {
		rows[key] = t.load(key, now)
	}
	decide(now, func(key ledger.Key) *ledger.Row { return rows[key] })
	if t.steps++; t.steps%5 == 0 {
		return 0, errLost
	}
	for key, r := range rows {
		t.save(key, r)
	}
	t.records[node], err = last.MarshalBinary()
	t.check(err)
	if t.steps%3 == 0 {
		return 0, errLost
	}
	return try, nil
}

// read looks at rows.
func (t *table) read(look func(now int64, row func(ledger.Key) *ledger.Row)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now().UnixMicro()
	look(now, func(key ledger.Key) *ledger.Row { return t.load(key, now) })
}

// line returns the place of the waiter that is served next in a line, and, if waiters that
// have none are wanted, which those are.
func (t *table) line(key ledger.Key) (head ledger.Place, lost func(ledger.Place) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.load(key, time.Now().UnixMicro())
	head, _ = r.Head(key)
	t.save(key, r)
	if r.Wants() {
		lost = func(p ledger.Place) bool { return !r.Lists(p) }
	}
	return head, lost
}

func (t *table) load(key ledger.Key, now int64) *ledger.Row {
	r := new(ledger.Row)
	if s, ok := t.rows[key]; ok && (s.busy || s.expires+linger > now) {
		t.check(r.UnmarshalBinary(s.bytes))
	}
	return r
}

func (t *table) save(key ledger.Key, r *ledger.Row) {
	b, err := r.MarshalBinary()
	t.check(err)
	if len(b) > ledger.MaxBytes {
		t.t.Errorf("a row has %d bytes", len(b))
	}
	t.rows[key] = stored{b, r.Expiry(), r.Busy()}
}

func (t *table) check(err error) {
	if err != nil {
		t.t.Errorf("%v", err)
	}
}

package ledger_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/ledger"
)

// A table is the database of byteStores: it keeps every row as bytes, and steps on it are
// done one after another. Of every third step the answer is lost, and of every fifth the
// step itself.
type table struct {
	mu      sync.Mutex
	t       testing.TB
	rows    map[ledger.Key]stored
	records map[int64][]byte // by node
	stores  []*byteStore
	steps   int
}

// stored is a row as bytes; nil for ever, or until it expires.
type stored struct {
	bytes   []byte
	expires int64
	busy    bool
}

var errLost = errors.New("the connection was cut")

// step loads rows, decides, and saves them, if the record says that the call was not done
// before. It returns which try of the call was done.
func (t *table) step(node, call, try int64, keys []ledger.Key, decide func(now int64, rows map[ledger.Key]*ledger.Row)) (tried int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps++
	var last ledger.Record
	if b := t.records[node]; b != nil {
		t.check(last.UnmarshalBinary(b))
	}
	if verdict := last.Begin(call, try); verdict == ledger.Late {
		t.t.Errorf("the call %d is late", call)
	} else if verdict == ledger.Done {
		return last.Tried(), nil
	}
	now, rows := time.Now().UnixMicro(), make(map[ledger.Key]*ledger.Row)
	for _, key := range keys {
		rows[key] = t.load(key, now)
	}
	decide(now, rows)
	if t.steps%5 == 0 {
		return 0, errLost // before it is saved
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

func (t *table) load(key ledger.Key, now int64) *ledger.Row {
	r := new(ledger.Row)
	if s, ok := t.rows[key]; ok && (s.busy || s.expires > now) {
		t.check(r.UnmarshalBinary(s.bytes))
	}
	return r
}

func (t *table) save(key ledger.Key, r *ledger.Row) {
	b, err := r.MarshalBinary()
	t.check(err)
	if len(b) > ledger.MaxBytes {
		t.t.Errorf("a row of %d bytes", len(b))
	}
	t.rows[key] = stored{b, r.Expiry(), r.Busy()}
}

func (t *table) check(err error) {
	if err != nil {
		t.t.Errorf("%v", err)
	}
}

// A byteStore is a store of one node on a table: what it keeps itself is what its callers
// lose with it.
type byteStore struct {
	table    *table
	node     ledger.Node
	arrivals ledger.Arrivals

	calls sync.Mutex // makes one call after another
	call  int64

	mu      sync.Mutex
	slots   map[ledger.Place]chan struct{}
	line    map[ledger.Place]*waiter
	watches map[*watch]struct{}
}

type waiter struct {
	ledger.Waiter
	booking throttle.Booking
	ends    time.Time // zero: never
	ready   chan struct{}
	grant   throttle.Grant // what was booked for it, if that is OK
}

// newTable returns as many stores on one table.
func newTable(t testing.TB, stores int) *table {
	db := &table{t: t, rows: make(map[ledger.Key]stored), records: make(map[int64][]byte)}
	for i := range stores {
		s := &byteStore{
			table: db, slots: make(map[ledger.Place]chan struct{}), line: make(map[ledger.Place]*waiter), watches: make(map[*watch]struct{}),
		}
		if stores > 1 {
			s.node = ledger.Node{ID: int64(i + 1), Lease: int64(24 * time.Hour / time.Microsecond)}
		}
		db.stores = append(db.stores, s)
	}
	return db
}

// do decides on the rows of bookings in one step, for a waiter if there is one, and tells
// the news.
func (s *byteStore) do(w *waiter, decide func(w *ledger.Waiter, request func(*throttle.Booking) *ledger.Request), bookings ...*throttle.Booking) {
	var keys []ledger.Key
	for _, b := range bookings {
		for _, c := range b.Charges {
			keys = append(keys, c.Budget.Key)
		}
	}
	type outcome struct {
		waiter ledger.Waiter
		news   []*ledger.News
	}
	tries := []outcome{{}}
	var done outcome
	s.calls.Lock()
	for s.call++; ; {
		o := outcome{}
		if w != nil {
			o.waiter = w.Clone()
		}
		tried, err := s.table.step(s.node.ID, s.call, int64(len(tries)), keys, func(now int64, rows map[ledger.Key]*ledger.Row) {
			decide(&o.waiter, func(b *throttle.Booking) *ledger.Request {
				var mine []*ledger.Row
				for _, c := range b.Charges {
					mine = append(mine, rows[c.Budget.Key])
				}
				q := ledger.NewRequest(now, s.node, &s.arrivals, b, mine)
				o.news = append(o.news, q.News)
				return q
			})
		})
		if tries = append(tries, o); err == nil {
			done = tries[tried]
			break
		}
	}
	s.calls.Unlock()
	_ = done
}

// slicesOf keeps the import of slices.
var _ = slices.Clone[[]int]

type watch struct{}

var _ context.Context

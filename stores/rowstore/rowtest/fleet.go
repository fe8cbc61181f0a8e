package rowtest

import (
	"crypto/rand"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// fleet has several nodes with a Database each use one budget, by the database's own clock.
func (s *suite) fleet(t *testing.T) {
	const nodes, callers, n = 3, 8, 20
	const per, length = 100 * time.Millisecond, time.Second
	o := s.with
	o.Name = rand.Text()
	charge := store.Charge{Budget: store.Budget{Policy: "fleet", Key: [16]byte{1}}, Limit: store.SlidingWindow(n, per), Cost: 1}
	var mu sync.Mutex
	var marks []int64
	var all sync.WaitGroup

	// Callers of all nodes use the budget at once, each node with a store of its own.
	end := time.Now().Add(length)
	for range nodes {
		st := s.store(t, s.open(t), o)
		for range callers {
			all.Go(func() {
				for time.Now().Before(end) {
					g, err := st.Book(t.Context(), &store.Booking{Charges: []store.Charge{charge}, MaxWait: time.Minute})
					if err != nil {
						t.Errorf("Book: %v", err)
						return
					}

					mu.Lock()
					marks = append(marks, g.Handle.Start)
					mu.Unlock()
					time.Sleep(g.Wait)
				}
			})
		}
	}

	all.Wait()
	if t.Failed() {
		return
	}

	// In any window there are at most as many starts as the limit allows, whichever node booked them.
	slices.Sort(marks)
	for i := n; i < len(marks); i++ {
		if marks[i]-marks[i-n] <= per.Microseconds() {
			t.Fatalf("%d starts in %d µs, and the limit is %d in %v: do transactions overlap, or does the clock go back?", n+1, marks[i]-marks[i-n], n, per)
		}
	}

	if len(marks) < n*int(length/per)/2 {
		t.Errorf("%d starts in %v, and the limit allows %d: do transactions take long, or wait long for the lock?", len(marks), length, n*int(length/per))
	}
}

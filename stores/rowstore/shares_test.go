package rowstore_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/sharetest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// TestP5_ManyShares: up to a hundred shares have their parts. A caller of a share beyond those is refused by an error that names the policy, and
// does not wait for a turn that may never come.
func TestP5_ManyShares(t *testing.T) {
	soak.WithoutRace(t)
	rows := func(*testing.T) store.Store { return must(rowstore.New(newMemory(), rowstore.Options{})) }
	sharetest.ManyShares(t, rows, 0.1, 100, 10, 100, false, 40)

	synctest.Test(t, func(t *testing.T) {
		l, err := throttle.NewLimiters(throttle.Config{
			MaxWait: throttle.Forever,
			Store:   rows(t), Policies: []throttle.Policy{{Name: "model", Limit: store.PerSecond(300)}},
		})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		started, refused, began := make([]int, 300), make([]int, 300), time.Now()
		for i := range 3 * len(started) {
			share := i % len(started)
			all.Go(func() {
				for ctx.Err() == nil {
					_, err := l.Acquire(ctx, throttle.Demand{Policy: "model", Share: strconv.Itoa(share)})
					if err == nil {
						// One caller may have all of the first window, before the others have come.
						if time.Since(began) > 2*time.Second {
							started[share]++
						}
						continue
					}
					if limited, ok := errors.AsType[*throttle.LimitError](err); ok {
						require.Equal(t, "model", limited.Policy)
						require.Equal(t, 100, limited.Shares)
						require.ErrorContains(t, err, "100 other shares")
						refused[share]++
						time.Sleep(max(limited.RetryAfter, time.Second))
					}
				}
			})
		}
		time.Sleep(40 * time.Second)
		stop()
		all.Wait()

		var admitted []int
		for share := range started {
			if refused[share] == 0 {
				admitted = append(admitted, started[share])
			}
		}
		require.Len(t, admitted, 100)
		require.GreaterOrEqual(t, float64(slices.Min(admitted)), 0.9*float64(slices.Max(admitted)))
	})
}

// TestP5_TurnsThatAreNotUsed: a caller of a share gives up when it has had its turn. Its share has the turn back: another caller of the share
// starts before one of a share that came later. Memstore says what is right.
func TestP5_TurnsThatAreNotUsed(t *testing.T) {
	for name, s := range map[string]func() store.Store{
		"memstore": func() store.Store { return memstore.New() },
		"rowstore": func() store.Store { return must(rowstore.New(newMemory(), rowstore.Options{})) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := s()
				c := store.Charge{Budget: store.Budget{Policy: "shares", Key: [16]byte{4}}, Limit: store.PerSecond(1), Cost: 1}
				require.True(t, now(t, s, c))
				wait := func(share uint64) (*store.Booking, store.Grant) {
					c.Share = store.Share{ID: share}
					b := &store.Booking{Charges: []store.Charge{c}, MaxWait: store.AnyWait, Horizon: 100 * time.Millisecond}
					g, err := s.Book(t.Context(), b)
					require.NoError(t, err)
					require.NotNil(t, g.Ready)
					return b, g
				}
				b, gone := wait(1)
				_, next := wait(1)
				_, other := wait(2)
				<-gone.Ready
				s.Cancel(b, gone)
				select {
				case <-next.Ready:
				case <-other.Ready:
					t.Fatal("the share has lost its turn")
				}
			})
		})
	}
}

// TestP5_OneByOne: a share with one caller at a time waits for what is booked, a horizon, and for its turn, behind one start of the heap.
func TestP5_OneByOne(t *testing.T) {
	soak.WithoutRace(t)
	const seconds = 40
	for _, rate := range []int{20, 40, 100} {
		single, _ := sharetest.OneByOne(t, func(*testing.T) store.Store { return must(rowstore.New(newMemory(), rowstore.Options{})) }, rate, 1, 1000, seconds)
		t.Logf("%d/s: %.1f starts a second", rate, float64(single)/seconds)
		least := seconds / (0.25 + 3*1.035/float64(rate))
		require.GreaterOrEqual(t, float64(single), least)
	}
}

// TestP5_FairBound: what two shares that always have callers start, over their weights, differs by at most one caller of each.
func TestP5_FairBound(t *testing.T) {
	rows := func(*testing.T) store.Store { return must(rowstore.New(newMemory(), rowstore.Options{})) }
	for seed := range uint64(soak.Seeds(40, 6)) {
		sharetest.FairBound(t, rows, seed, 20, 0)
	}
}

package dashboard

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// TestOneProcessManyPages: one Process on several pages, each with several viewers, while the program goes on.
// The race detector sees what the pages share; each page shows the same rate, and each knows of a closing that is over.
func TestOneProcessManyPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess(memstore.New())
		l := newLimiters(t, p, throttle.Policy{Name: "shop", Limit: throttle.PerSecond(100)})

		var pages []*viewer
		for i := range 4 {
			h := newHandler(t, Config{Source: p, Token: secret, Budgets: 1 + i})
			for range 3 {
				pages = append(pages, look(t, h, ""))
			}
			if i%2 == 1 {
				time.Sleep(every / 7) // the first two pages read at one moment, the others at another one
			}
		}

		// 20 starts a second; for two seconds of the thirty the budget is closed.
		begun := time.Now()
		permit, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shop"})
		require.NoError(t, err)
		require.NoError(t, permit.Tell(t.Context(), throttle.Refused(2*time.Second)))
		time.Sleep(10 * time.Second)
		for range 20 * 20 {
			_, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shop"})
			require.NoError(t, err)
			time.Sleep(time.Second / 20)
		}

		synctest.Wait()
		id := store.BudgetOf("shop", "").String()
		for _, v := range pages {
			b := v.state(t)["budgets"].(document)[id].(document)
			require.InDelta(t, 20, b["starts"], 1.1)
			require.Len(t, b["bands"], 1)
			require.Equal(t, float64(begun.UnixMilli()), b["bands"].([]any)[0].(document)["from"])
			v.leave()
		}
		time.Sleep(linger + every)
	})
}

// TestClosedBeforeAnyPage: each page that is opened later knows when a budget was closed in the last 24 hours, not only the first one.
func TestClosedBeforeAnyPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess(memstore.New())
		l := newLimiters(t, p, shop)
		permit, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shop"})
		require.NoError(t, err)
		require.NoError(t, permit.Tell(t.Context(), throttle.Refused(20*time.Second)))
		time.Sleep(time.Minute)

		id := store.BudgetOf("shop", "").String()
		for range 3 {
			require.Len(t, readOnce(t, p.reader(DefaultBudgets)).Closed[id], 1)
		}
		time.Sleep(24 * time.Hour)
		require.Empty(t, readOnce(t, p.reader(DefaultBudgets)).Closed)
	})
}

// TestOneFleetManyPages: one Fleet on several pages that are read at the same time. Each shows as many budgets as it is asked for.
func TestOneFleetManyPages(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	startProgram(t, client, throttle.Policy{Name: "shop", Match: "api.example.com/", Limit: throttle.PerHour(30)}, "a", "b", "c", "d")
	all := must(fleet.New(client, fleet.Options{}))
	require.Eventually(t, func() bool { // the program has reported
		s, err := all.Snapshot(t.Context(), 0)
		require.NoError(t, err)
		return len(s.Budgets) == 4
	}, time.Minute, time.Millisecond)

	source := Fleet(all)
	var ended sync.WaitGroup
	for most := 1; most <= 4; most++ {
		ended.Go(func() {
			page := source.reader(most)
			for n := range 20 {
				r, err := page.read(t.Context(), n%7 == 3)
				require.NoError(t, err)
				require.Len(t, r.Budgets, most)
			}
		})
	}
	ended.Wait()
}

package redisstore_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// programsWith returns limiters with one policy, "api", in each node.
func programsWith(t *testing.T, nodes []*cuttable, l store.Limit) (all []*throttle.Limiters) {
	t.Helper()
	for _, n := range nodes {
		made, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: n.Store, Policies: []throttle.Policy{{Name: "api", Limit: l, Jitter: -1}}})
		require.NoError(t, err)
		all = append(all, made)
	}
	return all
}

// moved returns a place as another program reads it.
func moved(t *testing.T, p *throttle.Place) *throttle.Place {
	t.Helper()
	text, err := p.MarshalText()
	require.NoError(t, err)
	read := new(throttle.Place)
	require.NoError(t, read.UnmarshalText(text))
	return read
}

// TestP5_PlaceInAnotherProgram: a job is put aside in one program, whose queue hands it to another one. It starts behind
// what came before it, and before what waits in memory and came later, within the time between visits.
func TestP5_PlaceInAnotherProgram(t *testing.T) {
	inLines(t, 3, func(t *testing.T, nodes []*cuttable) {
		const callers = 200
		programs := programsWith(t, nodes, store.PerSecond(20))
		started := make([]time.Time, callers)
		var all sync.WaitGroup
		wait := func(i int) {
			all.Go(func() {
				_, err := programs[i%2].Acquire(t.Context(), throttle.Demand{Policy: "api"})
				require.NoError(t, err)
				started[i] = time.Now()
			})
			synctest.Wait()
			time.Sleep(5 * time.Millisecond)
		}
		for i := range callers / 2 {
			wait(i)
		}
		_, place, err := programs[2].Reserve(t.Context(), nil, throttle.Demand{Policy: "api"})
		require.NoError(t, err)
		require.NotNil(t, place)
		for i := callers / 2; i < callers; i++ {
			wait(i)
		}
		const between = time.Second
		var at time.Time
		visits := 0
		for i := 0; place != nil; i++ {
			time.Sleep(place.RetryAfter().Truncate(between) + between) // the queue comes late
			var permit *throttle.Permit
			permit, place, err = programs[i%3].Reserve(t.Context(), moved(t, place))
			require.NoError(t, err)
			if visits++; permit != nil {
				at = time.Now()
			}
		}
		all.Wait()
		passed := 0
		for i, s := range started {
			if i >= callers/2 && s.Before(at) {
				passed++
			}
		}
		before := started[callers/2-10]
		t.Logf("%d visits, %d of %d that came later started before", visits, passed, callers/2)
		require.True(t, at.After(before), "it came behind them")
		require.LessOrEqual(t, passed, 20*2+10, "20/s: the time between visits, and a horizon and its calls")
		requireAtMost(t, 20, time.Second, append(started, at))
	})
}

// requireAtMost wants that no closed interval of a length has more than n starts.
func requireAtMost(t *testing.T, n int, per time.Duration, starts []time.Time) {
	t.Helper()
	slices.SortFunc(starts, time.Time.Compare)
	for i := range starts[:max(0, len(starts)-n)] {
		require.Greater(t, starts[i+n].Sub(starts[i]), per, "P1: %d starts from %v on", n+1, starts[i])
	}
}

// TestP3_PlacesOfKilledWorkers: programs put jobs aside, and a third of the places are lost with their workers. The others use
// the limit, nothing is left in Redis' line, and the limit holds.
func TestP3_PlacesOfKilledWorkers(t *testing.T) {
	inLines(t, 3, func(t *testing.T, nodes []*cuttable) {
		const jobs = 300
		programs := programsWith(t, nodes, store.PerSecond(20))
		var mu sync.Mutex
		var starts []time.Time
		visits, killed := 0, 0
		var all sync.WaitGroup
		begin := time.Now()
		for i := range jobs {
			all.Go(func() {
				job := throttle.Demand{Policy: "api"}
				permit, place, err := programs[i%3].Reserve(t.Context(), nil, job)
				for visit := 1; place != nil; visit++ {
					require.NoError(t, err)
					if i%3 == 0 && visit == 1 {
						mu.Lock()
						killed++
						mu.Unlock()
						return
					}
					mu.Lock()
					visits++
					mu.Unlock()
					time.Sleep(place.RetryAfter())
					permit, place, err = programs[(i+visit)%3].Reserve(t.Context(), moved(t, place), job)
				}
				require.NoError(t, err)
				require.NotNil(t, permit)
				mu.Lock()
				defer mu.Unlock()
				starts = append(starts, time.Now())
			})
			synctest.Wait()
		}
		all.Wait()
		t.Logf("%d started in %v, %d killed, %d visits", len(starts), time.Since(begin), killed, visits)
		require.Len(t, starts, jobs-killed)
		require.Less(t, time.Since(begin), jobs/20*time.Second+2*time.Second, "who is gone leaves an appointment unused, and no more")
		require.Less(t, visits, 3*jobs)
		requireAtMost(t, 20, time.Second, starts)
		for _, n := range nodes {
			gone(t, n.Store)
		}
	})
}

// TestPlaceOfAnotherNamespace has an answer that says so.
func TestPlaceOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	var all []*throttle.Limiters
	for _, o := range []redisstore.Options{{}, {}, {Namespace: "other"}} {
		made, err := throttle.NewLimiters(throttle.Config{
			MaxWait:  throttle.Forever,
			Store:    redisstore.New(server.Client(t), o),
			Policies: []throttle.Policy{{Name: "namespaces", Limit: store.PerHour(1), Jitter: -1}},
		})
		require.NoError(t, err)
		all = append(all, made)
	}
	d := throttle.Demand{Policy: "namespaces"}
	permit, _, err := all[0].Reserve(t.Context(), nil, d)
	require.NoError(t, err)
	require.NotNil(t, permit)
	_, place, err := all[0].Reserve(t.Context(), nil, d)
	require.NoError(t, err)
	require.InDelta(t, time.Hour, place.RetryAfter(), float64(5*time.Second))
	_, later, err := all[1].Reserve(t.Context(), moved(t, place))
	require.NoError(t, err)
	require.InDelta(t, time.Hour, later.RetryAfter(), float64(5*time.Second))
	_, _, err = all[2].Reserve(t.Context(), moved(t, place))
	var wrong *store.PlaceError
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, store.PlaceForeign, wrong.Problem)
}

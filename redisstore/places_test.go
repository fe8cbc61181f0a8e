package redisstore_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/choice"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
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
			visits++
			if permit != nil {
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
	require.InDelta(t, time.Hour, place.RetryAfter(), float64(time.Minute))
	_, later, err := all[1].Reserve(t.Context(), moved(t, place))
	require.NoError(t, err)
	require.InDelta(t, time.Hour, later.RetryAfter(), float64(time.Minute))
	_, _, err = all[2].Reserve(t.Context(), moved(t, place))
	var wrong *store.PlaceError
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, store.PlaceForeign, wrong.Problem)
}

// TestChoice_FullLoad has four nodes send to three hosts under full load, on a real Redis, and beside
// that to a single host with the sum of the limits. It prints what was used, how long callers
// waited and what Redis did. It measures: the memory's TestChoice_FullLoad compares with the limits. Without -choice one load
// is played, for a moment and beside other tests, so that the measurement does not rot.
func TestChoice_FullLoad(t *testing.T) {
	soak.Only(t)
	loads, lasts := []choiceLoad{{5, 1}, {16, 1}, {100, 1}, {64, 10}}, 20*time.Second
	if !*measureChoice {
		t.Parallel()
		loads, lasts = []choiceLoad{{16, 1}}, 5*time.Second
	}

	for _, c := range loads {
		for _, limits := range [][]int{{65 * c.times}, {5 * c.times, 20 * c.times, 40 * c.times}} {
			chooseUnderLoad(t, limits, c.callers, lasts)
		}
	}
}

var measureChoice = flag.Bool("choice", false, "play all loads of TestChoice_FullLoad: for a quiet machine, three minutes")

// A choiceLoad is callers of each node, and how many times as large as usual the limits are.
type choiceLoad struct{ callers, times int }

// chooseUnderLoad has callers of four nodes send for a while, and logs what came of it.
func chooseUnderLoad(t *testing.T, limits []int, callers int, lasts time.Duration) {
	const nodes, settling = 4, 2 * time.Second
	server := redistest.Single(t)
	var mu sync.Mutex
	at := make(map[string][]time.Duration)
	var waits []time.Duration
	begin := time.Now()
	send := roundTripper(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		at[r.URL.Host] = append(at[r.URL.Host], time.Since(begin))
		mu.Unlock()
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
	})
	var policies []throttle.Policy
	var variants []choice.Variant
	sum := 0
	for i, n := range limits {
		host := fmt.Sprintf("%c.example.com", 'a'+i)
		policies = append(policies, throttle.Policy{Name: host, Match: host + "/", Limit: store.PerSecond(n), Jitter: -1})
		variants = append(variants, choice.Variant{Name: host, Change: func(r *http.Request) error { r.URL.Host = host; return nil }})
		sum += n
	}
	var load sync.WaitGroup
	for range nodes {
		tr := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: redisstore.New(server.Client(t), redisstore.Options{}), Base: send, Policies: policies}))
		choice, err := choice.New(tr, variants...)
		require.NoError(t, err)
		for range callers {
			load.Go(func() {
				for time.Since(begin) < lasts {
					came := time.Now()
					r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a.example.com/", nil)
					resp, err := choice.RoundTrip(r)
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
					mu.Lock()
					waits = append(waits, time.Since(came))
					mu.Unlock()
				}
			})
		}
	}
	load.Wait()
	starts := 0
	for _, all := range at {
		for _, x := range all {
			if x >= settling && x < lasts {
				starts++
			}
		}
	}
	slices.Sort(waits)
	used := float64(starts) / (float64(sum) * (lasts - settling).Seconds())
	calls := ""
	for line := range strings.Lines(server.Client(t).Info(t.Context(), "commandstats").Val()) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "cmdstat_evalsha:"); ok {
			calls = rest
		}
	}
	t.Logf("%d hosts, %d nodes with %d callers each: %.1f %% of %d/s used; waits p50 %v, p99 %v, longest %v; %d starts; %s",
		len(limits), nodes, callers, 100*used, sum, waits[len(waits)/2].Round(10*time.Millisecond), waits[len(waits)*99/100].Round(10*time.Millisecond),
		waits[len(waits)-1].Round(10*time.Millisecond), len(waits), calls)
}

// A roundTripper is a base that is a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestP4_ShortIsTheSame does the same random things with and without the straight
// way through a booking. The answers are the same, and so is what is stored, but
// for the random births of its lives.
func TestP4_ShortIsTheSame(t *testing.T) {
	soak.WithoutRace(t)
	server := redistest.Shared(t)
	for seed := range uint64(soak.Seeds(12, 3)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			short := play(t, server.Client(t), seed)
			restore := redisstore.LongWay()
			defer restore()
			require.Equal(t, short, play(t, server.Client(t), seed))
		})
	}
}

// play does random things with a busy budget and returns all that came of it.
func play(t *testing.T, client *redis.Client, seed uint64) (seen []string) {
	rng := rand.New(rand.NewPCG(seed, 5))
	synctest.Test(t, func(t *testing.T) {
		s, _ := loaded(t, client, nil)
		c := charge("busy", store.SlidingWindow(129+rng.IntN(20_000), time.Second))
		c.Pace = time.Duration(rng.IntN(2)) * 10 * time.Microsecond
		gate := free("gate") // is open nearly always
		var last *store.Booking
		var mark store.Grant
		for op := range 600 {
			switch r := rng.IntN(100); {
			case r < 70:
				k := booking(c)
				k.Charges[0].Cost = 1 + rng.IntN(3)*rng.IntN(40)
				k.Charges[0].KeepFree = rng.IntN(2) * rng.IntN(50)
				k.MaxWait = time.Duration(rng.IntN(3)-1) * 300 * time.Millisecond
				k.Spread = time.Duration(rng.IntN(2)*rng.IntN(20_000)) * time.Microsecond
				k.Returns = rng.IntN(5) == 0
				if rng.IntN(3) == 0 {
					k.Charges = append([]store.Charge{gate}, k.Charges...)
				}
				if rng.IntN(9) == 0 {
					k.Charges = []store.Charge{gate, free("other")}
				}
				g := ask(t, s, k)
				seen = append(seen, fmt.Sprint(op, g))
				if g.OK {
					last, mark = k, g
				}
			case r < 73 && last != nil:
				s.Cancel(last, mark)
				last = nil
			case r < 75:
				closed := []store.Charge{c, gate}[rng.IntN(2)]
				require.NoError(t, s.Pause(t.Context(), closed, time.Duration(rng.IntN(20))*time.Millisecond))
			case r < 76:
				forgets(t, client)
			case r < 77:
				c.Limit = store.SlidingWindow(129+rng.IntN(20_000), []time.Duration{time.Second, time.Second, 700 * time.Millisecond}[rng.IntN(3)])
			case r < 79:
				time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
			default:
				time.Sleep(time.Duration(rng.IntN(4000)) * time.Microsecond)
			}
			seen = append(seen, stored(t, client, s.Key(c.Budget)))
		}
	})
	return seen
}

// TestP4_ShortCallsAreTheSame does the same with calls that serve many callers of
// many budgets.
func TestP4_ShortCallsAreTheSame(t *testing.T) {
	soak.WithoutRace(t)
	server := redistest.Shared(t)
	for seed := range uint64(soak.Seeds(8, 2)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			short := playMany(t, server.Client(t), seed)
			restore := redisstore.LongWay()
			defer restore()
			require.Equal(t, short, playMany(t, server.Client(t), seed))
		})
	}
}

// playMany lets crowds come while a call is on its way.
func playMany(t *testing.T, client *redis.Client, seed uint64) (seen []string) {
	rng := rand.New(rand.NewPCG(seed, 7))
	synctest.Test(t, func(t *testing.T) {
		s, tap := loaded(t, client, isScript)
		var budgets []store.Charge
		for i := range 12 {
			n := []int{3, 40, 128, 129, 1000, 100_000}[rng.IntN(6)]
			budgets = append(budgets, charge(fmt.Sprint("budget ", i), store.SlidingWindow(n, time.Second)))
		}
		for range 150 {
			var all []**outcome
			for range 1 + rng.IntN(20) {
				k := booking(budgets[rng.IntN(len(budgets))])
				k.Charges[0].Cost = 1 + rng.IntN(2)*rng.IntN(3)
				k.MaxWait = time.Duration(rng.IntN(3)-1) * 700 * time.Millisecond
				k.Spread = time.Duration(rng.IntN(3)/2*rng.IntN(20)) * time.Millisecond
				all = append(all, bookAside(t.Context(), s, k))
			}
			for *all[len(all)-1] == nil {
				tap.letOne()
			}
			for _, o := range all {
				if *o == nil {
					tap.letOne()
				}
				require.NoError(t, (*o).err)
				seen = append(seen, fmt.Sprint((*o).grant.OK, (*o).grant.Wait, (*o).grant.Handle.Start, (*o).grant.HeldBy))
			}
			tap.names()
			for _, c := range budgets {
				seen = append(seen, stored(t, client, s.Key(c.Budget)))
			}
			time.Sleep(time.Duration(rng.IntN(4)*rng.IntN(300_000)) * time.Microsecond)
		}
		close(tap.pass)
	})
	return seen
}

// TestP4_BusyBudgetsTakeTheShortWay: whatever is booked now where there is room, and however
// many starts there were before.
func TestP4_BusyBudgetsTakeTheShortWay(t *testing.T) {
	server := redistest.Shared(t)
	for _, spread := range []time.Duration{0, 2 * time.Millisecond, 20 * time.Millisecond} {
		t.Run(spread.String(), func(t *testing.T) {
			defer redisstore.ShortWay()()
			client := server.Client(t)
			synctest.Test(t, func(t *testing.T) {
				s, _ := loaded(t, client, nil)
				second, few := charge("second", store.SlidingWindow(100_000, time.Second)), charge("few", store.SlidingWindow(100, time.Second))
				k := booking(second, inGroup("second", few), inGroup("second", free("gate")))
				k.Spread = spread
				for i := range 1200 {
					g, err := s.Book(t.Context(), k)
					require.NoError(t, err, i)
					require.True(t, g.OK)
					require.Zero(t, g.Wait)
					time.Sleep(11 * time.Millisecond)
					if i%10 == 0 {
						time.Sleep(spread) // starts whose room overlaps share an entry
					}
				}
			})
		})
	}
}

// stored returns the head of the row under a key, without its random births and
// without where its entries stand and when the key expires, which may differ.
func stored(t *testing.T, client *redis.Client, key string) string {
	raw, err := client.Get(t.Context(), key).Bytes()
	if err == redis.Nil {
		return ""
	}
	require.NoError(t, err)
	var head []float64
	for i := range redisstore.HeadNumbers {
		if i != 9 && i != 11 && i != 15 && i != 18 && i != 20 && i != 24 {
			head = append(head, math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:])))
		}
	}
	return fmt.Sprintf("%.0f", head)
}

// TestP10_TheShortWayJoinsEntries: a row has 224 entries at the most, also of starts that
// may be used for longer than their window.
func TestP10_TheShortWayJoinsEntries(t *testing.T) {
	onEmpty(t, func(t *testing.T, c *redis.Client, s *redisstore.Store) {
		const window = 126 * time.Microsecond
		k := booking(charge("brief", store.SlidingWindow(1000, window)))
		k.Spread = window
		for range 300 {
			require.True(t, ask(t, s, k).OK)
			time.Sleep(time.Microsecond)
		}
		raw, err := c.Get(t.Context(), s.Key(k.Charges[0].Budget)).Bytes()
		require.NoError(t, err)
		require.Equal(t, 224, numberOf(raw, redisstore.HeadSize))
	})
}

package memstore_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// A quotaAPI counts requests in fixed windows when they arrive, and answers later: how much of the window was left, and for
// how long in whole seconds.
type quotaAPI struct {
	n      int
	per    time.Duration
	travel time.Duration // from the client to the API
	takes  time.Duration // from the arrival at the API to that of the answer

	mu      sync.Mutex
	used    map[int64]int // by window, others included
	others  map[int64]int // how often they spent, by window
	refused map[int64]int // by window
	arrived []time.Time
}

// RoundTrip implements http.RoundTripper.
func (a *quotaAPI) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(a.travel)
	left, reset := a.arrive()
	time.Sleep(a.takes)
	h := http.Header{"Left": {strconv.Itoa(left)}, "Reset": {strconv.Itoa(reset)}}
	return &http.Response{StatusCode: http.StatusOK, Header: h, Body: io.NopCloser(bytes.NewReader(nil))}, nil
}

// arrive counts a request.
func (a *quotaAPI) arrive() (left, reset int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	w := now.UnixNano() / int64(a.per)
	if a.used[w] < a.n {
		a.used[w]++
	} else {
		a.refused[w]++
	}
	a.arrived = append(a.arrived, now)
	rest := time.Unix(0, (w+1)*int64(a.per)).Sub(now)
	return a.n - a.used[w], int((rest + time.Second - 1) / time.Second)
}

// spend is what another user does.
func (a *quotaAPI) spend(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := time.Now().UnixNano() / int64(a.per)
	a.used[w] = min(a.n, a.used[w]+n)
	a.others[w]++
}

// run lets some workers send requests for so many windows, and returns how much of each was used.
// Each worker pauses between two requests, and begins so much later than the one before it.
func (a *quotaAPI) run(t *testing.T, l store.Limit, told bool, workers, windows int, pause, stagger time.Duration) (used []int) {
	a.used, a.others, a.refused, a.arrived = make(map[int64]int), make(map[int64]int), make(map[int64]int), nil
	p := throttle.Policy{Name: "quota", Match: "api.test/", Limit: l}
	if told {
		p.Answer = func(r *http.Response) throttle.Answer {
			left, _ := strconv.Atoi(r.Header.Get("Left"))
			reset, _ := strconv.Atoi(r.Header.Get("Reset"))
			return throttle.Answer{}.WithLeft(store.Quota{Left: left, Reset: time.Duration(reset) * time.Second})
		}
	}
	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(), Base: a, MaxWait: time.Hour, Policies: []throttle.Policy{p},
	}))}

	first := time.Now().UnixNano() / int64(a.per)
	end := time.Now().Add(time.Duration(windows) * a.per)
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			time.Sleep(time.Duration(i) * stagger)
			for time.Now().Before(end) {
				resp, err := client.Get("http://api.test/")
				require.NoError(t, err)
				resp.Body.Close()
				time.Sleep(pause)
			}
		})
	}
	all.Wait()
	for i := range int64(windows) {
		used = append(used, a.used[first+i])
	}
	return used
}

// TestP3_QuotaOfNobodyElse lets an API that nobody else uses say with each answer what is left: that costs nothing,
// however long the answers take.
func TestP3_QuotaOfNobodyElse(t *testing.T) {
	soak.WithoutRace(t)
	for _, l := range []store.Limit{store.PerMinute(600), store.FixedWindow(600, time.Minute), store.PerMinute(60)} {
		for _, workers := range []int{8, 64} {
			for _, takes := range []time.Duration{5, 45, 195, 3000} {
				api := quotaAPI{n: l.N(), per: time.Minute, travel: 5 * time.Millisecond, takes: takes * time.Millisecond}
				var told, untold []int
				synctest.Test(t, func(t *testing.T) { untold = api.run(t, l, false, workers, 30, 0, 0) })
				synctest.Test(t, func(t *testing.T) { told = api.run(t, l, true, workers, 30, 0, 0) })
				require.Equal(t, untold, told, "%v, %d workers, answers after %v", l, workers, api.takes)
				require.Empty(t, api.refused)
			}
		}
	}
}

// TestP11_QuotaBesideOthers lets another user spend a part of the windows, now and then. A request is refused only if no
// answer could tell of the other user when the request started, or if starts were taken to be counted that were not. Both
// are at most as many as start within the time that an answer takes, the doubt of two seconds, and a part of the window, in
// which starts are not told apart: once for each time that the other user spends, and once for the begin of the window.
func TestP11_QuotaBesideOthers(t *testing.T) {
	soak.WithoutRace(t)
	for seed := range uint64(soak.Seeds(120, 30)) {
		rng := rand.New(rand.NewPCG(seed, 11))
		l := []store.Limit{store.PerMinute(600), store.FixedWindow(600, time.Minute)}[seed%2]
		api := quotaAPI{n: 600, per: time.Minute, travel: 5 * time.Millisecond, takes: time.Duration(5+rng.IntN(6000)) * time.Millisecond}
		sum := 0
		synctest.Test(t, func(t *testing.T) {
			done := make(chan bool)
			var other sync.WaitGroup
			other.Go(func() {
				for {
					select {
					case <-done:
						return
					case <-time.After(time.Duration(rng.IntN(90_000)) * time.Millisecond):
						api.spend(1 + rng.IntN(400))
					}
				}
			})
			for _, n := range api.run(t, l, true, 100, 10, 2*time.Second, 0) {
				sum += n
			}
			close(done)
			other.Wait()
		})

		unseen := api.maxWithin(api.travel + api.takes + 2*time.Second + time.Minute/128 + acquire.DefaultJitter)
		for w, n := range api.refused {
			require.LessOrEqual(t, n, (1+api.others[w])*unseen, "seed %d, window %d", seed, w)
		}
		// At the begin of a window what others spent of the last one may count for as long as an answer takes, and two seconds.
		require.GreaterOrEqual(t, sum, 10*l.N()*(60-8)/60, "seed %d", seed)
	}
}

// TestP11_QuotaOfSlowAnswers has answers that take 5 s, 20 requests a second, and another user who spends a half of each
// window in one go. What the fleet starts while an answer is on its way is not taken for what the other user spent.
func TestP11_QuotaOfSlowAnswers(t *testing.T) {
	for _, l := range []store.Limit{store.FixedWindow(600, time.Minute), store.PerMinute(600)} {
		synctest.Test(t, func(t *testing.T) {
			api := quotaAPI{n: 600, per: time.Minute, travel: 5 * time.Millisecond, takes: 4995 * time.Millisecond}
			go func() {
				for range 3 {
					time.Sleep(10 * time.Second)
					api.spend(300)
					time.Sleep(50 * time.Second)
				}
			}()
			used := api.run(t, l, true, 100, 3, 0, 50*time.Millisecond)
			require.Equal(t, []int{600, 600, 600}, used)
			for _, n := range api.refused {
				require.LessOrEqual(t, n, 50, "what starts within the two seconds of doubt and a part of the window")
			}
		})
	}
}

// maxWithin returns how many requests arrived at the most within d.
func (a *quotaAPI) maxWithin(d time.Duration) (most int) {
	first := 0
	for i, at := range a.arrived {
		for at.Sub(a.arrived[first]) > d {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

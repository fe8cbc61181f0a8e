package redisstore_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/choice"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// TestChoice_FullLoad has four nodes send to three hosts under full load, on a real Redis, and beside
// that to a single host with the sum of the limits. It prints what was used, how long callers
// waited and what Redis did. It measures: the memory's TestChoice_FullLoad compares with the limits.
func TestChoice_FullLoad(t *testing.T) {
	soak.Only(t)
	for _, c := range []struct{ callers, times int }{{5, 1}, {16, 1}, {100, 1}, {64, 10}} {
		for _, limits := range [][]int{{65 * c.times}, {5 * c.times, 20 * c.times, 40 * c.times}} {
			chooseUnderLoad(t, limits, c.callers)
		}
	}
}

// chooseUnderLoad has callers of four nodes send for 20 s, and logs what came of it.
func chooseUnderLoad(t *testing.T, limits []int, callers int) {
	const nodes, settling, lasts = 4, 2 * time.Second, 20 * time.Second
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

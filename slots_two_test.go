package throttle_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// needs is a Policy.Cost: what the path names is needed.
func needs(name string) func(*http.Request) int {
	return func(r *http.Request) int { return strings.Count(r.URL.Path, name) }
}

// TestP5_TwoTightBudgetsInFlight sends crowds that need room in one of two
// budgets in flight, or in both. What is set aside in one for a request that needs
// the other one, too, goes round; still all come through.
func TestP5_TwoTightBudgetsInFlight(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 8))
				tr := throttle.Must(throttle.New(throttle.Config{
					Store: memstore.New(),
					Base: base(func(r *http.Request) (*http.Response, error) {
						time.Sleep(10 * time.Millisecond)
						return answer(http.StatusOK, "")(r)
					}),
					Policies: []throttle.Policy{
						{Name: "a", Limit: throttle.Concurrency(1 + rng.IntN(3)), Cost: needs("a")},
						{Name: "b", Limit: throttle.Concurrency(1 + rng.IntN(3)), Cost: needs("b")},
					},
				}))
				begun := time.Now()
				var all sync.WaitGroup
				for range 80 {
					path := []string{"a", "b", "ab"}[rng.IntN(3)]
					all.Go(func() {
						r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/"+path, nil)
						if err != nil {
							t.Error(err)
							return
						}
						resp, err := tr.RoundTrip(r)
						if err != nil {
							t.Error(err)
							return
						}
						if err := resp.Body.Close(); err != nil {
							t.Error(err)
						}
					})
					time.Sleep(time.Duration(rng.IntN(2)) * time.Millisecond)
				}
				all.Wait()
				require.Less(t, time.Since(begun), 10*time.Second)
			})
		})
	}
}

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
)

// An answering base notes when each request starts, and how many of a node, or
// of all, are in flight.
type answering struct {
	mu       sync.Mutex
	took     time.Duration
	begun    time.Time
	starts   []time.Duration
	inFlight map[int]int
	most     int
}

// of is the base of one node; where nodes are counted together it is 0 for all.
func (a *answering) of(node int) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		a.mu.Lock()
		a.starts = append(a.starts, time.Since(a.begun))
		a.inFlight[node]++
		a.most = max(a.most, a.inFlight[node])
		a.mu.Unlock()
		time.Sleep(a.took)
		a.mu.Lock()
		a.inFlight[node]--
		a.mu.Unlock()
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("x")), Request: r}, nil
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestP6_WindowOfTheFleetAndConcurrency sends from two nodes what needs a window
// of the fleet and a place in flight: of the fleet, or of the node alone. Both
// limits are kept, and nothing stays held.
func TestP6_WindowOfTheFleetAndConcurrency(t *testing.T) {
	t.Parallel()
	for _, scope := range []throttle.Scope{throttle.Fleet, throttle.Node} {
		for _, took := range []time.Duration{100 * time.Millisecond, 700 * time.Millisecond} {
			t.Run(fmt.Sprint(scope, took), func(t *testing.T) {
				inFlight(t, func(t *testing.T, a, b *cuttable) {
					up := &answering{took: took, begun: time.Now(), inFlight: map[int]int{}}
					var nodes []*throttle.Transport
					for i, s := range []throttle.Store{a, b} {
						tr, err := throttle.New(throttle.Config{Store: s, Base: up.of(i * int(scope)), Policies: []throttle.Policy{
							{Name: "window", Limit: throttle.PerSecond(5), Jitter: -1},
							{Name: "in flight", Limit: throttle.Concurrency(2), Scope: scope},
						}})
						require.NoError(t, err)
						nodes = append(nodes, tr)
					}
					var all sync.WaitGroup
					for i := range 24 {
						all.Go(func() {
							r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/", nil)
							if err != nil {
								t.Error(err)
								return
							}
							resp, err := nodes[i%2].RoundTrip(r)
							if err != nil {
								t.Error(err)
								return
							}
							if err := resp.Body.Close(); err != nil {
								t.Error(err)
							}
						})
						time.Sleep(time.Millisecond)
					}
					all.Wait()
					require.Len(t, up.starts, 24)
					require.Equal(t, 2, up.most)
					slices.Sort(up.starts)
					for i, start := range up.starts[5:] {
						require.Greater(t, start-up.starts[i], time.Second)
					}
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/", nil)
					require.NoError(t, err)
					for i, s := range []throttle.Store{a, b} {
						st, err := s.Status(t.Context(), nodes[i].Explain(r)[1])
						require.NoError(t, err)
						require.Zero(t, st.Used+st.Waiting)
					}
				})
			})
		}
	}
}

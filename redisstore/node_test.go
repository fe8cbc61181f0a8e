package redisstore_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// own makes a charge one of the node alone.
func own(c throttle.Charge) throttle.Charge {
	c.Node = true
	return c
}

// TestP6_NodeAndFleet books in both or in none, at one start, with one call.
func TestP6_NodeAndFleet(t *testing.T) {
	onTap(t, nil, func(t *testing.T, _ *redis.Client, s *redisstore.Store, tap *tap) {
		mine, all := own(charge("mine", throttle.PerSecond(2))), charge("all", throttle.PerMinute(3))
		require.Zero(t, book(t, s, mine, all))
		require.Zero(t, book(t, s, all, mine))
		require.Equal(t, span, book(t, s, mine, all), "the node's limit decides")
		require.Equal(t, time.Minute+time.Microsecond, book(t, s, mine, all), "the fleet's limit decides")
		require.Len(t, tap.names(), 4)

		k := bookingFor(10*time.Second, mine, all)
		g := ask(t, s, k)
		require.False(t, g.OK)
		require.Equal(t, 1, g.Held)
		require.Equal(t, 2*span, book(t, s, mine)+span, "a refusal spends nothing")

		k.MaxWait = -1
		g = ask(t, s, k)
		require.NoError(t, s.Settle(t.Context(), k, g, []int{2, 3}))
		k.Charges[0].Cost, k.Charges[1].Cost = 2, 3
		s.Cancel(k, g)
		k.Charges[0].Cost, k.Charges[1].Cost = 1, 1
		require.Equal(t, g.Wait, ask(t, s, k).Wait, "cancelling gives back in both")
	})
}

// TestP1_NodeAndFleetTogether lets many callers of two nodes book both, and
// counts the starts of each budget.
func TestP1_NodeAndFleetTogether(t *testing.T) {
	eachBubble(t, seeds(4), func(t *testing.T, server *redistest.Server, seed uint64) {
		client := server.Client(t)
		a, _ := loaded(t, client, nil)
		nodes := []*redisstore.Store{a, redisstore.NewAt(client, nil, bubbleClock)}
		rng := rand.New(rand.NewPCG(seed, 6))
		mine, all := throttle.PerSecond(3), throttle.SlidingWindow(7, 2*time.Second)
		var logs [3]log // of each node, and of the fleet
		var callers sync.WaitGroup
		for range 120 {
			which, gone := rng.IntN(2), rng.IntN(4) == 0
			callers.Go(func() {
				k := booking(own(charge("mine", mine)), charge("all", all))
				g, err := nodes[which].Book(t.Context(), k)
				if err != nil || !g.OK {
					t.Errorf("refused: %v", err)
					return
				}
				if gone {
					nodes[which].Cancel(k, g)
					return
				}
				time.Sleep(g.Wait)
				logs[which].add(1)
				logs[2].add(1)
			})
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		}
		callers.Wait()
		require.Greater(t, len(logs[2].all), 60)
		logs[0].requireWithin(t, mine)
		logs[1].requireWithin(t, mine)
		logs[2].requireWithin(t, all)
	})
}

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
				inFlight(t, 2, func(t *testing.T, a, b *cuttable, _ throttle.Charge) {
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

package redisstore_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// own makes a charge one of the node alone.
func own(c store.Charge) store.Charge {
	c.Node = true
	return c
}

// TestP1_NodeAndFleetTogether lets many callers of two nodes book both, and
// counts the starts of each budget.
func TestP1_NodeAndFleetTogether(t *testing.T) {
	eachBubble(t, seeds(4), func(t *testing.T, server *redistest.Server, seed uint64) {
		client := server.Client(t)
		a, _ := loaded(t, client, nil)
		nodes := []*redisstore.Store{a, redisstore.NewAt(client, redisstore.Options{}, bubbleClock)}
		rng := rand.New(rand.NewPCG(seed, 6))
		mine, all := store.PerSecond(3), store.SlidingWindow(7, 2*time.Second)
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
	for _, scope := range []throttle.Scope{throttle.ScopeFleet, throttle.ScopeNode} {
		for _, took := range []time.Duration{100 * time.Millisecond, 700 * time.Millisecond} {
			t.Run(fmt.Sprint(scope, took), func(t *testing.T) {
				inFlight(t, 2, func(t *testing.T, a, b *cuttable, _ store.Charge) {
					up := &answering{took: took, begun: time.Now(), inFlight: map[int]int{}}
					var nodes []*throttle.Transport
					for i, s := range []store.Store{a, b} {
						tr, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: s, Base: up.of(i * int(scope)), Policies: []throttle.Policy{
							{Name: "window", Match: "/", Limit: store.PerSecond(5), Jitter: -1},
							{Name: "in flight", Match: "/", Limit: store.Concurrency(2), Scope: scope},
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
					for i, s := range []store.Store{a, b} {
						st, err := s.Status(t.Context(), nodes[i].Explain(r)[1])
						require.NoError(t, err)
						require.Zero(t, st.Used+st.Waiting)
					}
				})
			})
		}
	}
}

// free is a charge of an unlimited budget.
func free(name string) store.Charge { return charge(name, store.Unlimited()) }

// commands says how often a server has run some commands.
func commands(t *testing.T, c *redis.Client, names ...string) (counts []int) {
	info, err := c.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for _, name := range names {
		n := 0
		if m := regexp.MustCompile(`cmdstat_` + name + `:calls=(\d+)`).FindStringSubmatch(info); m != nil {
			n, err = strconv.Atoi(m[1])
			require.NoError(t, err)
		}
		counts = append(counts, n)
	}
	return counts
}

// TestP4_UnlimitedIsReadOnce books unlimited budgets alone, and beside one that has a
// number, and counts what Redis does for that: one look at each, and nothing is written
// but the record of the call and the row of the one.
func TestP4_UnlimitedIsReadOnce(t *testing.T) {
	onEmpty(t, func(t *testing.T, client *redis.Client, s *redisstore.Store) {
		forgets(t, client)
		all := []store.Charge{free("a"), free("b"), free("c"), free("d"), free("e")}
		one := charge("one", store.PerSecond(1000))
		does := func(want []int, do func()) {
			t.Helper()
			names := []string{"getrange", "get", "set", "setrange", "append", "del", "pexpire"}
			before := commands(t, client, names...)
			do()
			for i, n := range commands(t, client, names...) {
				require.Equal(t, want[i], n-before[i], names[i])
			}
		}
		for range 3 {
			does([]int{5, 1, 1, 0, 0, 0, 0}, func() { require.Zero(t, book(t, s, all...)) })
		}
		require.Len(t, keys(t, client), 1, "the record")

		does([]int{1, 1, 2, 0, 0, 0, 0}, func() { book(t, s, one) })
		time.Sleep(2 * time.Second)
		does([]int{6, 1, 2, 0, 0, 0, 0}, func() { book(t, s, append(all, one)...) })
		require.NoError(t, s.Resume(t.Context(), all[0]))
		require.NoError(t, s.Reconcile(t.Context(), all[0], store.Quota{Reset: time.Hour}))
		require.Len(t, keys(t, client), 2, "and the one")
	})
}

// stumbles makes a client lose its next script call before it is done, or its answer if
// after is true, and does something then.
func stumbles(c *redis.Client, after bool, then func()) {
	lost := false
	c.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
		if lost {
			return next()
		}
		if lost = true; after {
			if err := next(); err != nil {
				return err
			}
		}
		then()
		return failing(cmd, io.EOF)
	}))
}

// TestP8_LostWhileAGateIsShut loses a call, or its answer, and closes the budget before it
// is made again: by another program, or so that this one knows. One start is charged. It
// counts as booked before the penalty if it was.
func TestP8_LostWhileAGateIsShut(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for _, knows := range []bool{false, true} {
			runBubble(t, fmt.Sprintf("answer %t, known %t", after, knows), func(t *testing.T, server *redistest.Server) {
				client := server.Client(t)
				s, _ := loaded(t, client, nil)
				who := s
				if !knows {
					who = atRest(t, redisstore.NewAt(server.Client(t), redisstore.Options{}, bubbleClock))
				}
				row, one, dark := free("row"), charge("one", store.PerHour(2)), free("dark")
				dark.Shadow = true
				stumbles(client, after, func() { require.NoError(t, who.Pause(t.Context(), row, time.Minute)) })
				k := booking(dark, row, one)
				g := ask(t, s, k)
				require.True(t, g.OK)
				if after {
					require.Equal(t, -1, g.HeldBy)
					require.Zero(t, g.Wait)
				} else {
					require.Equal(t, 1, g.HeldBy)
					require.True(t, g.Paused)
					require.Greater(t, g.Wait, 59*time.Second)
				}
				require.Equal(t, 1, booked(t, s, one))
				w := s.Watch(k, g, nil)
				good, err := w.Confirm(t.Context(), -1)
				require.NoError(t, err)
				require.Equal(t, !after, good, "a start of before the penalty is of no use")
				w.Stop()
			})
		}
	}
}

// TestP12_LostWithWhatItKnew loses a call. Then its program closes an unlimited budget that
// the call names as a gate, and the server forgets that. The program remembers.
func TestP12_LostWithWhatItKnew(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		client := server.Client(t)
		s, _ := loaded(t, client, nil)
		row := free("row")
		stumbles(client, false, func() {
			require.NoError(t, s.Pause(t.Context(), row, time.Minute))
			forgets(t, client)
		})
		require.Greater(t, book(t, s, row), 59*time.Second)
		require.Greater(t, book(t, atRest(t, redisstore.NewAt(server.Client(t), redisstore.Options{}, bubbleClock)), row), 59*time.Second)
	})
}

// TestP12_UnlimitedIsToldWithOthers empties a server while somebody waits for the end of a
// penalty. A program that knows nothing of that finds that another budget was lost: then
// the one that waits tells of the penalty, before anybody starts.
func TestP12_UnlimitedIsToldWithOthers(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client(t)
	forgets(t, client)
	options := redisstore.Options{Namespace: "told with others"}
	waits, finds := redisstore.New(client, options), redisstore.New(server.Client(t), options)
	row, one := free("row"), charge("one", store.PerMinute(1000))
	tap := newTap(client, nil)
	require.NoError(t, waits.Pause(t.Context(), row, time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	k := booking(row)
	k.Horizon = near
	g := ask(t, waits, k)
	require.NotNil(t, g.Ready)
	all.Go(func() {
		for {
			select {
			case <-ctx.Done():
				waits.Cancel(k, g)
				return
			case <-g.Ready:
			}
			k.Turn, k.Returns = g.Turn, true
			next, err := waits.Book(ctx, k)
			if err != nil || next.Ready == nil {
				return
			}
			g = next
		}
	})
	book(t, finds, one)
	calls := 0
	require.Eventually(t, func() bool { // it asks once how its line stands, and then not for a minute
		for _, name := range tap.names() {
			if strings.HasPrefix(name, "eval") {
				calls++
			}
		}
		return calls >= 3
	}, 10*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { // until it listens
		channels, err := client.PubSubChannels(t.Context(), "told with others*pause").Result()
		return err == nil && len(channels) > 0
	}, 10*time.Second, 10*time.Millisecond)
	forgets(t, client)
	late := bookingFor(time.Minute, row, one)
	got := ask(t, finds, late)
	require.False(t, got.OK, "%+v", got)
	require.Greater(t, got.Wait, 50*time.Minute)
}

package waits

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redissim"
	"github.com/fleetthrottle/throttle/store"
)

// A banning upstream counts what arrives. One request too many in any second, and it refuses all
// for five seconds.
type banning struct {
	stage
	n     int
	delay time.Duration // a request is on its way for so long at the most

	mu     sync.Mutex
	random *rand.Rand
	seen   []time.Duration // since the last ban
	good   []spend
	bans   int
	lifted time.Duration
}

// RoundTrip implements [http.RoundTripper].
func (b *banning) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	d := time.Duration(b.random.Int64N(int64(b.delay) + 1))
	b.mu.Unlock()
	if err := pass(r.Context(), d); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: b.arrive(), Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// arrive takes in a request that arrives now.
func (b *banning) arrive() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if now < b.lifted {
		return http.StatusTooManyRequests
	}
	if i := len(b.seen) - b.n; i >= 0 && now-b.seen[i] < time.Second {
		b.seen, b.lifted = nil, now+5*time.Second
		b.bans++
		return http.StatusTooManyRequests
	}
	b.seen = append(b.seen, now)
	b.good = append(b.good, spend{now, 1})
	return http.StatusOK
}

// banningUpstream has four nodes on Redis, with all that is a default, call one.
func banningUpstream(t *testing.T, v virtual) []row {
	const nodes, callers = 4, 16
	end := inFull[time.Duration](60, 15) * time.Second
	var useful []float64
	bans := 0
	for seed := range uint64(inFull(5, 1)) {
		v.stage(t, near, seed, func(s stage, net *redissim.Network) {
			all := s.nodes(net, nodes)
			s.begin = time.Now()
			u := &banning{stage: s, n: 40, delay: 30 * ms, random: dice(int(seed))}
			ctx, over := context.WithTimeout(s.t.Context(), end)
			defer over()
			var waiting sync.WaitGroup
			for _, n := range all {
				tr := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: n.store, Base: u, Policies: []throttle.Policy{perSecond(40)}}))
				for range callers {
					waiting.Go(func() {
						for ctx.Err() == nil {
							resp, err := tr.RoundTrip(must(http.NewRequestWithContext(ctx, http.MethodGet, home, nil)))
							if err == nil {
								_ = resp.Body.Close()
							}
						}
					})
				}
			}
			waiting.Wait()
			bans += u.bans
			useful = append(useful, used(u.good, 5*time.Second, end, 40, time.Second))
		})
	}
	r := atLeast("a banning upstream, 0 to 30 ms of jitter, 4 nodes × 16 callers on Redis, all defaults: useful of the quota", slices.Min(useful), usefulBanning).
		also("%d bans, %s at the most", bans, percent(slices.Max(useful)))
	r.target += ", no ban"
	r.ok = r.ok && bans == 0
	return []row{r}
}

// flightRedis is inFlight on Redis in virtual time, by one node and by four. The server is no
// way off: a request holds a lock while it asks for a slot, and who waits for a lock keeps virtual
// time from passing.
func flightRedis(t *testing.T, v virtual) (rows []row) {
	for _, nodes := range []int{1, 4} {
		v.stage(t, 0, 1, func(s stage, net *redissim.Network) {
			all := s.nodes(net, nodes)
			s.begin = time.Now()
			var asks []ask
			for _, n := range all {
				asks = append(asks, s.transport(newTransport(upstream{stage: s, answer: 150 * ms}, n.store, flightPolicies...)))
			}
			rows = append(rows, flown(s, asks, inFull[time.Duration](60, 15)*time.Second, fmt.Sprintf("Redis, %d nodes", nodes))...)
		})
	}
	return rows
}

// tokensRedis is tokens on Redis, by one node and by four.
func tokensRedis(t *testing.T, v virtual) (rows []row) {
	for _, g := range guesses {
		for _, answer := range []time.Duration{time.Second, 10 * time.Second} {
			for _, workers := range []int{20, 100, 300} {
				if answer > time.Second && (workers == 20 || g.estimate < g.real) {
					continue // they cannot use it up
				}
				for _, nodes := range inFull([]int{1, 4}, []int{2}) {
					name := fmt.Sprintf("estimate %d, real %d, %d workers, %d nodes on Redis, answers in %v: spent", g.estimate, g.real, workers, nodes, answer)
					spent := spentOnRedis(t, v, g, nodes, workers, answer)
					if g.estimate < g.real {
						rows = append(rows, within(name, spent, tokensLowLeast, tokensLowMost))
					} else {
						rows = append(rows, atLeast(name, spent, min(tokensHighLeast, timesPossible*g.possible(answer))).also("%s possible", percent(g.possible(answer))))
					}
				}
			}
		}
	}
	return rows
}

// spentOnRedis is spentTokens on Redis, by some nodes.
func spentOnRedis(t *testing.T, v virtual, g guess, nodes, workers int, answer time.Duration) (spent float64) {
	v.stage(t, near, 1, func(s stage, net *redissim.Network) {
		var limiters []*throttle.Limiter
		for _, n := range s.nodes(net, nodes) {
			limiters = append(limiters, n.limiter(store.PerMinute(tokensPerMinute)))
		}
		s.begin = time.Now()
		spent = spentBy(s, limiters, g, workers, answer)
	})
	return spent
}

// farAway has a server that is far away, with one node and with four. What is used depends on the phase in which the
// nodes find each other, so the figure is the mean over some seeds.
func farAway(t *testing.T, v virtual) (rows []row) {
	for _, c := range []struct {
		away  time.Duration
		n     int
		least float64
	}{{40 * ms, 40, usedNear40}, {150 * ms, 40, usedFar}, {300 * ms, 20, usedVeryFar}} {
		for _, nodes := range []int{1, 4} {
			var shares []float64
			for seed := range uint64(inFull(12, 4)) {
				v.stage(t, c.away, seed, func(s stage, net *redissim.Network) {
					all := s.nodes(net, nodes)
					s.begin = time.Now()
					end := inFull[time.Duration](60, 20) * time.Second
					var waiting sync.WaitGroup
					var mu sync.Mutex
					var starts []spend
					for _, n := range all {
						l := n.limiter(store.PerSecond(c.n))
						waiting.Go(func() {
							mine := spends(join(s.loop(32/nodes, end, s.limiter(l))...))
							mu.Lock()
							defer mu.Unlock()
							starts = append(starts, mine...)
						})
					}
					waiting.Wait()
					shares = append(shares, used(starts, 5*time.Second, end, c.n, time.Second))
				})
			}
			sum := 0.0
			for _, share := range shares {
				sum += share
			}
			mean := sum / float64(len(shares))
			rows = append(rows, atLeast(fmt.Sprintf("Redis %v away, %d/s, 32 callers, %d nodes: used of the quota", c.away, c.n, nodes), mean, c.least).
				also("%s to %s", percent(slices.Min(shares)), percent(slices.Max(shares))).knownIn("docs/internals/line.md", mean >= c.least-0.1))
		}
	}
	return rows
}

package benchmarks

import (
	"net/http"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/fleetthrottle/throttle/internal/lab/fleet"
)

// A contender is a limiter that a fleet's transport obeys.
type contender struct {
	name   string
	jitter time.Duration // throttle's: -1 is none, 0 its default
	wrap   fleet.Limiter // nil: throttle's transport
}

// few contenders are enough to see that a benchmark works.
const few = 3

// contenders are all that a limit which binds is put on. What a split
// fleet and the even redis_rate do, only such a limit shows.
func contenders() []contender {
	all := []contender{{"throttle", 0, nil}, {"throttle_no_jitter", -1, nil}}
	for _, p := range peers[base:] {
		all = append(all, contender{name: p.name, wrap: wrapPeer(p.open)})
	}
	return append(all,
		contender{name: "redis_rate_burst_1", wrap: wrapPeer(openRedisRateEven)},
		contender{name: "split", wrap: wrapSplit})
}

// openRedisRateEven is redis_rate with the smallest burst.
func openRedisRateEven(c *redis.Client, l limit) (ask, error) {
	return askRedisRate(c, redis_rate.Limit{Rate: l.N, Burst: 1, Period: l.Per}), nil
}

// fleetLimiters are the contenders as the members of a fleet know them.
func fleetLimiters() map[string]fleet.Limiter {
	known := make(map[string]fleet.Limiter)
	for _, c := range contenders() {
		if c.wrap != nil {
			known[c.name] = c.wrap
		}
	}
	return known
}

// limiter names the contender in a [fleet.Config].
func (c contender) limiter() string {
	if c.wrap == nil {
		return ""
	}
	return c.name
}

// wrapPeer asks a peer before each request.
func wrapPeer(open func(*redis.Client, limit) (ask, error)) fleet.Limiter {
	return func(m fleet.Member) (http.RoundTripper, error) {
		a, err := open(m.Redis, limit{m.Limit.N(), m.Limit.Per()})
		if err != nil {
			return nil, err
		}
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if err := a.wait(r.Context(), "key"); err != nil {
				return nil, err
			}
			return m.Base.RoundTrip(r)
		}), nil
	}
}

// wrapSplit gives each process its share of the limit, in a bucket of its own,
// which is what is done by hand where there is no shared limit.
func wrapSplit(m fleet.Member) (http.RoundTripper, error) {
	share := limit{m.Limit.N() / m.Config.Processes, m.Limit.Per()}
	bucket := rate.NewLimiter(rate.Every(share.each()), share.N)
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if err := bucket.Wait(r.Context()); err != nil {
			return nil, err
		}
		return m.Base.RoundTrip(r)
	}), nil
}

// roundTripper is a function that is an [http.RoundTripper].
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

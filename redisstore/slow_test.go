package redisstore_test

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
)

// A slow is a hook behind which the server is far away.
type slow struct {
	tap
	takes atomic.Int64
}

func (h *slow) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		half := time.Duration(h.takes.Load()) / 2
		time.Sleep(half)
		err := next(ctx, cmd)
		time.Sleep(half)
		return err
	}
}

// A counter is an upstream that notes when requests come, and likes them.
type counter struct {
	ok
	mu    sync.Mutex
	begin time.Time
	came  []time.Duration
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.came = append(c.came, time.Since(c.begin))
	return c.ok.RoundTrip(r)
}

// between returns how many came from one time until another.
func (c *counter) between(from, to time.Duration) (n int) {
	for _, at := range c.came {
		if from <= at && at < to {
			n++
		}
	}
	return n
}

// most returns the most that came in any interval of that length.
func (c *counter) most(per time.Duration) (most int) {
	slices.Sort(c.came)
	for i := range c.came {
		most = max(most, c.between(c.came[i], c.came[i]+per+1))
	}
	return most
}

// TestP12_SlowForAWhile lets Redis take long for each answer, for some seconds.
// Three seconds later nearly all of the quota is used again.
func TestP12_SlowForAWhile(t *testing.T) {
	t.Parallel()
	const near, far = 300 * time.Microsecond, 1500 * time.Millisecond
	const back, end = 11 * time.Second, 24 * time.Second
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		client := server.Client(t)
		s, _ := loaded(t, client, nil)
		h, up := &slow{}, &counter{begin: time.Now()}
		client.AddHook(h)
		var fleet []*throttle.Transport
		for range 4 {
			tr, err := throttle.New(throttle.Config{Store: atRest(t, s), Base: up, Policies: []throttle.Policy{
				{Name: "p", Limit: throttle.PerSecond(40)},
			}})
			require.NoError(t, err)
			fleet = append(fleet, tr)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		for i := range 80 {
			crowd.Go(func() { sendUntil(ctx, fleet[i%len(fleet)]) })
		}
		for _, phase := range []struct{ takes, until time.Duration }{{near, back - 6*time.Second}, {far, back}, {near, end}} {
			h.takes.Store(int64(phase.takes))
			time.Sleep(phase.until - time.Since(up.begin))
		}
		cancel()
		crowd.Wait()
		from := back + 3*time.Second
		quota := 40 * float64(end-from) / float64(time.Second+throttle.DefaultJitter)
		require.GreaterOrEqual(t, float64(up.between(from, end)), 0.95*quota)
		require.LessOrEqual(t, up.most(time.Second), 40)
	})
}

// sendUntil sends one request after the other until ctx ends.
func sendUntil(ctx context.Context, tr *throttle.Transport) {
	for ctx.Err() == nil {
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://a.example/", nil)
		if resp, err := tr.RoundTrip(r); err == nil {
			_ = resp.Body.Close()
		}
	}
}

package waitapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/servers/waitapi"
)

// TestP1_NothingIsChargedTooLittle: callers lose connections, ask again, die and take too long, over real
// connections, until a quota is used up. The upstream has not seen more than the quota, nor more in
// flight than the limit; and what is charged and did not arrive is of callers that may have had an answer.
func TestP1_NothingIsChargedTooLittle(t *testing.T) {
	for seed := range uint64(soak.Seeds(5, 1)) {
		t.Run("memory", func(t *testing.T) { testRandomCallers(t, memstore.New(), seed) })
		t.Run("Redis", func(t *testing.T) {
			testRandomCallers(t, redisstore.New(redistest.Single(t).Client(t), redisstore.Options{}), seed)
		})
	}
}

const (
	randomQuota = 300
	randomSlots = 4
	randomCost  = 3
)

func testRandomCallers(t *testing.T, store throttle.Store, seed uint64) {
	limiters := newLimiters(t, store, fmt.Sprintf("p: %d/h, q: %d in flight", randomQuota, randomSlots))
	h, err := waitapi.New(waitapi.Config{Limiters: limiters, Lifetime: 300 * time.Millisecond, MaxWait: 10 * time.Second})
	require.NoError(t, err)
	server := httptest.NewServer(h)
	defer server.Close()
	u := &upstream{T: t, url: server.URL, address: server.Listener.Addr().String()}
	var callers sync.WaitGroup
	for i := range 12 {
		callers.Go(func() {
			c := &randomCaller{upstream: u, Rand: rand.New(rand.NewPCG(seed, uint64(i)))}
			for range randomQuota { // more than there is quota for: it ends all the same
				if !c.works() {
					break
				}
			}
		})
	}
	callers.Wait()
	require.NoError(t, h.Close(t.Context()))
	require.LessOrEqual(t, u.arrived.Load(), int64(randomQuota))
	s := &scene{T: t, limiters: limiters}
	used := int64(s.used("p", ""))
	require.LessOrEqual(t, used, int64(randomQuota))
	require.GreaterOrEqual(t, used, u.arrived.Load())
	require.LessOrEqual(t, used, u.arrived.Load()+u.unknown.Load())
	require.Greater(t, u.arrived.Load(), int64(randomQuota/3), "most callers get through")
	require.LessOrEqual(t, u.mostInFlight(), randomSlots)
	require.Greater(t, len(u.flights), 10)
	t.Logf("%d arrived, %d charged, %d may have", u.arrived.Load(), used, u.unknown.Load())
}

// An upstream counts what arrives.
type upstream struct {
	*testing.T
	url, address string
	arrived      atomic.Int64 // costs
	unknown      atomic.Int64 // costs that are charged, or not: their callers died
	mu           sync.Mutex
	flights      []flight
}

// A flight is work under a permit that did not expire before its end.
type flight struct{ begin, end time.Time }

// mostInFlight returns how much work was going on at once.
func (u *upstream) mostInFlight() (most int) {
	for _, f := range u.flights {
		n := 0
		for _, other := range u.flights {
			if !other.begin.After(f.begin) && other.end.After(f.begin) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// A randomCaller is a program that may do anything but use a key again once its work has begun.
type randomCaller struct {
	*upstream
	*rand.Rand
}

// works does one piece of work, and reports whether there is quota left.
func (c *randomCaller) works() bool {
	key := fmt.Sprintf("Idempotency-Key: %x", c.Uint64())
	body := fmt.Sprintf(`{"demands": [{"policy": "p", "cost": %d}, {"policy": "q"}]}`, randomCost)
	for {
		var a answer
		switch c.IntN(6) {
		case 0: // dies, or asks again, before an answer has come
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.IntN(4000))*time.Microsecond)
			c.send(ctx, "acquire", body, key)
			cancel()
		case 1: // the same, and the network says so at once
			c.reset("acquire", body, key)
		case 2: // asks twice at once
			both := make(chan answer)
			go func() { both <- c.send(context.Background(), "acquire", body, key) }()
			a = c.send(context.Background(), "acquire", body, key)
			if b := <-both; b.Code == 200 {
				a = b
			}
		default:
			a = c.send(context.Background(), "acquire", body, key)
		}
		switch {
		case a.Code == 429 && a.Policy == "p":
			return false
		case a.Code == 429 || a.Code == 503: // every slot is of the dead
			return true
		case a.Code == 200 && c.IntN(8) > 0:
			c.use(a)
			return true
		case c.IntN(2) == 0: // it dies; else it has not used what it may have been answered, and asks again
			c.unknown.Add(randomCost)
			return true
		}
	}
}

// use does the work of a permit, whose true cost may turn out to be lower.
func (c *randomCaller) use(a answer) {
	begin, cost := time.Now(), 1+c.IntN(randomCost)
	c.arrived.Add(int64(cost))
	if cost < randomCost {
		settle := named(a, fmt.Sprintf(`"cost": %d, "policy": "p"`, cost))
		if c.IntN(3) == 0 {
			c.reset("settle", settle)
			c.unknown.Add(int64(randomCost - cost))
		} else if c.send(context.Background(), "settle", settle).Code != 204 { // the permit has expired
			c.unknown.Add(int64(randomCost - cost))
		}
	}
	if c.IntN(5) == 0 {
		return // it dies, or takes too long
	}
	end := time.Now()
	if c.send(context.Background(), "release", named(a)).Code == 204 {
		c.mu.Lock()
		c.flights = append(c.flights, flight{begin, end})
		c.mu.Unlock()
	}
	if c.IntN(3) == 0 {
		require.Contains(c, []int{204, 410}, c.send(context.Background(), "release", named(a)).Code)
	}
}

// send returns the answer to a request; none if ctx ended.
func (c *randomCaller) send(ctx context.Context, path, body string, headers ...string) (a answer) {
	resp, err := http.DefaultClient.Do(c.request(ctx, path, body, headers...))
	if err != nil {
		return answer{}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}
	}
	if len(text) > 0 {
		require.NoError(c, json.Unmarshal(text, &a))
	}
	a.Code = resp.StatusCode
	return a
}

// request returns a request to the handler.
func (c *randomCaller) request(ctx context.Context, path, body string, headers ...string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, nil)
	require.NoError(c, err)
	s := &scene{T: c.T}
	made := s.request(ctx, path, body, headers...)
	r.URL.Path, r.Header, r.Body, r.ContentLength = made.URL.Path, made.Header, made.Body, made.ContentLength
	return r
}

// reset sends a request, and resets the connection some time later.
func (c *randomCaller) reset(path, body string, headers ...string) {
	conn, err := net.Dial("tcp", c.address)
	require.NoError(c, err)
	var text bytes.Buffer
	require.NoError(c, c.request(context.Background(), path, body, headers...).Write(&text))
	part := text.Bytes()
	if c.IntN(4) == 0 {
		part = slices.Clip(part[:c.IntN(len(part))])
	}
	_, err = conn.Write(part)
	require.NoError(c, err)
	time.Sleep(time.Duration(c.IntN(2000)) * time.Microsecond) // chance, not a condition
	require.NoError(c, conn.(*net.TCPConn).SetLinger(0))
	conn.Close()
}

package fleet

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

const ms = time.Millisecond

func calls(worker string, n int) []Sample {
	var s []Sample
	for range n {
		s = append(s, Sample{Worker: worker, OK: true})
	}
	return append(s, Sample{Worker: worker})
}

func TestJain(t *testing.T) {
	require.Equal(t, 1.0, Jain(append(calls("a", 7), calls("b", 7)...)))
	require.Equal(t, 0.5, Jain(append(calls("a", 7), calls("b", 0)...)))
	require.Equal(t, 0.8, Jain(append(calls("a", 3), calls("b", 1)...)))
	require.Equal(t, 0.0, Jain(calls("a", 0)))
}

func TestInversions(t *testing.T) {
	call := func(key string, asked, served time.Duration) Sample {
		return Sample{Key: key, Asked: asked, Served: served, OK: true}
	}
	first := call("", 0, 10)
	for _, c := range []struct {
		name string
		with []Sample
		want float64
	}{
		{"alone", nil, 0},
		{"in order", []Sample{call("", 1, 11)}, 0},
		{"the other way round", []Sample{call("", 1, 9)}, 1},
		{"equal starts", []Sample{call("", 1, 10)}, 0},
		{"came together", []Sample{call("", 0, 9)}, 0},
		{"came later", []Sample{call("", 10, 10)}, 0},
		{"another budget", []Sample{call("other", 1, 9)}, 0},
		{"gave up", []Sample{{Asked: 1, Served: 9}}, 0},
		{"one pair of three", []Sample{call("", 1, 11), call("", 2, 9)}, 2. / 3},
		{"the store's clock decides", []Sample{{Asked: 1, Served: 9, Start: 12, OK: true}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, Inversions(append([]Sample{first}, c.with...)))
		})
	}
}

func TestOvertaken(t *testing.T) {
	first := Sample{Asked: 0, Booked: 3, Served: 10, Start: 10, OK: true}
	call := func(asked, start time.Duration) Sample {
		return Sample{Asked: asked, Booked: asked + 1, Served: start, Start: start, OK: true}
	}
	require.Equal(t, 0, Overtaken([]Sample{first, call(4, 10), call(5, 11)}))
	require.Equal(t, 0, Overtaken([]Sample{first, call(3, 9)}), "the first did not know its start yet")
	require.Equal(t, 2, Overtaken([]Sample{first, call(4, 9), call(5, 9)}))
	untold := first
	untold.Booked = 0
	require.Equal(t, 0, Overtaken([]Sample{untold, call(4, 9)}))
}

func TestLongest(t *testing.T) {
	require.Equal(t, 9*ms, Longest([]Sample{
		{Asked: 1 * ms, Served: 4 * ms, OK: true},
		{Asked: 2 * ms, Served: 11 * ms},
		{Asked: 5 * ms, Served: 6 * ms, OK: true},
	}))
	require.Zero(t, Longest(nil))
}

// Budgets of every kind are used as heavily as they can be: a thousand bookings
// each, of any cost, with queues of hours. No key grows beyond 4 KB, and none
// stays forever.
func TestP10_Memory(t *testing.T) {
	soak.Only(t)
	limits := []string{"1000000/h", "5/s", "40/s", "10000/20s", "1000000/h fixed", "5000/month Asia/Shanghai", "40/s paced"}
	client := redistest.Single(t).Client(t)
	s := redisstore.New(client, redisstore.Options{})
	random := rand.New(rand.NewPCG(10, 4096))
	for i, text := range limits {
		limit, err := throttle.ParseLimit(text)
		require.NoError(t, err, text)
		for range 1000 {
			cost := 1
			if random.IntN(2) == 0 {
				cost = 1 + random.IntN(max(1, limit.N()/20))
			}
			g, err := s.Book(t.Context(), &store.Booking{MaxWait: -1, Charges: []store.Charge{{
				Budget: throttle.Budget{Policy: text, Group: "memory", Key: [16]byte{byte(i)}},
				Limit:  limit, Cost: cost, Jitter: acquire.DefaultJitter,
			}}})
			require.NoError(t, err, text)
			require.True(t, g.OK || g.Wait == throttle.Never, text)
		}
	}

	keys, err := client.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(keys), len(limits))
	for _, key := range keys {
		bytes, err := client.MemoryUsage(t.Context(), key, 0).Result()
		require.NoError(t, err)
		left, err := client.PTTL(t.Context(), key).Result()
		require.NoError(t, err)
		t.Logf("%s: %d bytes, %v left", key, bytes, left.Round(time.Second))
		require.LessOrEqual(t, bytes, int64(4096), key)
		require.Positive(t, left, key)
	}
}

// send delivers one request to u and returns the status.
func send(u *Upstream, worker string) int {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set(WorkerHeader, worker)
	u.ServeHTTP(w, r)
	return w.Code
}

func TestUpstreamBans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := NewUpstream(2, time.Second, 5*time.Second)
		var got []int
		for _, after := range []time.Duration{
			0, 999 * ms, // two in a second
			ms,                        // a second after the first
			998 * ms,                  // the third within a second: a ban until 6.998 s
			time.Second, 3999 * ms, 0, // refused; they do not count later
			ms, 0, // two more, a second later
			999 * ms, // and a second ban
		} {
			time.Sleep(after)
			got = append(got, send(u, "a"))
		}
		require.Equal(t, []int{200, 200, 200, 403, 403, 403, 403, 200, 200, 403}, got)
		require.Equal(t, 2, u.Bans())
		require.Equal(t, map[string]int{"a": 5}, u.PerWorker())
		require.Len(t, u.Arrivals(), 10)
		require.Equal(t, 4, u.Worst(), "refused arrivals are arrivals")
	})
}

func TestUpstreamAllowsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := NewUpstream(40, time.Second, 5*time.Second)
		begin := time.Now()
		for range 10 {
			for range 40 {
				require.Equal(t, http.StatusOK, send(u, "a"))
			}
			time.Sleep(time.Second)
		}
		require.Zero(t, u.Bans())
		require.Equal(t, 40, u.Worst())
		require.Equal(t, 1.0, u.Useful(begin.Add(2*time.Second), time.Now()))
	})
}

func TestUpstreamStampsOutOfOrder(t *testing.T) {
	u := NewUpstream(2, time.Second, 5*time.Second)
	require.True(t, u.admit(Arrival{At: 3 * time.Second}))
	require.True(t, u.admit(Arrival{At: 3500 * ms}))
	require.True(t, u.admit(Arrival{At: 2500 * ms}))
	require.False(t, u.admit(Arrival{At: 2501 * ms}), "2.5, 2.501 and 3 s")
	require.Equal(t, 1, u.Bans())
	require.Equal(t, 3, u.Worst())
}

// A token bucket is what most limiters are. Full of 40 and refilled with 40 a
// second, it passes 79 in its first second.
func TestUpstreamCatchesATokenBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := NewUpstream(40, time.Second, 5*time.Second)
		b := newBucket(40, time.Second, 40)
		begin := time.Now()
		for range 200 {
			require.NoError(t, b.wait(t.Context()))
			send(u, "a")
		}
		require.Equal(t, 4*time.Second, time.Since(begin))
		require.Equal(t, 79, u.Worst())
		require.Equal(t, 1, u.Bans())
		require.Equal(t, map[string]int{"a": 40}, u.PerWorker())
	})
}

func TestServeTLS(t *testing.T) {
	u := NewUpstream(10, time.Second, time.Second)
	s := Serve(u, ms)
	defer s.Close()
	resp, err := s.Client().Get(s.URL)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.NotNil(t, resp.TLS)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Len(t, u.Arrivals(), 1)
}

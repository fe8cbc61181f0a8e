package fleet

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
)

// A strict upstream answers one request with a penalty, and that before it with a
// shorter one, but later. It notes when requests come.
type strict struct {
	at     int                       // which one
	before func()                    // called when that comes
	no     func(http.ResponseWriter) // answers it
	epoch  time.Time

	mu       sync.Mutex
	arrivals []Arrival
	answers  time.Duration // when it began to answer it
	answered chan struct{} // closed when it had
	done     time.Duration // and when that was
}

func newStrict(at int, before func(), no func(http.ResponseWriter)) *strict {
	return &strict{at: at, before: before, no: no, epoch: time.Now(), answered: make(chan struct{})}
}

// ServeHTTP implements http.Handler.
func (u *strict) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Since(u.epoch)
	u.mu.Lock()
	u.arrivals = append(u.arrivals, Arrival{At: at, Worker: r.Header.Get(WorkerHeader)})
	n := len(u.arrivals)
	u.mu.Unlock()
	switch n {
	case u.at - 1:
		<-u.answered
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	case u.at:
		u.before()
		u.mu.Lock()
		defer u.mu.Unlock()
		u.answers = time.Since(u.epoch)
		u.no(w)
		_ = http.NewResponseController(w).Flush() // a connection that is gone is seen by its request
		u.done = time.Since(u.epoch)
		close(u.answered)
	}
}

// tooMany is a refusal that says for how long.
func tooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "2")
	w.WriteHeader(http.StatusTooManyRequests)
}

// deny is DingTalk's ban, which looks like success.
func deny(w http.ResponseWriter) {
	_, _ = io.WriteString(w, denial)
}

const denial = `{"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"5ea8d1f0"}`

// penalty is how long both close the budget. DingTalk's takes five minutes.
const penalty = 2 * time.Second

// banned is throttle's transport, which knows both.
func banned(m Member) (http.RoundTripper, error) {
	p := m.policy()
	p.Answer = func(resp *http.Response) throttle.Answer {
		if b, err := feedback.PeekBody(resp, 4096); err == nil && strings.Contains(string(b), `"punish":"deny"`) {
			return throttle.Refused(penalty)
		}
		return throttle.RetryAfter(resp)
	}
	return throttle.New(throttle.Config{
		MaxWait: throttle.Forever,
		Store:   recorder{redisstore.New(m.Redis, redisstore.Options{})}, Policies: []throttle.Policy{p}, Base: m.Base, Observe: m.events.observe,
	})
}

// TestP11_AnswersStopAFleet lets three processes have sleepers up to three seconds
// ahead when one of their answers carries a penalty.
func TestP11_AnswersStopAFleet(t *testing.T) {
	soak.Only(t)
	for name, no := range map[string]func(http.ResponseWriter){"429": tooMany, "DingTalk's ban": deny} {
		for how, cut := range map[string]bool{"": false, ", subscribers cut just before": true} {
			t.Run(name+how, func(t *testing.T) {
				t.Parallel()
				server := redistest.Single(t)
				client := server.Client(t)
				up := newStrict(50, func() {
					if cut {
						_ = client.ClientKillByFilter(context.Background(), "TYPE", "pubsub").Err()
					}
				}, no)
				upstream := Serve(up, 0)
				defer upstream.Close()
				c := Config{Name: "banned", Limiter: "banned", Redis: server.URL(), Limit: "20/s",
					Processes: 3, Workers: 20, Load: 15 * time.Second}
				still := watchStalls(t)
				_, results, err := orders{Config: c, URL: upstream.URL}.muster(t.Context())
				stall := still()
				require.NoError(t, err)
				up.check(t, results, stall)
			})
		}
	}
}

// check requires that nothing arrived in the penalty, that something would have, and
// that all were served after it.
func (u *strict) check(t *testing.T, results []result, stall time.Duration) {
	t.Helper()
	from, end := u.done+50*ms, u.answers+penalty
	var last, first time.Duration
	served := map[string]bool{}
	for _, a := range u.arrivals {
		require.False(t, a.At > from+stall && a.At < end, "%s arrived %v after the answer", a.Worker, a.At-u.done)
		switch {
		case a.At < end:
			last = max(last, a.At)
		case first == 0:
			first = a.At
			fallthrough
		default:
			served[a.Worker] = true
		}
	}
	t.Logf("longest stall %v; answered after %v, the last one came %v later, the next one %v", stall, u.done, last-u.done, first-u.done)
	require.Less(t, first, end+time.Second, "the budget opens")
	require.Len(t, served, 60, "everybody is served after the end")

	told, sleepers := time.Duration(u.epoch.UnixNano())+u.done, map[string]int{}
	for _, r := range results {
		for _, s := range r.Samples {
			if s.Asked < told && s.Served > told {
				process, _, _ := strings.Cut(s.Worker, "/")
				sleepers[process]++
			}
		}
	}
	require.Len(t, sleepers, 3, "each process had some sleepers")
	for process, n := range sleepers {
		require.Greater(t, n, 5, "process %s", process)
	}
}

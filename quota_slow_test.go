package throttle_test

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// A windowed upstream counts in fixed windows of a minute, says what is left when it
// has counted, and takes long to answer.
type windowed struct {
	mu      sync.Mutex
	n, used int
	window  int64
	slow    time.Duration
	refused int
}

func (u *windowed) take() (left int, reset time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if w := now.Unix() / 60; w != u.window {
		u.window, u.used = w, 0
	}
	u.used++
	return u.n - u.used, time.Duration(60-now.Unix()%60) * time.Second
}

func (u *windowed) RoundTrip(r *http.Request) (*http.Response, error) {
	left, reset := u.take()
	status := http.StatusOK
	if left < 0 {
		status = http.StatusTooManyRequests
		u.mu.Lock()
		u.refused++
		u.mu.Unlock()
	}
	date := time.Now().UTC().Format(http.TimeFormat)
	time.Sleep(u.slow)
	return answer(status, "", "Date", date, "X-RateLimit-Remaining", strconv.Itoa(max(0, left)),
		"X-RateLimit-Reset", strconv.Itoa(int(reset/time.Second)))(r)
}

// TestP11_WhatIsLeftOfSlowAnswers has another program use half of a limit whose
// answers take five seconds. What it used in the last five seconds nobody knows; if
// our own starts of that time counted as known to the upstream, it would refuse five
// times as many.
func TestP11_WhatIsLeftOfSlowAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &windowed{n: 600, slow: 5 * time.Second}
		p := throttle.Policy{Name: "p", Limit: throttle.PerMinute(600), Penalty: throttle.NoPenalty,
			Quota: feedback.Headers{Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"}.Quota}
		tr := newTransport(t, up, p)
		end := time.Now().Add(10 * time.Minute)
		var all sync.WaitGroup
		for range 80 {
			all.Go(func() {
				for time.Now().Before(end) {
					if err := send(t, tr, get(t, home)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Go(func() { // a program that was not told of throttle
			for time.Now().Before(end) {
				time.Sleep(200 * time.Millisecond)
				up.take()
			}
		})
		all.Wait()
		require.Less(t, up.refused, 200)
	})
}

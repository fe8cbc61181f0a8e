package throttle_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// table is what the program has for its upstream.
var table = []throttle.Policy{{Name: "api", Match: "api.example.com/", Limit: throttle.PerSecond(20)}}

// The time of a bubble moves when all in it wait, so a test of a minute takes no time.
func TestOrdersKeepTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
			Store:    memstore.New(), // made in the bubble
			Policies: table,
			Base:     offline, // a RoundTripper that answers without a network
		}))}
		begin := time.Now()
		for range 21 {
			resp, err := client.Get("https://api.example.com/orders")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		if took := time.Since(begin); took < time.Second {
			t.Errorf("21 requests under 20/s took %v", took)
		}
	})
}

// Which rows a request meets is a table that a test can compare.
func TestOrdersMeetTheirPolicy(t *testing.T) {
	transport := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Policies: table}))
	req, err := http.NewRequest(http.MethodGet, "https://api.example.com/orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	charges := transport.Explain(req)
	if len(charges) != 1 || charges[0].Budget.Policy != "api" || charges[0].Cost != 1 {
		t.Errorf("the request meets %v", charges)
	}
}

// drain returns a context for requests, which ends a while after stop has.
func drain(stop context.Context, grace time.Duration) (work context.Context, end context.CancelFunc) {
	work, end = context.WithCancel(context.WithoutCancel(stop))
	context.AfterFunc(stop, func() { time.AfterFunc(grace, end) })
	return work, end
}

// What is held when a program has to stop is never sent, and gives its place back.
func TestDrainGivesBackWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop, sigterm := context.WithCancel(t.Context())
		work, end := drain(stop, 20*time.Second)
		defer end()
		limiter, err := throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "api", Limit: throttle.PerMinute(1)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := limiter.Acquire(work, "", 1); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		time.AfterFunc(5*time.Second, sigterm)
		if _, err := limiter.Acquire(work, "", 1); !errors.Is(err, context.Canceled) || time.Since(begin) != 25*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		if status, err := limiter.Status(t.Context(), ""); err != nil || status.Used != 1 || status.Waiting != 0 {
			t.Errorf("%+v, %v", status, err)
		}
	})
}

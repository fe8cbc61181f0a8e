package throttle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/slogthrottle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/github"
	"github.com/fleetthrottle/throttle/presets/stripe"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/retry"
)

// One API, one process: a policy, a transport and a client. The upstream refuses the
// first request. No other request starts for as long as the refusal asks, and the
// request is retried.
func Example() {
	api := throttle.Policy{Name: "api", Match: "api.example.com/", Limit: throttle.PerSecond(20)}
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(), Policies: []throttle.Policy{api},
		Base: refusesOnce(), // leave it out in a program
	}))
	client := retry.NewClient(transport).StandardClient() // an *http.Client

	resp, err := client.Get("https://api.example.com/users") // held until there is room
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 200 OK
}

// refusesOnce is an upstream that refuses its first request.
func refusesOnce() http.RoundTripper {
	var requests atomic.Int32
	return base(func(r *http.Request) (*http.Response, error) {
		if requests.Add(1) > 1 {
			return offline.RoundTrip(r)
		}
		return &http.Response{
			Status: "429 Too Many Requests", StatusCode: http.StatusTooManyRequests,
			Header: http.Header{"Retry-After": {"0.05"}}, Body: http.NoBody, Request: r,
		}, nil
	})
}

// README's three lines: one API, one process, and a 429 that is obeyed and repeated.
func Example_threeLines() {
	api := throttle.Policy{Name: "api", Match: "api.example.com/", Limit: throttle.PerSecond(20)}
	transport := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{api}}))
	client := retry.NewClient(transport).StandardClient() // an *http.Client; make it once, for the whole program

	_ = client
}

// A fleet shares its budgets through Redis. The difference is one line.
func Example_fleet() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()

	transport, err := throttle.New(throttle.Config{
		Store:    redisstore.New(rdb, redisstore.Options{}),
		Policies: []throttle.Policy{{Name: "api", Match: "api.example.com/", Limit: throttle.PerSecond(20)}},
	})
	fmt.Println(transport != nil, err) // nothing is sent before the first request
	// Output: true <nil>
}

// README's first lines: a fleet that calls GitHub and Stripe. The store, the transport and the client are made once.
func Example_readme() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	transport := throttle.Must(throttle.New(throttle.Config{
		Store:    redisstore.New(rdb, redisstore.Options{}), // memstore.New() for one process
		Policies: append(github.Policies(github.Options{}), stripe.Policies(stripe.Options{})...),
		MaxWait:  time.Minute, // an attempt that would wait longer is refused at once
	}))
	client := retry.NewClient(transport).StandardClient() // an *http.Client; make it once, for the whole program

	_ = client
}

// A whole program: calls of DingTalk, in a fleet, and errors without the token. The store, the transport and the client are made once.
func Example_program() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	transport, err := throttle.New(throttle.Config{
		Store:    redisstore.New(rdb, redisstore.Options{}),              // memstore.New() for one program
		Policies: dingtalk.Policies(dingtalk.Options{App: "my-app-key"}), // 20 calls a second, as a standard company may make
		MaxWait:  time.Minute,                                            // an attempt that would wait longer is refused at once
	})
	if err != nil {
		log.Fatal(err) // all mistakes of the configuration
	}
	client := retry.NewClient(transport).StandardClient() // an *http.Client, for all goroutines; each attempt waits for its place

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // of all attempts together
	defer cancel()
	if err := getUser(ctx, client, os.Getenv("ACCESS_TOKEN")); err != nil {
		log.Fatal(err)
	}
}

func getUser(ctx context.Context, client *http.Client, token string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://oapi.dingtalk.com/topapi/v2/user/get?access_token="+token,
		strings.NewReader(`{"userid": "manager4220"}`))
	if err != nil {
		return errors.New("the token is not part of a URL") // err holds it
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return errors.Unwrap(err) // http.Client's part of the error holds the URL, and with it the token
	}
	defer resp.Body.Close()
	answer := struct{ ErrCode int }{-1} // DingTalk refuses with status 200, and bans without any code
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.ErrCode != 0 {
		return fmt.Errorf("DingTalk refused with errcode %d", answer.ErrCode)
	}
	return nil
}

// While Redis is away each node keeps a share of the limits by itself.
func Example_outage() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()

	store := redisstore.New(rdb, redisstore.Options{Outage: redisstore.OutageSplit})
	transport, err := throttle.New(throttle.Config{
		Store:    store,
		Policies: []throttle.Policy{{Name: "api", Match: "api.example.com/", Limit: throttle.PerSecond(20)}},
	})
	fmt.Println(transport != nil, err)
	// Output: true <nil>
}

// A table by hand: three of the rows of DingTalk's, which package dingtalk has in
// full. A request obeys every row that it matches.
func Example_dingTalk() {
	app := func(*http.Request) string { return "my-app-key" } // an id, not the token: that changes

	policies := []throttle.Policy{
		{
			Name: "robot", Match: "POST oapi.dingtalk.com/robot/send",
			Key: throttle.Query("access_token"), Limit: throttle.PerMinute(20), // the narrowest key first: a 429 closes this row alone
		},
		{
			Name: "app and API", Match: "oapi.dingtalk.com/",
			Key: throttle.Join(app, throttle.RawPath), Limit: throttle.PerSecond(20),
		},
		{
			Name: "address", Match: "*.dingtalk.com/",
			Limit: throttle.SlidingWindow(10_000, 20*time.Second),
		},
	}

	transport := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Policies: policies, Base: offline}))
	req, err := http.NewRequest(http.MethodPost, "https://oapi.dingtalk.com/robot/send?access_token=secret", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, charge := range transport.Explain(req) {
		fmt.Println(charge.Budget.Policy, charge.Limit)
	}
	// Output:
	// robot 20/m
	// app and API 20/s
	// address 10000/20s
}

// A model's API counts requests, and tokens that are known from the answer only.
func Example_model() {
	estimate := func(r *http.Request) int { return 100 + int(r.ContentLength)/4 }
	usage := func(resp *http.Response) throttle.Answer {
		n, err := strconv.Atoi(resp.Header.Get("X-Tokens-Used"))
		if err != nil {
			return throttle.Answer{} // it does not say
		}
		return throttle.Answer{}.WithCost(n)
	}

	policies := []throttle.Policy{
		{
			Name: "requests", Match: "api.example.com/v1/", Limit: throttle.TokenBucket(1, time.Second, 60),
			Headroom: map[throttle.Priority]float64{throttle.PriorityLow: 0.25}, // batch work leaves a quarter free
		},
		{
			Name: "tokens", Match: "api.example.com/v1/", Limit: throttle.PerMinute(90_000),
			Cost: estimate, Answer: usage, // the difference is charged or given back
		},
		{Name: "at once", Match: "api.example.com/v1/", Limit: throttle.Concurrency(8), Scope: throttle.ScopeNode}, // each process for itself
	}

	transport := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Policies: policies, Base: offline}))
	batch := throttle.WithPriority(context.Background(), throttle.PriorityLow)
	req, err := http.NewRequestWithContext(batch, http.MethodPost, "https://api.example.com/v1/complete", strings.NewReader("Why?"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, charge := range transport.Explain(req) {
		fmt.Println(charge.Budget.Policy, charge.Cost, "of", charge.Limit, "leaving", charge.KeepFree)
	}
	// Output:
	// requests 1 of 1/s burst 60 leaving 15
	// tokens 101 of 90000/m leaving 0
	// at once 1 of 8 in flight leaving 0
}

// A caller that would rather be told than wait.
func ExampleLimitError() {
	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
		Store:    memstore.New(),
		Policies: []throttle.Policy{{Name: "hourly", Match: "api.example.com/", Limit: throttle.PerHour(1)}},
		Base:     offline,
		MaxWait:  -1, // never wait
	}))}

	for range 2 {
		resp, err := client.Get("https://api.example.com/")
		var limited *throttle.LimitError
		switch {
		case errors.As(err, &limited):
			fmt.Println("refused by", limited.Policy, limited.RetryAfter > 59*time.Minute)
		case err != nil:
			fmt.Println(err)
		default:
			resp.Body.Close()
			fmt.Println("sent")
		}
	}
	// Output:
	// sent
	// refused by hourly true
}

// One request may wait longer, or shorter, than the others.
func ExampleWithMaxWait() {
	ctx := throttle.WithMaxWait(context.Background(), 2*time.Second)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/", nil)
	fmt.Println(req != nil, err)
	// Output: true <nil>
}

// Work that is not an HTTP request uses the same engine.
func ExampleLimiter() {
	limiter, err := throttle.NewLimiter(memstore.New(), throttle.Policy{
		Name:  "mail",
		Keyed: true, // a budget for each server
		Limit: throttle.PerSecond(5),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	permit, err := limiter.Acquire(context.Background(), "example.com", 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer permit.Release()
	fmt.Println("sending")
	// Output: sending
}

// Limits change while the program runs. What was counted stays counted.
func ExampleTransport_SetPolicies() {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store:    memstore.New(),
		Policies: []throttle.Policy{{Name: "api", Match: "api.example.com/", Limit: throttle.PerSecond(20)}},
	}))
	err := transport.SetPolicies([]throttle.Policy{{Name: "api", Match: "api.example.com/", Limit: throttle.PerSecond(40)}})
	fmt.Println(err)
	// Output: <nil>
}

// Every mistake in a configuration is reported at once.
func ExampleConfigError() {
	_, err := throttle.New(throttle.Config{Policies: []throttle.Policy{
		{Name: "api", Match: "https://api.example.com/", Limit: throttle.PerSecond(0)},
	}})
	fmt.Println(err)
	// Output:
	// throttle: Store: is required: memstore.New() for one process, redisstore.New(client, redisstore.Options{}) for a fleet
	// throttle: policy "api": Match: at offset 0: a pattern has no scheme: leave out "https://"
	// throttle: policy "api": Limit: 0 starts: allow at least 1
}

// Observe is the library's only voice.
func ExampleEvent() {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store:    memstore.New(),
		Policies: []throttle.Policy{{Name: "api", Match: "api.example.com/", Limit: throttle.PerSecond(20)}},
		Base:     offline,
		Observe: func(_ context.Context, e throttle.Event) {
			fmt.Println(e.Kind, e.Duration >= 0)
		},
	}))
	resp, err := (&http.Client{Transport: transport}).Get("https://api.example.com/")
	if err == nil {
		resp.Body.Close()
	}
	// Output: started true
}

// offline answers without a network.
var offline = roundTripper(func(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Status: "200 OK", Body: http.NoBody, Request: r}, nil
})

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Events are logged with log/slog, and counted by an observer beside the log.
func ExampleObservers() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: steady}))
	refused := 0
	count := func(_ context.Context, e throttle.Event) {
		if e.Kind == throttle.EventRefused {
			refused++
		}
	}

	logs := slogthrottle.New(logger, slogthrottle.Options{})
	limits, err := throttle.NewLimiters(throttle.Config{
		Store: memstore.New(), Observe: throttle.Observers(logs.Observe, count),
		Policies: []throttle.Policy{{Name: "mails", Limit: throttle.PerHour(500)}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	permit, err := limits.Acquire(ctx, throttle.Demand{Policy: "mails"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = permit.Tell(ctx, throttle.Refused(10*time.Minute))
	_, _ = limits.Acquire(throttle.WithMaxWait(ctx, throttle.NoWait), throttle.Demand{Policy: "mails"})
	fmt.Println(refused, "refused")
	// Output:
	// level=WARN msg="throttle: penalized" throttle.policy=mails throttle.budget=mails/afe800e91f7e throttle.limit=500/h throttle.duration=10m0s
	// level=WARN msg="throttle: refused" throttle.policy=mails throttle.budget=mails/afe800e91f7e throttle.limit=500/h throttle.paused=true error.type=limit error.message="throttle: policy \"mails\" (500/h): closed by a penalty, would wait 10m0s, but may not wait at all"
	// 1 refused
}

// steady takes the time out of a log, and durations of what is done at once, because they differ from run to run.
func steady(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Value.Kind() == slog.KindDuration && a.Value.Duration() < time.Second {
		return slog.Attr{}
	}
	return a
}

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
		work, end := drain(throttle.WithMaxWait(stop, throttle.Forever), 20*time.Second)
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

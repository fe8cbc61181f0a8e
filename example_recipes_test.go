package throttle_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/feishu"
	"github.com/fleetthrottle/throttle/presets/github"
	"github.com/fleetthrottle/throttle/presets/wechat"
	"github.com/fleetthrottle/throttle/presets/wecom"
)

// A job on many machines uses what is left of the quota, and leaves a quarter of it to
// the requests of users.
func Example_batch() {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(), // redisstore.New(rdb, redisstore.Options{}) for many machines
		Policies: []throttle.Policy{{
			Name: "api", Match: "api.example.com/", Limit: throttle.PerMinute(1000),
			Headroom: map[throttle.Priority]float64{throttle.PriorityLow: 0.25},
		}},
		Base: offline, // leave it out in a program
	}))
	client := &http.Client{Transport: transport} // no Timeout: it would bound the wait, too

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Hour) // of the job
	defer cancel()
	ctx = throttle.WithPriority(ctx, throttle.PriorityLow)

	pages := make(chan int)
	var done atomic.Int32
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for page := range pages {
				if err := fetch(ctx, client, page); err != nil {
					fmt.Println(err)
					continue
				}
				done.Add(1)
			}
		})
	}
	for page := range 100 {
		pages <- page
	}
	close(pages)
	workers.Wait()
	fmt.Println(done.Load(), "pages")
	// Output: 100 pages
}

func fetch(ctx context.Context, client *http.Client, page int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprint("https://api.example.com/pages/", page), nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// tenantKey is the key under which a request's context holds its tenant.
type tenantKey struct{}

func tenant(r *http.Request) string {
	id, _ := r.Context().Value(tenantKey{}).(string)
	return id
}

// An upstream that counts by tenant, by address and by application: three rows, booked
// together.
func Example_tenants() {
	const pod = "egress-1" // which address the requests of this program leave from
	policies := []throttle.Policy{
		{
			Name: "tenant", Match: "api.example.com/", Limit: throttle.PerMinute(60),
			Key: tenant,
		},
		{
			Name: "address", Match: "api.example.com/", Limit: throttle.SlidingWindow(10_000, 20*time.Second),
			Key: func(*http.Request) string { return pod },
		},
		{
			Name: "application and API", Match: "api.example.com/", Limit: throttle.PerSecond(20),
			Key: throttle.Join(func(*http.Request) string { return "app-id" }, throttle.Method, throttle.RawPath),
		},
	}
	transport := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Policies: policies, Base: offline}))

	ctx := context.WithValue(context.Background(), tenantKey{}, "acme")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, charge := range transport.Explain(req) {
		fmt.Println(charge.Budget.Policy, charge.Limit)
	}
	// Output:
	// tenant 60/m
	// address 10000/20s
	// application and API 20/s
}

// A day's quota that lasts until the evening: the day as the provider counts it, an
// hour's share in front of it, and a part that batch work must leave.
func Example_daily() {
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		fmt.Println(err)
		return
	}
	policies := []throttle.Policy{
		{
			Name: "day", Match: "api.example.com/", Limit: throttle.CalendarWindow(24_000, throttle.Day, shanghai),
			Headroom: map[throttle.Priority]float64{throttle.PriorityLow: 0.2},
		},
		{Name: "hour", Match: "api.example.com/", Limit: throttle.PerHour(2_000), Answer: feedback.LeaveOpen},
	}
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(), Policies: policies, Base: offline,
		MaxWait: time.Minute, // what would have to wait for tomorrow is refused at once
	}))
	day, err := transport.Limiter("day")
	if err != nil {
		fmt.Println(err)
		return
	}
	status, err := day.Status(context.Background(), "")
	fmt.Println(status.Used, "of", status.Limit, err)
	// Output: 0 of 24000/day Asia/Shanghai <nil>
}

// Several upstreams have one table and one transport. A request meets the rows of its own
// host, and nobody waits for another's.
func Example_upstreams() {
	policies := append(github.Policies(github.Options{}),
		throttle.Policy{Name: "shop", Match: "{shop}.example.com/admin/", Key: throttle.PathValue("shop"), Limit: throttle.PerSecond(2)},
		throttle.Policy{Name: "search", Match: "GET search.example.com/", Limit: throttle.Concurrency(8)},
	)
	transport := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Policies: policies, Base: offline}))
	for _, url := range []string{"https://acme.example.com/admin/orders", "https://search.example.com/?q=1", "https://www.example.org/"} {
		req, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(req.URL.Host, ":")
		for _, charge := range transport.Explain(req) {
			fmt.Print(" ", charge.Budget.Policy)
		}
		fmt.Println()
	}
	// Output:
	// acme.example.com: shop
	// search.example.com: search
	// www.example.org:
}

// Three providers in one table.
func Example_presets() {
	policies := slices.Concat(
		dingtalk.Policies(dingtalk.Options{App: "dingabc", Address: "office"}),
		feishu.Policies(feishu.Options{}),
		wecom.Policies(wecom.Options{Accounts: 500}),
	)
	transport := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Policies: policies, Base: offline}))
	req, err := http.NewRequest(http.MethodGet, "https://qyapi.weixin.qq.com/cgi-bin/user/get?access_token=secret", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, charge := range transport.Explain(req) {
		fmt.Println(charge.Budget.Policy, charge.Limit)
	}
	// Output:
	// wecom-company-minute 10000/m
	// wecom-company-hour 150000/h
	// wecom-ip-minute 20000/m
	// wecom-ip-hour 600000/h
}

// An account's own numbers replace those that a newly registered one has.
func Example_wechat() {
	policies := wechat.Policies(wechat.Options{
		Account:   "wx-app-id",                                // the AppID, if several accounts share the store
		PerDay:    map[string]int{"/cgi-bin/user/get": 2_000}, // as /cgi-bin/openapi/quota/get says
		PerMinute: map[string]int{"/cgi-bin/user/info": 600},
	})
	transport := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Policies: policies, Base: offline}))
	req, err := http.NewRequest(http.MethodGet, "https://api.weixin.qq.com/cgi-bin/user/get?access_token=secret", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, charge := range transport.Explain(req) {
		fmt.Println(charge.Budget.Policy, charge.Limit)
	}
	// Output:
	// wechat-day unlimited
	// wechat-minute unlimited
	// wechat-user-get 2000/day +08:00
}

// A table that is written by hand, here for WeChat's Official Accounts: APIs are counted by
// the day of Beijing and by the minute, and refused with a code in a 200.
func Example_officialAccount() {
	beijing := time.FixedZone("UTC+8", 8*60*60)
	account := func(*http.Request) string { return "wx-app-id" } // an id, not the token: that changes
	api := throttle.Join(account, throttle.RawPath)

	policies := []throttle.Policy{
		{
			Name: "mp-day", Match: "api.weixin.qq.com/cgi-bin/", Key: api, Limit: throttle.Unlimited(),
			Answer: feedback.Codes{
				Fields: []string{"errcode"},
				Lasts:  map[string]time.Duration{"45009": throttle.MaxPenalty},
				End:    feedback.UntilMidnight(beijing),
			}.Answer,
		},
		{
			Name: "mp-minute", Match: "api.weixin.qq.com/cgi-bin/", Key: api, Limit: throttle.Unlimited(),
			Answer: feedback.Codes{
				Fields: []string{"errcode"},
				Lasts:  map[string]time.Duration{"45011": time.Minute},
			}.Answer,
		},
		{
			Name: "mp-token", Match: "api.weixin.qq.com/cgi-bin/token", Key: account,
			Limit: throttle.CalendarWindow(2_000, throttle.Day, beijing), Answer: feedback.LeaveOpen,
		},
	}

	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(), Policies: policies, MaxWait: -1,
		Base: answer(200, `{"errcode":45011,"errmsg":"api minute-quota reach limit, must slower, retry next minute"}`,
			"Content-Type", "application/json"),
	}))}
	for range 2 {
		resp, err := client.Get("https://api.weixin.qq.com/cgi-bin/user/info?access_token=secret")
		if err != nil {
			fmt.Println("not sent")
			continue
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
	// Output:
	// 200
	// not sent
}

// A model's API counts tokens. How many a request costs is known from the answer, so the
// most that it may cost is booked, and the rest is given back.
func Example_tokens() {
	policies := []throttle.Policy{
		{
			Name: "requests", Match: "llm.example.com/v1/", Limit: throttle.PerMinute(60),
			Headroom: map[throttle.Priority]float64{throttle.PriorityLow: 0.25}, // batch work leaves a quarter free
		},
		{
			Name: "tokens", Match: "llm.example.com/v1/", Limit: throttle.PerMinute(90_000),
			Cost:   func(r *http.Request) int { return 2_000 + int(r.ContentLength)/4 }, // max_tokens and the prompt
			Answer: feedback.Amount{Fields: []string{"usage.total_tokens"}}.Cost,
		},
		{
			Name: "at once", Match: "llm.example.com/v1/", Limit: throttle.Concurrency(8), // of the whole fleet
		},
	}
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(), Policies: policies,
		Base: answer(200, `{"usage":{"total_tokens":1730}}`, "Content-Type", "application/json"),
	}))
	client := &http.Client{Transport: transport}

	resp, err := client.Post("https://llm.example.com/v1/chat/completions", "application/json",
		strings.NewReader(`{"max_tokens":2000,"messages":[{"role":"user","content":"Why?"}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()

	tokens, err := transport.Limiter("tokens")
	if err != nil {
		fmt.Println(err)
		return
	}
	status, err := tokens.Status(context.Background(), "")
	fmt.Println(status.Used, "of", status.Limit, err)
	// Output: 1730 of 90000/m <nil>
}

// A model's API whose answers stream, and which has no preset. The last event of a stream says what it has
// cost, and what requests of a model have cost is the estimate for the next.
func Example_stream() {
	usage := feedback.Amount{Fields: []string{"usage.total_tokens"}}
	var learned feedback.Estimates
	model := throttle.Header("X-Model")
	policy := throttle.Policy{
		Name: "tokens", Match: "llm.example.com/v1/", Key: model, Limit: throttle.PerMinute(90_000),
		Cost:   func(r *http.Request) int { return min(8_000, learned.Cost(model(r), 8_000)) }, // max_tokens at the most
		Answer: usage.Cost,
		Meter: func(resp *http.Response) throttle.Meter {
			group, began := model(resp.Request), time.Now().Add(-feedback.Took(resp))
			told := func(data []byte) int {
				n, ok := usage.In(data)
				if !ok {
					return -1 // the estimate stays, unless a later event says more
				}
				learned.Settled(group, n, time.Since(began))
				return n
			}
			return feedback.Events(resp, told)
		},
	}
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(), Policies: []throttle.Policy{policy},
		Base: answer(200, "data: {\"text\":\"Because.\"}\n\ndata: {\"usage\":{\"total_tokens\":1730}}\n\n", "Content-Type", "text/event-stream"),
	}))
	ask := func() *http.Request {
		r, err := http.NewRequest(http.MethodPost, "https://llm.example.com/v1/chat", strings.NewReader("Why?"))
		if err != nil {
			panic(err)
		}
		r.Header.Set("X-Model", "small")
		return r
	}
	fmt.Println("at first", transport.Explain(ask())[0].Cost)
	for range 8 {
		resp, err := transport.RoundTrip(ask())
		if err != nil {
			fmt.Println(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body) // the caller has each byte as it comes
		resp.Body.Close()
	}
	fmt.Println("then", transport.Explain(ask())[0].Cost)
	// Output:
	// at first 8000
	// then 1730
}

// The fleet keeps the limit that the answers of an API tell, and learns where the API allows less.
func ExampleTold() {
	policies := []throttle.Policy{{
		Name: "api", Match: "api.example.com/", Limit: throttle.Told(),
		Answer: feedback.Told{}.Answer, Adaptive: true,
	}}
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(), Policies: policies, Base: answer(200, "{}", "RateLimit-Policy", `"default";q=100;w=60`),
	}))
	resp, err := (&http.Client{Transport: transport}).Get("https://api.example.com/orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()

	api, err := transport.Limiter("api")
	if err != nil {
		fmt.Println(err)
		return
	}
	status, err := api.Status(context.Background(), "")
	fmt.Println(status.Told, err)
	// Output: 100/m <nil>
}

package redisstore_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/presets/airtable"
	"github.com/fleetthrottle/throttle/presets/anthropic"
	anyapi "github.com/fleetthrottle/throttle/presets/any"
	"github.com/fleetthrottle/throttle/presets/azureopenai"
	"github.com/fleetthrottle/throttle/presets/binance"
	"github.com/fleetthrottle/throttle/presets/cloudflare"
	"github.com/fleetthrottle/throttle/presets/dashscope"
	"github.com/fleetthrottle/throttle/presets/deepseek"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/discord"
	"github.com/fleetthrottle/throttle/presets/drive"
	"github.com/fleetthrottle/throttle/presets/feishu"
	"github.com/fleetthrottle/throttle/presets/gemini"
	"github.com/fleetthrottle/throttle/presets/github"
	"github.com/fleetthrottle/throttle/presets/gitlab"
	"github.com/fleetthrottle/throttle/presets/gmail"
	"github.com/fleetthrottle/throttle/presets/graph"
	"github.com/fleetthrottle/throttle/presets/hubspot"
	"github.com/fleetthrottle/throttle/presets/jira"
	"github.com/fleetthrottle/throttle/presets/kimi"
	"github.com/fleetthrottle/throttle/presets/notion"
	"github.com/fleetthrottle/throttle/presets/openai"
	"github.com/fleetthrottle/throttle/presets/riot"
	"github.com/fleetthrottle/throttle/presets/salesforce"
	"github.com/fleetthrottle/throttle/presets/sheets"
	"github.com/fleetthrottle/throttle/presets/shopify"
	"github.com/fleetthrottle/throttle/presets/slack"
	"github.com/fleetthrottle/throttle/presets/spapi"
	"github.com/fleetthrottle/throttle/presets/stripe"
	"github.com/fleetthrottle/throttle/presets/telegram"
	"github.com/fleetthrottle/throttle/presets/tencentmeeting"
	"github.com/fleetthrottle/throttle/presets/wechat"
	"github.com/fleetthrottle/throttle/presets/wecom"
	"github.com/fleetthrottle/throttle/presets/welink"
	"github.com/fleetthrottle/throttle/presets/xero"
	"github.com/fleetthrottle/throttle/presets/zendesk"
	"github.com/fleetthrottle/throttle/presets/zhipu"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/retry"
	"github.com/fleetthrottle/throttle/store"
)

// sweepEnv makes the test binary the program that is swept.
const sweepEnv = "THROTTLE_TEST_SWEEP"

// TestP14_NoCanaryAnywhere runs a program that is full of secrets, in a process of
// its own, so that all that it or the Redis client prints is heard as well.
func TestP14_NoCanaryAnywhere(t *testing.T) {
	t.Parallel()
	if os.Getenv(sweepEnv) != "" {
		sweepAll(t)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestP14_NoCanaryAnywhere$", "-test.v")
	cmd.Env = append(os.Environ(), sweepEnv+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: TestP14_NoCanaryAnywhere")
	requireNoCanary(t, "what the process printed", string(out), theirSecrets, ownSecrets)
}

// A sweep is a program with secrets wherever there is a place for them.
type sweep struct {
	*testing.T
	store    store.Store
	told     witness // what throttle says: errors, events, what can be printed
	observed []throttle.EventKind
}

func (s *sweep) observe(_ context.Context, e throttle.Event) {
	s.told.mu.Lock()
	s.observed = append(s.observed, e.Kind)
	s.told.mu.Unlock()
	var cause ownError
	if errors.As(e.Err, &cause) {
		e.Err = nil // what the program said itself
	}
	s.told.see(e, e.Err)
}

func sweepAll(t *testing.T) {
	server := redistest.Single(t)
	admin := server.Client(t)
	require.NoError(t, admin.Ping(t.Context()).Err())
	require.NoError(t, admin.ConfigSet(t.Context(), "requirepass", canaryPassword).Err())
	tap := listenIn(t, server, canaryPassword)

	o := server.Options()
	o.Password, o.MaxRetries = canaryPassword, 1
	client := clientOf(t, o)
	s := &sweep{T: t, store: redisstore.New(client, redisstore.Options{})}
	s.told.see(s.store, redisstore.Options{Namespace: "throttle"})

	s.transports()
	s.limiters()
	s.retries()
	s.presets()
	s.strangers(server)
	heard := tap.stop(t)

	server.Kill()
	s.away()
	requireNoCanary(t, "what throttle told", s.told.seen(), theirSecrets)
	for where, text := range heard {
		requireNoCanary(t, where, text, theirSecrets, ownSecrets)
	}
	require.Contains(t, heard["keys"], "a canary's")
	require.Contains(t, heard["MONITOR"], "local function") // the scripts themselves
	require.Contains(t, heard["MONITOR"], "a canary's")
	for _, k := range []throttle.EventKind{
		throttle.EventWaiting, throttle.EventStarted, throttle.EventRefused, throttle.EventGaveUp, throttle.EventPenalized, throttle.EventShadowed,
	} {
		require.Contains(t, s.observed, k, "the sweep causes every kind of event that it can")
	}
}

// request is full of canaries.
func (s *sweep) request(ctx context.Context, query string) *http.Request {
	u := &url.URL{
		Scheme: "https", Host: "api.example.com", User: url.UserPassword(canaryUser, canaryInfo),
		Path: "/hook/" + canaryPath, RawPath: "/hook/" + url.PathEscape(canaryPath),
		RawQuery: url.Values{"access_token": {canaryQuery}}.Encode() + "&" + query, Fragment: canaryPath,
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), strings.NewReader(canaryBody))
	require.NoError(s, err)
	r.Header.Set("Authorization", "Bearer "+canaryHeader)
	r.Header.Set("Cookie", "session="+canaryCookie)
	return r
}

// An ownError is the program's own.
type ownError string

func (e ownError) Error() string { return string(e) }

// secretUpstream answers as the query asks, always with a secret.
var secretUpstream = roundTrip(func(r *http.Request) (*http.Response, error) {
	status, header := http.StatusOK, http.Header{"Set-Cookie": {"session=" + canaryAnswer}, "X-Token": {canaryAnswer}}
	switch r.URL.Query().Get("answer") {
	case "ban":
		status = http.StatusTooManyRequests
		header.Set("Retry-After", "3600")
	case "failure":
		return nil, ownError(canaryBase)
	}
	body := io.NopCloser(strings.NewReader(`{"errcode":0,"token":"` + canaryAnswer + `"}`))
	return &http.Response{StatusCode: status, Header: header, Body: body, ContentLength: -1, Request: r}, nil
})

// secretKey returns nearly all that is secret in a request.
func secretKey(r *http.Request) string {
	return canaryKey + r.URL.String() + r.Header.Get("Authorization") + r.Header.Get("Cookie")
}

// transport has a policy of every kind, each with another secret for a key.
func (s *sweep) transport(st store.Store) *throttle.Transport {
	join := throttle.Join(throttle.Query("access_token"), throttle.Header("Authorization"), throttle.RawPath, throttle.Header("Cookie"))
	return throttle.Must(throttle.New(throttle.Config{
		MaxWait: throttle.Forever,
		Store:   st, Base: secretUpstream, Observe: s.observe,
		Policies: []throttle.Policy{
			{Name: "a canary's window", Match: "/", Key: throttle.Query("access_token"), Limit: store.SlidingWindow(2, 3*time.Second), Jitter: -1},
			{Name: "a canary's hook", Match: "/hook/{id}", Key: throttle.PathValue("id"), Limit: store.PerMinute(99)},
			{Name: "a canary's day", Match: "/", Key: throttle.Header("Authorization"), Limit: store.CalendarWindow(99, store.Day, nil)},
			{Name: "a canary's hour", Match: "/", Key: secretKey, Limit: store.FixedWindow(99, time.Hour)},
			{Name: "a canary's bucket", Match: "/", Key: join, Limit: store.TokenBucket(99, time.Second, 99)},
			{Name: "a canary's seat", Match: "/", Key: throttle.Header("Cookie"), Limit: store.Concurrency(9)},
			{Name: "a canary's shadow", Match: "/", Key: secretKey, Limit: store.PerMinute(1), Shadow: true},
			{Name: "a canary's node", Match: "/", Key: secretKey, Limit: store.PerMinute(99), Scope: throttle.ScopeNode},
			{
				Name: "a canary's cost", Match: "/", Key: secretKey, Limit: store.PerMinute(99),
				Cost: func(r *http.Request) int { return 2 - 9*len(r.URL.Query()["bad"]) + 999*len(r.URL.Query()["huge"]) },
				Answer: func(resp *http.Response) throttle.Answer {
					b, _ := feedback.PeekBody(resp, 99)
					return throttle.Answer{}.WithCost(3).WithLeft(store.Quota{Left: len(b), Reset: time.Minute})
				},
			},
		},
	}))
}

// send sends a request and shows the witness what throttle says of it.
func (s *sweep) send(rt http.RoundTripper, r *http.Request) error {
	resp, err := rt.RoundTrip(r)
	if err == nil {
		s.told.see(throttle.AnswerOf(resp))
		require.NoError(s, resp.Body.Close())
		return nil
	}
	var mine ownError
	if !errors.As(err, &mine) {
		s.told.see(err)
	}
	return err
}

func (s *sweep) transports() {
	tr := s.transport(s.store)
	s.told.see(tr)
	for _, c := range tr.Explain(s.request(s.Context(), "")) {
		s.told.see(c, c.Budget, c.Limit, c.Limit.Kind())
		st := status(s.T, s.store, c)
		s.told.see(st)
	}
	for _, query := range []string{"", "answer=failure", "", "answer=ban"} { // the third one is held
		if err := s.send(tr, s.request(s.Context(), query)); query != "answer=failure" {
			require.NoError(s, err)
		}
	}
	now := throttle.WithMaxWait(s.Context(), -1)
	require.ErrorIs(s, s.send(tr, s.request(now, "")), throttle.ErrLimited)
	soon, cancel := context.WithTimeout(s.Context(), inTheEnd) // the ban lasts longer
	defer cancel()
	require.ErrorIs(s, s.send(tr, s.request(soon, "")), throttle.ErrLimited)
	require.Error(s, s.send(tr, s.request(now, "bad=1")))
	require.ErrorIs(s, s.send(tr, s.request(now, "huge=1")), throttle.ErrLimited)

	gone, leave := context.WithCancelCause(s.Context())
	time.AfterFunc(20*time.Millisecond, func() { leave(ownError(canaryCause)) })
	require.ErrorIs(s, s.send(tr, s.request(gone, "")), ownError(canaryCause))
	s.panics()
}

// limiters have secrets for keys.
func (s *sweep) limiters() {
	l := limiter(s, s.store, throttle.Policy{Name: "a canary's work", Limit: store.PerMinute(1), Keyed: true})
	p, err := l.Acquire(throttle.WithMaxWait(s.Context(), throttle.Forever), canaryLimiter, 1)
	require.NoError(s, err)
	require.NoError(s, p.Tell(s.Context(), throttle.Answer{}.WithCost(1)))
	s.told.see(l, p)
	p.Release()
	_, err = l.Acquire(throttle.WithMaxWait(s.Context(), throttle.NoWait), canaryLimiter, 1)
	require.ErrorIs(s, err, throttle.ErrLimited)
	s.told.see(err)
	_, err = l.Acquire(throttle.WithMaxWait(s.Context(), throttle.Forever), canaryLimiter, -1)
	require.Error(s, err)
	s.told.see(err)
	require.NoError(s, l.Pause(s.Context(), canaryLimiter, time.Minute))
	st, err := l.Status(s.Context(), canaryLimiter)
	require.NoError(s, err)
	s.told.see(st)
	require.NoError(s, l.Resume(s.Context(), canaryLimiter))
}

// retries repeats, and gives up in every way. Its errors name the host alone, unlike
// those of http.Client.
func (s *sweep) retries() {
	c := retry.NewClient(throttle.Must(throttle.New(throttle.Config{
		MaxWait: throttle.Forever,
		Store:   s.store, Base: secretUpstream, Observe: s.observe,
		Policies: []throttle.Policy{{Name: "a canary's try", Match: "/", Key: secretKey, Limit: store.PerHour(9)}},
	})))
	c.RetryMax, c.RetryWaitMin, c.RetryWaitMax = 1, time.Millisecond, time.Millisecond
	for _, query := range []string{"", "answer=ban", "answer=failure"} {
		ctx := throttle.WithMaxWait(s.Context(), -1)
		r, err := retryablehttp.FromRequest(s.request(ctx, query))
		require.NoError(s, err)
		resp, err := c.Do(r)
		var mine ownError
		switch {
		case err == nil:
			require.NoError(s, resp.Body.Close())
		case errors.As(err, &mine):
			var failed *url.Error
			require.ErrorAs(s, err, &failed)
			s.told.see(failed.URL)
		default:
			s.told.see(err)
		}
	}
}

// panics has functions of the program's own panic with a secret. Whether the panic
// goes on or becomes an error, throttle tells of nothing but itself.
func (s *sweep) panics() {
	for _, p := range []throttle.Policy{
		{Key: func(*http.Request) string { panic(canaryPanic) }},
		{Cost: func(*http.Request) int { panic(errors.New(canaryPanic)) }},
		{Answer: func(*http.Response) throttle.Answer { panic(canaryPanic) }},
	} {
		p.Name, p.Match, p.Limit = "a canary's panic", "/", store.PerMinute(99)
		tr := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: s.store, Base: secretUpstream, Observe: s.observe, Policies: []throttle.Policy{p}}))
		func() {
			defer func() { _ = recover() }()
			_ = s.send(tr, s.request(s.Context(), ""))
		}()
	}
}

// strangers are clients that the server does not let in.
func (s *sweep) strangers(server *redistest.Server) {
	for _, change := range []func(*redis.Options){
		func(*redis.Options) {},
		func(o *redis.Options) { o.Password = canaryWrong },
		func(o *redis.Options) { o.Username, o.Password = canaryUser, canaryWrong },
		func(o *redis.Options) { o.Password, o.DB = canaryPassword, 999 },
		func(o *redis.Options) {
			o.Password, o.TLSConfig = canaryPassword, &tls.Config{ServerName: "redis.example.com", MinVersion: tls.VersionTLS12}
		},
	} {
		o := server.Options()
		o.MaxRetries, o.DialTimeout = -1, time.Second
		change(o)
		client := redis.NewClient(o)
		s.refused(client)
		require.NoError(s, client.Close())
	}
}

// refused sends what cannot be booked and asks what cannot be answered.
func (s *sweep) refused(client *redis.Client) {
	st := redisstore.New(client, redisstore.Options{})
	tr := s.transport(st)
	soon, cancel := context.WithTimeout(s.Context(), 50*time.Millisecond)
	defer cancel()
	for _, ctx := range []context.Context{throttle.WithMaxWait(s.Context(), 50*time.Millisecond), soon} {
		require.Error(s, s.send(tr, s.request(ctx, "")))
	}
	l := limiter(s, st, throttle.Policy{Name: "a canary's work", Limit: store.PerMinute(9), Keyed: true})
	for _, ask := range []func() error{
		func() error { _, err := l.Status(soon, canaryLimiter); return err },
		func() error { return l.Pause(soon, canaryLimiter, time.Second) },
		func() error { return l.Resume(soon, canaryLimiter) },
	} {
		err := ask()
		require.Error(s, err)
		s.told.see(err)
	}
}

// away is when there is no server any more.
func (s *sweep) away() {
	o := &redis.Options{Addr: "127.0.0.1:1", Password: canaryPassword, MaxRetries: -1}
	client := redis.NewClient(o)
	s.refused(client)
	require.NoError(s, client.Close())
	require.Error(s, s.send(s.transport(s.store), s.request(throttle.WithMaxWait(s.Context(), 50*time.Millisecond), "")))
}

// presets sends a request through every preset, secrets where its provider wants
// them, once to be liked and once to be refused.
func (s *sweep) presets() {
	for target, policies := range map[string][]throttle.Policy{
		"api.binance.com/api/v3/order":                                                       binance.Policies(binance.Options{Address: canaryOption}),
		"oapi.dingtalk.com/robot/send":                                                       dingtalk.Policies(dingtalk.Options{App: canaryOption, Company: canaryOption, Address: canaryOption}),
		"api.dingtalk.com/v1.0/contact/users/me":                                             dingtalk.Policies(dingtalk.Options{App: canaryOption, ISV: canaryOption}),
		"discord.com/api/v10/webhooks/1/" + canaryPath:                                       discord.Policies(discord.Options{}),
		"open.feishu.cn/open-apis/bot/v2/hook/" + "h00":                                      feishu.Policies(feishu.Options{App: canaryOption, Tenant: canaryOption}),
		"api.github.com/repos/o/" + canaryPath:                                               github.Policies(github.Options{}),
		"site.atlassian.net/rest/api/3/issue/A-1":                                            jira.Policies(jira.Options{}),
		"api.notion.com/v1/pages/" + canaryPath:                                              notion.Policies(notion.Options{}),
		"api.openai.com/v1/chat/completions":                                                 openai.Policies(openai.Options{}),
		"euw1.api.riotgames.com/lol/" + canaryPath:                                           riot.Policies(riot.Options{}),
		"shop.myshopify.com/admin/api/2025-01/x.json":                                        shopify.Policies(shopify.Options{App: canaryOption}),
		"slack.com/api/chat.postMessage":                                                     slack.Policies(slack.Options{}),
		"sellingpartnerapi-eu.amazon.com/tokens/2021-03-01/restrictedDataToken":              spapi.Policies(spapi.Options{}),
		"api.weixin.qq.com/cgi-bin/user/info":                                                wechat.Policies(wechat.Options{Account: canaryOption}),
		"api.anthropic.com/v1/files/" + canaryPath:                                           anthropic.Policies(anthropic.Options{Organization: canaryOption}),
		"acme.openai.azure.com/openai/deployments/" + canaryPath + "/chat":                   azureopenai.Policies(azureopenai.Options{}),
		"api.stripe.com/v1/payment_intents/" + canaryPath:                                    stripe.Policies(stripe.Options{Account: canaryOption}),
		"gitlab.com/api/v4/projects/" + canaryPath:                                           gitlab.Policies(gitlab.Options{User: canaryOption, Address: canaryOption}),
		"api.hubapi.com/crm/v3/objects/" + canaryPath + "/search":                            hubspot.Policies(hubspot.Options{App: canaryOption, Account: canaryOption}),
		"acme.my.salesforce.com/services/data/" + canaryPath:                                 salesforce.Policies(salesforce.Options{Organization: canaryOption}),
		"qyapi.weixin.qq.com/cgi-bin/message/send":                                           wecom.Policies(wecom.Options{Company: canaryOption}),
		"generativelanguage.googleapis.com/v1beta/models/" + canaryPath + ":generateContent": gemini.Policies(gemini.Options{}),
		"api.deepseek.com/chat/completions":                                                  deepseek.Policies(deepseek.Options{Account: canaryOption}),
		"api.moonshot.cn/v1/files/" + canaryPath:                                             kimi.Policies(kimi.Options{Account: canaryOption}),
		"dashscope.aliyuncs.com/api/v1/tasks/" + canaryPath:                                  dashscope.Policies(dashscope.Options{Account: canaryOption}),
		"open.bigmodel.cn/api/paas/v4/files/" + canaryPath:                                   zhipu.Policies(zhipu.Options{Account: canaryOption}),
		"graph.microsoft.com/v1.0/users/" + canaryPath:                                       graph.Policies(graph.Options{App: canaryOption, Tenant: canaryOption}),
		"gmail.googleapis.com/gmail/v1/users/" + canaryPath:                                  gmail.Policies(gmail.Options{Project: canaryOption}),
		"sheets.googleapis.com/v4/spreadsheets/" + canaryPath:                                sheets.Policies(sheets.Options{Project: canaryOption}),
		"www.googleapis.com/drive/v3/files/" + canaryPath:                                    drive.Policies(drive.Options{Project: canaryOption}),
		"api.telegram.org/" + canaryPath:                                                     telegram.Policies(telegram.Options{}),
		"api.cloudflare.com/client/v4/zones/" + canaryPath:                                   cloudflare.Policies(cloudflare.Options{User: canaryOption}),
		"acme.zendesk.com/api/v2/tickets/" + canaryPath:                                      zendesk.Policies(zendesk.Options{User: canaryOption}),
		"api.airtable.com/v0/" + canaryPath:                                                  airtable.Policies(airtable.Options{User: canaryOption}),
		"api.example.org/v1/" + canaryPath:                                                   anyapi.Policies(anyapi.Options{Account: canaryOption}),
		"api.xero.com/api.xro/2.0/Invoices/" + canaryPath:                                    xero.Policies(xero.Options{App: canaryOption}),
		"api.meeting.qq.com/v1/meetings/" + canaryPath:                                       tencentmeeting.Policies(tencentmeeting.Options{App: canaryOption}),
		"open.welink.huaweicloud.com/api/contact/v1/users/" + canaryPath:                     welink.Policies(welink.Options{App: canaryOption}),
	} {
		tr := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: s.store, Base: secretUpstream, Policies: policies, Observe: s.observe}))
		host, path, _ := strings.Cut(target, "/")
		for _, query := range []string{"answer=like", "answer=ban"} {
			r := s.request(throttle.WithMaxWait(s.Context(), -1), query)
			r.URL.Host, r.URL.Path, r.URL.RawPath = host, "/"+path, ""
			r.URL.RawQuery += "&" + url.Values{"key": {canaryQuery}, "signature": {canaryQuery}, "appkey": {canaryQuery}}.Encode()
			r.Header.Set("X-Mbx-Apikey", canaryHeader)
			r.Header.Set("X-Riot-Token", canaryHeader)
			r.Header.Set("X-Amz-Access-Token", canaryHeader)
			r.Header.Set("X-Acs-Dingtalk-Access-Token", canaryHeader)
			charges := tr.Explain(r)
			require.NotEmpty(s, charges, target)
			for _, c := range charges {
				s.told.see(c, c.Budget)
			}
			if err := s.send(tr, r); err != nil {
				require.ErrorIs(s, err, throttle.ErrLimited, target)
			}
		}
	}
}

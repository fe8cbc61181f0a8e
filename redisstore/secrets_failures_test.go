package redisstore_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/presets/anthropic"
	"github.com/fleetthrottle/throttle/presets/azureopenai"
	"github.com/fleetthrottle/throttle/presets/binance"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/discord"
	"github.com/fleetthrottle/throttle/presets/feishu"
	"github.com/fleetthrottle/throttle/presets/github"
	"github.com/fleetthrottle/throttle/presets/gitlab"
	"github.com/fleetthrottle/throttle/presets/hubspot"
	"github.com/fleetthrottle/throttle/presets/jira"
	"github.com/fleetthrottle/throttle/presets/notion"
	"github.com/fleetthrottle/throttle/presets/openai"
	"github.com/fleetthrottle/throttle/presets/riot"
	"github.com/fleetthrottle/throttle/presets/salesforce"
	"github.com/fleetthrottle/throttle/presets/shopify"
	"github.com/fleetthrottle/throttle/presets/slack"
	"github.com/fleetthrottle/throttle/presets/spapi"
	"github.com/fleetthrottle/throttle/presets/stripe"
	"github.com/fleetthrottle/throttle/presets/wechat"
	"github.com/fleetthrottle/throttle/presets/wecom"
	"github.com/fleetthrottle/throttle/redisstore"
)

// panics has functions of the program's own panic with a secret. Whether the panic
// goes on or becomes an error, throttle tells of nothing but itself.
func (s *sweep) panics() {
	for _, p := range []throttle.Policy{
		{Key: func(*http.Request) string { panic(canaryPanic) }},
		{Cost: func(*http.Request) int { panic(errors.New(canaryPanic)) }},
		{Penalty: func(*http.Response) time.Duration { panic(canaryPanic) }},
		{Settle: func(*http.Response) int { panic(canaryPanic) }},
	} {
		p.Name, p.Limit = "a canary's panic", throttle.PerMinute(99)
		tr := throttle.Must(throttle.New(throttle.Config{Store: s.store, Base: secretUpstream, Observe: s.observe, Policies: []throttle.Policy{p}}))
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
	store := redisstore.New(client, nil)
	tr := s.transport(store)
	soon, cancel := context.WithTimeout(s.Context(), 50*time.Millisecond)
	defer cancel()
	for _, ctx := range []context.Context{throttle.WithMaxWait(s.Context(), 50*time.Millisecond), soon} {
		require.Error(s, s.send(tr, s.request(ctx, "")))
	}
	l := limiter(s, store, throttle.Policy{Name: "a canary's work", Limit: throttle.PerMinute(9)})
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
		"api.binance.com/api/v3/order":                                          binance.Policies(binance.Options{Address: canaryOption}),
		"oapi.dingtalk.com/robot/send":                                          dingtalk.Policies(dingtalk.Options{App: canaryOption, Company: canaryOption, Address: canaryOption}),
		"api.dingtalk.com/v1.0/contact/users/me":                                dingtalk.Policies(dingtalk.Options{App: canaryOption, ISV: canaryOption}),
		"discord.com/api/v10/webhooks/1/" + canaryPath:                          discord.Policies(discord.Options{}),
		"open.feishu.cn/open-apis/bot/v2/hook/" + "h00":                         feishu.Policies(feishu.Options{App: canaryOption, Tenant: canaryOption}),
		"api.github.com/repos/o/" + canaryPath:                                  github.Policies(github.Options{}),
		"site.atlassian.net/rest/api/3/issue/A-1":                               jira.Policies(jira.Options{}),
		"api.notion.com/v1/pages/" + canaryPath:                                 notion.Policies(notion.Options{}),
		"api.openai.com/v1/chat/completions":                                    openai.Policies(openai.Options{}),
		"euw1.api.riotgames.com/lol/" + canaryPath:                              riot.Policies(riot.Options{}),
		"shop.myshopify.com/admin/api/2025-01/x.json":                           shopify.Policies(shopify.Options{App: canaryOption}),
		"slack.com/api/chat.postMessage":                                        slack.Policies(slack.Options{}),
		"sellingpartnerapi-eu.amazon.com/tokens/2021-03-01/restrictedDataToken": spapi.Policies(spapi.Options{}),
		"api.weixin.qq.com/cgi-bin/user/info":                                   wechat.Policies(wechat.Options{Account: canaryOption}),
		"api.anthropic.com/v1/files/" + canaryPath:                              anthropic.Policies(anthropic.Options{Organization: canaryOption}),
		"acme.openai.azure.com/openai/deployments/" + canaryPath + "/chat":      azureopenai.Policies(azureopenai.Options{}),
		"api.stripe.com/v1/payment_intents/" + canaryPath:                       stripe.Policies(stripe.Options{Account: canaryOption}),
		"gitlab.com/api/v4/projects/" + canaryPath:                              gitlab.Policies(gitlab.Options{User: canaryOption, Address: canaryOption}),
		"api.hubapi.com/crm/v3/objects/" + canaryPath + "/search":               hubspot.Policies(hubspot.Options{App: canaryOption, Account: canaryOption}),
		"acme.my.salesforce.com/services/data/" + canaryPath:                    salesforce.Policies(salesforce.Options{Organization: canaryOption}),
		"qyapi.weixin.qq.com/cgi-bin/message/send":                              wecom.Policies(wecom.Options{Company: canaryOption}),
	} {
		tr := throttle.Must(throttle.New(throttle.Config{Store: s.store, Base: secretUpstream, Policies: policies, Observe: s.observe}))
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

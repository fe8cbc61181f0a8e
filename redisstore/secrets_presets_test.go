package redisstore_test

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/binance"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/discord"
	"github.com/fleetthrottle/throttle/presets/feishu"
	"github.com/fleetthrottle/throttle/presets/github"
	"github.com/fleetthrottle/throttle/presets/jira"
	"github.com/fleetthrottle/throttle/presets/notion"
	"github.com/fleetthrottle/throttle/presets/openai"
	"github.com/fleetthrottle/throttle/presets/riot"
	"github.com/fleetthrottle/throttle/presets/shopify"
	"github.com/fleetthrottle/throttle/presets/slack"
	"github.com/fleetthrottle/throttle/presets/spapi"
	"github.com/fleetthrottle/throttle/presets/wecom"
)

// presets sends a request through every preset, secrets where its provider wants
// them, once to be liked and once to be refused.
func (s *sweep) presets() {
	option := func(*http.Request) string { return canaryOption }
	for target, policies := range map[string][]throttle.Policy{
		"api.binance.com/api/v3/order":                                          binance.Policies(binance.Options{Address: canaryOption}),
		"oapi.dingtalk.com/robot/send":                                          dingtalk.Policies(dingtalk.Options{App: canaryOption, Company: canaryOption, Address: canaryOption}),
		"api.dingtalk.com/v1.0/contact/users/me":                                dingtalk.Policies(dingtalk.Options{App: canaryOption, ISV: canaryOption}),
		"discord.com/api/v10/webhooks/1/" + canaryPath:                          discord.Policies(discord.Options{}),
		"open.feishu.cn/open-apis/bot/v2/hook/" + "h00":                         feishu.Policies(feishu.Options{App: option, Tenant: option}),
		"api.github.com/repos/o/" + canaryPath:                                  github.Policies(github.Options{}),
		"site.atlassian.net/rest/api/3/issue/A-1":                               jira.Policies(jira.Options{}),
		"api.notion.com/v1/pages/" + canaryPath:                                 notion.Policies(notion.Options{}),
		"api.openai.com/v1/chat/completions":                                    openai.Policies(openai.Options{}),
		"euw1.api.riotgames.com/lol/" + canaryPath:                              riot.Policies(riot.Options{}),
		"shop.myshopify.com/admin/api/2025-01/x.json":                           shopify.Policies(shopify.Options{App: option}),
		"slack.com/api/chat.postMessage":                                        slack.Policies(slack.Options{}),
		"sellingpartnerapi-eu.amazon.com/tokens/2021-03-01/restrictedDataToken": spapi.Policies(spapi.Options{}),
		"qyapi.weixin.qq.com/cgi-bin/message/send":                              wecom.Policies(wecom.Options{Company: option}),
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

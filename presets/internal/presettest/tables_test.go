package presettest_test

import (
	"reflect"

	"github.com/fleetthrottle/throttle"
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
)

// tables are all presets. A new one needs a line here and a page in docs/presets; what
// the page shows beside the zero Options stands here as the page writes it.
var tables = []table{
	preset("airtable", airtable.Policies),
	preset("anthropic", anthropic.Policies),
	preset("any", anyapi.Policies),
	preset("azureopenai", azureopenai.Policies),
	preset("binance", binance.Policies),
	preset("cloudflare", cloudflare.Policies),
	preset("dashscope", dashscope.Policies,
		with("Requests: 30_000, Tokens: 5_000_000", dashscope.Options{Requests: 30_000, Tokens: 5_000_000})),
	preset("deepseek", deepseek.Policies),
	preset("dingtalk", dingtalk.Policies,
		with("Edition: dingtalk.Standard", dingtalk.Options{Edition: dingtalk.Standard}),
		with("Edition: dingtalk.Professional", dingtalk.Options{Edition: dingtalk.Professional}),
		with("Edition: dingtalk.Professional3", dingtalk.Options{Edition: dingtalk.Professional3}),
		with("Edition: dingtalk.Professional4", dingtalk.Options{Edition: dingtalk.Professional4}),
		with("Edition: dingtalk.Standard, OldContract: true", dingtalk.Options{Edition: dingtalk.Standard, OldContract: true}),
		with("Edition: dingtalk.Professional, OldContract: true", dingtalk.Options{Edition: dingtalk.Professional, OldContract: true}),
		with("Edition: dingtalk.Exclusive, OldContract: true", dingtalk.Options{Edition: dingtalk.Exclusive, OldContract: true}),
		with("Edition: dingtalk.Standard, Packages: 1", dingtalk.Options{Edition: dingtalk.Standard, Packages: 1}),
		with("Edition: dingtalk.Standard, Buffer: true", dingtalk.Options{Edition: dingtalk.Standard, Buffer: true}),
		with("RobotPerMonth: 500", dingtalk.Options{RobotPerMonth: 500}),
		with(`ISV: "vendor"`, dingtalk.Options{ISV: "vendor"})),
	preset("discord", discord.Policies),
	preset("drive", drive.Policies),
	preset("feishu", feishu.Policies,
		with("PerMonth: feishu.BasicPerMonth", feishu.Options{PerMonth: feishu.BasicPerMonth})),
	preset("gemini", gemini.Policies,
		with("Requests: 1000, Tokens: 1_000_000, PerDay: 10_000", gemini.Options{Requests: 1000, Tokens: 1_000_000, PerDay: 10_000})),
	preset("github", github.Policies,
		with("PerHour: github.Anonymous", github.Options{PerHour: github.Anonymous}),
		with("PerHour: github.Actions", github.Options{PerHour: github.Actions}),
		with("PerHour: github.Enterprise", github.Options{PerHour: github.Enterprise})),
	preset("gitlab", gitlab.Policies),
	preset("gmail", gmail.Policies,
		with("PerUser: gmail.PerUserBefore", gmail.Options{PerUser: gmail.PerUserBefore})),
	preset("graph", graph.Policies),
	preset("hubspot", hubspot.Policies,
		with("Plan: hubspot.Professional", hubspot.Options{Plan: hubspot.Professional}),
		with("Plan: hubspot.Enterprise", hubspot.Options{Plan: hubspot.Enterprise}),
		with("Plan: hubspot.Marketplace", hubspot.Options{Plan: hubspot.Marketplace}),
		with("Increases: 1", hubspot.Options{Increases: 1})),
	preset("jira", jira.Policies,
		with("Quota: jira.Tier2(300), PerTenant: true", jira.Options{Quota: jira.Tier2(300), PerTenant: true})),
	preset("kimi", kimi.Policies,
		with("Tier: kimi.Tier1", kimi.Options{Tier: kimi.Tier1}),
		with("Tier: kimi.Tier5", kimi.Options{Tier: kimi.Tier5})),
	preset("notion", notion.Policies,
		with("PerMinute: notion.Business", notion.Options{PerMinute: notion.Business})),
	preset("openai", openai.Policies,
		with("Requests: 500, Tokens: 30_000", openai.Options{Requests: 500, Tokens: 30_000})),
	preset("riot", riot.Policies,
		with("Limits: riot.Production()", riot.Options{Limits: riot.Production()})),
	preset("salesforce", salesforce.Policies,
		with("PerDay: 145_000", salesforce.Options{PerDay: 145_000})),
	preset("sheets", sheets.Policies),
	preset("shopify", shopify.Policies,
		with("Plan: shopify.Advanced", shopify.Options{Plan: shopify.Advanced}),
		with("Plan: shopify.Plus", shopify.Options{Plan: shopify.Plus}),
		with("Plan: shopify.Enterprise", shopify.Options{Plan: shopify.Enterprise})),
	preset("slack", slack.Policies),
	preset("spapi", spapi.Policies),
	preset("stripe", stripe.Policies,
		with("Sandbox: true", stripe.Options{Sandbox: true})),
	preset("telegram", telegram.Policies,
		with("PerSecond: 1000", telegram.Options{PerSecond: 1000})),
	preset("tencentmeeting", tencentmeeting.Policies,
		with("ThirdParty: true", tencentmeeting.Options{ThirdParty: true})),
	preset("wechat", wechat.Policies),
	preset("wecom", wecom.Policies,
		with("Accounts: 500", wecom.Options{Accounts: 500}),
		with("IPPerMinute: wecom.ProviderIPPerMinute, IPPerHour: wecom.ProviderIPPerHour",
			wecom.Options{IPPerMinute: wecom.ProviderIPPerMinute, IPPerHour: wecom.ProviderIPPerHour})),
	preset("welink", welink.Policies),
	preset("xero", xero.Policies,
		with("PerDay: xero.Starter", xero.Options{PerDay: xero.Starter})),
	preset("zendesk", zendesk.Policies,
		with("PerMinute: zendesk.Professional", zendesk.Options{PerMinute: zendesk.Professional}),
		with("HighVolume: true", zendesk.Options{HighVolume: true})),
	preset("zhipu", zhipu.Policies,
		with("InFlight: 5", zhipu.Options{InFlight: 5})),
}

// A table is what a preset returns for its zero Options, and for others.
type table struct {
	name    string
	options reflect.Type
	zero    []throttle.Policy
	others  map[string][]throttle.Policy
	with    func(fields map[string]reflect.Value) []throttle.Policy
}

// An other is Options that are not the zero value, as Go writes them.
type other[O any] struct {
	text    string
	options O
}

func with[O any](text string, options O) other[O] { return other[O]{text, options} }

func preset[O any](name string, policies func(O) []throttle.Policy, others ...other[O]) table {
	var zero O
	t := table{name: name, options: reflect.TypeFor[O](), zero: policies(zero), others: make(map[string][]throttle.Policy)}
	for _, o := range others {
		t.others[o.text] = policies(o.options)
	}
	t.with = func(fields map[string]reflect.Value) []throttle.Policy {
		var o O
		for name, v := range fields {
			reflect.ValueOf(&o).Elem().FieldByName(name).Set(v)
		}
		return policies(o)
	}
	return t
}

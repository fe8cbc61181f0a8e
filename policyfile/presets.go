package policyfile

import (
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

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

// The rows of a preset.
type presetRows = []throttle.Policy

// presets are the tables that the library knows, by the names of their packages. Their
// options have the names of the fields in Go, and what they do not have here is for a
// table in Go.
var presets = choice("a preset",
	preset("binance", binance.Policies,
		member("per-minute", "the weight that an address may use in a minute", number(1), func(o *binance.Options, v int) { o.PerMinute = v }),
		member("weight", "what a request costs", cost, func(o *binance.Options, v costFunc) { o.Weight = v }),
		member("address", "a name for the address that requests leave from", text, func(o *binance.Options, v string) { o.Address = v }),
		member("host", "a pattern of the API's hosts", text, func(o *binance.Options, v string) { o.Host = v }),
	),
	preset("dingtalk", dingtalk.Policies,
		member("edition", "what the company has bought; the month counts only if it is named", editions, func(o *dingtalk.Options, v dingtalk.Edition) { o.Edition = v }),
		member("app", "the application's id, not its token", text, func(o *dingtalk.Options, v string) { o.App = v }),
		member("company", "the company's id", text, func(o *dingtalk.Options, v string) { o.Company = v }),
		member("address", "a name for the address that requests leave from", text, func(o *dingtalk.Options, v string) { o.Address = v }),
		member("ip-limit", "how many calls may come from the address in 20 seconds", number(1), func(o *dingtalk.Options, v int) { o.IPLimit = v }),
		member("ban", "how long the address is taken to be banned", length, func(o *dingtalk.Options, v time.Duration) { o.Ban = v }),
		member("apis", "paths of the new host with parameters in them", list(text), func(o *dingtalk.Options, v []string) { o.APIs = v }),
		member("isv", "a name for a vendor whose application many companies use", text, func(o *dingtalk.Options, v string) { o.ISV = v }),
		member("per-suite", "how many calls in a second an ISV's application may make", number(1), func(o *dingtalk.Options, v int) { o.PerSuite = v }),
		member("host", "the host in the rows' patterns", text, func(o *dingtalk.Options, v string) { o.Host = v }),
	),
	preset("discord", discord.Policies,
		member("bot", "the id of the bot", key, func(o *discord.Options, v keyFunc) { o.Bot = v }),
		member("address", "a name for the address that a request leaves from", key, func(o *discord.Options, v keyFunc) { o.Address = v }),
		member("per-second", "the global limit", number(1), func(o *discord.Options, v int) { o.PerSecond = v }),
	),
	preset("feishu", feishu.Policies,
		member("host", "where the API is", text, func(o *feishu.Options, v string) { o.Host = v }),
		member("app", "the id of the app", key, func(o *feishu.Options, v keyFunc) { o.App = v }),
		member("tenant", "the id of the tenant", key, func(o *feishu.Options, v keyFunc) { o.Tenant = v }),
		member("apis", "the tiers of single APIs, by method and path", table(feishuTier.shape()), func(o *feishu.Options, v map[string]feishu.Tier) { o.APIs = v }),
		member("tier", "of APIs that are not listed", feishuTier.shape(), func(o *feishu.Options, v feishu.Tier) { o.Tier = v }),
		member("per-month", "what a tenant may call in a month", number(1), func(o *feishu.Options, v int) { o.PerMonth = v }),
	),
	preset("github", github.Policies,
		member("account", "the id of the caller", key, func(o *github.Options, v keyFunc) { o.Account = v }),
		member("per-hour", "what the primary limit allows", number(1), func(o *github.Options, v int) { o.PerHour = v }),
		member("host", "that of an Enterprise Server", text, func(o *github.Options, v string) { o.Host = v }),
	),
	preset("jira", jira.Policies,
		member("quota", "the points an hour", number(1), func(o *jira.Options, v int) { o.Quota = v }),
		member("per-tenant", "each tenant has that quota for itself", yes, func(o *jira.Options, v bool) { o.PerTenant = v }),
		member("at", "the pattern of the API's URLs", text, func(o *jira.Options, v string) { o.At = v }),
		member("app", "the id of the app", key, func(o *jira.Options, v keyFunc) { o.App = v }),
		member("endpoint", "tells endpoints apart", key, func(o *jira.Options, v keyFunc) { o.Endpoint = v }),
		member("points", "the cost of a request", cost, func(o *jira.Options, v costFunc) { o.Points = v }),
	),
	preset("notion", notion.Policies,
		member("per-minute", "what the plan allows each connection in a minute", number(1), func(o *notion.Options, v int) { o.PerMinute = v }),
		member("connection", "tells connections apart", key, func(o *notion.Options, v keyFunc) { o.Connection = v }),
		member("workspace", "tells workspaces apart", key, func(o *notion.Options, v keyFunc) { o.Workspace = v }),
	),
	preset("openai", openai.Policies,
		member("requests", "how many requests a minute each model allows", number(1), func(o *openai.Options, v int) { o.Requests = v }),
		member("tokens", "how many tokens a minute each model allows", number(1), func(o *openai.Options, v int) { o.Tokens = v }),
		member("even", "space requests and tokens out", yes, func(o *openai.Options, v bool) { o.Even = v }),
		member("project", "tells projects apart", key, func(o *openai.Options, v keyFunc) { o.Project = v }),
		member("model", "tells models apart", key, func(o *openai.Options, v keyFunc) { o.Model = v }),
		member("cost", "the tokens of a request", cost, func(o *openai.Options, v costFunc) { o.Cost = v }),
		member("host", "a pattern of the hosts that are meant", text, func(o *openai.Options, v string) { o.Host = v }),
	),
	preset("riot", riot.Policies,
		member("app", "what the key may do in each region, a limit for each window", list(limit), func(o *riot.Options, v []throttle.Limit) { o.App = v }),
		member("key", "tells keys apart", key, func(o *riot.Options, v keyFunc) { o.Key = v }),
		member("method", "tells methods apart", key, func(o *riot.Options, v keyFunc) { o.Method = v }),
	),
	preset("shopify", shopify.Policies,
		member("plan", "of the stores", plans, func(o *shopify.Options, v shopify.Plan) { o.Plan = v }),
		member("app", "the id of the app", key, func(o *shopify.Options, v keyFunc) { o.App = v }),
		member("estimate", "what a query is likely to cost, in points", cost, func(o *shopify.Options, v costFunc) { o.Estimate = v }),
	),
	preset("slack", slack.Policies,
		member("workspace", "the id of the workspace that is called", key, func(o *slack.Options, v keyFunc) { o.Workspace = v }),
		member("app", "the id of the app that calls", key, func(o *slack.Options, v keyFunc) { o.App = v }),
		member("methods", "the tiers of methods, by name", table(slackTier), func(o *slack.Options, v map[string]slack.Tier) { o.Methods = v }),
		member("tier", "of the methods that are not listed", slackTier, func(o *slack.Options, v slack.Tier) { o.Tier = v }),
		member("outside-marketplace", "the app is sold, but not in Slack's Marketplace", yes, func(o *slack.Options, v bool) { o.OutsideMarketplace = v }),
		member("channel", "the channel that a message goes to", key, func(o *slack.Options, v keyFunc) { o.Channel = v }),
	),
	preset("spapi", spapi.Policies,
		member("operations", "the rows", list(operation.shape()), func(o *spapi.Options, v []spapi.Operation) { o.Operations = v }),
		member("account", "tells pairs of selling partner and application apart", key, func(o *spapi.Options, v keyFunc) { o.Account = v }),
		member("host", "a pattern of the API's hosts", text, func(o *spapi.Options, v string) { o.Host = v }),
	),
	preset("wecom", wecom.Policies,
		member("company", "the id of the company", key, func(o *wecom.Options, v keyFunc) { o.Company = v }),
		member("app", "the id of the application", key, func(o *wecom.Options, v keyFunc) { o.App = v }),
		member("address", "a name for the address that a request leaves from", key, func(o *wecom.Options, v keyFunc) { o.Address = v }),
		member("ip-per-minute", "what one address may call of one API in a minute", number(1), func(o *wecom.Options, v int) { o.IPPerMinute = v }),
		member("ip-per-hour", "what one address may call of one API in an hour", number(1), func(o *wecom.Options, v int) { o.IPPerHour = v }),
		member("accounts", "how many members the company may have", number(1), func(o *wecom.Options, v int) { o.Accounts = v }),
		member("people", "how many people a message goes to", cost, func(o *wecom.Options, v costFunc) { o.People = v }),
		member("blocked", "for how long 45009 closes an API", length, func(o *wecom.Options, v time.Duration) { o.Blocked = v }),
	),
)

// A shadowed is the options of a preset, and whether its rows only count.
type shadowed[O any] struct {
	options O
	shadow  bool
}

// preset returns the option of that name: the table's own options, and shadow.
func preset[O any](name string, policies func(O) []throttle.Policy, fields ...field[O]) option[presetRows] {
	presetNames = append(presetNames, name)
	all := []field[shadowed[O]]{
		member("shadow", "all rows count and report, and never hold or refuse", yes, func(s *shadowed[O], v bool) { s.shadow = v }),
	}
	for _, f := range fields {
		all = append(all, field[shadowed[O]]{
			name: f.name, doc: f.doc, schema: f.schema,
			read: func(r *reader, n *yaml.Node, to *shadowed[O]) bool { return f.read(r, n, &to.options) },
		})
	}
	rows := func(s shadowed[O]) presetRows {
		rows := policies(s.options)
		for i := range rows {
			rows[i].Shadow = rows[i].Shadow || s.shadow
		}
		return rows
	}
	options := record[shadowed[O]]{name: "preset " + name, fields: all}.shape()
	return kind(name, "the rows of package presets/"+name, options, rows).
		or(func() presetRows { return rows(shadowed[O]{}) })
}

var plans = oneOf(
	word[shopify.Plan]{"standard", shopify.Standard}, word[shopify.Plan]{"advanced", shopify.Advanced},
	word[shopify.Plan]{"plus", shopify.Plus}, word[shopify.Plan]{"enterprise", shopify.Enterprise},
)

var editions = oneOf(
	word[dingtalk.Edition]{"standard", dingtalk.Standard},
	word[dingtalk.Edition]{"professional", dingtalk.Professional},
	word[dingtalk.Edition]{"exclusive", dingtalk.Exclusive},
)

var feishuTier = record[feishu.Tier]{name: "a tier", fields: []field[feishu.Tier]{
	member("per-second", "what one app may call of one API in a second", number(1), func(t *feishu.Tier, v int) { t.PerSecond = v }),
	member("per-minute", "and in a minute", number(1), func(t *feishu.Tier, v int) { t.PerMinute = v }),
}}

var slackTier = oneOf(
	word[slack.Tier]{"1", slack.Tier1}, word[slack.Tier]{"2", slack.Tier2},
	word[slack.Tier]{"3", slack.Tier3}, word[slack.Tier]{"4", slack.Tier4},
)

var operation = record[spapi.Operation]{name: "an operation", fields: []field[spapi.Operation]{
	must(member("name", "of the operation", text, func(o *spapi.Operation, v string) { o.Name = v })),
	must(member("match", `"METHOD /PATH"`, text, func(o *spapi.Operation, v string) { o.Match = v })),
	must(member("limit", "such as 1/m burst 20", limit, func(o *spapi.Operation, v throttle.Limit) { o.Limit = v })),
	member("key", "tells several operations apart that have the same plan each", key, func(o *spapi.Operation, v keyFunc) { o.Key = v }),
}}

var presetNames []string

// Presets returns the names of the tables that a file can use.
func Presets() []string { return slices.Clone(presetNames) }

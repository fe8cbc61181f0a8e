package policyfile

import (
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"

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

// The rows of a preset.
type presetRows = []throttle.Policy

// presets are the tables of the library, by the names of their packages. Their options have the
// names of the fields in Go. Options that are missing here need a table in Go.
var presets = shape[presetRows]{
	form:   "the name of a preset, or a mapping from the name to its options",
	read:   func(r *reader, n *yaml.Node) (presetRows, bool) { return allPresets().read(r, n) },
	schema: func() schema { return allPresets().schema() },
}

// allPresets is the choice of a preset. The catalog is read when the first file names a preset.
var allPresets = sync.OnceValue(func() shape[presetRows] {
	return choice("a preset", append(slices.Clone(packagePresets), catalogPresets()...)...)
})

// packagePresets are the presets that are packages.
var packagePresets = []option[presetRows]{
	preset("airtable", "the Web API", "base, user", airtable.Policies,
		member("user", "the id of the user or the service account, not a token", label, func(o *airtable.Options, v string) { o.User = v }),
		callerID("user", func(o *airtable.Options, v keyFunc) { o.Caller = v }),
	),
	preset("anthropic", "requests, tokens in and out", "organization, model", anthropic.Policies,
		member("requests", "how many requests a minute each model allows", number(1), func(o *anthropic.Options, v int) { o.Requests = v }),
		member("input-tokens", "how many tokens a minute may be sent to each model", number(1), func(o *anthropic.Options, v int) { o.InputTokens = v }),
		member("output-tokens", "how many tokens a minute each model may write", number(1), func(o *anthropic.Options, v int) { o.OutputTokens = v }),
		member("even", "space requests and tokens out", yes, func(o *anthropic.Options, v bool) { o.Even = v }),
		member("organization", "a name for the organization", label, func(o *anthropic.Options, v string) { o.Organization = v }),
		callerID("organization", func(o *anthropic.Options, v keyFunc) { o.Caller = v }),
		member("model", "tells models apart", key, func(o *anthropic.Options, v keyFunc) { o.Model = v }),
		member("input", "the tokens that a request sends", cost, func(o *anthropic.Options, v costFunc) { o.Input = v }),
		member("output", "the tokens that a request has written", cost, func(o *anthropic.Options, v costFunc) { o.Output = v }),
	),
	preset("any", "every API that nobody has described: what its answers tell", "host and credential", anyapi.Policies,
		member("account", "the id of the account, not a secret", label, func(o *anyapi.Options, v string) { o.Account = v }),
		callerID("account", func(o *anyapi.Options, v keyFunc) { o.Caller = v }),
	),
	preset("azureopenai", "requests and tokens of a deployment", "resource, deployment", azureopenai.Policies,
		member("requests", "how many requests a minute each deployment takes", number(1), func(o *azureopenai.Options, v int) { o.Requests = v }),
		member("tokens", "how many tokens a minute each deployment takes", number(1), func(o *azureopenai.Options, v int) { o.Tokens = v }),
		member("deployment", "tells the deployments of a resource apart", key, func(o *azureopenai.Options, v keyFunc) { o.Deployment = v }),
		member("cost", "the tokens of a request", cost, func(o *azureopenai.Options, v costFunc) { o.Cost = v }),
	),
	preset("binance", "spot API, bans", "address", binance.Policies,
		member("per-minute", "the weight that an address may use in a minute", number(1), func(o *binance.Options, v int) { o.PerMinute = v }),
		member("weight", "what a request costs", cost, func(o *binance.Options, v costFunc) { o.Weight = v }),
		member("address", "a name for the address that requests leave from", label, func(o *binance.Options, v string) { o.Address = v }),
	),
	preset("cloudflare", "the API, REST and GraphQL", "user, address", cloudflare.Policies,
		member("user", "the id of the user or the account, not a token", label, func(o *cloudflare.Options, v string) { o.User = v }),
		callerID("user", func(o *cloudflare.Options, v keyFunc) { o.Caller = v }),
		member("address", "a name for the address that requests leave from", label, func(o *cloudflare.Options, v string) { o.Address = v }),
		member("per-5-minutes", "what a user may call in 5 minutes", number(1), func(o *cloudflare.Options, v int) { o.Per5Minutes = v }),
	),
	preset("dashscope", "百炼, Qwen: requests and tokens", "account, model", dashscope.Policies,
		member("requests", "how many requests a minute each model allows", number(1), func(o *dashscope.Options, v int) { o.Requests = v }),
		member("tokens", "how many tokens a minute each model allows", number(1), func(o *dashscope.Options, v int) { o.Tokens = v }),
		member("even", "space requests and tokens out", yes, func(o *dashscope.Options, v bool) { o.Even = v }),
		member("account", "a name for the account", label, func(o *dashscope.Options, v string) { o.Account = v }),
		callerID("account", func(o *dashscope.Options, v keyFunc) { o.Caller = v }),
		member("model", "tells models apart", key, func(o *dashscope.Options, v keyFunc) { o.Model = v }),
		member("cost", "the tokens of a request", cost, func(o *dashscope.Options, v costFunc) { o.Cost = v }),
	),
	preset("deepseek", "DeepSeek: requests in flight", "account, model", deepseek.Policies,
		member("pro", "how many requests to deepseek-v4-pro may be in flight", number(1), func(o *deepseek.Options, v int) { o.Pro = v }),
		member("flash", "how many requests to deepseek-flash may be in flight", number(1), func(o *deepseek.Options, v int) { o.Flash = v }),
		member("account", "a name for the account", label, func(o *deepseek.Options, v string) { o.Account = v }),
		callerID("account", func(o *deepseek.Options, v keyFunc) { o.Caller = v }),
		member("model", "the model that a request asks for", key, func(o *deepseek.Options, v keyFunc) { o.Model = v }),
	),
	preset("dingtalk", "钉钉, old and new API, companies and vendors, robots, the ban that looks like success", "address, application, company, API, robot, person", dingtalk.Policies,
		member("edition", "what the company has bought; the months count only if it is named", either(editions, editionNumbers.shape()), func(o *dingtalk.Options, v dingtalk.Edition) { o.Edition = v }),
		member("old-contract", "the edition's contract is from before 2025-11-19, and keeps its numbers", yes, func(o *dingtalk.Options, v bool) { o.OldContract = v }),
		member("packages", "how many packages (增购包) the company has bought beside the edition", number(1), func(o *dingtalk.Options, v int) { o.Packages = v }),
		member("buffer", "calls go on when the month's number is reached, until DingTalk refuses", yes, func(o *dingtalk.Options, v bool) { o.Buffer = v }),
		member("receivers", "how many people a work notice is for", cost, func(o *dingtalk.Options, v costFunc) { o.Receivers = v }),
		member("robot-per-month", "how many calls the company allows each robot's webhook in a month", number(1), func(o *dingtalk.Options, v int) { o.RobotPerMonth = v }),
		member("app", "the application's id, not its token", label, func(o *dingtalk.Options, v string) { o.App = v }),
		member("company", "the company's id", label, func(o *dingtalk.Options, v string) { o.Company = v }),
		callerIDs("app", "company", func(o *dingtalk.Options, v callerFunc) { o.Caller = v }),
		member("address", "a name for the address that requests leave from", label, func(o *dingtalk.Options, v string) { o.Address = v }),
		member("ip-limit", "how many calls may come from the address in 20 seconds", number(1), func(o *dingtalk.Options, v int) { o.IPLimit = v }),
		member("ban", "how long the address is taken to be banned", length, func(o *dingtalk.Options, v time.Duration) { o.Ban = v }),
		member("apis", "paths of the new host with parameters in them", some(label), func(o *dingtalk.Options, v []string) { o.APIs = v }),
		member("isv", "a name for a vendor whose application many companies use", label, func(o *dingtalk.Options, v string) { o.ISV = v }),
		member("per-suite", "how many calls in a second an ISV's application may make", number(1), func(o *dingtalk.Options, v int) { o.PerSuite = v }),
	),
	preset("discord", "HTTP API of bots, interactions, webhooks", "bot, route, address", discord.Policies,
		member("bot", "the bot's id", label, func(o *discord.Options, v string) { o.Bot = v }),
		callerID("bot", func(o *discord.Options, v keyFunc) { o.Caller = v }),
		member("address", "a name for the address that requests leave from", label, func(o *discord.Options, v string) { o.Address = v }),
		member("per-second", "the global limit", number(1), func(o *discord.Options, v int) { o.PerSecond = v }),
	),
	preset("drive", "Google Drive, in units", "user, project", drive.Policies,
		member("per-minute", "how many units a minute the project has", number(1), func(o *drive.Options, v int) { o.PerMinute = v }),
		member("per-user", "how many units a minute each user has", number(1), func(o *drive.Options, v int) { o.PerUser = v }),
		member("units", "what a request costs", cost, func(o *drive.Options, v costFunc) { o.Units = v }),
		member("project", "the project's id", label, func(o *drive.Options, v string) { o.Project = v }),
		member("user", "the id of the user or the service account", label, func(o *drive.Options, v string) { o.User = v }),
		callerIDs("project", "user", func(o *drive.Options, v callerFunc) { o.Caller = v }),
	),
	preset("feishu", "飞书 and Lark, custom bots, the month", "application, tenant, API", feishu.Policies,
		member("app", "the app's id, not its token", label, func(o *feishu.Options, v string) { o.App = v }),
		member("tenant", "the id of the tenant that is called", label, func(o *feishu.Options, v string) { o.Tenant = v }),
		callerIDs("app", "tenant", func(o *feishu.Options, v callerFunc) { o.Caller = v }),
		member("apis", "the tiers of single APIs, by method and path", table(feishuTierShape), func(o *feishu.Options, v map[string]feishu.Tier) { o.APIs = v }),
		member("tier", "of APIs that are not listed", feishuTierShape, func(o *feishu.Options, v feishu.Tier) { o.Tier = v }),
		member("per-month", "what a tenant may call in a month", number(1), func(o *feishu.Options, v int) { o.PerMonth = v }),
	),
	preset("gemini", "Gemini API: requests, tokens in, the day", "project, model", gemini.Policies,
		member("requests", "how many requests a minute each model allows", number(1), func(o *gemini.Options, v int) { o.Requests = v }),
		member("tokens", "how many tokens a minute may be sent to each model", number(1), func(o *gemini.Options, v int) { o.Tokens = v }),
		member("per-day", "how many requests a day each model allows", number(1), func(o *gemini.Options, v int) { o.PerDay = v }),
		member("project", "the project's id", label, func(o *gemini.Options, v string) { o.Project = v }),
		callerID("project", func(o *gemini.Options, v keyFunc) { o.Caller = v }),
		member("model", "tells models apart", key, func(o *gemini.Options, v keyFunc) { o.Model = v }),
		member("cost", "the tokens that a request sends", cost, func(o *gemini.Options, v costFunc) { o.Cost = v }),
	),
	preset("github", "REST, GraphQL, searches, Enterprise Servers", "account", github.Policies,
		member("account", "the id of the user or the installation", label, func(o *github.Options, v string) { o.Account = v }),
		callerID("account", func(o *github.Options, v keyFunc) { o.Caller = v }),
		member("per-hour", "what the primary limit allows", number(1), func(o *github.Options, v int) { o.PerHour = v }),
	),
	preset("gitlab", "GitLab.com, REST and GraphQL", "user, address, endpoint", gitlab.Policies,
		member("user", "a name for the user that the token belongs to", label, func(o *gitlab.Options, v string) { o.User = v }),
		callerID("user", func(o *gitlab.Options, v keyFunc) { o.Caller = v }),
		member("address", "a name for the address that requests leave from", label, func(o *gitlab.Options, v string) { o.Address = v }),
		member("per-minute", "how often a user may call in a minute", number(1), func(o *gitlab.Options, v int) { o.PerMinute = v }),
	),
	preset("gmail", "Gmail API, in units", "user, project", gmail.Policies,
		member("per-minute", "how many units a minute the project has", number(1), func(o *gmail.Options, v int) { o.PerMinute = v }),
		member("per-user", "how many units a minute each user has", number(1), func(o *gmail.Options, v int) { o.PerUser = v }),
		member("project", "the project's id", label, func(o *gmail.Options, v string) { o.Project = v }),
		member("user", "the id of the user whose mailbox is called", label, func(o *gmail.Options, v string) { o.User = v }),
		callerIDs("project", "user", func(o *gmail.Options, v callerFunc) { o.Caller = v }),
		member("units", "what a request costs", cost, func(o *gmail.Options, v costFunc) { o.Units = v }),
	),
	preset("graph", "Microsoft Graph: mailboxes, refusals of services", "mailbox or service, tenant, app", graph.Policies,
		member("app", "the id of the app's registration, not a token", label, func(o *graph.Options, v string) { o.App = v }),
		member("tenant", "the id of the tenant that is called", label, func(o *graph.Options, v string) { o.Tenant = v }),
		callerIDs("app", "tenant", func(o *graph.Options, v callerFunc) { o.Caller = v }),
	),
	preset("hubspot", "the CRM and every API behind its host, searches, the day", "app, account", hubspot.Policies,
		member("plan", "of the accounts", hubspotPlans, func(o *hubspot.Options, v hubspot.Plan) { o.Plan = v }),
		member("increases", "how many API limit increases the account has bought", number(1), func(o *hubspot.Options, v int) { o.Increases = v }),
		member("zone", "the account's time zone, in which its days end", zone, func(o *hubspot.Options, v *time.Location) { o.Zone = v }),
		member("app", "a name for the app, not its token", label, func(o *hubspot.Options, v string) { o.App = v }),
		member("account", "the id of the account that is called", label, func(o *hubspot.Options, v string) { o.Account = v }),
		callerIDs("app", "account", func(o *hubspot.Options, v callerFunc) { o.Caller = v }),
	),
	preset("jira", "Jira Cloud, points and bursts", "application, tenant, endpoint, issue", jira.Policies,
		member("quota", "the points an hour", number(1), func(o *jira.Options, v int) { o.Quota = v }),
		member("per-tenant", "each tenant has that quota for itself", yes, func(o *jira.Options, v bool) { o.PerTenant = v }),
		member("app", "the app's id", label, func(o *jira.Options, v string) { o.App = v }),
		callerID("app", func(o *jira.Options, v keyFunc) { o.Caller = v }),
		member("endpoint", "tells endpoints apart", key, func(o *jira.Options, v keyFunc) { o.Endpoint = v }),
		member("points", "the cost of a request", cost, func(o *jira.Options, v costFunc) { o.Points = v }),
	),
	preset("kimi", "Moonshot Kimi: requests in flight and a minute, tokens", "account", kimi.Policies,
		member("tier", "of the account, by what it has paid in", kimiTiers, func(o *kimi.Options, v kimi.Tier) { o.Tier = v }),
		member("account", "a name for the account", label, func(o *kimi.Options, v string) { o.Account = v }),
		callerID("account", func(o *kimi.Options, v keyFunc) { o.Caller = v }),
		member("cost", "the tokens of a request", cost, func(o *kimi.Options, v costFunc) { o.Cost = v }),
	),
	preset("notion", "the API", "connection, workspace", notion.Policies,
		member("per-minute", "what the plan allows each connection in a minute", number(1), func(o *notion.Options, v int) { o.PerMinute = v }),
		member("connection", "the connection's id", label, func(o *notion.Options, v string) { o.Connection = v }),
		member("workspace", "the id of the workspace that is called", label, func(o *notion.Options, v string) { o.Workspace = v }),
		callerIDs("connection", "workspace", func(o *notion.Options, v callerFunc) { o.Caller = v }),
	),
	preset("openai", "requests and tokens", "project, model", openai.Policies,
		member("requests", "how many requests a minute each model allows", number(1), func(o *openai.Options, v int) { o.Requests = v }),
		member("tokens", "how many tokens a minute each model allows", number(1), func(o *openai.Options, v int) { o.Tokens = v }),
		member("even", "space requests and tokens out", yes, func(o *openai.Options, v bool) { o.Even = v }),
		member("project", "the project's id", label, func(o *openai.Options, v string) { o.Project = v }),
		callerID("project", func(o *openai.Options, v keyFunc) { o.Caller = v }),
		member("model", "tells models apart", key, func(o *openai.Options, v keyFunc) { o.Model = v }),
		member("cost", "the tokens of a request", cost, func(o *openai.Options, v costFunc) { o.Cost = v }),
	),
	preset("riot", "Riot Games", "key, region, method", riot.Policies,
		member("limits", "what the key may do in each region, one for each window", some(limit), func(o *riot.Options, v []throttle.Limit) { o.Limits = v }),
		member("key", "a name for the API key", label, func(o *riot.Options, v string) { o.Key = v }),
		callerID("key", func(o *riot.Options, v keyFunc) { o.Caller = v }),
		member("method", "tells methods apart", key, func(o *riot.Options, v keyFunc) { o.Method = v }),
	),
	preset("salesforce", "REST and the APIs that are built on it, the 24 hours", "organization", salesforce.Policies,
		member("per-day", "how many calls the organization may make in 24 hours", number(1), func(o *salesforce.Options, v int) { o.PerDay = v }),
		member("organization", "the organization's id", label, func(o *salesforce.Options, v string) { o.Organization = v }),
		callerID("organization", func(o *salesforce.Options, v keyFunc) { o.Caller = v }),
	),
	preset("sheets", "Google Sheets: reads and writes", "user, project", sheets.Policies,
		member("per-minute", "how many reads, and how many writes, the project has in a minute", number(1), func(o *sheets.Options, v int) { o.PerMinute = v }),
		member("per-user", "how many reads, and how many writes, each user has in a minute", number(1), func(o *sheets.Options, v int) { o.PerUser = v }),
		member("project", "the project's id", label, func(o *sheets.Options, v string) { o.Project = v }),
		member("user", "the id of the user or the service account", label, func(o *sheets.Options, v string) { o.User = v }),
		callerIDs("project", "user", func(o *sheets.Options, v callerFunc) { o.Caller = v }),
	),
	preset("shopify", "Admin API, REST and GraphQL", "application and store", shopify.Policies,
		member("plan", "of the stores", plans, func(o *shopify.Options, v shopify.Plan) { o.Plan = v }),
		member("app", "the app's id", label, func(o *shopify.Options, v string) { o.App = v }),
		callerID("app", func(o *shopify.Options, v keyFunc) { o.Caller = v }),
		member("estimate", "what a query is likely to cost, in points", cost, func(o *shopify.Options, v costFunc) { o.Estimate = v }),
	),
	preset("slack", "Web API", "method, workspace, application, channel", slack.Policies,
		member("app", "the app's id, not its token", label, func(o *slack.Options, v string) { o.App = v }),
		member("workspace", "the id of the workspace that is called", label, func(o *slack.Options, v string) { o.Workspace = v }),
		callerIDs("app", "workspace", func(o *slack.Options, v callerFunc) { o.Caller = v }),
		member("methods", "the tiers of methods, by name", table(slackTier), func(o *slack.Options, v map[string]slack.Tier) { o.Methods = v }),
		member("tier", "of the methods that are not listed", slackTier, func(o *slack.Options, v slack.Tier) { o.Tier = v }),
		member("outside-marketplace", "the app is sold, but not in Slack's Marketplace", yes, func(o *slack.Options, v bool) { o.OutsideMarketplace = v }),
		member("channel", "the channel that a message goes to", key, func(o *slack.Options, v keyFunc) { o.Channel = v }),
	),
	preset("spapi", "Amazon's Selling Partner API", "account, operation", spapi.Policies,
		member("operations", "the rows", some(operation.shape()), func(o *spapi.Options, v []spapi.Operation) { o.Operations = v }),
		member("account", "a name for the pair of selling partner and application", label, func(o *spapi.Options, v string) { o.Account = v }),
		callerID("account", func(o *spapi.Options, v keyFunc) { o.Caller = v }),
	),
	preset("stripe", "the API, live and sandbox, subscriptions", "account, endpoint, object", stripe.Policies,
		member("account", "the account's id, not a key", label, func(o *stripe.Options, v string) { o.Account = v }),
		callerID("account", func(o *stripe.Options, v keyFunc) { o.Caller = v }),
		member("sandbox", "the keys are those of a sandbox", yes, func(o *stripe.Options, v bool) { o.Sandbox = v }),
		member("per-second", "what the account may call in a second", number(1), func(o *stripe.Options, v int) { o.PerSecond = v }),
	),
	preset("telegram", "Bot API: messages, edits", "bot, chat, group", telegram.Policies,
		member("per-second", "how many messages a bot may send in a second", number(1), func(o *telegram.Options, v int) { o.PerSecond = v }),
		member("bot", "the bot's id", label, func(o *telegram.Options, v string) { o.Bot = v }),
		callerID("bot", func(o *telegram.Options, v keyFunc) { o.Caller = v }),
		member("channel", "the chat that a message goes to", key, func(o *telegram.Options, v keyFunc) { o.Channel = v }),
	),
	preset("tencentmeeting", "腾讯会议", "application, user", tencentmeeting.Policies,
		member("third-party", "the app is a third party's, which is counted by user", yes, func(o *tencentmeeting.Options, v bool) { o.ThirdParty = v }),
		member("per-minute", "how many calls a minute are allowed", number(1), func(o *tencentmeeting.Options, v int) { o.PerMinute = v }),
		member("per-day", "how many calls a day are allowed to an app", number(1), func(o *tencentmeeting.Options, v int) { o.PerDay = v }),
		member("app", "the app's id", label, func(o *tencentmeeting.Options, v string) { o.App = v }),
		member("user", "the id of the user for whom requests are", label, func(o *tencentmeeting.Options, v string) { o.User = v }),
		callerIDs("app", "user", func(o *tencentmeeting.Options, v callerFunc) { o.Caller = v }),
	),
	preset("wechat", "微信公众号, the quota of each API in a day", "account, API", wechat.Policies,
		member("account", "the account's AppID, not its token", label, func(o *wechat.Options, v string) { o.Account = v }),
		callerID("account", func(o *wechat.Options, v keyFunc) { o.Caller = v }),
		member("test", "the account is a test account, with its smaller numbers", yes, func(o *wechat.Options, v bool) { o.Test = v }),
		member("per-day", "how often an API may be called in a day of Beijing, by path; 0: not counted", table(number(0)), func(o *wechat.Options, v map[string]int) { o.PerDay = v }),
		member("per-minute", "the same for a minute", table(number(0)), func(o *wechat.Options, v map[string]int) { o.PerMinute = v }),
	),
	preset("wecom", "企业微信, messages by person-times, group robots", "company, address, application, API", wecom.Policies,
		member("app", "the application's id, not its token", label, func(o *wecom.Options, v string) { o.App = v }),
		member("company", "the company's id", label, func(o *wecom.Options, v string) { o.Company = v }),
		callerIDs("app", "company", func(o *wecom.Options, v callerFunc) { o.Caller = v }),
		member("address", "a name for the address that requests leave from", label, func(o *wecom.Options, v string) { o.Address = v }),
		member("ip-per-minute", "what one address may call of one API in a minute", number(1), func(o *wecom.Options, v int) { o.IPPerMinute = v }),
		member("ip-per-hour", "what one address may call of one API in an hour", number(1), func(o *wecom.Options, v int) { o.IPPerHour = v }),
		member("accounts", "how many members the company may have", number(1), func(o *wecom.Options, v int) { o.Accounts = v }),
		member("people", "how many people a message goes to", cost, func(o *wecom.Options, v costFunc) { o.People = v }),
		member("blocked", "for how long 45009 closes an API", length, func(o *wecom.Options, v time.Duration) { o.Blocked = v }),
	),
	preset("welink", "华为云 WeLink", "address, application, API", welink.Policies,
		member("app", "the application's client_id", label, func(o *welink.Options, v string) { o.App = v }),
		callerID("app", func(o *welink.Options, v keyFunc) { o.Caller = v }),
		member("address", "a name for the address that requests leave from", label, func(o *welink.Options, v string) { o.Address = v }),
		member("endpoint", "tells APIs apart", key, func(o *welink.Options, v keyFunc) { o.Endpoint = v }),
	),
	preset("xero", "Xero: in flight, the minute, the day", "application, tenant", xero.Policies,
		member("per-day", "what the app's tier allows for each tenant in a day", number(1), func(o *xero.Options, v int) { o.PerDay = v }),
		member("app", "the app's client id", label, func(o *xero.Options, v string) { o.App = v }),
		member("tenant", "the id of the tenant that is called", label, func(o *xero.Options, v string) { o.Tenant = v }),
		callerIDs("app", "tenant", func(o *xero.Options, v callerFunc) { o.Caller = v }),
	),
	preset("zendesk", "support and help center, by plan", "account, endpoint, ticket", zendesk.Policies,
		member("per-minute", "what the plan allows in a minute", number(1), func(o *zendesk.Options, v int) { o.PerMinute = v }),
		member("high-volume", "the account has the High Volume API add-on", yes, func(o *zendesk.Options, v bool) { o.HighVolume = v }),
		member("user", "the id of the user who updates tickets", label, func(o *zendesk.Options, v string) { o.User = v }),
		callerID("user", func(o *zendesk.Options, v keyFunc) { o.Caller = v }),
	),
	preset("zhipu", "智谱, GLM: requests in flight", "account, model", zhipu.Policies,
		member("in-flight", "how many requests each model allows at the same time", number(1), func(o *zhipu.Options, v int) { o.InFlight = v }),
		member("account", "a name for the account", label, func(o *zhipu.Options, v string) { o.Account = v }),
		callerID("account", func(o *zhipu.Options, v keyFunc) { o.Caller = v }),
		member("model", "tells models apart", key, func(o *zhipu.Options, v keyFunc) { o.Model = v }),
	),
}

// A shadowed has the options of a preset. shadow means that the rows only count.
type shadowed[O any] struct {
	options O
	shadow  bool
}

// preset returns a preset as an option that a file can name, and adds the name to presetNames. fields are
// the preset's own options; preset adds shadow and host, which all presets have. policies is the preset's
// table in Go. about and counted describe for readers the purpose of the preset and the scope of its
// limits.
func preset[O any](name, about, counted string, policies func(O) []throttle.Policy, fields ...field[O]) option[presetRows] {
	presetNames = append(presetNames, name)
	all := []field[shadowed[O]]{
		member("shadow", "all rows count and report, and never hold or refuse", yes, func(s *shadowed[O], v bool) { s.shadow = v }),
	}

	// Lead the preset's own fields into options.
	for _, f := range append(fields, host[O]()) {
		all = append(all, field[shadowed[O]]{
			fieldHead: f.fieldHead, schema: f.schema,
			read: func(r *reader, n *yaml.Node, to *shadowed[O]) bool { return f.read(r, n, &to.options) },
		})
	}

	rowsWith := func(s shadowed[O]) presetRows {
		rows := policies(s.options)
		for i := range rows {
			rows[i].Shadow = rows[i].Shadow || s.shadow
		}
		return rows
	}

	options := record[shadowed[O]]{name: "preset " + name, fields: all}
	o := kind(name, presetDoc(about, counted), options.shape(), rowsWith).or(func() presetRows { return rowsWith(shadowed[O]{}) })
	o.keys = options.heads()
	return o
}

// presetDoc describes a preset for readers.
func presetDoc(about, counted string) string { return about + "; counted per " + counted }

var plans = oneOf(
	word[shopify.Plan]{"standard", shopify.Standard}, word[shopify.Plan]{"advanced", shopify.Advanced},
	word[shopify.Plan]{"plus", shopify.Plus}, word[shopify.Plan]{"enterprise", shopify.Enterprise},
)

var hubspotPlans = oneOf(
	word[hubspot.Plan]{"free", hubspot.Free}, word[hubspot.Plan]{"professional", hubspot.Professional},
	word[hubspot.Plan]{"enterprise", hubspot.Enterprise}, word[hubspot.Plan]{"marketplace", hubspot.Marketplace},
)

var kimiTiers = oneOf(
	word[kimi.Tier]{"0", kimi.Tier0}, word[kimi.Tier]{"1", kimi.Tier1}, word[kimi.Tier]{"2", kimi.Tier2},
	word[kimi.Tier]{"3", kimi.Tier3}, word[kimi.Tier]{"4", kimi.Tier4}, word[kimi.Tier]{"5", kimi.Tier5},
)

var editions = oneOf(
	word[dingtalk.Edition]{"standard", dingtalk.Standard},
	word[dingtalk.Edition]{"professional", dingtalk.Professional},
	word[dingtalk.Edition]{"professional-3", dingtalk.Professional3},
	word[dingtalk.Edition]{"professional-4", dingtalk.Professional4},
	word[dingtalk.Edition]{"exclusive", dingtalk.Exclusive},
)

// editionNumbers are the numbers of an edition, where a contract has numbers of its own.
var editionNumbers = record[dingtalk.Edition]{name: "an edition", fields: []field[dingtalk.Edition]{
	member("per-second", "what one app may call of one API in a second", number(1), func(e *dingtalk.Edition, v int) { e.PerSecond = v }),
	member("per-month", "what the company may call in a month", number(1), func(e *dingtalk.Edition, v int) { e.PerMonth = v }),
	member("webhooks", "what webhooks and Stream may call in a month", number(1), func(e *dingtalk.Edition, v int) { e.Webhooks = v }),
}}

var feishuTier = record[feishu.Tier]{name: "a tier", fields: []field[feishu.Tier]{
	member("per-second", "what one app may call of one API in a second", number(1), func(t *feishu.Tier, v int) { t.PerSecond = v }),
	member("per-minute", "and in a minute", number(1), func(t *feishu.Tier, v int) { t.PerMinute = v }),
}}

var feishuTierShape = defined("preset-tier", feishuTier.shape())

var slackTier = oneOf(
	word[slack.Tier]{"1", slack.Tier1}, word[slack.Tier]{"2", slack.Tier2},
	word[slack.Tier]{"3", slack.Tier3}, word[slack.Tier]{"4", slack.Tier4},
)

var operation = record[spapi.Operation]{name: "an operation", fields: []field[spapi.Operation]{
	must(member("name", "of the operation", label, func(o *spapi.Operation, v string) { o.Name = v })),
	must(member("match", `"METHOD /PATH"`, label, func(o *spapi.Operation, v string) { o.Match = v })),
	must(member("limit", "such as 1/m burst 20", limit, func(o *spapi.Operation, v throttle.Limit) { o.Limit = v })),
	member("key", "tells several operations apart that have the same plan each", key, func(o *spapi.Operation, v keyFunc) { o.Key = v }),
}}

var presetNames []string

// Presets returns the names of the tables that a file can use, sorted: packages, and files of the catalog.
func Presets() []string {
	return slices.Sorted(slices.Values(append(CatalogPresets(), presetNames...)))
}

// host returns the field "host", for the field Host that the options of all presets have.
func host[O any]() field[O] {
	return member("host", "a pattern of the API's hosts, in place of the default", label, func(o *O, v string) {
		reflect.ValueOf(o).Elem().FieldByName("Host").SetString(v)
	})
}

// A callerFunc says two ids of a request's caller, as the Caller of a preset's options
// does.
type callerFunc = func(*http.Request) (a, b string)

// callerDoc is the schema's description of both fields.
const callerDoc = "the ids of the caller of a request, for a program that calls for several callers; it replaces the ids beside it"

// callerID returns the field "caller" of a preset with one id, of the given name.
func callerID[O any](id string, set func(*O, keyFunc)) field[O] {
	ids := record[keyFunc]{name: "a caller", fields: []field[keyFunc]{
		must(member(id, "the key of that id", key, func(c *keyFunc, v keyFunc) { *c = v })),
	}}
	f := member("caller", callerDoc, defined("preset-caller-"+id, ids.shape()), set)
	f.form = "a key for " + id
	return f
}

// callerIDs returns the field "caller" of a preset with two ids, named a and b. A file may omit one of
// them: its value is "" then.
func callerIDs[O any](a, b string, set func(*O, callerFunc)) field[O] {
	type keys struct{ a, b keyFunc }
	ids := record[keys]{name: "a caller", fields: []field[keys]{
		member(a, "the key of that id", key, func(k *keys, v keyFunc) { k.a = v }),
		member(b, "the key of that id", key, func(k *keys, v keyFunc) { k.b = v }),
	}}
	f := member("caller", callerDoc, defined("preset-caller-"+a+"-"+b, filled(ids.shape())), func(o *O, k keys) {
		set(o, func(r *http.Request) (string, string) { return valueOf(k.a, r), valueOf(k.b, r) })
	})
	f.form = "a key for " + a + ", for " + b + ", or for both"
	return f
}

// valueOf returns a key's value for a request, or "" without a key.
func valueOf(k keyFunc, r *http.Request) string {
	if k == nil {
		return ""
	}
	return k(r)
}

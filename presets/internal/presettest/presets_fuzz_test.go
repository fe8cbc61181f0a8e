package presettest_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// fuzzFields are the header fields that some preset reads, in requests or in
// answers. What an answer has in all of them comes from one text, line by line.
var fuzzFields = []string{
	"Retry-After", "Date", "Content-Encoding", "Accept", "Authorization", "RateLimit", "RateLimit-Policy", "RateLimit-Reason",
	"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Used", "X-RateLimit-Reset", "X-RateLimit-Reset-After",
	"X-RateLimit-Scope", "X-RateLimit-Global", "X-RateLimit-Bucket", "X-RateLimit-Resource", "X-RateLimit-NearLimit",
	"X-RateLimit-Limit-Tokens", "X-RateLimit-Remaining-Tokens", "X-RateLimit-Reset-Tokens",
	"X-RateLimit-Limit-Requests", "X-RateLimit-Remaining-Requests", "X-RateLimit-Reset-Requests",
	"X-App-Rate-Limit", "X-App-Rate-Limit-Count", "X-Method-Rate-Limit", "X-Method-Rate-Limit-Count", "X-Rate-Limit-Type",
	"X-Ogw-RateLimit-Limit", "X-Ogw-RateLimit-Reset", "X-MBX-Used-Weight-1m", "X-Amzn-RateLimit-Limit",
	"X-Shopify-Shop-Api-Call-Limit", "X-Riot-Token", "Content-Type",
	"Anthropic-RateLimit-Requests-Limit", "Anthropic-RateLimit-Requests-Remaining", "Anthropic-RateLimit-Requests-Reset",
	"Retry-After-Ms", "Stripe-Rate-Limited-Reason", "RateLimit-Name", "RateLimit-Remaining", "RateLimit-Reset",
	"X-Rate-Limit-Problem", "X-MinLimit-Remaining", "X-DayLimit-Remaining", "X-AppMinLimit-Remaining", "X-Rate-Limit-Remaining", "X-Rate-Limit-Limit",
	"X-HubSpot-RateLimit-Remaining", "X-HubSpot-RateLimit-Daily-Remaining", "Sforce-Limit-Info",
}

// seeds are answers that presets read, with their requests.
var seeds = []struct {
	url, body string
	status    int
	fields    string
	answer    string
}{
	{"https://oapi.dingtalk.com/topapi/v2/user/get?access_token=x", `{"userid":"u"}`, 200, "", `{"errcode":88,"sub_code":"90018","sub_msg":"ban"}`},
	{"https://api.dingtalk.com/v1.0/im/x", "", 403, "", `{"code":"Forbidden.AccessDenied.QpsLimitForAppkeyAndApi"}`},
	{"https://oapi.dingtalk.com/topapi/message/corpconversation/asyncsend_v2", `{"userid_list":["a",{}],"dept_id_list":1e400,"to_all_user":"TRUE"}`, 200, "",
		`{"status":1111,"wait":1e400,"punish":"deny","errcode":660026,"errmsg":"too fast"}`},
	{"https://oapi.dingtalk.com/topapi/message/corpconversation/getsendresult", `{`, 200, "", `{"send_result":{"forbidden_list":[{"code":143103},7]}}`},
	{"https://api.dingtalk.com/v1.0/robot/%2e%2e/calendar/users/u/calendars/c/events", `{"robotCode":"\\ud800"}`, 429, "99999999999999999999", `{"code":"flowLimit","code":1}`},
	{"https://open.feishu.cn/open-apis/im/v1/messages", "", 400, strings.Repeat("1\n", 30), `{"code":99991400}`},
	{"https://qyapi.weixin.qq.com/cgi-bin/user/get?access_token=x", "", 200, "", `{"errcode":45009}`},
	{"https://api.github.com/graphql", `{"query":"{a(first:100){b}}"}`, 403, "60\n0\n", `{"message":"secondary rate limit"}`},
	{"https://discord.com/api/v10/channels/123/messages", "", 429, "1.5\n", `{"global":true,"retry_after":1e300}`},
	{"https://s.myshopify.com/admin/api/2025-01/graphql.json", `{"query":""}`, 200, "",
		`{"extensions":{"cost":{"actualQueryCost":1e400,"throttleStatus":{"maximumAvailable":-1,"currentlyAvailable":0,"restoreRate":0}}}}`},
	{"https://api.openai.com/v1/chat/completions", `{"model":"m","max_tokens":99999999999999999999,"messages":[{"content":"x"}]}`,
		429, strings.Repeat("6m0s\n", 30), `{"usage":{"total_tokens":9223372036854775807},"error":{"code":"rate_limit_exceeded"}}`},
	{"https://euw1.api.riotgames.com/lol/x", "", 429, strings.Repeat("1:1,100:120\n", 30), ""},
	{"https://slack.com/api/chat.postMessage", `{"channel":"C"}`, 200, "", `{"ok":false,"error":"ratelimited"}`},
	{"https://sellingpartnerapi-na.amazon.com/orders/v0/orders/1", "", 429, strings.Repeat("0.0167\n", 34), `{"errors":[{"code":"QuotaExceeded"}]}`},
	{"https://x.atlassian.net/rest/api/3/issue/1", "", 429, strings.Repeat("NaN\n", 34), ""},
	{"https://api.binance.com/api/v3/order?limit=5000", "", 418, strings.Repeat("9223372036854775807\n", 34), `{"code":-1003}`},
	{"https://api.weixin.qq.com/cgi-bin/user/get?access_token=x", "", 200, "", `{"errcode":45009}`},
	{"https://api.anthropic.com/v1/messages", `{"model":"m","max_tokens":5}`, 429, strings.Repeat("5\n", 44), `{"error":{"message":"5 input tokens"}}`},
	{"https://a.openai.azure.com/openai/deployments/m/x", `{"max_tokens":5}`, 429, strings.Repeat("5\n", 44), `{"error":{"message":"retry after 5 seconds"}}`},
	{"https://api.stripe.com/v1/payment_intents/pi_1", "", 429, strings.Repeat("endpoint-rate\n", 44), `{"error":{"code":"lock_timeout"}}`},
	{"https://gitlab.com/api/v4/projects/1", "", 429, strings.Repeat("throttle_authenticated_api\n", 44), `{"message":{"error":"x"}}`},
	{"https://api.hubapi.com/crm/v3/objects/contacts/1", "", 429, strings.Repeat("0\n", 46), `{"policyName":"DAILY"}`},
	{"https://acme.my.salesforce.com/services/data/v66.0/query", "", 403, strings.Repeat("api-usage=9/5\n", 47), `[{"errorCode":"REQUEST_LIMIT_EXCEEDED"}]`},
	{"https://api.notion.com/v1/pages/1", "", 529, strings.Repeat("-1\n", 34), `{"code":"rate_limited"}`},
	{"https://generativelanguage.googleapis.com/v1beta/models/m:generateContent", `{"contents":[]}`, 429, "",
		`[{"error":{"details":[{"violations":[{"quotaId":"PerDay"}]},{"retryDelay":"1e9h"}]}}]`},
	{"https://api.deepseek.com/chat/completions", `{"model":"deepseek-v4-pro"}`, 429, "", `{"error":{"type":"rate_limit_error"}}`},
	{"https://api.moonshot.cn/v1/chat/completions", `{"max_tokens":9}`, 429, strings.Repeat("9\n", 50), `{"error":{"message":"concurrency: try again after 99999999999999999999 seconds"}}`},
	{"https://dashscope.aliyuncs.com/compatible-mode/v1/chat/completions", `{"max_tokens":9}`, 429, "", `{"code":"Throttling.RateQuota","usage":{"total_tokens":1e400}}`},
	{"https://open.bigmodel.cn/api/paas/v4/chat/completions", `{"model":"m"}`, 429, "", `{"error":{"code":"1308","message":"9999-99-99 99:99:99"}}`},
	{"https://graph.microsoft.com/v1.0/me/messages", "x", 429, "", `{"error":{"message":"MailboxConcurrency"}}`},
	{"https://gmail.googleapis.com/gmail/v1/users/me/messages", "x", 403, "", `{"error":{"message":"limit '9 per minute per user' Retry after 9999-99-99T99:99:99Z","errors":[{"reason":"rateLimitExceeded"}]}}`},
	{"https://sheets.googleapis.com/v4/spreadsheets/1:batchUpdate", "x", 429, "-1", `{"error":{"message":"limit 'Write requests per minute'"}}`},
	{"https://www.googleapis.com/drive/v3/files", "x", 403, "", `{"error":{"errors":[{"reason":"dailyLimitExceeded"}]}}`},
	{"https://api.telegram.org/bot1/sendMessage", `{"chat_id":-1}`, 429, "", `{"parameters":{"retry_after":1e400}}`},
	{"https://api.cloudflare.com/client/v4/graphql", "x", 429, "99999999999999999999", `{"errors":[{"code":971}]}`},
	{"https://acme.zendesk.com/api/v2/tickets/1.json", "x", 429, "-9", "Number of allowed API requests per minute exceeded"},
	{"https://api.example.org/v1/x?key=1", "x", 429, "\"a\";q=1;w=1\n", "limit of 9 requests per second"},
	{"https://api.airtable.com/v0/app1/Tasks", "x", 429, "", `{"errors":[{"error":"RATE_LIMIT_REACHED"},7]}`},
	{"https://api.xero.com/connections", "x", 429, "99999999999999999999", ""},
	{"https://api.meeting.qq.com/v1/meetings", `{"userid":"\\ud800"}`, 500, "", `{"error_info":{"error_code":190311}}`},
	{"https://open.welink.huaweicloud.com/api/contact/v1/users", "x", 200, "", `{"code":"48503"}`},
}

// FuzzPresets shows every policy of every preset a request and its answer, whatever
// they hold: no function panics, nothing is out of bounds, and both bodies are as
// they were.
func FuzzPresets(f *testing.F) {
	for _, seed := range seeds {
		f.Add("POST", seed.url, seed.body, seed.status, seed.fields, seed.answer)
		f.Add("GET", seed.url, seed.body, seed.status, seed.fields, seed.answer)
	}
	f.Fuzz(func(t *testing.T, method, url, body string, status int, fields, answer string) {
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			return
		}
		fill(r.Header, fields)
		resp := &http.Response{StatusCode: status, Header: make(http.Header), Request: r,
			Body: io.NopCloser(strings.NewReader(answer)), ContentLength: int64(len(answer))}
		fill(resp.Header, fields)
		for _, table := range tables {
			for _, p := range table.zero {
				requireWithinBounds(t, &p, r, resp)
			}
		}
		requireUntouched(t, body, r.Body)
		requireUntouched(t, answer, resp.Body)
	})
}

// fill gives each field a line of the text.
func fill(h http.Header, text string) {
	h.Set("Content-Type", "application/json")
	for _, name := range fuzzFields {
		var line string
		if line, text, _ = strings.Cut(text, "\n"); line != "" {
			h.Set(name, line)
		}
	}
}

func requireWithinBounds(t *testing.T, p *throttle.Policy, r *http.Request, resp *http.Response) {
	t.Helper()
	if p.Cost != nil {
		require.GreaterOrEqual(t, p.Cost(r), 0, p.Name)
	}
	if p.Key != nil {
		require.Equal(t, p.Key(r), p.Key(r), p.Name)
	}
	if p.Answer == nil {
		return
	}

	a := p.Answer(resp)
	require.LessOrEqual(t, a.Close, throttle.MaxPenalty, p.Name)
	require.LessOrEqual(t, a.Verdict, throttle.VerdictPartly, p.Name)
	if q, ok := a.Left(); ok {
		require.GreaterOrEqual(t, q.Left, 0, p.Name)
		require.GreaterOrEqual(t, q.Reset, time.Duration(0), p.Name)
		require.LessOrEqual(t, q.Reset, throttle.MaxPenalty, p.Name)
	}
	if cost, ok := a.Cost(); ok {
		require.GreaterOrEqual(t, cost, 0, p.Name)
		require.LessOrEqual(t, int64(cost), int64(1<<40), p.Name)
	}
}

func requireUntouched(t *testing.T, want string, body io.Reader) {
	t.Helper()
	got, err := io.ReadAll(body)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}

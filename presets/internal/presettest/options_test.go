package presettest_test

import (
	"cmp"
	"io"
	"math"
	"net/http"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
	"github.com/fleetthrottle/throttle/store"
)

// What fields of Options may be that are a string, and that return one of a request. A
// preset with another adds it.
var (
	ids        = []string{"Account", "App", "Bot", "Company", "Connection", "Key", "Organization", "Project", "Tenant", "User", "Workspace"}
	otherTexts = []string{"Address", "Host", "ISV"}
	otherKeys  = []string{"Caller", "Channel", "Deployment", "Endpoint", "Method", "Model"}
)

// TestOptions: an id is a string in all presets, and Caller says as many as there are.
func TestOptions(t *testing.T) {
	text, key := reflect.TypeFor[string](), reflect.TypeFor[func(*http.Request) string]()
	for _, p := range tables {
		var results []reflect.Type
		for _, field := range reflect.VisibleFields(p.options) {
			name := p.name + ".Options." + field.Name
			switch {
			case slices.Contains(ids, field.Name):
				require.Equal(t, text, field.Type, name)
				results = append(results, text)
			case field.IsExported() && field.Type == text:
				require.Contains(t, otherTexts, field.Name, name+": is it an id?")
			case field.IsExported() && field.Type == key:
				require.Contains(t, otherKeys, field.Name, name+": is it an id?")
			}
		}
		caller, ok := p.options.FieldByName("Caller")
		require.Equal(t, len(results) > 0, ok, "%s.Options.Caller", p.name)
		if ok {
			want := reflect.FuncOf([]reflect.Type{reflect.TypeFor[*http.Request]()}, results, false)
			require.Equal(t, want, caller.Type, "%s.Options.Caller", p.name)
		}
		_, ok = p.options.FieldByName("Host")
		require.True(t, ok, "%s.Options.Host", p.name)
	}
}

// TestIDs: each id, and the address, splits the budgets of some row, and Caller says the
// same as the strings, in their order.
func TestIDs(t *testing.T) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.example.com/a/b/c", nil)
	require.NoError(t, err)
	keysOf := func(rows []throttle.Policy) (keys []string) {
		for _, row := range rows {
			if row.Key != nil {
				keys = append(keys, row.Key(r))
			}
		}
		return keys
	}
	for _, p := range tables {
		told, results := make(map[string]reflect.Value), []reflect.Value{}
		for _, field := range reflect.VisibleFields(p.options) {
			if field.Name != "Address" && !slices.Contains(ids, field.Name) {
				continue
			}
			name := reflect.ValueOf("the " + field.Name)
			one := map[string]reflect.Value{field.Name: name}
			require.NotEqual(t, keysOf(p.zero), keysOf(p.with(one)), "%s.Options.%s", p.name, field.Name)
			if field.Name != "Address" {
				told[field.Name], results = name, append(results, name)
			}
		}
		if len(results) > 0 {
			caller, _ := p.options.FieldByName("Caller")
			says := reflect.MakeFunc(caller.Type, func([]reflect.Value) []reflect.Value { return results })
			require.Equal(t, keysOf(p.with(told)), keysOf(p.with(map[string]reflect.Value{"Caller": says})), p.name)
			told["Caller"] = reflect.MakeFunc(caller.Type, func([]reflect.Value) []reflect.Value {
				return slices.Repeat([]reflect.Value{reflect.ValueOf("")}, len(results))
			})
			require.Equal(t, keysOf(p.zero), keysOf(p.with(told)), "%s: Caller replaces the strings", p.name)
		}
	}
}

// TestHost: a Host replaces the host of every row, and nothing else.
func TestHost(t *testing.T) {
	const fake = "127.0.0.1:8080"
	for _, p := range tables {
		rows := p.with(map[string]reflect.Value{"Host": reflect.ValueOf(fake)})
		require.Len(t, rows, len(p.zero), p.name)
		for i, row := range rows {
			method, url, ok := strings.Cut(row.Match, " ")
			if !ok {
				method, url = "", row.Match
			}
			host, path, _ := strings.Cut(url, "/")
			require.Equal(t, fake, host, "%s: %s", row.Name, row.Match)
			require.True(t, strings.HasPrefix(p.zero[i].Match, method), row.Name)
			require.True(t, strings.HasSuffix(p.zero[i].Match, "/"+path), "%s: %s", row.Name, row.Match)
			require.Equal(t, p.zero[i].Name, row.Name)
			require.Equal(t, p.zero[i].Limit, row.Limit)
		}
	}
}

// TestTransportsCountForThemselves: answers of 503 that one transport got are not in a row with
// those of another.
func TestTransportsCountForThemselves(t *testing.T) {
	outages := 0
	for _, preset := range tables {
		one, other, first := preset.with(nil), preset.with(nil), preset.with(nil)
		for i := range one {
			if one[i].Answer == nil {
				continue
			}
			away := &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"7"}}, Body: http.NoBody, Request: presettest.Request(t, "GET https://"+preset.name+".test/")}
			if first[i].Answer(away).Close > 0 {
				continue // it believes a single one
			}
			for range tablerow.OutageAnswers - 1 {
				one[i].Answer(away)
			}
			require.Zero(t, other[i].Answer(away).Close, "%s", one[i].Name)
			if one[i].Answer(away).Close > 0 {
				outages++
			}
		}
	}
	require.Greater(t, outages, 8, "premise: many presets know an outage")
}

// mostAllocations bounds what a call of any preset allocates beside its base, with an answer in JSON:
// the attempt, keys of several values, and the look into the body.
const mostAllocations = 11.0

// moreAllocations are those of presets that take the body or the path of a request apart, or whose
// answers settle a cost.
var moreAllocations = map[string]float64{"jira": 15, "anthropic": 28, "shopify": 12}

// TestCallsCostLittleMemory: a call that a preset holds allocates little, whatever the number of
// rows that look at the answer.
func TestCallsCostLittleMemory(t *testing.T) {
	soak.WithoutRace(t)
	const answer = `{"errcode":0,"errmsg":"ok","result":{"dept_id":1,"name":"x"},"request_id":"15s4ab8ca3cdz"}`
	fields := http.Header{"Content-Type": {"application/json;charset=UTF-8"}}
	base := presettest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Header: fields, Request: r,
			Body: io.NopCloser(strings.NewReader(answer)), ContentLength: int64(len(answer)),
		}, nil
	})
	counted := make(map[string]bool)
	for _, preset := range tables {
		rows := withoutWaits(preset)
		client, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: rows, Base: base})
		require.NoError(t, err)
		for _, row := range rows {
			r := presettest.Request(t, requestOf(row.Match))
			if len(client.Explain(r)) == 0 {
				continue // the pattern wants more than its names say
			}
			counted[preset.name] = true
			call := func(to http.RoundTripper) func() {
				return func() {
					resp, err := to.RoundTrip(r)
					require.NoError(t, err)
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}

			// The runtime counts what the whole process allocates, so other work can only add: the least of some runs is the call's own.
			least := math.Inf(1)
			for range 3 {
				least = min(least, testing.AllocsPerRun(20, call(client))-testing.AllocsPerRun(20, call(base)))
			}
			t.Logf("%s: %s %s: %v", row.Name, r.Method, r.URL, least)
			most := cmp.Or(moreAllocations[preset.name], mostAllocations)
			assert.LessOrEqual(t, least, most+soak.AllocsOf32Bits, "%s: %s %s", row.Name, r.Method, r.URL)
		}
	}
	require.GreaterOrEqual(t, len(counted), len(tables)-2, "premise: calls of nearly all presets are counted")
}

// TestModelsLookAtBodiesInLittleMemory: the rows of a language model read a request's body some eight times, for the model and for what the
// request reserves. The walks use the same memory; what is allocated for each is what GetBody of net/http makes, twice.
func TestModelsLookAtBodiesInLittleMemory(t *testing.T) {
	soak.WithoutRace(t)
	const body = `{"max_tokens":100,"messages":[{"role":"user","content":"hello"}],"model":"m"}`
	const answer = `{"id":"1","usage":{"input_tokens":12,"output_tokens":5,"prompt_tokens":12,"completion_tokens":5,"total_tokens":17}}`
	base := presettest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
			Body: io.NopCloser(strings.NewReader(answer)), ContentLength: int64(len(answer)),
		}, nil
	})

	for _, preset := range tables {
		if !slices.Contains([]string{"anthropic", "azureopenai", "dashscope", "deepseek", "kimi", "openai", "zhipu"}, preset.name) {
			continue
		}
		client, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: withoutWaits(preset), Base: base})
		require.NoError(t, err)
		for _, row := range preset.with(nil) {
			r := presettest.Request(t, requestOf(row.Match), body)
			r.Header.Set("Content-Type", "application/json")
			looks, getBody := 0, r.GetBody
			r.GetBody = func() (io.ReadCloser, error) { looks++; return getBody() }

			// Other work of the process adds to both.
			const runs, calls = 3, 100
			allocations, bytes := uint64(math.MaxUint64), uint64(math.MaxUint64)
			for range runs {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for range calls {
					resp, err := client.RoundTrip(r)
					require.NoError(t, err)
					_ = resp.Body.Close()
				}
				runtime.ReadMemStats(&after)
				allocations, bytes = min(allocations, (after.Mallocs-before.Mallocs)/calls), min(bytes, (after.TotalAlloc-before.TotalAlloc)/calls)
			}

			t.Logf("%s: %d looks, %d allocations, %d bytes", row.Name, looks/calls/runs, allocations, bytes)
			assert.LessOrEqual(t, allocations, uint64(90), row.Name)
			assert.LessOrEqual(t, bytes, uint64(10<<10), row.Name)
		}
	}
}

// withoutWaits returns the rows of a preset, which hold nobody.
func withoutWaits(preset table) []throttle.Policy {
	rows := preset.with(nil)
	for i := range rows {
		if rows[i].Limit.Kind() != store.KindUnlimited {
			rows[i].Limit = throttle.PerSecond(plenty)
		}
	}
	return rows
}

// plenty is more than a call of any preset costs.
const plenty = 1 << 30

var wildcard = regexp.MustCompile(`\{[^}]*\}|\*`)

// requestOf returns a request that a pattern matches: its method and its URL.
func requestOf(pattern string) string {
	method, target, ok := strings.Cut(pattern, " ")
	if !ok {
		method, target = http.MethodGet, pattern
	}
	return method + " https://" + wildcard.ReplaceAllString(target, "a")
}

// strangeValues are what the fields of an answer may hold beside a Retry-After: nothing that is true.
var strangeValues = []string{
	"", "0", "1", "-1", "0.0", "799", "soon", "true", "global", "600,30000", "3;w=21600", "1554388452000000000", "99999999999999999999",
	"06/10/2016 13:07:24", "2026-01-01T01:00Z", "9999-99-99T99:99:99Z", "20:1,100:120", `"default";r=50;t=30`, "Sat, 01 Jan 2000 01:00:00 GMT",
}

// reasons are what the fields hold with some preset, by which a refusal is about one of its rows.
var reasons = []string{
	"jira-quota-global-based", "jira-quota-tenant-based", "jira-burst-based", "jira-per-issue-on-write", "global-rate", "endpoint-rate", "endpoint-concurrency",
	"resource-specific", "application", "method", "service", "shared", "user", "search", "core", "minute", "day", "conc", "appminute", "throttle_authenticated_api", "throttle_unauthenticated_api",
}

// strangeBodies are answers that no preset knows, by their media type.
var strangeBodies = [][2]string{
	{"", ""},
	{"application/json", `{}`},
	{"application/json", `{"error":{"code":"unheard_of","message":"slow down","type":7},"code":"unheard_of","errcode":1,"errors":[{"code":"x"}]}`},
	{"application/json", `{"message":"Slow Down`},
	{"application/json", `{"retry_after":"soon","parameters":{"retry_after":null},"error":{"details":[{"retryDelay":"later"}]}}`},
	{"text/html", "<html>429 Too Many Requests</html>"},
	{"text/plain; charset=utf-8", "slow down"},
	{"application/octet-stream", "\xff\xfe"},
}

// others are requests that are told apart by more than a pattern.
var others = []string{
	"https://api.github.com/search/code?q=x", "https://api.github.com/search/issues?q=x", "https://uploads.github.com/repos/o/r/releases/1/assets",
	"POST https://api.telegram.org/bot1/editMessageText?chat_id=5", "POST https://api.telegram.org/bot1/sendMessage?chat_id=-5", "https://api.telegram.org/bot1/getUpdates",
	"POST https://discord.com/api/v10/interactions/1/tok/callback", "POST https://discord.com/api/v10/webhooks/7/tok", "https://discord.com/api/v10/users/@me",
	"https://api.weixin.qq.com/sns/oauth2/access_token", "https://qyapi.weixin.qq.com/cgi-bin/gettoken", "https://gitlab.com/group/project.git/info/refs",
	"PATCH https://a.atlassian.net/rest/api/3/issue/A-1", "PATCH https://api.notion.com/v1/pages/1", "https://files.stripe.com/v1/files", "https://slack.com/api/users.list",
	"https://a.my.salesforce.com/services/data", "https://login.salesforce.com/services/oauth2/token", "https://api.openai.com/v1/models", "https://api.anthropic.com/v1/models",
	"https://api.deepseek.com/user/balance", "https://api.moonshot.cn/v1/models", "https://open.bigmodel.cn/api/paas/v4/files", "https://dashscope.aliyuncs.com/api/v1/tasks/1",
	"https://generativelanguage.googleapis.com/v1beta/models", "https://a.openai.azure.com/openai/models", "https://api.xero.com/connections", "https://identity.xero.com/connect/token",
	"https://sheets.googleapis.com/v4/spreadsheets/1", "https://www.googleapis.com/upload/drive/v3/files", "https://graph.microsoft.com/v1.0/users/a/calendar", "https://a.zendesk.com/api/v2/help_center/articles",
	"https://euw1.api.riotgames.com/lol/summoner/v4/summoners/a", "https://api.binance.com/sapi/v1/account", "https://api.hubapi.com/oauth/v1/token", "https://open.feishu.cn/open-apis/auth/v3/app_access_token/internal",
	"https://sellingpartnerapi-eu.amazon.com/catalog/2022-04-01/items/A", "https://api.cloudflare.com/client/v4/zones", "https://content.airtable.com/v0/app1/x", "https://a.myshopify.com/admin/oauth/access_token",
}

// kinds are refusals of some kind, by which a preset closes one of its rows and not another.
var kinds = []string{
	`{"error":{"type":"tokens","code":"rate_limit_exceeded","message":"Please try again in 2s."}}`,
	`{"error":{"type":"requests","code":"rate_limit_exceeded"}}`,
	`{"error":{"message":"Requests have exceeded token rate limit of your tier. Please retry after 2 seconds."}}`,
	`{"error":{"message":"This request would exceed your rate limit of 40,000 input tokens per minute."}}`,
	`{"error":{"message":"This request would exceed your rate limit of 8,000 output tokens per minute."}}`,
	`{"error":{"message":"max organization TPM reached, please try again after 1 seconds"}}`, `{"error":{"message":"max organization TPD reached"}}`,
	`{"error":{"message":"max organization concurrency: 3 reached"}}`, `{"error":{"code":"1302"}}`, `{"error":{"code":"1304"}}`, `{"error":{"code":"1308","message":"2000-01-01 00:00:05"}}`,
	`{"error":{"details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel"}]},{"retryDelay":"2s"}]}}`,
	`{"error":{"details":[{"violations":[{"quotaId":"GenerateContentInputTokensPerModelPerMinute"}]}]}}`,
	`{"code":"Throttling.RateQuota"}`, `{"code":"Throttling.AllocationQuota"}`, `{"code":"Throttling.BurstRate"}`, `{"error":{"code":"limit_burst_rate"}}`, `{"error":{"code":"limit_requests"}}`,
	`{"error":{"message":"Quota exceeded for quota metric 'Q' and limit 'Queries per minute per user' of service"}}`,
	`{"error":{"message":"Quota exceeded for quota metric 'Q' and limit 'Queries per minute' of service"}}`, `{"error":{"message":"Quota exceeded for quota metric 'Q' and limit 'Queries per day' of service"}}`,
	`{"error":{"message":"User-rate limit exceeded.  Retry after 2000-01-01T00:00:02.196Z","errors":[{"reason":"userRateLimitExceeded"}]}}`, `{"error":{"errors":[{"reason":"rateLimitExceeded"}]}}`,
	`{"policyName":"DAILY","errorType":"RATE_LIMIT"}`, `{"policyName":"TEN_SECONDLY_ROLLING"}`, `{"policyName":"SECONDLY"}`, `{"message":"You have reached your secondly limit."}`,
	`{"errcode":45009}`, `{"errcode":45033}`, `{"errcode":45011}`, `{"code":99991400}`, `{"code":230020}`, `{"code":11232}`, `{"code":"48503"}`, `{"error_info":{"error_code":190310}}`, `{"error_info":{"error_code":190311}}`,
	`{"message":"You have exceeded a secondary rate limit."}`, `{"message":"This endpoint has been requested too many times. Try again later."}`, `{"message":{"error":"This endpoint has been requested too many times."}}`,
	`{"code":"rate_limited","additional_data":{"rate_limit_reason":"public_api_request_rate_limit"}}`, `{"additional_data":{"rate_limit_reason":"public_api_space_request_rate_limit"}}`,
	`{"additional_data":{"rate_limit_reason":"public_api_endpoint_rate_limit"}}`, `{"additional_data":{"rate_limit_reason":"public_api_request_blocked"}}`,
	`{"error":{"code":"ApplicationThrottled","message":"Application is over its MailboxConcurrency limit."}}`, `{"errors":[{"code":"QuotaExceeded"}]}`, `{"errors":[{"code":971}]}`,
	`[{"errorCode":"REQUEST_LIMIT_EXCEEDED","message":"TotalRequests Limit exceeded."}]`, `[{"errorCode":"REQUEST_LIMIT_EXCEEDED","message":"ConcurrentPerOrgLongTxn Limit exceeded."}]`,
	`{"global":true}`, `{"global":false}`, `{"global":true,"retry_after":1.5}`, `{"global":false,"retry_after":1.5}`, `{"parameters":{"retry_after":2}}`, `{"ok":false,"error":"ratelimited"}`,
	`{"code":-1003,"msg":"Way too much request weight used; IP banned until 946684802000."}`, `{"errors":[{"error":"RATE_LIMIT_REACHED"}]}`,
	`{"errors":[{"extensions":{"code":"THROTTLED"}}],"extensions":{"cost":{"requestedQueryCost":101,"throttleStatus":{"maximumAvailable":1000,"currentlyAvailable":100,"restoreRate":50}}}}`,
}

// TestRetryAfterIsNeverLost: whatever else a 429 says or fails to say, its Retry-After closes a row that the
// next request like the one that was refused meets, with each preset, on each of its paths.
func TestRetryAfterIsNeverLost(t *testing.T) {
	soak.WithoutRace(t)
	refusals := strangeRefusals()
	for _, preset := range tables {
		rows := preset.with(nil)
		for _, line := range requestsOf(t, rows) {
			met := strings.Split(presettest.Rows(t, rows, presettest.Request(t, line)), ", ")
			for _, refusal := range refusals {
				answer := refusal.answer(presettest.Request(t, line))
				var closed time.Duration
				for _, row := range rows {
					if slices.Contains(met, row.Name) {
						closed = max(closed, row.Answer(answer).Close)
					}
				}
				assert.GreaterOrEqual(t, closed, wait, "%s: %s with %q", preset.name, line, refusal)
			}
		}
	}
}

// wait is what a refusal asks for, in whole seconds: more than any preset takes for granted, but those of a day.
const wait = 7000 * time.Second

// A refusal is a 429 that asks to wait by its Retry-After.
type refusal struct {
	media, body string
	value       string // of all other fields that some preset reads; "": there are none
}

// strangeRefusals are those of the lists above.
func strangeRefusals() (all []refusal) {
	for i, body := range strangeBodies {
		for j, value := range strangeValues {
			if i < 3 || j < 3 { // no preset reads the others together
				all = append(all, refusal{body[0], body[1], value})
			}
		}
	}
	for _, value := range reasons {
		all = append(all, refusal{value: value})
	}
	for _, kind := range kinds {
		all = append(all, refusal{media: "application/json", body: kind})
	}
	for _, seed := range seeds {
		all = append(all, refusal{media: "application/json", body: seed.answer})
	}
	return all
}

// answer is the refusal as the answer to a request.
func (f refusal) answer(r *http.Request) *http.Response {
	resp := &http.Response{
		StatusCode: http.StatusTooManyRequests, Header: make(http.Header), Request: r,
		Body: io.NopCloser(strings.NewReader(f.body)), ContentLength: int64(len(f.body)),
	}
	if f.value != "" {
		fill(resp.Header, strings.Repeat(f.value+"\n", len(fuzzFields)))
	}
	resp.Header.Set("Content-Type", f.media)
	resp.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	resp.Header.Set("Retry-After", strconv.Itoa(int(wait.Seconds())))
	resp.Header.Del("Content-Encoding")
	return resp
}

// TestOutagesHoldEachPath: when an upstream is down, which ten 503 in a row with a Retry-After say, the next
// request waits, with each preset, on each of its paths.
func TestOutagesHoldEachPath(t *testing.T) {
	for _, preset := range tables {
		for _, line := range requestsOf(t, preset.with(nil)) {
			synctest.Test(t, func(t *testing.T) {
				away := presettest.RoundTripper(func(r *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"7000"}}, Body: http.NoBody, Request: r}, nil
				})
				transport, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: preset.with(nil), Base: away, MaxWait: wait / 2})
				require.NoError(t, err)
				sent := 0
				for ; sent <= tablerow.OutageAnswers; sent++ {
					resp, err := transport.RoundTrip(presettest.Request(t, line))
					if err != nil {
						require.ErrorIs(t, err, throttle.ErrLimited)
						break
					}
					require.NoError(t, resp.Body.Close())
				}
				assert.LessOrEqual(t, sent, tablerow.OutageAnswers, "%s: %s", preset.name, line)
			})
		}
	}
}

// requestsOf returns requests that meet some row of a table: one for each of its patterns, and those that
// the fuzz test begins with.
func requestsOf(t *testing.T, rows []throttle.Policy) (lines []string) {
	all := slices.Clone(others)
	for _, row := range rows {
		all = append(all, requestOf(row.Match))
	}
	for _, seed := range seeds {
		all = append(all, "GET "+seed.url, "POST "+seed.url)
	}

	seen := make(map[string]bool)
	for _, line := range all {
		if seen[line] || presettest.Rows(t, rows, presettest.Request(t, line)) == "" {
			continue
		}
		seen[line] = true
		lines = append(lines, line)
	}
	return lines
}

// TestBodiesAreLeftAlone: no preset reads ahead of a stream or a video on any of its paths, and of the other bodies
// of successes only the presets whose upstream refuses in such a body do.
func TestBodiesAreLeftAlone(t *testing.T) {
	soak.WithoutRace(t)
	for media, want := range map[string]string{
		"text/event-stream":        "",
		"video/mp4":                "",
		"application/octet-stream": "dingtalk",
		"application/json":         "anthropic azureopenai dashscope dingtalk feishu gemini github jira openai shopify slack tencentmeeting wechat wecom welink",
	} {
		var readers []string
		for _, preset := range tables {
			rows := preset.with(nil)
			if slices.ContainsFunc(requestsOf(t, rows), func(line string) bool {
				return presettest.LookedAt(t, rows, line, http.StatusOK, presettest.Header{"Content-Type": media}, `{"a":"b"`) > 0
			}) {
				readers = append(readers, preset.name)
			}
		}
		require.Equal(t, want, strings.Join(readers, " "), media)
	}
}

package policyfile_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // the tests know their zones on any system

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/policyfile"
)

// keyOf returns the key that a file's policy makes of a request.
func keyOf(t *testing.T, key string, r *http.Request) string {
	t.Helper()
	f, err := policyfile.Parse("p.yaml", []byte("version: 1\npolicies:\n  - name: a\n    match: \"{shop}.example.com/\"\n    limit: 1/s\n    key: \""+key+"\"\n"))
	require.NoError(t, err)
	return f.Policies[0].Key(r)
}

// posting returns a request with a body.
func posting(t *testing.T, media, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://acme.example.com/v1/chat?app=q", strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", media)
	return r
}

// TestKeyOfABody: a member of the object in a body is a key, wherever it stands, and the body is sent as it was.
func TestKeyOfABody(t *testing.T) {
	const model = `"model":"glm"`
	long := `"messages":["` + strings.Repeat("x", 1<<20) + `"],`
	for body, want := range map[string]string{
		`{` + model + `}`:                   "glm",
		`{"a":{"model":"b"},` + model + `}`: "glm",
		`{` + long + model + `}`:            "glm",
		`{"model":7}`:                       "7",
		`{"model":{"a":1}}`:                 "",
		`{"model":["a"]}`:                   "",
		`{"Model":"glm"}`:                   "",
		`{"other":"glm"}`:                   "",
		`["model"]`:                         "",
		`{"model":"gl`:                      "",
		``:                                  "",
	} {
		r := posting(t, "application/json; charset=utf-8", body)
		require.Equal(t, want, keyOf(t, "{body.model}", r), "%.40s", body)
		sent, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, body, string(sent))
	}

	require.Empty(t, keyOf(t, "{body.model}", posting(t, "text/plain", `{`+model+`}`)))
	once := posting(t, "application/json", `{`+model+`}`)
	once.GetBody = nil
	require.Empty(t, keyOf(t, "{body.model}", once), "a body that cannot be read twice is left alone")
}

// TestKeyOfTheFirst: of several values the first non-empty value counts, and the key is that of the value
// alone, so that a file and a table in Go share budgets.
func TestKeyOfTheFirst(t *testing.T) {
	for _, c := range []struct{ key, app, want string }{
		{"{header.X-App|query.app}", "h", "h"},
		{"{header.X-App|query.app}", "", "q"},
		{"{header.X-App|query.none|method}", "", http.MethodPost},
		{"{header.X-App|query.none}", "", ""},
		{"{body.app|header.X-App}", "h", "b"},
	} {
		r := posting(t, "application/json", `{"app":"b"}`)
		r.Header.Set("X-App", c.app)
		require.Equal(t, c.want, keyOf(t, c.key, r), c.key)
	}

	r := posting(t, "application/json", `{"app":"b"}`)
	joined := throttle.Join(throttle.Query("app"), throttle.Method)
	require.Equal(t, joined(r), keyOf(t, "{header.X-App|query.app}/{method}", r))
}

// TestCaller: a file tells several accounts apart as a table in Go does.
func TestCaller(t *testing.T) {
	for name, c := range map[string]struct{ options, url, splits string }{
		"one id":          {"github: {caller: {account: '{header.X-Account}'}}", "https://api.github.com/user", "X-Account"},
		"two ids":         {"feishu: {caller: {app: '{header.X-App}', tenant: '{header.X-Tenant}'}}", "https://open.feishu.cn/open-apis/im/v1/chats", "X-App X-Tenant"},
		"one of two":      {"feishu: {caller: {tenant: '{header.X-Tenant}'}}", "https://open.feishu.cn/open-apis/im/v1/chats", "X-Tenant"},
		"no caller":       {"feishu: {app: cli_app, tenant: t}", "https://open.feishu.cn/open-apis/im/v1/chats", ""},
		"in place of ids": {"github: {account: me, caller: {account: '{header.X-Account}'}}", "https://api.github.com/user", "X-Account"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := policyfile.Parse("", []byte("version: 1\npresets: [{"+c.options+"}]"))
			require.NoError(t, err)
			transport, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: f.Policies})
			require.NoError(t, err)
			budget := func(field string) string {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url, nil)
				require.NoError(t, err)
				r.Header.Set(field, "another")
				return transport.Explain(r)[0].Budget.String()
			}
			splits := ""
			for _, field := range []string{"X-Account", "X-App", "X-Tenant"} {
				if budget(field) != budget("X-None") {
					splits += " " + field
				}
			}
			require.Equal(t, c.splits, splits[min(1, len(splits)):])
		})
	}
	_, err := policyfile.Parse("", []byte("version: 1\npresets: [{github: {caller: {}}}]"))
	require.ErrorContains(t, err, `a caller needs a field "account"`)
}

// TestCorpus: each file of the corpus is read, or refused with these mistakes. A file whose
// name ends in ".quoted" is a string of Go, for what no editor shows.
func TestCorpus(t *testing.T) {
	s := compiled(t)
	var out strings.Builder
	for _, c := range cases(t) {
		t.Run(c.name, func(t *testing.T) {
			fmt.Fprintf(&out, "-- %s --\n%s-- mistakes --\n%s", c.name, c.raw, sound(t, s, []byte(c.text)))
		})
	}
	golden(t, "testdata/corpus.txtar", out.String())
}

// TestFields: each field of a row, of a test and of a preset takes these values, or refuses them with
// these mistakes. Of the values of every kind the golden file groups those that are refused alike.
func TestFields(t *testing.T) {
	s := compiled(t)
	var out strings.Builder
	for _, f := range fieldFiles() {
		fmt.Fprintf(&out, "%s\n", f.name)
		outcome := func(value string) string {
			got := sound(t, s, []byte(strings.Replace(f.file, "VALUE", value, 1)))
			return strings.ReplaceAll(strings.TrimSuffix(got, "\n"), "\n", "\n      ")
		}
		for _, v := range f.values {
			fmt.Fprintf(&out, "  %s\n      %s\n", v, outcome(v))
		}

		var outcomes []string
		alike := make(map[string][]string)
		for _, v := range anything {
			got := quotedText.ReplaceAllString(outcome(v), `"…"`)
			if alike[got] == nil {
				outcomes = append(outcomes, got)
			}
			alike[got] = append(alike[got], strings.ReplaceAll(v, "\n      ", `\n`))
		}
		for _, got := range outcomes {
			fmt.Fprintf(&out, "  each of  %s\n      %s\n", strings.Join(alike[got], "  "), got)
		}
	}
	golden(t, "testdata/fields.txt", out.String())
}

// quotedText is a quoted text in a mistake: the value, or an advice made of it.
var quotedText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// A corpusCase is one file of the corpus.
type corpusCase struct{ name, raw, text string }

// cases returns the files of the corpus.
func cases(t testing.TB) (all []corpusCase) {
	read, err := os.ReadFile("testdata/corpus.txtar")
	require.NoError(t, err)
	for _, part := range strings.Split("\n"+string(read), "\n-- ")[1:] {
		name, raw, ok := strings.Cut(part+"\n", " --\n")
		require.True(t, ok, part)
		if name == "mistakes" {
			continue
		}
		c := corpusCase{name: name, raw: raw, text: raw}
		if strings.HasSuffix(name, ".quoted") {
			c.text, err = strconv.Unquote(strings.TrimSpace(raw))
			require.NoError(t, err, name)
		}
		all = append(all, c)
	}
	return all
}

// corpus returns the texts of all files that tests are made of.
func corpus(t testing.TB) (all []string) {
	for _, c := range cases(t) {
		all = append(all, c.text)
	}
	for _, f := range fieldFiles() {
		all = append(all, strings.Replace(f.file, "VALUE", f.values[0], 1))
	}
	return all
}

// A fieldFile is a file in which one field stands open.
type fieldFile struct {
	name, file string
	values     []string
}

// anything are values of every kind: most fields take few of them.
var anything = []string{
	"", "~", `""`, "0", "1", "-1", "7", "'7'", "0.25", "'0.25'", "1_000", "+5", "007", "0x10", "1e3", "99999999999999999999",
	"true", "Yes", "off", "text", `"a\u0000b"`, "' padded '", "[]", "[1]", "{}", "{a: 1}", "{host}", "{shop}", `"{shop}"`,
	"!!int 7", "!foo 7", "!", "*anchor", "&here 7", "2024-01-01", ".inf", "“7”", "７", "|\n      7",
}

// fieldFiles returns a file for each field.
func fieldFiles() (all []fieldFile) {
	row := func(more string) string {
		return "version: 1\npolicies:\n  - name: a\n    match: \"{shop}.example.com/\"\n    limit: 40/s\n" + more
	}
	add := func(name, file string, values ...string) {
		all = append(all, fieldFile{name, file, values})
	}
	add("version", "version: VALUE\n", `"1"`, "2", "1.0", "one")
	add("name", "version: 1\npolicies:\n  - name: VALUE\n    match: /\n    limit: 1/s\n", "api", "钉钉 接口", "'12: a # b'", `"a\nb"`, "a: b")
	add("match", "version: 1\npolicies:\n  - name: a\n    match: VALUE\n    limit: 1/s\n",
		"api.example.com/", "GET api.example.com/v1/", `"*.example.com/"`, "*.example.com/", "{shop}.example.com/", "example.com", "https://example.com/",
		"get example.com/", "GETT example.com/", "PROPFIND example.com/", "example.com:99999/", "example.com/a?b=c", "example.com/../a", "a b c/", "exa mple.com/",
		"none", "None", `""`, "/v1/{id}/{id}", "example.com//a", "[::1]/", "@example", "GET", "/", "1.{x}.2.3/")
	add("limit", "version: 1\npolicies:\n  - name: a\n    match: example.com/\n    limit: VALUE\n",
		"40/s", "10000/20s", "40/s paced", "100/m fixed", "5000/month Asia/Shanghai", "5000/month Asia/Shanghaj", "2/s burst 40", "20 in flight", "unlimited",
		"40 /s", "40/fortnight", "40", "-1/s", "0/s", "40/0s", "40/s burst", "40/s  paced", "４０/s", "40／s", "“40/s”", "40/S", "40 per second", "40.5/s", "1000/0.5s", "40/s, 100/m", "[40/s, 100/m]")
	add("key", row("    key: VALUE\n"), `"{header.X-App}"`, "{header.X-App}", `"{query.access_token}"`, `"{shop}/{path}"`, "{shop}/{path}", `"{shp}"`, `"{store}"`,
		`"{heeder.X}"`, `"{header.X App}"`, `"{header.}"`, `"{query.}"`, `"{shop"`, `"shop}"`, "shop", `"{}"`, `"{a.b}"`, `"{Host}"`, `"{ host }"`, `"app-{header.X}"`, `"{body.model}"`, `"{header.X-App|query.app|shop}"`, `"{header.X-App|}"`, `"{query.a|store}"`, `"{id.account}"`, `"{body.}"`, "{host, path}", "{host: x}", "[host]")
	add("routes", row("    key: '{route}'\n    routes: VALUE\n"), `"/users/{id}"`, "/users/{id}", `["/users/{id}", "GET /users/{id}/posts"]`, `[/users/{id}]`, `["/users/{id", "/ok", "users", "/a?b=c"]`, `["/users/{id}", "/users/me"]`, `["/a/", "/a/{x}", "POST /a/b"]`,
		`["GETT /a"]`, `["get /a"]`, "none", `["/a", ""]`, `["/a", "/a"]`)
	add("routes and keys", row("    VALUE\n"), `key: "{route}"`, `routes: [/a]`, "routes: [/a]\n    key: '{host}'", "routes: [/a]\n    key: '{rout}'", "routes: [/a]\n    share: '{route}'", "routes: [/a]\n    key: '{shop|route}/{host}'", "key: '{header.Host}'")
	add("keyed", "version: 1\npolicies:\n  - name: a\n    match: none\n    limit: 1/s\n    keyed: VALUE\n", "yes", "no", "keyed")
	add("keyed beside a match", row("    keyed: VALUE\n"), "yes", "no")
	add("a field of requests or answers beside no match", "version: 1\npolicies:\n  - name: a\n    match: none\n    limit: 1/s\n    VALUE\n",
		"penalty: retry-after", "penalty: none", "cost: 2", "acted: graphql", "quota: ratelimit", "settle: {amount: {fields: usage.total}}", "key: '{host}'", "key: '{shop}'", "share: '{host}'", "share: '{shop}'", "cost: '{shop}'", "jitter: none", "adaptive: yes")
	add("cost", row("    cost: VALUE\n"), "5", `"{header.X-Cost}"`, "{header.X-Cost}", `"{shop}"`, `"{query.n}"`, `"{header.A}{header.B}"`, `"5 {header.A}"`, "1.5", "five", "40", "41", "1,000")
	add("penalty", row("    penalty: VALUE\n"),
		"none", "retry-after", "for", "{for: 5s}", "{retry-after: 5s}", "until-midnight", "{until-midnight: Asia/Shanghai}", "until-first", "ratelimit", "[retry-after, {for: 5s}]",
		"{longest: [retry-after, {for: 5s}]}", "{longest: []}", "{when: {status: 429, penalty: {for: 5s}}}", "{when: {status: 429, penalty: {retry-after: 5s}}}", "{when: {status: 429, penalty: until-midnight}}",
		"{when: {penalty: {for: 5s}, status: [429, 503]}}", "{when: {method: POST, penalty: {for: 5s}}}", "{when: {method: POST, penalty: {codes: {fields: a, lasts: {'1': 1s}}}}}",
		"{when: {penalty: retry-after}}", "{when: {status: 429}}", "{when: {status: 429, status: 503, penalty: {for: 5s}}}", "{when: 429}", "{when: {status: 42900, penalty: retry-after}}", "{when: {status: [], penalty: retry-after}}", "{when: {status: 429, pennalty: none}}",
		"{when: {media: application/json, penalty: {for: 5s}}}", "{when: {media: 'text/html; charset=utf-8', penalty: {for: 5s}}}", "{when: {media: json, penalty: {for: 5s}}}",
		"{when: {header: {X-Banned: ''}, penalty: {for: 5s}}}", "{when: {header: {'X Banned': ''}, penalty: {for: 5s}}}", "{when: {header: {}, penalty: {for: 5s}}}",
		"{when: {host: 'https://a.com', penalty: retry-after}}", "{when: {host: a.com:443, penalty: retry-after}}", "{when: {path: v1/*, penalty: retry-after}}", "{when: {path: '/v1/{id}', penalty: retry-after}}", "{when: {method: POTS, penalty: retry-after}}",
		"{codes: {fields: errcode, lasts: {'1': 1s}}}", "{codes: {fields: errcode, lasts: {'1': soon}}}", "{codes: {fields: errcode, lasts: {1: not-refused}}}", "{codes: {fields: [], lasts: {'1': 1s}}}", "{codes: {fields: errcode, lasts: {}}}",
		"{codes: {fields: '', lasts: {'1': 1s}}}", "{codes: {fields: errcode, lasts: {'1': 1s}, end: {for: 5s}}}", "{codes: {fields: errcode, lasts: {'1': 1s}, pattern: '['}}", "{codes: {lasts: {'1': 1s}}}",
		"{text: {pattern: busy, lasts: 5s}}", "{text: {pattern: '', lasts: 5s}}", "{text: {pattern: '.*', lasts: 5s}}", "{text: {pattern: 5, lasts: 5}}", "{text: {pattern: busy, lasts: 5s, end: until-midnight}}",
		"{printed: {pattern: '[0-9]+', as: {after: 1s}}}", "{printed: {pattern: '[0-9]+', as: {after: 1s, at: '2006'}}}", "{printed: {as: {at: YYYY-MM-DD}}}", "{printed: {as: {at: '2006-01-02', zone: Asia/Nowhere}}}", "{printed: {as: {after: 1s, zone: UTC}}}", "{printed: {as: {}}}",
		"{headers: {remaining: X-Left, reset: X-Reset}}", "{headers: {limit: X-Limit}}", "{headers: {remaining: 'X Left'}}", "{headers: {remaining: X-Left, status: 4290}}", "{ratelimit: {prefix: 'X '}}",
		"{codes: {}, text: {}}", "{cods: {}}", "{when: {query: id, penalty: {codes: {fields: a, lasts: {'1': 1s}}}}}", "{when: {query: id, penalty: {for: 5s}}}", "{when: {query: [], penalty: retry-after}}", "another-row", "{when: {path: /v1/*, penalty: another-row}}", "{when: {status: 429, penalty: [another-row, {for: 5s}]}}", "{when: {status: 429, penalty: {retry-after: none}}}", "{when: {status: 429, penalty: []}}",
		"{codes: {fields: errcode, lasts: {'1': another-row, '2': 1s}, end: [{retry-after: none}, {for: 5s}]}}", "{text: {pattern: busy, lasts: not-refused}}", "{retry-after: none}", "{none: {}}", "{none: 5}", "[none, [none]]", "[]", "{for: +50ms}", "retry_after")
	add("acted", row("    acted: VALUE\n"), "graphql", "GraphQL", "graphq", "success")
	add("quota", row("    quota: VALUE\n"), "ratelimit", "{headers: {remaining: X-Left}}", "{headers: {}}", "{amount: {fields: left}}", "{amount: {fields: left, per: 1m}}", "{amount: {}}", "{when: {status: 200, quota: ratelimit}}", "{when: {quota: ratelimit}}", "header")
	add("settle", row("    settle: VALUE\n"), "{amount: {fields: usage.total}}", "{amount: {fields: usage.total, per: 1m}}", "amount")
	add("adaptive", row("    adaptive: VALUE\n"), "yes", "perhaps", "YES", "ON")
	add("jitter", row("    jitter: VALUE\n"), "50ms", "none", "+50ms", "-50ms", "0s", "50", "1ns", "1h", "50 ms", "50MS", "1.5s", ".5s", "1.s", "2d", "5μs")
	add("headroom", row("    headroom: VALUE\n"), "{low: 0.25}", "{low: '0.25', high: 0}", "{low: 25%}", "{low: 1}", "{low: -0.1}", "{urgent: 0.1}", "{low: 1e-1}", "{low: .5}", "{low: nan}", "0.25")
	add("shadow", row("    shadow: VALUE\n"), "true", "FALSE", "y", "maybe")
	add("scope", row("    scope: VALUE\n"), "fleet", "node", "Fleet", "nodes")
	add("a field of its own", row("    VALUE\n"), "limits: 1", "Key: x", "key:x", "key：x", "key :x", "? key", "- a", "key: x: y", "burst: 40", "x-note: hello")
	add("tunnels", row("tunnels: VALUE\n"), "a.example.com", "[a.example.com, a.example.com:443]", "a.example.com:8443", "b.example.org", "https://a.example.com", "a.example.com/", `"*.example.com"`, "{a.example.com: x}")
	test := "version: 1\npolicies:\n  - {name: a, match: example.com/, limit: 1/s}\ntests:\n"
	add("request of a test", test+"  - request: VALUE\n    policies: [a]\n", "GET https://example.com/", "https://example.com/", "get https://example.com/", "GET example.com/", "GET ftp://example.com/", "GET https:///", "GET", "GET  https://example.com/", "POST https://other.com/")
	add("headers of a test", test+"  - request: GET https://example.com/\n    headers: VALUE\n    policies: [a]\n", "{X-App: a}", "{X App: a}", "{X-App: 1}", "{X-App: [a]}", "{host: other.org}")
	add("policies of a test", test+"  - request: GET https://example.com/\n    policies: VALUE\n", "[a]", "a", "[b]", "[a, a]", "[]", "{a: {cost: 1}}", "{a: {cost: 2}}", "{a: {key: x}}", "{a: {cots: 1}}", "{a: 1}", "{a: {cost: '1', key: ''}}", "{A: {}}")
	add("answer of a test", test+"  - request: GET https://example.com/\n    policies: [a]\n    closes: {}\n    answer: VALUE\n", "{status: 429, headers: {Retry-After: 5}}", "{status: 200, body: '{}'}", "{}", "{status: 99}", "{headers: {X App: a}}", "{statuss: 429}")
	add("closes of a test", test+"  - request: GET https://example.com/\n    policies: [a]\n    answer: {status: 429, headers: {Retry-After: 5}}\n    closes: VALUE\n", "{a: 5s}", "{a: 6s}", "{a: not-refused}", "{a: another-row}", "{b: 5s}", "{a: 5}")
	add("a preset of the catalog", "version: 1\npresets:\n  - VALUE\n", "edgar", "{edgar: {address: a, account: b, shadow: yes}}", "{edgar: {caller: {account: {header.X}}}}", "{edgar: {per-second: 5}}", "{edgar: {host: a b}}",
		"{zoom: {plan: pro}}", "{zoom: {plan: gold}}", "{zoom: {light: 0}}", "{zoom: {light: 99999999999999}}", "{ncbi: {per-second: 10}}", "{edgar: {}, zoom: {}}")
	add("a preset", "version: 1\npresets:\n  - VALUE\n", "dingtalk", "dingtakl", "{github: {account: me}}", "{github: {account: ''}}", "{github: {per-hour: 0}}", "{github: {per-hour: '5000'}}", "{github: {perhour: 1}}",
		"{github: {caller: {}}}", "{github: {caller: {account: '{header.X}'}}}", "{github: {caller: {account: '{org}'}}}", "{github: {caller: {account: '{route}'}}}", "{feishu: {caller: {}}}", "{slack: {tier: '2'}}", "{slack: {tier: 9}}", "{slack: {methods: {a: 1}}}",
		"{dingtalk: {apis: []}}", "{dingtalk: {host: 'https://x'}}", "{dingtalk: {edition: pro}}", "{dingtalk: {edition: professional-3, old-contract: yes, packages: 2, buffer: yes, robot-per-month: 500, receivers: '{header.X-People}'}}", "{dingtalk: {packages: 0}}", "{dingtalk: {edition: {per-second: 40, per-month: 1_000_000, webhooks: 100_000}}}", "{dingtalk: {edition: {per-second: 0, per-day: 7}}}", "{dingtalk: {}, github: {}}", "{github: {shadow: Yes}}", "{wechat: {per-day: {/cgi-bin/a: 0}}}", "{shopify: {plan: plus}}", "{riot: {limits: [20/s, 100/2m]}}", "{riot: {limits: []}}", "{spapi: {operations: {name: a, match: GET /a, limit: 1/s}}}", "{hubspot: {zone: Nowhere}}", "{openai: {model: {header.X-Model}}}")
	return all
}

// TestValues: what sound requires holds for values near those of the corpus, in each field.
func TestValues(t *testing.T) {
	s, files := compiled(t), fieldFiles()
	const seed = 1
	r := rand.New(rand.NewPCG(seed, seed))
	signs := []rune("0123456789.+-_eExsmhdnuµμyYoOnNfFtrTRuU'\":,{}[]/* ~!&|>#%@ 　：“７a")
	for range soak.Seeds(20_000, 3_000) {
		f := files[r.IntN(len(files))]
		values := slices.Concat(f.values, anything)
		value := []rune(values[r.IntN(len(values))])
		for range 1 + r.IntN(3) {
			at := r.IntN(len(value) + 1)
			end := min(at+r.IntN(2), len(value))
			value = slices.Replace(value, at, end, signs[r.IntN(len(signs))])
			if r.IntN(3) == 0 {
				value = slices.Delete(value, at, at+1)
			}
		}
		sound(t, s, []byte(strings.Replace(f.file, "VALUE", string(value), 1)))
	}
}

// An upstream answers a request with a status, a body and, in pairs, fields.
type upstream func(r *http.Request) (status int, body string, fields []string)

func (u upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body, fields := u(r)
	resp := &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}, "Content-Type": {"application/json"}},
		Body:   io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
	for i := 0; i < len(fields); i += 2 {
		resp.Header.Add(fields[i], fields[i+1])
	}
	return resp, nil
}

// under returns a transport with the policies of a file, in front of an upstream.
func under(t *testing.T, policies string, wait time.Duration, up upstream) *throttle.Transport {
	t.Helper()
	file, err := policyfile.Parse("f.yaml", []byte("version: 1\npolicies:\n"+policies))
	require.NoError(t, err)
	tr, err := throttle.New(throttle.Config{Store: memstore.New(), Base: up, Policies: file.Policies, MaxWait: wait})
	require.NoError(t, err)
	return tr
}

// send sends a request, and returns its answer; nil if it was not let through.
func send(t *testing.T, tr *throttle.Transport) *http.Response {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/items", nil)
	require.NoError(t, err)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		require.ErrorIs(t, err, throttle.ErrLimited)
		return nil
	}
	require.NoError(t, resp.Body.Close())
	return resp
}

// sleepUntil sleeps until a moment of the clock of a bubble.
func sleepUntil(t *testing.T, moment string) {
	t.Helper()
	at, err := time.Parse(time.RFC3339, moment)
	require.NoError(t, err)
	time.Sleep(time.Until(at))
}

// TestClosesAnotherRow: a test may say that a refusal is about another row, which is false if the row closes or has no opinion.
func TestClosesAnotherRow(t *testing.T) {
	for closes, problem := range map[string]string{
		"a: 5s":                 "",
		"a: 5s, b: another-row": "",
		"a: another-row":        `closes policy "a" for 5s, and not for another-row`,
		"a: 5s, b: 5s":          `closes policy "b" for another-row, and not for 5s`,
		"a: 5s, c: another-row": `closes policy "c" for no time, and not for another-row`,
	} {
		f, err := policyfile.Parse("test", []byte(`version: 1
policies:
  - {name: a, match: /, limit: 1/s, penalty: {codes: {fields: code, lasts: {"7": 5s}}}}
  - {name: b, match: /, limit: 1/s, penalty: {codes: {fields: code, lasts: {"7": another-row}}}}
  - {name: c, match: /, limit: 1/s, penalty: {codes: {fields: code, lasts: {"8": 5s}}}}
tests:
  - request: GET https://example.com/
    policies: [a, b, c]
    answer: {status: 200, headers: {Content-Type: application/json}, body: '{"code": 7}'}
    closes: {`+closes+`}
`))
		require.NoError(t, err)
		if problem == "" {
			require.NoError(t, f.Check(), closes)
		} else {
			require.ErrorContains(t, f.Check(), problem, closes)
		}
	}
}

// TestARefusalThatSaysLittleStopsTheOthers: a Retry-After without a reset closes a row without a limit.
// Refused is only what was in flight: a caller comes every 10 ms, and an answer takes 50 ms.
func TestARefusalThatSaysLittleStopsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, "2026-01-01T00:00:00Z")
		began := time.Now()
		var refused atomic.Int64
		tr := under(t, `  - {name: a, match: /, limit: unlimited, penalty: {headers: {remaining: x-ratelimit-remaining, reset: x-ratelimit-reset}}}`, time.Hour,
			func(*http.Request) (int, string, []string) {
				time.Sleep(50 * time.Millisecond)
				if time.Since(began) < 30*time.Second {
					refused.Add(1)
					return 429, "", []string{"X-RateLimit-Remaining", "0", "Retry-After", "30"}
				}
				return 200, "", nil
			})

		var callers sync.WaitGroup
		for i := range 100 {
			callers.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				for send(t, tr).StatusCode == 429 {
				}
			})
		}
		callers.Wait()
		require.LessOrEqual(t, refused.Load(), int64(6))
		require.GreaterOrEqual(t, time.Since(began), 30*time.Second)
	})
}

// TestARefusalThatSaysNothingOfTheTime closes the row for about a second.
func TestARefusalThatSaysNothingOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, "2026-01-01T00:00:00Z")
		tr := under(t, `  - {name: a, match: /, limit: 1000/10m, penalty: &h {headers: {remaining: x-ratelimit-remaining, reset: x-ratelimit-reset}}, quota: *h}`, time.Hour,
			func(*http.Request) (int, string, []string) {
				return 429, "", []string{"X-RateLimit-Remaining", "0.0", "X-RateLimit-Reset", "0", "X-RateLimit-Used", "1000"}
			})

		require.Equal(t, time.Second, throttle.AnswerOf(send(t, tr)).Close)
		began := time.Now()
		send(t, tr)
		require.InDelta(t, 1.75, time.Since(began).Seconds(), 1.25)
	})
}

// TestADayWithoutAMidnight closes the row until its date changes.
func TestADayWithoutAMidnight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, "2026-09-06T03:30:00Z") // 23:30, and an hour before 01:00
		tr := under(t, `  - {name: a, match: /, limit: unlimited, penalty: {when: {status: [429], penalty: {until-midnight: America/Santiago}}}}
  - {name: b, match: /, limit: 1/day America/Santiago}`, time.Hour,
			func(*http.Request) (int, string, []string) { return 429, "", nil })

		began := time.Now()
		require.Equal(t, 30*time.Minute, throttle.AnswerOf(send(t, tr)).Close)
		send(t, tr)
		require.Equal(t, 30*time.Minute, time.Since(began).Truncate(time.Minute))
	})
}

// TestCountsWithParameters: what others have spent is known from answers with parameters.
func TestCountsWithParameters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, "2026-01-01T00:00:00Z")
		left, refused := 3, 0
		tr := under(t, `  - {name: a, match: /, limit: 100/6h, penalty: &h {headers: {remaining: ratelimit-remaining, per: 6h}}, quota: *h}`, 10*time.Second,
			func(*http.Request) (int, string, []string) {
				if left == 0 {
					refused++
					return 429, "", []string{"RateLimit-Limit", "100;w=21600", "RateLimit-Remaining", "0;w=21600"}
				}
				left--
				return 200, "", []string{"RateLimit-Limit", "100;w=21600", "RateLimit-Remaining", fmt.Sprintf("%d;w=21600", left)}
			})
		for range 40 {
			send(t, tr)
		}
		require.LessOrEqual(t, refused, 2)
	})
}

// TestRetryAfterIsNeverLost: a 429 whose Retry-After no part of a penalty reads closes the row all the
// same, unless a part chooses answers by itself.
func TestRetryAfterIsNeverLost(t *testing.T) {
	const codes, page = `codes: {fields: code, lasts: {"7": 1s, "8": not-refused}}`, `text: {pattern: slow, lasts: 1s}`
	for penalty, want := range map[string]time.Duration{
		`{` + codes + `}`:                           30 * time.Second,
		`{` + page + `}`:                            30 * time.Second,
		`{printed: {fields: wait}}`:                 30 * time.Second,
		`{headers: {remaining: x-left}}`:            30 * time.Second,
		`[ratelimit, {` + page + `}]`:               30 * time.Second,
		`{longest: [ratelimit, {` + page + `}]}`:    30 * time.Second,
		`retry-after`:                               30 * time.Second,
		`none`:                                      0,
		`{none: {}}`:                                0,
		`{headers: {remaining: a, status: 403}}`:    0,
		`{ratelimit: {status: [403, 503]}}`:         0,
		`{when: {status: 418, penalty: {for: 1s}}}`: 0,
		`[{` + page + `}, {when: {header: {x-a: ""}, penalty: {for: 1s}}}]`: 0,
		`{codes: {fields: money, lasts: {"yes": not-refused}}}`:             -1,
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := under(t, "  - {name: a, match: /, limit: unlimited, penalty: "+penalty+"}", time.Hour,
				func(*http.Request) (int, string, []string) {
					return 429, `{"money":"yes"}`, []string{"Retry-After", "30"}
				})
			a := throttle.AnswerOf(send(t, tr))
			require.Equal(t, max(0, want), a.Close, penalty)
			require.Equal(t, want < 0, a.Verdict == throttle.VerdictNotRefused, penalty)
		})
	}
}

// TestAnswersOfTheirOwn: the example of the page reads the forms that some platforms have for themselves.
func TestAnswersOfTheirOwn(t *testing.T) {
	file, err := policyfile.Load("testdata/forms.yaml") // which docs/reference/policyfile.md shows
	require.NoError(t, err)
	rows := make(map[string]throttle.Policy)
	for _, p := range file.Policies {
		rows[p.Name] = p
	}

	answer := func(status int, body string, fields ...string) *http.Response {
		resp, err := upstream(func(*http.Request) (int, string, []string) { return status, body, fields }).RoundTrip(nil)
		require.NoError(t, err)
		resp.Header.Set("Date", "Thu, 01 Jan 2026 12:14:00 GMT")
		return resp
	}
	usage := answer(200, "", "X-RateLimit-Limit", "600,30000", "X-RateLimit-Usage", "598,27536")
	for name, want := range map[string]throttle.Quota{
		"quarter-hour": {Left: 2, Reset: time.Minute},
		"day":          {Left: 2464, Reset: 11*time.Hour + 46*time.Minute},
	} {
		q, ok := rows[name].Answer(usage).Left()
		require.True(t, ok)
		require.Equal(t, want, q, name)
	}

	pause := answer(200, `{"items":[1,2],"backoff":10}`)
	require.Equal(t, throttle.Answer{Verdict: throttle.VerdictPartly, Close: 10 * time.Second}, rows["method"].Answer(pause))
	require.Zero(t, rows["method"].Answer(answer(200, `{"items":[1,2]}`)))
	require.Equal(t, throttle.VerdictRefused, rows["method"].Answer(answer(429, "")).Verdict)

	const business = "X-Business-Use-Case-Usage"
	require.Equal(t, throttle.Refused(12*time.Minute), rows["business"].Answer(answer(400, "", business, `{"1":[{"call_count":100,"estimated_time_to_regain_access":12}]}`)))
	require.Equal(t, throttle.Refused(30*time.Minute), rows["business"].Answer(answer(400, "", business,
		`{"1":[{"estimated_time_to_regain_access":0},{"estimated_time_to_regain_access":12}],"2":[{"estimated_time_to_regain_access":30}]}`)))
	require.Zero(t, rows["business"].Answer(answer(400, "", business, `{"1":[{"call_count":10,"estimated_time_to_regain_access":0}]}`)))
	require.Zero(t, rows["business"].Answer(answer(400, "", business, `{"1":`)))
	require.Zero(t, rows["business"].Answer(answer(400, "")))
}

// TestAPauseOnSuccess closes the method, and the answer is not repeated.
func TestAPauseOnSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		tr := under(t, `  - {name: a, match: /, key: "{path}", limit: 30/s, penalty: [retry-after, {printed: {fields: backoff}}], acted: success}`, time.Hour,
			func(*http.Request) (int, string, []string) {
				sent++
				return 200, `{"items":[1],"backoff":10}`, nil
			})

		began := time.Now()
		require.Equal(t, throttle.VerdictPartly, throttle.AnswerOf(send(t, tr)).Verdict, "a good answer is not repeated")
		require.Equal(t, 1, sent)
		send(t, tr)
		require.Equal(t, 10*time.Second, time.Since(began).Truncate(time.Second))
	})
}

// TestEmptyHeadersAreFound: headers that name no field are found whatever else is wrong in the
// file, and a field that has a mistake is not taken for one that is missing.
func TestEmptyHeadersAreFound(t *testing.T) {
	_, err := policyfile.Parse("f", []byte(`version: 1
policies:
  - {name: a, match: /, limit: 1/fortnight}
  - {name: b, match: /, limit: 1/s, quota: {headers: {limit: X-Limit}}}
  - {name: c, match: /, limit: 1/s, penalty: {headers: {reset: []}}}
  - {name: d, match: /, limit: 1/s, penalty: {headers: {remaining: ""}}}
`))
	var found []string
	for _, e := range policyfile.Mistakes(err) {
		found = append(found, e.Error())
	}
	require.Len(t, found, 4, "%v", found)
	require.Equal(t, "f:4:54: headers need remaining, used or reset", found[1])
	require.Equal(t, `f:5:64: the name of a header is expected here, not a list`, found[2])
	require.Equal(t, "f:6:68: the name of a header is missing", found[3])
}

package policyfile_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
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

// TestKeyOfTheFirst: of several values the first counts that is not empty, and the key is that of the value
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

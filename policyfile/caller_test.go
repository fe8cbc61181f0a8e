package policyfile_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/policyfile"
)

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

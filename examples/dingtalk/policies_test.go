package main

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/examples/dingtalk/fake"
	"github.com/fleetthrottle/throttle/memstore"
)

func TestRefusal(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		want   string
	}{
		{"success", 200, `{"errcode":0,"errmsg":"ok"}`, ""},
		{"success of the robot's own example", 200, `{"errcode":"0"}`, ""},
		{"success of the new API", 200, `{"nick":"Employee 0001"}`, ""},
		{"success cut short", 200, `{"errcode":0,"result":[{"dept_id":`, ""},
		{"wrapped", 200, `{"errcode":88,"sub_code":"90018","errmsg":"…"}`, "90018"},
		{"wrapped, as a number", 200, `{"errcode":"88","sub_code":90018}`, "90018"},
		{"plain", 200, `{"errmsg":"…","errcode":90002}`, "90002"},
		{"new", 403, `{"code":"Forbidden.AccessDenied.QpsLimitForAppkeyAndApi","message":"…"}`, "QpsLimitForAppkeyAndApi"},
		{"not throttled", 400, `{"code":"InvalidAuthentication"}`, "InvalidAuthentication"},
		{"ban", 200, `{"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"24ce"}`, banned},
		{"ban with spaces", 403, ` { "punish" : "deny" }`, banned},
		{"ban without punish", 200, `{"status":1111,"source":"x5"}`, banned},
		{"ban before errcode", 200, `{"punish":"deny","errcode":130101}`, banned},
		{"page", 200, "\n<!DOCTYPE html>", banned},
		{"no JSON", 502, `bad gateway`, "502"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, refusal(c.status, []byte(c.body)))
		})
	}
}

// rowsOf are the rows that a URL meets, and their limits.
func rowsOf(t *testing.T, a account, url string) []string {
	t.Helper()
	transport, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: policies(a)})
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, nil)
	require.NoError(t, err)
	var rows []string
	for _, c := range transport.Explain(r)[:3] {
		rows = append(rows, c.Budget.Policy+" "+c.Limit.String()+" "+c.Jitter.String())
	}
	return rows
}

func TestAccountsHaveTheirNumbers(t *testing.T) {
	real := config{base: "https://oapi.dingtalk.com", edition: "professional", jitter: time.Second}
	require.Equal(t, []string{"dingtalk-ip 10000/20s 1s", "dingtalk-global unlimited 1s", "dingtalk-api 40/s 1s"},
		rowsOf(t, real.account(), "https://oapi.dingtalk.com"+pathPeople))
	local := config{base: "http://127.0.0.1:8080", edition: "exclusive"}
	require.Equal(t, []string{"dingtalk-ip 10000/20s 35ms", "dingtalk-global unlimited 35ms", "dingtalk-api 60/s 35ms"},
		rowsOf(t, local.account(), "http://127.0.0.1:8080"+pathPeople))
}

// TestGaugeReadsTheAddress: it asks for the budget that the client's requests book.
func TestGaugeReadsTheAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, a := memstore.New(), account{Egress: "here", Host: "fake", Ban: time.Minute}
		g, err := newGauge(store, a)
		require.NoError(t, err)
		require.Zero(t, g.closed(t.Context()))
		upstream := fake.New(fake.Options{Address: 1, BanFor: time.Minute})
		client, err := newClient(store, policies(a), wire{upstream}, nil)
		require.NoError(t, err)
		for range 2 { // the second is banned, and waits for the end
			resp, err := client.Get("http://fake/gettoken")
			require.NoError(t, err)
			resp.Body.Close()
		}
		require.Equal(t, 1, upstream.Bans())
		require.Zero(t, g.closed(t.Context()))
		require.NoError(t, g.limiter.Pause(t.Context(), g.address, time.Hour))
		require.Equal(t, time.Hour, g.closed(t.Context()))
	})
}

// openAddress is a gauge of an address that nothing has closed.
func openAddress(t *testing.T) *gauge {
	t.Helper()
	g, err := newGauge(memstore.New(), account{Host: "fake"})
	require.NoError(t, err)
	return g
}

package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
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

// realAccount is an account at the real DingTalk.
func realAccount(perMonth int) account {
	return account{
		App: "app", Egress: "here", PerSecond: 20, PerMonth: perMonth,
		OAPI: "oapi.dingtalk.com", API: "api.dingtalk.com", Any: "*.dingtalk.com",
	}
}

func TestEachCodeClosesItsOwnRows(t *testing.T) {
	closedBy := func(body string) map[string]time.Duration {
		closed := make(map[string]time.Duration)
		for _, row := range policies(realAccount(5000)) {
			resp := &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(body))}
			if d := row.Penalty(resp); d > 0 {
				closed[row.Name] = d
			}
			left, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, body, string(left))
		}
		return closed
	}
	require.Empty(t, closedBy(`{"errcode":0}`))
	require.Empty(t, closedBy(`{"errcode":88,"sub_code":"40014"}`))
	require.Equal(t, map[string]time.Duration{"dingtalk-ip": 5 * time.Minute},
		closedBy(`{"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"…"}`))
	require.Equal(t, map[string]time.Duration{"dingtalk-api": time.Second, "dingtalk-contact-users": time.Second},
		closedBy(`{"errcode":88,"sub_code":"90018"}`))
	require.Equal(t, map[string]time.Duration{"dingtalk-global": time.Second}, closedBy(`{"errcode":90002}`))
	require.Equal(t, map[string]time.Duration{"dingtalk-robot": 10 * time.Minute}, closedBy(`{"errcode":660026}`))
	require.Equal(t, map[string]time.Duration{"dingtalk-month": throttle.MaxPenalty}, closedBy(`{"errcode":90020}`))
}

func TestRequestsMeetTheirRows(t *testing.T) {
	transport, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: policies(realAccount(5000))})
	require.NoError(t, err)
	for target, want := range map[string][]string{
		"https://oapi.dingtalk.com/topapi/v2/user/list":            {"dingtalk-ip", "dingtalk-api", "dingtalk-global"},
		"https://oapi.dingtalk.com/robot/send":                     {"dingtalk-ip", "dingtalk-api", "dingtalk-global", "dingtalk-robot"},
		"https://oapi.dingtalk.com/topapi/attendance/getcolumnval": {"dingtalk-ip", "dingtalk-api", "dingtalk-global", "dingtalk-month"},
		"https://api.dingtalk.com/v1.0/contact/users/x":            {"dingtalk-ip", "dingtalk-contact-users"},
		"https://api.dingtalk.com/v1.0/workflow/processInstances":  {"dingtalk-ip", "dingtalk-month"},
		"https://example.com/topapi/v2/user/list":                  nil,
	} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", target, nil)
		require.NoError(t, err)
		var names []string
		for _, charge := range transport.Explain(r) {
			names = append(names, charge.Budget.Policy)
		}
		require.Equal(t, want, names, target)
	}
}

func TestPatternForBothHosts(t *testing.T) {
	require.Equal(t, "127.0.0.1:80", both("127.0.0.1:80", "127.0.0.1:80"))
	require.Equal(t, "*.dingtalk.com", both("oapi.dingtalk.com", "api.dingtalk.com"))
	require.Equal(t, "", both("127.0.0.1:80", "api.dingtalk.com"))
}

package tencentmeeting_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/tencentmeeting"
)

const create = "POST https://api.meeting.qq.com/v1/meetings"

func usual(status int) presettest.Case {
	return presettest.Case{Request: create, Sends: presettest.JSON(), Body: `{"userid":"ada","subject":"x"}`, Status: status, Header: presettest.JSON()}
}

func TestRefusals(t *testing.T) {
	elsewhere := presettest.Recorded(t, "minute.http").As("with status 200", "tencentmeeting-minute 1m")
	elsewhere.Status = 200
	presettest.Run(t, tencentmeeting.Policies(tencentmeeting.Options{}), usual(500), []presettest.Case{
		presettest.Recorded(t, "minute.http").As("an app's minute", "tencentmeeting-minute 1m"),
		// The bubble begins at 08:00 in Beijing.
		presettest.Recorded(t, "day.http").As("an app's day", "tencentmeeting-day 16h"),
		presettest.Recorded(t, "endpoint.http").As("an endpoint", "tencentmeeting-endpoint 1m"),
		presettest.Recorded(t, "create.http").As("a user's new meetings", "tencentmeeting-create 10m"),
		elsewhere,
		{Name: "a gateway", Status: 429, Header: presettest.Header{"Content-Type": "text/html", "Retry-After": "9"}, Answers: "<html>", Closes: "tencentmeeting-minute 9s"},
		{Name: "a day, with 429", Status: 429, Answers: `{"error_info":{"error_code":190311}}`, Closes: "tencentmeeting-day 16h"},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, tencentmeeting.Policies(tencentmeeting.Options{}), usual(500), []presettest.Case{
		{Name: "a month's meetings", Answers: `{"error_info":{"error_code":500168,"message":"每月总接口调用次数超过限制"}}`},
		{Name: "an error", Status: 400, Answers: `{"error_info":{"error_code":190303,"message":"请求参数错误"}}`},
		{Name: "a meeting whose subject is a refusal", Status: 200, Answers: `{"meeting_info_list":[{"subject":"error_info","error_code":190310}]}`},
		{Name: "one backend is away", Status: 503, Header: presettest.JSON("Retry-After", "9")},
		{Name: "another host", Request: "https://meeting.tencent.com/v1/meetings", Status: 429},
	})
}

func TestNumbers(t *testing.T) {
	require.Equal(t, "tencentmeeting-minute 600/m, tencentmeeting-day unlimited, tencentmeeting-create 2000/h, tencentmeeting-endpoint unlimited",
		presettest.Limits(tencentmeeting.Policies(tencentmeeting.Options{ThirdParty: true, PerMinute: 600})))
}

func TestCost(t *testing.T) {
	for body, cost := range map[string]int{
		`{"settings":{"userid":"x"},"userid":"ada"}`: 1, `{"userid":7}`: 0, `{"subject":"x"}`: 0, `["userid","ada"]`: 0, ``: 0,
	} {
		r := presettest.Request(t, create, body)
		require.Equal(t, cost, presettest.Cost(t, tencentmeeting.Policies(tencentmeeting.Options{}), "tencentmeeting-create", r), body)
		require.Equal(t, 1, presettest.Cost(t, tencentmeeting.Policies(tencentmeeting.Options{User: "ada"}), "tencentmeeting-create", r), body)
	}
}

func TestSharedBudgets(t *testing.T) {
	with := func(path, user string) *http.Request {
		r := presettest.Request(t, "POST https://api.meeting.qq.com/v1/"+path, `{"userid":"`+user+`"}`)
		r.Header.Set("X-User", user)
		return r
	}
	third := tencentmeeting.Options{ThirdParty: true, Caller: func(r *http.Request) (app, user string) { return "a", r.Header.Get("X-User") }}
	for _, c := range []struct {
		name, row  string
		options    tencentmeeting.Options
		one, other *http.Request
		same       bool
	}{
		{"an app's users", "tencentmeeting-minute", tencentmeeting.Options{}, with("meetings", "ada"), with("meetings", "bob"), true},
		{"the users of a third party's app", "tencentmeeting-minute", third, with("meetings", "ada"), with("meetings", "bob"), false},
		{"who creates", "tencentmeeting-create", tencentmeeting.Options{}, with("meetings", "ada"), with("meetings", "bob"), false},
		{"an endpoint", "tencentmeeting-endpoint", tencentmeeting.Options{}, with("meetings/123/cancel", "ada"), with("meetings/456/cancel", "ada"), true},
		{"another endpoint", "tencentmeeting-endpoint", tencentmeeting.Options{}, with("meetings/123/cancel", "ada"), with("meetings/123", "ada"), false},
	} {
		require.Equal(t, c.same, presettest.Shared(t, tencentmeeting.Policies(c.options), c.row, c.one, c.other), c.name)
	}
}

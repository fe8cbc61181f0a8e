package dingtalk_test

import (
	"testing"

	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

// The requests that are answered.
const (
	listSub  = "POST https://oapi.dingtalk.com/topapi/v2/department/listsub?access_token=t"
	userList = "GET https://oapi.dingtalk.com/user/list?access_token=t"
	column   = "POST https://oapi.dingtalk.com/topapi/attendance/getcolumnval?access_token=t"
	send     = "POST https://oapi.dingtalk.com/robot/send?access_token=robot"
	streamed = "PUT https://api.dingtalk.com/v1.0/card/streaming"
	approval = "GET https://api.dingtalk.com/v1.0/workflow/processInstances"
	contact  = "GET https://api.dingtalk.com/v1.0/contact/users/me"
)

var asJSON = presettest.Header{"Content-Type": "application/json;charset=utf-8"}

// TestOldAnswers has the bodies that are known, with status 200.
func TestOldAnswers(t *testing.T) {
	const crowded = `当前所有钉钉应用调用该接口次数过多，超出了该接口承受的最大qps，请求被暂时限制了，建议错开整点时刻调用该接口, ` +
		`apiPath(dingtalk.oapi.v2.department.listsub), 从 2026-09-03 00:01:02 到 2026-09-03 00:01:02 请求总次数超过 1200 次, ` +
		`限制将在 2026-09-03 00:01:03 结束.`
	const crowdedIn2018 = `{"errcode":88,"errmsg":"ding talk error[subcode=90002,submsg=您的服务器调用钉钉开放平台当前接口的所有请求都被暂时禁用了, ` +
		`apiPath(dingtalk.oapi.process.listbyuserid), 从 2018-12-09 15:01:10 到 2018-12-09 15:01:10 请求总次数超过了 100 次, ` +
		`处罚将在 2018-12-09 15:01:11 结束.]"}`
	const crowdedIn2019 = `{"errmsg":"您的服务器调用钉钉开放平台当前接口的所有请求都被暂时禁用了, apiPath(/user/list), ` +
		`从 2019-02-13 20:40:04 到 2019-02-13 20:40:04 请求总次数超过了 300 次, 处罚将在 2019-02-13 20:40:05 结束.","errcode":90002}`
	// Beijing's eight o'clock is the bubble's midnight.
	const near = "从 2000-01-01 08:00:00 到 2000-01-01 08:00:01 请求总次数超过 20 次, 限制将在 2000-01-01 08:00:02 结束"
	global := "dingtalk-global 2s" // a second, and what Date has lost
	usually := "dingtalk-global 1s"
	robot := "dingtalk-robot 10m"

	presettest.Run(t, dingtalk.Policies(dingtalk.Options{}), presettest.Case{Request: send}, []presettest.Case{
		{Name: "everybody's second", Request: listSub,
			Header:  presettest.Header{"Content-Type": "application/json", "Date": "Wed, 02 Sep 2026 16:01:02 GMT"},
			Answers: `{"errcode":88,"sub_code":"90002","sub_msg":"` + crowded + `","errmsg":"ding talk error[subcode=90002,submsg=` + crowded + `]","request_id":"16l4ew3d47pdp"}`,
			Closes:  global},
		{Name: "everybody's second, without Date", Request: listSub, Header: presettest.Header{"Date": "-"},
			Answers: `{"errcode":88,"sub_code":"90002","sub_msg":"` + crowded + `"}`, Closes: usually},
		{Name: "everybody's second, long over", Request: listSub, Header: presettest.Header{"Date": "Wed, 02 Sep 2026 17:00:00 GMT"},
			Answers: `{"errcode":88,"sub_code":"90002","sub_msg":"` + crowded + `"}`, Closes: usually},
		{Name: "older, without sub_code", Request: listSub, Header: presettest.Header{"Date": "Sun, 09 Dec 2018 07:01:10 GMT"},
			Answers: crowdedIn2018, Closes: global},
		{Name: "not wrapped", Request: userList, Header: presettest.Header{"Date": "Wed, 13 Feb 2019 12:40:04 GMT"}, Answers: crowdedIn2019,
			Closes: global},
		{Name: "an end whose Date is hours late: the clock of this machine says that it is near", Request: listSub,
			Header:  presettest.Header{"Date": "Fri, 31 Dec 1999 21:00:00 GMT"},
			Answers: `{"errcode":88,"sub_code":"90002","sub_msg":"` + near + `"}`, Closes: "dingtalk-global 3s"},
		{Name: "a month", Request: column, Header: presettest.Header{"Date": "Mon, 30 Nov 2026 15:00:00 GMT"},
			Answers: `{"errcode":90020,"errmsg":"您的企业本月api调用量已超过限制,调用量:10001次,额度:10000次,请登录开发者后台-资源管理-查看用量明细"}`,
			Closes:  "dingtalk-month 1h"},
		{Name: "a month that lasts", Request: column, Answers: `{"errcode":90020}`, Closes: "dingtalk-month 24h"},
		{Name: "robot", Answers: `{"errcode":130101,"errmsg":"send too fast, exceed 20 times per minute"}`, Closes: robot},
		{Name: "robot, short", Answers: `{"errcode":130101,"errmsg":"send too fast"}`, Closes: robot},
		{Name: "robot, live in 2026", Answers: `{"errcode":660026,"errmsg":"sending too many messages per minute"}`, Closes: robot},
		{Name: "robot, as documented", Answers: `{"errcode":410100}`, Closes: robot},
		{Name: "webhooks", Answers: `{"errcode":90030,"errmsg":"webhook over limit"}`, Closes: "dingtalk-webhooks 24h"},
	})
}

// TestNewAnswers has the codes of the new API; its messages are not known.
func TestNewAnswers(t *testing.T) {
	api := func(d string) string { return "dingtalk-api " + d }
	var cases []presettest.Case
	for _, c := range []struct {
		status                int
		request, code, closes string
	}{
		{403, streamed, "Forbidden.AccessDenied.QpsLimitForApi", "dingtalk-global 1s"},
		{403, streamed, "Forbidden.AccessDenied.QpsLimitForAppkeyAndApi", api("1s")},
		{403, streamed, "forbidden.accessdenied.qpslimitforapi", "dingtalk-global 1s"},
		{403, streamed, "QpsLimitForAppkeyAndApi", api("1s")},
		{403, streamed, "Forbidden.AccessDenied.QpmLimitForAppkeyAndApi", api("1m")},
		{403, streamed, "Forbidden.AccessDenied.QpsLimitForSuitekeyAndOrgAndApi", api("1s")},
		{403, streamed, "Forbidden.AccessDenied.QpmLimitForSuitekeyAndOrgAndApi", api("1m")},
		{403, streamed, "Forbidden.AccessDenied.QpsLimitForSomethingNew", api("1s")},
		{403, approval, "Forbidden.AccessDenied.ApiCountLimitForOrg", "dingtalk-month 24h"},
		{400, streamed, "Forbidden.AccessDenied.QpsLimitForApi", "dingtalk-global 1s"},
		{400, approval, "qps.exceed.limit", api("1s")},
		{400, approval, "request.overlimit", api("1s")},
		{400, approval, "oaplus.query.limit", api("1s")},
		{400, approval, "failure.operation.requestTooFast", api("1s")},
		{400, approval, "failure.operation.tooManyVisitors", api("1s")},
		{400, approval, "send.too.fast", api("1s")},

		{403, streamed, "Forbidden", ""},
		{403, streamed, "Forbidden.AccessDenied.AccessTokenPermissionDenied", ""},
		{403, streamed, "Forbidden.AccessDenied.IpNotInWhiteList", ""},
		{400, streamed, "InvalidAuthentication", ""},
		{400, streamed, "AuthenticationFailed.MissingParameter", ""},
		{401, streamed, "InvalidAuthentication", ""},
		{429, streamed, "Throttling", ""}, // not documented for DingTalk
	} {
		cases = append(cases, presettest.Case{
			Name: c.code, Request: c.request, Status: c.status, Header: asJSON,
			Answers: `{"code":"` + c.code + `","requestid":"01A08FE7-CD6B-79BB-8B2E-35D8768AD457","message":"…"}`,
			Closes:  c.closes,
		})
	}
	presettest.Run(t, dingtalk.Policies(dingtalk.Options{}), presettest.Case{}, cases)
}

package dingtalk_test

import (
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
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
	reply    = "POST https://oapi.dingtalk.com/robot/sendBySession?session=s"
	notice   = "POST https://oapi.dingtalk.com/topapi/message/corpconversation/asyncsend_v2?access_token=t"
	result   = "POST https://oapi.dingtalk.com/topapi/message/corpconversation/getsendresult?access_token=t"
	task     = "POST https://oapi.dingtalk.com/topapi/workrecord/add?access_token=t"
	push     = "POST https://oapi.dingtalk.com/topapi/message/mass/send?access_token=t"
	people   = "POST https://api.dingtalk.com/v1.0/robot/oToMessages/batchSend"
	group    = "POST https://api.dingtalk.com/v1.0/robot/groupMessages/send"
	dings    = "POST https://api.dingtalk.com/v1.0/robot/ding/send"
	event    = "POST https://api.dingtalk.com/v1.0/calendar/users/u/calendars/primary/events"
	pending  = "POST https://api.dingtalk.com/v1.0/workflow/processCentres/tasks"
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
		{Name: "a code that comes twice", Request: listSub, Answers: `{"errcode":90002,"errcode":0}`, Closes: usually},
		{Name: "no code, and then one", Request: listSub, Answers: `{"errcode":0,"errcode":90002}`},
		{Name: "null, and then a code", Request: listSub, Answers: `{"errcode":null,"errcode":90002}`, Closes: usually},
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

// TestNewAnswers has the codes of the new API with the statuses that the list of codes names.
func TestNewAnswers(t *testing.T) {
	const api, day = "dingtalk-api 1s", "16h" // the bubble begins at eight in Beijing
	const forbidden = "Forbidden.AccessDenied."
	var cases []presettest.Case
	for _, c := range []struct {
		status                int
		request, code, closes string
	}{
		// The platform's own limits.
		{403, streamed, forbidden + "QpsLimitForApi", "dingtalk-global 1s"},
		{403, streamed, "forbidden.accessdenied.qpslimitforapi", "dingtalk-global 1s"},
		{400, streamed, forbidden + "QpsLimitForApi", "dingtalk-global 1s"},
		{403, streamed, forbidden + "QpsLimitForAppkeyAndApi", api},
		{403, streamed, "QpsLimitForAppkeyAndApi", api},
		{403, streamed, forbidden + "QpmLimitForAppkeyAndApi", "dingtalk-api 1m"},
		{403, streamed, forbidden + "QpsLimitForSuitekeyAndOrgAndApi", api},
		{403, streamed, forbidden + "QpmLimitForSuitekeyAndOrgAndApi", "dingtalk-api 1m"},
		{403, streamed, forbidden + "QpsLimitForSomethingNew", api},
		{403, streamed, forbidden + "QpmLimitForSomethingNew", "dingtalk-api 1m"},
		{403, approval, forbidden + "ApiCountLimitForOrg", "dingtalk-month 24h"},

		// Robots. A code where no robot sends is about the API.
		{400, group, "send.byToken.tooFast", "dingtalk-robot-code 1s"},
		{400, group, "too.many.group", "dingtalk-robot-code 1s"},
		{400, people, "too.many.people", "dingtalk-robot-code 1s"},
		{400, people, "send.too.fast", "dingtalk-robot-code 1s"},
		{400, people, "send.toofast", "dingtalk-robot-code 1s"},
		{400, approval, "send.too.fast", api},
		{400, dings, "toomuch.msg", "dingtalk-ding 1m"},
		{400, approval, "toomuch.msg", "dingtalk-api 1m"},
		{400, "GET" + group[4:], "send.too.fast", "dingtalk-api 1s"},

		// Products.
		{400, streamed, "request.too.fast", api},
		{400, streamed, "request.too.tast", api},
		{400, streamed, "request.too.frequent", api},
		{400, streamed, "requestTooMuch", api},
		{400, streamed, "invokeFrequency", api},
		{400, streamed, "invokeFrequentyly", api},
		{400, approval, "request.overlimit", api},
		{500, approval, "request.overlimit", api},
		{400, approval, "oaplus.query.limit", api},
		{500, approval, "oaplus.query.limit", api},
		{400, approval, "qps.exceed.limit", api},
		{400, approval, "failure.operation.requestTooFast", api},
		{400, approval, "failure.operation.operatingFrequencyTooFast", api},
		{400, approval, "failure.operation.tooManyVisitors", api},
		{500, approval, "failure.operation.tooManyVisitors", api},
		{400, pending, "integrated.concurrency.error", api},
		{400, streamed, "request.limit", api},
		{400, streamed, "autoflowLikeTriggerRateLimited", api},
		{400, streamed, "operationConcurrentControl", api},
		{429, streamed, "throttling.device", "dingtalk-company-api 1s"},
		{500, streamed, "systemError.busy", api},
		{500, streamed, "request.often", api},
		{500, streamed, "system.freq.limit", api},
		{400, streamed, "todo.taskCreate.flowControlError", "dingtalk-company-api 1s"},

		// Busy: 429 is a limit, and the others may be.
		{429, streamed, "system.busy", api},
		{400, streamed, "system.busy", api},
		{500, streamed, "system.busy", api},
		{429, streamed, "systemBusy", api},
		{500, streamed, "serviceBusy", api},
		{503, streamed, "serviceBusy", api},

		// An API's day, a person's day, five minutes.
		{400, pending, "integrated.qps.exceed", "dingtalk-company-api " + day},
		{400, pending, "request.illegal", "dingtalk-company-api " + day},
		{400, pending, "daily.call.limit", "dingtalk-company-api " + day},
		{400, event, "flowLimit", "dingtalk-calendar " + day},
		{400, "GET" + event[4:], "flowLimit", "dingtalk-company-api " + day},
		{400, event + "/more/events", "flowLimit", "dingtalk-company-api " + day},
		{400, pending, "updateSpeedfast", "dingtalk-company-api 5m"},

		{403, streamed, "Forbidden", ""},
		{403, streamed, "", ""},
		{403, streamed, forbidden + "AccessTokenPermissionDenied", ""},
		{403, streamed, forbidden + "IpNotInWhiteList", ""},
		{404, streamed, "waterLimitError", ""},
		{404, streamed, "send.too.fast", ""}, // the list has it with 400
		{409, streamed, "invalidRequest.duplicateClientToken", ""},
		{400, streamed, "InvalidAuthentication", ""},
		{400, streamed, "AuthenticationFailed.MissingParameter", ""},
		{401, streamed, "InvalidAuthentication", ""},
		{500, streamed, "systemError", ""},
		{503, streamed, "unavailable", ""},
		{429, streamed, "Throttling", api}, // not documented for DingTalk
		{429, streamed, "", api},
	} {
		cases = append(cases, presettest.Case{
			Name: fmt.Sprint(c.status, " ", c.code), Request: c.request, Status: c.status, Header: asJSON,
			Answers: `{"code":"` + c.code + `","requestid":"01A08FE7-CD6B-79BB-8B2E-35D8768AD457","message":"…"}`,
			Closes:  c.closes,
		})
	}
	presettest.Run(t, dingtalk.Policies(dingtalk.Options{}), presettest.Case{}, cases)
}

// TestRetryAfterIsObeyed: a 429 is a refusal whatever it says, and the time of Retry-After is the least
// that anything stays closed for.
func TestRetryAfterIsObeyed(t *testing.T) {
	after := func(seconds string) presettest.Header {
		return presettest.Header{"Content-Type": "application/json", "Retry-After": seconds}
	}
	word := func(code string) string { return `{"code":"` + code + `"}` }
	presettest.Run(t, dingtalk.Policies(dingtalk.Options{}), presettest.Case{Request: streamed, Status: 429, Header: after("7")}, []presettest.Case{
		{Name: "new code", Answers: word("something.new"), Closes: "dingtalk-api 7s"},
		{Name: "no code", Answers: `{}`, Closes: "dingtalk-api 7s"},
		{Name: "nothing", Closes: "dingtalk-api 7s"},
		{Name: "a page", Header: presettest.Header{"Content-Type": "text/html", "Retry-After": "7"}, Answers: "<html>", Closes: "dingtalk-api 7s"},
		{Name: "a picture", Header: presettest.Header{"Content-Type": "image/png", "Retry-After": "7"}, Closes: "dingtalk-api 7s"},
		{Name: "a coding that nobody reads", Header: presettest.Header{"Content-Encoding": "br", "Retry-After": "7"}, Answers: "?", Closes: "dingtalk-api 7s"},
		{Name: "busy", Answers: word("system.busy"), Closes: "dingtalk-api 7s"},
		{Name: "another budget", Answers: word("Forbidden.AccessDenied.QpsLimitForApi"), Closes: "dingtalk-global 7s"},
		{Name: "a longer code", Answers: word("QpmLimitForAppkeyAndApi"), Closes: "dingtalk-api 1m"},
		{Name: "a day", Request: pending, Answers: word("daily.call.limit"), Closes: "dingtalk-company-api 16h"},
		{Name: "an old code", Answers: `{"errcode":90018}`, Closes: "dingtalk-api 7s"},
		{Name: "a failure of a robot", Request: send, Answers: `{"errcode":660026,"errmsg":"send fail"}`, Closes: "dingtalk-api 7s"},
		{Name: "an unknown token", Answers: word("InvalidAuthentication"), Closes: "dingtalk-api 7s"},
		{Name: "a person whom the request does not tell", Request: task, Answers: `{"errcode":854002}`, Closes: "dingtalk-api 7s"},
		{Name: "a person of several", Request: push, Body: `{"userid_list":"a,b"}`, Answers: `{"errcode":800017}`, Closes: "dingtalk-api 7s"},
		{Name: "a person of several, without a 429", Request: push, Status: 200, Header: asJSON, Body: `{"userid_list":"a,b"}`, Answers: `{"errcode":800017}`},
		{Name: "a limit of notices to all, of another", Request: notice, Body: `{"userid_list":"a"}`, Answers: `{"errcode":41045}`, Closes: "dingtalk-api 7s"},
		{Name: "a limit of notices, of a result", Request: result, Answers: `{"errcode":41047}`, Closes: "dingtalk-api 1m"},
		{Name: "now", Header: after("0"), Answers: `{}`},
		{Name: "nonsense", Header: after("soon"), Answers: `{}`, Closes: "dingtalk-api 1s"},
		{Name: "the ban", Header: after("600"), Answers: denied, Closes: "dingtalk-ip 10m"},
		{Name: "the ban, shorter", Answers: denied, Closes: "dingtalk-ip 5m"},
		{Name: "of a success", Status: 200, Answers: `{"errcode":0}`},
		{Name: "of a refusal with 200", Status: 200, Answers: `{"errcode":88,"sub_code":"90002"}`, Closes: "dingtalk-global 7s"},
		{Name: "of a bare 403", Status: 403, Answers: word("Forbidden"), Closes: "dingtalk-api 7s"},
		{Name: "of a 400", Status: 400, Answers: word("send.too.fast"), Closes: "dingtalk-api 7s"},
		{Name: "of a bad request", Status: 400, Answers: word("InvalidParameter")},
		{Name: "of a backend that is down", Status: 503, Answers: `{}`}, // one of ten in a row
	})
}

// TestResultsOfNotices: what the result of work notices tells of a minute closes the notices, and not the
// question for results.
func TestResultsOfNotices(t *testing.T) {
	of := func(codes ...string) string {
		text := ""
		for _, code := range codes {
			text += `,{"code":` + code + `,"count":1,"userid":"u"}`
		}
		return `{"errcode":0,"send_result":{"read_user_id_list":["v"],"forbidden_user_id_list":["u"],"forbidden_list":[` + text[min(1, len(text)):] + `]}}`
	}
	cases := []presettest.Case{
		{Name: "the application", Answers: of(`"143103"`), Closes: "dingtalk-notices 1m"},
		{Name: "the company", Answers: of("143105", "143104"), Closes: "dingtalk-notices-company 1m"},
		{Name: "both", Answers: of("143104", "143103"), Closes: "dingtalk-notices 1m, dingtalk-notices-company 1m"},
		{Name: "a person", Answers: of("143105", "143106")},
		{Name: "nobody", Answers: of()},
		{Name: "of another call", Request: notice, Body: `{"userid_list":"u"}`, Answers: of("143103")},
	}
	for i := range cases {
		cases[i].Header = asJSON
	}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		for _, c := range cases[:3] { // a question that is free does not wait
			transport, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: dingtalk.Policies(dingtalk.Options{}), Base: answering(c.Answers)})
			require.NoError(t, err)
			for range 2 {
				resp, err := transport.RoundTrip(presettest.Request(t, result))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Zero(t, throttle.AnswerOf(resp), "it is no refusal, and must not be asked again")
			}
			require.Zero(t, time.Since(begin))
			resp, err := transport.RoundTrip(presettest.Request(t, notice, `{"userid_list":"u"}`))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.GreaterOrEqual(t, time.Since(begin), time.Minute)
			begin = time.Now()
		}
	})
	for _, c := range cases { // what is told, without the wait that Run expects of the next request like it
		t.Run(c.Name, func(t *testing.T) {
			r := presettest.Request(t, cmp.Or(c.Request, result), c.Body)
			resp, err := answering(c.Answers).RoundTrip(r)
			require.NoError(t, err)
			var closes []string
			for _, row := range dingtalk.Policies(dingtalk.Options{}) {
				if d := row.Answer(resp).Close; d > 0 {
					closes = append(closes, row.Name+" "+strings.TrimSuffix(d.String(), "0s"))
				}
			}
			require.Equal(t, c.Closes, strings.Join(closes, ", "))
		})
	}
}

// TestOthersLookAtTheAnswerToo: a row of one's own, in front of those of the preset or behind them, and the
// rows of another account read the same answer, also one in gzip.
func TestOthersLookAtTheAnswerToo(t *testing.T) {
	own := []throttle.Policy{{
		Name: "own", Match: "/", Limit: throttle.PerMinute(20),
		Answer: feedback.Codes{Fields: []string{"errcode"}, Lasts: map[string]time.Duration{"90018": time.Minute}}.Answer,
	}}
	other := dingtalk.Policies(dingtalk.Options{Ban: time.Hour})
	for i := range other {
		other[i].Name = "other " + other[i].Name
	}
	preset := dingtalk.Policies(dingtalk.Options{})
	for name, rows := range map[string][]throttle.Policy{
		"in front": slices.Concat(own, preset, other), "behind": slices.Concat(other, preset, own),
	} {
		var packed strings.Builder
		w := gzip.NewWriter(&packed)
		_, err := io.WriteString(w, denied)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		presettest.Run(t, rows, presettest.Case{Request: column}, []presettest.Case{
			{Name: name + " plain", Header: asJSON, Answers: `{"errcode":90018}`, Closes: "own 1m, dingtalk-api 1s, other dingtalk-api 1s"},
			{Name: name + " text, no length", Header: presettest.Header{"Content-Type": "text/plain"}, Chunked: true, Answers: `{"errcode":90002}`,
				Closes: "dingtalk-global 1s, other dingtalk-global 1s"},
			{Name: name + " gzip", Header: presettest.Header{"Content-Type": "text/html", "Content-Encoding": "gzip"}, Answers: packed.String(),
				Closes: "dingtalk-ip 5m, other dingtalk-ip 1h"},
		})
	}
}

// answering is a base that answers with a body in JSON.
type answering string

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(string(a))), ContentLength: int64(len(a)),
	}, nil
}

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
	"testing/iotest"
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
		{Name: "a suite, without a vendor", Answers: of("143204"), Closes: "dingtalk-notices 1m"},
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

// TestReadUnsent has the answers of which both calls are successes, in the forms that the documentation
// and its samples have.
func TestReadUnsent(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want []dingtalk.Unsent
	}{
		"all got it":           {`{"processQueryKey":"k","flowControlledStaffIdList":[],"invalidStaffIdList":["x"]}`, nil},
		"flow control":         {`{"flowControlledStaffIdList":["a","b","a",""]}`, []dingtalk.Unsent{{User: "a"}, {User: "b"}}},
		"null":                 {`{"flowControlledStaffIdList":null,"send_result":null}`, nil},
		"nothing":              {`{}`, nil},
		"a result":             {`{"errcode":0,"errmsg":"ok","send_result":{"unread_user_id_list":["z"],"forbidden_user_id_list":[],"forbidden_list":[]}}`, nil},
		"only users":           {`{"errcode":0,"send_result":{"forbidden_user_id_list":["a"]}}`, []dingtalk.Unsent{{User: "a"}}},
		"users in one text":    {`{"send_result":{"forbidden_user_id_list":"a, b"}}`, []dingtalk.Unsent{{User: "a"}, {User: "b"}}},
		"an empty text":        {`{"send_result":{"forbidden_user_id_list":""}}`, nil},
		"codes as texts":       {`{"send_result":{"forbidden_list":[{"code":"143105","count":"500","userid":"a"}]}}`, []dingtalk.Unsent{{User: "a", Code: dingtalk.PersonPerDay, Count: 500}}},
		"codes as numbers":     {`{"send_result":{"forbidden_list":[{"code":143106,"count":1,"userid":"a"}]}}`, []dingtalk.Unsent{{User: "a", Code: dingtalk.SameTextToday, Count: 1}}},
		"a code that is none":  {`{"send_result":{"forbidden_list":[{"code":"x","userid":"a"}]}}`, []dingtalk.Unsent{{User: "a"}}},
		"in both lists":        {`{"send_result":{"forbidden_user_id_list":["a","b"],"forbidden_list":[{"code":143103,"userid":"b"}]}}`, []dingtalk.Unsent{{User: "b", Code: dingtalk.AppPerMinute}, {User: "a"}}},
		"errcode in a text":    {`{"errcode":"0","flowControlledStaffIdList":["a"]}`, []dingtalk.Unsent{{User: "a"}}},
		"lists somewhere else": {`{"result":{"flowControlledStaffIdList":["a"]}}`, nil},
	} {
		got, err := dingtalk.ReadUnsent(strings.NewReader(c.body))
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}

// TestReadUnsent_Errors: an answer that is no success does not look as if all had got it, and an error
// holds nothing of the answer.
func TestReadUnsent_Errors(t *testing.T) {
	for want, body := range map[string]io.Reader{
		"is no success (errcode 88)": strings.NewReader(`{"errcode":88,"sub_code":"90018","errmsg":"secret"}`),
		"is no success (errcode 0)":  strings.NewReader(`{"code":"too.many.people","message":"secret"}`),
		"is no object in JSON, or":   strings.NewReader(`<html>secret`),
		"has members of other kinds": strings.NewReader(`{"send_result":{"forbidden_user_id_list":{"secret":1}}}`),
		"is longer than 4 MB":        io.MultiReader(strings.NewReader(`{"x":"`), strings.NewReader(strings.Repeat("x", 4<<20))),
		"read who got nothing: cut":  iotest.ErrReader(fmt.Errorf("cut")),
	} {
		got, err := dingtalk.ReadUnsent(body)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
		require.Nil(t, got)
	}
	_, err := dingtalk.ReadUnsent(strings.NewReader(denied))
	require.ErrorContains(t, err, "no success", "the ban has no errcode")
}

// TestWaitOfUnsent: a day ends in Beijing, and all else is taken for a minute.
func TestWaitOfUnsent(t *testing.T) {
	now := time.Date(2026, 11, 30, 15, 59, 0, 0, time.UTC) // 23:59 in Beijing
	for _, code := range []int{dingtalk.PersonPerDay, dingtalk.SameTextToday, dingtalk.SuitePersonPerDay, dingtalk.SuiteSameTextToday} {
		require.Equal(t, time.Minute, dingtalk.Unsent{Code: code}.Wait(now))
		require.Equal(t, 24*time.Hour, dingtalk.Unsent{Code: code}.Wait(now.Add(time.Minute)))
	}
	for _, code := range []int{0, 7, dingtalk.AppPerMinute, dingtalk.CompanyPerMinute, dingtalk.SuitePerMinute, dingtalk.SuiteAllPerMinute} {
		require.Equal(t, time.Minute, dingtalk.Unsent{Code: code}.Wait(now.Add(time.Minute)))
	}
}

// FuzzReadUnsent: whatever an answer says, nobody is named twice or without a name, and an answer that
// cannot be read names nobody.
func FuzzReadUnsent(f *testing.F) {
	f.Add(`{"flowControlledStaffIdList":["a","a"],"send_result":{"forbidden_user_id_list":"a,b","forbidden_list":[{"code":"143103","count":1,"userid":"b"}]}}`)
	f.Add(`{"errcode":"0","send_result":{"forbidden_list":[{"code":9e99,"userid":""}]}}`)
	f.Add(denied)
	f.Fuzz(func(t *testing.T, body string) {
		unsent, err := dingtalk.ReadUnsent(strings.NewReader(body))
		require.False(t, err != nil && unsent != nil)
		seen := make(map[string]bool)
		for _, u := range unsent {
			require.NotEmpty(t, u.User)
			require.False(t, seen[u.User])
			seen[u.User] = true
			require.Positive(t, u.Wait(time.Unix(0, 0)))
		}
	})
}

// envelopes are the ways in which the old API sends a code.
func envelopes(name, request, code, closes string) []presettest.Case {
	var cases []presettest.Case
	for form, body := range map[string]string{
		"plain":             `{"errcode":` + code + `,"errmsg":"…"}`,
		"plain, text":       `{"errmsg":"…","errcode":"` + code + `"}`,
		"wrapped":           `{"errcode":88,"sub_code":"` + code + `","sub_msg":"…","errmsg":"ding talk error[subcode=` + code + `,submsg=…]","request_id":"…"}`,
		"wrapped, numbers":  `{"errcode":"88","sub_code":` + code + `}`,
		"wrapped in errmsg": `{"errcode":88,"errmsg":"ding talk error[subcode=` + code + `,submsg=…]"}`,
	} {
		cases = append(cases, presettest.Case{
			Name: name + code + " " + form, Request: request, Header: asJSON, Answers: body, Closes: closes,
		})
	}
	return cases
}

// TestEveryCodeClosesItsBudget goes through the list of codes, for a company's own
// application and for a vendor's.
func TestEveryCodeClosesItsBudget(t *testing.T) {
	own, vendors := dingtalk.Policies(dingtalk.Options{}), dingtalk.Policies(dingtalk.Options{ISV: "vendor"})
	for _, c := range []struct {
		code, lasts, own, vendors string
	}{
		{"90001", "1s", "dingtalk-ip", "dingtalk-ip"},
		{"90002", "1s", "dingtalk-global", "dingtalk-global"},
		{"90003", "1s", "dingtalk-company", "dingtalk-company"},
		{"90004", "1s", "dingtalk-app", "dingtalk-app"},
		{"90005", "1m", "dingtalk-company-api", "dingtalk-company-api"},
		{"90006", "1m", "dingtalk-api", "dingtalk-api"},
		{"90007", "1m", "dingtalk-company", "dingtalk-isv-company"},
		{"90008", "1m", "dingtalk-company-api", "dingtalk-isv-company-api"},
		{"90009", "1m", "dingtalk-app", "dingtalk-isv"},
		{"90010", "1m", "dingtalk-api", "dingtalk-isv-api"},
		{"90011", "1m", "dingtalk-app", "dingtalk-app"},
		{"90012", "1m", "dingtalk-api", "dingtalk-api"},
		{"90013", "1m", "dingtalk-app", "dingtalk-suite-company"},
		{"90014", "1m", "dingtalk-api", "dingtalk-suite-company-api"},
		{"90017", "1m", "dingtalk-ip", "dingtalk-ip"},
		{"90018", "1s", "dingtalk-api", "dingtalk-api"},
		{"90019", "1s", "dingtalk-api", "dingtalk-suite-company-api"},
		{"90020", "24h", "dingtalk-month", "dingtalk-month"},
	} {
		presettest.Run(t, own, presettest.Case{}, envelopes("", column, c.code, c.own+" "+c.lasts))
		presettest.Run(t, vendors, presettest.Case{}, envelopes("vendor's ", column, c.code, c.vendors+" "+c.lasts))
	}
	for _, code := range []string{"130101", "410100"} {
		presettest.Run(t, own, presettest.Case{}, envelopes("", send, code, "dingtalk-robot 10m"))
		presettest.Run(t, own, presettest.Case{}, envelopes("", reply, code, "dingtalk-session 10m"))
	}
	presettest.Run(t, own, presettest.Case{}, envelopes("", send, "90030", "dingtalk-webhooks 24h"))
	for code, closes := range map[string]string{
		"45009": "dingtalk-api 1m",
		// Service numbers and tasks: the day of one person, and what is about an API.
		"800055": "dingtalk-company-api 1s", "820011": "dingtalk-company-api 1s",
		"800017": "dingtalk-company-api 16h", "854002": "dingtalk-company-api 16h",
		// A robot's or a month's code where no robot is called: the path alone.
		"130101": "dingtalk-company-api 10m", "90030": "dingtalk-company-api 24h",
	} {
		presettest.Run(t, own, presettest.Case{}, envelopes("", column, code, closes))
	}
	presettest.Run(t, own, presettest.Case{Body: `{"userid":"u"}`}, envelopes("", task, "854002", "dingtalk-tasks 16h"))
	presettest.Run(t, own, presettest.Case{Body: `{"userid_list":["u"]}`}, envelopes("", push, "800017", "dingtalk-pushes 16h"))
	presettest.Run(t, own, presettest.Case{Body: `{"userid_list":"u"}`}, envelopes("", push, "800055", "dingtalk-company-api 1s"))
	for code, closes := range map[string]string{
		"41045": "dingtalk-notices-all 16h", "41046": "dingtalk-notices-all 16h",
		"41047": "dingtalk-notices-company 1m", "41048": "dingtalk-notices-company 1m",
		"143103": "dingtalk-notices 1m", "143104": "dingtalk-notices-company 1m", "143203": "dingtalk-notices 1m", "143204": "dingtalk-notices 1m",
	} {
		presettest.Run(t, own, presettest.Case{Body: `{"to_all_user":true}`}, envelopes("", notice, code, closes))
	}
	presettest.Run(t, vendors, presettest.Case{Body: `{"userid_list":"u"}`}, envelopes("vendor's ", notice, "143204", "dingtalk-notices-suite 1m"))
	for _, code := range []string{"0", "-1", "22", "404", "40014", "40096", "300005", "90021", "854001", "143105", "660026"} {
		presettest.Run(t, own, presettest.Case{}, envelopes("not ", column, code, ""))
	}
}

// TestVendorsNewCodes: the codes of suites close rows of their own.
func TestVendorsNewCodes(t *testing.T) {
	for code, lasts := range map[string]string{"QpsLimitForSuitekeyAndOrgAndApi": "1s", "QpmLimitForSuitekeyAndOrgAndApi": "1m"} {
		presettest.Run(t, dingtalk.Policies(dingtalk.Options{ISV: "vendor"}), presettest.Case{}, []presettest.Case{
			{Name: code, Request: streamed, Status: 403, Answers: `{"code":"Forbidden.AccessDenied.` + code + `"}`,
				Closes: "dingtalk-suite-company-api " + lasts},
		})
	}
}

// TestWhatIsNoRefusal has bodies that are near one.
func TestWhatIsNoRefusal(t *testing.T) {
	var cases []presettest.Case
	for name, body := range map[string]string{
		"success":                   `{"errcode":0,"errmsg":"ok","result":{"code":"90018"}}`,
		"success of a robot's page": `{"errcode":"0","errmsg":"ok"}`,
		"success of the new API":    `{"nick":"Employee 0001","unionId":"union000001"}`,
		"success with a code":       `{"code":"90018","name":"Sales"}`,
		"success with a number":     `{"result":{},"code":90020}`,
		"success with a word":       `{"code":"QpsLimitForApi","name":"a rule of ours"}`,
		"success with a sub_code":   `{"errcode":0,"sub_code":"90018","errmsg":"subcode=90018"}`,
		"business, quoting":         `{"errcode":40035,"errmsg":"unknown text [subcode=90018]"}`,
		"business, ending":          `{"errcode":40035,"errmsg":"限制将在 2000-01-01 09:00:00 结束"}`,
		"unknown path":              `{"errcode":22,"sub_msg":"不合法ApiName，ApiName = dingtalk.oapi.nothing"}`,
		"unknown path, new host":    `{"errcode":404,"errmsg":"请求的URI地址不存在"}`,
		"wrong token":               `{"errcode":88,"sub_code":"40014","sub_msg":"不合法的access_token","errmsg":"ding talk error[subcode=40014,submsg=不合法的access_token]","request_id":"16l4ew3d47pdp"}`,
		"wrong secret":              `{"errcode":40096,"errmsg":"不合法的appKey或appSecret"}`,
		"cut short":                 `{"errcode":900`,
		"code of another depth":     `{"result":{"errcode":90018,"punish":"deny"}}`,
		"status of its own":         `{"status":1111,"source":"calendar"}`,
		"source of its own":         `{"status":1,"source":"x5"}`,
		"no punishment":             `{"punish":"none","status":0,"wait":5}`,
		"no JSON":                   `90018 {"punish":"deny"}`,
		"empty":                     ``,
	} {
		cases = append(cases, presettest.Case{Name: name, Request: column, Header: asJSON, Answers: body})
	}
	presettest.Run(t, dingtalk.Policies(dingtalk.Options{}), presettest.Case{}, cases)
}

// TestAnErrorsOwnNumber: the new API has words, and a number in its "code" is not
// one of the old one's.
func TestAnErrorsOwnNumber(t *testing.T) {
	presettest.Run(t, dingtalk.Policies(dingtalk.Options{}), presettest.Case{Request: streamed}, []presettest.Case{
		{Name: "text", Status: 400, Header: asJSON, Answers: `{"code":"90018","message":"…"}`},
		{Name: "number", Status: 403, Header: asJSON, Answers: `{"code":90018,"message":"…"}`},
	})
}

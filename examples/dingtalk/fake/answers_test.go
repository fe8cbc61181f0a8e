package fake_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/examples/dingtalk/fake"
)

// variable is what differs from answer to answer.
var variable = regexp.MustCompile(`"(request_id|requestid|uuid)":"[0-9A-Za-z-]+"`)

// fixed returns a body with its ids replaced by "…".
func fixed(w *httptest.ResponseRecorder) string {
	return variable.ReplaceAllString(text(w), `"$1":"…"`)
}

func TestOldErrors(t *testing.T) {
	const invalid = `{"errcode":88,"sub_code":"40014","sub_msg":"不合法的access_token",` +
		`"errmsg":"ding talk error[subcode=40014,submsg=不合法的access_token]","request_id":"…"}`
	s, token := start(t, fake.Options{})
	for _, c := range []struct{ name, target, body, want string }{
		{"no token", listSub, ``, invalid},
		{"wrong token", listSub + "?access_token=x", ``, invalid},
		{"wrong secret", "/gettoken?appkey=dingexample&appsecret=x", ``,
			`{"errcode":40096,"errmsg":"不合法的appKey或appSecret"}`},
		{"unknown path", "/topapi/v2/nothing" + token, ``,
			`{"errcode":22,"sub_msg":"不合法ApiName，ApiName = dingtalk.oapi.v2.nothing"}`},
		{"unknown path of the new host", "https://api.dingtalk.com/nothing", ``,
			`{"errcode":404,"errmsg":"请求的URI地址不存在"}`},
		{"unknown robot", "/robot/send?access_token=x", ``,
			`{"errcode":300005,"errmsg":"token is not exist"}`},
		{"page too large", listUser + token, `{"dept_id":1,"size":101}`,
			`{"errcode":88,"sub_code":"40035","sub_msg":"不合法的参数",` +
				`"errmsg":"ding talk error[subcode=40035,submsg=不合法的参数]","request_id":"…"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := ask(s, "POST", c.target, c.body)
			require.Equal(t, http.StatusOK, w.Code)
			require.Equal(t, c.want, fixed(w))
		})
	}
}

func TestNewErrors(t *testing.T) {
	const path = "/v1.0/contact/users/union000001"
	synctest.Test(t, func(t *testing.T) {
		s, token := start(t, fake.Options{PerSecond: 1})
		get := func(token string) (int, string) {
			r := httptest.NewRequest("GET", path, nil)
			if token != "" {
				r.Header.Set("x-acs-dingtalk-access-token", token)
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			return w.Code, fixed(w)
		}
		status, body := get("")
		require.Equal(t, 400, status)
		require.Contains(t, body, `"code":"AuthenticationFailed.MissingParameter"`)

		status, body = get("x")
		require.Equal(t, 400, status)
		require.Equal(t, `{"code":"InvalidAuthentication","requestid":"…","message":"不合法的access_token"}`, body)

		token = strings.TrimPrefix(token, "?access_token=")
		status, body = get(token)
		require.Equal(t, 200, status)
		require.Equal(t, `{"nick":"Employee 0001","unionId":"union000001"}`, body)

		status, body = get(token)
		require.Equal(t, 403, status)
		require.Contains(t, body, `{"code":"Forbidden.AccessDenied.QpsLimitForAppkeyAndApi","requestid":"…"`)
		require.Equal(t, "/v1.0/contact/users/{unionId}", s.Log()[1].API, "counted by the template")
	})
}

func TestThrottledBodies(t *testing.T) {
	tooFast := func(t *testing.T, o fake.Options) string {
		o.PerSecond = 1
		s, token := start(t, o)
		ask(s, "POST", listSub+token, "")
		return fixed(ask(s, "POST", listSub+token, ""))
	}
	require.Equal(t, `{"errcode":88,"sub_code":"90018","sub_msg":"应用调用该接口的qps超过限制",`+
		`"errmsg":"ding talk error[subcode=90018,submsg=应用调用该接口的qps超过限制]","request_id":"…"}`,
		tooFast(t, fake.Options{}))
	require.Equal(t, `{"errcode":90018,"errmsg":"应用调用该接口的qps超过限制"}`,
		tooFast(t, fake.Options{Unwrapped: true}))

	s := fake.New(fake.Options{RobotPerMinute: 1})
	ask(s, "POST", "/robot/send?access_token=robot-example", "")
	require.Equal(t, `{"errcode":660026,"errmsg":"sending too many messages per minute"}`,
		text(ask(s, "POST", "/robot/send?access_token=robot-example", "")))

	s = fake.New(fake.Options{RobotPerMinute: 1, RobotCode: 130101})
	ask(s, "POST", "/robot/send?access_token=robot-example", "")
	require.Equal(t, `{"errcode":130101,"errmsg":"send too fast, exceed 20 times per minute"}`,
		text(ask(s, "POST", "/robot/send?access_token=robot-example", "")))

	s, token := start(t, fake.Options{PerMonth: 1})
	ask(s, "POST", "/topapi/attendance/getcolumnval"+token, "")
	require.Equal(t, `{"errcode":90020,"errmsg":"您的企业本月api调用量已超过限制,调用量:2次,额度:1次,`+
		`请登录开发者后台-资源管理-查看用量明细"}`, text(ask(s, "POST", "/topapi/attendance/getcolumnval"+token, "")))
}

func TestCrowdedNamesTheSecondAndTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, token := start(t, fake.Options{PerAPI: 1, Skew: time.Hour})
		time.Sleep(61*time.Second + 900*time.Millisecond)
		ask(s, "POST", listSub+token, "")
		w := ask(s, "POST", listSub+token, "")
		sentence := "当前所有钉钉应用调用该接口次数过多，超出了该接口承受的最大qps，请求被暂时限制了，" +
			"建议错开整点时刻调用该接口, apiPath(dingtalk.oapi.v2.department.listsub), 从 2000-01-01 09:01:01 " +
			"到 2000-01-01 09:01:01 请求总次数超过 1 次, 限制将在 2000-01-01 09:01:02 结束."
		require.Equal(t, `{"errcode":88,"sub_code":"90002","sub_msg":"`+sentence+
			`","errmsg":"ding talk error[subcode=90002,submsg=`+sentence+`]","request_id":"…"}`, fixed(w))
		require.Equal(t, "Sat, 01 Jan 2000 01:01:01 GMT", w.Header().Get("Date"))
	})
}

func TestBanBodies(t *testing.T) {
	banned := func(o fake.Options) *httptest.ResponseRecorder {
		o.Address = 1
		s := fake.New(o)
		ask(s, "GET", "/gettoken", "")
		return ask(s, "GET", "/gettoken", "")
	}
	w := banned(fake.Options{})
	require.Equal(t, http.StatusOK, w.Code)
	require.Regexp(t, `^{"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"[0-9a-f]{32}"}\n$`, w.Body)

	w = banned(fake.Options{BanMedia: "text/html", BanNoWait: true})
	require.Equal(t, "text/html", w.Header().Get("Content-Type"))
	require.Regexp(t, `^{"status":1111,"source":"x5","punish":"deny","uuid":"[0-9a-f]{32}"}\n$`, w.Body)

	w = banned(fake.Options{BanFor: 90 * time.Second})
	require.Contains(t, w.Body.String(), `"wait":1,`)

	w = banned(fake.Options{BanStatus: http.StatusForbidden, BanHTML: true})
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	require.Regexp(t, "^<!DOCTYPE html>", w.Body)
}

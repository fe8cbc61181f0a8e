package dingtalktest_test

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/dingtalk/dingtalktest"
)

// A step is a time to wait, calls to send, and how many of them are served.
type step struct {
	after       time.Duration
	path        string
	send, serve int
}

// TestRules plays steps in virtual time, which begins at midnight UTC of 2000-01-01.
func TestRules(t *testing.T) {
	const robot, anything = "/robot/send?access_token=robot", "/nowhere"
	list, metered := listSub+token, column+token
	for name, c := range map[string]struct {
		options dingtalktest.Options
		steps   []step
		bans    int
	}{
		"any second": {steps: []step{
			{0, list, 5, 5},
			{600 * time.Millisecond, list, 40, 15},
			{0, metered, 30, 20}, // another API has its own second
			{0, listSub + "?access_token=token-of-another", 30, 20},
			{400*time.Millisecond - 1, list, 1, 0},
			{1, list, 40, 5}, // those that were refused took up no room
		}},
		"seconds of the clock": {options: dingtalktest.Options{FixedWindows: true}, steps: []step{
			{900 * time.Millisecond, list, 30, 20},
			{100 * time.Millisecond, list, 30, 20},
		}},
		"refused calls count": {options: dingtalktest.Options{CountRefused: true}, steps: []step{
			{0, list, 30, 20},
			{500 * time.Millisecond, list, 20, 0},
			{500 * time.Millisecond, list, 20, 0},
			{time.Second, list, 30, 20},
		}},
		"a larger edition":   {options: dingtalktest.Options{Edition: dingtalk.Edition{PerSecond: 40}}, steps: []step{{0, list, 50, 40}}},
		"only a month's":     {options: dingtalktest.Options{Edition: dingtalk.Edition{PerMonth: 9}}, steps: []step{{0, list, 50, 20}}},
		"the standard month": {steps: []step{{0, metered, 20, 20}}},
		"all applications": {options: dingtalktest.Options{PerAPI: 15}, steps: []step{
			{300 * time.Millisecond, list, 16, 15},
			{700 * time.Millisecond, list, 15, 5}, // the second of the clock is new, the application's is not over
		}},
		"the address": {bans: 1, steps: []step{
			{0, list, 9_999, 20},
			{0, list, 1, 0},
			{20*time.Second - 1, anything, 1, 0}, // one too many
			{5*time.Minute - 1, list, 1, 0},
			{0, robot, 1, 0},
			{0, "/gettoken?appkey=a&appsecret=b", 1, 0},
			{1, list, 30, 20},
		}},
		"the address in any 20 seconds": {options: dingtalktest.Options{IPLimit: 2}, bans: 1, steps: []step{
			{19 * time.Second, anything, 2, 0}, {20 * time.Second, anything, 2, 0}, {20*time.Second - 1, anything, 1, 0},
		}},
		"the address by the clock": {options: dingtalktest.Options{IPLimit: 2, FixedWindows: true}, steps: []step{
			{19 * time.Second, anything, 2, 0}, {time.Second, anything, 2, 0},
		}},
		"a ban that calls prolong": {options: dingtalktest.Options{IPLimit: 1, Ban: time.Minute, BanProlongs: true}, bans: 1, steps: []step{
			{0, list, 2, 1}, {50 * time.Second, list, 1, 0}, {50 * time.Second, list, 1, 0}, {time.Minute, list, 1, 1},
		}},
		"a ban shorter than the window": {options: dingtalktest.Options{IPLimit: 1, Ban: time.Second}, bans: 1, steps: []step{
			{0, list, 2, 1}, {time.Second, list, 1, 1},
		}},
		"a robot": {steps: []step{
			{0, robot, 21, 20},
			{0, "/robot/send?access_token=another", 1, 1},
			{5 * time.Minute, robot, 30, 0}, // and these do not prolong it
			{5*time.Minute - 1, robot, 1, 0},
			{1, robot, 19, 19},
		}},
		"the month of Beijing": {options: dingtalktest.Options{Edition: dingtalk.Edition{PerMonth: 3}}, steps: []step{
			{0, metered, 5, 3},
			{0, list, 1, 1},
			{31*24*time.Hour - 8*time.Hour - 1, metered, 1, 0},
			{1, metered, 5, 3},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := dingtalktest.New(c.options)
				s.HandleFunc(column, func(http.ResponseWriter, *http.Request) {})
				for i, step := range c.steps {
					time.Sleep(step.after)
					require.Equal(t, step.serve, served(t, s, step.path, step.send), i)
				}
				require.Equal(t, c.bans, s.Bans())
			})
		})
	}
}

// wrapped is an error of the old API behind errcode 88.
func wrapped(code, text string) string {
	return `{"errcode":88,"errmsg":"ding talk error[subcode=` + code + `,submsg=` + text + `]",` +
		`"request_id":"16l4ew3d47pdp","sub_code":"` + code + `","sub_msg":"` + text + `"}`
}

// TestAnswers has the body of each answer: that of the last of some calls.
func TestAnswers(t *testing.T) {
	const crowded = "当前所有钉钉应用调用该接口次数过多，超出了该接口承受的最大qps，请求被暂时限制了，" +
		"建议错开整点时刻调用该接口, apiPath(dingtalk.oapi.v2.department.listsub), 从 2000-01-01 08:00:00 " +
		"到 2000-01-01 08:00:00 请求总次数超过 1 次, 限制将在 2000-01-01 08:00:01 结束."
	word := func(code, text string) string {
		return `{"code":"` + code + `","message":"` + text + `","requestid":"01A08FE7-CD6B-79BB-8B2E-35D8768AD457"}`
	}
	limited := func(code string) string { return word("Forbidden.AccessDenied."+code, "The request is limited.") }
	one := dingtalk.Edition{PerSecond: 1}
	page := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(403)
		_, _ = io.WriteString(w, "<html>")
	}
	for _, c := range []struct {
		path, body string
		calls      int
		options    dingtalktest.Options
		status     int
		want       string
	}{
		{"/gettoken?appkey=dingabc&appsecret=s", "", 1, dingtalktest.Options{}, 200,
			`{"access_token":"token-of-dingabc","errcode":0,"errmsg":"ok","expires_in":7200}`},
		{"/gettoken?appkey=dingabc", "", 1, dingtalktest.Options{}, 200, `{"errcode":40096,"errmsg":"不合法的appKey或appSecret"}`},
		{"/v1.0/oauth2/accessToken", `{"appKey":"dingabc","appSecret":"s"}`, 1, dingtalktest.Options{}, 200,
			`{"accessToken":"token-of-dingabc","expireIn":7200}`},
		{"/v1.0/oauth2/accessToken", "", 1, dingtalktest.Options{}, 400, word("InvalidAuthentication", "不合法的appKey或appSecret")},
		{contact + "7", "", 1, dingtalktest.Options{}, 200, `{"nick":"Name of 7","unionId":"7"}`},
		{"/robot/send?access_token=robot", "", 1, dingtalktest.Options{}, 200, `{"errcode":0,"errmsg":"ok"}`},
		{listSub, "", 1, dingtalktest.Options{}, 200, wrapped("40014", "不合法的access_token")},
		{listSub + token, `{"dept_id":151}`, 1, dingtalktest.Options{}, 200, wrapped("60003", "部门不存在")},
		{userList + token, `{"dept_id":151,"size":100}`, 1, dingtalktest.Options{}, 200, wrapped("60003", "部门不存在")},
		{userList + token, `{"dept_id":1,"size":101}`, 1, dingtalktest.Options{}, 200, wrapped("40035", "不合法的参数")},
		{"/topapi/v2/nothing", "", 1, dingtalktest.Options{}, 200,
			`{"errcode":22,"sub_msg":"不合法ApiName，ApiName = dingtalk.oapi.v2.nothing"}`},
		{"/nothing", "", 1, dingtalktest.Options{}, 200, `{"errcode":22,"sub_msg":"不合法ApiName，ApiName = /nothing"}`},
		{"/v1.0/nothing", "", 1, dingtalktest.Options{}, 404, word("InvalidAction.NotFound", "Specified api is not found.")},

		{listSub + token, "", 2, dingtalktest.Options{Edition: one}, 200, wrapped("90018", "应用调用该接口的qps超过限制")},
		{contact + "7", "", 2, dingtalktest.Options{Edition: one}, 403, limited("QpsLimitForAppkeyAndApi")},
		{listSub + token, "", 2, dingtalktest.Options{PerAPI: 1}, 200, wrapped("90002", crowded)},
		{contact + "7", "", 2, dingtalktest.Options{PerAPI: 1}, 403, limited("QpsLimitForApi")},
		{column + token, "", 2, dingtalktest.Options{Edition: dingtalk.Edition{PerMonth: 1}}, 200,
			`{"errcode":90020,"errmsg":"您的企业本月api调用量已超过限制,调用量:2次,额度:1次,请登录开发者后台-资源管理-查看用量明细"}`},
		{"/v1.0/workflow/processInstances", "", 2, dingtalktest.Options{Edition: dingtalk.Edition{PerMonth: 1}}, 403, limited("ApiCountLimitForOrg")},
		{"/robot/send?access_token=robot", "", 21, dingtalktest.Options{}, 200,
			`{"errcode":660026,"errmsg":"sending too many messages per minute"}`},
		{"/nothing", "", 2, dingtalktest.Options{IPLimit: 1}, 200,
			`{"punish":"deny","source":"x5","status":1111,"uuid":"24ce4f5a0b6c4d8e","wait":5}`},
		{"/nothing", "", 2, dingtalktest.Options{IPLimit: 1, BanAnswer: page}, 403, "<html>"},
	} {
		t.Run(c.path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := dingtalktest.New(c.options)
				s.HandleFunc(column, func(http.ResponseWriter, *http.Request) {})
				s.HandleFunc("/v1.0/workflow/processInstances", func(http.ResponseWriter, *http.Request) {})
				served(t, s, c.path, c.calls-1)
				status, answer := ask(t, s, c.path, c.body)
				require.Equal(t, c.status, status)
				require.Equal(t, c.want, answer)
			})
		})
	}
	t.Run("no token of the new API", func(t *testing.T) {
		client := &http.Client{Transport: dingtalktest.New(dingtalktest.Options{})}
		resp, err := client.Get("https://api.dingtalk.com" + contact + "7")
		require.NoError(t, err)
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, 400, resp.StatusCode)
		require.Equal(t, word("InvalidAuthentication", "不合法的access_token")+"\n", string(answer))
	})
}

package dingtalktest_test

import (
	"encoding/json"
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
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/dingtalk/dingtalktest"
)

// A step is a time to wait, calls to send, and how many of them are served.
type step struct {
	after       time.Duration
	path        string
	send, serve int
}

// wide is an edition whose limits no test meets.
var wide = dingtalk.Edition{PerSecond: 10_000, PerMonth: 1_000_000}

// TestRules plays steps in virtual time, which begins at midnight UTC of 2000-01-01.
func TestRules(t *testing.T) {
	const anything = "/nowhere"
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
		"five more days": {options: dingtalktest.Options{Edition: dingtalk.Edition{PerMonth: 3}, Buffer: 5 * 24 * time.Hour}, steps: []step{
			{0, metered, 3, 3},
			{24 * time.Hour, metered, 9, 9},
			{5*24*time.Hour - 1, metered, 1, 1},
			{1, metered, 1, 0},
			{25*24*time.Hour - 8*time.Hour, metered, 3, 3}, // the next month
		}},
		"refusals for a second are not counted in the month": {options: dingtalktest.Options{Edition: dingtalk.Edition{PerMonth: 41}}, steps: []step{
			{0, metered, 30, 20},
			{time.Second, metered, 30, 20},
			{time.Second, metered, 2, 1},
		}},
		"free APIs": {options: dingtalktest.Options{Edition: dingtalk.Edition{PerMonth: 1}}, steps: []step{
			{0, list, 5, 5}, {0, contact + "7", 5, 5}, {0, robot, 5, 5}, {0, metered, 2, 1},
			{0, notices + token, 1, 0}, {0, batch, 1, 0},
		}},
		"webhooks of the month": {options: dingtalktest.Options{Edition: dingtalk.Edition{Webhooks: 25}}, steps: []step{
			{0, robot, 25, 20}, {10 * time.Minute, robot, 10, 5}, {31 * 24 * time.Hour, robot, 10, 10},
		}},
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
			{0, "/robot/send?access_token=another", 1, 0}, // without a message
			{5 * time.Minute, robot, 30, 0},               // and these do not prolong it
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
				c.options.TokenLife = 365 * 24 * time.Hour
				s := newServer(c.options)
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
	limited := func(code, text string) string { return word("Forbidden.AccessDenied."+code, text) }
	nothing := func(api string) string {
		text := "不合法ApiName，ApiName = " + api
		return `{"errcode":22,"errmsg":"Invalid method[submsg=` + text + `]","request_id":"16l4ew3d47pdp","sub_msg":"` + text + `"}`
	}
	const spent = "您的企业本月api调用量已超过限制,调用量:2次,额度:1次,请登录开发者后台-资源管理-查看用量明细"
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
		{"/v1.0/oauth2/accessToken", "", 1, dingtalktest.Options{}, 400, word("invalidClientIdOrSecret", "无效的clientId或者clientSecret")},
		{contact + "7", "", 1, dingtalktest.Options{}, 200, `{"nick":"Name of 7","unionId":"7"}`},
		{robot, "", 1, dingtalktest.Options{}, 200, `{"errcode":0,"errmsg":"ok"}`},
		{robot, "{}", 1, dingtalktest.Options{}, 200, `{"errcode":40035,"errmsg":"缺少参数 json"}`},
		{"/robot/send", "", 1, dingtalktest.Options{}, 200, `{"errcode":300005,"errmsg":"token is not exist"}`},
		{robot, "", 3, dingtalktest.Options{Edition: dingtalk.Edition{Webhooks: 2}}, 200, `{"errcode":90030,"errmsg":"webhook over limit"}`},
		{listSub, "", 1, dingtalktest.Options{}, 200, wrapped("40000", "access_token is blank")},
		{listSub + "?access_token=made-up", "", 1, dingtalktest.Options{}, 200, wrapped("40014", "不合法的access_token")},
		{listSub + token, `{"dept_id":151}`, 1, dingtalktest.Options{}, 200, wrapped("60003", "部门不存在")},
		{userList + token, `{"dept_id":151,"cursor":0,"size":100}`, 1, dingtalktest.Options{}, 200, wrapped("60003", "部门不存在")},
		{userList + token, `{"dept_id":1,"cursor":0,"size":101}`, 1, dingtalktest.Options{}, 200, wrapped("40035", "不合法的参数")},
		{"/topapi/v2/nothing", "", 1, dingtalktest.Options{}, 200,
			nothing("dingtalk.oapi.v2.nothing")},
		{"/nothing", "", 1, dingtalktest.Options{}, 200, nothing("/nothing")},
		{"/v1.0/nothing", "", 1, dingtalktest.Options{}, 404, word("InvalidAction.NotFound", "Specified api is not found.")},

		{listSub + token, "", 2, dingtalktest.Options{Edition: one}, 200, wrapped("90018", "应用调用该接口的qps超过限制")},
		{contact + "7", "", 2, dingtalktest.Options{Edition: one}, 403, limited("QpsLimitForAppkeyAndApi", "您的企业应用调用钉钉开放平台当前接口的所有请求都被暂时禁用了")},
		{listSub + token, "", 2, dingtalktest.Options{PerAPI: 1}, 200, wrapped("90002", crowded)},
		{contact + "7", "", 2, dingtalktest.Options{PerAPI: 1}, 403, limited("QpsLimitForApi", "您的服务器调用钉钉开放平台当前接口的所有请求都被暂时禁用了")},
		{column + token, "", 2, dingtalktest.Options{Edition: dingtalk.Edition{PerMonth: 1}}, 200,
			`{"errcode":90020,"errmsg":"` + spent + `"}`},
		{"/v1.0/workflow/processInstances", "", 2, dingtalktest.Options{Edition: dingtalk.Edition{PerMonth: 1}}, 403, limited("ApiCountLimitForOrg", spent)},
		{robot, "", 21, dingtalktest.Options{}, 200,
			`{"errcode":660026,"errmsg":"sending too many messages per minute"}`},
		{"/nothing", "", 2, dingtalktest.Options{IPLimit: 1}, 200,
			`{"punish":"deny","source":"x5","status":1111,"uuid":"24ce4f5a0b6c4d8e","wait":5}`},
		{"/nothing", "", 2, dingtalktest.Options{IPLimit: 1, BanAnswer: page}, 403, "<html>"},
		{"/nothing", "", 2, dingtalktest.Options{IPLimit: 1, BanAnswer: dingtalktest.BanPage}, 403,
			"<!DOCTYPE html>\n<html><body>punish: deny</body></html>"},
	} {
		t.Run(c.path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(c.options)
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
		require.Equal(t, word("AuthenticationFailed.MissingParameter", "缺少参数：x-acs-dingtalk-access-token")+"\n", string(answer))
	})
}

// TestFree: what counts for the month is every API that is not on the list of free ones. The preset has a list of its own.
func TestFree(t *testing.T) {
	rows := dingtalk.Policies(dingtalk.Options{Edition: dingtalk.Standard})
	month := rows[slices.IndexFunc(rows, func(p throttle.Policy) bool { return p.Name == "dingtalk-month" })]
	for want, paths := range map[int]string{
		0: `/v1.0/oauth2/accessToken /v1.0/oauth2/userAccessToken /v1.0/oauth2/authRules/user /v1.0/oauth2/ssoUserInfo
			/topapi/v2/user/get /topapi/v2/user/getuserinfo /topapi/user/listid /topapi/inactive/user/v2/get
			/v1.0/contact/users/7 /v1.0/contact/staffAttributes/visibilitySettings /v1.0/contact/staffAttributes/visibilitySettings/7
			/topapi/v2/department/listsub /role/add_role /topapi/role/scope/update /topapi/extcontact/get
			/topapi/smartwork/hrm/employee/queryonjob /v1.0/hrm/rosters/lists/query /v1.0/im/interconnections/groups/7
			/topapi/alitrip/btrip/apply/get /v2.0/esign/files/7 /v1.0/h3yun/apps/7 /topapi/smartbot/msg/push`,
		1: `/v1.0/oauth2/corpAccessToken /v1.0/oauth2/dingcorp/token /topapi/attendance/list /v1.0/workflow/processInstances
			/v1.0/hrm/employees/7 /topapi/smartwork/hrm/employee/list /topapi/process/gettodonum /v1.0/robot/groupMessages/send
			/v1.0/contact/users /topapi/v2/user /topapi/v2/department/other /v1.0/im/conversations/7 /v1.0/todo/users/7/tasks`,
	} {
		for _, path := range strings.Fields(paths) {
			t.Run(path, func(t *testing.T) {
				s := newServer(dingtalktest.Options{Edition: dingtalk.Edition{PerMonth: 1}})
				host := "oapi.dingtalk.com"
				if strings.HasPrefix(path, "/v") {
					host = "api.dingtalk.com"
				}
				get, post := request(t, path, ""), request(t, path, "")
				get.Method, get.URL.Host = http.MethodGet, host
				post.Method, post.URL.Host = http.MethodPost, host
				require.Equal(t, want, min(month.Cost(get), month.Cost(post)))

				if strings.HasPrefix(path, "/v1.0/oauth2/accessToken") || strings.HasPrefix(path, contact) || strings.HasPrefix(path, listSub) {
					served(t, s, path+token, 3)
					require.Zero(t, s.Refusals()["90020"])
					return
				}
				s.HandleFunc(path, func(http.ResponseWriter, *http.Request) {})
				require.Equal(t, 3-2*want, served(t, s, path+token, 3))
			})
		}
	}
}

// TestCalls: what a call must have, apart from room: its method, its type of content, its token, its permission.
func TestCalls(t *testing.T) {
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	method := func(method string) func(*http.Request) { return func(r *http.Request) { r.Method = method } }
	const key = "x-acs-dingtalk-access-token"
	apps := map[string]dingtalktest.App{
		"dingabc": {Secret: "s", Permissions: []string{"qyapi_get_department_list"}},
		"another": {},
	}
	for name, c := range map[string]struct {
		path, body string
		change     func(*http.Request)
		status     int
		has        string // a part of the answer
		refusal    string
	}{
		"old, JSON":                {listSub + token, `{"dept_id":1}`, nil, 200, `"errcode":0`, ""},
		"old, numbers as texts":    {userList + "?access_token=token-of-another", `{"dept_id":"1","cursor":"0","size":"9"}`, nil, 200, `"errcode":0`, ""},
		"old, form":                {listSub + token, "dept_id=151", header("Content-Type", asForm), 200, `"sub_code":"60003"`, ""},
		"old, token in a form":     {listSub, "access_token=token-of-dingabc", header("Content-Type", asForm), 200, `"errcode":0`, ""},
		"old, text":                {listSub + token, `{"dept_id":1}`, header("Content-Type", "text/plain"), 200, `{"errcode":43004,"errmsg":"无效的HTTP HEADER Content-Type"}`, "43004"},
		"old, no type":             {listSub + token, `{"dept_id":1}`, func(r *http.Request) { r.Header.Del("Content-Type") }, 200, `"errcode":43004`, "43004"},
		"old, GET":                 {listSub + token, "", method("GET"), 200, `{"errcode":43002,"errmsg":"需要POST请求"}`, "43002"},
		"old, POST":                {"/gettoken?appkey=dingabc&appsecret=s", "", method("POST"), 200, `{"errcode":43001,"errmsg":"需要GET请求"}`, "43001"},
		"old, token in the header": {listSub, `{"dept_id":1}`, nil, 200, `"sub_code":"40000"`, "40000"},
		"old, unknown token":       {listSub + token + "x", `{"dept_id":1}`, nil, 200, `"sub_code":"40014"`, "40014"},
		"old, no permission": {userList + token, `{"dept_id":1,"cursor":0,"size":9}`, nil, 200,
			"subcode=60011,submsg=应用尚未开通所需的权限：[qyapi_get_department_member]，点击链接申请并开通即可：" +
				"https://open-dev.dingtalk.com/appscope/apply?content=dingabc%23qyapi_get_department_member, {requiredScopes=[qyapi_get_department_member]}]", "60011"},
		"robot, text":          {robot, `{"msgtype":"text"}`, header("Content-Type", "text/plain"), 200, `"errcode":43004`, "43004"},
		"robot, GET":           {robot, "", method("GET"), 200, `"errcode":43002`, "43002"},
		"new, POST":            {contact + "7", "", method("POST"), 405, "Method Not Allowed", "405"},
		"new, unknown token":   {contact + "7", "", header(key, "x"), 400, `"code":"InvalidAuthentication"`, "40014"},
		"new, token in a URL":  {contact + "7" + token, "", func(r *http.Request) { r.Header.Del(key) }, 400, "缺少参数：x-acs-dingtalk-access-token", "40000"},
		"new, no permission":   {contact + "7", "", nil, 403, `{"accessdenieddetail":{"requiredScopes":["Contact.User.Read"]},"code":"Forbidden.AccessDenied.AccessTokenPermissionDenied"`, "60011"},
		"new, all permissions": {contact + "7", "", header(key, "token-of-another"), 200, `"nick"`, ""},
		"login":                {login, `{"appKey":"dingabc","appSecret":"s"}`, nil, 200, `{"accessToken":"token-of-dingabc","expireIn":7200}`, ""},
		"login, GET":           {login, "", method("GET"), 405, "Method Not Allowed", "405"},
		"login, wrong secret":  {login, `{"appKey":"dingabc","appSecret":"x"}`, nil, 400, `"code":"invalidClientIdOrSecret"`, "40096"},
		"login, no secret":     {login, `{"appKey":"another"}`, nil, 400, `"code":"invalidClientIdOrSecret"`, "40096"},
		"login, unknown":       {login, `{"appKey":"nobody","appSecret":"s"}`, nil, 400, `"code":"invalidClientIdOrSecret"`, "40096"},
		"login, old, unknown":  {"/gettoken?appkey=nobody&appsecret=s", "", nil, 200, `"errcode":40096`, "40096"},
		"login, old, no key":   {"/gettoken", "", nil, 200, `{"errcode":40035,"errmsg":"缺少参数 corpid or appkey"}`, "40035"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(dingtalktest.Options{Apps: apps})
			r := request(t, c.path, c.body)
			if c.change != nil {
				c.change(r)
			}
			status, answer := send(t, s, r)
			require.Equal(t, c.status, status)
			require.Contains(t, answer, c.has)
			require.Equal(t, c.refusal, s.Log()[0].Refusal)
		})
	}
}

// TestTokens: asked again within its life a token is the same and lives anew; afterwards it is another, and the
// first one is refused by both families.
func TestTokens(t *testing.T) {
	const again = "asks again"
	synctest.Test(t, func(t *testing.T) {
		s := dingtalktest.New(dingtalktest.Options{})
		ask(t, s, login, `{"appKey":"dingabc","appSecret":"s"}`)
		for _, c := range []struct {
			after time.Duration
			path  string
			serve int
		}{
			{2*time.Hour - 1, listSub + token, 1},
			{0, again, 1},
			{2*time.Hour - 1, contact + "7", 1},
			{1, contact + "7", 0},
			{0, listSub + token, 0},
			{0, again, 1},
			{0, listSub + token, 0},
			{0, listSub + token + "-1", 1},
		} {
			time.Sleep(c.after)
			if c.path == again {
				ask(t, s, "/gettoken?appkey=dingabc&appsecret=s", "")
				continue
			}
			require.Equal(t, c.serve, served(t, s, c.path, 1), c.path)
		}

		s.ExpireTokens()
		require.Zero(t, served(t, s, listSub+token+"-1", 1))
		require.Equal(t, "token-of-dingabc-2", s.Token("dingabc"))
		require.Equal(t, 1, served(t, s, listSub+token+"-2", 1))
	})
}

// TestTokensPerMinute: who asks too often gets none, on either family.
func TestTokensPerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := dingtalktest.New(dingtalktest.Options{TokensPerMinute: 2})
		const body, old = `{"appKey":"dingabc","appSecret":"s"}`, "/gettoken?appkey=dingabc&appsecret=s"
		for _, path := range []string{login, old} {
			_, answer := ask(t, s, path, body)
			require.Contains(t, answer, "token-of-dingabc")
		}
		status, answer := ask(t, s, login, body)
		require.Equal(t, http.StatusForbidden, status)
		require.Contains(t, answer, "Forbidden.AccessDenied.QpmLimitForAppkeyAndApi")
		_, answer = ask(t, s, old, body)
		require.Contains(t, answer, `"sub_code":"90006"`)
		require.Equal(t, map[string]int{"90006": 2}, s.Refusals())

		time.Sleep(time.Minute)
		_, answer = ask(t, s, login, body)
		require.Contains(t, answer, "token-of-dingabc")
	})
}

// TestBatchSend: a success says who got nothing.
func TestBatchSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(dingtalktest.Options{PerPerson: 2})
		to := func(users ...string) string {
			list, err := json.Marshal(users)
			require.NoError(t, err)
			return `{"robotCode":"dingabc","userIds":` + string(list) + `,"msgKey":"sampleText","msgParam":"{}"}`
		}
		success := func(invalid, controlled string) string {
			return fmt.Sprintf(`{"flowControlledStaffIdList":[%s],"invalidStaffIdList":[%s],"processQueryKey":"zcxxczasdafasd"}`, controlled, invalid)
		}
		for _, c := range []struct {
			after      time.Duration
			body, want string
			unsent     int
		}{
			{0, to("user000001", "nobody"), success(`"nobody"`, ""), 0},
			{0, to("user000001", "user000002"), success("", ""), 0},
			{0, to("user000001", "user000002"), success("", `"user000001"`), 1},
			{time.Minute, to("user000001"), success("", ""), 0},
		} {
			time.Sleep(c.after)
			status, answer := ask(t, s, batch, c.body)
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, c.want, answer)
			unsent, err := dingtalk.ReadUnsent(strings.NewReader(answer))
			require.NoError(t, err)
			require.Len(t, unsent, c.unsent)
		}
		require.Empty(t, s.Refusals())

		for body, code := range map[string]string{
			"": "robotCode.empty", to(): "userIds.empty", to(strings.Fields(strings.Repeat("user ", 21))...): "userIds.overMax",
		} {
			status, answer := ask(t, s, batch, body)
			require.Equal(t, http.StatusBadRequest, status)
			require.Contains(t, answer, "invalidParameter."+code)
		}
	})
}

// TestNotices: what is too much is dropped in a success, and only getsendresult tells.
func TestNotices(t *testing.T) {
	type outcome struct {
		Invalid   []string `json:"invalid_user_id_list"`
		Forbidden []string `json:"forbidden_user_id_list"`
		Unread    []string `json:"unread_user_id_list"`
		Why       []struct {
			Code, UserID string
			Count        int
		} `json:"forbidden_list"`
	}
	notice := func(t *testing.T, s *dingtalktest.Server, app, to, text string) (o outcome) {
		t.Helper()
		time.Sleep(50 * time.Millisecond)
		var sent struct {
			ErrCode int
			Task    int `json:"task_id"`
		}
		_, answer := ask(t, s, notices+"?access_token=token-of-"+app, fmt.Sprintf(`{"agent_id":1,%s,"msg":{"text":"%s"}}`, to, text))
		require.NoError(t, json.Unmarshal([]byte(answer), &sent))
		require.Zero(t, sent.ErrCode, answer)

		result := struct {
			ErrCode int
			Result  *outcome `json:"send_result"`
		}{Result: &o}
		_, answer = ask(t, s, results+"?access_token=token-of-"+app, fmt.Sprintf(`{"agent_id":1,"task_id":%d}`, sent.Task))
		require.NoError(t, json.Unmarshal([]byte(answer), &result))
		if unsent, err := dingtalk.ReadUnsent(strings.NewReader(answer)); result.ErrCode == 0 {
			require.NoError(t, err)
			require.Len(t, unsent, len(o.Forbidden))
		}
		return o
	}
	const two = `"userid_list":"user000001,user000002"`

	synctest.Test(t, func(t *testing.T) { // the same text on one day, of one application
		s := newServer(dingtalktest.Options{TokenLife: 48 * time.Hour})
		require.Equal(t, []string{"user000001", "user000002"}, notice(t, s, "dingabc", two, "a").Unread)
		o := notice(t, s, "dingabc", `"userid_list":"user000001,user000003,nobody"`, "a")
		require.Equal(t, []string{"user000003"}, o.Unread)
		require.Equal(t, []string{"nobody"}, o.Invalid)
		require.Equal(t, []string{"user000001"}, o.Forbidden)
		require.Equal(t, "143106", o.Why[0].Code)
		require.Len(t, notice(t, s, "another", two, "a").Unread, 2)
		require.Len(t, notice(t, s, "dingabc", two, "b").Unread, 2)
		time.Sleep(16 * time.Hour) // midnight in Beijing
		require.Len(t, notice(t, s, "dingabc", two, "a").Unread, 2)
		require.Len(t, notice(t, s, "dingabc", `"dept_id_list":[2]`, "c").Unread, 0, "a list that is too long is not told")
	})
	synctest.Test(t, func(t *testing.T) { // 5,000 people in a minute, all 3,000 and 2,000 of them again
		s := newServer(dingtalktest.Options{Edition: wide})
		notice(t, s, "dingabc", `"to_all_user":true`, "a")
		notice(t, s, "dingabc", `"to_all_user":"true"`, "b")
		o := notice(t, s, "dingabc", two, "c")
		require.Equal(t, "143103", o.Why[0].Code)
		require.Equal(t, 5000, o.Why[0].Count)
		require.Len(t, notice(t, s, "another", two, "c").Unread, 2)
		time.Sleep(time.Minute)
		require.Len(t, notice(t, s, "dingabc", two, "c").Unread, 2)
	})
	synctest.Test(t, func(t *testing.T) { // the company's people in a minute
		s := newServer(dingtalktest.Options{NoticesPerMinute: 3})
		notice(t, s, "another", two, "a")
		o := notice(t, s, "dingabc", two, "a")
		require.Equal(t, []string{"user000001"}, o.Unread)
		require.Equal(t, "143104", o.Why[0].Code)
	})
	synctest.Test(t, func(t *testing.T) { // 500 on one day
		s := newServer(dingtalktest.Options{Edition: wide})
		for i := range 500 {
			require.Len(t, notice(t, s, "dingabc", two, fmt.Sprint(i)).Unread, 2)
		}
		o := notice(t, s, "dingabc", two, "more")
		require.Equal(t, "143105", o.Why[0].Code)
		require.Len(t, o.Forbidden, 2)
	})
	synctest.Test(t, func(t *testing.T) { // what is no notice, and a result after a day
		s := newServer(dingtalktest.Options{TokenLife: 48 * time.Hour})
		for body, code := range map[string]string{
			`{"userid_list":"user000001","msg":{}}`:                                                        "40056",
			`{"agent_id":1,"userid_list":"user000001"}`:                                                    "40035",
			`{"agent_id":1,"msg":{"text":"a"}}`:                                                            "40035",
			`{"agent_id":1,"msg":{"text":"a"},"userid_list":"` + strings.Repeat("user000001,", 101) + `"}`: "40035",
		} {
			_, answer := ask(t, s, notices+token, body)
			require.Contains(t, answer, `"errcode":`+code)
		}
		_, answer := ask(t, s, notices+token, `{"agent_id":1,"msg":{"text":"a"},`+two+`}`)
		require.Equal(t, `{"errcode":0,"request_id":"16l4ew3d47pdp","task_id":256271667}`, answer)
		const result = `{"agent_id":1,"task_id":256271667}`
		_, answer = ask(t, s, results+"?access_token=token-of-another", result)
		require.Contains(t, answer, `"errcode":40035`)
		time.Sleep(time.Hour)
		_, answer = ask(t, s, results+token, result)
		require.Contains(t, answer, `"errcode":0`)
		time.Sleep(23 * time.Hour)
		_, answer = ask(t, s, results+token, result)
		require.Contains(t, answer, `"errcode":40035`)
	})
}

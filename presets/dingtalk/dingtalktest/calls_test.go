package dingtalktest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/dingtalk/dingtalktest"
)

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

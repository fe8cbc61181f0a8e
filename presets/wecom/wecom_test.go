package wecom_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/wecom"
)

type header = presettest.Header

const (
	members   = "https://qyapi.weixin.qq.com/cgi-bin/user/list?access_token=t&department_id=1"
	checkin   = "POST https://qyapi.weixin.qq.com/cgi-bin/checkin/getcheckindata?access_token=t"
	approval  = "POST https://qyapi.weixin.qq.com/cgi-bin/corp/getapprovaldata?access_token=t"
	ticket    = "https://qyapi.weixin.qq.com/cgi-bin/get_jsapi_ticket?access_token=t"
	message   = "POST https://qyapi.weixin.qq.com/cgi-bin/message/send?access_token=t"
	groupChat = "POST https://qyapi.weixin.qq.com/cgi-bin/appchat/send?access_token=t"
	robot     = "POST https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=693a91f6"

	tooOften = `{"errcode":45009,"errmsg":"api freq out of limit, hint: [1635043469_160_1ea1b1d99cd2c82ebf782c0c06a61af4], from ip: x.x.x.x, more info at https://open.work.weixin.qq.com/devtool/query?e=45009"}`
	tooMany  = `{"errcode":45033,"errmsg":"api concurrency out of limit"}`
)

func TestRefusals(t *testing.T) {
	presettest.Run(t, wecom.Policies(wecom.Options{}), presettest.Case{Request: message}, []presettest.Case{
		{Name: "frequency", Request: members, Answers: tooOften, Closes: "wecom-company-minute 1m"},
		{Name: "concurrency", Request: members, Answers: tooMany, Closes: "wecom-company-minute 1s"},
		{Name: "check-in", Request: checkin, Answers: tooOften, Closes: "wecom-company-minute 1m, wecom-checkin 1m"},
		{Name: "approval", Request: approval, Answers: tooOften, Closes: "wecom-company-minute 1m, wecom-approval 1m"},
		{Name: "a ticket", Request: ticket, Answers: tooOften, Closes: "wecom-company-minute 1m, wecom-ticket-app 1h"},
		{Name: "a message, at ten in Beijing", Answers: tooOften, Header: header{"Date": "Sat, 01 Jan 2000 02:00:00 GMT"},
			Closes: "wecom-app-day 14h"},
		{Name: "a message, at one in Beijing", Answers: tooOften, Header: header{"Date": "Fri, 31 Dec 1999 17:00:00 GMT"},
			Closes: "wecom-app-day 23h"},
		{Name: "a message at once with others", Answers: tooMany, Closes: "wecom-app-day 1s"},
		{Name: "a group's message", Request: groupChat, Answers: tooOften, Closes: "wecom-group-minute 1m"},
		{Name: "a robot", Request: robot, Answers: tooOften, Closes: "wecom-robot 1m"},
	})
	presettest.Run(t, wecom.Policies(wecom.Options{Blocked: time.Hour}), presettest.Case{}, []presettest.Case{
		{Name: "blocked for an hour", Request: members, Answers: tooOften, Closes: "wecom-company-minute 1h"},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, wecom.Policies(wecom.Options{}), presettest.Case{Request: members}, []presettest.Case{
		{Name: "success", Answers: `{"errcode":0,"errmsg":"ok","userlist":[]}`},
		{Name: "a token that is wrong", Answers: `{"errcode":40014,"errmsg":"invalid access_token"}`},
		{Name: "no permission", Answers: `{"errcode":60011,"errmsg":"no privilege to access/modify contact/party/agent"}`},
		{Name: "busy", Answers: `{"errcode":-1,"errmsg":"system busy"}`},
		{Name: "the code somewhere else", Answers: `{"errcode":0,"errmsg":"45009","data":{"errcode":45009}}`},
		{Name: "a page", Status: 502, Header: header{"Content-Type": "text/html"}, Answers: "<html>45009</html>"},
		{Name: "a file", Header: header{"Content-Type": "image/jpeg"}, Answers: "\xff\xd8 45009"},
	})
}

func TestBodiesAreLeftAlone(t *testing.T) {
	policies := wecom.Policies(wecom.Options{})
	require.Zero(t, presettest.LookedAt(t, policies, members, 200, header{"Content-Type": "video/mp4"}, `{"errcode":45009}`), "a file")
	require.LessOrEqual(t, presettest.LookedAt(t, policies, members, 200, header{"Content-Type": "application/json"}, `{"errcode":0,"errmsg":"ok"}`), 4<<10, "no more than what holds the code")
}

func TestCosts(t *testing.T) {
	people := func(*http.Request) int { return 1000 }
	policies := wecom.Policies(wecom.Options{Accounts: 10, People: people})
	const base = "wecom-company-minute 1, wecom-company-hour 1, wecom-ip-minute 1, wecom-ip-hour 1"
	for request, want := range map[string]string{
		members:   base,
		checkin:   base + ", wecom-checkin 1",
		approval:  base + ", wecom-approval 1",
		ticket:    base + ", wecom-ticket-company 1, wecom-ticket-app 1",
		message:   "wecom-app-day 1000",
		groupChat: "wecom-group-minute 1000, wecom-group-hour 1000",
		robot:     "wecom-robot 1",
	} {
		require.Equal(t, want, presettest.Costs(t, policies, presettest.Request(t, request)), request)
	}
}

// TestChanges are what a company may change, by the hour, the day and the month.
func TestChanges(t *testing.T) {
	policies := wecom.Policies(wecom.Options{Accounts: 10})
	const base = "wecom-company-minute 1, wecom-company-hour 1, wecom-ip-minute 1, wecom-ip-hour 1"
	const at = "POST https://qyapi.weixin.qq.com/cgi-bin/"
	for _, c := range []struct{ request, body, want string }{
		{"appchat/create", `{"name":"x"}`, ", wecom-new-chats 1"},
		{"appchat/update", `{"chatid":"x"}`, ", wecom-changed-chats 1"},
		{"media/uploadimg", "--x", ", wecom-pictures-day 1, wecom-pictures-month 1"},
		{"user/create", `{"userid":"x"}`, ", wecom-new-members 1"},
		{"agent/set", `{"agentid":1,"redirect_domain":"www.example.com"}`, ", wecom-domains 1"},
		{"agent/set", `{"agentid":1,"name":"x"}`, ""},
	} {
		require.Equal(t, base+c.want, presettest.Costs(t, policies, presettest.Request(t, at+c.request+"?access_token=t", c.body)), c.body)
	}
	const refused = `{"errcode":45009,"errmsg":"api freq out of limit"}`
	presettest.Run(t, policies, presettest.Case{}, []presettest.Case{
		{Name: "chats", Request: at + "appchat/create", Answers: refused, Closes: "wecom-company-minute 1m, wecom-new-chats 16h"},
		{Name: "changes", Request: at + "appchat/update", Answers: refused, Closes: "wecom-company-minute 1m, wecom-changed-chats 1h"},
		{Name: "pictures", Request: at + "media/uploadimg", Answers: refused, Closes: "wecom-company-minute 1m, wecom-pictures-day 16h"},
		{Name: "members", Request: at + "user/create", Answers: refused, Closes: "wecom-company-minute 1m, wecom-new-members 24h"},
		{Name: "domains", Request: at + "agent/set", Body: `{"redirect_domain":"a"}`, Answers: refused, Closes: "wecom-company-minute 1m, wecom-domains 24h"},
		{Name: "something else of an application", Request: at + "agent/set", Body: `{"name":"a"}`, Answers: refused, Closes: "wecom-company-minute 1m"},
		{Name: "a gateway", Request: at + "agent/set", Body: `{"name":"a"}`, Status: 429, Header: header{"Retry-After": "7"}, Answers: "slow down", Closes: "wecom-company-minute 7s"},
	})
}

func TestBudgets(t *testing.T) {
	policies := wecom.Policies(wecom.Options{
		Caller: presettest.Headers("App", "Company"),
	})
	const base = "wecom-company-minute Company, wecom-company-hour Company"
	for request, want := range map[string]string{
		members:   base,
		checkin:   base + ", wecom-checkin Company",
		approval:  base + ", wecom-approval Company",
		ticket:    base + ", wecom-ticket-company Company, wecom-ticket-app Company App",
		message:   "wecom-app-day Company App",
		groupChat: "wecom-group-minute Company, wecom-group-hour Company",
	} {
		require.Equal(t, want, presettest.Splits(t, policies, request, "Company", "App"), request)
	}

	here, there := wecom.Policies(wecom.Options{Address: "here"}), wecom.Policies(wecom.Options{Address: "there"})
	for row, parted := range map[string]bool{"wecom-ip-minute": true, "wecom-ip-hour": true, "wecom-company-minute": false} {
		r := presettest.Request(t, members)
		require.Equal(t, parted, presettest.Budget(t, here, row, r) != presettest.Budget(t, there, row, r), row)
	}
}

func TestAPIs(t *testing.T) {
	policies := wecom.Policies(wecom.Options{})
	budget := func(policy, line string) string {
		return presettest.Budget(t, policies, policy, presettest.Request(t, line))
	}
	for _, row := range []string{"wecom-company-minute", "wecom-company-hour", "wecom-ip-minute", "wecom-ip-hour"} {
		require.Equal(t, budget(row, members), budget(row, members+"&fetch_child=1"), row)
		require.NotEqual(t, budget(row, members), budget(row, checkin), row)
	}
	require.Equal(t, budget("wecom-robot", robot), budget("wecom-robot", robot+"&debug=1"))
	require.NotEqual(t, budget("wecom-robot", robot), budget("wecom-robot", robot+"7"))
}

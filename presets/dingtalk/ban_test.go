package dingtalk_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

const denied = `{"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"24ce64f68ff5dc054dca012fc3931165"}`

// TestBan: the address is closed on both hosts, whatever the answer calls itself.
func TestBan(t *testing.T) {
	ban := "dingtalk-ip 5m"
	var cases []presettest.Case
	for _, request := range []string{listSub, send, streamed, contact} {
		for _, status := range []int{200, 403, 405, 429, 503} {
			for _, media := range []string{"application/json", "text/html; charset=utf-8", "text/plain", "text/javascript", "application/octet-stream", ""} {
				for _, chunked := range []bool{false, true} {
					cases = append(cases, presettest.Case{
						Name: fmt.Sprint(request, status, media, chunked), Request: request, Status: status, Chunked: chunked,
						Header: presettest.Header{"Content-Type": media}, Answers: denied, Closes: ban,
					})
				}
			}
		}
	}
	for name, body := range map[string]string{
		"as documented":      `{"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"xxx"}`,
		"with spaces":        " {\n \"punish\" : \"deny\" }",
		"without punish":     `{"source":"x5","status":"1111"}`,
		"with a shorter end": `{"punish":"deny","wait":1}`,
		"with no number":     `{"punish":"deny","wait":"Infinity"}`,
	} {
		cases = append(cases, presettest.Case{Name: name, Request: send, Answers: body, Closes: ban})
	}
	cases = append(cases, presettest.Case{
		Name: "with a later end", Request: send, Answers: `{"punish":"deny","wait":"10"}`,
		Closes: "dingtalk-ip 10m",
	})
	presettest.Run(t, dingtalk.Policies(dingtalk.Options{}), presettest.Case{}, cases)
}

// TestBanThatNamesALimit: the ban in an answer with a code is about what the code names, for no shorter
// time than the ban prints.
func TestBanThatNamesALimit(t *testing.T) {
	with := func(code string) string { return denied[:len(denied)-1] + `,` + code + `}` }
	presettest.Run(t, dingtalk.Policies(dingtalk.Options{}), presettest.Case{Request: send, Header: asJSON}, []presettest.Case{
		{Name: "a robot, as somebody has seen it", Closes: "dingtalk-robot 10m",
			Answers: `{"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"9ff0e7e2346aabb5a8bcbb7c93c71636","errcode": 130101,"errmsg": "send too fast, exceed 20 times per minute"}`},
		{Name: "130101", Answers: with(`"errcode":130101`), Closes: "dingtalk-robot 10m"},
		{Name: "410100", Answers: with(`"errcode":"410100"`), Closes: "dingtalk-robot 10m"},
		{Name: "660026", Answers: with(`"errcode":660026`), Closes: "dingtalk-robot 10m"},
		{Name: "without punish", Answers: `{"status":1111,"source":"x5","errcode":130101}`, Closes: "dingtalk-robot 10m"},
		{Name: "without source", Answers: `{"status":1111,"errcode":130101}`, Closes: "dingtalk-robot 10m"},
		{Name: "660026 without source", Answers: `{"status":1111,"errcode":660026}`, Closes: "dingtalk-robot 10m"},
		{Name: "90018 without source", Answers: `{"status":1111,"wait":5,"errcode":90018}`, Closes: "dingtalk-api 5m"},
		{Name: "the code first", Answers: `{"errcode":130101,"punish":"deny"}`, Closes: "dingtalk-robot 10m"},
		{Name: "a longer wait", Answers: `{"errcode":130101,"punish":"deny","wait":15}`, Closes: "dingtalk-robot 15m"},
		{Name: "wrapped", Answers: with(`"errcode":88,"sub_code":"130101"`), Closes: "dingtalk-robot 10m"},
		{Name: "a reply", Request: reply, Answers: with(`"errcode":130101`), Closes: "dingtalk-session 10m"},
		{Name: "forbidden", Status: 403, Answers: with(`"errcode":130101`), Closes: "dingtalk-robot 10m"},
		{Name: "90018", Answers: with(`"errcode":90018`), Closes: "dingtalk-api 5m"},
		{Name: "90018, wrapped, of another API", Request: column, Answers: with(`"errcode":88,"sub_code":90018`), Closes: "dingtalk-api 5m"},
		{Name: "of a word", Request: people, Status: 400, Answers: with(`"code":"too.many.people"`), Closes: "dingtalk-robot-code 5m"},
		{Name: "of the address", Answers: `{"punish":"deny","errcode":90001}`, Closes: "dingtalk-ip 5m"},
		{Name: "of a success", Answers: with(`"errcode":0`), Closes: "dingtalk-ip 5m"},
		{Name: "of a code that is no limit", Answers: with(`"errcode":310000`), Closes: "dingtalk-ip 5m"},
	})
}

// TestRobotsFailure: 660026 is also the code of a robot's failure. That failure has nothing to do with a pace.
func TestRobotsFailure(t *testing.T) {
	var cases []presettest.Case
	for text, closes := range map[string]string{
		"sending too many messages per minute":      "dingtalk-robot 10m",
		"send too fast, exceed 20 times per minute": "dingtalk-robot 10m",
		"Send message frequently":                   "dingtalk-robot 10m",
		"机器人发送消息过于频繁":                               "dingtalk-robot 10m",
		"消息发送太快，请稍后再试":                              "dingtalk-robot 10m",
		"机器人每分钟最多发送20条消息":                           "dingtalk-robot 10m",
		"robot send message failed, try again":      "",
		"机器人发送消息失败，请重试":                             "",
		"message too long":                          "",
		"…":                                         "",
		"":                                          "",
	} {
		cases = append(cases,
			presettest.Case{Name: "plain " + text, Answers: `{"errcode":660026,"errmsg":"` + text + `"}`, Closes: closes},
			presettest.Case{Name: "wrapped " + text, Answers: `{"sub_msg":"` + text + `","errcode":88,"sub_code":"660026"}`, Closes: closes})
	}
	cases = append(cases, presettest.Case{Name: "no text", Answers: `{"errcode":660026}`})
	presettest.Run(t, dingtalk.Policies(dingtalk.Options{}), presettest.Case{Request: send, Header: asJSON}, cases)
}

// TestOneRobotsBanLeavesOthers: another robot, and an API, start at once.
func TestOneRobotsBanLeavesOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusing := answering(denied[:len(denied)-1] + `,"errcode":130101}`)
		transport, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: dingtalk.Policies(dingtalk.Options{}), Base: refusing, MaxWait: -1})
		require.NoError(t, err)
		sent := func(line string) error {
			resp, err := transport.RoundTrip(presettest.Request(t, line))
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		}
		require.NoError(t, sent(send))
		require.ErrorIs(t, sent(send), throttle.ErrLimited)
		require.NoError(t, sent(send+"2"), "another robot")
		require.NoError(t, sent(contact))
	})
}

// TestBanAsAPage: HTML where JSON was expected is the ban.
func TestBanAsAPage(t *testing.T) {
	const page = "\r\n<!DOCTYPE html><html><body>deny</body></html>"
	ban := "dingtalk-ip 5m"
	asHTML := presettest.Header{"Content-Type": "text/html; charset=utf-8"}
	wants := presettest.Header{"Accept": "text/html,application/xhtml+xml"}
	presettest.Run(t, dingtalk.Policies(dingtalk.Options{}), presettest.Case{Request: contact}, []presettest.Case{
		{Name: "old host", Request: listSub, Header: asHTML, Answers: page, Closes: ban},
		{Name: "new host", Header: asHTML, Answers: page, Closes: ban},
		{Name: "forbidden", Status: 403, Header: asHTML, Answers: page, Closes: ban},
		{Name: "called JSON", Request: listSub, Header: asJSON, Answers: page, Closes: ban},
		{Name: "called nothing", Request: listSub, Chunked: true, Answers: "\ufeff<html>" + denied + "</html>", Closes: ban},

		{Name: "asked for", Request: listSub, Sends: wants, Header: asHTML, Answers: page},
		{Name: "of another host", Request: "https://open.dingtalk.com/document", Header: asHTML, Answers: page},
		{Name: "of an upload", Request: "POST https://oapi.dingtalk.com/media/upload", Status: 413, Header: asHTML, Answers: page},
		{Name: "of a bad request", Status: 400, Header: asHTML, Answers: page},
		{Name: "of nothing", Status: 404, Header: asHTML, Answers: page},
		{Name: "of a proxy", Status: 407, Header: asHTML, Answers: page},
		{Name: "of a gateway", Request: listSub, Status: 502, Header: asHTML, Answers: page},
		{Name: "of an outage", Status: 503, Header: asHTML, Answers: page},
		{Name: "of a redirect", Status: 302, Header: asHTML, Answers: `<a href="/">Found</a>`},
		{Name: "of a file", Header: presettest.Header{"Content-Type": "image/svg+xml"}, Answers: "<svg/>"},
		{Name: "of a sheet", Header: presettest.Header{"Content-Type": "text/xml"}, Answers: "<sheet/>"},
	})
	presettest.Run(t, dingtalk.Policies(dingtalk.Options{Host: "127.0.0.1:8080"}), presettest.Case{}, []presettest.Case{
		{Name: "host of its own", Request: "http://127.0.0.1:8080/x", Header: asHTML, Answers: page, Closes: ban},
	})
}

// TestBanOfAFake: a fake need not ban for as long as the real one, but what an
// answer says counts.
func TestBanOfAFake(t *testing.T) {
	presettest.Run(t, dingtalk.Policies(dingtalk.Options{Ban: 3 * time.Second}), presettest.Case{Request: send}, []presettest.Case{
		{Name: "short", Answers: `{"punish":"deny","wait":0}`, Closes: "dingtalk-ip 3s"},
		{Name: "page", Answers: `<html>`, Closes: "dingtalk-ip 3s"},
		{Name: "real", Answers: denied, Closes: "dingtalk-ip 5m"},
	})
}

// TestBanOfOneAddress: a fleet behind another address goes on.
func TestBanOfOneAddress(t *testing.T) {
	here, there := dingtalk.Policies(dingtalk.Options{Address: "here"}), dingtalk.Policies(dingtalk.Options{Address: "there"})
	old, new := presettest.Request(t, listSub), presettest.Request(t, contact)
	require.True(t, presettest.Shared(t, here, "dingtalk-ip", old, new), "both hosts share the address")
	require.NotEqual(t, presettest.Budget(t, here, "dingtalk-ip", old), presettest.Budget(t, there, "dingtalk-ip", old))
}

// TestStreamsAreNotHeldUp: what cannot be a refusal is left after a look.
func TestStreamsAreNotHeldUp(t *testing.T) {
	rows := dingtalk.Policies(dingtalk.Options{})
	look := func(media, begin string) int {
		return presettest.LookedAt(t, rows, contact, 200, presettest.Header{"Content-Type": media}, begin)
	}
	require.Zero(t, look("text/event-stream", "data: {}\n\n"))
	require.Zero(t, look("image/png", "\x89PNG"))
	require.Zero(t, look("application/zip", denied))
	require.LessOrEqual(t, look("application/octet-stream", "PK"), 4<<10)
	require.LessOrEqual(t, look("text/plain", "one\n"), 4<<10)
	require.LessOrEqual(t, look("application/json", `{"result":[`), 64<<10)
}

// freeAPIs is DingTalk's list of free APIs, with a value in the place of each parameter.
const freeAPIs = `
POST api /v1.0/oauth2/accessToken
POST api /v1.0/oauth2/userAccessToken
POST api /v1.0/oauth2/jsapiTickets
POST api /v1.0/oauth2/ssoAccessToken
GET api /v1.0/oauth2/authRules/user
GET oapi /sns/gettoken
POST oapi /topapi/v2/user/getuserinfo
GET api /v1.0/oauth2/ssoUserInfo
POST oapi /topapi/v2/user/create
POST oapi /topapi/v2/user/update
POST oapi /topapi/v2/user/get
POST oapi /topapi/v2/user/delete
POST oapi /topapi/v2/user/list
POST oapi /topapi/v2/user/getbymobile
POST oapi /topapi/user/listsimple
POST oapi /topapi/user/listid
POST oapi /topapi/user/count
POST oapi /topapi/user/getbyunionid
POST oapi /topapi/user/listadmin
POST oapi /topapi/user/get_admin_scope
POST oapi /topapi/inactive/user/v2/get
GET api /v1.0/contact/empLeaveRecords
GET api /v1.0/contact/seniorSettings
POST api /v1.0/contact/seniorSettings
GET api /v1.0/contact/staffAttributes/visibilitySettings
DELETE api /v1.0/contact/staffAttributes/visibilitySettings/7
GET api /v1.0/contact/users/me
POST oapi /topapi/v2/department/create
POST oapi /topapi/v2/department/update
POST oapi /topapi/v2/department/delete
POST oapi /topapi/v2/department/get
POST oapi /topapi/v2/department/listsub
POST oapi /topapi/v2/department/listsubid
POST oapi /topapi/v2/department/listparentbydept
POST oapi /topapi/v2/department/listparentbyuser
POST oapi /role/add_role
POST oapi /role/add_role_group
POST oapi /role/update_role
POST oapi /topapi/role/addrolesforemps
POST oapi /topapi/role/deleterole
POST oapi /topapi/role/removerolesforemps
POST oapi /topapi/role/scope/update
POST oapi /topapi/role/getrolegroup
POST oapi /topapi/role/list
POST oapi /topapi/role/getrole
POST oapi /topapi/role/simplelist
POST oapi /topapi/extcontact/create
POST oapi /topapi/extcontact/delete
POST oapi /topapi/extcontact/update
POST oapi /topapi/extcontact/list
POST oapi /topapi/extcontact/listlabelgroups
POST oapi /topapi/extcontact/get
GET api /v1.0/contact/invites/infos
GET api /v1.0/contact/dingIndexs
GET api /v1.0/contact/organizations/authInfos
PUT api /v1.0/contact/contactHideSettings
GET api /v1.0/contact/contactHideSettings/7
POST api /v1.0/contact/depts/settings/priorities
POST oapi /topapi/smartwork/hrm/employee/addpreentry
POST oapi /topapi/smartwork/hrm/employee/querypreentry
POST oapi /topapi/smartwork/hrm/employee/queryonjob
POST oapi /topapi/smartwork/hrm/employee/v2/update
POST oapi /topapi/smartwork/hrm/roster/meta/get
POST api /v1.0/hrm/rosters/lists/query
GET api /v1.0/hrm/employees/dimissionInfos
GET api /v1.0/hrm/employees/dismissions
POST api /v1.0/hrm/processes/transfer
GET api /v1.0/im/interconnections
POST api /v1.0/im/interconnections/groups/members
POST api /v1.0/im/conversations/urls
POST oapi /topapi/alitrip/btrip/apply/get
GET api /v1.0/alitrip/flightExceedApplications
POST api /v1.0/dingmi/robots/callback
POST api /v1.0/customerService/tickets
GET api /v1.0/customerService/tickets/7
POST oapi /topapi/smartbot/msg/push
GET api /v1.0/manufacturing/users/7/tasks
POST api /v2.0/esign/accounts/certs
POST api /v1.0/jzcrm/data
GET api /v1.0/h3yun/forms/instances`

// countedAPIs are APIs that the list does not have, and some that are near one.
const countedAPIs = `
GET oapi /gettoken
POST api /v1.0/oauth2/corp/token
POST api /v1.0/oauth2/corpAccessToken
GET api /v1.0/oauth2/accessToken
GET api /v1.0/oauth2/userAccessToken
POST oapi /service/get_corp_token
GET oapi /user/get
GET oapi /topapi/v2/user/get
POST api /topapi/v2/user/get
POST oapi /v1.0/oauth2/accessToken
POST oapi /topapi/v2/user/getall
POST oapi /topapi/v2/user/get/more
POST oapi /topapi/v2/user
GET api /v1.0/contact/users
GET api /v1.0/contact/users/me/more
POST api /v1.0/contact/users/search/more
POST api /v1.0/contact/invites/infos
GET api /v1.0/contact/departments/7
POST api /v1.0/hrm/employees/dismissions
GET api /v1.0/hrm/metas
POST oapi /topapi/smartwork/hrm/employee/list
POST api /v1.0/im/interconnectionsOfMine
GET api /v1.0/im/conversations/urls
POST api /v1.0/im/chat/messages/send
POST oapi /attendance/list
POST oapi /topapi/attendance/getcolumnval
POST oapi /topapi/processinstance/create
GET api /v1.0/workflow/processInstances
GET api /v1.0/drive/spaces
GET api /v1.0/doc/workspaces
GET api /v1.0/notable/bases/7/sheets
POST api /v1.0/yida/forms/instances
GET api /v1.0/agoal/objectives
GET api /v1.0/project/users/7/tasks
POST api /v1.0/robot/oToMessages/batchSend
POST oapi /topapi/message/corpconversation/asyncsend_v2
POST oapi /topapi/message/corpconversation/getsendresult
GET api /v1.0/alitrip
POST oapi /topapi/v2/user/x/%2e%2e/get
POST oapi /attendance/%2e%2e/topapi/v2/user/get
GET api /v1.0/unheard/of`

// TestFreeCalls: every call counts for the month but those that DingTalk's list has, by method, host and
// path.
func TestFreeCalls(t *testing.T) {
	own := dingtalk.Options{Edition: dingtalk.Standard}
	for list, want := range map[string]int{freeAPIs: 0, countedAPIs: 1} {
		for line := range strings.Lines(strings.TrimSpace(list)) {
			words := strings.Fields(line)
			for _, host := range []string{words[1] + ".dingtalk.com", strings.ToUpper(words[1]) + ".DingTalk.com:443"} {
				r := presettest.Request(t, words[0]+" https://"+host+words[2]+"?access_token=t")
				require.Equal(t, want, presettest.Cost(t, dingtalk.Policies(own), "dingtalk-month", r), line)
			}
		}
	}
	for line, want := range map[string]int{
		send: 0, reply: 0, // webhooks, which have a month of their own
		"https://open.dingtalk.com/document":       0,
		"https://login.dingtalk.com/v1.0/x/y":      0,
		"POST http://127.0.0.1:8080/v1.0/x":        1,
		"POST http://127.0.0.1:8080/gettoken":      1,
		"POST http://127.0.0.1:8080/role/add_role": 0,
	} {
		o := own
		if strings.Contains(line, "127.0.0.1") {
			o.Host = "127.0.0.1:8080"
		}
		require.Equal(t, want, presettest.Cost(t, dingtalk.Policies(o), "dingtalk-month", presettest.Request(t, line)), line)
	}
}

// TestMeteredIsAQuestion: what counts for the month can be said.
func TestMeteredIsAQuestion(t *testing.T) {
	rows := dingtalk.Policies(dingtalk.Options{Metered: func(r *http.Request) bool { return r.URL.Host == "api.dingtalk.com" }})
	require.Contains(t, presettest.Rows(t, rows, presettest.Request(t, contact)), "dingtalk-month")
	require.NotContains(t, presettest.Rows(t, rows, presettest.Request(t, column)), "dingtalk-month")
}

// TestRefusedCallsAreGivenBack: what an application's or an API's calls in a second refuse does not count
// for the month. Of nothing else is that known.
func TestRefusedCallsAreGivenBack(t *testing.T) {
	word := func(code string) string { return `{"code":"Forbidden.AccessDenied.` + code + `"}` }
	rows := dingtalk.Policies(dingtalk.Options{Edition: dingtalk.Standard})
	presettest.Run(t, rows, presettest.Case{Request: column, Header: asJSON}, []presettest.Case{
		{Name: "90018", Answers: `{"errcode":90018}`, Closes: "dingtalk-api 1s", Costs: "dingtalk-month 0"},
		{Name: "90018, wrapped", Answers: `{"errcode":88,"sub_code":"90018"}`, Closes: "dingtalk-api 1s", Costs: "dingtalk-month 0"},
		{Name: "90002", Answers: `{"errcode":88,"errmsg":"[subcode=90002]"}`, Closes: "dingtalk-global 1s", Costs: "dingtalk-month 0"},
		{Name: "the application", Request: approval, Status: 403, Answers: word("QpsLimitForAppkeyAndApi"), Closes: "dingtalk-api 1s", Costs: "dingtalk-month 0"},
		{Name: "the API", Request: approval, Status: 403, Answers: word("QpsLimitForApi"), Closes: "dingtalk-global 1s", Costs: "dingtalk-month 0"},
		{Name: "the API, as a 429", Request: approval, Status: 429, Answers: word("QpsLimitForApi"), Closes: "dingtalk-global 1s", Costs: "dingtalk-month 0"},

		{Name: "success", Answers: `{"errcode":0}`},
		{Name: "a wrong parameter", Answers: `{"errcode":40035}`},
		{Name: "the month", Answers: `{"errcode":90020}`, Closes: "dingtalk-month 24h"},
		{Name: "the ban", Answers: denied, Closes: "dingtalk-ip 5m"},
		{Name: "a minute", Answers: `{"errcode":90006}`, Closes: "dingtalk-api 1m"},
		{Name: "a product", Request: approval, Status: 400, Answers: `{"code":"qps.exceed.limit"}`, Closes: "dingtalk-api 1s"},
		{Name: "a 429", Request: approval, Status: 429, Answers: `{}`, Closes: "dingtalk-api 1s"},
		{Name: "a free call", Request: listSub, Answers: `{"errcode":90018}`, Closes: "dingtalk-api 1s"},
	})
}

// month is a program that has five calls a month, and a DingTalk that refuses those above some number.
// The bubble begins on 1 January at eight in Beijing.
func monthOf(t *testing.T, o dingtalk.Options, serves int, answers string) (call func() error) {
	t.Helper()
	called := 0
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		called++
		if called > serves {
			return answering(answers).RoundTrip(r)
		}
		return answering(`{"errcode":0}`).RoundTrip(r)
	})
	o.Edition = dingtalk.Edition{PerMonth: 5}
	transport, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: dingtalk.Policies(o), Base: base, MaxWait: -1})
	require.NoError(t, err)
	return func() error {
		resp, err := transport.RoundTrip(presettest.Request(t, column))
		if err != nil {
			return err
		}
		require.NoError(t, resp.Body.Close())
		return nil
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// refused returns the policy that refuses a call, or "".
func refused(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var limited *throttle.LimitError
	require.ErrorAs(t, err, &limited)
	return limited.Policy
}

// TestMonth: the month's number is kept until the 1st in Beijing, and calls that were refused for the
// second are not in it.
func TestMonth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		call := monthOf(t, dingtalk.Options{}, 0, `{"errcode":90018}`)
		for range 9 {
			require.Empty(t, refused(t, call()), "what is refused is given back")
			time.Sleep(time.Hour)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		call := monthOf(t, dingtalk.Options{}, 100, "")
		for range 5 {
			require.Empty(t, refused(t, call()))
		}
		require.Equal(t, "dingtalk-month", refused(t, call()))
		time.Sleep(31*24*time.Hour - 8*time.Hour - time.Second)
		require.Equal(t, "dingtalk-month", refused(t, call()))
		time.Sleep(time.Second)
		require.Empty(t, refused(t, call()))
	})
}

// TestBuffer: in the buffer calls go on above the month's number, until DingTalk refuses one. That closes
// the month until the 1st: once a day a call tries, and is refused again.
func TestBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		call := monthOf(t, dingtalk.Options{Buffer: true}, 20, `{"errcode":90020}`)
		for range 21 {
			require.Empty(t, refused(t, call()))
			time.Sleep(time.Second)
		}
		tries := 0
		for first := time.Date(2000, 2, 1, 0, 0, 0, 0, time.FixedZone("UTC+8", 8*60*60)); time.Now().Before(first); time.Sleep(10 * time.Minute) {
			if policy := refused(t, call()); policy == "" {
				tries++
			} else {
				require.Equal(t, "dingtalk-month", policy)
			}
		}
		require.LessOrEqual(t, tries, 31)
	})
	rows := dingtalk.Policies(dingtalk.Options{Edition: dingtalk.Standard, Buffer: true})
	for _, row := range rows {
		require.Equal(t, row.Name == "dingtalk-month-counted", row.Shadow, row.Name)
	}
	all := limits(rows)
	require.Equal(t, "unlimited", all["dingtalk-month"].String())
	require.Equal(t, "5000/month +08:00", all["dingtalk-month-counted"].String())
	require.NotContains(t, limits(dingtalk.Policies(dingtalk.Options{Buffer: true})), "dingtalk-month-counted", "no edition, no number")
	require.NotContains(t, fmt.Sprint(limits(dingtalk.Policies(dingtalk.Options{Edition: dingtalk.Standard}))), "counted")
}

// TestWebhooksHaveAMonth: webhooks of all robots of a company are counted together, and a robot's own cap
// for each robot.
func TestWebhooksHaveAMonth(t *testing.T) {
	rows := dingtalk.Policies(dingtalk.Options{Edition: dingtalk.Standard, RobotPerMonth: 10})
	r, other := presettest.Request(t, send), presettest.Request(t, send+"2")
	require.True(t, presettest.Shared(t, rows, "dingtalk-webhooks", r, other))
	require.True(t, presettest.Shared(t, rows, "dingtalk-webhooks", r, presettest.Request(t, reply)))
	require.False(t, presettest.Shared(t, rows, "dingtalk-robot-month", r, other))
}

package dingtalk_test

import (
	"fmt"
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

// TestRobotsFailure: 660026 is also what a robot's failure is called that has nothing to do with a pace.
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

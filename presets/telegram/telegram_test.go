package telegram_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/telegram"
)

const (
	send = "POST https://api.telegram.org/bot123:ABC/sendMessage"
	form = "application/x-www-form-urlencoded"
)

func usual(status int) presettest.Case {
	return presettest.Case{Request: send, Sends: presettest.JSON(), Body: `{"chat_id":7,"text":"hello"}`, Status: status, Header: presettest.JSON()}
}

func TestRefusals(t *testing.T) {
	group := presettest.Recorded(t, "refused.http").As("a group", "telegram-group 34s")
	group.Body = `{"text":"hello","chat_id":-100123}`
	presettest.Run(t, telegram.Policies(telegram.Options{}), usual(429), []presettest.Case{
		group,
		presettest.Recorded(t, "refused.http").As("a private chat", "telegram-bot 34s"),
		{Name: "a channel's name", Request: send + "?chat_id=@news", Answers: `{"parameters":{"retry_after":5}}`, Closes: "telegram-group 5s"},
		{Name: "hours", Answers: `{"parameters":{"retry_after":2282}}`, Closes: "telegram-bot 38m2s"},
		{Name: "no message", Request: "https://api.telegram.org/bot123:ABC/getUpdates", Body: " ", Answers: `{"parameters":{"retry_after":5}}`, Closes: "telegram-other 5s"},
		{Name: "an edit", Request: "https://api.telegram.org/bot123:ABC/editMessageText", Answers: `{"parameters":{"retry_after":237}}`, Closes: "telegram-chat-other 3m57s"},
		{Name: "an edit of an inline message", Request: "https://api.telegram.org/bot123:ABC/editMessageText", Body: `{"inline_message_id":"7"}`,
			Answers: `{"parameters":{"retry_after":237}}`, Closes: "telegram-other 3m57s"},
		{Name: "typing", Request: "https://api.telegram.org/bot123:ABC/sendChatAction?chat_id=-5", Answers: `{"parameters":{"retry_after":5}}`, Closes: "telegram-chat-other 5s"},
		{Name: "it does not say for how long", Answers: `{"ok":false,"error_code":429,"parameters":{"retry_after":"soon"}}`, Closes: "telegram-bot 1s"},
		{Name: "a gateway's page", Header: presettest.Header{"Content-Type": "text/html", "Retry-After": "9"}, Answers: "<html>", Closes: "telegram-bot 9s"},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, telegram.Policies(telegram.Options{}), usual(200), []presettest.Case{
		{Name: "a message that quotes a refusal", Answers: `{"ok":true,"parameters":{"retry_after":5}}`},
		{Name: "a group has another id", Status: 400, Answers: `{"ok":false,"parameters":{"migrate_to_chat_id":-100}}`},
		{Name: "blocked", Status: 403, Answers: `{"ok":false,"error_code":403,"description":"Forbidden: bot was blocked by the user"}`},
		{Name: "one backend is away", Status: 503, Header: presettest.JSON("Retry-After", "9")},
		{Name: "a file", Request: "https://api.telegram.org/file/bot123:ABC/documents/1", Status: 429},
		{Name: "another host", Request: "https://core.telegram.org/bot1/sendMessage", Status: 429},
	})
}

// TestARefusalStopsNoMoreThanItIsAbout: after a refusal of one method, which other calls go on.
func TestARefusalStopsNoMoreThanItIsAbout(t *testing.T) {
	type call struct{ method, body string }
	edit := call{"editMessageText", `{"chat_id":5,"message_id":1,"text":"x"}`}
	updates, callback := call{"getUpdates", `{"offset":7}`}, call{"answerCallbackQuery", `{"callback_query_id":"1"}`}
	inline := call{"editMessageText", `{"inline_message_id":"1","text":"x"}`}
	group := call{"sendMessage", `{"chat_id":-100,"text":"x"}`}
	for _, c := range []struct {
		name    string
		refused call
		held    []call
		goOn    []call
	}{
		{"an edit", edit,
			[]call{edit, {"EDITMESSAGETEXT", edit.body}, {"deleteMessage?chat_id=5", ""}, {"sendChatAction", `{"chat_id":"5"}`}},
			[]call{updates, callback, inline, {"editMessageText", `{"chat_id":6}`}, {"sendMessage", `{"chat_id":6}`}, {"getMe", ""}, {"setWebhook", ""}}},
		{"an edit of an inline message", inline, []call{inline}, []call{edit, updates, callback, group}},
		{"an answer to a button", callback, []call{callback, {"AnswerCallbackQuery", callback.body}}, []call{updates, edit, inline, group}},
		{"the poll", updates, []call{updates}, []call{callback, edit, group}},
		{"a message to a group", group, []call{group}, []call{updates, callback, edit, {"sendMessage", `{"chat_id":5}`}}},
		{"a message to a person", call{"sendMessage", `{"chat_id":5}`}, []call{group}, []call{updates, callback, edit}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, later := range append(slices.Clone(c.held), c.goOn...) {
				synctest.Test(t, func(t *testing.T) {
					refuse := true
					upstream := presettest.RoundTripper(func(r *http.Request) (*http.Response, error) {
						answer, status := `{"ok":true}`, http.StatusOK
						if refuse {
							answer, status = `{"ok":false,"error_code":429,"parameters":{"retry_after":237}}`, http.StatusTooManyRequests
						}
						return &http.Response{
							StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
							Body: io.NopCloser(strings.NewReader(answer)), ContentLength: int64(len(answer)),
						}, nil
					})
					transport, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: telegram.Policies(telegram.Options{}), Base: upstream, MaxWait: 10 * time.Second})
					require.NoError(t, err)
					send := func(c call) error {
						r := presettest.Request(t, "POST https://api.telegram.org/bot123:ABC/"+c.method, c.body)
						r.Header.Set("Content-Type", "application/json")
						resp, err := transport.RoundTrip(r)
						if err == nil {
							require.NoError(t, resp.Body.Close())
						}
						return err
					}

					require.NoError(t, send(c.refused))
					refuse = false
					err = send(later)

					if slices.Contains(c.held, later) {
						require.ErrorIs(t, err, throttle.ErrLimited, "%v", later)
					} else {
						require.NoError(t, err, "%v", later)
					}
				})
			}
		})
	}
}

func TestCost(t *testing.T) {
	for _, c := range []struct {
		name, method, media, body string
		bot, chat, group, inChat  int
	}{
		{"a private chat", "sendMessage", "application/json", `{"chat_id":7}`, 1, 1, 0, 0},
		{"a group", "sendPhoto", "application/json; charset=utf-8", `{"reply_markup":{"chat_id":7},"chat_id":"-100"}`, 1, 1, 1, 0},
		{"a channel, as a form", "copyMessage", form, "text=a%26b&chat_id=%40news", 1, 1, 1, 0},
		{"the query", "forwardMessages?chat_id=-5", "", "", 1, 1, 1, 0},
		{"in any case", "SENDMESSAGE?chat_id=5", "", "", 1, 1, 0, 0},
		{"an upload", "sendDocument", "multipart/form-data; boundary=x", "--x", 1, 0, 0, 0},
		{"no id", "sendMessage", "application/json", `{"chat_id":{"a":1}}`, 1, 0, 0, 0},
		{"no object", "sendMessage", "application/json", `[{"chat_id":1}]`, 1, 0, 0, 0},
		{"typing", "sendChatAction", "application/json", `{"chat_id":-7}`, 0, 0, 0, 1},
		{"what comes in", "getUpdates", "", "", 0, 0, 0, 0},
	} {
		r := presettest.Request(t, "POST https://api.telegram.org/bot123:ABC/"+c.method, c.body)
		r.Header.Set("Content-Type", c.media)
		rows := telegram.Policies(telegram.Options{})
		require.Equal(t, c.bot, presettest.Cost(t, rows, "telegram-bot", r), c.name)
		require.Equal(t, c.chat, presettest.Cost(t, rows, "telegram-chat", r), c.name)
		require.Equal(t, c.inChat, presettest.Cost(t, rows, "telegram-chat-other", r), c.name)
		require.Equal(t, 1-c.bot-c.inChat, presettest.Cost(t, rows, "telegram-other", r), c.name)
		require.Equal(t, c.group, presettest.Cost(t, rows, "telegram-group", r), c.name)
	}
}

func TestSharedBudgets(t *testing.T) {
	with := func(token, chat string) *http.Request {
		return presettest.Request(t, "POST https://api.telegram.org/bot"+token+"/sendMessage?chat_id="+chat, "")
	}
	for _, c := range []struct {
		name, row string
		options   telegram.Options
		other     *http.Request
		same      bool
	}{
		{"a bot's chats", "telegram-bot", telegram.Options{}, with("1:A", "-8"), true},
		{"another bot", "telegram-bot", telegram.Options{}, with("2:B", "-7"), false},
		{"a bot with a new token", "telegram-bot", telegram.Options{Bot: "1"}, with("1:B", "-7"), true},
		{"a chat", "telegram-chat", telegram.Options{}, with("1:A", "-7"), true},
		{"another chat", "telegram-chat", telegram.Options{}, with("1:A", "-8"), false},
		{"another bot in the group", "telegram-group", telegram.Options{}, with("2:B", "-7"), false},
		{"chats of which the options say", "telegram-group", telegram.Options{Channel: func(*http.Request) string { return "@x" }}, with("1:A", "-8"), true},
	} {
		require.Equal(t, c.same, presettest.Shared(t, telegram.Policies(c.options), c.row, with("1:A", "-7"), c.other), c.name)
	}
}

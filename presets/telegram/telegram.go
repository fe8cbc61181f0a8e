// Package telegram is the table of limits of Telegram's Bot API.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: telegram.Policies(telegram.Options{}),
//	}))}
//
// # Rows
//
//	telegram-bot         30 messages a second, of each bot
//	telegram-chat         1 message a second, to each chat
//	telegram-group       20 messages a minute, to each group
//	telegram-chat-other  other methods in each chat, such as edits: not published
//	telegram-other       other methods, such as getUpdates, by method: not published
//
// What sends, copies or forwards is a message. The chat is the
// chat_id of the query or of a body in JSON or of a form. It is a group if the id is negative, and
// a channel too, by its id or by its name. A message whose chat cannot be read, as in an upload, is
// charged to the bot alone: [Options.Channel] can say.
//
// The bot is told by its token, which stands in the path and leaves the program as a hash only.
//
// # Refusals
//
// A 429 says in parameters.retry_after for how many seconds; without this member and a Retry-After a
// refusal lasts a second (inferred). It does not say which limit was reached.
//
//	to a message to a group          telegram-group
//	to any other message             telegram-bot
//	to other methods with a chat     telegram-chat-other
//	to other methods without a chat  telegram-other
//	503, ten in a row                the same as of a 429
//
// That is inferred: at this pace a private chat has no reason to refuse, and if the whole bot is to
// be slower, closing the private chats one by one would not slow it. That a refused edit stops
// neither getUpdates nor answerCallbackQuery is observed.
//
// # Not covered
//
// How many short bursts a chat takes. Requests for several messages at once (sendMediaGroup,
// copyMessages, forwardMessages) count as one. How many edits a chat takes. Downloads of files. Paid broadcasts, except
// by [Options.PerSecond].
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: the numbers: https://core.telegram.org/bots/faq#my-bot-is-hitting-limits-how-do-i-avoid-this
//   - official: retry_after, allow_paid_broadcast: https://core.telegram.org/bots/api#responseparameters
//   - observed: the body of a refusal: https://github.com/flathunters/flathunter/issues/88,
//     https://github.com/tdlib/telegram-bot-api/issues/184
//   - observed: refused edits, and bots that go on beside them:
//     https://github.com/m1guelpf/chatgpt-telegram/issues/58, https://github.com/tdlib/telegram-bot-api/issues/648
//   - from common use: the host and the paths, that ids of groups and channels are negative.
//   - inferred: which methods send; which row a refusal closes; a second; that an answer may have a Retry-After
//     (RFC 9110).
package telegram

import (
	"cmp"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/reqbody"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// Options hold a bot's limits, and identify the bot. The zero value is bots that are identified by
// their tokens.
type Options struct {
	// PerSecond is how many messages a bot may send in a second. It is up to 1000 for
	// messages with allow_paid_broadcast. Defaults to 30.
	PerSecond int

	// Bot is the bot's id. Defaults to "": bots are told apart by the tokens in the
	// path.
	Bot string

	// Caller says which bot sends a request, for a program that has several. It
	// replaces Bot, and "" means the same. Defaults to nil.
	Caller func(*http.Request) (bot string)

	// Channel returns the id or the name of a request's chat, or "" for a request without a known
	// chat. Defaults to chat_id in the query or the body.
	Channel func(*http.Request) string

	// Host is a pattern of the API's hosts, in place of the default for a Bot API server
	// of one's own, a fake or a proxy. Defaults to "api.telegram.org".
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	o = o.withDefaults()
	match := o.Host + "/{bot}/{method}"
	bot := caller.Or(caller.ID(o.Bot, o.Caller), throttle.PathValue("bot"))
	toChat := throttle.Join(bot, o.Channel)

	return tablerow.Table([]throttle.Policy{
		{
			Name: "telegram-bot", Match: match, Key: bot, Cost: sends,
			Limit: throttle.PerSecond(o.PerSecond), Answer: o.botRefused(),
		},
		{
			Name: "telegram-chat", Match: match, Key: toChat, Cost: o.toChat,
			Limit: throttle.PerSecond(1), Answer: feedback.LeaveOpen,
		},
		{
			Name: "telegram-group", Match: match, Key: toChat, Cost: o.toGroup,
			Limit: throttle.PerMinute(20), Answer: tablerow.IfCharged(o.toGroup, feedback.First(refused, tablerow.Outage())),
		},
		{
			Name: "telegram-chat-other", Match: match, Key: toChat, Cost: o.otherInChat,
			Limit: throttle.Unlimited(), Answer: tablerow.IfCharged(o.otherInChat, feedback.First(refused, tablerow.Outage())),
		},
		{
			Name: "telegram-other", Match: match, Key: throttle.Join(bot, method), Cost: o.other,
			Limit: throttle.Unlimited(), Answer: tablerow.IfCharged(o.other, feedback.First(refused, tablerow.Outage())),
		},
	})
}

// withDefaults returns o with the defaults of its zero fields.
func (o Options) withDefaults() Options {
	o.PerSecond = cmp.Or(o.PerSecond, 30)
	o.Host = cmp.Or(o.Host, "api.telegram.org")
	if o.Channel == nil {
		o.Channel = chat
	}
	return o
}

// method returns the name of the request's method in lower case: Telegram reads it in any.
func method(r *http.Request) string {
	path := throttle.RawPath(r)
	return strings.ToLower(path[strings.LastIndexByte(path, '/')+1:])
}

// sends is 1 for a message, and 0 for any other request.
func sends(r *http.Request) int {
	name := method(r)

	// A chat action is no message.
	if name == "sendchataction" {
		return 0
	}
	for _, prefix := range []string{"send", "copymessage", "forwardmessage"} {
		if strings.HasPrefix(name, prefix) {
			return 1
		}
	}
	return 0
}

// otherInChat is 1 for a request in a chat that is no message, such as an edit.
func (o *Options) otherInChat(r *http.Request) int {
	if sends(r) == 1 || o.Channel(r) == "" {
		return 0
	}
	return 1
}

// other is 1 for a request that is no message and in no chat.
func (o *Options) other(r *http.Request) int { return 1 - sends(r) - o.otherInChat(r) }

// toChat is 1 for a message to a chat that is known.
func (o *Options) toChat(r *http.Request) int {
	if sends(r) == 0 || o.Channel(r) == "" {
		return 0
	}
	return 1
}

// toGroup is 1 for a message to a group or a channel.
func (o *Options) toGroup(r *http.Request) int {
	if to := o.Channel(r); sends(r) == 1 && (strings.HasPrefix(to, "-") || strings.HasPrefix(to, "@")) {
		return 1
	}
	return 0
}

// refused closes the row after any refusal.
var refused = feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.First(
	feedback.Printed{Fields: []string{"parameters.retry_after"}, As: feedback.After(time.Second)}.Answer,
	feedback.RetryAfter(time.Second),
))

// botRefused returns a reader that closes the row after a refusal of a message that goes to no group, and after an outage.
func (o *Options) botRefused() feedback.Reader {
	toNoGroup := func(r *http.Request) int { return sends(r) - o.toGroup(r) }
	return tablerow.IfCharged(toNoGroup, feedback.First(refused, tablerow.Outage()))
}

const field = "chat_id"

// chat is the default of [Options.Channel].
var chat = caller.Or(throttle.Query(field), ofBody)

// ofBody returns the chat that a request's body, JSON or a form, names, or "".
func ofBody(r *http.Request) (id string) {
	switch media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media {
	case "application/json":
		return reqbody.Member(r, field)
	case "application/x-www-form-urlencoded":
		return reqbody.Form(r).Get(field)
	}
	return ""
}

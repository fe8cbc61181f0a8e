package dingtalktest

import (
	"fmt"
	"net/http"
	"time"
)

// An Arrival is one call that reached a [Server].
type Arrival struct {
	At      time.Time
	API     string // the pattern of the API; the path if there is no such API
	App     string // the application; "" if the call does not tell
	Address string // where the call came from
	Refusal string // "" if served, [Banned], "unknown" if there is no such API, or the old API's code for both families: 90018
}

// Banned is the Refusal of a call from a banned address.
const Banned = "banned"

// rules count calls, and remember what still counts.
type rules struct {
	options Options
	book    addressBook

	tokens  map[string]token  // by their text
	current map[string]string // the text of the token that an application got last

	windows map[window][]time.Time
	closed  map[window]time.Time // until when addresses are banned and robots closed
	bans    int                  // how many there were

	month    string    // the calendar month of the last call that counts for it, in Beijing
	metered  int       // calls in the month that count
	webhooks int       // messages of custom robots in the month
	usedUp   time.Time // when the month's calls were used up, or the zero time before that

	tasks []notice // the work notices; a task's id is its index and firstTask
}

// A token is what an application shows with each call.
type token struct {
	app   string
	until time.Time
}

// A window names calls that are counted together, such as the calls of one API by one
// application. by is the application, the address, the robot or the person, where the rule counts by one.
// api is the API, the message or the robot that the rule also counts by, or "".
type window struct{ rule, by, api string }

// newRules returns rules that have counted nothing. o has its defaults already.
func newRules(o Options) *rules {
	return &rules{
		options: o, book: newAddressBook(o.People),
		tokens: make(map[string]token), current: make(map[string]string),
		windows: make(map[window][]time.Time), closed: make(map[window]time.Time),
	}
}

// issue returns the token of an application, which is valid for TokenLife from now on: the current token or,
// if it has expired or there is none, a new token.
func (r *rules) issue(app string, now time.Time) string {
	text := r.current[app]
	if !now.Before(r.tokens[text].until) {
		// An expired token must stay invalid, so each further token has a different text.
		text = "token-of-" + app
		if _, used := r.tokens[text]; used {
			text = fmt.Sprintf("token-of-%s-%d", app, len(r.tokens))
		}
	}

	r.current[app] = text
	r.tokens[text] = token{app, now.Add(r.options.TokenLife)}
	return text
}

// A call is one arrival while it is judged.
type call struct {
	Arrival
	*http.Request
	route route
	parameters
	*rules
}

// refuse notes why the call is refused, and returns h, which answers it.
func (c *call) refuse(code string, h http.HandlerFunc) http.HandlerFunc {
	c.Refusal = code
	return h
}

// judge applies the rules in DingTalk's order: the address comes before all others,
// and the robot's counter before its token. The functions whose names begin with over count the
// call. A call that one of them refuses is not counted by the functions behind it. judge returns
// the function that refuses the call, or nil. The caller holds the mutex of the server.
func (c *call) judge() http.HandlerFunc {
	path := c.URL.Path
	switch {
	case c.overAddress():
		return c.refuse(Banned, c.options.BanAnswer)
	case c.API == "":
		return c.refuse("unknown", unknown(path))
	case c.route.method != "" && c.route.method != c.Method:
		return c.refuse(wrongMethod(path, c.route.method))
	case path == pathRobot:
		return c.judgeRobot()
	}

	app, refuse := c.login()
	if refuse != nil {
		return refuse
	}

	c.App = app
	known, exists := c.options.app(app)
	switch {
	// An application that does not exist may call all APIs with a token of Server.Token. If it asks for a token,
	// wrongSecret refuses it later.
	case exists && !known.may(c.route.permission):
		return c.refuse("60011", notPermitted(path, app, c.route.permission))
	case c.overCrowd():
		return c.refuse("90002", crowded(path, c.options.PerAPI, c.At))
	case c.overSecond():
		return c.refuse("90018", tooFast(path))
	case c.overMonth():
		return c.refuse("90020", usedUp(path, c.metered, c.options.Edition.PerMonth))
	case c.foreign:
		return c.refuse("43004", foreign)
	}

	return nil
}

// login returns the calling application: the application that asks for a token, or the owner of the call's token. It
// returns the refusal of a call without a good token. An application that asks for a token is checked later: see getToken.
func (c *call) login() (app string, refuse http.HandlerFunc) {
	path := c.URL.Path
	switch path {
	case pathGetToken:
		return c.query.Get("appkey"), nil
	case pathAccessToken:
		return c.text("appKey"), nil
	}

	text := c.text("access_token")
	if isNew(path) {
		text = c.Header.Get("x-acs-dingtalk-access-token")
	}
	if text == "" {
		return "", c.refuse("40000", noToken(path))
	}

	t, known := c.tokens[text]
	if !known || !c.At.Before(t.until) {
		return "", c.refuse("40014", invalidToken(path))
	}

	return t.app, nil
}

// getToken gives an application its token. It refuses a call without an application, with a wrong secret, or
// above TokensPerMinute.
func (c *call) getToken() http.HandlerFunc {
	if c.query.Get("appkey") == "" {
		return c.refuse("40035", plain(40035, "缺少参数 corpid or appkey"))
	}
	if c.wrongSecret(c.query.Get("appsecret")) {
		return c.refuse("40096", plain(40096, "不合法的appKey或appSecret"))
	}
	if c.overTokens() {
		return c.refuse("90006", wrapped("90006", "您当前使用的CorpId及CorpSecret调用当前接口次数过多，请求被暂时禁用了，仅对企业自己的Accesstoken有效"))
	}
	return reply(http.StatusOK, object{
		"errcode": 0, "errmsg": "ok", "access_token": c.issue(c.App, c.At), "expires_in": int(c.options.TokenLife.Seconds()),
	})
}

// accessToken is getToken as api.dingtalk.com has it: a missing application is refused as a wrong secret.
func (c *call) accessToken() http.HandlerFunc {
	if c.wrongSecret(c.text("appSecret")) {
		return c.refuse("40096", gateway(http.StatusBadRequest, "invalidClientIdOrSecret", "无效的clientId或者clientSecret"))
	}
	if c.overTokens() {
		return c.refuse("90006", forbidden("QpmLimitForAppkeyAndApi", appDisabled))
	}
	return reply(http.StatusOK, object{"accessToken": c.issue(c.App, c.At), "expireIn": int(c.options.TokenLife.Seconds())})
}

// wrongSecret reports whether the calling application does not exist, or whether the secret is missing or not
// its own. Without Options.Apps every other secret is right.
func (c *call) wrongSecret(secret string) bool {
	app, ok := c.options.app(c.App)
	return !ok || secret == "" || c.options.Apps != nil && secret != app.Secret
}

// overTokens counts how often the application asks for its token, and reports whether this call is one
// too many.
func (c *call) overTokens() bool {
	w := window{rule: "tokens", by: c.App}
	count := c.within(w, c.At.Add(-time.Minute))
	c.add(w)
	return c.options.TokensPerMinute > 0 && count >= c.options.TokensPerMinute
}

// within returns how many calls of a window came after a moment, and forgets the earlier calls. Two
// calls that are exactly one window apart do not share a window.
func (c *call) within(w window, after time.Time) int {
	calls := c.windows[w]

	// The calls are in the order of time.
	for len(calls) > 0 && !calls[0].After(after) {
		calls = calls[1:]
	}
	c.windows[w] = calls
	return len(calls)
}

// add counts the call in a window.
func (c *call) add(w window) { c.windows[w] = append(c.windows[w], c.At) }

// since returns the moment after which calls count together with this one: per ago or, if windows are
// fixed, just before the window of this call begins.
func (c *call) since(per time.Duration, fixed bool) time.Time {
	if fixed {
		return c.At.Truncate(per).Add(-1) // a call at the begin of the window counts, too
	}
	return c.At.Add(-per)
}

// overAddress counts the call by its address, and bans the address if this call is one too many. It reports
// whether the address is banned. A call during a ban is not counted, and prolongs the ban if the options say so.
func (c *call) overAddress() bool {
	w := window{rule: "address", by: c.Address}
	if c.At.Before(c.closed[w]) {
		if c.options.BanProlongs {
			c.closed[w] = c.At.Add(c.options.Ban)
		}
		return true
	}

	count := c.within(w, c.since(20*time.Second, c.options.FixedWindows))
	c.add(w)
	if count < c.options.IPLimit {
		return false
	}

	// Count from 0 after the ban, which may be shorter than the window.
	delete(c.windows, w)
	c.bans++
	c.closed[w] = c.At.Add(c.options.Ban)

	return true
}

// overCrowd counts the calls of the API by all applications, in seconds of the clock, because the
// refusal names such a second. It reports whether this call is one too many.
func (c *call) overCrowd() bool {
	w := window{rule: "crowd", api: c.API}
	count := c.within(w, c.since(time.Second, true))
	c.add(w)
	return c.options.PerAPI > 0 && count >= c.options.PerAPI
}

// overSecond counts the calls of the API by the application within a second, and reports whether this
// call is one too many. Such a call is counted itself only with Options.CountRefused.
func (c *call) overSecond() bool {
	w := window{"second", c.App, c.API}
	over := c.within(w, c.since(time.Second, c.options.FixedWindows)) >= c.options.Edition.PerSecond
	if !over || c.options.CountRefused {
		c.add(w)
	}
	return over
}

// overMonth counts a call in the calendar month of Beijing, unless its API is free, and reports whether it
// is one too many. judge does not ask it about a call that the limit of a second has refused.
func (c *call) overMonth() bool {
	if !metered(c.Request) {
		return false
	}

	c.turnMonth()
	c.metered++

	// Without a number the month has no limit.
	if c.options.Edition.PerMonth <= 0 || c.metered <= c.options.Edition.PerMonth {
		return false
	}

	// The month stays open for the buffer after its quota is used up.
	if c.usedUp.IsZero() {
		c.usedUp = c.At
	}

	return !c.At.Before(c.usedUp.Add(c.options.Buffer))
}

// turnMonth begins to count anew if the call is the first of a month.
func (c *call) turnMonth() {
	month := c.At.In(beijing).Format("2006-01")
	if month == c.month {
		return
	}
	c.month, c.metered, c.webhooks, c.usedUp = month, 0, 0, time.Time{}
}

// judgeRobot counts every message for a robot in a minute, and closes the robot for ten minutes if there
// are too many. A message that passes counts in the month of the company's robots. judgeRobot returns the
// function that refuses the message, or nil.
func (c *call) judgeRobot() http.HandlerFunc {
	robot := c.query.Get("access_token")
	w := window{rule: "robot", by: robot}
	count := c.within(w, c.since(time.Minute, false))
	c.add(w) // also while the robot is closed

	open := !c.At.Before(c.closed[w])
	if open && count >= 20 {
		c.closed[w] = c.At.Add(10 * time.Minute)
		open = false
	}

	switch {
	case !open:
		return c.refuse("660026", plain(660026, "sending too many messages per minute"))
	case robot == "":
		return c.refuse("300005", plain(300005, "token is not exist"))
	case c.foreign:
		return c.refuse("43004", foreign)
	case c.text("msgtype") == "":
		return c.refuse("40035", plain(40035, "缺少参数 json"))
	}

	c.turnMonth()
	c.webhooks++
	if most := c.options.Edition.Webhooks; most > 0 && c.webhooks > most {
		return c.refuse("90030", plain(90030, "webhook over limit"))
	}

	return nil
}

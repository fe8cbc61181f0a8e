package dingtalktest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
)

// A Server is a DingTalk for both families of the API: the path of a call tells
// the family. It is safe for concurrent use, and has nothing to close.
type Server struct {
	apis *http.ServeMux

	mu     sync.Mutex
	routes map[string]route // by pattern
	rules  *rules
	log    []Arrival
}

// New returns a Server.
func New(o Options) *Server {
	s := &Server{apis: http.NewServeMux(), routes: make(map[string]route), rules: newRules(o.withDefaults())}
	for _, r := range builtIn {
		s.add(r, func(http.ResponseWriter, *http.Request) {})
	}
	return s
}

// HandleFunc adds an API: h answers the calls that the limits let through. The pattern is a pattern
// of [http.ServeMux], and all calls that match it are calls of one API. If the pattern has a
// method, calls with a different method are refused.
func (s *Server) HandleFunc(pattern string, h http.HandlerFunc) {
	r := route{pattern: pattern}
	if method, path, ok := strings.Cut(pattern, " "); ok {
		r.method, r.pattern = method, strings.TrimSpace(path)
	}
	s.add(r, h)
}

// add adds an API. h answers the calls that the limits let through, unless the route has an answer of its own.
func (s *Server) add(r route, h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apis.HandleFunc(r.pattern, h)
	s.routes[r.pattern] = r
}

// maxBody is how much of a body is read. No call needs more.
const maxBody = 1 << 20

// ServeHTTP implements [http.Handler]. The handlers of [Server.HandleFunc] get the first megabyte of a body.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address, _, _ := net.SplitHostPort(r.RemoteAddr) // an address that cannot be read is ""
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxBody))
	r.Body = io.NopCloser(bytes.NewReader(body))

	answer := s.arrive(r, body, address)
	w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
	if answer == nil {
		answer = s.apis.ServeHTTP
	}
	answer(w, r)
}

// RoundTrip implements [http.RoundTripper] without a network. All calls come
// from one address. Its only error is that of a context that has ended.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	// A RoundTripper must not change the request.
	in := r.Clone(r.Context())
	in.RemoteAddr = "192.0.2.1:1"
	if in.Body == nil {
		in.Body = http.NoBody
	}
	defer in.Body.Close()

	if err := r.Context().Err(); err != nil {
		return nil, err
	}

	w := httptest.NewRecorder()
	s.ServeHTTP(w, in)
	resp := w.Result()
	resp.Request = r

	return resp, nil
}

// arrive counts a call. It returns the function that refuses or answers the call, or nil
// for an API of [Server.HandleFunc] whose call the limits let through.
func (s *Server) arrive(r *http.Request, body []byte, address string) http.HandlerFunc {
	_, api := s.apis.Handler(r)

	// Judge and log under one lock, so that the log has the order of the calls.
	s.mu.Lock()
	defer s.mu.Unlock()

	c := &call{Arrival{At: time.Now(), API: api, Address: address}, r, s.routes[api], readParameters(r, body), s.rules}
	answer := c.judge()
	if answer == nil && c.route.answer != nil {
		answer = c.route.answer(c)
	}

	// A path that is no API is in the log, too.
	c.API = cmp.Or(c.API, r.URL.Path)
	s.log = append(s.log, c.Arrival)
	return answer
}

// Token returns a token of an application, as if the application had asked for it now. It
// is for tests without a login, and returns a token for an unknown application, too.
func (s *Server) Token(app string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rules.issue(app, time.Now())
}

// ExpireTokens ends the life of all tokens, as two hours would.
func (s *Server) ExpireTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for text, t := range s.rules.tokens {
		s.rules.tokens[text] = token{app: t.app}
	}
}

// Log returns all calls up to now, in their order.
func (s *Server) Log() []Arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// Refusals returns how many calls were refused, by [Arrival.Refusal]. It is
// empty if all were served.
func (s *Server) Refusals() map[string]int {
	all := make(map[string]int)
	for _, a := range s.Log() {
		all[a.Refusal]++
	}
	maps.DeleteFunc(all, func(code string, _ int) bool { return code == "" })
	return all
}

// Bans returns how often an address was banned.
func (s *Server) Bans() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rules.bans
}

// Most returns the largest number of calls of an API that arrived in any interval
// of length per.
func (s *Server) Most(api string, per time.Duration) int {
	var at []time.Duration
	log := s.Log()
	for _, a := range log {
		if a.API == api {
			at = append(at, a.At.Sub(log[0].At))
		}
	}
	return stat.Most(at, per)
}

// UserIDs returns the ids of all people in the address book, in order.
func (s *Server) UserIDs() []string { return slices.Sorted(maps.Keys(s.rules.book.of)) }

// String returns the counts as a table for people. "Quota used" is the shortest time in which the
// limit lets an application's calls through, as a share of the time that they took.
func (s *Server) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "API\tcalls\trefused\tmost in any second\tquota used")
	limit := s.rules.options.Edition.PerSecond
	log := s.Log()

	var apis []string
	calls, refused := make(map[string][]time.Duration), make(map[string]int)
	for _, a := range log {
		if calls[a.API] == nil {
			apis = append(apis, a.API)
		}

		calls[a.API] = append(calls[a.API], a.At.Sub(log[0].At))
		if a.Refusal != "" {
			refused[a.API]++
		}
	}

	slices.Sort(apis)
	for _, api := range apis {
		at := calls[api]
		used := "–" // of too few calls

		shortestSeconds, took := (len(at)-1)/limit, at[len(at)-1]-at[0]
		if shortestSeconds > 0 && took > 0 {
			used = fmt.Sprintf("%.0f %%", 100*float64(shortestSeconds)/took.Seconds())
		}

		fmt.Fprintf(w, "%s\t%d\t%d\t%d of %d\t%s\n", api, len(at), refused[api], stat.Most(at, time.Second), limit, used)
	}

	w.Flush()
	return b.String() + fmt.Sprintf("bans: %d\n", s.Bans())
}

// The ids that all answers of a family name.
const (
	requestID    = "16l4ew3d47pdp"
	newRequestID = "01A08FE7-CD6B-79BB-8B2E-35D8768AD457"
)

// object is a JSON object.
type object map[string]any

// reply answers with a status and JSON.
func reply(status int, body object) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json;charset=UTF-8")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body) // an error says that the caller is gone
	}
}

// plain answers with an error of oapi.dingtalk.com whose code is errcode itself.
func plain(code int, text string) http.HandlerFunc {
	return reply(http.StatusOK, object{"errcode": code, "errmsg": text})
}

// wrapped answers with an error of oapi.dingtalk.com whose errcode is 88, and whose code is sub_code.
func wrapped(code, text string) http.HandlerFunc {
	return reply(http.StatusOK, object{
		"errcode": 88, "sub_code": code, "sub_msg": text, "request_id": requestID,
		"errmsg": fmt.Sprintf("ding talk error[subcode=%s,submsg=%s]", code, text),
	})
}

// gateway answers with an error of api.dingtalk.com.
func gateway(status int, code, text string) http.HandlerFunc {
	return reply(status, object{"code": code, "requestid": newRequestID, "message": text})
}

// forbidden answers as api.dingtalk.com refuses a call above a limit.
func forbidden(limit, text string) http.HandlerFunc {
	return gateway(http.StatusForbidden, "Forbidden.AccessDenied."+limit, text)
}

// The documented texts of codes of api.dingtalk.com.
const (
	appDisabled = "您的企业应用调用钉钉开放平台当前接口的所有请求都被暂时禁用了"
	apiDisabled = "您的服务器调用钉钉开放平台当前接口的所有请求都被暂时禁用了"
)

// denied is the answer to a banned address. It has no errcode, so a program that
// looks only there takes it for success.
func denied(ban time.Duration) http.HandlerFunc {
	return reply(http.StatusOK, object{
		"status": 1111, "wait": int(ban / time.Minute), "source": "x5", "punish": "deny", "uuid": "24ce4f5a0b6c4d8e",
	})
}

// BanPage is an [Options.BanAnswer]: a page, which the documentation speaks of. Its status
// and its text are not documented.
func BanPage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, "<!DOCTYPE html>\n<html><body>punish: deny</body></html>\n")
}

// beijing is the zone of every time that DingTalk prints.
var beijing = time.FixedZone("UTC+8", 8*60*60)

// crowded is the answer to a call of an API that all applications together have called more often than
// limit in one second of the clock: the second that contains now.
func crowded(path string, limit int, now time.Time) http.HandlerFunc {
	if isNew(path) {
		return forbidden("QpsLimitForApi", apiDisabled)
	}
	second := now.In(beijing).Format(time.DateTime)
	end := now.In(beijing).Add(time.Second).Format(time.DateTime)
	return wrapped("90002", fmt.Sprintf("当前所有钉钉应用调用该接口次数过多，超出了该接口承受的最大qps，"+
		"请求被暂时限制了，建议错开整点时刻调用该接口, apiPath(%s), 从 %s 到 %s 请求总次数超过 %d 次, "+
		"限制将在 %s 结束.", apiName(path), second, second, limit, end))
}

// tooFast is the answer to an application that calls one API too often. No real
// body of 90018 has been published; the text is ours.
func tooFast(path string) http.HandlerFunc {
	if isNew(path) {
		return forbidden("QpsLimitForAppkeyAndApi", appDisabled)
	}
	return wrapped("90018", "应用调用该接口的qps超过限制")
}

// usedUp is the answer to a metered call in a month whose quota is spent.
func usedUp(path string, used, quota int) http.HandlerFunc {
	text := fmt.Sprintf("您的企业本月api调用量已超过限制,调用量:%d次,额度:%d次,"+
		"请登录开发者后台-资源管理-查看用量明细", used, quota)
	if isNew(path) {
		return forbidden("ApiCountLimitForOrg", text)
	}
	return plain(90020, text)
}

// unknown is the answer to a path that is no API.
func unknown(path string) http.HandlerFunc {
	if isNew(path) {
		return gateway(http.StatusNotFound, "InvalidAction.NotFound", "Specified api is not found.")
	}
	text := "不合法ApiName，ApiName = " + apiName(path)
	return reply(http.StatusOK, object{
		"errcode": 22, "sub_msg": text, "errmsg": "Invalid method[submsg=" + text + "]", "request_id": requestID,
	})
}

// wrongMethod returns the code and the answer for a call with a wrong method.
func wrongMethod(path, wants string) (code string, h http.HandlerFunc) {
	switch {
	case isNew(path):
		return "405", reply(http.StatusMethodNotAllowed, object{"requestid": newRequestID, "message": "Method Not Allowed"})
	case wants == http.MethodGet:
		return "43001", plain(43001, "需要GET请求")
	}
	return "43002", plain(43002, "需要POST请求")
}

// foreign is the answer to a call with a body that is neither a form nor JSON.
var foreign = plain(43004, "无效的HTTP HEADER Content-Type")

// noToken is the answer to a call that shows no token.
func noToken(path string) http.HandlerFunc {
	if isNew(path) {
		return gateway(http.StatusBadRequest, "AuthenticationFailed.MissingParameter", "缺少参数：x-acs-dingtalk-access-token")
	}
	return wrapped("40000", "access_token is blank")
}

// invalidToken is the answer to a call whose token is unknown or has expired.
func invalidToken(path string) http.HandlerFunc {
	const text = "不合法的access_token"
	if isNew(path) {
		return gateway(http.StatusBadRequest, "InvalidAuthentication", text)
	}
	return wrapped("40014", text)
}

// notPermitted is the answer to an application that was not given the permission.
func notPermitted(path, app, permission string) http.HandlerFunc {
	text := fmt.Sprintf("应用尚未开通所需的权限：[%s]，点击链接申请并开通即可：https://open-dev.dingtalk.com/appscope/apply?content=%s%%23%[1]s",
		permission, url.QueryEscape(app))
	if isNew(path) {
		return reply(http.StatusForbidden, object{
			"code": "Forbidden.AccessDenied.AccessTokenPermissionDenied", "requestid": newRequestID, "message": text,
			"accessdenieddetail": object{"requiredScopes": []string{permission}},
		})
	}
	return wrapped("60011", fmt.Sprintf("%s, {requiredScopes=[%s]}", text, permission))
}

// isNew reports whether an API belongs to the family of api.dingtalk.com.
func isNew(path string) bool {
	return strings.HasPrefix(path, "/v1.0/") || strings.HasPrefix(path, "/v2.0/")
}

// apiName is DingTalk's own name for an API of oapi.dingtalk.com: dotted below /topapi/, and the
// path itself elsewhere.
func apiName(path string) string {
	rest, ok := strings.CutPrefix(path, "/topapi/")
	if !ok {
		return path
	}
	return "dingtalk.oapi." + strings.ReplaceAll(rest, "/", ".")
}

// Options says how strict a [Server] is. The zero value has the published
// numbers of the standard edition, and knows every application.
type Options struct {
	// People is how many people the address book has, in a department for each
	// 20 of them. Every fiftieth person is in two departments. Defaults to 3,000.
	People int

	// Apps are the company's applications by their key (Client ID). An unknown key
	// or a wrong secret gets no token. Defaults to nil: any key is an application,
	// with any secret and all permissions.
	Apps map[string]App

	// TokenLife is how long a token is valid after it was last asked for. Defaults
	// to two hours.
	TokenLife time.Duration

	// TokensPerMinute is how often an application may ask for its token in any
	// minute. The documentation says that there is a limit, and no number. Defaults
	// to 0: any number.
	TokensPerMinute int

	// Edition is the company's edition: calls in a second per application and API, calls and
	// webhooks in a month. Defaults to [dingtalk.Standard].
	Edition dingtalk.Edition

	// Buffer is how long calls go on after the month's quota is used up: the
	// documentation says five days at the most. Defaults to 0: not at all.
	Buffer time.Duration

	// PerAPI is how many calls all applications together may make of one API in
	// a second of the clock. Defaults to 0: any number.
	PerAPI int

	// PerPerson is how many messages of one robot a person gets in any minute by
	// /v1.0/robot/oToMessages/batchSend. What is more is dropped in a success, and
	// told in flowControlledStaffIdList. No number is published. Defaults to 0: any
	// number.
	PerPerson int

	// NoticesPerMinute is how many people may get work notices in any minute from
	// all applications of the company together (143104). No number is published.
	// Defaults to 0: any number. Each application may reach 5,000 (143103).
	NoticesPerMinute int

	// IPLimit is how many calls may come from one address in 20 seconds. One
	// more bans the address. Defaults to 10,000.
	IPLimit int

	// Ban is how long a banned address is refused everything. Defaults to five
	// minutes.
	Ban time.Duration

	// BanAnswer answers calls from a banned address, for example with [BanPage].
	// Defaults to the JSON that DingTalk sends, with status 200.
	BanAnswer http.HandlerFunc

	// The documentation leaves open how calls are counted.

	// FixedWindows aligns the second and the 20 seconds to the clock. Defaults to false: windows
	// slide.
	FixedWindows bool

	// CountRefused says that calls that are refused for the second take up room
	// in it. Defaults to false.
	CountRefused bool

	// BanProlongs says that a call during a ban begins the ban anew. Defaults to
	// false.
	BanProlongs bool
}

// An App is an application of the company.
type App struct {
	// Secret is the application's secret (Client Secret).
	Secret string

	// Permissions are the permissions (权限点) that the application was given, such
	// as "qyapi_get_department_list". Defaults to nil: all.
	Permissions []string
}

// may reports whether the application was given a permission.
func (a App) may(permission string) bool {
	return permission == "" || a.Permissions == nil || slices.Contains(a.Permissions, permission)
}

// app returns an application, and whether it exists.
func (o Options) app(key string) (App, bool) {
	if o.Apps == nil {
		return App{}, key != ""
	}
	a, ok := o.Apps[key]
	return a, ok
}

// withDefaults returns o with the defaults of its zero fields.
func (o Options) withDefaults() Options {
	o.People = cmp.Or(o.People, 3000)
	o.TokenLife = cmp.Or(o.TokenLife, 2*time.Hour)
	o.Edition = cmp.Or(o.Edition, dingtalk.Standard)
	o.Edition.PerSecond = cmp.Or(o.Edition.PerSecond, dingtalk.Standard.PerSecond)
	o.IPLimit = cmp.Or(o.IPLimit, 10_000)
	o.Ban = cmp.Or(o.Ban, 5*time.Minute)
	if o.BanAnswer == nil {
		o.BanAnswer = denied(o.Ban)
	}
	return o
}

// What the pages of robots and work notices say.
const (
	maxRobotUsers  = 20    // of one call of batchSend; the text of the refusal says 100
	maxNoticeUsers = 100   // in userid_list
	maxNoticeDepts = 20    // in dept_id_list
	perAppMinute   = 5_000 // people who get a work notice of one application in a minute
	perPersonDay   = 500   // work notices that a person gets of one application in a day
	resultLife     = 24 * time.Hour
)

// robotSend is a custom robot's message to its group, which [call.judge] has let through.
func (c *call) robotSend() http.HandlerFunc { return plain(0, "ok") }

// batchSend answers a robot's message to people. It refuses a message without a robot, to nobody, or to too
// many people. A success lists the people that the address book lacks, and those who got too many messages
// of this robot. The message counts for all others.
func (c *call) batchSend() http.HandlerFunc {
	users := c.list("userIds")
	switch {
	case c.text("robotCode") == "":
		return gateway(http.StatusBadRequest, "invalidParameter.robotCode.empty", "robotCode is empty")
	case len(users) == 0:
		return gateway(http.StatusBadRequest, "invalidParameter.userIds.empty", "userIds is empty")
	case len(users) > maxRobotUsers:
		return gateway(http.StatusBadRequest, "invalidParameter.userIds.overMax", "userIds is over max")
	}

	invalid, controlled := []string{}, []string{}
	for _, user := range users {
		w := window{rule: "robot to person", by: user, api: c.text("robotCode")}
		switch {
		case c.book.of[user] == nil:
			invalid = append(invalid, user)
		case c.options.PerPerson > 0 && c.within(w, c.At.Add(-time.Minute)) >= c.options.PerPerson:
			controlled = append(controlled, user)
		default:
			c.add(w)
		}
	}

	return reply(http.StatusOK, object{
		"processQueryKey": "zcxxczasdafasd", "invalidStaffIdList": invalid, "flowControlledStaffIdList": controlled,
	})
}

// A notice is a work notice, and who got it.
type notice struct {
	app                    string
	at                     time.Time
	got, invalid, withheld []string
	invalidDepartments     []int
	forbidden              []object // why some got nothing
}

// firstTask is the id of the first work notice.
const firstTask = 256271667

// sendNotice sends a work notice, and refuses a call that lacks a parameter or names too many people or
// departments. It skips unknown people and departments, and people whom a limit forbids to notify: sendResult lists
// them. The answer is a success all the same.
func (c *call) sendNotice() http.HandlerFunc {
	users, departments := c.list("userid_list"), c.list("dept_id_list")
	everybody := c.text("to_all_user") == "true"
	switch {
	case c.text("agent_id") == "":
		return plain(40056, "不合法的agentid")
	case c.text("msg") == "":
		return plain(40035, "不合法的参数")
	case len(users) > maxNoticeUsers || len(departments) > maxNoticeDepts:
		return plain(40035, "不合法的参数")
	case len(users)+len(departments) == 0 && !everybody:
		return plain(40035, "不合法的参数")
	}

	n := notice{app: c.App, at: c.At}
	if everybody {
		departments = []string{"1"} // the root
	}

	for _, department := range departments {
		id, err := strconv.Atoi(department)

		// A text that is no number is reported as department 0.
		if err != nil || !c.book.has(id) {
			n.invalidDepartments = append(n.invalidDepartments, id)
			continue
		}

		users = append(users, c.book.under(id)...)
	}

	// A person may be named twice, or be in several departments.
	slices.Sort(users)
	for _, user := range slices.Compact(users) {
		n.offer(c, user)
	}

	c.tasks = append(c.tasks, n)
	return reply(http.StatusOK, object{"errcode": 0, "task_id": firstTask + len(c.tasks) - 1, "request_id": requestID})
}

// offer gives the notice to a person, unless the person is unknown or a limit forbids it, and notes which of
// these it was.
func (n *notice) offer(c *call, user string) {
	if c.book.of[user] == nil {
		n.invalid = append(n.invalid, user)
		return
	}

	// within counts what came after a moment, and a notice at midnight belongs to the day, so step back by 1 ns.
	local := c.At.In(beijing)
	beforeMidnight := time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, beijing).Add(-1)
	minuteAgo := c.At.Add(-time.Minute)
	limits := []struct {
		code  string
		w     window
		after time.Time
		most  int // 0 means any number
	}{
		{"143106", window{"the same notice", c.App + " " + user, c.text("msg")}, beforeMidnight, 1},
		{"143105", window{"notices of a day", c.App, user}, beforeMidnight, perPersonDay},
		{"143103", window{rule: "notices of an application", by: c.App}, minuteAgo, perAppMinute},
		{"143104", window{rule: "notices of the company"}, minuteAgo, c.options.NoticesPerMinute},
	}

	for _, l := range limits {
		if l.most > 0 && c.within(l.w, l.after) >= l.most {
			n.withheld = append(n.withheld, user)
			n.forbidden = append(n.forbidden, object{"code": l.code, "count": l.most, "userid": user})
			return
		}
	}

	// Only a notice that no limit forbids counts.
	for _, l := range limits {
		c.add(l.w)
	}

	n.got = append(n.got, user)
}

// sendResult tells who got a work notice. It refuses the result of a notice that is unknown, older than a
// day, or of a different application. Like DingTalk it times out for more than 100 people.
func (c *call) sendResult() http.HandlerFunc {
	i := c.number("task_id", 0) - firstTask
	isKnown := i >= 0 && i < len(c.tasks)
	if !isKnown || c.tasks[i].app != c.App || c.At.Sub(c.tasks[i].at) >= resultLife {
		return plain(40035, "不合法的参数")
	}

	n := c.tasks[i]
	if len(n.got)+len(n.withheld) > maxNoticeUsers {
		return plain(-1, "调用超时")
	}

	return reply(http.StatusOK, object{"errcode": 0, "request_id": requestID, "send_result": object{
		"invalid_user_id_list": orEmpty(n.invalid), "invalid_dept_id_list": orEmpty(n.invalidDepartments),
		"forbidden_user_id_list": orEmpty(n.withheld), "forbidden_list": orEmpty(n.forbidden),
		"failed_user_id_list": []string{}, "read_user_id_list": []string{}, "unread_user_id_list": orEmpty(n.got),
	}})
}

// orEmpty makes an empty list in JSON of a nil one.
func orEmpty[T any](list []T) []T { return append([]T{}, list...) }

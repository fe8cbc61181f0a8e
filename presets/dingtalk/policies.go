package dingtalk

import (
	"cmp"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/match"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// none is the limit of budgets without a number of their own, which only answers
// close.
var none = throttle.Unlimited()

// Policies returns DingTalk's table of limits for an account.
func Policies(o Options) []throttle.Policy {
	o = o.withDefaults()
	rows := append(shared(o), products(o)...)
	if o.ISV != "" {
		return tablerow.Table(append(rows, vendors(o)...))
	}
	return tablerow.Table(append(rows, companys(o)...))
}

// perMonth is the limit of a month of Beijing, or none.
func perMonth(n int) throttle.Limit {
	if n <= 0 {
		return none
	}
	return throttle.CalendarWindow(n, throttle.Month, beijing)
}

// perDay is a limit for any 24 hours, because it is not known when a day begins.
func perDay(n int) throttle.Limit { return throttle.SlidingWindow(n, 24*time.Hour) }

// shared are the rows that hold for everybody.
func shared(o Options) []throttle.Policy {
	all := o.Host + "/"
	rows := []throttle.Policy{
		{
			Name: "dingtalk-ip", Match: all, Key: o.address,
			Limit:  throttle.SlidingWindow(o.IPLimit, 20*time.Second),
			Answer: o.closedBy(address),
		},
		{
			Name: "dingtalk-global", Match: all, Key: o.api,
			Limit:  none,
			Answer: o.closedBy(everyone),
		},
		{
			Name: "dingtalk-robot", Match: "POST " + o.Host + customRobot, Key: throttle.Query("access_token"),
			Limit:  throttle.PerMinute(20),
			Answer: o.closedBy(robot),
		},
		{
			Name: "dingtalk-session", Match: "POST " + o.Host + replies, Key: throttle.Query("session"),
			Limit:  none,
			Answer: o.closedBy(robot),
		},
		{
			Name: "dingtalk-webhooks", Match: "POST " + o.Host + webhooks, Key: o.company,
			Limit:  perMonth(o.Edition.Webhooks),
			Answer: o.closedBy(webhookMonth),
		},
	}

	if o.RobotPerMonth > 0 {
		rows = append(rows, throttle.Policy{
			Name: "dingtalk-robot-month", Match: "POST " + o.Host + customRobot, Key: throttle.Query("access_token"),
			Limit:  perMonth(o.RobotPerMonth),
			Answer: feedback.LeaveOpen, // what DingTalk answers above the cap is not known
		})
	}

	return rows
}

// products are the rows of single APIs. Only vendors have dingtalk-notices-suite and dingtalk-customers.
func products(o Options) []throttle.Policy {
	notice := "POST " + o.Host + workNotices
	ofApp := feedback.First(o.closedBy(notices), dropped(AppPerMinute, SuitePerMinute))
	ofSuite := feedback.First(o.closedBy(noticesSuite), dropped(SuiteAllPerMinute))

	// Without a vendor there is no row of the suite, so the application's row reads the suite's refusals, too.
	if o.ISV == "" {
		ofApp = feedback.First(ofApp, ofSuite)
	}

	rows := []throttle.Policy{
		{
			Name: "dingtalk-robot-code", Match: "POST " + o.Host + robots, Key: throttle.Join(o.company, o.app, robotCode, o.api),
			Limit:  none,
			Answer: o.closedBy(robot),
		},
		{
			// DingTalk's page says "fewer than 6,000".
			Name: "dingtalk-ding", Match: "POST " + o.Host + dings, Key: throttle.Join(o.company, o.app, robotCode),
			Limit:  throttle.PerMinute(5_999),
			Answer: o.closedBy(ding),
		},
		{
			Name: "dingtalk-notices", Match: notice, Key: throttle.Join(o.company, o.app), Cost: o.noticeReceivers,
			Limit:  throttle.PerMinute(mostReceivers),
			Answer: ofApp,
		},
		{
			// Only answers close this row. Its cost says which requests they hold: see noticeCost.
			Name: "dingtalk-notices-company", Match: notice, Key: o.company, Cost: noticeCost,
			Limit:  none,
			Answer: feedback.First(o.closedBy(noticesOf), dropped(CompanyPerMinute)),
		},
		{
			Name: "dingtalk-notices-all", Match: notice, Key: o.company, Cost: noticesToEverybody,
			Limit:  perDay(3),
			Answer: o.closedBy(noticesToAll),
		},
		{
			Name: "dingtalk-service-window", Match: "POST " + o.Host + serviceAll, Key: o.company,
			Limit:  perDay(100),
			Answer: feedback.LeaveOpen,
		},
		{
			Name: "dingtalk-forms", Match: "GET " + o.Host + forms, Key: o.company,
			Limit:  throttle.PerSecond(20),
			Answer: feedback.LeaveOpen,
		},
		{
			Name: "dingtalk-resumes", Match: "POST " + o.Host + candidates, Key: o.company,
			Limit:  throttle.PerMinute(30),
			Answer: feedback.LeaveOpen,
		},
		{
			Name: "dingtalk-calendar", Match: "POST " + o.Host + calendars, Key: throttle.Join(o.company, throttle.PathValue("user")),
			Limit:  perDay(100),
			Answer: o.closedBy(person),
		},
		{
			Name: "dingtalk-tasks", Match: "POST " + o.Host + tasks, Key: throttle.Join(o.company, receiverOfTask), Cost: ifKnown(receiverOfTask),
			Limit:  perDay(100),
			Answer: tablerow.IfCharged(ifKnown(receiverOfTask), o.closedBy(person)),
		},
		{
			Name: "dingtalk-pushes", Match: "POST " + o.Host + pushes, Key: throttle.Join(o.company, receiverOfPush), Cost: ifKnown(receiverOfPush),
			Limit:  perDay(100),
			Answer: tablerow.IfCharged(ifKnown(receiverOfPush), o.closedBy(person)),
		},
	}

	if o.ISV == "" {
		return rows
	}

	return append(rows,
		throttle.Policy{
			Name: "dingtalk-notices-suite", Match: notice, Key: o.app, Cost: noticeCost,
			Limit:  none,
			Answer: ofSuite,
		},
		throttle.Policy{
			Name: "dingtalk-customers", Match: "POST " + o.Host + customers, Key: o.company,
			Limit:  throttle.PerSecond(1),
			Answer: feedback.LeaveOpen,
		},
	)
}

// dropped returns a reader that closes a row for a minute if the result of work notices lists dropped notices
// with one of the codes, each of which is about a limit of a minute. It says nothing of any other answer.
func dropped(codes ...int) feedback.Reader {
	lasts := make(map[string]time.Duration)
	for _, code := range codes {
		lasts[strconv.Itoa(code)] = time.Minute
	}
	listed := feedback.Codes{Fields: []string{"send_result.forbidden_list.*.code"}, Lasts: lasts}
	return func(resp *http.Response) throttle.Answer {
		// Only the result of a notice has this list.
		if resp.Request == nil || throttle.RawPath(resp.Request) != workNotices+"getsendresult" {
			return throttle.Answer{}
		}
		return listed.Answer(resp)
	}
}

// companys are the rows of a company's own applications.
func companys(o Options) []throttle.Policy {
	all := o.Host + "/"
	counted := throttle.Policy{
		Name: "dingtalk-month", Match: all, Key: o.company, Cost: o.cost,
		Limit:  perMonth(o.Edition.PerMonth),
		Answer: feedback.All(o.closedBy(month), uncounted),
	}

	rows := []throttle.Policy{
		{
			Name: "dingtalk-api", Match: all, Key: throttle.Join(o.app, o.api),
			Limit:  throttle.PerSecond(o.Edition.PerSecond),
			Answer: feedback.First(o.closedBy(appAPI, isvAPI, suiteAPIOf), tablerow.Outage()),
		},
		{
			Name: "dingtalk-app", Match: all, Key: o.app,
			Limit:  none,
			Answer: o.closedBy(app, isv, suiteCompany),
		},
		{
			Name: "dingtalk-company", Match: all, Key: o.company,
			Limit:  none,
			Answer: o.closedBy(company, isvCompany),
		},
		{
			Name: "dingtalk-company-api", Match: all, Key: throttle.Join(o.company, throttle.Method, o.exact),
			Limit:  none,
			Answer: o.closedBy(companyAPI, isvAPIOf),
		},
	}

	if !o.Buffer || o.Edition.PerMonth <= 0 {
		return append(rows, counted)
	}

	// In the buffer only a refusal closes the month. A shadow row counts the calls all the same.
	shadow := counted
	shadow.Name, shadow.Shadow, shadow.Answer = "dingtalk-month-counted", true, uncounted
	counted.Limit, counted.Answer = none, o.closedBy(month)

	return append(rows, counted, shadow)
}

// vendors are the rows of an application that many companies use, a suite.
func vendors(o Options) []throttle.Policy {
	all := o.Host + "/"
	return []throttle.Policy{
		{
			Name: "dingtalk-suite-company-api", Match: all, Key: throttle.Join(o.app, o.company, o.api),
			Limit:  throttle.PerSecond(o.PerSuite),
			Answer: o.closedBy(suiteAPIOf),
		},
		{
			Name: "dingtalk-suite-company", Match: all, Key: throttle.Join(o.app, o.company),
			Limit:  none,
			Answer: o.closedBy(suiteCompany),
		},
		{
			Name: "dingtalk-api", Match: all, Key: throttle.Join(o.app, o.api),
			Limit:  none,
			Answer: feedback.First(o.closedBy(appAPI), tablerow.Outage()),
		},
		{
			Name: "dingtalk-app", Match: all, Key: o.app,
			Limit:  none,
			Answer: o.closedBy(app),
		},
		{
			Name: "dingtalk-isv-company-api", Match: all, Key: throttle.Join(o.isv, o.company, o.api),
			Limit:  none,
			Answer: o.closedBy(isvAPIOf),
		},
		{
			Name: "dingtalk-isv-company", Match: all, Key: throttle.Join(o.isv, o.company),
			Limit:  none,
			Answer: o.closedBy(isvCompany),
		},
		{
			Name: "dingtalk-isv-api", Match: all, Key: throttle.Join(o.isv, o.api),
			Limit:  none,
			Answer: o.closedBy(isvAPI),
		},
		{
			Name: "dingtalk-isv", Match: all, Key: o.isv,
			Limit:  none,
			Answer: o.closedBy(isv),
		},
		{
			Name: "dingtalk-company-api", Match: all, Key: throttle.Join(o.company, throttle.Method, o.exact),
			Limit:  none,
			Answer: o.closedBy(companyAPI),
		},
		{
			Name: "dingtalk-company", Match: all, Key: o.company,
			Limit:  none,
			Answer: o.closedBy(company),
		},
		{
			Name: "dingtalk-month", Match: all, Key: o.company, Cost: o.cost,
			Limit:  none,
			Answer: o.closedBy(month),
		},
	}
}

// An Edition is a company's edition of DingTalk. The zero Edition counts no month.
type Edition struct {
	PerSecond int // calls in a second, per application and API; 0 means 20, as in the standard edition
	PerMonth  int // counted calls of the whole company in a month; 0 means that no month is counted here
	Webhooks  int // calls of webhooks and of Stream in a month, of the whole company; 0 means that no month is counted here

	before *Edition // the numbers of contracts from before 2025-11-19
}

// The editions as they are since 2025-11-19. DingTalk does not say how many calls in a second the
// professional edition allows, so those are the standard edition's. It publishes no number of the
// exclusive edition at all, so its months are not counted. See [Options.OldContract] for older numbers.
var (
	Standard     = Edition{PerSecond: 20, PerMonth: 5_000, Webhooks: 3_000, before: &Edition{PerSecond: 20, PerMonth: 10_000, Webhooks: 5_000}}
	Professional = Edition{PerSecond: 20, PerMonth: 200_000, Webhooks: 50_000, before: &Edition{PerSecond: 40, PerMonth: 500_000}}
	Exclusive    = Edition{PerSecond: 20, before: &Edition{PerSecond: 60, PerMonth: 5_500_000}} // 专属

	// The professional edition of a company that has spent three, or four, of its five picks of resources
	// on applications, in place of one.
	Professional3 = Edition{PerSecond: 20, PerMonth: 600_000, Webhooks: 150_000, before: Professional.before}
	Professional4 = Edition{PerSecond: 20, PerMonth: 800_000, Webhooks: 200_000, before: Professional.before}
)

// What a package (增购包) adds to an edition. The calls in a second do not add up.
const (
	packagePerMonth  = 5_000_000
	packageWebhooks  = 500_000
	packagePerSecond = 60
)

// Options identify the caller, and describe its limits. The zero value is one application of one
// company with the standard edition, behind one address.
type Options struct {
	// Edition is the company's edition. Name it, Standard too, to have the months counted: calls
	// beyond them wait until the 1st. Defaults to the zero Edition: the standard edition's calls in
	// a second, and no months except through refusals.
	Edition Edition

	// OldContract says that the Edition's contract is from before 2025-11-19 and
	// still runs, so that it keeps its numbers: 10,000 calls of the standard edition,
	// and, as others have observed them, 40 a second and 500,000 calls of the
	// professional one, 60 a second and 5,500,000 calls of the exclusive one. Defaults
	// to false: the numbers of today, which are smaller.
	OldContract bool

	// Packages is how many packages (增购包) the company has bought beside the Edition. Each adds
	// 5,000,000 calls and 500,000 webhooks to the counted months. With one or more, an application
	// has 60 calls in a second of each API, unless the Edition's PerSecond is neither 0 nor 20.
	// Defaults to 0.
	Packages int

	// Buffer lets calls go on when the month's number is reached: for up to five days
	// DingTalk only warns. The month is then counted by a row in Shadow, and only a
	// refusal closes it, until the 1st. Defaults to false: calls beyond the number
	// wait until the 1st.
	Buffer bool

	// RobotPerMonth is how many calls the company allows each robot's webhook in a
	// month (资源管理 > 用量管控, for all robots). Defaults to 0: no such cap.
	RobotPerMonth int

	// App is the application's id: its app key, or the suite key of an ISV.
	// Not its token, which changes. Defaults to "": all programs that share
	// the store are one application.
	App string

	// Company is the company's id, the corp id. Defaults to "": there is only
	// one.
	Company string

	// Caller says whose a request is, for a program that calls for several
	// applications or companies. It replaces App and Company. Defaults to nil.
	Caller func(*http.Request) (app, company string)

	// Address is any name for the address that the requests come from. All
	// programs behind the same gateway or NAT use the same. Defaults to "":
	// all programs that share the store are behind one address.
	Address string

	// IPLimit is how many calls may come from the address in 20 seconds. Set it lower for an
	// address with neighbours that are not throttled: the documentation recommends an alarm at
	// 8,000. Defaults to 10,000.
	IPLimit int

	// Ban is how long the address is taken to be banned, unless the answer says
	// longer. Less is for a fake. Defaults to five minutes.
	Ban time.Duration

	// APIs are paths of the new host with parameters in them, such as
	// "/v1.0/contact/users/{unionId}": on that host an API is not a fixed path. They come before
	// the built-in APIs: see the package documentation. Defaults to nil.
	APIs []string

	// Metered reports whether a request counts for the month. Defaults to all requests except calls
	// of DingTalk's free APIs, webhooks, and other hosts.
	Metered func(*http.Request) bool

	// Receivers returns how many people a work notice is for. Defaults to how many its
	// userid_list has and, for departments, for everybody, and for a body that cannot be
	// read, the most that one call may reach: 5,000, or 1,000 of an ISV's.
	Receivers func(*http.Request) int

	// ISV is any name for a vendor whose application many companies use. It adds the rows of such
	// applications, and disables the numbers that hold for a company's own application. Defaults to
	// "": no vendor.
	ISV string

	// PerSuite is how many calls in a second an ISV's application may make,
	// per company and API. Defaults to 40.
	PerSuite int

	// Host is a pattern of the API's hosts, in place of the default for a fake,
	// a proxy or a server of one's own. Defaults to "*.dingtalk.com", for the old
	// and the new one.
	Host string

	app, company, address, isv caller.Key
	api, exact                 caller.Key // made of APIs
}

// everyHost is the default of Options.Host. The address is counted for all hosts of DingTalk, because
// nobody knows which of them share a firewall.
const everyHost = "*.dingtalk.com"

// withDefaults returns o with the defaults of its zero fields.
func (o Options) withDefaults() Options {
	o.Edition = o.bought()
	o.IPLimit = cmp.Or(o.IPLimit, 10_000)
	o.Ban = cmp.Or(o.Ban, 5*time.Minute)
	o.PerSuite = cmp.Or(o.PerSuite, 40)
	o.Host = cmp.Or(o.Host, everyHost)
	if o.Metered == nil {
		o.Metered = o.metered
	}
	if o.Receivers == nil {
		o.Receivers = o.receivers
	}

	apis := newAPITable(o.APIs)
	o.api, o.exact = apis.api, apis.exact
	o.app, o.company = caller.IDs(o.App, o.Company, o.Caller)
	o.address, o.isv = caller.Always(o.Address), caller.Always(o.ISV)

	return o
}

// bought returns the company's numbers: the Edition's, or those of its old contract, with the packages added.
func (o Options) bought() Edition {
	e := o.Edition
	if o.OldContract && e.before != nil {
		e = *e.before
	}

	e.PerSecond = cmp.Or(e.PerSecond, Standard.PerSecond)
	if o.Packages <= 0 {
		return e
	}

	// A package raises only the usual number of calls per second.
	if e.PerSecond == Standard.PerSecond {
		e.PerSecond = packagePerSecond
	}
	if e.PerMonth > 0 {
		e.PerMonth += o.Packages * packagePerMonth
	}
	if e.Webhooks > 0 {
		e.Webhooks += o.Packages * packageWebhooks
	}

	return e
}

// cost is a [throttle.Policy.Cost] under the monthly quota.
func (o Options) cost(r *http.Request) int {
	if o.Metered(r) {
		return 1
	}
	return 0
}

// metered is the default of Options.Metered: every call that DingTalk does not call free counts.
// Webhooks have a month of their own, and other hosts of DingTalk, such as the documentation's,
// have no API.
func (o Options) metered(r *http.Request) bool {
	return o.hasAPIs(r) && !free(r) && !strings.HasPrefix(throttle.RawPath(r), webhooks)
}

// hasAPIs reports whether a request goes to a host of the API.
func (o Options) hasAPIs(r *http.Request) bool {
	if o.Host != everyHost {
		return true
	}
	h := host(r)
	return h == oldHost || h == newHost
}

// webhooks is how the paths of robots' webhooks begin.
const webhooks = "/robot/"

// A freeFamily is a part of DingTalk's list of APIs that no company pays for: a method, "" for any, and
// paths that begin alike. "*" is any one segment, and "**" all that follows.
type freeFamily struct{ method, begin, ends string }

// freeFamilies is the list: page basic-interfaces-such-as-log-off-and-address-book, 2026-07-22, with the
// methods and the paths of the pages that it links to.
var freeFamilies = []freeFamily{
	// Credentials and logins. Not on the list: /gettoken, /v1.0/oauth2/{corpId}/token, corpAccessToken.
	{"POST", "/v1.0/oauth2/", "accessToken userAccessToken jsapiTickets ssoAccessToken"},
	{"GET", "/v1.0/oauth2/", "authRules/user ssoUserInfo"},
	{"GET", "/sns/", "gettoken"},

	// Users.
	{"POST", "/topapi/v2/user/", "create update get delete list getbymobile getuserinfo"},
	{"POST", "/topapi/user/", "listsimple listid count getbyunionid listadmin get_admin_scope"},
	{"POST", "/topapi/inactive/user/v2/", "get"},
	{"", "/v1.0/contact/", "empLeaveRecords seniorSettings staffAttributes/visibilitySettings staffAttributes/visibilitySettings/* users/*"},

	// Departments, roles and outer contacts.
	{"POST", "/topapi/v2/department/", "create update delete get listsub listsubid listparentbydept listparentbyuser"},
	{"POST", "/role/", "add_role add_role_group update_role"},
	{"POST", "/topapi/role/", "addrolesforemps deleterole removerolesforemps scope/update getrolegroup list getrole simplelist"},
	{"POST", "/topapi/extcontact/", "create delete update list listlabelgroups get"},

	// The company, and who sees whom.
	{"GET", "/v1.0/contact/", "invites/infos dingIndexs organizations/authInfos"},
	{"", "/v1.0/contact/", "contactHideSettings contactHideSettings/*"},
	{"POST", "/v1.0/contact/", "depts/settings/priorities"},

	// Nine APIs of 智能人事. All others count.
	{"POST", "/topapi/smartwork/hrm/", "employee/addpreentry employee/querypreentry employee/queryonjob employee/v2/update roster/meta/get"},
	{"POST", "/v1.0/hrm/", "rosters/lists/query processes/transfer"},
	{"GET", "/v1.0/hrm/employees/", "dimissionInfos dismissions"},

	// 客联.
	{"", "/v1.0/im/", "interconnections interconnections/**"},
	{"POST", "/v1.0/im/conversations/", "urls"},

	// Partners: 阿里商旅, 小蜜, e签宝, 金智, 氚云.
	{"", "/topapi/alitrip/", "**"},
	{"", "/v1.0/alitrip/", "**"},
	{"", "/v1.0/dingmi/", "**"},
	{"", "/v1.0/customerService/", "tickets tickets/**"},
	{"", "/topapi/smartbot/msg/", "push"},
	{"", "/v1.0/manufacturing/users/", "**"},
	{"", "/v2.0/esign/", "**"},
	{"", "/v1.0/jzcrm/", "**"},
	{"", "/v1.0/h3yun/", "**"},
}

// freeMethods has the method of each free API by its path. The path of a family ends with "*" or "**".
var freeMethods = func() map[string]string {
	all := make(map[string]string)
	for _, family := range freeFamilies {
		for end := range strings.FieldsSeq(family.ends) {
			all[family.begin+end] = family.method
		}
	}
	return all
}()

// free reports whether a request calls an API of DingTalk's list of free APIs. A path with dot
// segments is not free: its API depends on the server.
func free(r *http.Request) bool {
	p := throttle.RawPath(r)
	if r.URL == nil || match.HidesDots(r.URL.EscapedPath()) || !onItsHost(r, p) {
		return false
	}

	// The list has the path itself, or the path with "*" as its last segment.
	method := throttle.Method(r)
	end := strings.LastIndexByte(p, '/') + 1
	if freeAt(p, "", method) || end < len(p) && freeAt(p[:end], "*", method) {
		return true
	}

	// Or it has a beginning of the path, up to a slash, with "**" in place of the rest, which must not be empty.
	for ; end > 1; end = strings.LastIndexByte(p[:end-1], '/') + 1 {
		if end < len(p) && freeAt(p[:end], "**", method) {
			return true
		}
	}

	return false
}

// freeAt reports whether the list has, for a method, the path that begin and wildcard, which may be "", make
// together.
func freeAt(begin, wildcard, method string) bool {
	// A map is searched by joined bytes without an allocation.
	var room [128]byte
	want, ok := freeMethods[string(append(append(room[:0], begin...), wildcard...))]
	return ok && (want == "" || want == method)
}

// onItsHost reports whether a path can be an API of the host that is called. On other hosts than
// DingTalk's own, such as a fake's, every path can.
func onItsHost(r *http.Request, p string) bool {
	switch host(r) {
	case oldHost:
		return !isNew(p)
	case newHost:
		return isNew(p)
	}
	return true
}

// The hosts of all pages of the documentation.
const (
	oldHost = "oapi.dingtalk.com"
	newHost = "api.dingtalk.com"
)

// host returns the host of a request in lower case, without a port.
func host(r *http.Request) string {
	if r == nil || r.URL == nil {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(r.URL.Hostname(), "."))
}

// templates are the APIs of the new host that batch jobs use, and the APIs with rows of their own.
var templates = []string{
	"/v1.0/ats/candidates/importCandidateByResume",
	"/v1.0/calendar/users/{userId}/calendars/{calendarId}/events",
	"/v1.0/card/streaming",
	"/v1.0/contact/users/{unionId}",
	"/v1.0/crm/customerInstances",
	"/v1.0/crm/officialAccounts/oToMessages/batchSend",
	"/v1.0/crm/officialAccounts/oToMessages/send",
	"/v1.0/oauth2/accessToken",
	"/v1.0/oauth2/{corpId}/token",
	"/v1.0/robot/ding/send",
	"/v1.0/robot/groupMessages/send",
	"/v1.0/robot/oToMessages/batchSend",
	"/v1.0/swform/forms/{formCode}/instances",
	"/v1.0/workflow/processInstances",
	"/v1.0/workflow/processes/instanceIds/query",
}

// An apiTable is the templates that tell APIs of the new host apart.
type apiTable []string

// newAPITable returns a table of the program's own templates and the built-in templates.
func newAPITable(own []string) apiTable { return slices.Concat(own, templates) }

// api is the part of a key that says which API a request calls. On the old host it is the path. On the
// new host it is the first template that fits the path. A path that fits no template shares a budget
// with all paths of its product, which is slow but safe: any segment may be somebody's id, and must not
// make a budget of its own.
func (t apiTable) api(r *http.Request) string {
	rawPath := throttle.RawPath(r)
	if !isNew(rawPath) {
		return rawPath
	}
	p := pathOf(r, rawPath)
	if template := t.find(p); template != "" {
		return template
	}
	return product(p)
}

// exact is api, except that each path that fits no template is an API of its own. It is for budgets
// without a number, which exist only once an answer has closed them.
func (t apiTable) exact(r *http.Request) string {
	rawPath := throttle.RawPath(r)
	if !isNew(rawPath) {
		return rawPath
	}
	return cmp.Or(t.find(pathOf(r, rawPath)), rawPath)
}

// find returns the first template that fits a path, or "".
func (t apiTable) find(p string) string {
	for _, template := range t {
		if fits(template, p) {
			return template
		}
	}
	return ""
}

// fits reports whether a path fits a template, in which a segment in braces stands for any segment. Slashes
// at the ends do not count.
func fits(template, p string) bool {
	template, p = strings.Trim(template, "/"), strings.Trim(p, "/")
	for more := true; more; {
		var want, segment string
		var moreOfPath bool
		want, template, more = strings.Cut(template, "/")
		segment, p, moreOfPath = strings.Cut(p, "/")
		wild := strings.HasPrefix(want, "{") && strings.HasSuffix(want, "}")
		if more != moreOfPath || want != segment && !wild {
			return false
		}
	}
	return true
}

// isNew reports whether a path belongs to the new host: it begins with a version such as "/v1.0".
func isNew(p string) bool {
	version, ok := strings.CutPrefix(p, "/v")
	version, _, _ = strings.Cut(version, "/")
	major, minor, dotted := strings.Cut(version, ".")
	return ok && dotted && isNumber(major) && isNumber(minor)
}

// isNumber reports whether a text is digits, at least one.
func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// pathOf returns a request's path in the form in which its segments are compared: escaped and cleaned,
// so that "%2F" is part of a segment. rawPath is the request's RawPath, which is unescaped. If an escape hides
// a segment of dots, pathOf returns rawPath with slashes in place of backslashes, cleaned.
func pathOf(r *http.Request, rawPath string) string {
	escaped := r.URL.EscapedPath()
	if escaped == rawPath { // as nearly all are
		return rawPath
	}

	// Many servers decode before they clean, and some take "%5c" for a slash, too: see match.HidesDots.
	if match.HidesDots(escaped) {
		return path.Clean(strings.ReplaceAll(rawPath, `\`, "/"))
	}
	return path.Clean(escaped)
}

// product returns the first two segments of a path, such as "/v1.0/contact" for all paths below, or the path
// itself if it has only one.
func product(p string) string {
	version, rest, _ := strings.Cut(p[1:], "/")
	name, _, _ := strings.Cut(rest, "/")

	// The slash in front of name is there only if rest is.
	return strings.TrimSuffix(p[:1+len(version)+min(len(rest), 1)+len(name)], "/")
}

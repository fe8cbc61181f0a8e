package dingtalk

import (
	"net/http"
	"strconv"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
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

// products are the rows of single APIs.
func products(o Options) []throttle.Policy {
	companyApp := throttle.Join(o.company, o.app)
	notice := "POST " + o.Host + workNotices
	rows := []throttle.Policy{
		{
			Name: "dingtalk-robot-code", Match: "POST " + o.Host + robots, Key: throttle.Join(o.company, o.app, robotCode, o.api),
			Limit:  none,
			Answer: o.closedBy(robot),
		},
		{
			// "Fewer than 6,000".
			Name: "dingtalk-ding", Match: "POST " + o.Host + dings, Key: throttle.Join(o.company, o.app, robotCode),
			Limit:  throttle.PerMinute(5_999),
			Answer: o.closedBy(ding),
		},
		{
			Name: "dingtalk-notices", Match: notice, Key: companyApp, Cost: o.noticeReceivers,
			Limit:  throttle.PerMinute(mostReceivers),
			Answer: feedback.First(o.closedBy(notices), dropped(AppPerMinute, SuitePerMinute)),
		},
		{
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
			Answer: feedback.First(o.closedBy(noticesSuite), dropped(SuiteAllPerMinute)),
		},
		throttle.Policy{
			Name: "dingtalk-customers", Match: "POST " + o.Host + customers, Key: o.company,
			Limit:  throttle.PerSecond(1),
			Answer: feedback.LeaveOpen,
		},
	)
}

// dropped returns a reader that closes a row for a minute after the result of work notices that says that some were dropped
// because of a limit of a minute, by these codes.
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

	// In the buffer only a refusal closes the month. What was called is counted all the same.
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

package dingtalk

import (
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// none is the limit of budgets without a number of their own, which only answers
// close.
var none = throttle.Unlimited()

// Policies returns DingTalk's table of limits for an account.
func Policies(o Options) []throttle.Policy {
	o = o.withDefaults()
	if o.ISV != "" {
		return append(shared(o), vendors(o)...)
	}
	return append(shared(o), companys(o)...)
}

// shared are the rows that hold for everybody.
func shared(o Options) []throttle.Policy {
	all, robot := o.Host+"/", "POST "+o.Host+"/robot/send"
	return []throttle.Policy{
		{
			Name: "dingtalk-ip", Match: all, Key: o.address,
			Limit:   throttle.SlidingWindow(o.IPLimit, 20*time.Second),
			Penalty: feedback.First(banned(o), addressCodes.forAbout()),
		},
		{
			Name: "dingtalk-global", Match: all, Key: o.api,
			Limit:   none,
			Penalty: everybodysCodes.forAbout(),
		},
		{
			Name: "dingtalk-robot", Match: robot, Key: throttle.Query("access_token"),
			Limit:   throttle.PerMinute(20),
			Penalty: robotCodes.exactly(),
		},
		{
			Name: "dingtalk-webhooks", Match: robot, Key: o.company,
			Limit:   none,
			Penalty: webhookCodes.forTheMonth(),
		},
	}
}

// companys are the rows of a company's own applications.
func companys(o Options) []throttle.Policy {
	all, perMonth := o.Host+"/", none
	if o.Edition.PerMonth > 0 {
		perMonth = throttle.CalendarWindow(o.Edition.PerMonth, throttle.Month, beijing)
	}
	return []throttle.Policy{
		{
			Name: "dingtalk-api", Match: all, Key: throttle.Join(o.app, o.api),
			Limit:   throttle.PerSecond(o.Edition.PerSecond),
			Penalty: appAPICodes.and(isvAPICodes, suiteCompanyAPICodes).forAbout(),
		},
		{
			Name: "dingtalk-app", Match: all, Key: o.app,
			Limit:   none,
			Penalty: appCodes.and(isvCodes, suiteCompanyCodes).forAbout(),
		},
		{
			Name: "dingtalk-company", Match: all, Key: o.company,
			Limit:   none,
			Penalty: companyCodes.and(isvCompanyCodes).forAbout(),
		},
		{
			Name: "dingtalk-company-api", Match: all, Key: throttle.Join(o.company, o.api),
			Limit:   none,
			Penalty: companyAPICodes.and(isvCompanyAPICodes).forAbout(),
		},
		{
			Name: "dingtalk-month", Match: all, Key: o.company, Cost: o.cost,
			Limit:   perMonth,
			Penalty: monthCodes.forTheMonth(),
		},
	}
}

// vendors are the rows of an application that many companies use, a suite.
func vendors(o Options) []throttle.Policy {
	all := o.Host + "/"
	return []throttle.Policy{
		{
			Name: "dingtalk-suite-company-api", Match: all, Key: throttle.Join(o.app, o.company, o.api),
			Limit:   throttle.PerSecond(o.PerSuite),
			Penalty: suiteCompanyAPICodes.forAbout(),
		},
		{
			Name: "dingtalk-suite-company", Match: all, Key: throttle.Join(o.app, o.company),
			Limit:   none,
			Penalty: suiteCompanyCodes.forAbout(),
		},
		{
			Name: "dingtalk-api", Match: all, Key: throttle.Join(o.app, o.api),
			Limit:   none,
			Penalty: appAPICodes.forAbout(),
		},
		{
			Name: "dingtalk-app", Match: all, Key: o.app,
			Limit:   none,
			Penalty: appCodes.forAbout(),
		},
		{
			Name: "dingtalk-isv-company-api", Match: all, Key: throttle.Join(o.isv, o.company, o.api),
			Limit:   none,
			Penalty: isvCompanyAPICodes.forAbout(),
		},
		{
			Name: "dingtalk-isv-company", Match: all, Key: throttle.Join(o.isv, o.company),
			Limit:   none,
			Penalty: isvCompanyCodes.forAbout(),
		},
		{
			Name: "dingtalk-isv-api", Match: all, Key: throttle.Join(o.isv, o.api),
			Limit:   none,
			Penalty: isvAPICodes.forAbout(),
		},
		{
			Name: "dingtalk-isv", Match: all, Key: o.isv,
			Limit:   none,
			Penalty: isvCodes.forAbout(),
		},
		{
			Name: "dingtalk-company-api", Match: all, Key: throttle.Join(o.company, o.api),
			Limit:   none,
			Penalty: companyAPICodes.forAbout(),
		},
		{
			Name: "dingtalk-company", Match: all, Key: o.company,
			Limit:   none,
			Penalty: companyCodes.forAbout(),
		},
		{
			Name: "dingtalk-month", Match: all, Key: o.company, Cost: o.cost,
			Limit:   none,
			Penalty: monthCodes.forTheMonth(),
		},
	}
}

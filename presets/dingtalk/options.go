package dingtalk

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
)

// An Edition is a company's edition of DingTalk. The zero Edition counts no months.
type Edition struct {
	PerSecond int // calls in a second, per application and API; 0 means 20, as in the standard edition
	PerMonth  int // counted calls of the whole company in a month; 0 means that no month is counted here
	Webhooks  int // calls of webhooks and of Stream in a month, of the whole company; 0 means that no month is counted here

	before *Edition // as contracts from before 2025-11-19 have it
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
	// had again, the most that one call may reach: 5,000, or 1,000 of an ISV's.
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

// bought returns the numbers of the edition, of its contract, and of the packages.
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

// metered is the default of Options.Metered: every call counts that DingTalk does not call free.
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

package dingtalk

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
)

// An Edition is what a company has bought.
type Edition struct {
	PerSecond int // calls in a second, per application and API; 0: those of the standard edition
	PerMonth  int // metered calls of the whole company in a month; 0: not counted here
}

// The editions. The second numbers of the larger two are older than the standard
// edition's, which has been halved since.
var (
	Standard     = Edition{PerSecond: 20, PerMonth: 5_000}
	Professional = Edition{PerSecond: 40, PerMonth: 500_000}
	Exclusive    = Edition{PerSecond: 60, PerMonth: 5_500_000} // 专属
)

// Options says whose limits count, and what they are. The zero value is one
// application of one company with the standard edition, behind one address.
type Options struct {
	// Edition is what the company has bought. Name it, Standard too, to have the
	// month counted: what is beyond it waits until the 1st. Defaults to the zero
	// Edition: the standard one's calls in a second, and no month but what answers
	// say.
	Edition Edition

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

	// IPLimit is how many calls may come from the address in 20 seconds; with
	// neighbours that are not throttled, 8,000 is what the documentation takes
	// for an alarm. Defaults to 10,000.
	IPLimit int

	// Ban is how long the address is taken to be banned, unless the answer says
	// longer. Less is for a fake. Defaults to five minutes.
	Ban time.Duration

	// APIs are paths of the new host with parameters in them, such as
	// "/v1.0/contact/users/{unionId}", because there a path is no API. They
	// come before those that are known anyway: see the package documentation.
	// Defaults to nil.
	APIs []string

	// Metered reports whether a request counts for the month. Defaults to
	// what is known: attendance, approval, robots and notices.
	Metered func(*http.Request) bool

	// ISV is any name for a vendor whose application many companies use. It
	// adds the rows of such applications, and the numbers that hold for one
	// company's own do not count any more. Defaults to "": none.
	ISV string

	// PerSuite is how many calls in a second an ISV's application may make,
	// per company and API. Defaults to 40.
	PerSuite int

	// Host is a pattern of the API's hosts, in place of the default for a fake,
	// a proxy or a server of one's own. Defaults to "*.dingtalk.com", for the old
	// and the new one.
	Host string

	app, company, address, isv caller.Key
	api                        caller.Key // made of APIs
}

// everyHost is the default of Options.Host.
const everyHost = "*.dingtalk.com"

// withDefaults fills in what was left out.
func (o Options) withDefaults() Options {
	o.Edition.PerSecond = cmp.Or(o.Edition.PerSecond, Standard.PerSecond)
	o.IPLimit = cmp.Or(o.IPLimit, 10_000)
	o.Ban = cmp.Or(o.Ban, 5*time.Minute)
	o.PerSuite = cmp.Or(o.PerSuite, 40)
	o.Host = cmp.Or(o.Host, everyHost)
	o.api = apis(o.APIs)
	if o.Metered == nil {
		o.Metered = metered
	}
	o.app, o.company = caller.IDs(o.App, o.Company, o.Caller)
	o.address, o.isv = caller.Always(o.Address), caller.Always(o.ISV)
	return o
}

// cost is a [throttle.Policy.Cost] under the monthly quota.
func (o Options) cost(r *http.Request) int {
	if o.Metered(r) {
		return 1
	}
	return 0
}

// metered knows the families that are not on DingTalk's list of free ones. What
// it does not know is free here: to count a free call would refuse good ones.
func metered(r *http.Request) bool {
	path := throttle.Path(r)
	for _, family := range []string{
		"/attendance/", "/topapi/attendance/",
		"/topapi/process", "/v1.0/workflow/",
		"/topapi/message/", "/v1.0/robot/",
	} {
		if strings.HasPrefix(path, family) {
			return true
		}
	}
	return false
}

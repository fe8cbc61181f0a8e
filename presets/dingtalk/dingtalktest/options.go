package dingtalktest

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/presets/dingtalk"
)

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

	// PerPerson is how many messages of robots a person gets in any minute by
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

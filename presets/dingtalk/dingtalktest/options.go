package dingtalktest

import (
	"cmp"
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle/presets/dingtalk"
)

// Options says how strict a [Server] is. The zero value has the published
// numbers of the standard edition.
type Options struct {
	// People is how many people the address book has, in a department for each
	// 20 of them. Defaults to 3,000.
	People int

	// Edition is what the company has bought: calls in a second per application
	// and API, and metered calls in a month. Defaults to [dingtalk.Standard].
	Edition dingtalk.Edition

	// PerAPI is how many calls all applications together may make of one API in
	// a second of the clock. Defaults to 0: any number.
	PerAPI int

	// IPLimit is how many calls may come from one address in 20 seconds. One
	// more bans the address. Defaults to 10,000.
	IPLimit int

	// Ban is how long a banned address is refused everything. Defaults to five
	// minutes.
	Ban time.Duration

	// BanAnswer answers calls from a banned address. Defaults to the JSON that
	// DingTalk sends, with status 200.
	BanAnswer http.HandlerFunc

	// The documentation leaves open how calls are counted.

	// FixedWindows says that the second and the 20 seconds are those of the
	// clock. Defaults to false: any interval.
	FixedWindows bool

	// CountRefused says that calls that are refused for the second take up room
	// in it. Defaults to false.
	CountRefused bool

	// BanProlongs says that a call during a ban begins the ban anew. Defaults to
	// false.
	BanProlongs bool
}

// withDefaults fills in what was left out.
func (o Options) withDefaults() Options {
	o.People = cmp.Or(o.People, 3000)
	o.Edition = cmp.Or(o.Edition, dingtalk.Standard)
	o.Edition.PerSecond = cmp.Or(o.Edition.PerSecond, dingtalk.Standard.PerSecond)
	o.IPLimit = cmp.Or(o.IPLimit, 10_000)
	o.Ban = cmp.Or(o.Ban, 5*time.Minute)
	if o.BanAnswer == nil {
		o.BanAnswer = denied(o.Ban)
	}
	return o
}

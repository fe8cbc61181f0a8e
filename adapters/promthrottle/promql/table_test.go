package promql

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// table has a policy of each form that has metrics of its own.
var table = []throttle.Policy{
	{Name: "calls", Match: "/", Limit: throttle.PerSecond(2)},
	{Name: "trial", Match: "/", Limit: throttle.SlidingWindow(1, time.Minute), Shadow: true},
	{Name: "apps", Match: "/", Limit: throttle.PerSecond(100), Key: throttle.Host},
}

package promql

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// table has a policy of each form that has metrics of its own.
var table = []throttle.Policy{
	{Name: "calls", Limit: throttle.PerSecond(2)},
	{Name: "trial", Limit: throttle.SlidingWindow(1, time.Minute), Shadow: true},
	{Name: "apps", Limit: throttle.PerSecond(100), Key: throttle.Host},
}

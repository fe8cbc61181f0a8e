package redistest

import "github.com/fleetthrottle/throttle/internal/servers"

// A TB is for whom servers are started.
type TB = servers.TB

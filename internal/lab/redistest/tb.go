package redistest

import "github.com/fleetthrottle/throttle/internal/lab/servers"

// A TB is for whom servers are started.
type TB = servers.TB

// Package dashboard is a page that shows what budgets are like: what is closed, for how
// long, why and by whom; who waits, and for what; how much of each limit is used. From
// the page an operator can pause a budget and resume it.
//
// A [Handler] serves the page below any path of a program's own server. It reads a
// [Source]: [Fleet] for the programs that share budgets in Redis, or a [Process] for one
// program. It reads once a second for all viewers together, and only while somebody
// looks, unless [Handler.Watch] keeps its history.
//
//	watched := dashboard.NewProcess(memstore.New())
//	transport, err := throttle.New(throttle.Config{Store: watched, Observe: watched.Observe, …})
//	page, err := dashboard.New(dashboard.Config{Source: watched, Token: os.Getenv("DASHBOARD_TOKEN")})
//	http.Handle("/throttle/", http.StripPrefix("/throttle", page))
//
// # Who may look, and who may act
//
// Who looks needs the token, or the login of the program around the page: [Config.Login]. Who wants
// to pause or resume needs the token always. [Config.Local] lets those look without the token who
// reach the page at a loopback address of the machine. Leave it off where a proxy on the machine leads
// to the page: nginx as it ships cannot be told from somebody who sits there.
//
// # What it costs
//
// A page that nobody looks at, or watches over, costs no read, and no goroutine runs for it. A hundred
// pages cost the source as much as one. The page on the [dashboard] has what it shows.
//
// [dashboard]: https://github.com/fleetthrottle/throttle/blob/main/docs/dashboard.md
package dashboard

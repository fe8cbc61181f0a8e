// Package dashboard is a page that shows what budgets are like: what is closed, for how
// long, why and by whom; who waits, and for what; how much of each limit is used. From
// the page an operator can pause a budget and resume it.
//
// A [Handler] serves the page below any path of a program's own server. It reads a
// [Source]: [Fleet] for the programs that share budgets in Redis, or a [Process] for one
// program. It reads once a second for all viewers together, and only while somebody
// looks.
//
//	watched := dashboard.NewProcess(memstore.New())
//	transport, err := throttle.New(throttle.Config{Store: watched, Observe: watched.Observe, …})
//	page, err := dashboard.New(dashboard.Config{Source: watched})
//	http.Handle("/throttle/", http.StripPrefix("/throttle", page))
//
// # Who may look, and who may act
//
// Who reaches the page at a loopback address of the machine may look at it. Everybody else needs
// the token, or the login of the program around it: [Config.Login]. Who wants to pause or
// resume needs the token always. A request that came through a proxy is not taken for
// one of this machine.
//
// # What it costs
//
// A page that nobody looks at costs no read, and no goroutine runs for it. A hundred
// pages cost the source as much as one. docs/dashboard.md has what the page shows.
package dashboard

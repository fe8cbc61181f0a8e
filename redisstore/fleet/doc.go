// Package fleet sees and steers the programs that share budgets in Redis.
//
// A program that wants to be seen puts a [Reporter] around its store. It reports every few
// seconds what the program is and which budgets it uses, and knows what operators said
// who closed one by hand, so that errors repeat it. A [Fleet] reads the reports, closes
// and opens budgets, and keeps the file of policies that programs follow; the command
// line is built on it. The page on [fleets] has the keys, the page on [rights] what a
// user of Redis must be allowed.
//
// Nothing here is on a request's way but one look into a map in memory.
//
// [fleets]: https://github.com/fleetthrottle/throttle/blob/main/docs/fleet.md
// [rights]: https://github.com/fleetthrottle/throttle/blob/main/docs/redis.md#the-fewest-rights
package fleet

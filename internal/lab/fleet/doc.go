// Package fleet is the test bed for what only a fleet can show: several
// processes with many workers each, one store, and an upstream that counts
// arrivals in exact sliding windows and bans. It measures from outside: what
// the upstream saw, how long the workers waited, and how often the store was asked.
//
// [Run] starts the running program once more for each member of the fleet, so a
// program that calls Run calls [Main] first thing, as a test does in TestMain.
// Limiters other than throttle take part as a [Limiter].
package fleet

// Chaos breaks real Redis servers, networks and processes under a fleet that
// pulls through throttle, and judges what an upstream saw that counts.
//
//	go run ./internal/lab/chaos               the most important faults, a minute
//	go run ./internal/lab/chaos -long         all of them, several times
//	go run ./internal/lab/chaos -list         what there is
//	go run ./internal/lab/chaos -fault kill   one of them
//
// The program is its own fleet: it starts itself again for each member. It ends
// with 1 if a promise was broken, and says which. See docs/internals/chaos.md.
package main

// Package benchmarks compares throttle with other libraries, side by side in
// one run. It has nothing but benchmarks; README.md says how to run and how to
// read them.
package benchmarks

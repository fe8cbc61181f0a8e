// Package promql has no code: its tests read the rules and the dashboard of promthrottle with
// Prometheus' parser.
package promql

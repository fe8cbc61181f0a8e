// Package redissim is Redis in virtual time: servers, of a cluster or alone, at the end of
// wires that take time. Clients, stores and scripts are real, and a real server runs
// the scripts. Use it in a bubble of testing/synctest.
package redissim
